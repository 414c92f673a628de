//! Retries by operators: a refused or failed message is sent again as a new message of the same
//! sender. The earlier message and its disposition stay as they are.
//!
//! Each message is retried at most once, so that two operators cannot both send the same work
//! again. For a further try, an operator must retry the new message.

use uuid::Uuid;

use super::budgets::NO_MESSAGE_LEFT;
use super::event::{Effect, OperatorRuling};
use super::refusals::refusal_of;
use super::signatures::SignedDecision;
use super::submit::ClientRequest;
use super::{Core, Step};
use crate::clock::Time;
use crate::contract::{Meaning, Role};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::mutant::mutant;
use crate::pump::gate::Checked;
use crate::system::{ActionReport, CorePayload};
use crate::thread::{DecisionOrigin, DecisionStatement, Fact, Input, KeyUse, RetryAction, Verdict};

/// Label of the subthread for the retry of a listener's call.
const RETRY_LABEL: &str = "retry";

/// Text of the refusal if an operator retries a delegation.
const IS_DELEGATION: &str = "this delegates a task of a goal, and only the goal can use its result; \
    retry the request to which the goal belongs";

/// An operator's request to retry a message. `payload` is the result of a new check of the
/// message's payload at the gate.
#[derive(Debug)]
pub struct RetryOrder {
    /// Identifies the caller that waits for the pump's ruling on the retry. Not recorded.
    pub ticket: Uuid,
    pub action: RetryAction,
    pub payload: Result<Checked, Refusal>,
}

/// The pump's ruling on a [`RetryOrder`].
#[derive(Debug, Clone)]
pub enum RetryRuling {
    /// The pump has sent the message again, as a new message, and has opened one call for each peer
    /// that gets it.
    Retried { thread: ThreadId, calls: Vec<CallId> },
    /// The message was already retried. Contains the id of the message that the earlier retry sent.
    /// Nothing is recorded.
    AlreadyRetried(MessageId),
    /// The operator must confirm the retry first, because it could repeat work that is already
    /// done. Nothing is recorded.
    Unconfirmed(String),
    /// The retry is refused. On record, unless the refused submission was already sent again with
    /// its key: a repetition of the retry can then succeed only after the key has expired.
    Refused(Refusal),
}

/// The client and the peers of a retry that passed all checks.
struct RetryPlace {
    /// The client that gets the result of the retry.
    client: ListenerName,
    peers: Vec<ListenerName>,
}

impl Core {
    /// Processes an operator's order to retry a message. If a check of the order fails, sends
    /// nothing and reports the reason.
    pub(super) fn retry_message(&mut self, step: &mut Step, order: RetryOrder) {
        let RetryOrder { ticket, mut action, payload } = order;
        action.origin = action.origin.map(DecisionOrigin::shortened);
        action.by = ListenerName::operator();

        // The key comes before the confirmation, which does not help if the key is used.
        let unrecorded = self
            .earlier_retry(&action)
            .or_else(|| self.sent_again(step.time, &action, &payload))
            .or_else(|| self.unconfirmed(&action, &payload));
        if let Some(ruling) = unrecorded {
            let ruling = OperatorRuling::Retry(ruling);
            return step.effect(Effect::Ruled { ticket, ruling });
        }

        let origin = action.origin.clone().unwrap_or_default();
        let text = action.text();
        let source = action.source.clone();
        let signed = SignedDecision {
            statement: Some(DecisionStatement::retry(&text, &origin.note)),
            thread: &source,
            signature: origin.signature.as_deref(),
        };
        let placed = payload.and_then(|checked| {
            let place = self.place_retry(&action, &checked);
            let place = place.and_then(|place| self.proof(step.time, &signed).map(|_| place));
            // The refusal is made from the payload, so that its record identifies the payload.
            let place =
                place.map_err(|refusal| refusal_of(refusal.rule, refusal.message, &checked))?;
            Ok((checked, place))
        });
        if let Err(refusal) = &placed {
            action.verdict = Verdict::Refused(refusal.digest);
        }

        let home = if placed.is_ok() { action.thread.clone() } else { source.root() };
        step.begin_record(home, Input::OperatorRetry(Box::new(action.clone())));
        let proved =
            placed.and_then(|placed| self.check_signature(step, &signed).map(|by| (by, placed)));

        let ruling = match proved {
            Ok((by, (checked, place))) => self.send_again(step, &by, &action, &checked, &place),
            Err(refusal) => {
                let operator = ListenerName::operator();
                self.refuse(step, &operator, None, None, refusal.clone());
                RetryRuling::Refused(refusal)
            }
        };
        step.effects.insert(0, Effect::Ruled { ticket, ruling: OperatorRuling::Retry(ruling) });
    }

    /// Returns [`RetryRuling::AlreadyRetried`] if the message was already retried. Otherwise
    /// returns `None`.
    fn earlier_retry(&self, action: &RetryAction) -> Option<RetryRuling> {
        let tree = self.state.trees.get(&action.thread)?;
        let retry = tree.retried.get(&action.message).filter(|_| !mutant("retry-twice"))?;
        Some(RetryRuling::AlreadyRetried(*retry))
    }

    /// Returns the refusal if the submission was already sent again with its client key, by the
    /// client or by the retry of another refusal. Otherwise returns `None`. In a replay of a
    /// refused retry, `payload` is the recorded refusal, so a journal in which such refusals are on
    /// record gives the same records again.
    fn sent_again(
        &self,
        now: Time,
        action: &RetryAction,
        payload: &Result<Checked, Refusal>,
    ) -> Option<RetryRuling> {
        let checked = payload.as_ref().ok()?;
        let used = self.key_use(now, action).filter(|used| used.digest == checked.payload().digest);
        let used = used.filter(|_| !mutant("retry-a-used-key"))?;
        let text = format!(
            "this was sent with the same key since, by {} or by a retry, in thread {}",
            action.sender, used.thread
        );
        Some(RetryRuling::Refused(refusal_of(RefusalRule::KeyReused, text, checked)))
    }

    /// Returns [`RetryRuling::Unconfirmed`] if the retry could repeat work that is already done,
    /// and the operator has not accepted this risk. Returns `None` for any other retry.
    fn unconfirmed(
        &self,
        action: &RetryAction,
        payload: &Result<Checked, Refusal>,
    ) -> Option<RetryRuling> {
        if action.is_confirmed || mutant("retry-unconfirmed") {
            return None;
        }
        if action.is_unknown {
            let text = "its outcome is unknown: the work may have been done".to_owned();
            return Some(RetryRuling::Unconfirmed(text));
        }

        let checked = payload.as_ref().ok()?;
        let peers = self.peers_of_retry(action, checked).ok()?;
        let once = peers.iter().find(|peer| {
            let contract = self.contracts.get(peer);
            contract.is_some_and(|contract| contract.attempts_of(Some(checked.name())) == 1)
        })?;
        let text = format!("{once} has `attempts = 1`, so a retry needs a confirmation");
        Some(RetryRuling::Unconfirmed(text))
    }

    /// Returns the peers that get the payload of a retry. If the retried message had a recipient,
    /// only this recipient gets the payload.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the sender may not send the payload, if there is no room for the
    /// call, or if the payload delegates a task of a goal.
    fn peers_of_retry(
        &self,
        action: &RetryAction,
        checked: &Checked,
    ) -> Result<Vec<ListenerName>, Refusal> {
        let refused = |(rule, text): (RefusalRule, String)| refusal_of(rule, text, checked);
        let sender = &action.sender;
        // An agent has called itself in a thread that it had spawned.
        if *checked.meaning() == Meaning::Own && action.to.as_ref() == Some(sender) {
            let peers = vec![sender.clone()];
            self.check_room(sender, &peers, checked).map_err(refused)?;
            return Ok(peers);
        }
        if matches!(checked.meaning(), Meaning::Delegate { .. }) {
            let rule = RefusalRule::NotInVocabulary;
            return Err(refusal_of(rule, IS_DELEGATION, checked));
        }

        let peers = self.admissible(sender, checked).map_err(refused)?;
        let Some(to) = &action.to else { return Ok(peers) };
        if peers.contains(to) {
            return Ok(vec![to.clone()]);
        }

        let text = format!(
            "{} no longer sends this payload to {to}; the config has changed since",
            action.sender
        );
        Err(refusal_of(RefusalRule::NotInVocabulary, text, checked))
    }

    /// Checks whether a retry may begin. Returns the client that gets the result of the retry, and
    /// the peers that get the payload.
    ///
    /// # Errors
    ///
    /// Returns a refusal for the first rule that the retry breaks.
    fn place_retry(&self, action: &RetryAction, checked: &Checked) -> Result<RetryPlace, Refusal> {
        let refused = |rule, text: &str| Err(refusal_of(rule, text, checked));
        let root = &action.thread;
        let is_new = action.source.root() != *root;
        if !root.is_root() || (is_new && self.state.trees.contains_key(root)) {
            return refused(RefusalRule::BadLabel, &format!("the thread id {root} is taken"));
        }

        let opened_by = self.state.thread(root).map(|thread| thread.by.clone());
        let client = opened_by.unwrap_or_else(|| action.sender.clone());
        let contract = self.contracts.get(&client);
        if contract.is_none_or(|contract| contract.role != Role::Client) {
            let text = format!("the config has no client `{client}`, which would get the result");
            return refused(RefusalRule::NotInVocabulary, &text);
        }

        let peers = self.peers_of_retry(action, checked)?;
        let renews = self.renews(&client, root);
        if let Some(tree) = self.state.tree(root)
            && !renews
            && self.budgets.has_no_message_left(tree, 0)
        {
            return refused(RefusalRule::BudgetSpent, NO_MESSAGE_LEFT);
        }
        let denied = if renews { self.denied_depth(root) } else { self.cannot_spawn(root) };
        if let Some(text) = denied.filter(|_| !self.is_client(&action.sender)) {
            return refused(RefusalRule::BudgetSpent, &text);
        }
        Ok(RetryPlace { client, peers })
    }

    /// Returns the submission that used the client key of the retry. Returns `None` if the retry
    /// has no client key, if no submission has used the key, or if the key has expired.
    fn key_use(&self, now: Time, action: &RetryAction) -> Option<&KeyUse> {
        self.recorded_key(action).filter(|used| !self.has_expired(used, &action.sender, now))
    }

    fn recorded_key(&self, action: &RetryAction) -> Option<&KeyUse> {
        let key = action.key.clone()?;
        self.state.keys.get(&(action.sender.clone(), key))
    }

    fn is_client(&self, sender: &ListenerName) -> bool {
        self.contracts.get(sender).is_some_and(|contract| contract.role == Role::Client)
    }

    fn send_again(
        &mut self,
        step: &mut Step,
        by: &ListenerName,
        action: &RetryAction,
        checked: &Checked,
        place: &RetryPlace,
    ) -> RetryRuling {
        let RetryPlace { client, peers } = place;
        let thread = self.open_retry_thread(step, action, client);
        let report = ActionReport {
            thread: Some(action.source.clone()),
            details: vec![
                ("message".to_owned(), action.message.to_string()),
                ("record".to_owned(), action.record.to_string()),
            ],
            ..ActionReport::new("retry", by.clone())
        };
        let core = ListenerName::core();
        let cause = self.system_note(step, &thread, &core, &CorePayload::OperatorAction(report));

        // If another payload has used the key since, the key stays with that payload.
        let key = action.key.as_ref().filter(|_| self.key_use(step.time, action).is_none());
        if let (Some(key), Some(_)) = (key, self.recorded_key(action)) {
            let client = action.sender.clone();
            self.fact(step, Fact::KeyExpired { client, key: key.clone() });
        }
        self.fact(step, Fact::Retried { message: action.message, retry: action.id });
        let request = ClientRequest {
            id: action.id,
            sender: &action.sender,
            client,
            thread: &thread,
            key,
            cause: Some(cause.id),
        };
        let calls = self.open_client_calls(step, &request, checked, peers);
        RetryRuling::Retried { thread, calls }
    }

    /// Returns the thread that gets the new message of a retry. If a client sent the original
    /// message, this is the root thread of the tree. If a listener sent it, this is a new subthread
    /// of the root thread, because the listener's own thread must not get a second result for the
    /// original message.
    fn open_retry_thread(
        &mut self,
        step: &mut Step,
        action: &RetryAction,
        client: &ListenerName,
    ) -> ThreadId {
        let root = action.thread.clone();
        if self.state.thread(&root).is_none() {
            self.open_thread(step, &root, client);
        } else if self.renews(client, &root) {
            self.fact(step, Fact::Renewed { by: client.clone() });
        }
        if self.is_client(&action.sender) {
            return root;
        }

        let child = root.child(&self.free_label(&root, Some(RETRY_LABEL.to_owned())));
        self.open_thread(step, &child, client);
        child
    }
}

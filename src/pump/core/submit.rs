//! Submissions: payloads of clients for a new thread, or for a thread that the client opened.

use super::budgets::NO_MESSAGE_LEFT;
use super::event::{Effect, Receipt, Submission, Target};
use super::message::NewMessage;
use super::refusals::refusal_of;
use super::{Core, Step};
use crate::contract::{Meaning, Role};
use crate::envelope::{MessageKind, Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::gate::{Checked, NOT_IN_VOCABULARY};
use crate::system::CorePayload;
use crate::thread::{Fact, Input, Opener, Opening, Verdict};

/// Reason why a submission is not accepted.
enum SubmissionDenial {
    Refused(Refusal),
    NoThread(String),
}

/// A client's request for which the pump opens calls.
#[derive(Clone, Copy)]
pub(super) struct ClientRequest<'a> {
    pub id: MessageId,
    pub sender: &'a ListenerName,
    /// The client that gets the result of the calls.
    pub client: &'a ListenerName,
    pub thread: &'a ThreadId,
    pub key: Option<&'a String>,
    pub cause: Option<MessageId>,
}

impl Core {
    pub(super) fn submit(&mut self, step: &mut Step, mut submission: Submission) {
        let id = submission.id;
        if let Target::Thread { id: text } | Target::New { suggested: Some(text) } =
            &mut submission.target
        {
            shorten(text);
        }

        let key = submission.key.take_if(|key| key.len() > limits::CLIENT_KEY_BYTES_MAX);
        let placed = match self.same_key_again(&submission, step.time) {
            _ if key.is_some() => {
                let most = limits::CLIENT_KEY_BYTES_MAX;
                let text = format!("the key has more than {most} bytes; use a shorter one");
                Err(SubmissionDenial::Refused(instead(&submission, RefusalRule::TooLarge, &text)))
            }
            Ok(None) => self.place(&submission),
            Ok(Some(receipt)) => return step.effect(Effect::Receipt { submission: id, receipt }),
            Err(refusal) => Err(SubmissionDenial::Refused(refusal)),
        };

        let receipt = match placed {
            Ok((checked, thread, peers)) => self.admit(step, &submission, &checked, thread, &peers),
            Err(SubmissionDenial::Refused(refusal)) => {
                self.refuse_submission(step, &submission, refusal)
            }
            Err(SubmissionDenial::NoThread(unknown_id)) => {
                self.no_thread(step, &submission, unknown_id)
            }
        };

        if step.record.is_some() && !matches!(receipt, Receipt::Accepted { .. }) {
            self.end_refused_run(step, id, &receipt);
        }

        // The receipt comes first among the effects: a call may end in the step that opens it, and
        // its result is delivered only to callers that already know the call.
        step.effects.insert(0, Effect::Receipt { submission: id, receipt });
    }

    /// Checks a submission against the rules that the gate cannot check, because they need the
    /// pump's state. Applies the rules in the order of [`RefusalRule`]. Returns the payload, its
    /// thread, and the peers that get it.
    fn place(
        &self,
        submission: &Submission,
    ) -> Result<(Checked, ThreadId, Vec<ListenerName>), SubmissionDenial> {
        let checked = match &submission.payload {
            Ok(checked) => checked,
            // A refusal that the pump itself recorded arrives here during a replay.
            Err(refusal) if refusal.rule < RefusalRule::UnknownThread || refusal.name.is_some() => {
                return Err(match (refusal.rule, &submission.target) {
                    (RefusalRule::UnknownThread, Target::Thread { id }) => {
                        SubmissionDenial::NoThread(id.clone())
                    }
                    _ => SubmissionDenial::Refused(refusal.clone()),
                });
            }
            Err(refusal) => {
                self.target_thread(submission)?;
                return Err(SubmissionDenial::Refused(refusal.clone()));
            }
        };

        let thread = self.target_thread(submission)?;
        let refused = |rule, message: &str| {
            Err(SubmissionDenial::Refused(refusal_of(rule, message, checked)))
        };

        // Only clients submit. A listener's payloads come through the listener's host.
        let contract = self.contracts.get(&submission.client);
        if contract.is_none_or(|contract| contract.role != Role::Client) {
            let text = checked.payload().as_str().as_bytes();
            let refusal = Refusal::new(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, text);
            return Err(SubmissionDenial::Refused(refusal));
        }

        let peers = match self.admissible(&submission.client, checked) {
            Ok(peers) => peers,
            Err((rule, text)) => return refused(rule, &text),
        };

        if let Some(tree) = self.state.tree(&thread)
            && !self.renews(&submission.client, &thread)
            && self.budgets.has_no_message_left(tree, 0)
        {
            return refused(RefusalRule::BudgetSpent, NO_MESSAGE_LEFT);
        }

        Ok((checked.clone(), thread, peers))
    }

    /// Returns the peers that get a client's payload, if the payload is admissible and there is
    /// room for a call to each peer.
    ///
    /// # Errors
    ///
    /// Returns the broken rule with its explanation.
    pub(super) fn admissible(
        &self,
        client: &ListenerName,
        checked: &Checked,
    ) -> Result<Vec<ListenerName>, (RefusalRule, String)> {
        let Meaning::Call { peers, .. } = checked.meaning() else {
            return Err((RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY.to_owned()));
        };

        self.check_room(client, peers, checked)?;
        Ok(peers.clone())
    }

    /// Checks whether there is room for a call of `client` with this payload to each of `peers`.
    ///
    /// # Errors
    ///
    /// Returns the broken rule with its explanation.
    pub(super) fn check_room(
        &self,
        client: &ListenerName,
        peers: &[ListenerName],
        checked: &Checked,
    ) -> Result<(), (RefusalRule, String)> {
        if self.draining {
            let text = "the organism is stopping; send again when it is back";
            return Err((RefusalRule::Draining, text.to_owned()));
        }

        let full = |name: &ListenerName| {
            let backlog = self.contracts.get(name).map_or(0, |contract| contract.backlog);
            self.scheduler.backlog(name) >= backlog
        };

        if self.is_full() || peers.iter().any(full) {
            let text = "too much is waiting; send it again in a moment";
            return Err((RefusalRule::Busy, text.to_owned()));
        }

        let payload = checked.payload().as_str();
        let held = |peer: &ListenerName| self.too_many_held(|| Some(client), peer, payload);
        if let Some((peer, held)) = peers.iter().find_map(|peer| Some((peer, held(peer)?))) {
            let text = format!(
                "{held} of your calls to {peer} wait for a person; send it again when some of them \
                 are decided"
            );
            return Err((RefusalRule::Busy, text));
        }

        let timed = |peer: &ListenerName| self.too_many_timed(|| Some(client), peer);
        if let Some((peer, timed)) = peers.iter().find_map(|peer| Some((peer, timed(peer)?))) {
            let text = format!(
                "{timed} of your calls to {peer} have timers; send it again when some of them \
                 have ended"
            );
            return Err((RefusalRule::Busy, text));
        }

        Ok(())
    }

    /// Whether a request of `client` in the tree of `thread` resets the counters that limit the
    /// work for one request. Returns false in two cases:
    ///
    /// - Calls of an earlier request are still open in the tree.
    /// - A listener may send requests in the name of `client`. Such a listener could otherwise
    ///   renew its own budgets.
    pub(super) fn renews(&self, client: &ListenerName, thread: &ThreadId) -> bool {
        let Some(tree) = self.state.tree(thread) else { return false };
        let is_hosted = || self.contracts.iter().any(|own| own.client.as_ref() == Some(client));
        let is_at_rest = tree.calls.is_empty() || mutant("renew-while-it-runs");
        is_at_rest && (mutant("renew-for-anybody") || !is_hosted())
    }

    /// Returns the thread that a submission names, or a new id if it names none. A client may
    /// continue only a root thread that it has opened. For any other thread, the refusal is the
    /// same as for a thread that does not exist, so that the response does not reveal which threads
    /// exist.
    fn target_thread(&self, submission: &Submission) -> Result<ThreadId, SubmissionDenial> {
        match &submission.target {
            Target::Thread { id } => {
                let known = ThreadId::parse(id).ok().filter(|thread| {
                    let by = self.state.thread(thread).map(|thread| &thread.by);
                    thread.is_root() && by == Some(&submission.client)
                });

                known.ok_or_else(|| SubmissionDenial::NoThread(id.clone()))
            }
            Target::New { suggested: None } => Ok(self.fresh_root(submission.id)),
            Target::New { suggested: Some(id) } => {
                let usable = ThreadId::parse(id)
                    .ok()
                    .filter(|t| t.is_root() && t.as_str() != ThreadId::ORGANISM);

                let refused = |message: String| {
                    SubmissionDenial::Refused(instead(submission, RefusalRule::BadLabel, &message))
                };

                let Some(thread) = usable else {
                    return Err(refused(
                        "the suggested thread id must be `sess-` and 8 to 59 lowercase letters \
                         or digits"
                            .to_owned(),
                    ));
                };

                let of_schedule = self.state.unsent_run_in(&thread);
                let is_reserved = of_schedule.is_some_and(|run| run.request != submission.id);
                if is_reserved || self.state.trees.contains_key(&thread) {
                    return Err(refused(format!("the thread id {thread} is taken")));
                }

                Ok(thread)
            }
        }
    }

    /// Makes the id of a new root thread from the random part of `id`, the id of the submission.
    /// Uses neither a clock nor a random number generator.
    pub(super) fn fresh_root(&self, id: MessageId) -> ThreadId {
        let mut bits = id.0.as_u128() & ((1 << 62) - 1);
        let mut text = String::from(ThreadId::ROOT_PREFIX);
        loop {
            for _ in 0..limits::ROOT_CHARS_MIN {
                let digit = u32::try_from(bits % 36).unwrap_or(0);
                text.push(char::from_digit(digit, 36).unwrap_or('0'));
                bits /= 36;
            }
            match ThreadId::parse(&text) {
                // If the candidate is a tree at rest, the driver restores that tree and asks again.
                Ok(thread) if self.state.trees.resident(&thread).is_none() => return thread,
                _ => bits = bits.wrapping_mul(31).wrapping_add(id.0.as_u128() >> 64),
            }
        }
    }

    fn admit(
        &mut self,
        step: &mut Step,
        submission: &Submission,
        checked: &Checked,
        thread: ThreadId,
        peers: &[ListenerName],
    ) -> Receipt {
        let verdict = Verdict::Passed(checked.payload().digest);
        step.begin_record(thread.root(), input_of(submission, verdict));
        let by = submission.client.clone();
        // A key that is still valid would have returned its recorded receipt, so this key has
        // expired.
        if let (Some(_), Some(key)) = (self.use_of_key(submission), submission.key.clone()) {
            self.fact(step, Fact::KeyExpired { client: by.clone(), key });
        }
        if self.state.thread(&thread).is_none() {
            self.open_thread(step, &thread, &by);
        } else if self.renews(&by, &thread) {
            self.fact(step, Fact::Renewed { by: by.clone() });
        }

        let is_traced = self.state.tree(&thread).is_some_and(|tree| tree.trace.is_some());
        let new_trace = submission.begun.filter(|_| !is_traced);
        if let Some(trace) = submission.trace.or(new_trace) {
            self.fact(step, Fact::Traced { trace });
        }

        let request = ClientRequest {
            id: submission.id,
            sender: &by,
            client: &by,
            thread: &thread,
            key: submission.key.as_ref(),
            cause: None,
        };
        let calls = self.open_client_calls(step, &request, checked, peers);
        let held = self.awaiting_approval(&calls);
        Receipt::Accepted { thread, calls, again: false, held }
    }

    /// Opens a call to each peer that gets a client's payload.
    pub(super) fn open_client_calls(
        &mut self,
        step: &mut Step,
        request: &ClientRequest<'_>,
        checked: &Checked,
        peers: &[ListenerName],
    ) -> Vec<CallId> {
        let ClientRequest { id, sender, client, thread, key, cause } = *request;
        let gather = self.contracts.get(sender).map(|client| client.gather).unwrap_or_default();
        let group = (peers.len() > 1).then_some((CallId(id), gather));
        let mut calls = Vec::new();

        for (leg, peer) in peers.iter().enumerate() {
            let opener = Opener::Client { name: client.clone() };
            let opening = Opening { opener, group, forward: false };
            let request = NewMessage::checked(MessageKind::Call, sender, peer, thread, checked);
            let id = (leg == 0).then_some(id);
            let request = request.opening(opening).with_id(id).with_key(key.cloned());
            calls.push(CallId(self.accept(step, request.caused_by(cause)).id));
        }

        // Ordering rule: every leg is open before the first one starts, so that a leg that ends at
        // once finds the other legs of its group.
        for call in &calls {
            self.start_call(step, *call);
        }
        calls
    }

    fn refuse_submission(
        &mut self,
        step: &mut Step,
        submission: &Submission,
        refusal: Refusal,
    ) -> Receipt {
        if refusal.rule == RefusalRule::Busy && !mutant("record-every-busy") {
            step.effect(Effect::CountBusy { client: submission.client.clone() });
            return Receipt::Refused { refusal, retry_after: Some(limits::BUSY_RETRY) };
        }

        let thread = match &submission.target {
            Target::Thread { id } => ThreadId::parse(id).ok(),
            Target::New { .. } => None,
        };

        let own = |thread: &ThreadId| {
            self.state.thread(thread).is_some_and(|thread| thread.by == submission.client)
        };

        let thread = thread.filter(own);
        let tree = thread.as_ref().map_or_else(ThreadId::organism, ThreadId::root);
        step.begin_record(tree, input_of(submission, Verdict::Refused(refusal.digest)));
        self.refuse(step, &submission.client, thread.as_ref(), None, refusal.clone());
        Receipt::Refused { refusal, retry_after: None }
    }

    fn no_thread(
        &mut self,
        step: &mut Step,
        submission: &Submission,
        unknown_id: String,
    ) -> Receipt {
        let refusal = instead(submission, RefusalRule::UnknownThread, UNKNOWN_THREAD);
        let verdict = Verdict::Refused(refusal.digest);
        step.begin_record(ThreadId::organism(), input_of(submission, verdict));
        self.refuse(step, &submission.client, None, None, refusal);
        let unknown_id = unknown_id.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
        let answer = CorePayload::ThreadError { unknown_id }.payload().as_str().to_owned();
        Receipt::NoThread { answer }
    }
}

/// Shortens an overlong thread id for the record.
fn shorten(id: &mut String) {
    if id.len() > limits::THREAD_ID_BYTES_MAX {
        *id = id.chars().take(limits::THREAD_ID_BYTES_MAX + 1).collect();
    }
}

/// Text of the refusal if a thread does not exist, or if the sender may not write to it.
pub(super) const UNKNOWN_THREAD: &str = "no such thread";

/// Returns a refusal of a submission under `rule`, in place of the gate's verdict on its payload.
fn instead(submission: &Submission, rule: RefusalRule, message: &str) -> Refusal {
    match &submission.payload {
        Ok(checked) => refusal_of(rule, message, checked),
        Err(refusal) => refusal.instead(rule, message),
    }
}

fn input_of(submission: &Submission, verdict: Verdict) -> Input {
    let (thread, suggested) = match &submission.target {
        Target::Thread { id } => (Some(id.clone()), None),
        Target::New { suggested } => (None, suggested.clone()),
    };

    Input::Submitted {
        id: submission.id,
        client: submission.client.clone(),
        thread,
        suggested,
        key: submission.key.clone(),
        verdict,
    }
}

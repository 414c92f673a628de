//! Forks. A fork is a new root thread that continues the history of another root thread, its
//! source. A call of the fork gets the result that the source recorded for the same call, so that
//! no real effect is repeated. Calls to agents and workflows run again instead.
//!
//! If the source has no result for a call, the call is held until an operator approves it.
//! Exception: if the request for the fork named the listener of the call, the call is held only if
//! the config requires it. Some of the calls without a recorded result are first kept back (see
//! `kept_back`). The timers of a fork do not wait for their times (see `fork_timers`).

use uuid::Uuid;

use super::close::CallResult;
use super::event::{Alarm, Effect, OperatorRuling};
use super::fork_timers::ForkSearch;
use super::outcome::is_reply;
use super::recorded_events::RecordedEvent;
use super::refusals::refusal_of;
use super::signatures::SignedDecision;
use super::{Core, Step};
use crate::contract::Role;
use crate::envelope::{Disposition, MessageKind, Payload, Refusal, RefusalRule};
use crate::ids::{CallId, Digest, ListenerName, PayloadName, Position, ThreadId};
use crate::mutant::mutant;
use crate::pump::gate::{Checked, Gate};
use crate::system::{ActionReport, CorePayload};
use crate::thread::{
    Call, Closing, DecisionOrigin, DecisionStatement, Fact, ForkAction, ForkedRequest,
    InheritedThread, Input, RecalledResult, ReopenedCalls, Tree, TreeLineage, Verdict,
};

/// An operator's request to fork a thread. Contains the threads that the source had at the fork
/// point, and the calls that were open at the fork point.
#[derive(Debug)]
pub struct ForkOrder {
    /// Identifies the caller that waits for the pump's ruling on the fork. Not recorded.
    pub ticket: Uuid,
    pub action: ForkAction,
    pub threads: Vec<InheritedThread>,
    /// The calls that were open at the fork point, with their messages. Empty for a fork that
    /// begins with a request: such a fork begins at a point at which no call is open.
    pub work: ReopenedCalls,
    /// Payload of the fork's first request or edited turn, after the gate accepted or refused it.
    /// `None` if the fork begins with neither.
    pub payload: Option<Result<Checked, Refusal>>,
}

/// The pump's ruling on a [`ForkOrder`].
#[derive(Debug, Clone)]
pub enum ForkRuling {
    /// The pump has opened the fork. The fork has one call for each peer that accepts the first
    /// request.
    Forked {
        thread: ThreadId,
        calls: Vec<CallId>,
    },
    Refused(Refusal),
}

/// The result that the source of a fork recorded for a call.
#[derive(Debug, Clone)]
pub struct CallRecollection {
    /// Id of the call in the fork's source.
    pub source: CallId,
    /// The listener that handled the call in the source of the fork.
    pub listener: ListenerName,
    pub how: Closing,
    pub payloads: Vec<(MessageKind, PayloadName, Payload)>,
    /// Position of the record that closed the call in the source. The result takes effect in the
    /// fork only after all recorded events with a lower position. `None` in a replay, because the
    /// fork's own record does not state the position: the result then takes effect at once.
    pub position: Option<Position>,
}

impl CallRecollection {
    /// Whether `gate` accepts every recorded reply as a reply of `listener`, or of a listener to
    /// which `listener` may forward the call.
    pub fn passes(&self, gate: &Gate) -> bool {
        let senders = gate.result_senders(&self.listener);
        let is_passed = |payload: &Payload| {
            senders.iter().any(|sender| {
                let checked = gate.check(sender, payload.as_str().as_bytes());
                checked.is_ok_and(|checked| is_reply(&checked))
            })
        };
        let mut replies = self.payloads.iter().filter(|(kind, ..)| *kind == MessageKind::Reply);
        replies.all(|(_, _, payload)| is_passed(payload))
    }
}

/// The core's instruction to search the source of a fork for the result of a call.
#[derive(Debug, Clone)]
pub struct ResultSearch {
    pub call: CallId,
    /// Root thread of the fork.
    pub fork: ThreadId,
    pub listener: ListenerName,
    pub payload: Digest,
    /// Root thread of the tree from which the fork was made.
    pub source: ThreadId,
    /// Position in the source after which the search begins.
    pub after: Position,
}

impl Core {
    /// Opens a fork. If the fork is refused, opens no thread.
    pub(super) fn fork(&mut self, step: &mut Step, order: ForkOrder) {
        let ForkOrder { ticket, mut action, threads, work, payload } = order;
        action.origin = action.origin.map(DecisionOrigin::shortened);
        action.by = ListenerName::operator();
        let (payload, refused) = match payload {
            Some(Ok(checked)) => (Some(checked), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        };

        let origin = action.origin.clone().unwrap_or_default();
        let text = action.text();
        let source = action.source.thread.clone();
        let signed = SignedDecision {
            statement: Some(DecisionStatement::fork(&text, &origin.note)),
            thread: &source,
            signature: origin.signature.as_deref(),
        };
        let place = match refused {
            Some(refusal) => Err(refusal),
            None => self.place_fork(&action, payload.as_ref()),
        };
        let place = place.and_then(|peers| self.proof(step.time, &signed).map(|_| peers));
        // The refusal is made from the payload, so that its record identifies the payload.
        let place = place.map_err(|refusal| match &payload {
            Some(checked) => refusal_of(refusal.rule, refusal.message, checked),
            None => refusal,
        });
        if let (Some(request), Err(refusal)) = (&mut action.request, &place) {
            request.verdict = Verdict::Refused(refusal.digest);
        }

        let home = if place.is_ok() { action.thread.clone() } else { ThreadId::organism() };
        step.begin_record(home, Input::Fork(Box::new(action.clone())));
        let proved =
            place.and_then(|peers| self.check_signature(step, &signed).map(|by| (by, peers)));

        let ruling = match proved {
            Ok((by, peers)) => {
                let thread = action.thread.clone();
                let calls =
                    self.open_fork(step, (&by, action), (threads, work), payload.zip(peers));
                ForkRuling::Forked { thread, calls }
            }
            Err(refusal) => {
                let operator = ListenerName::operator();
                self.refuse(step, &operator, None, None, refusal.clone());
                ForkRuling::Refused(refusal)
            }
        };
        step.effects.insert(0, Effect::Ruled { ticket, ruling: OperatorRuling::Fork(ruling) });
    }

    /// Checks whether a fork may begin, and returns the peers that get its first request. If the
    /// fork begins with an edited turn, the returned list is empty. If the fork begins without a
    /// payload, returns `None`.
    ///
    /// # Errors
    ///
    /// Returns a refusal for the first rule that the fork breaks.
    fn place_fork(
        &self,
        action: &ForkAction,
        payload: Option<&Checked>,
    ) -> Result<Option<Vec<ListenerName>>, Refusal> {
        let refused = |rule, text: String| Err(Refusal::new(rule, text, b""));
        let thread = &action.thread;
        if !thread.is_root() || self.state.trees.contains_key(thread) {
            return refused(RefusalRule::BadLabel, format!("the thread id {thread} is taken"));
        }

        let client = self.contracts.get(&action.client);
        if client.is_none_or(|client| client.role != Role::Client) {
            let text = format!("the config has no client `{}`", action.client);
            return refused(RefusalRule::NotInVocabulary, text);
        }

        let is_plain = |name: &&ListenerName| {
            self.contracts.get(name).is_some_and(|contract| is_recalled_role(contract.role))
        };
        if let Some(name) = action.live.iter().find(|name| !is_plain(name)) {
            let text = format!(
                "the config has no listener `{name}` whose calls would be answered from the record; \
                 agents and workflows run anew in any case"
            );
            return refused(RefusalRule::NotInVocabulary, text);
        }

        let (Some(checked), Some(request)) = (payload, &action.request) else { return Ok(None) };
        if request.call.is_some() {
            return self.check_edited_turn(&request.sender, checked).map(|()| Some(Vec::new()));
        }
        let peers = self.admissible(&request.sender, checked);
        peers.map(Some).map_err(|(rule, text)| refusal_of(rule, text, checked))
    }

    fn open_fork(
        &mut self,
        step: &mut Step,
        (by, action): (&ListenerName, ForkAction),
        (threads, work): (Vec<InheritedThread>, ReopenedCalls),
        request: Option<(Checked, Vec<ListenerName>)>,
    ) -> Vec<CallId> {
        let ForkAction { thread, source, client, live, allotment, .. } = action;
        let report = ActionReport {
            thread: Some(source.thread.clone()),
            details: vec![
                ("message".to_owned(), source.message.to_string()),
                ("record".to_owned(), source.record.to_string()),
                ("hash".to_owned(), source.hash.to_string()),
            ],
            ..ActionReport::new("fork", by.clone())
        };
        let lineage =
            CorePayload::Fork { thread: source.thread.clone(), seq: source.seq, by: by.clone() };

        let forked = Fact::Forked {
            thread: thread.clone(),
            by: client.clone(),
            source,
            live,
            allotment,
            threads,
        };
        self.fact(step, forked);
        let core = ListenerName::core();
        let cause = self.system_note(step, &thread, &core, &CorePayload::OperatorAction(report));
        self.system_note(step, &thread, &core, &lineage);

        match (request, action.request) {
            (Some((checked, _)), Some(ForkedRequest { call: Some(call), .. })) => {
                let calls = self.reopen(step, &client, work, Some(call));
                self.take_edited_turn(step, (call, cause.id), checked);
                calls
            }
            (Some((checked, peers)), Some(forked)) => {
                let origin = super::submit::ClientRequest {
                    id: forked.id,
                    sender: &forked.sender,
                    client: &client,
                    thread: &thread,
                    key: None,
                    cause: Some(cause.id),
                };
                self.open_client_calls(step, &origin, &checked, &peers)
            }
            _ => self.reopen(step, &client, work, None),
        }
    }

    /// Whether a call of a fork waits until the pump has searched the fork's source for the result
    /// of the call.
    pub(super) fn awaits_recall(&self, call: &Call) -> bool {
        let is_fork = || self.state.tree(&call.thread).is_some_and(|tree| tree.lineage.is_some());
        let contract = || self.contracts.get(&call.callee);
        !call.unrecorded
            && !call.approved
            && call.turns == 0
            && is_fork()
            && contract().is_some_and(|contract| is_recalled_role(contract.role))
            && !mutant("repeat-an-effect-in-a-fork")
    }

    /// Starts a search in the fork's source for the result of a call.
    pub(super) fn recall(&self, step: &mut Step, call: CallId) {
        let Some(open) = self.state.call(call) else { return };
        let tree = self.state.tree(&open.thread);
        let lineage = tree.and_then(|tree| tree.lineage.as_deref());
        let (Some(TreeLineage { source, .. }), Some(request)) = (lineage, open.request()) else {
            return;
        };
        step.effect(Effect::Recall(ForkSearch::Result(ResultSearch {
            call,
            fork: open.thread.root(),
            listener: open.callee.clone(),
            payload: request.payload.digest,
            source: source.thread.clone(),
            after: source.history,
        })));
    }

    /// Processes the end of a search in the fork's source for the result of a call. If a result was
    /// found, it takes effect in the recorded order of the source's results and turns. If none was
    /// found, starts the call, or keeps the call back as long as another call may make it
    /// superfluous.
    pub(super) fn searched(
        &mut self,
        step: &mut Step,
        call: CallId,
        found: Option<CallRecollection>,
    ) {
        let open = self.state.call(call).filter(|open| self.awaits_recall(open));
        let fork = open.map(|open| open.thread.root());
        match (fork, found) {
            (Some(fork), Some(found)) if found.position.is_some() && self.keeps_order_in(&fork) => {
                let position = found.position.unwrap_or_default();
                self.keep_recorded(step, fork, position, RecordedEvent::Result { call, found });
            }
            (Some(fork), None) if self.waits_for_other_legs(call) => {
                self.keep_back(step, fork, call);
            }
            (_, found) => self.take_recalled(step, call, found),
        }
    }

    /// Ends a call of a fork with `found`, the result that the source recorded for the call. If
    /// `found` is `None`, starts the call instead. The started call is held for a person in two
    /// cases: the request for the fork did not name the call's listener, or the config requires a
    /// decision on the call.
    pub(super) fn take_recalled(
        &mut self,
        step: &mut Step,
        call: CallId,
        found: Option<CallRecollection>,
    ) {
        let Some(open) = self.state.call(call).filter(|open| self.awaits_recall(open)) else {
            return;
        };
        let thread = open.thread.clone();
        let result = found.as_ref().map(|found| RecalledResult {
            source: found.source,
            how: found.how,
            payloads: found.payloads.iter().map(|(.., payload)| payload.digest).collect(),
        });
        step.begin_record(thread.root(), Input::Recalled { call, result });

        let Some(CallRecollection { source, how, payloads, .. }) = found else {
            self.fact(step, Fact::NotOnRecord { call });
            return self.start_call(step, call);
        };
        self.fact(step, Fact::Recalled { call, source });
        self.dispose(step, call.0, Disposition::Handled);
        self.close(step, call, CallResult { how, undelivered: Disposition::Late, payloads });
    }

    /// Whether a call of a fork needs an operator's approval. True if the source has no result for
    /// the call, and the request for the fork did not name the call's listener.
    pub(super) fn is_unrecorded(&self, call: &Call) -> bool {
        is_unrecorded_in(self.state.tree(&call.thread), call)
    }

    /// Triggers the next recorded event, kept-back call or timer in the fork to which the step's
    /// record belongs. Does nothing if the record belongs to a tree that is not a fork.
    pub(super) fn follow_fork(&self, step: &mut Step) {
        let Some((root, _)) = &step.record else { return };
        let root = root.clone();
        self.follow_order(step, &root);
    }

    /// Triggers the next recorded event of every fork, if the step's record concerns all trees. For
    /// example, a pause delays calls of every fork, but leaves no record in the forks' trees.
    pub(super) fn follow_all_forks(&self, step: &mut Step) {
        let Some((root, _)) = &step.record else { return };
        if Self::fact_of_all_trees(&step.facts).is_some() {
            let root = root.clone();
            self.follow_other_forks(step, &root);
        }
    }

    /// Triggers what can continue next in a fork: the next recorded event, the calls that were kept
    /// back, or the next timer without a recorded firing. Such a timer fires only if nothing else
    /// in the fork can continue. Does nothing for a tree that is no fork.
    pub(super) fn follow_order(&self, step: &mut Step, root: &ThreadId) {
        let Some(tree) = self.state.trees.get(root).filter(|tree| tree.lineage.is_some()) else {
            return;
        };

        self.follow_recorded(step, root);
        self.follow_kept_back(step, root);
        if tree.timers.is_empty() || !self.waits_for_timers(root, tree) {
            return;
        }
        if let Some((timer, call)) = self.first_timer(tree) {
            let alarm = Alarm::Timer { timer, call };
            step.effect(Effect::Alarm { at: step.time, alarm });
        }
    }

    /// Whether all open calls of a tree wait for a timer, for a decision of a person, or for the
    /// end of a pause.
    pub(super) fn is_idle(&self, tree: &Tree) -> bool {
        tree.open_calls().all(|call| self.rests(call))
    }

    /// Whether a call waits for another call, for a timer, for a decision of a person, or for the
    /// end of a pause.
    pub(super) fn rests(&self, call: &Call) -> bool {
        let is_kept = || !call.is_ready() || self.is_paused(call);
        call.held.is_some() || (call.handed_over.is_none() && is_kept())
    }
}

/// Whether a fork's call to a listener with this role gets the result that the fork's source
/// recorded. Calls to agents and workflows run again instead.
fn is_recalled_role(role: Role) -> bool {
    matches!(role, Role::Listener | Role::Human)
}

/// Returns the result of [`Core::is_unrecorded`] for a call of `tree`.
pub(super) fn is_unrecorded_in(tree: Option<&Tree>, call: &Call) -> bool {
    let lineage = || tree.and_then(|tree| tree.lineage.as_deref());
    call.unrecorded && lineage().is_some_and(|lineage| !lineage.live.contains(&call.callee))
}

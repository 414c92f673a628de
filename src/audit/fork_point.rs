//! Fork points: the places in a thread tree at which a fork can begin. At a fork point, no work is
//! open, or an agent takes a turn.

use std::collections::BTreeSet;

use super::fork_obstacle::ForkObstacle;
use crate::agent::PastTurn;
use crate::contract::{Contract, Contracts, Role};
use crate::envelope::{Message, MessageKind, Payload};
use crate::ids::{CallId, ListenerName, MessageId, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::mutant::mutant;
use crate::system;
use crate::thread::{
    Fact, ForkSource, InheritedThread, Input, Opener, Record, ReopenedCall, ReopenedCalls,
    ReopenedKind, RetryAction, State,
};

/// A place in a thread tree at which a fork can begin: where no work is open, or at an agent's
/// turn.
#[derive(Debug, Clone)]
pub struct ForkPoint {
    pub source: ForkSource,
    /// The client's request with which the fork continues. `None` if the fork does not begin at a
    /// request.
    pub request: Option<PointRequest>,
    /// The turn of an agent that the fork takes again. `None` if the fork does not begin at a turn.
    pub turn: Option<PointTurn>,
    /// The client that opened the source thread.
    pub client: ListenerName,
    /// Reason why no fork can begin at the message for which this fork point was searched. `None`
    /// if a fork can begin at this message, or if only open calls prevent it.
    pub obstacle: Option<ForkObstacle>,
}

/// The request of a client at which a fork begins.
#[derive(Debug, Clone)]
pub struct PointRequest {
    pub sender: ListenerName,
    pub recipient: ListenerName,
    /// The recorded payload; `None` if it is redacted.
    pub payload: Option<Payload>,
}

impl PointRequest {
    fn of(request: &Message) -> Self {
        let payload = request.payload.is_intact().then(|| request.payload.clone());
        Self { sender: request.from.clone(), recipient: request.to.clone(), payload }
    }
}

/// The turn of an agent at which a fork begins.
#[derive(Debug, Clone)]
pub struct PointTurn {
    pub agent: ListenerName,
    /// The source's call in which the agent took the turn.
    pub call: CallId,
}

/// A recorded turn at which a fork can begin, and which the fork takes again.
struct ForkedTurn {
    agent: ListenerName,
    call: CallId,
    note: MessageId,
    seq: u64,
    /// Position up to which the prompt of the turn shows the thread.
    prompt: Position,
}

impl ForkedTurn {
    fn of(record: &Record) -> Option<Self> {
        let Input::Outcome { call, turn: Some(_), .. } = record.input else { return None };
        let word = system::name(system::MODEL_TURN);
        let note = record.accepted_messages().find(|own| own.name == word && own.from.is_core())?;
        let past = PastTurn::read(note.payload.as_str()).filter(|past| past.call == call)?;
        let prompt = past.position;
        let turn = Self { agent: past.agent, call, note: note.id, seq: note.seq, prompt };
        (prompt < record.position).then_some(turn)
    }
}

/// Finds the turn in `record` whose note is `note`. Returns the call of the turn, and the position
/// up to which the turn's prompt shows the thread. This position is `None` if the note is redacted.
/// If `record` has no turn with this note, returns `None` instead of the pair.
fn turn_of_note(record: &Record, note: MessageId) -> Option<(CallId, Option<Position>)> {
    if let Some(turn) = ForkedTurn::of(record) {
        return (turn.note == note).then_some((turn.call, Some(turn.prompt)));
    }

    let Input::Outcome { call, turn: Some(_), .. } = record.input else { return None };
    let word = system::name(system::MODEL_TURN);
    let note = record.accepted_messages().find(|own| own.id == note && own.name == word)?;
    (note.from.is_core() && note.payload.is_redacted()).then_some((call, None))
}

/// Returns the listeners that do not run in a fork, because the fork answers calls to them with the
/// results that the source recorded.
pub fn answered_listeners(contracts: &Contracts) -> impl Iterator<Item = &ListenerName> {
    let is_answered = |own: &&Contract| matches!(own.role, Role::Listener | Role::Human);
    contracts.iter().filter(is_answered).map(|contract| &contract.name)
}

/// Whether a fork answers calls to the listener `name` with the results that the source recorded.
/// False for agents and workflows, which run again.
pub fn is_answered_from_record(contracts: &Contracts, name: &ListenerName) -> bool {
    let contract = contracts.iter().find(|contract| contract.name == *name);
    !contract.is_some_and(|own| matches!(own.role, Role::Agent | Role::Workflow))
}

impl ForkPoint {
    /// Finds the point at which a fork can begin at `message`, which is in the record at
    /// `position`. If no fork can begin there, finds the last fork point before the message.
    /// Returns `None` if the record does not contain the message, or if the tree cannot be forked.
    ///
    /// `is_answered` states for a listener whether a fork answers calls to it with recorded
    /// results.
    pub fn find(
        reader: &JournalReader,
        position: Position,
        message: MessageId,
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Result<Option<Self>, Error> {
        let records = reader.walk(position)?;
        let Some(last) = records.last() else { return Ok(None) };
        let root = last.record.tree.clone();
        let named = last.record.accepted_messages().find(|own| own.id == message);
        let Some(named) = named.filter(|_| root.as_str() != ThreadId::ORGANISM) else {
            return Ok(None);
        };

        let mut inherited = Self::of_source(reader, &records)?;
        let mut state = State::default();
        let mut found = Vec::new();
        for sealed in &records {
            let was_at_rest = is_at_rest(&state, &root);
            let is_last = sealed.record.position == position;
            apply(&mut state, &sealed.record);
            let is_repeatable =
                was_at_rest && retry_of_one_call(&records, &sealed.record).is_none();
            if let Some(request) = first_request(&sealed.record).filter(|_| is_repeatable) {
                match &mut inherited {
                    Some(point) if sealed.record.previous == Position(0) => {
                        point.request = Some(PointRequest::of(request));
                    }
                    _ => found.extend(Self::before(&state, sealed, request)),
                }
                // The named message is the request itself, not a result in the same record.
                if is_last && request.id == message {
                    break;
                }
            }
            if let Some(turn) = ForkedTurn::of(&sealed.record) {
                found.extend(Self::at_turn(&state, sealed, &turn));
            }
            // A note belongs to the turn before the result.
            if is_last && named.kind == MessageKind::Note {
                break;
            }
            if let Some(result) = last_result(&sealed.record, message)
                && is_at_rest(&state, &root)
            {
                found.extend(Self::after(&state, sealed, result));
            }
        }
        let of_last = found.last().and_then(|point| point.obstacle_of_turn(&records, &is_answered));
        let obstacle = of_last.or_else(|| obstacle_at(&records, &last.record, message));
        let mut found = found.into_iter().rev();
        let point = found.find(|point| point.reopened(&records, &is_answered).is_some());
        Ok(point.or(inherited).map(|point| {
            let obstacle = obstacle.filter(|_| point.source.message != message);
            Self { obstacle, ..point }
        }))
    }

    /// Returns the point in the source at which a fork began. [`ForkPoint::find`] returns this
    /// point if no record of the fork itself is a fork point. `records` are the records of the
    /// fork. Returns `None` if `records` belong to no fork, if this journal lacks the history of
    /// the source, or if the turn at which the fork began is redacted.
    fn of_source(reader: &JournalReader, records: &[HashedRecord]) -> Result<Option<Self>, Error> {
        let forked = records.first().and_then(|first| {
            first.record.facts.iter().find_map(|fact| match fact {
                Fact::Forked { by, source, .. } => Some((by, source)),
                _ => None,
            })
        });
        let is_here =
            |source: &ForkSource| source.journal.is_none() && source.history > Position(0);
        let Some((by, source)) = forked.filter(|(_, source)| is_here(source)) else {
            return Ok(None);
        };

        let record = reader.existing_record(source.record)?.record;
        let turn = ForkedTurn::of(&record).filter(|turn| turn.note == source.message);
        if turn.is_none() && turn_of_note(&record, source.message).is_some() {
            return Ok(None);
        }
        Ok(Some(Self {
            source: source.clone(),
            request: None,
            turn: turn.map(|turn| PointTurn { agent: turn.agent, call: turn.call }),
            client: by.clone(),
            obstacle: None,
        }))
    }

    /// Returns why a fork cannot take this point's turn again. A listener is the reason if the turn
    /// is inside a call to this listener, because a fork answers this call with its recorded
    /// result. If the turn is inside several such calls, names the listener of the innermost one.
    /// Returns `None` if:
    /// - a fork can take the turn again, or another reason prevents it,
    /// - this point has no turn, or
    /// - this point is not at the last of `records`.
    fn obstacle_of_turn(
        &self,
        records: &[HashedRecord],
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Option<ForkObstacle> {
        let last = records.last().filter(|last| last.record.position == self.source.record)?;
        let turn = self.turn.as_ref()?;
        let past = state_at(records, self.source.history);
        let answered = past.answered_above(&last.record.tree, turn.call, &is_answered);
        if let Some(listener) = answered {
            return Some(ForkObstacle::AnsweredCall(listener));
        }

        let source = &self.source.thread;
        let work = past.reopened_work((source, source), turn.call, is_answered)?;
        work.is_redacted().then_some(ForkObstacle::RedactedWork)
    }

    /// Returns the work that is open at this point, under the ids of the source. Returns `None` if
    /// a fork cannot continue this work, or if a message of the work is redacted.
    fn reopened(
        &self,
        records: &[HashedRecord],
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Option<ReopenedCalls> {
        let Some(PointTurn { call: turn, .. }) = self.turn else {
            return Some(ReopenedCalls::default());
        };
        let source = &self.source.thread;
        let past = state_at(records, self.source.history);
        let work = past.reopened_work((source, source), turn, is_answered)?;
        // A copy of a redacted message would be a blanked payload in the first record of the fork.
        // No operator recorded a redaction of this record, so the journal would count as broken.
        (!work.is_redacted()).then_some(work)
    }

    /// Returns the threads of the source that a fork takes over at this point, and the calls that
    /// the fork opens again. `fork` is the root thread of the fork. Returns `None` if a fork cannot
    /// continue the open work, or if a message of this work is redacted.
    pub fn taken_over(
        &self,
        reader: &JournalReader,
        fork: &ThreadId,
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Result<Option<(Vec<InheritedThread>, ReopenedCalls)>, Error> {
        let turn = self.turn.as_ref().map(|turn| (turn.call, is_answered));
        let taken_over = taken_over(reader, &self.source, fork, turn)?;
        // A message may have been redacted after this point was found.
        Ok(taken_over.filter(|(_, work)| !work.is_redacted()))
    }

    fn at_turn(state: &State, sealed: &HashedRecord, turn: &ForkedTurn) -> Option<Self> {
        let record = &sealed.record;
        let source = source(sealed, (turn.note, turn.seq), turn.prompt);
        let client = state.thread(&record.tree)?.by.clone();
        let turn = PointTurn { agent: turn.agent.clone(), call: turn.call };
        Some(Self { source, request: None, turn: Some(turn), client, obstacle: None })
    }

    fn before(state: &State, sealed: &HashedRecord, request: &Message) -> Option<Self> {
        let record = &sealed.record;
        Some(Self {
            source: source(sealed, (request.id, request.seq), record.previous),
            turn: None,
            request: Some(PointRequest::of(request)),
            client: state.thread(&record.tree)?.by.clone(),
            obstacle: None,
        })
    }

    fn after(state: &State, sealed: &HashedRecord, result: &Message) -> Option<Self> {
        let record = &sealed.record;
        Some(Self {
            source: source(sealed, (result.id, result.seq), record.position),
            turn: None,
            request: None,
            client: state.thread(&record.tree)?.by.clone(),
            obstacle: None,
        })
    }
}

fn state_at(records: &[HashedRecord], position: Position) -> State {
    let mut state = State::default();
    for sealed in records.iter().filter(|sealed| sealed.record.position <= position) {
        apply(&mut state, &sealed.record);
    }
    state
}

fn taken_over(
    reader: &JournalReader,
    source: &ForkSource,
    fork: &ThreadId,
    turn: Option<(CallId, impl Fn(&ListenerName) -> bool)>,
) -> Result<Option<(Vec<InheritedThread>, ReopenedCalls)>, Error> {
    let records =
        if source.history > Position(0) { reader.walk(source.history)? } else { Vec::new() };
    let state = state_at(&records, source.history);
    let place = (&source.thread, fork);
    let work = match turn {
        Some((turn, is_answered)) => state.reopened_work(place, turn, is_answered),
        None => Some(ReopenedCalls::default()),
    };
    let at = records.last().map(|sealed| sealed.record.time).unwrap_or_default();
    Ok(work.map(|work| (state.inherited_threads(place, at), work)))
}

/// A fork as its first record describes it, for a proof that compares this description with the
/// records of the source.
#[derive(Debug, Clone)]
pub(super) struct RecordedFork {
    position: Position,
    thread: ThreadId,
    source: ForkSource,
    threads: Vec<InheritedThread>,
    calls: Vec<ReopenedCall>,
    /// Messages of the calls that are open again in the fork.
    messages: Vec<Message>,
    /// Version of the core that recorded the fork.
    core_version: u32,
}

/// First version of the core whose forks keep allotments, the limits of spawned threads.
const ALLOTMENTS_SINCE: u32 = 54;

/// First version of the core whose forks always state the bound of a thread. The bound is a call:
/// when this call closes, the thread is cancelled. Forks of earlier versions state the bound only
/// if the fork has opened this call again.
const ENDED_BOUND_SINCE: u32 = 61;

impl RecordedFork {
    /// Returns the fork whose first record is `record`, or `None` if `record` begins no fork.
    /// `core_version` is the version of the core that recorded the fork.
    pub fn of(record: &Record, core_version: u32) -> Option<Self> {
        let forked = record.facts.iter().find_map(|fact| match fact {
            Fact::Forked { thread, source, threads, .. } => Some((thread, source, threads)),
            _ => None,
        });
        let (thread, source, threads) = forked?;
        let calls = record.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some((**call).clone()),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        let again: BTreeSet<_> =
            calls.iter().flat_map(ReopenedCall::messages).map(|(own, _)| own).collect();
        let messages = record.accepted_messages().filter(|own| again.contains(&own.id)).cloned();
        Some(Self {
            position: record.position,
            thread: thread.clone(),
            source: source.clone(),
            threads: threads.clone(),
            messages: messages.collect(),
            calls,
            core_version,
        })
    }

    /// Proves that the first record of the fork states the fork's origin correctly: the source has
    /// the record that the fork names, and the fork has taken over exactly the threads and open
    /// calls that the source had at that record.
    ///
    /// Returns a sentence for people about the part that cannot be proved because of a redaction in
    /// the source, or `None` if everything is proved.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Broken`] at the position of the fork if the proof fails.
    pub fn prove(&self, reader: &JournalReader) -> Result<Option<String>, Error> {
        let Self { position, thread, source, threads, calls, .. } = self;
        // A trial has no history, and its source is in another journal.
        if source.journal.is_some() && source.history == Position(0) && threads.is_empty() {
            return Ok(None);
        }
        let lineage = format!("{thread} is a fork of {}", source.thread);
        let broken =
            |detail: &str| Err(Error::broken(position.0, format!("{lineage}, and {detail}")));

        let sealed = reader.record(source.record)?.filter(|_| source.record < *position);
        let Some(sealed) = sealed else { return broken("its source has no such record") };
        let record = &sealed.record;
        let is_same = sealed.hash == source.hash && record.tree == source.thread;
        if !is_same && !mutant("trust-a-lineage") {
            return broken("the record of its source is another one");
        }
        let turn = turn_of_note(record, source.message).filter(|(_, prompt)| match prompt {
            Some(prompt) => *prompt == source.history,
            None => source.history < record.position,
        });
        let is_at_rest =
            calls.is_empty() && [record.position, record.previous].contains(&source.history);
        if turn.is_none() && !is_at_rest {
            return broken("its history does not end at that record");
        }

        let is_turn_redacted = turn.is_some_and(|(_, prompt)| prompt.is_none());
        let answered = self.answered();
        let turn = turn.map(|(turn, _)| (turn, |name: &ListenerName| answered.contains(name)));
        let Some((mut expected, work)) = taken_over(reader, source, thread, turn)? else {
            return broken("its open calls are not those of its history");
        };
        if self.core_version < ALLOTMENTS_SINCE {
            expected.iter_mut().for_each(|thread| thread.allotment = None);
        }
        if self.core_version < ENDED_BOUND_SINCE {
            keep_reopened_bounds(&mut expected, &work.calls);
        }
        if expected != *threads {
            return broken("its threads are not those of its history");
        }
        if !self.is_same_work(&work) {
            return broken("its open calls are not those of its history");
        }

        let redacted = if is_turn_redacted {
            format!("payloads of the turn in record {}", source.record)
        } else if self.has_redacted_work(&work) {
            "payloads of its open calls".to_owned()
        } else {
            return Ok(None);
        };
        Ok(Some(format!(
            "{lineage}, and its record {position} cannot be compared with all of its history, in \
             which {redacted} were redacted"
        )))
    }

    /// Returns the recipients of the calls that this fork answers with results from its source.
    /// These calls are recorded as [`ReopenedKind::Again`].
    fn answered(&self) -> BTreeSet<ListenerName> {
        let again = self.calls.iter().filter(|call| call.how == ReopenedKind::Again);
        let again: BTreeSet<_> = again.map(|call| call.call.0).collect();
        let requests = self.messages.iter().filter(|own| again.contains(&own.id));
        requests.map(|own| own.to.clone()).collect()
    }

    /// Whether the calls that the fork has opened again are exactly those in `work`. If
    /// [`is_rewritten_and_redacted`] returns true for a message, ignores its payload. If
    /// [`has_redacted_result`] returns true for a call, ignores the number of its failed rounds.
    fn is_same_work(&self, work: &ReopenedCalls) -> bool {
        let same_calls = work.calls.len() == self.calls.len()
            && work.calls.iter().zip(&self.calls).all(|(expected, own)| {
                let mut expected = expected.clone();
                if has_redacted_result(work, &expected) {
                    expected.failed_rounds = own.failed_rounds;
                }
                expected == *own
            });
        let same_messages = work.messages.len() == self.messages.len()
            && work.messages.iter().zip(&self.messages).all(|((expected, _), own)| {
                let Message { seq, time, .. } = own;
                let stamped = Message { seq: *seq, time: *time, ..expected.clone() };
                let is_same_payload = stamped.payload.digest == own.payload.digest
                    || is_rewritten_and_redacted(expected);
                is_same_payload && Message { payload: own.payload.clone(), ..stamped } == *own
            });
        same_calls && same_messages
    }

    /// Whether a part of `work` cannot be compared with the fork because of a redaction. This part
    /// is either a redacted payload, or a number of failed rounds that depends on a redacted
    /// result.
    fn has_redacted_work(&self, work: &ReopenedCalls) -> bool {
        let mut messages = work.messages.iter().zip(&self.messages);
        let mut calls = work.calls.iter().zip(&self.calls);
        messages.any(|((expected, _), own)| {
            is_rewritten_and_redacted(expected) && expected.payload.digest != own.payload.digest
        }) || calls.any(|(expected, own)| expected.failed_rounds != own.failed_rounds)
    }
}

/// Whether a message of the source is redacted and from the core. In payloads of the core, a fork
/// replaces the ids of the source. So the fork's payload may have another digest, which cannot be
/// computed from the redacted payload.
fn is_rewritten_and_redacted(message: &Message) -> bool {
    message.from.is_core() && message.payload.is_redacted()
}

/// Whether the messages of `call` include a redacted result of another thread. The number of the
/// call's failed rounds is then unknown, because only this result states whether that thread
/// completed.
fn has_redacted_result(work: &ReopenedCalls, call: &ReopenedCall) -> bool {
    let results = work.messages.iter().map(|(message, _)| message).filter(|message| {
        is_rewritten_and_redacted(message) && &*message.name.local == "thread-result"
    });
    let redacted: BTreeSet<MessageId> = results.map(|message| message.id).collect();
    call.messages().any(|(own, _)| redacted.contains(&own))
}

/// Removes the bound of each thread whose bound is not in `reopened`, the calls that the fork opens
/// again. The bound is the call whose end cancels the thread.
fn keep_reopened_bounds(threads: &mut [InheritedThread], reopened: &[ReopenedCall]) {
    let is_reopened = |call: &CallId| reopened.iter().any(|own| own.call == *call);
    for thread in threads {
        thread.bound = thread.bound.filter(is_reopened);
    }
}

fn source(
    sealed: &HashedRecord,
    (message, seq): (MessageId, u64),
    history: Position,
) -> ForkSource {
    ForkSource {
        thread: sealed.record.tree.clone(),
        message,
        seq,
        record: sealed.record.position,
        hash: sealed.hash,
        history,
        unpinned: false,
        journal: None,
    }
}

fn apply(state: &mut State, record: &Record) {
    for fact in &record.facts {
        state.apply(&record.tree, record.time, fact);
    }
    state.finish_record(&record.tree, record.position);
}

fn is_at_rest(state: &State, root: &ThreadId) -> bool {
    state.trees.get(root).is_none_or(|tree| tree.calls.is_empty())
}

/// Returns the request of the first call that a client opened in `record`. Returns `None` if there
/// is no such call, or if the record begins a fork that opens calls of its source again.
fn first_request(record: &Record) -> Option<&Message> {
    if record.facts.iter().any(|fact| matches!(fact, Fact::Reopened(_))) {
        return None;
    }
    client_calls(record).next().map(|(_, message)| message)
}

/// Returns the calls that a client's request opens in a record: the client, and the message of each
/// call. A record has at most one such request. If several listeners received the request, each of
/// their calls has a copy of the same message.
pub fn client_calls(record: &Record) -> impl Iterator<Item = (&ListenerName, &Message)> {
    record.facts.iter().filter_map(|fact| {
        let Fact::Accepted { message, opening: Some(opening), .. } = fact else { return None };
        let Opener::Client { name } = &opening.opener else { return None };
        Some((name, &**message))
    })
}

/// Whether `record` opens the call `message` as one of several calls of the same request. A
/// client's request is recognized by the number of its calls, because versions of the core before
/// 21 recorded no group for them.
fn opens_leg(record: &Record, message: MessageId) -> bool {
    let is_of_several = client_calls(record).nth(1).is_some();
    record.facts.iter().any(|fact| match fact {
        Fact::Accepted { message: own, opening: Some(opening), .. } => {
            let is_client = matches!(opening.opener, Opener::Client { .. });
            own.id == message && (opening.group.is_some() || is_client && is_of_several)
        }
        _ => false,
    })
}

/// Returns the retry that an operator began with `record`, if no client can send the retried
/// message again as a request. This is so for three kinds of retries:
/// - the retry of one leg of a group, which goes to the recipient of this leg alone,
/// - the retry of a listener's call: this retry runs in a subthread,
/// - the retry of a retry that is of one of these kinds.
///
/// Returns `None` for any other record. `records` are the records of the tree.
pub fn retry_of_one_call<'a>(
    records: &[HashedRecord],
    record: &'a Record,
) -> Option<&'a RetryAction> {
    let Input::OperatorRetry(action) = &record.input else { return None };
    let sent = record.accepted_messages().find(|message| message.id == action.id)?;
    let before = records.iter().map(|sealed| &sealed.record);
    let mut before = before.take_while(|earlier| earlier.position < record.position);
    let is_of_one_call = !sent.thread.is_root()
        || before.any(|earlier| match &earlier.input {
            Input::OperatorRetry(first) if first.id == action.message => {
                retry_of_one_call(records, earlier).is_some()
            }
            _ => opens_leg(earlier, action.message),
        });
    is_of_one_call.then_some(&**action)
}

/// Returns why no fork can begin at `message`, which is in `record`. There are three reasons: the
/// message replaced the turn at which a recorded fork began, an operator's retry sent the message
/// to one listener alone, or `record` has a redacted turn. Returns `None` if none of them is true.
/// `records` are the records of the tree.
fn obstacle_at(
    records: &[HashedRecord],
    record: &Record,
    message: MessageId,
) -> Option<ForkObstacle> {
    if let Input::Fork(action) = &record.input {
        let agent = &action.request.as_ref().filter(|edit| edit.call.is_some())?.sender;
        let mut copies = record.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some(call),
            _ => None,
        });
        let is_copy = copies.any(|call| call.messages().any(|(own, _)| own == message));
        let mut own = record.accepted_messages().filter(|own| own.from == *agent);
        let is_edit = own.any(|own| own.id == message) && !is_copy;
        return is_edit.then_some(ForkObstacle::EditedTurn);
    }

    let mut notes = record.accepted_messages().filter_map(|own| turn_of_note(record, own.id));
    if notes.any(|(_, prompt)| prompt.is_none()) {
        return Some(ForkObstacle::RedactedTurn);
    }

    let retry = retry_of_one_call(records, record).filter(|retry| retry.id == message)?;
    retry.to.clone().map(ForkObstacle::Retry)
}

/// Returns the message of `record` at which a fork can begin. Returns `None` if no call ended in
/// the record. Otherwise, returns `wanted` if the record contains this message, and else the last
/// result in the record.
fn last_result(record: &Record, wanted: MessageId) -> Option<&Message> {
    let has_closed = record.facts.iter().any(|fact| matches!(fact, Fact::CallClosed { .. }));
    if !has_closed {
        return None;
    }
    let is_result = |own: &&Message| matches!(own.kind, MessageKind::Reply | MessageKind::System);
    let named = record.accepted_messages().find(|own| own.id == wanted);
    named.or_else(|| record.accepted_messages().rfind(is_result))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::contract::Gather;
    use crate::ids::{Digest, PayloadName};
    use crate::thread::{Opening, Verdict};

    fn message(id: u128) -> MessageId {
        MessageId(Uuid::from_u128(id))
    }

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    /// Makes a record in which the message `id` opens a call of a client. The call belongs to a
    /// group if `is_leg`.
    fn opened(position: u64, input: Input, id: u128, is_leg: bool) -> HashedRecord {
        let tree = ThreadId::parse("sess-aaaaaaaa").unwrap();
        let request = Message {
            id: message(id),
            kind: MessageKind::Call,
            from: name("boss"),
            to: name("echo"),
            thread: tree.clone(),
            seq: position,
            cause: None,
            call: None,
            time: Time(0),
            name: PayloadName::parse("{urn:example:talk}look").unwrap(),
            payload: Payload::new("<look xmlns=\"urn:example:talk\"/>"),
        };
        let opener = Opener::Client { name: name("boss") };
        let group = is_leg.then_some((CallId(message(id)), Gather::All));
        let opening = Some(Opening { opener, group, forward: false });
        let record = Record {
            position: Position(position),
            tree,
            previous: Position(position - 1),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input,
            facts: vec![Fact::Accepted { message: Arc::new(request), opening, key: None }],
        };
        HashedRecord { record, hash: Digest::ZERO, mac: None }
    }

    fn request(position: u64, id: u128, is_leg: bool) -> HashedRecord {
        opened(position, Input::Boot { detail: String::new() }, id, is_leg)
    }

    fn retry(position: u64, id: u128, of: u128) -> HashedRecord {
        let tree = ThreadId::parse("sess-aaaaaaaa").unwrap();
        let action = RetryAction {
            message: message(of),
            record: Position(1),
            source: tree.clone(),
            thread: tree,
            id: message(id),
            sender: name("boss"),
            to: Some(name("echo")),
            key: None,
            is_unknown: false,
            is_confirmed: false,
            verdict: Verdict::Passed(Digest::ZERO),
            by: ListenerName::operator(),
            origin: None,
        };
        opened(position, Input::OperatorRetry(Box::new(action)), id, false)
    }

    #[test]
    fn only_the_retry_of_one_leg_is_of_one_call_even_if_it_is_retried_itself() {
        for is_leg in [true, false] {
            let records = [request(1, 1, is_leg), retry(2, 2, 1), retry(3, 3, 2)];
            let [first, second] = [1, 2].map(|at: usize| {
                let found = retry_of_one_call(&records, &records[at].record);
                found.map(|retry| retry.id)
            });
            assert_eq!(first, is_leg.then_some(message(2)));
            assert_eq!(second, is_leg.then_some(message(3)));

            let obstacle = obstacle_at(&records, &records[1].record, message(2));
            assert_eq!(obstacle, is_leg.then_some(ForkObstacle::Retry(name("echo"))));
            assert_eq!(retry_of_one_call(&records, &records[0].record), None);
        }
    }

    #[test]
    fn a_retry_of_one_of_several_calls_of_a_record_is_of_one_call_without_a_group() {
        let mut several = request(1, 1, false);
        several.record.facts.extend(request(1, 4, false).record.facts);
        let records = [several, retry(2, 2, 1), retry(3, 3, 2)];
        for (at, id) in [(1, 2), (2, 3)] {
            let found = retry_of_one_call(&records, &records[at].record);
            assert_eq!(found.map(|retry| retry.id), Some(message(id)));
        }
    }
}

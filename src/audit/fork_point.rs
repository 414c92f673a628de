//! Fork points: the places in a thread tree at which a fork can begin, because nothing is open
//! there.

use crate::envelope::{Message, MessageKind, Payload};
use crate::ids::{Digest, ListenerName, MessageId, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::mutant::mutant;
use crate::thread::{Fact, ForkSource, InheritedThread, Opener, Record, State};

/// A place at which a fork can begin.
#[derive(Debug, Clone)]
pub struct ForkPoint {
    pub source: ForkSource,
    /// The client's request with which the fork begins; `None` for a fork after a closed call.
    pub request: Option<PointRequest>,
    /// The client that opened the source.
    pub client: ListenerName,
}

/// The request of a client at a fork point.
#[derive(Debug, Clone)]
pub struct PointRequest {
    pub sender: ListenerName,
    /// The recorded payload; `None` if it is redacted.
    pub payload: Option<Payload>,
}

impl ForkPoint {
    /// Finds the place at `message`, which the record at `position` contains, or the last one
    /// before it. `None` if that record does not contain the message, or the tree can have no fork.
    pub fn find(
        reader: &JournalReader,
        position: Position,
        message: MessageId,
    ) -> Result<Option<Self>, Error> {
        let records = reader.walk(position)?;
        let Some(last) = records.last() else { return Ok(None) };
        let root = last.record.tree.clone();
        let is_here = accepted(&last.record).any(|own| own.id == message);
        if !is_here || root.as_str() == ThreadId::ORGANISM {
            return Ok(None);
        }

        let mut state = State::default();
        let mut found = None;
        for sealed in &records {
            let was_at_rest = is_at_rest(&state, &root);
            let is_last = sealed.record.position == position;
            apply(&mut state, &sealed.record);
            if let Some(request) = first_request(&sealed.record).filter(|_| was_at_rest) {
                found = Some(Self::before(&state, sealed, request));
                // The message itself is the request, and not a result in the same record.
                if is_last && request.id == message {
                    break;
                }
            }
            if let Some(result) = last_result(&sealed.record, message)
                && is_at_rest(&state, &root)
            {
                found = Some(Self::after(&state, sealed, result));
            }
        }
        Ok(found.flatten())
    }

    /// The threads that a fork with the root `fork` takes over here.
    pub fn inherited(
        &self,
        reader: &JournalReader,
        fork: &ThreadId,
    ) -> Result<Vec<InheritedThread>, Error> {
        inherited_threads(reader, &self.source, fork)
    }

    fn before(state: &State, sealed: &HashedRecord, request: &Message) -> Option<Self> {
        let record = &sealed.record;
        let is_whole = Digest::of(request.payload.as_str().as_bytes()) == request.payload.digest;
        let payload = is_whole.then(|| request.payload.clone());
        Some(Self {
            source: source(sealed, request, record.previous),
            request: Some(PointRequest { sender: request.from.clone(), payload }),
            client: state.thread(&record.tree)?.by.clone(),
        })
    }

    fn after(state: &State, sealed: &HashedRecord, result: &Message) -> Option<Self> {
        let record = &sealed.record;
        Some(Self {
            source: source(sealed, result, record.position),
            request: None,
            client: state.thread(&record.tree)?.by.clone(),
        })
    }
}

fn inherited_threads(
    reader: &JournalReader,
    source: &ForkSource,
    fork: &ThreadId,
) -> Result<Vec<InheritedThread>, Error> {
    let mut state = State::default();
    if source.history > Position(0) {
        for sealed in reader.walk(source.history)? {
            apply(&mut state, &sealed.record);
        }
    }
    Ok(state.inherited_threads(&source.thread, fork))
}

/// A fork on record, which its source has to prove.
#[derive(Debug, Clone)]
pub(super) struct RecordedFork {
    position: Position,
    thread: ThreadId,
    source: ForkSource,
    threads: Vec<InheritedThread>,
}

impl RecordedFork {
    /// The fork that a fact of the record at `position` opens.
    pub fn of(position: Position, fact: &Fact) -> Option<Self> {
        let Fact::Forked { thread, source, threads, .. } = fact else { return None };
        let thread = thread.clone();
        let source = source.clone();
        Some(Self { position, thread, source, threads: threads.clone() })
    }

    /// Proves that the fork begins where it states: its source has that record, and exactly the
    /// threads that the fork has taken over.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] at the position of the fork, if it does not.
    pub fn prove(&self, reader: &JournalReader) -> Result<(), Error> {
        let Self { position, thread, source, threads } = self;
        let broken = |detail: &str| {
            let source = &source.thread;
            Err(Error::broken(position.0, format!("{thread} is a fork of {source}, and {detail}")))
        };

        let sealed = reader.record(source.record)?.filter(|_| source.record < *position);
        let Some(sealed) = sealed else { return broken("its source has no such record") };
        let record = &sealed.record;
        let is_same = sealed.hash == source.hash && record.tree == source.thread;
        if !is_same && !mutant("trust-a-lineage") {
            return broken("the record of its source is another one");
        }
        if ![record.position, record.previous].contains(&source.history) {
            return broken("its history does not end at that record");
        }
        if inherited_threads(reader, source, thread)? != *threads {
            return broken("its threads are not those of its history");
        }
        Ok(())
    }
}

fn source(sealed: &HashedRecord, message: &Message, history: Position) -> ForkSource {
    ForkSource {
        thread: sealed.record.tree.clone(),
        message: message.id,
        seq: message.seq,
        record: sealed.record.position,
        hash: sealed.hash,
        history,
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

fn accepted(record: &Record) -> impl Iterator<Item = &Message> {
    record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(&**message),
        _ => None,
    })
}

/// The first call that a client opens in this record.
fn first_request(record: &Record) -> Option<&Message> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, opening: Some(opening), .. }
            if matches!(opening.opener, Opener::Client { .. }) =>
        {
            Some(&**message)
        }
        _ => None,
    })
}

/// The message that stands for the end of the calls that this record closes: `wanted` if the record
/// contains it, otherwise the last message of a result.
fn last_result(record: &Record, wanted: MessageId) -> Option<&Message> {
    let has_closed = record.facts.iter().any(|fact| matches!(fact, Fact::CallClosed { .. }));
    if !has_closed {
        return None;
    }
    let is_result = |own: &&Message| matches!(own.kind, MessageKind::Reply | MessageKind::System);
    let named = accepted(record).find(|own| own.id == wanted);
    named.or_else(|| accepted(record).filter(is_result).last())
}

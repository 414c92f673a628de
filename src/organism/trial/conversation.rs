//! Reads the conversation of a recorded thread: the requests that its clients sent, in order.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::{client_calls, retry_of_one_call};
use crate::contract::retry_name;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::journal::HashedRecord;
use crate::journal::sqlite::JournalReader;
use crate::organism::Error;
use crate::thread::{Fact, ForkSource, Input, Record};

use super::late_answers::shown_late_answer;

/// The requests that a trial sends again, as read from a recorded thread.
#[derive(Debug)]
pub struct Conversation {
    pub source: ForkSource,
    /// The client that opened the thread.
    pub client: ListenerName,
    pub requests: Vec<RecordedRequest>,
    /// Position of the last record that was read. The trial is compared with the records up to this
    /// position.
    pub last: Position,
}

/// A client's request.
#[derive(Debug)]
pub struct RecordedRequest {
    pub sender: ListenerName,
    pub payload: String,
}

/// Why a trial cannot repeat a recorded thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationGap {
    NoRequest,
    /// The thread is a fork, and a part of its history is in the thread of its source.
    Fork {
        source: ThreadId,
    },
    Redacted {
        request: String,
    },
    /// An operator retried the call of a listener, or one leg of a group. A trial can send the
    /// message of the retry only as a client's request, which would go to other recipients.
    OperatorRetry {
        request: String,
    },
    /// A client retried a run of a workflow. Its request names the run by an id, and the run has
    /// another id in a trial.
    RunRetry {
        request: String,
    },
    /// The thread has an answer that came after its call had ended, and the prompt of a later turn
    /// shows this answer. A trial cannot repeat such an answer.
    LateAnswer {
        answer: String,
    },
    /// A cancellation has ended calls of the thread, whose results are not recorded.
    Cancelled {
        by: ListenerName,
    },
    /// A call has not ended, so its result is not recorded.
    Open {
        call: String,
        listener: ListenerName,
    },
}

impl std::fmt::Display for ConversationGap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRequest => f.write_str("it has no request of a client"),
            Self::Fork { source } => write!(f, "it is a fork within {source}; try that thread"),
            Self::Redacted { request } => {
                write!(f, "the payload of its request {request} is redacted")
            }
            Self::OperatorRetry { request } => write!(
                f,
                "its request {request} is an operator's retry of one call, which a trial cannot repeat"
            ),
            Self::RunRetry { request } => write!(
                f,
                "its request {request} retries a run of a workflow, which has another id in a trial"
            ),
            Self::LateAnswer { answer } => write!(
                f,
                "its answer {answer} came after its call had ended, and a later turn shows it; a \
                 repetition has no place for such an answer"
            ),
            Self::Cancelled { by } => {
                write!(f, "{by} cancelled it or a part of it, which a trial cannot repeat")
            }
            Self::Open { call, listener } => {
                write!(f, "its call {call} of {listener} has not ended; try it when it has")
            }
        }
    }
}

impl Conversation {
    /// Reads the conversation of a root thread.
    pub fn read(
        reader: &JournalReader,
        root: &ThreadId,
    ) -> Result<Result<Self, ConversationGap>, Error> {
        let journal = reader.about()?.journal;
        let records = reader.tree(root, None)?;
        let forked = records.iter().find_map(|sealed| history_of(&sealed.record));
        if let Some(source) = forked {
            return Ok(Err(ConversationGap::Fork { source }));
        }

        let mut requests = Vec::new();
        let mut first = None;
        for sealed in &records {
            if let Some(retry) = retry_of_one_call(&records, &sealed.record) {
                let request = retry.id.to_string();
                return Ok(Err(ConversationGap::OperatorRetry { request }));
            }

            if let Some((client, message)) = client_calls(&sealed.record).next() {
                let request = message.id.to_string();
                if !message.payload.is_intact() {
                    return Ok(Err(ConversationGap::Redacted { request }));
                }
                if message.name == retry_name(&message.to) {
                    return Ok(Err(ConversationGap::RunRetry { request }));
                }
                requests.push(RecordedRequest {
                    sender: message.from.clone(),
                    payload: message.payload.as_str().to_owned(),
                });
                first.get_or_insert_with(|| {
                    let source = ForkSource {
                        thread: root.clone(),
                        message: message.id,
                        seq: message.seq,
                        record: sealed.record.position,
                        hash: sealed.hash,
                        history: Position(0),
                        unpinned: true,
                        journal: Some(journal),
                    };
                    (source, client.clone())
                });
            }
        }
        let Some((source, client)) = first else { return Ok(Err(ConversationGap::NoRequest)) };
        if let Some(gap) = missing_end(&records) {
            return Ok(Err(gap));
        }
        if let Some(answer) = shown_late_answer(reader, &records)? {
            return Ok(Err(ConversationGap::LateAnswer { answer: answer.to_string() }));
        }
        let last = records.last().map(|sealed| sealed.record.position).unwrap_or_default();
        Ok(Ok(Self { source, client, requests, last }))
    }
}

/// Returns the reason why a tree has no results that a trial can repeat: a cancellation, or the
/// first call that has not ended. Returns `None` if each call has ended by itself.
fn missing_end(records: &[HashedRecord]) -> Option<ConversationGap> {
    let mut open = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for (number, HashedRecord { record, .. }) in records.iter().enumerate() {
        if let Input::Cancel { by, .. } = &record.input
            && !record.is_cancel_refused()
        {
            return Some(ConversationGap::Cancelled { by: by.clone() });
        }
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. } => {
                    open.insert((number, message.id), &message.to);
                }
                Fact::CallClosed { call, .. } => {
                    ended.insert(call.0);
                }
                _ => {}
            }
        }
    }

    let mut left = open.into_iter().filter(|((_, call), _)| !ended.contains(call));
    let ((_, call), listener) = left.next()?;
    Some(ConversationGap::Open { call: call.to_string(), listener: listener.clone() })
}

/// Returns the source thread of the fork that `record` opens. Returns `None` if `record` opens no
/// fork, or a fork that does not inherit the history of its source.
fn history_of(record: &Record) -> Option<ThreadId> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Forked { source, .. } if source.history > Position(0) => Some(source.thread.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::contract::Gather;
    use crate::envelope::{Message, MessageKind, Payload};
    use crate::ids::{CallId, Digest, MessageId, PayloadName};
    use crate::journal::Journal as _;
    use crate::journal::sqlite::SqliteJournal;
    use crate::thread::{Closing, Opener, Opening};

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    /// Makes the record of a request to `peers`. If `is_grouped` is false, the calls of the request
    /// are not recorded as a group, as in core versions before 21.
    fn request(tree: &ThreadId, n: u128, peers: &[&str], is_grouped: bool) -> Record {
        let id = |leg: usize| MessageId(Uuid::from_u128(n * 16 + leg as u128));
        let group = is_grouped.then_some((CallId(id(0)), Gather::All));
        let call = |(leg, peer): (usize, &&str)| {
            let message = Message {
                id: id(leg),
                kind: MessageKind::Call,
                from: name("desk"),
                to: name(peer),
                thread: tree.clone(),
                seq: leg as u64 + 1,
                cause: None,
                call: Some(CallId(id(leg))),
                time: Time(0),
                name: PayloadName::new("urn:test", "poll"),
                payload: Payload::new(format!("<poll n=\"{n}\"/>")),
            };
            let opener = Opener::Client { name: name("desk") };
            let opening = Some(Opening { opener, group, forward: false });
            Fact::Accepted { message: Arc::new(message), opening, key: None }
        };
        Record {
            position: Position(0),
            tree: tree.clone(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Boot { detail: String::new() },
            facts: peers.iter().enumerate().map(call).collect(),
        }
    }

    /// Ends all calls that the record opens.
    fn end_calls(record: &mut Record) {
        let opened: Vec<_> = record.accepted_messages().map(|message| CallId(message.id)).collect();
        let closed = opened.into_iter();
        record.facts.extend(closed.map(|call| Fact::CallClosed { call, how: Closing::Completed }));
    }

    /// Writes the records into a new journal, and reads the conversation from it.
    fn read(mut records: Vec<Record>) -> Result<Conversation, ConversationGap> {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let state = place.path().join("state");
        let tree = records[0].tree.clone();
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        for record in &mut records {
            journal.append(std::slice::from_mut(record)).unwrap();
        }
        Conversation::read(&JournalReader::open(&data).unwrap(), &tree).unwrap()
    }

    #[test]
    fn an_open_or_cancelled_thread_has_a_gap() {
        let tree = ThreadId::parse("sess-pollpoll").unwrap();
        let mut ended = request(&tree, 1, &["v1"], false);
        end_calls(&mut ended);
        let conversation = read(vec![ended.clone()]).unwrap();
        assert_eq!(conversation.last, Position(1));

        let open = request(&tree, 2, &["v2"], false);
        let call = MessageId(Uuid::from_u128(32)).to_string();
        let gap = read(vec![ended.clone(), open.clone()]).unwrap_err();
        assert_eq!(gap, ConversationGap::Open { call, listener: name("v2") });

        let by = ListenerName::operator();
        let reason = String::new();
        let input = Input::Cancel { thread: tree, by: by.clone(), reason, origin: None };
        let mut cancelled = Record { input, facts: Vec::new(), ..open.clone() };
        let call = CallId(MessageId(Uuid::from_u128(32)));
        cancelled.facts.push(Fact::CallClosed { call, how: Closing::Cancelled });
        let gap = read(vec![ended, open, cancelled]).unwrap_err();
        assert_eq!(gap, ConversationGap::Cancelled { by });
    }

    #[test]
    fn a_request_to_several_peers_is_sent_again_once_whether_its_calls_are_a_group_or_not() {
        for is_grouped in [true, false] {
            let tree = ThreadId::parse("sess-pollpoll").unwrap();
            let mut records = vec![
                request(&tree, 1, &["v1", "v2"], is_grouped),
                request(&tree, 2, &["v1", "v2", "v3"], is_grouped),
                request(&tree, 3, &["v1"], false),
            ];
            records.iter_mut().for_each(end_calls);

            let conversation = read(records).unwrap();
            let requests = conversation.requests.iter().map(|request| &*request.payload);
            let expected = ["<poll n=\"1\"/>", "<poll n=\"2\"/>", "<poll n=\"3\"/>"];
            assert_eq!(requests.collect::<Vec<_>>(), expected, "{is_grouped}");
            assert_eq!(conversation.source.message, MessageId(Uuid::from_u128(16)));
        }
    }
}

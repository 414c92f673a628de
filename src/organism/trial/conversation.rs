//! Reads the conversation of a recorded thread: the requests that its clients sent, in order.

use crate::audit::retry_of_one_call;
use crate::contract::retry_name;
use crate::envelope::Message;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::organism::Error;
use crate::thread::{Fact, ForkSource, Opener, Record};

use super::late_answers::shown_late_answer;

/// The requests of a recorded thread that a trial sends again.
#[derive(Debug)]
pub struct Conversation {
    pub source: ForkSource,
    /// The client that opened the thread.
    pub client: ListenerName,
    pub requests: Vec<RecordedRequest>,
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
    /// An operator retried the call of a listener, or one leg of a group. Sent again as the request
    /// of a client, the message of the retry would go to other recipients.
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

            for (client, message) in client_requests(&sealed.record) {
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
        if let Some(answer) = shown_late_answer(reader, &records)? {
            return Ok(Err(ConversationGap::LateAnswer { answer: answer.to_string() }));
        }
        Ok(Ok(Self { source, client, requests }))
    }
}

/// Returns the source thread of the fork that `record` opens. Returns `None` if `record` opens no
/// fork, or a fork that does not inherit the history of its source.
fn history_of(record: &Record) -> Option<ThreadId> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Forked { source, .. } if source.history > Position(0) => Some(source.thread.clone()),
        _ => None,
    })
}

/// Returns each request of a client in a record, with its sender. Returns a request with several
/// receivers only once.
fn client_requests(record: &Record) -> impl Iterator<Item = (&ListenerName, &Message)> {
    let mut group = None;
    record.facts.iter().filter_map(move |fact| {
        let Fact::Accepted { message, opening: Some(opening), .. } = fact else { return None };
        let Opener::Client { name } = &opening.opener else { return None };
        let own = opening.group.map(|(own, _)| own);
        let is_repeated = own.is_some() && own == group;
        group = own;
        (!is_repeated).then_some((name, &**message))
    })
}

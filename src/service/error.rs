//! The reasons why a request to an organism fails.

use std::path::{Path, PathBuf};

use crate::blocking_work::BlockingWorkError;
use crate::ids::{Digest, MessageId, ThreadId};
use crate::{journal, nats};

use super::encoding::{self, DecodeError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
    #[error("the organism has stopped; its log has the reason")]
    Stopped,
    /// The work of the request panicked inside the organism, or got no thread.
    #[error("the request failed inside the organism, whose log has the reason")]
    Panicked,
    /// The connection ended before the last response. The request may have been carried out.
    #[error(
        "the running organism ended before its last response; accepted calls continue at its next \
         start: read the thread before you send again. If you gave a --key, send again with it: \
         nothing is then done twice"
    )]
    Lost,
    /// The organism did not carry out the request, so nothing was changed.
    #[error("the running organism cannot carry out the request now ({detail}); try again")]
    NotReady { detail: String },
    /// The organism did not respond in time, or failed meanwhile. It may have carried out the
    /// request, or may still do so.
    #[error(
        "the running organism gave no result ({detail}); the request may be on record, or may still \
         be carried out: look at the record before you repeat it. If you gave `send` a --key, send \
         again with it: nothing is then done twice"
    )]
    Undecided {
        detail: String,
        /// Whether the request failed inside the organism. The pump may then respond to other
        /// requests.
        failed: bool,
    },
    /// The pump has accepted the request, but refuses its results to this command, because the
    /// command did not prove its client.
    #[error(
        "the request is on record and is carried out, but its results are refused here ({detail}); \
         `organism thread {thread}` shows them"
    )]
    ResultsRefused { thread: ThreadId, detail: String },
    /// No pump of the partition gave a result. Either no pump responded in time, or the client sent
    /// the request again, and this failed, for example because a pump refused the request. A pump
    /// may have accepted an earlier attempt of the request.
    #[error(
        "no pump of partition {partition} gave a result ({detail}); the request may have been \
         carried out, and accepted calls continue: read the thread before you send again. If you \
         gave a --key, send again with it: nothing is then done twice"
    )]
    Unanswered { partition: u32, detail: String },
    /// A repeated request for a retry found a retry of the message on record. This may be the retry
    /// of an earlier attempt of the request, whose response was lost.
    #[error(
        "the message was retried as {retry}, by this request or by another one: the first response \
         was lost. Read that message, and retry that one if it failed, too"
    )]
    MaybeRetried { retry: MessageId },
    /// No pump of the partition accepted the request, so nothing was done.
    #[error(
        "no pump of partition {partition} responded ({detail}); try again, or start `organism run` \
         for this partition, which --partitions must not leave out"
    )]
    NoPump { partition: u32, detail: String },
    /// The process behind the socket is not the process that has locked the journal. No request was
    /// sent to the process behind the socket.
    #[error(
        "the socket {} is served by process {server}, and {holder} holds the journal: nothing was \
         sent. End process {server} unless you know it, remove the socket, and restart the organism",
        path.display()
    )]
    ForeignSocket { path: PathBuf, server: u32, holder: String },
    /// The organism belongs to another project, so nothing was done.
    #[error(transparent)]
    OtherProject(#[from] OtherProject),
    /// The organism runs with another config than the command, so nothing was done. `ours` is
    /// `None` if the command's config does not load.
    #[error(
        "the config has changed since the organism started: the organism runs with {running}, and \
         the config is now {}; nothing was sent. `organism reload` puts the change in \
         force, or says why that takes a restart; or restore the config; then send again",
        ours.map_or_else(|| "unreadable".to_owned(), |digest| digest.to_string())
    )]
    ConfigChanged { running: Digest, ours: Option<Digest> },
    /// The organism has another number of partitions than the command's config, so nothing was
    /// done.
    #[error(
        "the number of partitions of the running organism is {running}, and that of the config is \
         {ours}; nothing was sent. The number is fixed for the life of a journal: write \
         `partitions = {running}` under [journal]"
    )]
    OtherPartitions { running: u32, ours: u32 },
    /// The organism and the command are programs of different versions, so nothing was done.
    #[error(
        "the running organism speaks version {theirs} of the service protocol, and this command \
         version {ours}; nothing was done. Use the program that the organism runs with, or restart \
         the organism with this one"
    )]
    OtherVersion { theirs: u32, ours: u32 },
    /// The organism and the command state the same version of the service protocol, but are
    /// different programs. The request may have been carried out, unless the request only reads.
    #[error(
        "the running organism sent a response that this command cannot read ({detail}), although \
         both speak version {version} of the service protocol, so they are different programs. \
         Unless the request only reads, it may have been carried out: look at the record before \
         you repeat it. Use the program that the organism runs with, or restart the organism with \
         this one"
    )]
    UnreadableResponse { version: u32, detail: String },
    #[error("no thread {thread} is on record")]
    NoThread { thread: ThreadId },
    /// The organism responded with an error, or with a response of a kind that does not belong to
    /// the request.
    #[error("the organism could not carry out the request: {detail}")]
    Failed { detail: String },
}

/// The error for a config that names directories of another project.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} belongs to the project {}, and this config is {}; nothing was changed. {}",
    data.display(), stored.display(), ours.display(), advice(stored)
)]
pub struct OtherProject {
    pub data: PathBuf,
    pub stored: PathBuf,
    pub ours: PathBuf,
}

fn advice(owner: &Path) -> String {
    if is_config_present(owner) {
        return format!(
            "That project's config is still there: name another directory as `data`, or take its \
             journal away from it with `organism adopt --from {}`",
            owner.display()
        );
    }
    "Where that project was moved here, `organism adopt` accepts its journal for this path; \
     otherwise name another directory as `data`"
        .to_owned()
}

/// Whether the config file of a project exists. True if this process cannot determine whether the
/// file exists.
pub fn is_config_present(project: &Path) -> bool {
    project.try_exists().unwrap_or(true)
}

impl Error {
    pub(super) fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    pub fn failed(detail: impl std::fmt::Display) -> Self {
        Self::Failed { detail: detail.to_string() }
    }

    /// Converts an error of a repeated request to `partition` into an error that leaves open
    /// whether the request was carried out. Call only if an earlier attempt of the request may have
    /// been carried out.
    pub(super) fn undecided(self, partition: u32) -> Self {
        if matches!(self, Self::Lost | Self::Undecided { .. } | Self::Unanswered { .. }) {
            return self;
        }
        let detail = self.refusal_reason().unwrap_or_else(|| self.to_string());
        Self::Unanswered { partition, detail }
    }

    /// Returns the reason of an error with which the organism refuses a request before it does
    /// anything; `None` for any other error. Unlike the error's own text, the reason does not state
    /// that nothing was done. For a repeated request, this statement could be wrong, because an
    /// earlier attempt may have been carried out.
    fn refusal_reason(&self) -> Option<String> {
        match self {
            Self::ForeignSocket { path, .. } => {
                let path = path.display();
                Some(format!("another process than that of the journal serves the socket {path}"))
            }
            Self::OtherProject(OtherProject { data, stored, .. }) => {
                let stored = stored.display();
                Some(format!("{} belongs to the project {stored}", data.display()))
            }
            Self::ConfigChanged { running, .. } => {
                Some(format!("the running organism has another config, {running}"))
            }
            Self::OtherPartitions { running, ours } => Some(format!(
                "the running organism has {running} partitions, and the config says {ours}"
            )),
            Self::OtherVersion { theirs, ours } => Some(format!(
                "the running organism speaks version {theirs} of the service protocol, and this \
                 command version {ours}"
            )),
            _ => None,
        }
    }

    /// Returns the text, without advice, of an error that leaves open whether the request was or
    /// will be carried out; `None` for any other error.
    pub(super) fn missing_result(&self) -> Option<String> {
        match self {
            Self::Lost => Some("the running organism ended before its last response".to_owned()),
            Self::Undecided { detail, .. } => {
                Some(format!("the running organism gave no result ({detail})"))
            }
            Self::Unanswered { partition, detail } => {
                Some(format!("no pump of partition {partition} gave a result ({detail})"))
            }
            _ => None,
        }
    }

    /// Whether no pump gave a result in time. A further request to the same partition would wait as
    /// long. False for a request that failed inside the organism, whose pump may respond to others.
    pub const fn is_without_result(&self) -> bool {
        matches!(
            self,
            Self::NoPump { .. } | Self::Unanswered { .. } | Self::Undecided { failed: false, .. }
        )
    }

    /// Whether the organism and the command are certainly different programs. Every further request
    /// then fails, too.
    pub const fn is_of_other_program(&self) -> bool {
        matches!(self, Self::OtherVersion { .. } | Self::UnreadableResponse { .. })
    }
}

impl From<BlockingWorkError> for Error {
    fn from(error: BlockingWorkError) -> Self {
        match error {
            BlockingWorkError::Panicked => Self::Panicked,
            BlockingWorkError::Stopped => Self::Stopped,
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::OtherVersion { theirs } => {
                Self::OtherVersion { theirs, ours: encoding::VERSION }
            }
            DecodeError::Malformed(error) => {
                let detail = error.to_string();
                Self::UnreadableResponse { version: encoding::VERSION, detail }
            }
        }
    }
}

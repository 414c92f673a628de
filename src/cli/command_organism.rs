//! The client with which a command uses an organism. The command may have started this organism
//! itself.
//!
//! An organism that one command has started also serves other commands. A signal that stops the
//! first command must not break the calls of the other commands. Therefore, the signal drains the
//! organism, as it does for `organism run`.

use std::ops::Deref;

use crate::config::Config;
use crate::ids::ThreadId;
use crate::organism::OrganismClient;
use crate::service;

use super::exit::CommandFailure;
use super::stop_signals::{DrainSignal, ReceivedSignal, report_stopping, watch_drain_signals};

/// A client of an organism, for one command. If the organism was started for this command, the
/// signals SIGINT, SIGTERM and SIGHUP end the command's work, but do not kill this process. If the
/// organism runs in another process, these signals kill this process as usual.
pub struct CommandOrganism {
    client: OrganismClient,
    /// The signal that stops the command; `None` if the organism runs in another process.
    signal: Option<ReceivedSignal>,
}

impl Deref for CommandOrganism {
    type Target = OrganismClient;

    fn deref(&self) -> &OrganismClient {
        &self.client
    }
}

impl CommandOrganism {
    /// Connects to the running organism of this config, or starts an organism for this command.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        Self::of(OrganismClient::open(config).await?)
    }

    /// Wraps `client`. If the organism of `client` was started for this command, begins to watch
    /// for stop signals.
    pub fn of(client: OrganismClient) -> anyhow::Result<Self> {
        let signal = client.is_own().then(watch_drain_signals).transpose()?;
        Ok(Self { client, signal })
    }

    /// Carries out `work`, and returns its result. If a signal stops the command first, drops
    /// `work` and returns the signal.
    pub async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, DrainSignal> {
        tokio::select! {
            // A command whose signal has arrived begins no further work.
            biased;
            signal = received(self.signal.clone()) => Err(signal),
            done = work => Ok(done),
        }
    }

    /// Closes the client, as [`OrganismClient::close`] does. If a signal has stopped the command,
    /// or arrives while the organism still serves other commands, drains the organism and returns
    /// an error about the signal. The error contains `remains`, which states the work that
    /// continues later.
    pub async fn close(self, remains: &str) -> anyhow::Result<()> {
        let Self { client, signal } = self;
        let mut stopped = None;
        let stop = async {
            let signal = received(signal).await;
            stopped = Some(signal);
            report_stopping(signal.name());
            signal.name()
        };
        client.close_or_stop(stop).await?;

        match stopped {
            Some(signal) => {
                Err(CommandFailure::new(signal.exit(), format!("{signal}: {remains}")).into())
            }
            None => Ok(()),
        }
    }

    /// Closes the client after a submission, as [`CommandOrganism::close`] does. `sent` is the
    /// result of the submission. If `sent` contains an error of the submission, returns this error.
    /// `opened` is the thread that the submission has opened, if known.
    pub async fn close_after(
        self,
        sent: Result<Result<(), service::Error>, DrainSignal>,
        opened: Option<&ThreadId>,
    ) -> anyhow::Result<()> {
        let closed = self.close(&remaining_work(opened)).await;
        // An error of the submission explains more than the end of the organism.
        if let Ok(sent) = sent {
            sent?;
        }
        closed
    }
}

/// Describes the work of a submission that continues later, although the command was stopped.
/// `opened` is the thread of the submission; `None` if the command does not know the thread.
pub(super) fn remaining_work(opened: Option<&ThreadId>) -> String {
    match opened {
        Some(thread) => format!(
            "what has not ended in thread {thread} goes on at the next start; `organism thread \
             {thread}` shows it"
        ),
        None => "the organism had not confirmed that the payload is on record; `organism threads` \
                 lists what is"
            .to_owned(),
    }
}

/// Waits until a signal stops the command. Never returns if the command does not watch for signals.
async fn received(signal: Option<ReceivedSignal>) -> DrainSignal {
    if let Some(mut signal) = signal {
        let received = signal.wait_for(Option::is_some).await.ok().and_then(|signal| *signal);
        if let Some(received) = received {
            return received;
        }
    }

    std::future::pending().await
}

//! The client with which a command uses an organism that it may have started itself.
//!
//! Other commands connect to an organism that a command has started. So a signal that stops this
//! command must not kill their calls: it drains the organism, as it drains `organism run`.

use std::ops::Deref;

use crate::config::Config;
use crate::ids::ThreadId;
use crate::organism::OrganismClient;
use crate::service;

use super::exit::CommandFailure;
use super::stop_signals::{DrainSignal, ReceivedSignal, report_stopping, watch_drain_signals};

/// A client that ends the work of its command on SIGINT, SIGTERM and SIGHUP if the organism was started for
/// this command. If the organism runs in another process, the signals kill this process as usual.
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

    /// Uses `client`, and from now on watches for signals if its organism ends with the command.
    pub fn of(client: OrganismClient) -> anyhow::Result<Self> {
        let signal = client.is_own().then(watch_drain_signals).transpose()?;
        Ok(Self { client, signal })
    }

    /// Carries out `work`. Drops it and returns the signal if a signal stops the command.
    pub async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, DrainSignal> {
        tokio::select! {
            // A command whose signal has arrived begins no further work.
            biased;
            signal = received(self.signal.clone()) => Err(signal),
            done = work => Ok(done),
        }
    }

    /// Closes the client, as [`OrganismClient::close`] does. If a signal has stopped the command,
    /// or stops it while it waits for other commands, drains the organism. Returns the failure of
    /// the stopped command then; `remains` states in it what goes on later.
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

    /// Closes the client, as [`CommandOrganism::close`] does, after a submission that opened the
    /// thread `opened`. If the submission failed, returns the error in `sent`.
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

/// States for people what goes on later of a submission whose command was stopped. `opened` is its
/// thread; `None` if the command does not know of any.
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

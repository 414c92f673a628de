//! Tries a config on recorded threads: sends the requests of each thread again to an organism with a
//! journal of its own, whose calls have no effects.
//!
//! Each thread is a fork of the recorded one, with the source in another journal: calls to listeners
//! that are neither agent nor workflow get the recorded results, and turns with a recorded prompt
//! the recorded answers. What the record does not have ends as `not-recorded`.
//!
//! **Invariant:** nothing here writes to the journals of the recorded threads, and no process of a
//! listener starts unless the caller names it.

mod conversation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access::refuse_hosted_start;
use super::own_journal::in_own_journal;
use super::{Error, Organism, operator};
use crate::audit::thread_timeline;
use crate::config::{Config, TrialSource};
use crate::envelope::{Money, Spending};
use crate::ids::{ListenerName, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::pump::core::{ForkRuling, Receipt, Target};
use crate::pump::driver::{Handle, PumpStopped};
use crate::thread::{Allotment, DecisionOrigin, ForkAction};
use conversation::Conversation;

/// How threads are tried.
#[derive(Debug, Clone, Default)]
pub struct TrialOptions {
    /// The model of every agent, in place of those of the config.
    pub model: Option<String>,
    /// Listeners that get the calls which the record does not have.
    pub live: Vec<ListenerName>,
    /// Maximum tokens of all threads together.
    pub tokens: Option<u64>,
    /// Maximum money of all threads together.
    pub money: Option<Money>,
}

/// A recorded thread, and the data directory of the journal that has it.
#[derive(Debug, Clone)]
pub struct TrialThread {
    pub thread: ThreadId,
    pub journal: PathBuf,
}

/// The outcome of the trial of a thread.
#[derive(Debug, Clone)]
pub enum TrialOutcome {
    /// It ran: the journal of the trial has it under the same id.
    Ran,
    /// It did not run, for this reason.
    NotTried(String),
}

impl TrialOptions {
    fn asks_models(&self) -> bool {
        self.tokens.is_some() || self.money.is_some()
    }

    /// The rest of the budget.
    fn allotment(&self, spent: Spending) -> Option<Allotment> {
        let tokens = self.tokens.map(|most| most.saturating_sub(spent.tokens));
        let money = self.money.map(|most| Money(most.0.saturating_sub(spent.money.0)));
        self.asks_models().then_some(Allotment { tokens, money, until: None })
    }
}

/// The config for a trial of threads of `journals`, with a journal of its own in `home`.
///
/// # Errors
///
/// [`Error::HostedProcess`] if this process runs in a listener of the organism.
pub fn prepare_trial(
    config: &Config,
    options: &TrialOptions,
    journals: Vec<PathBuf>,
    home: &Path,
) -> Result<Config, Error> {
    refuse_hosted_start(config)?;
    let mut own = in_own_journal(config, home);
    own.gather_agents();
    own.processes.retain(|process| options.live.contains(&process.name));
    if let Some(model) = &options.model {
        own.agents.iter_mut().for_each(|agent| agent.model.clone_from(model));
    }
    if !options.asks_models() {
        own.keys_missing = Arc::default();
    }
    own.trial = Some(TrialSource { journals, asks_models: options.asks_models() });
    Ok(own)
}

/// Runs the threads one after another, with a config of [`prepare_trial`]. Calls `ended` after each.
/// Returns false if `interrupted` completed before the last one has ended.
pub async fn try_threads(
    config: Config,
    options: &TrialOptions,
    threads: &[TrialThread],
    ended: impl FnMut(&ThreadId, TrialOutcome),
    interrupted: impl Future<Output = ()>,
) -> Result<bool, Error> {
    let data = config.data.clone();
    let organism = Organism::start_for_command(config).await?;
    let mut trial = Trial { handle: organism.handle(), data, options, spent: Spending::default() };
    let result = tokio::select! {
        biased;
        result = trial.run_all(threads, ended) => result.map(|()| true),
        () = interrupted => Ok(false),
    };
    if !matches!(result, Ok(true)) {
        for TrialThread { thread, .. } in threads {
            let reason = "the trial was stopped".to_owned();
            trial.handle.cancel(thread.clone(), reason, None).await.ok();
        }
    }
    organism.stop("the trial has ended").await?;
    result
}

struct Trial<'a> {
    handle: Handle,
    data: PathBuf,
    options: &'a TrialOptions,
    spent: Spending,
}

impl Trial<'_> {
    async fn run_all(
        &mut self,
        threads: &[TrialThread],
        mut ended: impl FnMut(&ThreadId, TrialOutcome),
    ) -> Result<(), Error> {
        for thread in threads {
            let outcome = self.run(thread).await?;
            if self.options.asks_models() {
                self.count(&thread.thread)?;
            }
            ended(&thread.thread, outcome);
        }
        Ok(())
    }

    /// Adds what a thread has spent.
    fn count(&mut self, thread: &ThreadId) -> Result<(), Error> {
        let reader = JournalReader::open(&self.data)?;
        if let Some(timeline) = thread_timeline(&reader, thread, None)? {
            self.spent = self.spent.plus(timeline.spent);
        }
        Ok(())
    }

    async fn run(&self, thread: &TrialThread) -> Result<TrialOutcome, Error> {
        let TrialThread { thread, journal } = thread.clone();
        let root = thread.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let reader = JournalReader::open(&journal)?;
            Conversation::read(&reader, &root)
        });
        let read = reading.await.map_err(|_| Error::Stopped)??;
        let conversation = match read {
            Ok(conversation) => conversation,
            Err(gap) => return Ok(TrialOutcome::NotTried(gap.to_string())),
        };

        let requests = conversation.requests;
        let action = ForkAction {
            thread: thread.clone(),
            source: conversation.source,
            client: conversation.client,
            live: self.options.live.clone(),
            allotment: self.options.allotment(self.spent),
            request: None,
            by: ListenerName::operator(),
            origin: Some(DecisionOrigin {
                who: operator::this_user(),
                ..DecisionOrigin::default()
            }),
        };
        let ruled = self.handle.fork(action, Default::default(), None).await.map_err(stopped)?;
        if let ForkRuling::Refused(refusal) = ruled {
            return Ok(TrialOutcome::NotTried(refusal.message));
        }

        for request in requests {
            let target = Target::Thread { id: thread.to_string() };
            let bytes = request.payload.as_bytes();
            let submitted = self.handle.submit(&request.sender, target, None, bytes).await;
            match submitted.map_err(stopped)?.0 {
                // Each request waits for the end of everything that the one before it began.
                Receipt::Accepted { .. } => self.rest(&thread).await?,
                // The refusal is on record, and the report shows it.
                Receipt::Refused { .. } => {}
                Receipt::NoThread { answer } => return Ok(TrialOutcome::NotTried(answer)),
            }
        }
        Ok(TrialOutcome::Ran)
    }

    /// Waits until no call of the thread's tree is open.
    async fn rest(&self, thread: &ThreadId) -> Result<(), Error> {
        let mut recorded = self.handle.recorded();
        loop {
            recorded.borrow_and_update();
            if self.handle.is_at_rest(thread.clone()).await.map_err(stopped)? {
                return Ok(());
            }
            recorded.changed().await.map_err(|_| Error::Stopped)?;
        }
    }
}

fn stopped(_: PumpStopped) -> Error {
    Error::Stopped
}

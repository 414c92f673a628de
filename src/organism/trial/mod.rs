//! Tries a config on recorded threads. A trial sends the requests of each thread again, to an
//! organism of its own with a separate journal. In the trial, each thread is a fork of the recorded
//! thread.
//!
//! - A call to a listener that is neither agent nor workflow gets the recorded result. If no result
//!   is recorded, the call goes to its listener only if the options of the trial name this
//!   listener.
//! - A turn with a recorded prompt gets the recorded answer. Any other turn goes to a model on the
//!   network only if the trial has a budget. A model whose routes are all `playback` answers also
//!   without a budget. A budget bounds the turns of both.
//! - All other calls and turns end as `not-recorded`.
//!
//! **Invariant:** a trial never writes to the journals of the recorded threads, and starts only
//! those listener processes that its options name.

mod conversation;
mod judge;
mod late_answers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access::refuse_hosted_start;
use super::own_journal::in_own_journal;
use super::{Error, Organism, operator};
use crate::audit::{RecordedMoment, has_equal_finals, pair_results, thread_timeline};
use crate::blocking_work;
use crate::config::{Config, TrialSource};
use crate::envelope::{Money, Spending};
use crate::ids::{Digest, ListenerName, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::pump::core::{ForkRuling, Receipt, Target};
use crate::pump::driver::Handle;
use crate::schema::Schemas;
use crate::thread::{Allotment, DecisionOrigin, ForkAction, ForkSource};
use conversation::{Conversation, RecordedRequest};
use judge::judge_request;
pub use judge::{JudgeDecision, ResultsJudgement, TrialJudge};

/// Options of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialOptions {
    /// Model that every agent uses instead of its model in the config; `None` if each agent keeps
    /// its own model.
    pub model: Option<String>,
    /// Listeners that may be called in the trial. They receive the calls for which no result is
    /// recorded.
    pub live: Vec<ListenerName>,
    /// Maximum tokens of all threads of the trial together; `None` for no such limit. Without
    /// `tokens` and `money`, the trial calls no model on the network.
    pub tokens: Option<u64>,
    /// Maximum cost of all threads of the trial together; `None` for no such limit. Without
    /// `tokens` and `money`, the trial calls no model on the network.
    pub money: Option<Money>,
    /// The agent that decides whether differing results mean the same; `None` if the trial has no
    /// judge.
    pub judge: Option<TrialJudge>,
}

/// A recorded thread, and the data directory of the journal that contains it.
#[derive(Debug, Clone)]
pub struct TrialThread {
    pub thread: ThreadId,
    pub journal: PathBuf,
}

/// The outcome of the trial of a thread.
#[derive(Debug, Clone)]
pub enum TrialOutcome {
    /// The thread ran, and is in the journal of the trial under its recorded id.
    Ran {
        /// The judgement, if the trial has a judge and the results differ.
        judgement: Option<ResultsJudgement>,
        /// Position of the last record of the recorded thread that the trial has repeated. The
        /// thread may have got more records since.
        last: Position,
    },
    /// The thread did not run. The text is the reason.
    NotTried(String),
}

impl TrialOptions {
    fn asks_models(&self) -> bool {
        self.tokens.is_some() || self.money.is_some()
    }

    /// Returns the rest of the trial's budget after `spent`. Returns `None` for a trial without a
    /// budget, which calls no model on the network.
    fn allotment(&self, spent: Spending) -> Option<Allotment> {
        let tokens = self.tokens.map(|most| most.saturating_sub(spent.tokens));
        let money = self.money.map(|most| Money(most.0.saturating_sub(spent.money.0)));
        self.asks_models().then_some(Allotment { tokens, money, until: None })
    }
}

/// Makes the config for a trial of threads from `journals`. The trial has a journal of its own in
/// `home`.
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
        // The judge is not part of the trial.
        let judge = options.judge.as_ref().map(|judge| &judge.agent);
        let tried = own.agents.iter_mut().filter(|agent| Some(&agent.name) != judge);
        tried.for_each(|agent| agent.model.clone_from(model));
    }
    if !options.asks_models() {
        own.keys_missing = Arc::default();
    }
    own.trial = Some(TrialSource { journals, asks_models: options.asks_models() });
    Ok(own)
}

/// Runs the threads one after another. `config` must come from [`prepare_trial`]. Calls `ended`
/// after each thread. Returns false if `interrupted` completed before the last thread ended.
pub async fn try_threads(
    config: Config,
    options: &TrialOptions,
    threads: &[TrialThread],
    ended: impl FnMut(&ThreadId, TrialOutcome),
    interrupted: impl Future<Output = ()>,
) -> Result<bool, Error> {
    let data = config.data.clone();
    let organism = Organism::start_for_command(config).await?;
    let schemas = organism.config.schemas.clone();
    let mut trial = Trial {
        handle: organism.handle(),
        data,
        options,
        schemas,
        spent: Spending::default(),
        judging: None,
    };
    let result = tokio::select! {
        biased;
        result = trial.run_all(threads, ended) => result.map(|()| true),
        () = interrupted => Ok(false),
    };
    if !matches!(result, Ok(true)) {
        let threads = threads.iter().map(|own| &own.thread).chain(&trial.judging);
        for thread in threads {
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
    schemas: Schemas,
    spent: Spending,
    /// The thread in which the judge is deciding now; `None` if the judge is not deciding.
    judging: Option<ThreadId>,
}

impl Trial<'_> {
    async fn run_all(
        &mut self,
        threads: &[TrialThread],
        mut ended: impl FnMut(&ThreadId, TrialOutcome),
    ) -> Result<(), Error> {
        for thread in threads {
            let outcome = self.run(thread).await?;
            ended(&thread.thread, outcome);
        }
        Ok(())
    }

    async fn run(&mut self, tried: &TrialThread) -> Result<TrialOutcome, Error> {
        let TrialThread { thread, journal } = tried.clone();
        let root = thread.clone();
        let reading = blocking_work::run(move || {
            let reader = JournalReader::open(&journal)?;
            Conversation::read(&reader, &root)
        });
        let Conversation { source, client, requests, last } = match reading.await?? {
            Ok(conversation) => conversation,
            Err(gap) => return Ok(TrialOutcome::NotTried(gap.to_string())),
        };

        let repeated = self.repeat(&thread, (source.clone(), client), requests).await?;
        self.count(&thread)?;
        if let Err(reason) = repeated {
            return Ok(TrialOutcome::NotTried(reason));
        }
        let judgement = self.judge(tried, source, last).await?;
        Ok(TrialOutcome::Ran { judgement, last })
    }

    /// Opens a fork with the id `thread`, and sends all requests of a conversation again in this
    /// fork. The inner `Err` states why the fork cannot be opened, or why a client cannot send to
    /// the fork.
    async fn repeat(
        &self,
        thread: &ThreadId,
        (source, client): (ForkSource, ListenerName),
        requests: Vec<RecordedRequest>,
    ) -> Result<Result<(), String>, Error> {
        let live = self.options.live.clone();
        if let Err(reason) = self.open(thread, (source, client), live).await? {
            return Ok(Err(reason));
        }
        for request in requests {
            let target = Target::Thread { id: thread.to_string() };
            let bytes = request.payload.as_bytes();
            let submitted = self.handle.submit(&request.sender, target, None, bytes).await;
            match submitted?.0 {
                // The next request waits until everything has ended that this one began.
                Receipt::Accepted { .. } => self.rest(thread).await?,
                // The refusal is on record, and the report shows it.
                Receipt::Refused { .. } => {}
                Receipt::NoThread { answer } => return Ok(Err(answer)),
            }
        }
        Ok(Ok(()))
    }

    /// Opens a thread as a fork of `source`, without a first request. The thread may use the rest
    /// of the trial's budget. The inner `Err` is the reason why the thread cannot be opened.
    async fn open(
        &self,
        thread: &ThreadId,
        (source, client): (ForkSource, ListenerName),
        live: Vec<ListenerName>,
    ) -> Result<Result<(), String>, Error> {
        let action = ForkAction {
            thread: thread.clone(),
            source,
            client,
            live,
            allotment: self.options.allotment(self.spent),
            request: None,
            by: ListenerName::operator(),
            origin: Some(DecisionOrigin {
                who: operator::this_user(),
                ..DecisionOrigin::default()
            }),
        };
        Ok(match self.handle.fork(action, Default::default(), None).await? {
            ForkRuling::Forked { .. } => Ok(()),
            ForkRuling::Refused(refusal) => Err(refusal.message),
        })
    }

    /// Lets the judge decide whether the results of a thread mean the same as the recorded results
    /// up to the record at `last`. Returns `None` if the results are equal, if the trial has no
    /// judge, or if one of the journals lacks the thread.
    async fn judge(
        &mut self,
        tried: &TrialThread,
        source: ForkSource,
        last: Position,
    ) -> Result<Option<ResultsJudgement>, Error> {
        let options = self.options;
        let Some(judge) = options.judge.as_ref() else { return Ok(None) };
        let timeline = |journal: &Path, up_to: Option<RecordedMoment>| -> Result<_, Error> {
            let reader = JournalReader::open(journal)?;
            Ok(thread_timeline(&reader, &tried.thread, up_to)?)
        };
        let before = timeline(&tried.journal, Some(RecordedMoment::Position(last)))?;
        let after = timeline(&self.data, None)?;
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(None);
        };
        if has_equal_finals(&before, &after, &self.schemas) {
            return Ok(None);
        }
        let pairs = match pair_results(&before, &after, &self.schemas) {
            Ok(pairs) => pairs,
            Err(reason) => return Ok(Some(ResultsJudgement::none(reason.to_string()))),
        };

        // A thread of its own for each judgement, so that none is influenced by the one before it.
        let name = format!("judgement about {}", tried.thread);
        let thread = ThreadId::root_of(&Digest::of(name.as_bytes()));
        if let Err(reason) = self.open(&thread, (source, judge.client.clone()), Vec::new()).await? {
            return Ok(Some(ResultsJudgement::none(reason)));
        }
        self.judging = Some(thread.clone());
        let judgement = self.decide(judge, &thread, &judge_request(&pairs)).await?;
        self.judging = None;
        let spent = self.count(&thread)?;
        Ok(Some(ResultsJudgement { thread: Some(thread), spent, ..judgement }))
    }

    /// Sends a request to the judge in the judge's own thread, `thread`, and reads the verdict.
    async fn decide(
        &self,
        judge: &TrialJudge,
        thread: &ThreadId,
        request: &str,
    ) -> Result<ResultsJudgement, Error> {
        let target = Target::Thread { id: thread.to_string() };
        let submitted = self.handle.submit(&judge.client, target, None, request.as_bytes()).await;
        let (receipt, mut completions) = submitted?;
        match receipt {
            Receipt::Accepted { .. } => {}
            Receipt::Refused { refusal, .. } => {
                return Ok(ResultsJudgement::none(format!(
                    "the judge was not asked: {}",
                    refusal.message
                )));
            }
            Receipt::NoThread { answer } => return Ok(ResultsJudgement::none(answer)),
        }

        let completed = completions.next().await.transpose()?;
        self.rest(thread).await?;
        let result = completed.as_ref().and_then(|completion| completion.messages.last());
        Ok(match result {
            Some(message) => ResultsJudgement::read(message.payload.as_str()),
            None => ResultsJudgement::none("the judge gave no result"),
        })
    }

    /// Adds the spending of a thread to the spending of the trial. Returns the spending of the
    /// thread.
    fn count(&mut self, thread: &ThreadId) -> Result<Spending, Error> {
        let reader = JournalReader::open(&self.data)?;
        let timeline = thread_timeline(&reader, thread, None)?;
        let spent = timeline.map(|timeline| timeline.spent.nominal()).unwrap_or_default();
        self.spent = self.spent.plus(spent);
        Ok(spent)
    }

    /// Waits until no call of the thread's tree is open.
    async fn rest(&self, thread: &ThreadId) -> Result<(), Error> {
        let mut recorded = self.handle.recorded();
        loop {
            recorded.borrow_and_update();
            if self.handle.is_at_rest(thread.clone()).await? {
                return Ok(());
            }
            recorded.changed().await.map_err(|_| Error::Stopped)?;
        }
    }
}

//! Runs test cases of workflows. The real engine runs on a journal of its own. The test case gives
//! the answers in place of models, programs and people.
//!
//! The run of a case is deterministic: the runner gives one answer at a time, and only when every
//! delivery in flight waits for an answer of the case. If only the passage of time can continue the
//! run, the runner advances the clock at once.

mod answer_payloads;
mod call_paths;
mod claims;
mod host;
mod record;
mod runner;
mod script;
mod written;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::own_journal::{TemporaryDirectory, in_own_journal};
use super::{Error, NativeHostBuilder, Organism};
use crate::bus::Host;
use crate::config::{Config, ConfigProblem, ConfigProblems, ProblemCode, WorkflowCase};
use crate::contract::Role;
use crate::envelope::Refusal;
use crate::ids::{ListenerName, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::xml::element::Element;
use host::{CaseHost, PendingDeliveries};
use record::CaseRecord;
use runner::CaseRunner;

pub use written::{CaseWriteError, write_case};

/// Runs a test case, and returns a problem for each difference between the run and the expectations
/// of the case. Returns `None` if `interrupted` completes before the run ends.
///
/// Uses a temporary journal, which is removed afterwards. Calls no models, and starts only those
/// listener programs that the case names.
pub async fn run_case(
    config: &Config,
    case: &WorkflowCase,
    interrupted: impl Future<Output = ()>,
) -> Result<Option<ConfigProblems>, Error> {
    let home = TemporaryDirectory::create("case")?;
    let pending = PendingDeliveries::default();
    let (config, natives) = isolated(config, case, home.path(), &pending);
    let data = config.data.clone();
    let organism = Organism::start_for_case(config, natives).await?;
    let config = Arc::clone(&organism.config);

    let mut runner = CaseRunner::new(case, &config, organism.handle(), pending.clone());
    let ended = tokio::select! {
        ended = runner.carry_out() => Some(ended),
        () = interrupted => None,
    };
    let mut problems = runner.into_problems();
    pending.close();
    // A failed case may leave calls open, which must not continue.
    organism.handle().cancel(case_thread(), "the case has ended".to_owned(), None).await.ok();
    organism.stop("the case has ended").await?;

    let Some(ended) = ended else { return Ok(None) };
    let completion = ended?;
    let records = JournalReader::open(&data)?.tree(&case_thread(), None)?;
    let record = CaseRecord::of(records.iter().map(|sealed| &sealed.record), &config.contracts);
    claims::check_programs(case, &record, &mut problems);
    if let Some(completion) = completion {
        claims::check(case, &config, &completion, &record, &mut problems);
    }
    Ok(Some(problems))
}

/// Returns the id of the thread in which a test case runs. All test cases use the same id.
fn case_thread() -> ThreadId {
    ThreadId::parse("sess-testcase").expect("it is a valid id of a root thread")
}

/// Makes the config for the run of a test case, with a journal in `home`. Also returns the builders
/// of [`CaseHost`]s. A `CaseHost` replaces each agent, and each listener whose program the case
/// does not run.
fn isolated(
    config: &Config,
    case: &WorkflowCase,
    home: &Path,
    pending: &PendingDeliveries,
) -> (Config, HashMap<ListenerName, NativeHostBuilder>) {
    let runs =
        |name: &ListenerName| case.listeners.iter().any(|listener| listener.text == name.as_str());

    let mut isolated = in_own_journal(config, home);
    isolated.agents = Vec::new();
    isolated.models = Vec::new();
    isolated.keys_missing = Arc::default();
    isolated.processes.retain(|process| runs(&process.name));

    let is_scripted = |role: Role| matches!(role, Role::Agent | Role::Listener);
    let scripted = config
        .contracts
        .iter()
        .filter(|contract| is_scripted(contract.role) && !runs(&contract.name));
    let natives = scripted.map(|contract| {
        let name = contract.name.clone();
        let pending = pending.clone();
        let builder: NativeHostBuilder =
            Box::new(move |sink, _| Arc::new(CaseHost::new(name, sink, pending)) as Arc<dyn Host>);
        (contract.name.clone(), builder)
    });
    (isolated, natives.collect())
}

/// Returns the texts of an element's children, joined by `; `. Without children, returns the
/// element's own text.
fn texts_of(element: &Element) -> String {
    let texts: Vec<_> = element.children().map(|child| child.text().trim().to_owned()).collect();
    if texts.is_empty() { element.text().trim().to_owned() } else { texts.join("; ") }
}

/// Makes the problem [`ProblemCode::CaseFailed`] at a place of the file with the test case.
fn failed(
    place: &crate::config::SourceRange,
    message: impl Into<String>,
    help: impl Into<String>,
) -> ConfigProblem {
    ConfigProblem::new(ProblemCode::CaseFailed, place, message).help(help)
}

/// Makes the problem [`ProblemCode::AnswerRefused`] for an answer of the call at `path`.
fn refused(path: &str, place: &crate::config::SourceRange, refusal: &Refusal) -> ConfigProblem {
    let message = format!("the answer at `{path}` is refused: {refusal}");
    let expected = refusal.expected.as_ref().map(|expected| format!("expected: {expected}"));
    ConfigProblem::new(ProblemCode::AnswerRefused, place, message).maybe(expected)
}

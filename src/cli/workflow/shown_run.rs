//! Submits a run, and shows its goals, their activities and its output.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::bus::live::LiveEvent;
use crate::config::Config;
use crate::ids::{ListenerName, ThreadId};
use crate::limits;
use crate::locks::locked;
use crate::organism::{JournalRuns, OrganismClient};
use crate::service::{Error as ServiceError, LiveRequest, SubmitRequest, SubmitUpdate};
use crate::workflow::{
    GoalGraph, RunTree, UndoRules, UndoSource, WorkflowDefinition, called_once, output_name,
};
use crate::xml::element::Element;

use super::super::command_organism::CommandOrganism;
use super::super::decision;
use super::super::exit::CommandExit;
use super::super::output::{is_dumb, put_json_line, put_recorded_line};
use super::progress::{ProgressForm, RunProgress};
use super::recorded::RecordedRun;

/// Submits a request to a workflow, and shows the run that the request opens. If the request
/// retries an earlier run, `retried` is the earlier run.
pub async fn show_run(
    config: Config,
    definition: &WorkflowDefinition,
    retried: Option<RecordedRun>,
    submission: SubmitRequest,
    output: RunOutputForm,
) -> anyhow::Result<ExitCode> {
    let form = output.progress_form();
    let once = called_once(&config.contracts);
    let data = config.data.clone();
    let (graph, _) = GoalGraph::new(definition);
    let rules = UndoRules::new(&config.contracts, &config.schemas);
    let archive = JournalRuns::new(retried.as_ref().map_or(&*data, RecordedRun::data).to_owned());
    let mut tree = RunTree::new(definition, &graph, &once);
    if let Some(RecordedRun { messages, last, .. }) = retried {
        let undo = UndoSource { rules: &rules, archive: &archive, up_to: last };
        tree = tree.after(messages, undo);
    }
    let workflow = &definition.name.value;
    let progress = RunProgress::new(&data, form, (workflow.clone(), tree));
    // Locked only while records are read, never across an await.
    let progress = Mutex::new(progress);
    let shown = || locked(&progress);

    let organism = CommandOrganism::open(config).await?;
    let (accepted, run) = watch::channel(None);
    let own = as_its_client(&submission);
    let mut exit = CommandExit::Done;

    let submit = organism.submit(submission, |update| {
        shown().clear();
        if let SubmitUpdate::Accepted { thread, calls, .. } = &update {
            if !output.json && !output.quiet {
                note!("run {thread}");
            }
            if let Some(call) = calls.first() {
                shown().accepted(thread.clone(), *call);
            }
            accepted.send_replace(Some(thread.clone()));
        }

        if let SubmitUpdate::Result { .. } = update {
            shown().show_new();
            shown().finish();
        }

        // The tree shows these waits itself.
        if matches!(update, SubmitUpdate::Waits(_)) && shown().has_tree() {
            return;
        }

        let of_update = output.show(workflow, &update);
        if exit == CommandExit::Done {
            exit = of_update;
        }
    });

    let watching = async {
        if form != ProgressForm::Nothing {
            tokio::join!(
                follow_records(&organism, &shown),
                follow_live(&organism, own, run, form, &shown),
                redraw(form, &shown)
            );
        }
        std::future::pending::<()>().await;
    };

    let sent = organism.until_stopped(while_watching(submit, watching)).await;
    if sent.is_err() {
        // The tree stays on the screen in its last state, above the notes on the stop.
        shown().show_new();
        shown().finish();
    }

    let opened = accepted.borrow().clone();
    organism.close_after(sent, opened.as_ref()).await?;
    Ok(exit.into())
}

/// Carries out `submit` and returns its result. Meanwhile, also carries out `watching`, which must
/// not end before `submit`.
async fn while_watching(
    submit: impl Future<Output = Result<(), ServiceError>>,
    watching: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    tokio::select! {
        sent = submit => sent,
        () = watching => Ok(()),
    }
}

/// Makes a subscription to the live channel in the name of the client that submits the run.
fn as_its_client(submission: &SubmitRequest) -> LiveRequest {
    let client = Some(submission.client.clone());
    let secret = submission.secret.clone();
    LiveRequest { client, secret, ..LiveRequest::default() }
}

/// Whether standard error is a terminal that can move its cursor.
fn can_draw() -> bool {
    std::io::stderr().is_terminal() && !is_dumb()
}

async fn follow_records<'p>(
    organism: &OrganismClient,
    shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>,
) {
    let followed = organism.follow(|_, _| {
        shown().show_new();
        ControlFlow::Continue(())
    });
    // The submission reports why the organism ended.
    followed.await.ok();
}

/// Shows the present activity of a run's models, as the live channel reports it. Subscribes to the
/// channel in the name of the client that opened the run. If the organism does not permit this
/// client to watch, the command shows only recorded states.
async fn follow_live<'p>(
    organism: &OrganismClient,
    own: LiveRequest,
    mut run: watch::Receiver<Option<ThreadId>>,
    form: ProgressForm,
    shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>,
) {
    let thread = run.wait_for(Option::is_some).await.ok().and_then(|thread| thread.clone());
    let Some(thread) = thread else { return };
    let request = LiveRequest { thread: Some(thread), ..own };

    loop {
        let mut has_responded = false;
        let mut has_events = false;
        let followed = organism.follow_live(request.clone(), None, |event| {
            has_responded = true;
            // With several partitions, `Opened` comes before a pump has accepted the subscription.
            has_events |= !matches!(event, LiveEvent::Opened { .. });
            shown().take_live(&event);
            ControlFlow::Continue(())
        });
        let ended = followed.await;
        if has_responded {
            // Events until the next subscription are missing.
            shown().take_live(&LiveEvent::Lost { events: 0 });
        }
        match ended {
            // The socket closes a connection whose reader is too slow; subscribe again.
            Ok(()) if has_responded => tokio::time::sleep(limits::BUSY_RETRY).await,
            Ok(()) => return,
            Err(error) => {
                if !has_events && is_refusal_noted(form, &error) {
                    shown().clear();
                    note!("what models do now is not shown: {error}");
                } else {
                    tracing::info!("what models do now is not shown: {error}");
                }
                return;
            }
        }
    }
}

/// Whether to print a note about `error`, which ended the live events of a run. True if the output
/// is for people and the organism refused to send the events. False if the organism has ended or
/// cannot be reached, because the error of the submission already reports this.
fn is_refusal_noted(form: ProgressForm, error: &ServiceError) -> bool {
    let is_for_people = matches!(form, ProgressForm::Tree | ProgressForm::Lines);
    is_for_people && matches!(error, ServiceError::Failed { .. })
}

async fn redraw<'p>(form: ProgressForm, shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>) {
    if form != ProgressForm::Tree {
        return;
    }

    let mut tick = tokio::time::interval(limits::RUN_VIEW_INTERVAL);
    loop {
        tick.tick().await;
        shown().draw();
    }
}

/// The form in which the command prints the updates of a submission to a workflow.
#[derive(Debug, Clone, Copy)]
pub struct RunOutputForm {
    pub quiet: bool,
    pub json: bool,
    pub no_wait: bool,
}

impl RunOutputForm {
    /// Returns the form in which the progress of the run is shown.
    fn progress_form(self) -> ProgressForm {
        match (self.json, self.quiet || self.no_wait) {
            (true, false) => ProgressForm::Json,
            (_, true) => ProgressForm::Nothing,
            (false, false) if can_draw() => ProgressForm::Tree,
            (false, false) => ProgressForm::Lines,
        }
    }

    /// Prints an update, and returns the exit code for this update.
    fn show(self, workflow: &ListenerName, update: &SubmitUpdate) -> CommandExit {
        if self.json {
            put_json_line(&serde_json::json!(update).to_string());
        }

        match update {
            SubmitUpdate::Accepted { held: true, .. } if self.no_wait => {
                CommandExit::ApprovalPending
            }
            SubmitUpdate::Accepted { .. } => CommandExit::Done,
            SubmitUpdate::Waits(wait) => {
                if !self.json && !self.quiet {
                    note!("{wait}");
                }
                CommandExit::Done
            }
            SubmitUpdate::Refused { refusal, .. } => {
                if !self.json {
                    note!("refused: {refusal}");
                }
                decision::exit_of_refusal(refusal)
            }
            SubmitUpdate::NoThread { payload } => {
                if !self.json {
                    put_recorded_line(payload);
                }
                CommandExit::InvalidData
            }
            SubmitUpdate::Result { replies, .. } => {
                let exit = if update.is_failure() {
                    CommandExit::WorkflowFailed
                } else {
                    CommandExit::Done
                };
                for reply in replies {
                    if self.json {
                        continue;
                    }
                    match readable(reply.name == output_name(workflow), reply.text()) {
                        Some(text) => put_recorded_line(&text),
                        None => put_recorded_line(reply.text()),
                    }
                }
                exit
            }
        }
    }
}

/// Returns the text of an output that has no child elements; `None` for any other payload.
fn readable(is_output: bool, payload: &str) -> Option<String> {
    let element = Element::read_document(payload).filter(|_| is_output)?;
    element.children().next().is_none().then(|| element.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_live_states_is_noted_for_people_alone() {
        let refused = ServiceError::failed("unknown-caller");
        for form in [ProgressForm::Tree, ProgressForm::Lines] {
            assert!(is_refusal_noted(form, &refused), "{form:?}");
            assert!(!is_refusal_noted(form, &ServiceError::Stopped), "{form:?}");
        }
        for form in [ProgressForm::Json, ProgressForm::Nothing] {
            assert!(!is_refusal_noted(form, &refused), "{form:?}");
        }
    }
}

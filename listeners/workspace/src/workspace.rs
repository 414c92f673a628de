//! The workspace. It takes a payload, makes the proposed changes, runs the proposed commands, and
//! returns the answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use organism::failpoint::failpoint;
use organism::ids::Digest;
use organism::listener::Preview;

use crate::action::{CommandStep, ProposalSet, WorkspaceRequest};
use crate::change::FileChange;
use crate::command::{CommandOutcome, CommandRunner, FinishedCommand};
use crate::diff;
use crate::environment;
use crate::failure::{ActionFailure, FailureCode};
use crate::limits;
use crate::manifest::{ContentHash, ContentSide, SetManifest};
use crate::package;
use crate::place::WorkspacePath;
use crate::plan;
use crate::preview;
use crate::reply;
use crate::root::WorkspaceRoot;
use crate::set::{ChangeSets, SetDescription};
use crate::state::WorkspaceState;

/// Name of the failpoint before and after an installation takes its proposal.
const INSTALL: &str = "workspace-install";

#[derive(Debug, Clone)]
pub struct Options {
    /// State directory, outside the workspace.
    pub state: PathBuf,
    /// Path of this listener's own program, which also runs as the supervisor.
    pub supervisor: PathBuf,
    /// Shell that runs commands.
    pub shell: PathBuf,
    /// Time limit of one command.
    pub time: Duration,
    /// Names of variables that commands get from the listener's environment, in addition to the
    /// usual ones.
    pub passed: Vec<String>,
    /// Whether packages are installed as soon as they are proposed. Set only if every call of this
    /// listener needs approval.
    pub installs: bool,
    /// Whether files that other programs execute automatically may be written like other files. Set
    /// only if every call of this listener needs approval.
    pub approved: bool,
}

/// A payload that the workspace must answer.
pub struct WorkspaceCall<'a> {
    /// Id of the message with the payload. If the message is repeated, the workspace returns the
    /// first answer again and repeats no work.
    pub message: &'a str,
    pub payload: &'a str,
    /// Whether the call was cancelled.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Digest of the preview on the basis of which a person has approved the call; `None` if there
    /// is no approved preview. The call is carried out only if its present preview has this digest.
    pub approved_preview: Option<Digest>,
}

#[derive(Debug)]
pub struct Workspace {
    root: WorkspaceRoot,
    state: WorkspaceState,
    commands: CommandRunner,
    shell: PathBuf,
    installs: bool,
    approved: bool,
}

impl Workspace {
    /// Opens a workspace. Undoes the set of changes that a dead process has left unfinished, if
    /// there is one.
    pub fn open(root: &Path, options: Options) -> io::Result<Self> {
        let root = WorkspaceRoot::open(root)?;
        std::fs::create_dir_all(&options.state)?;
        let kept = options.state.canonicalize()?;
        if kept.starts_with(root.path()) {
            return Err(io::Error::other(
                "the state directory is inside the workspace, where agents could write to it; name another with --state",
            ));
        }

        let state = WorkspaceState::open(&kept, root.path())?;
        ChangeSets::open(&root, &state).map_err(io::Error::other)?;
        let environment =
            environment::of(&options.passed, &options.shell, |name| std::env::var_os(name));
        let commands =
            CommandRunner { supervisor: options.supervisor, environment, time: options.time };
        let Options { shell, installs, approved, .. } = options;
        Ok(Self { root, state, commands, shell, installs, approved })
    }

    /// Carries out a call and returns the answer, which is one or several XML elements. Fails if
    /// the workspace does not accept the payload, or if the state cannot be stored.
    pub fn answer(&self, call: &WorkspaceCall<'_>) -> Result<String, String> {
        let request = WorkspaceRequest::read(call.payload)
            .ok_or_else(|| "this payload is none that a workspace takes".to_owned())?;
        if let Some(answer) = self.state.answer(call.message) {
            return Ok(answer);
        }

        let answered = match &request {
            WorkspaceRequest::Set(set) => self.perform(call, set),
            WorkspaceRequest::Show { from } => self.show(*from),
            WorkspaceRequest::Undo => self.undo(call),
            WorkspaceRequest::Install { proposal } => self.install(call, proposal),
        };

        Ok(answered.unwrap_or_else(|failure| reply::failed(&failure)))
    }

    /// Returns the effects that a call with this payload would have now. Writes no file.
    pub fn preview(&self, payload: &str) -> Result<Preview, String> {
        let request = WorkspaceRequest::read(payload)
            .ok_or_else(|| "this payload is none that a workspace takes".to_owned())?;
        let text = match &request {
            WorkspaceRequest::Set(set) => self.preview_of_set(set, &self.planned(set)),
            WorkspaceRequest::Show { .. } => preview::READS_ONLY.to_owned(),
            WorkspaceRequest::Undo => ChangeSets::read(&self.root, &self.state)
                .and_then(|sets| self.planned_undo(&sets))
                .map_or_else(
                    |failure| preview::of_failure(&failure),
                    |(_, changes)| preview::of_changes(&changes),
                ),
            WorkspaceRequest::Install { proposal } => self.preview_of_install(proposal),
        };
        Ok(Preview::new(&text))
    }

    fn perform(
        &self,
        call: &WorkspaceCall<'_>,
        set: &ProposalSet,
    ) -> Result<String, ActionFailure> {
        check_number_of_steps(set)?;

        let mut answer = match (set.edits.is_empty(), set.steps.is_empty()) {
            (true, true) => return self.summary(set.summary.as_deref()),
            (true, false) => {
                self.check_not_begun(call, set)?;
                check_preview(call, || self.preview_of_set(set, &Ok(Vec::new())))?;
                String::new()
            }
            (false, _) => self.change(call, set)?,
        };

        if set.steps.is_empty() {
            return Ok(answer);
        }

        for (index, step) in set.steps.iter().enumerate() {
            let (text, goes_on) = match self.step(call, index, step) {
                Ok(done) => done,
                Err(failure) => (reply::failed(&failure), false),
            };
            answer.push_str(&text);
            if !goes_on {
                break;
            }
        }

        self.remember(call, &answer);
        Ok(answer)
    }

    // Changes of files.

    fn planned(&self, set: &ProposalSet) -> Result<Vec<FileChange>, ActionFailure> {
        plan::changes(&self.root, &set.edits, self.approved || set.is_held)
    }

    fn change(&self, call: &WorkspaceCall<'_>, set: &ProposalSet) -> Result<String, ActionFailure> {
        let summary = set.summary.as_deref();
        let sets = ChangeSets::open(&self.root, &self.state)?;
        if let Some(made) = sets.made_for(call.message)? {
            return Ok(made.answer);
        }
        self.check_not_begun(call, set)?;

        let planned = self.planned(set);
        check_preview(call, || self.preview_of_set(set, &planned))?;
        let changes = planned?;
        let diff = diff::of(&changes);
        if changes.is_empty() {
            return Ok(reply::applied(None, summary, None, &diff));
        }

        let about = SetDescription {
            message: call.message.to_owned(),
            summary: summary.map(str::to_owned),
            undoes: None,
        };

        sets.make(&changes, about, |set| reply::applied(Some(set), summary, None, &diff))
    }

    fn undo(&self, call: &WorkspaceCall<'_>) -> Result<String, ActionFailure> {
        let sets = ChangeSets::open(&self.root, &self.state)?;
        if let Some(made) = sets.made_for(call.message)? {
            return Ok(made.answer);
        }

        let planned = self.planned_undo(&sets);
        check_preview(call, || match &planned {
            Ok((_, changes)) => preview::of_changes(changes),
            Err(failure) => preview::of_failure(failure),
        })?;
        let (last, changes) = planned?;
        let diff = diff::of(&changes);
        let summary = format!("undo of set {}", last.set);
        let about = SetDescription {
            message: call.message.to_owned(),
            summary: Some(summary.clone()),
            undoes: Some(last.set),
        };

        sets.make(&changes, about, |set| {
            reply::applied(Some(set), Some(&summary), Some(last.set), &diff)
        })
    }

    /// Returns the last set of changes that can be undone, with the changes that undo it. A set
    /// cannot be undone if it was already undone, or if it is itself an undo. Fails if there is no
    /// such set, or if a file of the set was changed after the set was made. If not every call is
    /// approved, also fails if other programs execute a file of the set automatically.
    fn planned_undo(
        &self,
        sets: &ChangeSets<'_>,
    ) -> Result<(SetManifest, Vec<FileChange>), ActionFailure> {
        let all = sets.all()?;
        let undone: Vec<u64> = all.iter().filter_map(|set| set.undoes).collect();
        let is_standing = |set: &SetManifest| set.undoes.is_none() && !undone.contains(&set.set);
        let Some(last) = all.into_iter().rev().find(is_standing) else {
            let message = "there is no set of changes that could be taken back";
            return Err(ActionFailure::new(FailureCode::NothingToUndo, message));
        };

        let changes = self.inverse(sets, &last)?;
        if !self.approved {
            changes.iter().try_for_each(|change| plan::hold(&change.place))?;
        }
        Ok((last, changes))
    }

    /// Returns the changes that undo a set of changes. Fails if a file of the set was changed after
    /// the set was made.
    fn inverse(
        &self,
        sets: &ChangeSets<'_>,
        set: &SetManifest,
    ) -> Result<Vec<FileChange>, ActionFailure> {
        let mut changes = Vec::new();
        let mut changed = Vec::new();
        for (index, entry) in set.files.iter().enumerate() {
            let place = WorkspacePath::file(&entry.path, self.root.path())?;
            let now = self.root.read(&place).ok().flatten();
            if now.as_ref().map(|found| ContentHash::of(&found.bytes)) != entry.after {
                changed.push(format!("`{place}`"));
                continue;
            }
            let after = sets.kept(set, index, ContentSide::Before)?;
            // The mode may have been changed after the set was made, and must stay then.
            let owner = now.as_ref().map(|found| found.owner).or(entry.owner);
            changes.push(FileChange { place, before: now.map(|found| found.bytes), after, owner });
        }

        if changed.is_empty() {
            return Ok(changes);
        }

        let message = format!(
            "set {} cannot be taken back: {} changed since; nothing was written",
            set.set,
            changed.join(", ")
        );
        Err(ActionFailure::new(FailureCode::ChangedMeanwhile, message))
    }

    fn show(&self, from: Option<u64>) -> Result<String, ActionFailure> {
        let sets = ChangeSets::open(&self.root, &self.state)?;
        let mut all = sets.all()?;
        if let Some(from) = from {
            if !all.iter().any(|set| set.set == from) {
                let message = format!("there is no set {from} any more, or not yet");
                return Err(ActionFailure::new(FailureCode::UnknownSet, message));
            }
            all.retain(|set| set.set >= from);
        }

        let changes = together(&sets, &all)?;
        Ok(reply::changes(None, &all, &diff::of(&changes)))
    }

    /// Answers a set that has neither edits nor commands. The answer summarizes all changes so far.
    fn summary(&self, summary: Option<&str>) -> Result<String, ActionFailure> {
        let sets = ChangeSets::open(&self.root, &self.state)?;
        let changes = together(&sets, &sets.all()?)?;
        Ok(reply::applied(None, summary, None, &diff::of(&changes)))
    }

    // Commands.

    /// Runs one step of a call. Returns the answer of this step, and whether the next step may run.
    fn step(
        &self,
        call: &WorkspaceCall<'_>,
        index: usize,
        step: &CommandStep,
    ) -> Result<(String, bool), ActionFailure> {
        match step {
            CommandStep::Command { id, directory, text } => {
                let place = self.command_directory(directory.as_deref(), text)?;
                let shell = self.shell.to_string_lossy().into_owned();
                let command = [shell, "-c".to_owned(), text.clone()];

                self.begin(call, index)?;
                let done = self.run(call, &command, &place)?;
                Ok((reply::ran(id.as_deref(), None, &done), succeeded(&done)))
            }
            CommandStep::Packages { language, list } => {
                let install = package::install(language, list)?;
                let seed =
                    format!("{}\n{index}\n{}", call.message, package::shown(&install.command));
                let proposal: String =
                    Digest::of(seed.as_bytes()).to_string().chars().take(12).collect();
                let proposed = reply::proposed(&proposal, language, &install);

                if !self.installs {
                    self.state.propose(&proposal, &install.command).map_err(remembering)?;
                    return Ok((proposed, true));
                }

                self.begin(call, index)?;
                let done = self.run_install(call, &install.command)?;
                let shown = package::shown(&install.command);
                let ran = reply::ran(Some(&proposal), Some(&shown), &done);
                Ok((format!("{proposed}{ran}"), succeeded(&done)))
            }
        }
    }

    fn install(&self, call: &WorkspaceCall<'_>, proposal: &str) -> Result<String, ActionFailure> {
        let proposed = self.state.proposal(proposal).map_err(remembering)?;
        let has_begun = self.state.has_begun(call.message, 0);
        if has_begun && proposed.is_none() {
            return Err(interrupted());
        }

        check_preview(call, || self.preview_of_install(proposal))?;
        let command = proposed.ok_or_else(unknown_proposal)?;

        // The record of the start comes first, then the proposal is taken, then its command runs.
        // So a repetition runs a proposal that is still there, and is `interrupted` if it is not.
        if !has_begun {
            self.begin(call, 0)?;
        }
        failpoint(INSTALL);
        if !self.state.take_proposal(proposal).map_err(remembering)? {
            return Err(unknown_proposal());
        }
        failpoint(INSTALL);

        let done = self.run_install(call, &command)?;
        let answer = reply::ran(Some(proposal), Some(&package::shown(&command)), &done);
        self.remember(call, &answer);
        Ok(answer)
    }

    /// Returns the preview of a set. `planned` contains the changes that its edits would make now.
    fn preview_of_set(
        &self,
        set: &ProposalSet,
        planned: &Result<Vec<FileChange>, ActionFailure>,
    ) -> String {
        let planned = planned.as_ref().map_err(ActionFailure::clone);
        match check_number_of_steps(set).and(planned) {
            Ok(changes) => {
                preview::of_set(set, changes, |index, step| self.check_step(index, step, changes))
            }
            Err(failure) => preview::of_failure(&failure),
        }
    }

    /// Fails if the step at `index` of a set can never succeed. Returns the failure of its
    /// directory, which other programs may change at any time. `changes` are the changes that the
    /// set makes before.
    fn check_step(
        &self,
        index: usize,
        step: &CommandStep,
        changes: &[FileChange],
    ) -> Result<Option<ActionFailure>, ActionFailure> {
        let CommandStep::Command { directory, text, .. } = step else { return Ok(None) };
        let place = self.command_directory(directory.as_deref(), text)?;

        // An earlier command could make the directory, and so could any new file: a file system
        // that folds names takes the directory of `Build/x` for `build`.
        if index > 0 || changes.iter().any(|change| change.before.is_none()) {
            return Ok(None);
        }

        Ok(self.root.directory(&place).err())
    }

    /// Returns the directory in which a command runs. The directory may be missing.
    fn command_directory(
        &self,
        directory: Option<&str>,
        text: &str,
    ) -> Result<WorkspacePath, ActionFailure> {
        let place = WorkspacePath::parse(directory.unwrap_or("."), self.root.path())?;

        if text.len() > limits::COMMAND_BYTES_MAX {
            let most = limits::COMMAND_BYTES_MAX;
            let message = format!("a command has at most {most} bytes; put it into a file");
            return Err(ActionFailure::new(FailureCode::TooLarge, message));
        }

        Ok(place)
    }

    fn preview_of_install(&self, proposal: &str) -> String {
        let proposed = self.state.proposal(proposal).map_err(remembering);
        match proposed.and_then(|command| command.ok_or_else(unknown_proposal)) {
            Ok(command) => preview::of_command(&command),
            Err(failure) => preview::of_failure(&failure),
        }
    }

    /// Stores the answer to a message whose set contains commands. If the disk is full, the answer
    /// is not stored, and a repetition of the message gets the failure `interrupted`.
    fn remember(&self, call: &WorkspaceCall<'_>, answer: &str) {
        let _ = self.state.remember(call.message, answer);
    }

    /// Fails if a command of an earlier attempt has begun. It may have changed files and
    /// directories, so nothing can be compared or planned again.
    fn check_not_begun(
        &self,
        call: &WorkspaceCall<'_>,
        set: &ProposalSet,
    ) -> Result<(), ActionFailure> {
        if (0..set.steps.len()).any(|index| self.state.has_begun(call.message, index)) {
            return Err(interrupted());
        }
        Ok(())
    }

    /// Records that a command of this message begins. Fails if a record shows that the command
    /// already began in an earlier attempt, because a second run could repeat the effects of the
    /// command.
    fn begin(&self, call: &WorkspaceCall<'_>, index: usize) -> Result<(), ActionFailure> {
        if self.state.has_begun(call.message, index) {
            return Err(interrupted());
        }
        self.state.begin_command(call.message, index).map_err(remembering)
    }

    fn run(
        &self,
        call: &WorkspaceCall<'_>,
        command: &[String],
        place: &WorkspacePath,
    ) -> Result<FinishedCommand, ActionFailure> {
        let directory = self.root.directory(place)?;
        let path = self.root.path().join(place.names().join("/"));
        let run = self.commands.run(command, &directory, &path, call.cancelled);
        let run = run.map_err(|error| ActionFailure::io(&error, "cannot run the command"))?;
        run.ok_or_else(supervisor_killed)
    }

    /// Runs a package manager at the top of the workspace.
    fn run_install(
        &self,
        call: &WorkspaceCall<'_>,
        command: &[String],
    ) -> Result<FinishedCommand, ActionFailure> {
        let top = WorkspacePath::parse(".", self.root.path())?;
        let starter = self.state.pip_starter();
        let starter = starter
            .map_err(|error| ActionFailure::io(&error, "cannot write the starter of pip"))?;
        self.run(call, &package::arguments(command, &starter), &top)
    }
}

/// Combines sets of changes into one change for each file. The combined change starts with the
/// content of the file before the first set, and ends with its content after the last set.
fn together(sets: &ChangeSets<'_>, all: &[SetManifest]) -> Result<Vec<FileChange>, ActionFailure> {
    let mut spans: BTreeMap<&str, FileSpan<'_>> = BTreeMap::new();
    for set in all {
        for (index, entry) in set.files.iter().enumerate() {
            let here = (set, index);
            let span = spans.entry(&entry.path).or_insert(FileSpan { first: here, last: here });
            span.last = here;
        }
    }

    let mut changes = Vec::new();

    for (path, FileSpan { first, last }) in spans {
        let before = sets.kept(first.0, first.1, ContentSide::Before)?;
        let after = sets.kept(last.0, last.1, ContentSide::After)?;
        let place = WorkspacePath::recorded(path, Path::new("/"))?;
        changes.push(FileChange { place, before, after, owner: None });
    }

    changes.retain(FileChange::is_one);
    Ok(changes)
}

/// The first and the last set of changes that changed a certain file. Each of the two sets comes
/// with the index of the file in that set.
struct FileSpan<'a> {
    first: (&'a SetManifest, usize),
    last: (&'a SetManifest, usize),
}

/// Fails if a person approved the call after seeing a preview other than the present one. `present`
/// returns the text of the present preview, and is called only if there is an approved preview.
fn check_preview(
    call: &WorkspaceCall<'_>,
    present: impl FnOnce() -> String,
) -> Result<(), ActionFailure> {
    let Some(approved) = call.approved_preview else { return Ok(()) };
    let text = present();
    if Preview::new(&text).digest() == approved {
        return Ok(());
    }

    Err(ActionFailure::new(FailureCode::StalePreview, text))
}

fn unknown_proposal() -> ActionFailure {
    let message = "there is no such proposal, or it has been run; propose the packages and take the name from install-proposed";
    ActionFailure::new(FailureCode::UnknownProposal, message)
}

fn check_number_of_steps(set: &ProposalSet) -> Result<(), ActionFailure> {
    if set.steps.len() <= limits::SET_COMMANDS_MAX {
        return Ok(());
    }
    let most = limits::SET_COMMANDS_MAX;
    let message = format!("a set runs at most {most} commands and installations");
    Err(ActionFailure::new(FailureCode::TooMany, message))
}

fn succeeded(done: &FinishedCommand) -> bool {
    done.outcome == CommandOutcome::Exited(0)
}

fn interrupted() -> ActionFailure {
    let message = "the command was running when the workspace's process died; whether it did its work is not known, so it is not run again: look, and decide";
    ActionFailure::new(FailureCode::Interrupted, message)
}

fn supervisor_killed() -> ActionFailure {
    let message = "a signal killed the supervisor of the command, so whether the command did its work is not known: its processes were ended; look, and decide";
    ActionFailure::new(FailureCode::Interrupted, message)
}

fn remembering(error: io::Error) -> ActionFailure {
    ActionFailure::io(&error, "cannot write to the state directory")
}

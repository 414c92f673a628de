//! A workspace: takes a payload and returns the answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use organism::ids::Digest;

use crate::action::{Proposals, Request, Step};
use crate::change::Change;
use crate::command::{Commands, Done, Outcome};
use crate::diff;
use crate::environment;
use crate::failure::{Code, Failure};
use crate::limits;
use crate::manifest::{Content, Manifest, Side};
use crate::package;
use crate::place::Place;
use crate::plan;
use crate::reply;
use crate::root::Root;
use crate::set::{About, Sets};
use crate::state::State;

#[derive(Debug, Clone)]
pub struct Options {
    /// State directory, outside the workspace.
    pub state: PathBuf,
    /// Path of this listener's own program.
    pub supervisor: PathBuf,
    /// Shell that runs commands.
    pub shell: PathBuf,
    /// Time limit of one command.
    pub time: Duration,
    /// Further variables of the listener's environment that commands get.
    pub passed: Vec<String>,
    /// Whether packages are installed as soon as they are proposed. For listeners whose calls all
    /// need approval.
    pub installs: bool,
    /// Whether files that other programs execute on their own may be written like other files. For
    /// listeners whose calls all need approval.
    pub approved: bool,
}

/// One payload to be answered.
pub struct Call<'a> {
    /// The message's id: what was done for it once is not done again.
    pub message: &'a str,
    pub payload: &'a str,
    /// Whether the call was cancelled.
    pub cancelled: &'a dyn Fn() -> bool,
}

#[derive(Debug)]
pub struct Workspace {
    root: Root,
    state: State,
    commands: Commands,
    shell: PathBuf,
    installs: bool,
    approved: bool,
}

impl Workspace {
    /// Opens a workspace, and takes back the set that a dead process left unfinished.
    pub fn open(root: &Path, options: Options) -> io::Result<Self> {
        let root = Root::open(root)?;
        std::fs::create_dir_all(&options.state)?;
        let kept = options.state.canonicalize()?;
        if kept.starts_with(root.path()) {
            return Err(io::Error::other(
                "the state directory is inside the workspace, where agents could write to it; name another with --state",
            ));
        }

        let state = State::open(&kept, root.path())?;
        Sets::open(&root, &state).map_err(io::Error::other)?;
        let environment =
            environment::of(&options.passed, &options.shell, |name| std::env::var_os(name));
        let commands = Commands { supervisor: options.supervisor, environment, time: options.time };
        let Options { shell, installs, approved, .. } = options;
        Ok(Self { root, state, commands, shell, installs, approved })
    }

    /// One or several elements. Fails where the payload is none of ours, or where the record of
    /// what was done cannot be kept.
    pub fn answer(&self, call: &Call<'_>) -> Result<String, String> {
        let request = Request::read(call.payload)
            .ok_or_else(|| "this payload is none that a workspace takes".to_owned())?;
        if let Some(answer) = self.state.answer(call.message) {
            return Ok(answer);
        }

        let answered = match &request {
            Request::Set(set) => self.perform(call, set),
            Request::Show { from } => self.show(*from),
            Request::Undo => self.undo(call),
            Request::Install { proposal } => self.install(call, proposal),
        };

        Ok(answered.unwrap_or_else(|failure| reply::failed(&failure)))
    }

    fn perform(&self, call: &Call<'_>, set: &Proposals) -> Result<String, Failure> {
        if set.steps.len() > limits::SET_COMMANDS_MAX {
            let most = limits::SET_COMMANDS_MAX;
            let message = format!("a set runs at most {most} commands and installations");
            return Err(Failure::new(Code::TooMany, message));
        }

        let mut answer = match (set.edits.is_empty(), set.steps.is_empty()) {
            (true, true) => return self.summary(set.summary.as_deref()),
            (true, false) => String::new(),
            (false, _) => self.change(call.message, set)?,
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

    fn change(&self, message: &str, set: &Proposals) -> Result<String, Failure> {
        let summary = set.summary.as_deref();
        let sets = Sets::open(&self.root, &self.state)?;
        if let Some(made) = sets.made_for(message)? {
            return Ok(made.answer);
        }

        let is_approved = self.approved || set.is_held;
        let changes = plan::changes(&self.root, &set.edits, is_approved)?;
        let diff = diff::of(&changes);
        if changes.is_empty() {
            return Ok(reply::applied(None, summary, None, &diff));
        }

        let about = About {
            message: message.to_owned(),
            summary: summary.map(str::to_owned),
            undoes: None,
        };

        sets.make(&changes, about, |set| reply::applied(Some(set), summary, None, &diff))
    }

    fn undo(&self, call: &Call<'_>) -> Result<String, Failure> {
        let sets = Sets::open(&self.root, &self.state)?;
        if let Some(made) = sets.made_for(call.message)? {
            return Ok(made.answer);
        }

        let all = sets.all()?;
        let undone: Vec<u64> = all.iter().filter_map(|set| set.undoes).collect();
        let standing = |set: &&Manifest| set.undoes.is_none() && !undone.contains(&set.set);
        let Some(last) = all.iter().rev().find(standing) else {
            let message = "there is no set of changes that could be taken back";
            return Err(Failure::new(Code::NothingToUndo, message));
        };

        let changes = self.inverse(&sets, last)?;
        let diff = diff::of(&changes);
        let summary = format!("undo of set {}", last.set);
        let about = About {
            message: call.message.to_owned(),
            summary: Some(summary.clone()),
            undoes: Some(last.set),
        };

        sets.make(&changes, about, |set| {
            reply::applied(Some(set), Some(&summary), Some(last.set), &diff)
        })
    }

    /// What takes a set back, if all its files are still as it left them.
    fn inverse(&self, sets: &Sets<'_>, set: &Manifest) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        let mut changed = Vec::new();
        for (index, entry) in set.files.iter().enumerate() {
            let place = Place::file(&entry.path, self.root.path())?;
            let now = self.root.read(&place).ok().flatten();
            if now.as_ref().map(|found| Content::of(&found.bytes)) != entry.after {
                changed.push(format!("`{place}`"));
                continue;
            }
            let after = sets.kept(set, index, Side::Before)?;
            let owner = entry.owner.or(now.as_ref().map(|found| found.owner));
            changes.push(Change { place, before: now.map(|found| found.bytes), after, owner });
        }

        if changed.is_empty() {
            return Ok(changes);
        }

        let message = format!(
            "set {} cannot be taken back: {} changed since; nothing was written",
            set.set,
            changed.join(", ")
        );
        Err(Failure::new(Code::ChangedMeanwhile, message))
    }

    fn show(&self, from: Option<u64>) -> Result<String, Failure> {
        let sets = Sets::open(&self.root, &self.state)?;
        let mut all = sets.all()?;
        if let Some(from) = from {
            if !all.iter().any(|set| set.set == from) {
                let message = format!("there is no set {from} any more, or not yet");
                return Err(Failure::new(Code::UnknownSet, message));
            }
            all.retain(|set| set.set >= from);
        }

        let changes = together(&sets, &all)?;
        Ok(reply::changes(None, &all, &diff::of(&changes)))
    }

    /// What an empty set of proposals asks for.
    fn summary(&self, summary: Option<&str>) -> Result<String, Failure> {
        let sets = Sets::open(&self.root, &self.state)?;
        let changes = together(&sets, &sets.all()?)?;
        Ok(reply::applied(None, summary, None, &diff::of(&changes)))
    }

    // Commands.

    /// The answer, and whether the steps after this one are taken.
    fn step(&self, call: &Call<'_>, index: usize, step: &Step) -> Result<(String, bool), Failure> {
        match step {
            Step::Command { id, directory, text } => {
                let place = Place::parse(directory.as_deref().unwrap_or("."), self.root.path())?;
                if text.len() > limits::COMMAND_BYTES_MAX {
                    let most = limits::COMMAND_BYTES_MAX;
                    let message = format!("a command has at most {most} bytes; put it into a file");
                    return Err(Failure::new(Code::TooLarge, message));
                }
                let shell = self.shell.to_string_lossy().into_owned();
                let command = [shell, "-c".to_owned(), text.clone()];
                self.begin(call, index)?;
                let done = self.run(call, &command, &place)?;
                Ok((reply::ran(id.as_deref(), None, &done), succeeded(&done)))
            }
            Step::Packages { language, list } => {
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
                let done = self.run(call, &install.command, &top(&self.root)?)?;
                let shown = package::shown(&install.command);
                let ran = reply::ran(Some(&proposal), Some(&shown), &done);
                Ok((format!("{proposed}{ran}"), succeeded(&done)))
            }
        }
    }

    fn install(&self, call: &Call<'_>, proposal: &str) -> Result<String, Failure> {
        if self.state.has_begun(call.message, 0) {
            return Err(interrupted());
        }

        let taken = self.state.take_proposal(proposal).map_err(remembering)?;
        let Some(command) = taken else {
            let message = "there is no such proposal, or it has been run; propose the packages and take the name from install-proposed";
            return Err(Failure::new(Code::UnknownProposal, message));
        };

        self.begin(call, 0)?;
        let done = self.run(call, &command, &top(&self.root)?)?;
        let answer = reply::ran(Some(proposal), Some(&package::shown(&command)), &done);
        self.remember(call, &answer);
        Ok(answer)
    }

    /// Keeps what came of commands. Where there is no room for it, the message that comes again
    /// is told that they were run.
    fn remember(&self, call: &Call<'_>, answer: &str) {
        let _ = self.state.remember(call.message, answer);
    }

    /// Notes that commands of this message are under way. If they already were, the process died
    /// in the middle of one, and to run it again might do its work twice.
    fn begin(&self, call: &Call<'_>, index: usize) -> Result<(), Failure> {
        if self.state.has_begun(call.message, index) {
            return Err(interrupted());
        }
        self.state.begin_command(call.message, index).map_err(remembering)
    }

    fn run(&self, call: &Call<'_>, command: &[String], place: &Place) -> Result<Done, Failure> {
        let directory = self.root.directory(place)?;
        let path = self.root.path().join(place.names().join("/"));
        let run = self.commands.run(command, &directory, &path, call.cancelled);
        run.map_err(|error| Failure::io(&error, "cannot run the command"))
    }
}

/// All sets as one: what was there before the first, against what was there after the last.
fn together(sets: &Sets<'_>, all: &[Manifest]) -> Result<Vec<Change>, Failure> {
    let mut spans: BTreeMap<&str, Span<'_>> = BTreeMap::new();
    for set in all {
        for (index, entry) in set.files.iter().enumerate() {
            let here = (set, index);
            let span = spans.entry(&entry.path).or_insert(Span { first: here, last: here });
            span.last = here;
        }
    }

    let mut changes = Vec::new();

    for (path, Span { first, last }) in spans {
        let before = sets.kept(first.0, first.1, Side::Before)?;
        let after = sets.kept(last.0, last.1, Side::After)?;
        let place = Place::file(path, Path::new("/"))?;
        changes.push(Change { place, before, after, owner: None });
    }

    changes.retain(Change::is_one);
    Ok(changes)
}

/// The first and the last set that changed a file, with its index in each.
struct Span<'a> {
    first: (&'a Manifest, usize),
    last: (&'a Manifest, usize),
}

fn top(root: &Root) -> Result<Place, Failure> {
    Place::parse(".", root.path())
}

fn succeeded(done: &Done) -> bool {
    done.outcome == Outcome::Exited(0)
}

fn interrupted() -> Failure {
    let message = "the command was running when the workspace's process died; whether it did its work is not known, so it is not run again: look, and decide";
    Failure::new(Code::Interrupted, message)
}

fn remembering(error: io::Error) -> Failure {
    Failure::io(&error, "cannot write to the state directory")
}

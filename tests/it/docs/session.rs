//! Carries out the steps of a page in a separate directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::form::{Comparison, KnownIds};
use super::page::{Console, ShownCommand, Step, StepKind, steps};
use crate::organism::until_within;

/// Environment variable that makes a test write new outputs into the page.
const WRITE: &str = "TUTORIAL";

/// Text that replaces the directory of the run in outputs on a page.
const HOME: &str = "…";

/// Time-out of a command: long enough for a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Shell script that runs the command `$1`. It saves the directory and the variables of the shell
/// for the next command, except for the variables `$2`, which the page does not show.
const SHELL: &str = r#"
if [ -f "$HOME/.session" ]; then . "$HOME/.session"; fi
eval "$1"
code=$?
unset $2
{ export -p; printf "cd '%s'\n" "$PWD"; } >"$HOME/.session"
exit $code
"#;

/// A command that has not ended.
struct RunningCommand {
    child: Child,
    output: PathBuf,
    command: String,
}

impl RunningCommand {
    fn text(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        // The group is gone where the command has ended by itself.
        Command::new("kill").args(["-s", signal, "--", &group]).stderr(Stdio::null()).status().ok();
    }

    fn wait(&mut self) -> ExitStatus {
        until_within(COMMAND_TIMEOUT, &self.command, || self.child.try_wait().unwrap())
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("KILL");
            self.child.wait().ok();
        }
    }
}

/// Waits until a command has written nothing for a while.
fn wait_until_quiet(running: &RunningCommand) {
    let mut seen = String::new();
    let mut since = Instant::now();
    until_within(COMMAND_TIMEOUT, &running.command, || {
        let text = running.text();
        if text != seen {
            seen = text;
            since = Instant::now();
        }
        (since.elapsed() > Duration::from_secs(5)).then_some(())
    });
}

/// A new output, and the lines of the page that it replaces.
struct Replacement {
    line: usize,
    lines: usize,
    text: String,
}

/// A fresh directory with a shell.
pub struct Session {
    home: TempDir,
    variables: Vec<(String, String)>,
    ids: KnownIds,
    running: Option<RunningCommand>,
    /// Number of output lines of the running command that the page has already shown.
    shown: usize,
    outputs: usize,
    is_writing: bool,
    replacements: Vec<Replacement>,
    pub commands: usize,
}

impl Session {
    pub fn new() -> Self {
        Self {
            home: TempDir::new().unwrap(),
            variables: Vec::new(),
            ids: KnownIds::default(),
            running: None,
            shown: 0,
            outputs: 0,
            is_writing: std::env::var_os(WRITE).is_some_and(|value| value == "write"),
            replacements: Vec::new(),
            commands: 0,
        }
    }

    /// Sets a variable for all further commands. The page does not show this variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub fn unset(&mut self, name: &str) {
        self.variables.retain(|(set, _)| set != name);
    }

    /// The present directory of the shell.
    fn directory(&self) -> PathBuf {
        let session = std::fs::read_to_string(self.home.path().join(".session"));
        let session = session.unwrap_or_default();
        let last = session.lines().rev().find_map(|line| line.strip_prefix("cd '"));
        last.map_or_else(
            || self.home.path().to_owned(),
            |path| PathBuf::from(path.trim_end_matches('\'')),
        )
    }

    fn start(&mut self, command: &str) -> RunningCommand {
        self.outputs += 1;
        let output = self.home.path().join(format!(".output-{}", self.outputs));
        let written = std::fs::File::create(&output).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap().to_owned();
        let path = std::env::var("PATH").unwrap();

        let mut shell = Command::new("bash");
        let hidden: Vec<_> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        shell.args(["-c", SHELL, "session", command, &hidden.join(" ")]);
        shell.env_clear().current_dir(self.home.path()).env("HOME", self.home.path());
        shell.env("PATH", format!("{}:{path}", programs.display())).env("LANG", "C.UTF-8");
        shell.env("SHELL", "/bin/bash").envs(self.variables.iter().cloned());
        shell.stdin(Stdio::null()).stdout(written.try_clone().unwrap()).stderr(written);
        let child = std::os::unix::process::CommandExt::process_group(&mut shell, 0).spawn();
        RunningCommand { child: child.unwrap(), output, command: command.to_owned() }
    }

    /// Compares an output with the page. In the mode that writes new outputs, an output that
    /// differs is kept and written into the page later.
    fn compare(
        &mut self,
        shown: &ShownCommand,
        output: &str,
        comparison: Comparison,
    ) -> Result<(), String> {
        let result = self.ids.compare(&shown.output, output, comparison);
        if result.is_ok() || !self.is_writing {
            return result.map_err(|wrong| {
                format!("`{}`: page and run {wrong}; the run wrote:\n{output}", shown.command)
            });
        }

        let home = self.home.path().display().to_string();
        let text = self.ids.on_page(output).replace(&home, HOME);
        self.ids.compare(&text, output, comparison)?;
        self.replacements.push(Replacement { line: shown.line, lines: shown.lines, text });
        Ok(())
    }

    /// Runs a command to its end.
    fn run(
        &mut self,
        shown: &ShownCommand,
        exit: i32,
        comparison: Comparison,
    ) -> Result<(), String> {
        let command = self.ids.in_run(&shown.command);
        let mut running = self.start(&command);
        let code = running.wait().code();
        self.compare(shown, &running.text(), comparison)?;
        if code != Some(exit) {
            return Err(format!("`{}` ended with {code:?}, not {exit}", shown.command));
        }
        Ok(())
    }

    /// Starts a command, and waits until it has written as many lines as the page shows.
    fn run_on(&mut self, shown: &ShownCommand, comparison: Comparison) -> Result<(), String> {
        let command = self.ids.in_run(&shown.command);
        let mut running = self.start(&command);
        let is_shown = || {
            let count = running.text().matches('\n').count();
            let is_over = running.child.try_wait().unwrap().is_some();
            (count >= shown.lines || is_over).then_some(())
        };
        until_within(COMMAND_TIMEOUT, &shown.command, is_shown);
        if self.is_writing {
            // A page that is new shows too few lines.
            wait_until_quiet(&running);
        }

        let text = running.text();
        let lines = if self.is_writing { usize::MAX } else { shown.lines };
        let begun: String = text.split_inclusive('\n').take(lines).collect();
        self.compare(shown, &begun, comparison)?;
        self.shown = begun.lines().count();
        self.running = Some(running);
        Ok(())
    }

    /// Waits for the end of the running command, and compares the rest of its output.
    fn end(&mut self, console: &Console) -> Result<(), String> {
        let mut running = self.running.take().ok_or("no command is running")?;
        let code = running.wait().code();
        let text = running.text();
        let rest: String = text.split_inclusive('\n').skip(self.shown).collect();
        self.compare(&console.commands[0], &rest, console.comparison)?;
        if code != Some(console.exit) {
            return Err(format!("`{}` ended with {code:?}", running.command));
        }
        Ok(())
    }

    fn console(&mut self, console: &Console) -> Result<(), String> {
        let last = console.commands.len() - 1;
        for (number, shown) in console.commands.iter().enumerate() {
            if shown.command.is_empty() {
                self.end(console)?;
                continue;
            }
            self.commands += 1;
            if number == last && console.running {
                self.run_on(shown, console.comparison)?;
            } else {
                let exit = if number == last { console.exit } else { 0 };
                self.run(shown, exit, console.comparison)?;
            }
        }
        Ok(())
    }

    fn change(&self, file: &str, changed: impl Fn(String) -> String) -> Result<(), String> {
        let path = self.directory().join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        std::fs::write(path, changed(text)).unwrap();
        Ok(())
    }

    pub fn carry_out(&mut self, step: &Step) -> Result<(), String> {
        let done = match &step.kind {
            StepKind::Console(console) => self.console(console),
            StepKind::Write { file, text } => {
                let path = self.directory().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).map_err(|e| format!("{file}: {e}"))
            }
            StepKind::Append { file, text } => self.change(file, |before| before + text),
            StepKind::Edit { file, old, new } => {
                let text = std::fs::read_to_string(self.directory().join(file));
                let places = text.unwrap_or_default().matches(old.as_str()).count();
                if places != 1 {
                    return Err(format!(
                        "line {}: {file} has these lines {places} times",
                        step.line
                    ));
                }
                self.change(file, |before| before.replacen(old.as_str(), new, 1))
            }
        };
        done.map_err(|wrong| format!("line {}: {wrong}", step.line))
    }

    /// Carries out all steps of a page in a new session. Returns the number of commands.
    pub fn carry_out_page(page: &str) -> Result<usize, String> {
        let mut session = Self { is_writing: false, ..Self::new() };
        for step in steps(page)? {
            session.carry_out(&step)?;
        }
        session.finish()?;
        Ok(session.commands)
    }

    /// Checks that no command is still running at the end of the page.
    pub fn finish(&self) -> Result<(), String> {
        match &self.running {
            Some(running) => Err(format!("`{}` is still running", running.command)),
            None => Ok(()),
        }
    }

    /// Writes the kept new outputs into the page.
    pub fn write(&mut self, path: &Path) {
        if self.replacements.is_empty() {
            return;
        }

        let page = std::fs::read_to_string(path).unwrap();
        let mut lines: Vec<_> = page.lines().map(str::to_owned).collect();
        self.replacements.sort_by_key(|replacement| replacement.line);
        for replacement in self.replacements.drain(..).rev() {
            let from = replacement.line - 1;
            let new = replacement.text.lines().map(str::to_owned);
            lines.splice(from..from + replacement.lines, new);
        }
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
    }
}

const PAGE: &str = "
```sh file=greet.sh
echo \"Hello, $1!\"
```
```console
$ mkdir here && cd here
$ cp ../greet.sh . && NAME=Ada && export NAME
$ sh greet.sh $NAME
Hello, Ada!
```
```diff edit=greet.sh
-echo \"Hello, $1!\"
+echo \"Good morning, $1!\"
```
```text add=greet.sh
exit 3
```
```console exit=3
$ sh greet.sh \\
> $NAME
Good morning, Ada!
```
```console running
$ echo begun; until [ -f end ]; do :; done; echo ended
begun
```
```console
$ touch end
```
```console ended
ended
```
";

#[test]
fn a_page_is_carried_out_step_by_step() {
    assert_eq!(Session::carry_out_page(PAGE), Ok(6));
}

#[test]
fn a_changed_output_is_found() {
    let page = PAGE.replace("\nGood morning, Ada!", "\nGood evening, Ada!");
    let wrong = Session::carry_out_page(&page).unwrap_err();
    let differ = "differ first in `Good evening, Ada!` and `Good morning, Ada!`";
    assert!(wrong.contains(differ), "{wrong}");
}

#[test]
fn a_skipped_command_is_found() {
    let page = PAGE.replace("$ mkdir here && cd here\n", "");
    let wrong = Session::carry_out_page(&page).unwrap_err();
    assert!(wrong.starts_with("line 5: `cp ../greet.sh"), "{wrong}");

    let page = PAGE.split("```console\n$ touch end").next().unwrap();
    let wrong = Session::carry_out_page(page).unwrap_err();
    assert!(wrong.ends_with("is still running"), "{wrong}");
}

#[test]
fn another_exit_code_is_found() {
    let wrong = Session::carry_out_page(&PAGE.replace("exit=3", "exit=4")).unwrap_err();
    assert!(wrong.ends_with("ended with Some(3), not 4"), "{wrong}");
}

#[test]
fn an_edit_of_lines_that_are_not_there_is_found() {
    let page = PAGE.replace("-echo \"Hello", "-echo \"Hi");
    let wrong = Session::carry_out_page(&page).unwrap_err();
    assert!(wrong.ends_with("greet.sh has these lines 0 times"), "{wrong}");
}

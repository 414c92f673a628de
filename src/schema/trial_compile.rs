//! Trial compilation of schemas in a child process. The child process may time out, run out of
//! memory or crash without harm to this process. Only small schemas are compiled without a child
//! process.
//!
//! The child is a hidden command of this program. It reads one schema from each line of its
//! standard input, and writes one verdict on each line of its standard output. A program that
//! embeds the library may find no `organism` command. In that case, schemas are compiled on an OS
//! thread of that program, with a time limit but without a memory limit.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::compile_cost;
use super::libxml2::CompiledSchema;
use super::libxml2_diagnostic::{Diagnostic, DiagnosticDomain, DiagnosticLevel};
use super::libxml2_messages;
use super::load::SchemaBundle;
use super::schema_problem::SchemaProblem;
use crate::children::{self, OwnedChild};
use crate::limits;

/// Environment variable that contains the path of the `organism` command, for programs that embed
/// the library.
pub const PROGRAM_VARIABLE: &str = "ORGANISM_BIN";

/// Arguments with which the `organism` command runs as the child process that compiles schemas. The
/// help of the command does not show them.
pub const COMPILE_ARGUMENTS: [&str; 2] = ["schema", "compile"];

/// The child process's verdict on one schema.
#[derive(Debug, Serialize, Deserialize)]
struct CompileVerdict {
    #[serde(rename = "good")]
    good: bool,
    #[serde(rename = "said")]
    messages: Vec<CompileMessage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CompileMessage {
    #[serde(rename = "warning")]
    warning: bool,
    #[serde(rename = "code")]
    code: u32,
    #[serde(rename = "line")]
    line: u32,
    #[serde(rename = "document")]
    document: Option<usize>,
    #[serde(rename = "message")]
    message: String,
}

/// A compiler of schemas. It compiles one schema after another, with as few child processes as
/// possible.
#[derive(Default)]
pub struct SchemaCompiler {
    /// Real paths of the folders from which any schema may import.
    catalogue: Vec<PathBuf>,
    /// Whether a schema may have patterns that take too long to match. A schema may keep such
    /// patterns if the schema was in use before this program refused such patterns.
    permits_costly_patterns: bool,
    child: Option<CompileChild>,
    used: usize,
}

struct CompileChild {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
    /// Entry of the child process in the register of started processes. Fields are dropped in the
    /// order of their declaration, and the entry must be dropped after the child. It is therefore
    /// declared after `child`.
    _owned: OwnedChild,
}

impl Drop for CompileChild {
    fn drop(&mut self) {
        // A failure means that the child has already ended, so nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reason why a trial compilation gave no verdict on the schema.
enum CompileFailure {
    /// The compilation exceeded its time limit.
    Slow,
    /// The compilation ended the child process, or its verdict cannot be read.
    Died,
    /// A signal that does not come from the compilation ended the child process.
    Killed { signal: i32 },
    /// No child process could be started, or no OS thread for the compilation.
    NoChild(String),
}

impl SchemaCompiler {
    /// Returns a compiler for schemas that may import from the folders of `catalogue`.
    pub fn with_catalogue(catalogue: Vec<PathBuf>) -> Self {
        Self { catalogue, ..Self::default() }
    }

    /// Permits or refuses patterns that take too long to match.
    #[must_use]
    pub fn permitting_costly_patterns(mut self, is_permitted: bool) -> Self {
        self.permits_costly_patterns = is_permitted;
        self
    }

    pub fn permits_costly_patterns(&self) -> bool {
        self.permits_costly_patterns
    }

    pub fn catalogue(&self) -> &[PathBuf] {
        &self.catalogue
    }

    /// Checks that the schema `bundle` compiles within the time limit. Returns the warnings about
    /// the schema or, if it does not compile, its problems. A small schema is compiled in this
    /// process, because starting a child process takes longer than compiling most of these.
    pub fn check(
        &mut self,
        bundle: &SchemaBundle,
    ) -> Result<Vec<SchemaProblem>, Vec<SchemaProblem>> {
        let label = bundle.main().map_or("schema", |s| s.label.as_str());
        let refuse =
            |code: &str, message: String| Err(vec![SchemaProblem::new(label, 1, code, message)]);
        if compile_cost::is_small(&bundle.sources) {
            return problems_of(bundle, verdict(&bundle.compiled));
        }

        match self.ask(bundle) {
            Ok(verdict) => problems_of(bundle, verdict),
            Err(CompileFailure::Slow) => {
                let limit = limits::SCHEMA_COMPILE_TIMEOUT.as_secs_f32();
                let message = format!(
                    "the schema takes longer than {limit} s to compile; simplify its content models"
                );
                refuse("schema-too-slow", message)
            }
            Err(CompileFailure::Died) => {
                let message = "compiling the schema takes too much memory or time, or ends libxml2; simplify its content models";
                refuse("schema-too-complex", message.to_owned())
            }
            Err(CompileFailure::Killed { signal }) => {
                let message = format!(
                    "the schema could not be compiled: signal {signal} ended the compiling process \
                     twice; try again"
                );
                refuse("schema-unchecked", message)
            }
            Err(CompileFailure::NoChild(why)) => {
                refuse("schema-unchecked", format!("the schema could not be compiled: {why}"))
            }
        }
    }

    fn ask(&mut self, bundle: &SchemaBundle) -> Result<CompileVerdict, CompileFailure> {
        let Some(program) = program() else { return watched(bundle) };
        self.ask_program(&program, &bundle.compiled)
    }

    /// Asks a child process for its verdict on a schema. If the child was killed meanwhile, asks a
    /// new child once more.
    fn ask_program(
        &mut self,
        program: &Path,
        documents: &[Vec<u8>],
    ) -> Result<CompileVerdict, CompileFailure> {
        match self.ask_child(program, documents) {
            // An operator, or the system for lack of memory, may have ended the child. It may also
            // have used up its processor time for the schemas before this one.
            Err(CompileFailure::Killed { .. }) => self.ask_child(program, documents),
            answer => answer,
        }
    }

    /// Asks a child process for its verdict on a schema, which consists of `documents`. `program` is
    /// the path of the `organism` command, which is started if there is no child.
    fn ask_child(
        &mut self,
        program: &Path,
        documents: &[Vec<u8>],
    ) -> Result<CompileVerdict, CompileFailure> {
        if self.used >= limits::SCHEMAS_PER_CHILD_MAX {
            self.child = None;
        }

        let mut worker = match self.child.take() {
            Some(worker) => worker,
            None => {
                self.used = 0;
                start(program).map_err(|e| CompileFailure::NoChild(e.to_string()))?
            }
        };

        self.used += 1;
        let answer = worker.ask(documents)?;
        self.child = Some(worker);
        Ok(answer)
    }
}

impl CompileChild {
    fn ask(&mut self, documents: &[Vec<u8>]) -> Result<CompileVerdict, CompileFailure> {
        let texts: Vec<_> = documents.iter().map(|d| String::from_utf8_lossy(d)).collect();
        let mut line = serde_json::to_string(&texts).map_err(|_| CompileFailure::Died)?;
        line.push('\n');
        let before = spent(self.child.id());
        let sent = self.stdin.write_all(line.as_bytes()).and_then(|()| self.stdin.flush());
        sent.map_err(|_| self.death())?;
        let answer = self.wait(before)?;
        serde_json::from_str(&answer).map_err(|_| CompileFailure::Died)
    }

    /// Waits for the answer of the child process. Returns an error if the child ends first, or if
    /// it exceeds its limit of processor time or the limit of elapsed time. The limit of elapsed
    /// time is much higher, so that good schemas do not fail on a busy machine. `before` is the
    /// processor time that the child had used before this schema. If the used processor time is
    /// unknown, the elapsed time must stay within the limit of processor time, too.
    fn wait(&mut self, before: Option<Duration>) -> Result<String, CompileFailure> {
        let started = Instant::now();
        loop {
            match self.answers.recv_timeout(limits::SCHEMA_COMPILE_TIMEOUT / 4) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(self.death()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let waited = started.elapsed();
            let used = match (before, spent(self.child.id())) {
                (Some(before), Some(now)) => now.saturating_sub(before),
                _ => waited,
            };
            if used >= limits::SCHEMA_COMPILE_TIMEOUT
                || waited >= limits::SCHEMA_COMPILE_WALL_TIMEOUT
            {
                return Err(CompileFailure::Slow);
            }
        }
    }
}

impl CompileChild {
    /// Returns the reason why the child process, which has closed its pipes, has ended.
    fn death(&mut self) -> CompileFailure {
        // The wait must also end if the process has closed only its pipes. An ended process keeps
        // its status.
        let _ = self.child.kill();
        let status = self.child.wait().ok();
        match status.and_then(|status| status.signal()) {
            Some(signal) if !is_of_compilation(signal) => CompileFailure::Killed { signal },
            _ => CompileFailure::Died,
        }
    }
}

/// Whether the compilation itself can end its process with this signal, by a crash or at a limit.
fn is_of_compilation(signal: i32) -> bool {
    let signals =
        [Signal::ABORT, Signal::BUS, Signal::FPE, Signal::ILL, Signal::SEGV, Signal::XCPU];
    signals.iter().any(|own| own.as_raw() == signal)
}

/// Returns the processor time that a process has used; `None` if the operating system does not
/// report it.
fn spent(process: u32) -> Option<Duration> {
    // The first number of the file is the processor time in nanoseconds.
    let stats = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    stats.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn start(program: &Path) -> std::io::Result<CompileChild> {
    let mut command = Command::new(program);
    command
        .args(COMPILE_ARGUMENTS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());

    let (mut child, owned) =
        children::spawn(None, || command.spawn(), |child| Some(std::process::Child::id(child)))?;
    let gone = || std::io::Error::other("the compiling child has no pipes");
    let stdin = child.stdin.take().ok_or_else(gone)?;
    let stdout = child.stdout.take().ok_or_else(gone)?;

    let (sender, answers) = channel();
    // Made before the thread: if the thread cannot be started, this value ends the child.
    let started = CompileChild { child, stdin, answers, _owned: owned };
    std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    })?;

    Ok(started)
}

/// Does the work of the child process: limits the resources of this process, and answers each line
/// of the input until the input ends.
///
/// # Errors
///
/// Returns an error if a pipe fails, or if a line contains no documents.
pub fn serve(input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    limit_this_process();
    for line in input.lines() {
        let texts: Vec<String> = serde_json::from_str(&line?)?;
        let documents: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
        let verdict = verdict(&documents);
        serde_json::to_writer(&mut output, &verdict)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }

    Ok(())
}

/// Limits the memory and the processor time of this process, which compiles schemas. If the
/// operating system lacks such a limit, the parent process still applies its time limit.
fn limit_this_process() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let memory = address_space() + (limits::SCHEMA_COMPILE_MEMORY_KIB << 10);
    let limits = [
        (Resource::Core, 0),
        (Resource::As, memory),
        (Resource::Cpu, limits::SCHEMA_COMPILE_CPU_SECONDS),
    ];
    for (resource, limit) in limits {
        let limit = Some(getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit)));
        if let Err(error) = setrlimit(resource, Rlimit { current: limit, maximum: limit }) {
            tracing::debug!("the limit {resource:?} cannot be set: {error}");
        }
    }
}

/// Returns the number of bytes of address space that this process has reserved, mostly through its
/// allocator. Returns 0 if the operating system does not report the number.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm");
    let pages = pages.ok().and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}

fn verdict(documents: &[Vec<u8>]) -> CompileVerdict {
    let (good, messages) = match CompiledSchema::compile(documents) {
        Ok((_, warnings)) => (true, warnings),
        Err(errors) => (false, errors),
    };

    let messages = messages.into_iter().map(|d| CompileMessage {
        warning: d.level == DiagnosticLevel::Warning,
        code: d.code,
        line: d.line,
        document: d.document,
        message: d.message,
    });
    CompileVerdict { good, messages: messages.collect() }
}

fn problems_of(
    bundle: &SchemaBundle,
    verdict: CompileVerdict,
) -> Result<Vec<SchemaProblem>, Vec<SchemaProblem>> {
    let diagnostics: Vec<Diagnostic> = verdict
        .messages
        .into_iter()
        .map(|message| Diagnostic {
            level: if message.warning { DiagnosticLevel::Warning } else { DiagnosticLevel::Error },
            domain: DiagnosticDomain::Schema,
            code: message.code,
            line: message.line,
            column: 0,
            message: message.message,
            value: String::new(),
            document: message.document,
            steps: Vec::new(),
        })
        .collect();
    let problems = libxml2_messages::refused(bundle, &diagnostics);
    // Without the imported schema, validation would be weaker than the schema's author expects.
    let less = problems.iter().any(|p| p.code.starts_with("schema-import"));
    if verdict.good && !less { Ok(problems) } else { Err(problems) }
}

/// Compiles on a new OS thread of this process. If this takes too long, returns an error and leaves
/// the OS thread running.
fn watched(bundle: &SchemaBundle) -> Result<CompileVerdict, CompileFailure> {
    let documents = bundle.compiled.clone();
    let (sender, answer) = channel();
    let compile = move || sender.send(verdict(&documents));
    let started = std::thread::Builder::new().spawn(compile);
    started.map_err(|error| CompileFailure::NoChild(error.to_string()))?;

    match answer.recv_timeout(limits::SCHEMA_COMPILE_TIMEOUT) {
        Ok(verdict) => Ok(verdict),
        Err(RecvTimeoutError::Timeout) => Err(CompileFailure::Slow),
        Err(RecvTimeoutError::Disconnected) => Err(CompileFailure::Died),
    }
}

/// Returns the path of the `organism` command. This is the first of the following:
///
/// - the configured path, even if no file exists there
/// - the path of this program, if this program is the command
/// - the path of the command in the folder of this program
/// - the path of the command in the parent of this folder, where test programs find it
///
/// Returns `None` if no path is configured and none of the other paths exists.
fn program() -> Option<PathBuf> {
    if let Some(configured) = std::env::var_os(PROGRAM_VARIABLE) {
        return Some(configured.into());
    }

    let this = std::env::current_exe().ok()?;
    if this.file_stem().is_some_and(|stem| stem == "organism") {
        return Some(this);
    }

    let folder = this.parent()?;
    let name = format!("organism{}", std::env::consts::EXE_SUFFIX);
    let places = [Some(folder.join(&name)), folder.parent().map(|up| up.join(&name))];
    places.into_iter().flatten().find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Writes a program that stands for the `organism` command, and reads one schema. A process of
    /// its own writes it, because a file that this process has open cannot be executed.
    fn program(folder: &TempDir, script: &str) -> PathBuf {
        let path = folder.path().join("organism");
        let write = "printf '#!/bin/sh\nread schema\n%s\n' \"$1\" > \"$0\" && chmod +x \"$0\"";
        let status = Command::new("sh").args(["-c", write]).arg(&path).arg(script).status();
        assert!(status.unwrap().success());
        path
    }

    fn ask(script: &str) -> Result<CompileVerdict, CompileFailure> {
        let folder = TempDir::new().unwrap();
        let program = program(&folder, script);
        SchemaCompiler::default().ask_program(&program, &[b"<schema/>".to_vec()])
    }

    #[test]
    fn a_compilation_whose_process_was_killed_is_repeated_once() {
        let answer = "echo '{\"good\":true,\"said\":[]}'";
        let once =
            format!("[ -e \"$0.killed\" ] && {answer} && exit\n: > \"$0.killed\"\nkill -9 $$");
        assert!(matches!(ask(&once), Ok(CompileVerdict { good: true, .. })));
        assert!(matches!(ask("kill -9 $$"), Err(CompileFailure::Killed { signal: 9 })));
    }

    #[test]
    fn a_compilation_that_ends_its_process_is_not_repeated() {
        let answer = "echo '{\"good\":true,\"said\":[]}'";
        for end in ["kill -ABRT $$", "kill -SEGV $$", "exit 1"] {
            let once = format!("[ -e \"$0.ended\" ] && {answer} && exit\n: > \"$0.ended\"\n{end}");
            assert!(matches!(ask(&once), Err(CompileFailure::Died)), "{end}");
        }
    }
}

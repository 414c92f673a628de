//! `workspace [OPTIONS] ROOT`: a listener that changes files and runs commands in one directory.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use organism::ids::Digest;
use organism::listener::{Listener, Reply, Request};
use workspace::{
    Options, SUPERVISE, Workspace, WorkspaceCall, become_subreaper, limits, supervise,
};

const USAGE: &str = "usage: workspace [--state DIR] [--time-limit SECONDS] [--shell PROGRAM] \
    [--pass VARIABLE]... [--install] [--approved] ROOT";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, command)) = arguments.split_first()
        && first == SUPERVISE
    {
        return supervise(command);
    }

    if arguments == ["--version"] {
        let written = writeln!(std::io::stdout(), "workspace {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::from(u8::from(written.is_err()));
    }

    match opened(&arguments) {
        Ok(workspace) => serve(workspace),
        Err(reason) => {
            // Standard error may be closed. The exit code still shows the failure.
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(2)
        }
    }
}

fn serve(workspace: Workspace) -> ExitCode {
    let workspace = Rc::new(workspace);
    let previewed = Rc::clone(&workspace);
    Listener::new()
        .on_preview(move |request: &Request| previewed.preview(request.payload()))
        .otherwise(move |request: &Request| {
            let _alive = request.keep_alive();
            let cancelled = || request.is_cancelled();
            let message = request.message().id.to_string();
            let call = WorkspaceCall {
                message: &message,
                payload: request.payload(),
                cancelled: &cancelled,
                approved_preview: request.approved_preview,
            };
            workspace.answer(&call).map(Reply::raw)
        })
        .serve()
}

fn opened(arguments: &[OsString]) -> Result<Workspace, String> {
    hide_memory()?;
    // If a command kills its supervisor, its processes become children of the listener, which kills
    // them.
    become_subreaper()
        .map_err(|error| format!("cannot adopt the processes of commands: {error}"))?;
    let (root, options) = parsed(arguments)?;
    Workspace::open(&root, options)
        .map_err(|error| format!("cannot work in {}: {error}", root.display()))
}

/// Protects the environment of the listener from commands, which run as the same user. The
/// environment may contain secrets.
#[cfg(target_os = "linux")]
fn hide_memory() -> Result<(), String> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("cannot close itself to other processes: {error}"))
}

/// Does nothing, because this system does not hide the environment of a process from its user.
#[cfg(not(target_os = "linux"))]
fn hide_memory() -> Result<(), String> {
    Ok(())
}

fn parsed(arguments: &[OsString]) -> Result<(PathBuf, Options), String> {
    let supervisor = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
    let mut options = Options {
        state: PathBuf::new(),
        supervisor,
        shell: shell(),
        time: limits::COMMAND_TIME_DEFAULT,
        passed: Vec::new(),
        installs: false,
        approved: false,
    };

    let mut root = None;
    let mut rest = arguments.iter();

    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or(USAGE);
        match argument.to_str() {
            Some("--state") => options.state = value()?.into(),
            Some("--shell") => options.shell = value()?.into(),
            Some("--time-limit") => options.time = seconds(&value()?)?,
            Some("--pass") => options.passed.push(value()?.into_string().map_err(|_| USAGE)?),
            Some("--install") => options.installs = true,
            Some("--approved") => options.approved = true,
            Some(option) if option.starts_with("--") => return Err(USAGE.to_owned()),
            _ if root.is_some() => return Err(USAGE.to_owned()),
            _ => root = Some(PathBuf::from(argument)),
        }
    }

    let root = root.ok_or(USAGE)?;
    if options.state.as_os_str().is_empty() {
        options.state = state_of(&root)?;
    }

    Ok((root, options))
}

fn seconds(text: &OsString) -> Result<Duration, String> {
    let number = text.to_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let time = Duration::from_secs(number);
    if number > 0 && time <= limits::COMMAND_TIME_MAX {
        Ok(time)
    } else {
        Err("--time-limit takes seconds, from 1 to those of a day".to_owned())
    }
}

fn shell() -> PathBuf {
    let bash = Path::new("/bin/bash");
    if bash.exists() { bash.to_owned() } else { PathBuf::from("/bin/sh") }
}

/// Returns the default state directory for the workspace `root`. It is inside `XDG_STATE_HOME` or,
/// if this variable is not set, inside `~/.local/state`.
fn state_of(root: &Path) -> Result<PathBuf, String> {
    let path = root
        .canonicalize()
        .map_err(|error| format!("cannot work in {}: {error}", root.display()))?;
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))
        .ok_or("there is no home directory to keep the state in; name one with --state")?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = Digest::of(path.as_os_str().as_encoded_bytes()).to_string();
    let short: String = digest.chars().take(12).collect();
    Ok(base.join("organism/workspaces").join(format!("{name}-{short}")))
}

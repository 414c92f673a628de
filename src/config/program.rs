//! Finds the programs of process listeners, and builds the environment of their processes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::bus::nats::endpoint_variables::ENDPOINT_VARIABLES;
use crate::{durable_file, limits};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::did_you_mean;
use super::members::DeclaredMember;
use super::tree::{ExpandedText, Located};
use super::{ProcessSpec, SecretValue, file};

/// Programs that take a script as first argument. A name also stands for the same name with a
/// version number: `python` also stands for `python3.12`.
const INTERPRETERS: [&str; 8] = ["bash", "dash", "node", "perl", "php", "python", "ruby", "sh"];
/// Options of Python that take no value.
const PYTHON_FLAGS: [&str; 6] = ["-B", "-E", "-I", "-S", "-s", "-u"];
/// Endings that Node.js adds to the name of a script.
const NODE_ENDINGS: [&str; 5] = ["js", "json", "node", "cjs", "mjs"];

pub(super) fn processes(
    members: &[DeclaredMember],
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Vec<ProcessSpec> {
    let hosted = members.iter().filter_map(|m| Some((m, m.process.as_ref()?)));
    let specs = hosted.map(|(member, process)| {
        refuse_variables_of_nats(&process.env, problems);
        ProcessSpec {
            name: member.name.value.clone(),
            command: command(&process.command, &process.env, directory, around, problems),
            env: environment(&process.env, directory, problems),
            instances: process.instances,
        }
    });
    specs.collect()
}

/// Reports the variables that a kit reads on NATS alone. With these, a child process ends at each
/// start, or waits for its deliveries on NATS.
fn refuse_variables_of_nats(
    env: &[(Located<String>, Located<ExpandedText>)],
    problems: &mut ConfigProblems,
) {
    for (key, _) in env {
        let name = key.value.strip_suffix("_file").unwrap_or(&key.value);
        if ENDPOINT_VARIABLES.contains(&name) {
            let message = format!("`{name}` is for programs on NATS, and this one is started here");
            let problem = ConfigProblem::new(ProblemCode::UnknownKey, &key.place, message);
            problems.push(problem.help(format!("take {} out", key.value)));
        }
    }
}

/// Returns the command with the path of its program; empty if the program was not found. `env` are
/// the variables that the config sets for the process.
pub(super) fn command(
    written: &[Located<ExpandedText>],
    env: &[(Located<String>, Located<ExpandedText>)],
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Vec<String> {
    let Some((program, arguments)) = written.split_first() else { return Vec::new() };
    let Some(found) = find(program, directory, around, problems) else { return Vec::new() };
    let sets_path = env.iter().any(|(key, _)| matches!(&*key.value, "PATH" | "PATH_file"));
    let path = around.variable("PATH").filter(|_| !sets_path);
    require_interpreter(&found, program, path, directory, problems);
    // A program of the project may have an interpreter's name and read its arguments otherwise.
    if !program.value.value.contains('/') || program.value.value.starts_with('/') {
        require_script(&found, arguments, directory, around, problems);
    }
    let mut command = vec![found.to_string_lossy().into_owned()];
    command.extend(arguments.iter().map(|argument| argument.value.value.clone()));
    command
}

/// Finds a program. A path with a slash is relative to the config. A bare name is searched beside
/// this executable, beside the config, and along PATH. If the program is missing or cannot be
/// executed, reports this and returns `None`.
fn find(
    program: &Located<ExpandedText>,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<PathBuf> {
    let name = &program.value.value;
    let written = &program.value.written;
    let places = if name.contains('/') {
        vec![directory.join(name)]
    } else {
        search_path(directory, around).into_iter().map(|place| place.join(name)).collect()
    };

    if let Some(found) = places.iter().find(|path| is_executable(path)) {
        // Normalises the path: `./run` beside the config becomes the config's directory and `run`.
        return Some(found.components().collect());
    }

    let problem = if places.iter().any(|path| path.is_file()) {
        let message = format!("`{written}` cannot be executed");
        let help = format!(
            "run `chmod +x {written}`, or name the interpreter first: command = [\"python3\", \
             \"{written}\"]"
        );
        ConfigProblem::new(ProblemCode::CommandNotExecutable, &program.place, message).help(help)
    } else {
        let (message, help) = missing(program, directory, around);
        ConfigProblem::new(ProblemCode::CommandMissing, &program.place, message).help(help)
    };

    problems.push(problem);
    None
}

/// Returns the message and the advice for a program that was not found.
fn missing(
    program: &Located<ExpandedText>,
    directory: &Path,
    around: &ConfigEnvironment,
) -> (String, String) {
    let name = &program.value.value;
    let written = &program.value.written;
    let message = format!("there is no program `{written}`");

    let first = name.split_whitespace().next().unwrap_or_default();
    let is_command_line = first != name && is_program(first, directory, around);
    if is_command_line {
        let words: Vec<_> = written.split_whitespace().map(|word| format!("{word:?}")).collect();
        let help = format!("write each word apart: command = [{}]", words.join(", "));
        return (message, help);
    }

    let path = directory.join(name);
    if name.contains('/') && path.is_dir() {
        let help = "name the program in it".to_owned();
        return (format!("`{written}` is a directory"), help);
    }
    if name.contains('/') {
        return (message, file::near_or_rule(&path));
    }

    let programs = programs_in(&search_path(directory, around));
    let help = did_you_mean(name, programs.iter().map(String::as_str), || {
        "it is neither beside the organism executable, nor beside the config, nor on PATH; a path \
         with a slash is relative to the config"
            .to_owned()
    });
    (message, help)
}

/// Whether `name` is a program. If `name` contains a slash, it is a path relative to the config.
/// Otherwise, it is the bare name of an installed program.
fn is_program(name: &str, directory: &Path, around: &ConfigEnvironment) -> bool {
    if name.contains('/') {
        is_executable(&directory.join(name))
    } else {
        is_installed(name, directory, around)
    }
}

/// Reports a problem if the script that an interpreter gets as its argument is missing. Without the
/// script, the interpreter could start, but would end at once.
fn require_script(
    program: &Path,
    arguments: &[Located<ExpandedText>],
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&name) {
        return;
    }
    let is_flag = |argument: &&Located<ExpandedText>| {
        name == "python" && PYTHON_FLAGS.contains(&&*argument.value.value)
    };
    let first = arguments.iter().find(|argument| !is_flag(argument));
    // After any other option, the next argument may be code, a module or a value.
    let Some(script) = first.filter(|argument| !argument.value.value.starts_with('-')) else {
        return;
    };
    let path = directory.join(&script.value.value);
    if path.exists() || is_found_elsewhere(name, &script.value.value, directory, around) {
        return;
    }

    let message = format!("{name} finds no script `{}`", script.value.written);
    let problem = ConfigProblem::new(ProblemCode::CommandMissing, &script.place, message);
    problems.push(problem.help(file::near_or_rule(&path)));
}

/// Reports a problem if the first line of a program names an interpreter that is missing. `path` is
/// the variable PATH of the process; `None` if it is not known.
fn require_interpreter(
    found: &Path,
    program: &Located<ExpandedText>,
    path: Option<&str>,
    directory: &Path,
    problems: &mut ConfigProblems,
) {
    let missing = missing_interpreter(found, directory)
        .or_else(|| missing_program_of_env(found, directory, path?));
    let Some(interpreter) = missing else { return };
    let written = &program.value.written;
    let message = format!("the first line of `{written}` names {interpreter}, which is missing");
    let help = if interpreter.ends_with("\\r\"") {
        "save the file with Unix line ends, without carriage returns"
    } else {
        "install it, or name another interpreter after `#!`"
    };
    let problem = ConfigProblem::new(ProblemCode::CommandMissing, &program.place, message);
    problems.push(problem.help(help));
}

/// Returns the interpreter that the first line of a program names, such as `/bin/sh` in
/// `#!/bin/sh -e`, if the interpreter is missing. A relative path is resolved against `directory`.
/// Returns `None` if the interpreter exists, or if the program names none.
pub fn missing_interpreter(program: &Path, directory: &Path) -> Option<String> {
    let line = interpreter_line(program)?;
    // A carriage return at the end of the line is a part of the path, as for the kernel.
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let path = Path::new(OsStr::from_bytes(words.next()?));
    let shown = format!("{:?}", path.display().to_string());
    (!durable_file::may_exist(&directory.join(path))).then_some(shown)
}

/// Returns the program that `env` would start, such as `python3` in `#!/usr/bin/env python3`, if
/// the program is missing. `path` is the variable PATH of the process, which starts in `directory`.
/// Returns `None` if the program exists, or if the first line of `script` does not name `env`.
fn missing_program_of_env(script: &Path, directory: &Path, path: &str) -> Option<String> {
    let line = interpreter_line(script)?;
    let spaces = [' ', '\t'];
    let line = std::str::from_utf8(&line).ok()?.trim_matches(spaces);
    let (interpreter, argument) = line.split_once(spaces)?;
    if Path::new(interpreter).file_name() != Some(OsStr::new("env")) {
        return None;
    }

    let program = program_of_env(argument.trim_start_matches(spaces))?;
    let is_there = if program.contains('/') {
        durable_file::may_exist(&directory.join(program))
    } else {
        let mut places = std::env::split_paths(path).map(|place| directory.join(place));
        places.any(|place| durable_file::may_exist(&place.join(program)))
    };
    (!is_there).then(|| format!("{program:?}"))
}

/// Returns the program that `env` starts if its argument in a first line is `argument`. Returns
/// `None` for an argument with options other than `-S`, with quotes or escapes, or with a PATH.
fn program_of_env(argument: &str) -> Option<&str> {
    let program = match argument.strip_prefix("-S") {
        // `env` divides the argument at white space. Variables stand before the program.
        Some(words) => words.split_ascii_whitespace().find(|word| !word.contains('='))?,
        // Linux passes the rest of the line as one argument, which is then the program's name.
        None if cfg!(target_os = "linux") => argument,
        None => argument.split([' ', '\t']).next()?,
    };
    let is_unclear = program.starts_with('-')
        || program.contains(['=', '$'])
        || argument.contains(['"', '\'', '\\'])
        || argument.contains("PATH=");
    (!is_unclear).then_some(program)
}

/// Returns the first line of a program without its `#!`. Returns `None` if the program does not
/// begin with `#!`.
fn interpreter_line(program: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = durable_file::open_regular(program).ok()?;
    file.take(limits::INTERPRETER_LINE_BYTES).read_to_end(&mut bytes).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(line.to_vec())
}

/// Whether an interpreter finds the script although `directory` has no file with exactly the
/// script's name. Node.js also tries names with endings, and bash searches PATH.
fn is_found_elsewhere(
    interpreter: &str,
    script: &str,
    directory: &Path,
    around: &ConfigEnvironment,
) -> bool {
    match interpreter {
        "node" => {
            let ended = |ending| directory.join(format!("{script}.{ending}"));
            NODE_ENDINGS.into_iter().any(|ending| ended(ending).exists())
        }
        "bash" if !script.contains('/') => {
            search_path(directory, around).iter().any(|place| place.join(script).is_file())
        }
        _ => false,
    }
}

/// Whether a config in `directory` can name the program by `name` alone, without a path.
pub fn is_installed(name: &str, directory: &Path, around: &ConfigEnvironment) -> bool {
    search_path(directory, around).iter().any(|place| is_executable(&place.join(name)))
}

fn search_path(directory: &Path, around: &ConfigEnvironment) -> Vec<PathBuf> {
    let mut places: Vec<_> = around.program_directory.iter().cloned().collect();
    places.push(directory.to_owned());
    let path = around.variable("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(path).filter(|path| path.is_absolute()));
    places
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the names of all programs in the directories `places`.
fn programs_in(places: &[PathBuf]) -> BTreeSet<String> {
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten();
    let entries = entries.filter_map(Result::ok).filter(|entry| is_executable(&entry.path()));
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Reads the environment variables for a child process: `NAME = "value"`, or `NAME_file = "path"`
/// for the content of a file.
pub(super) fn environment(
    written: &[(Located<String>, Located<ExpandedText>)],
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Vec<(String, SecretValue)> {
    let mut variables: Vec<(String, SecretValue)> = Vec::new();
    for (key, value) in written {
        let name = key.value.strip_suffix("_file").unwrap_or(&key.value);
        if !is_variable(name) {
            let message = format!("`{name}` is not the name of a variable");
            let help = "a letter or underscore, then letters, digits and underscores";
            problems.push(ConfigProblem::new(ProblemCode::BadName, &key.place, message).help(help));
        } else if variables.iter().any(|(known, _)| known == name) {
            let message = format!("`{name}` is set twice, by value and by file");
            let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &key.place, message);
            problems.push(problem.help("keep one of the two"));
        } else if name == key.value {
            variables.push((name.to_owned(), SecretValue(value.value.value.clone())));
        } else if let Some(text) = secret(value, directory, problems) {
            variables.push((name.to_owned(), SecretValue(text)));
        }
    }

    variables
}

fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads a secret from a file. Leaves out the final line break, which editors add. If the file
/// cannot be read, reports this and returns `None`.
pub(super) fn secret(
    path: &Located<ExpandedText>,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Option<String> {
    match file::text(&directory.join(&path.value.value)) {
        Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(unreadable) => {
            let message =
                format!("the secret in `{}` cannot be read: {unreadable}", path.value.written);
            let problem = ConfigProblem::new(ProblemCode::SecretMissing, &path.place, message);
            problems.push(problem.help(unreadable.help));
            None
        }
    }
}

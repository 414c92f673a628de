//! Finds the command that installs packages of a programming language. Runs no command.

use std::path::Path;

use crate::failure::{ActionFailure, FailureCode};
use crate::limits;

/// The package manager of a programming language.
struct PackageManager {
    /// Names of the programming language, in lower case.
    languages: &'static [&'static str],
    command: &'static [&'static str],
    names: PackageNameForm,
}

/// Permitted form of a package name. All forms permit letters, digits, `.`, `_`, `-`, and a version
/// after the name. No form permits a URL or the path of a local file, because a URL or path could
/// install packages from anywhere.
#[derive(Clone, Copy)]
enum PackageNameForm {
    /// A name without a slash. An extra in brackets may follow, as in `uvicorn[standard]`.
    Plain,
    /// The form `@scope/name`, or a name without a slash.
    Scoped,
    /// The form `vendor/name`, or the path of a module.
    Path,
}

const MANAGERS: &[PackageManager] = &[
    PackageManager {
        languages: &["python", "python3", "py"],
        command: &["python3", "-m", "pip", "install", "--no-input"],
        names: PackageNameForm::Plain,
    },
    PackageManager {
        languages: &["javascript", "typescript", "js", "ts", "node", "nodejs"],
        command: &["npm", "install", "--no-fund", "--no-audit"],
        names: PackageNameForm::Scoped,
    },
    PackageManager {
        languages: &["rust"],
        command: &["cargo", "add"],
        names: PackageNameForm::Plain,
    },
    PackageManager {
        languages: &["go", "golang"],
        command: &["go", "get"],
        names: PackageNameForm::Path,
    },
    PackageManager {
        languages: &["ruby"],
        command: &["bundle", "add"],
        names: PackageNameForm::Plain,
    },
    PackageManager {
        languages: &["php"],
        command: &["composer", "require", "--no-interaction"],
        names: PackageNameForm::Path,
    },
    PackageManager {
        languages: &["dart"],
        command: &["dart", "pub", "add"],
        names: PackageNameForm::Plain,
    },
];

/// Endings of file names. Package managers treat a name or version with such an ending as the path
/// of a local file.
const ARCHIVES: [&str; 18] = [
    ".tar", ".gz", ".bz2", ".xz", ".lz", ".lzma", ".zst", ".tgz", ".tbz", ".tbz2", ".txz", ".tlz",
    ".zip", ".7z", ".whl", ".egg", ".gem", ".crate",
];
/// Characters between a name and the number of its version.
const VERSION_MARKS: &str = "@~^<>=!";

/// The command for a proposed installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallCommand {
    pub packages: Vec<String>,
    /// The program and its arguments. No shell parses them.
    pub command: Vec<String>,
}

/// Finds the command that installs `list`, a list of package names. Commas separate the names, and
/// white space around a name is ignored.
pub fn install(language: &str, list: &str) -> Result<InstallCommand, ActionFailure> {
    let wanted = language.trim().to_lowercase();
    let Some(manager) = MANAGERS.iter().find(|m| m.languages.contains(&wanted.as_str())) else {
        let known = MANAGERS.iter().filter_map(|m| m.languages.first().copied());
        let known = known.collect::<Vec<_>>().join(", ");
        let message = format!("there is no package manager for this language; known are {known}");
        return Err(ActionFailure::new(FailureCode::UnknownLanguage, message));
    };

    let packages: Vec<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if packages.is_empty() || packages.len() > limits::PACKAGES_MAX {
        let count = packages.len();
        let most = limits::PACKAGES_MAX;
        let message = format!("package_list names {count} packages; 1 to {most} are taken");
        return Err(ActionFailure::new(FailureCode::BadPackage, message));
    }

    if let Some(bad) = packages.iter().find(|name| !is_name(name, manager.names)) {
        let shown: String = bad.chars().take(80).collect();
        let message = format!(
            "`{shown}` is not the name of a package, alone or with a version; addresses, paths and options are not taken"
        );
        return Err(ActionFailure::new(FailureCode::BadPackage, message));
    }

    let command = manager.command.iter().map(|part| (*part).to_owned());
    let command = command.chain(packages.iter().cloned()).collect();
    Ok(InstallCommand { packages, command })
}

/// Returns the arguments that run the command of an installation. `pip` is started by a program in
/// the state directory: `python3 -m pip` takes modules from its working directory first, and would
/// run a `pip.py` that an agent has written. The interpreter is the same, because it is searched
/// for in the workspace, too.
pub fn arguments(command: &[String], pip_starter: &Path) -> Vec<String> {
    match command.strip_prefix(&["python3", "-m", "pip"].map(str::to_owned)) {
        Some(rest) => {
            let starter = pip_starter.to_string_lossy().into_owned();
            ["python3".to_owned(), starter].into_iter().chain(rest.iter().cloned()).collect()
        }
        None => command.to_vec(),
    }
}

fn is_name(text: &str, form: PackageNameForm) -> bool {
    let is_plain = matches!(form, PackageNameForm::Plain);
    let scoped = text.strip_prefix('@').filter(|_| matches!(form, PackageNameForm::Scoped));
    let whole = scoped.unwrap_or(text);
    let end = whole.find(|c: char| c == '[' || VERSION_MARKS.contains(c)).unwrap_or(whole.len());
    let (name, rest) = whole.split_at(end);
    let extra = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'));
    let version = match extra {
        Some((extra, version)) if is_plain && is_word(extra) => version,
        _ => rest,
    };

    let parts: Vec<&str> = name.split('/').collect();
    let slashes = match form {
        PackageNameForm::Plain => parts.len() == 1,
        PackageNameForm::Scoped => parts.len() == if scoped.is_some() { 2 } else { 1 },
        PackageNameForm::Path => true,
    };

    text.len() <= limits::PACKAGE_BYTES_MAX
        && slashes
        && parts.into_iter().all(is_word)
        && (version.is_empty() || is_version(version))
        && !is_archive(name)
        && !is_archive(version)
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Whether the text is a version with the marks before it, such as `==2.31.0` or `@^1.2`. A version
/// never begins with a dot, because npm takes `@.directory` and `@..` for local directories.
fn is_version(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| VERSION_MARKS.contains(c));
    number.len() < text.len()
        && number.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '*')
        && number.chars().all(|c| c.is_ascii_alphanumeric() || "._-+*!".contains(c))
}

fn is_archive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ARCHIVES.iter().any(|end| text.ends_with(end))
}

/// Returns the command as a person would type it.
pub fn shown(command: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    let quote =
        |part: &String| if part.chars().all(safe) { part.clone() } else { format!("'{part}'") };
    let quoted = command.iter().map(quote);
    quoted.collect::<Vec<_>>().join(" ")
}

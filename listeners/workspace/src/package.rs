//! Finds the command that installs packages of a programming language. Runs no command.

use crate::failure::{ActionFailure, FailureCode};
use crate::limits;

/// The package manager of a programming language.
struct PackageManager {
    /// Names of the programming language, in lower case.
    languages: &'static [&'static str],
    command: &'static [&'static str],
    names: PackageNameForm,
}

/// Permitted form of a package name. All forms permit letters, digits, `.`, `_`, `-` and a version.
/// No form permits a URL or the path of a local file, because a URL or path could install packages
/// from anywhere.
#[derive(Clone, Copy)]
enum PackageNameForm {
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

/// Endings of file names. Package managers treat a name with such an ending as the path of a local
/// file.
const ARCHIVES: [&str; 6] = [".whl", ".zip", ".gz", ".tgz", ".bz2", ".xz"];

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

fn is_name(text: &str, names: PackageNameForm) -> bool {
    let is_version = |c: char| "@+~^<>=!*[]".contains(c);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = |c: char| {
        plain(c) || is_version(c) || (c == '/' && !matches!(names, PackageNameForm::Plain))
    };
    let name = match names {
        PackageNameForm::Scoped => text.strip_prefix('@').unwrap_or(text),
        _ => text,
    };

    let parts: Vec<&str> = name.split('/').collect();
    let slashes = match names {
        PackageNameForm::Plain => parts.len() == 1,
        PackageNameForm::Scoped => parts.len() == if text.starts_with('@') { 2 } else { 1 },
        PackageNameForm::Path => true,
    };

    let is_file = ARCHIVES.iter().any(|end| text.to_ascii_lowercase().ends_with(end));
    text.len() <= limits::PACKAGE_BYTES_MAX
        && !is_file
        && text.chars().all(fits)
        && slashes
        && parts.iter().all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// The command as a person would type it.
pub fn shown(command: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    let quote =
        |part: &String| if part.chars().all(safe) { part.clone() } else { format!("'{part}'") };
    let quoted = command.iter().map(quote);
    quoted.collect::<Vec<_>>().join(" ")
}

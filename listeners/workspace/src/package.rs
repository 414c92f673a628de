//! Finds the command that installs packages of a language. Runs nothing.

use crate::failure::{Code, Failure};
use crate::limits;

/// A language's package manager.
struct Manager {
    /// Names of the language, in lower case.
    languages: &'static [&'static str],
    command: &'static [&'static str],
    names: Names,
}

/// The permitted form of a package name, besides letters, digits, `.`, `_`, `-` and a version.
/// Addresses and file paths are never permitted, because they could install from anywhere.
#[derive(Clone, Copy)]
enum Names {
    Plain,
    /// The form `@scope/name`. Other names must not contain a slash.
    Scoped,
    /// The form `vendor/name`, or the path of a module.
    Path,
}

const MANAGERS: &[Manager] = &[
    Manager {
        languages: &["python", "python3", "py"],
        command: &["python3", "-m", "pip", "install", "--no-input"],
        names: Names::Plain,
    },
    Manager {
        languages: &["javascript", "typescript", "js", "ts", "node", "nodejs"],
        command: &["npm", "install", "--no-fund", "--no-audit"],
        names: Names::Scoped,
    },
    Manager { languages: &["rust"], command: &["cargo", "add"], names: Names::Plain },
    Manager { languages: &["go", "golang"], command: &["go", "get"], names: Names::Path },
    Manager { languages: &["ruby"], command: &["bundle", "add"], names: Names::Plain },
    Manager {
        languages: &["php"],
        command: &["composer", "require", "--no-interaction"],
        names: Names::Path,
    },
    Manager { languages: &["dart"], command: &["dart", "pub", "add"], names: Names::Plain },
];

/// Endings of names that package managers take for local files.
const ARCHIVES: [&str; 6] = [".whl", ".zip", ".gz", ".tgz", ".bz2", ".xz"];

/// The command that a proposal of an installation stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    pub packages: Vec<String>,
    /// The program and its arguments. No shell parses them.
    pub command: Vec<String>,
}

/// `list` is separated by commas; white space around names is not theirs.
pub fn install(language: &str, list: &str) -> Result<Install, Failure> {
    let wanted = language.trim().to_lowercase();
    let Some(manager) = MANAGERS.iter().find(|m| m.languages.contains(&wanted.as_str())) else {
        let known = MANAGERS.iter().filter_map(|m| m.languages.first().copied());
        let known = known.collect::<Vec<_>>().join(", ");
        let message = format!("there is no package manager for this language; known are {known}");
        return Err(Failure::new(Code::UnknownLanguage, message));
    };

    let packages: Vec<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if packages.is_empty() || packages.len() > limits::PACKAGES_MAX {
        let (count, most) = (packages.len(), limits::PACKAGES_MAX);
        let message = format!("package_list names {count} packages; 1 to {most} are taken");
        return Err(Failure::new(Code::BadPackage, message));
    }

    if let Some(bad) = packages.iter().find(|name| !is_name(name, manager.names)) {
        let shown: String = bad.chars().take(80).collect();
        let message = format!(
            "`{shown}` is not the name of a package, alone or with a version; addresses, paths and options are not taken"
        );
        return Err(Failure::new(Code::BadPackage, message));
    }

    let command = manager.command.iter().map(|part| (*part).to_owned());
    let command = command.chain(packages.iter().cloned()).collect();
    Ok(Install { packages, command })
}

fn is_name(text: &str, names: Names) -> bool {
    let is_version = |c: char| "@+~^<>=!*[]".contains(c);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = |c: char| plain(c) || is_version(c) || (c == '/' && !matches!(names, Names::Plain));
    let name = match names {
        Names::Scoped => text.strip_prefix('@').unwrap_or(text),
        _ => text,
    };

    let parts: Vec<&str> = name.split('/').collect();
    let slashes = match names {
        Names::Plain => parts.len() == 1,
        Names::Scoped => parts.len() == if text.starts_with('@') { 2 } else { 1 },
        Names::Path => true,
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
    let quoted = command.iter().map(|part| match part.chars().all(safe) {
        true => part.clone(),
        false => format!("'{part}'"),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

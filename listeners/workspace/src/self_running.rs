//! Files that other programs execute automatically. Writing such a file amounts to running a
//! command, so the write needs a person's approval like a command. Whether a write needs approval
//! depends only on the name of the file and the names of its directories.

/// Names of directories with configuration that is executed by editors, shells, agents, CI or
/// version control. A write to any file in such a directory needs approval.
const DIRECTORIES: &[&str] = &[
    ".aider",
    ".asdf",
    ".buildkite",
    ".bundle",
    ".bzr",
    ".cargo",
    ".circleci",
    ".claude",
    ".codex",
    ".composer",
    ".config",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".emacs.d",
    ".fleet",
    ".forgejo",
    ".gem",
    ".gemini",
    ".gitea",
    ".githooks",
    ".github",
    ".gitlab",
    ".hg",
    ".helix",
    ".husky",
    ".idea",
    ".jj",
    ".junie",
    ".kiro",
    ".lefthook",
    ".local",
    ".mise",
    ".nvim",
    ".nvm",
    ".opencode",
    ".pip",
    ".pyenv",
    ".qwen",
    ".rbenv",
    ".roo",
    ".rtx",
    ".rustup",
    ".ssh",
    ".svn",
    ".theia",
    ".vim",
    ".vs",
    ".vscode",
    ".vscode-insiders",
    ".vscode-server",
    ".windsurf",
    ".woodpecker",
    ".zed",
    "mise",
];

/// Names of files that other programs execute. In any directory, each write to such a file needs
/// approval.
const FILES: &[&str] = &[
    // Git: address and update command of a submodule, settings, and the file that marks a bare
    // repository.
    ".gitmodules",
    ".gitconfig",
    "head",
    // Files that a shell executes when it starts. See also `FILE_BEGINNINGS`. The names that stand
    // in both lists are also found by their short names.
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cshrc",
    ".envrc",
    ".kshrc",
    ".login",
    ".logout",
    ".profile",
    ".tcshrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    ".autoenv.zsh",
    ".tool-versions",
    // Files that editors and debuggers execute.
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".emacs",
    ".exrc",
    ".gdbinit",
    ".ghci",
    ".gvimrc",
    ".lldbinit",
    ".lvimrc",
    ".nvim.lua",
    ".nvimrc",
    ".vimrc",
    // Files that interpreters and package managers read at every start. A file of rustup may name
    // a directory whose `cargo` then runs.
    ".gemrc",
    ".irbrc",
    ".iex.exs",
    ".npmrc",
    ".octaverc",
    ".pdbrc",
    ".pdbrc.py",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    ".pnpmfile.cjs",
    ".pryrc",
    ".pythonrc",
    ".rprofile",
    ".yarnrc",
    ".yarnrc.yml",
    "rust-toolchain",
    "rust-toolchain.toml",
    "sitecustomize.py",
    "usercustomize.py",
    // Hooks of other version control tools.
    ".hgrc",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    // Tools and hooks of other agents.
    ".aider.conf.yml",
    ".mcp.json",
    "opencode.json",
    "opencode.jsonc",
    // Configurations of continuous integration, which take effect at the next push.
    ".appveyor.yml",
    ".cirrus.yml",
    ".drone.yml",
    ".gitlab-ci.yml",
    ".travis.yml",
    ".woodpecker.yml",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "jenkinsfile",
    // Containers that an editor opens, and media that a desktop opens.
    ".devcontainer.json",
    "autorun.inf",
];

/// Names of git hooks. Git executes files with these names in the directory that the setting
/// `core.hooksPath` names. The setting may name any directory.
const GIT_HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];

/// Beginnings of file names. A write to a file whose name has such a beginning needs approval,
/// because shells and managers of hooks and tools execute many files with such names.
const FILE_BEGINNINGS: &[&str] = &[
    ".bash",
    ".envrc.",
    ".lefthook",
    ".mise.",
    ".rtx.",
    ".z",
    "lefthook-local.",
    "lefthook.",
    "mise.",
];

/// Endings of file names. A write to a file whose name has such an ending needs approval.
const FILE_ENDS: &[&str] = &[".code-workspace", ".pth", ".sublime-project"];

/// Ending of the names that directories of bare git repositories have.
const BARE_REPOSITORY: &str = ".git";

/// Name of git's own directory, which no agent may write.
const GIT: &str = ".git";

/// Searches a path for a name that makes other programs execute the file automatically. Returns the
/// first name of this kind, or `None` if the path contains none.
pub fn find(names: &[String]) -> Option<&str> {
    let (file, directories) = names.split_last()?;
    let is_held = |name: &str, is_listed: fn(&str) -> bool| {
        is_listed(&plain(name)) || is_listed(&visible_part(name)) || is_hidden_beyond_ascii(name)
    };
    let directory = directories.iter().find(|name| is_held(name, is_held_directory));
    let held = directory.or_else(|| is_held(file, is_held_file).then_some(file));
    held.map(String::as_str)
}

fn is_held_directory(name: &str) -> bool {
    DIRECTORIES.iter().any(|held| is_same(name, held)) || name.ends_with(BARE_REPOSITORY)
}

/// Whether a write to a file with this name needs approval. Also true for a name in `DIRECTORIES`,
/// because some programs accept a file with that name instead of a directory.
fn is_held_file(name: &str) -> bool {
    let is_named = |names: &[&str]| names.iter().any(|held| is_same(name, held));
    is_named(FILES)
        || is_named(GIT_HOOKS)
        || is_named(DIRECTORIES)
        || FILE_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || FILE_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a file system may treat this name as the name of git's directory.
pub fn is_git(name: &str) -> bool {
    is_same(&plain(name), GIT) || is_same(&visible_part(name), GIT)
}

fn is_same(plain: &str, held: &str) -> bool {
    plain == held || is_short_name(plain, held)
}

/// Returns the name under which a lenient file system stores `name`. The result is in lower case.
/// It has no dots and spaces at the end, no name of an NTFS stream, and no code points that the
/// file system ignores.
pub fn plain(name: &str) -> String {
    let name = name.split([':', '\\']).next().unwrap_or(name);
    let kept = name.chars().filter(|c| !is_ignored(*c));
    let mut folded = String::new();
    for c in kept.flat_map(char::to_lowercase) {
        match folded_ascii(c) {
            Some(letters) => folded.push_str(letters),
            None => folded.push(c),
        }
    }
    folded.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns the ASCII letters to which file systems that fold cases by Unicode's rules fold a
/// character that lower case leaves unchanged. Returns `None` for any other character.
fn folded_ascii(c: char) -> Option<&'static str> {
    match c {
        'ſ' => Some("s"),
        'ß' => Some("ss"),
        '\u{FB00}' => Some("ff"),
        '\u{FB01}' => Some("fi"),
        '\u{FB02}' => Some("fl"),
        '\u{FB03}' => Some("ffi"),
        '\u{FB04}' => Some("ffl"),
        '\u{FB05}' | '\u{FB06}' => Some("st"),
        _ => None,
    }
}

/// Returns the plain name without the characters beyond ASCII that are neither letters nor digits.
/// File systems that fold cases by Unicode's rules ignore many of these characters, and no list of
/// them holds for all file systems.
fn visible_part(name: &str) -> String {
    let is_visible = |c: &char| c.is_ascii() || c.is_alphanumeric() && !is_filler(*c);
    plain(name).chars().filter(is_visible).collect()
}

/// Whether Unicode counts this character as a letter, although file systems may ignore it.
fn is_filler(c: char) -> bool {
    matches!(c, '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{3164}' | '\u{FFA0}')
}

/// Whether the plain name begins with a dot and the name has a character beyond ASCII. A file
/// system may fold such a character to ASCII letters, as it folds the ligature `\u{FB01}` to `fi`.
fn is_hidden_beyond_ascii(name: &str) -> bool {
    plain(name).starts_with('.') && !name.is_ascii()
}

/// Whether HFS+ ignores this code point when it compares names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200C}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}')
}

/// Whether `plain` is the short name that FAT and NTFS store beside the long name `held`. A short
/// name has up to six letters of the long name, a tilde and a number. NTFS also makes short names
/// of two letters and a hash.
fn is_short_name(plain: &str, held: &str) -> bool {
    let Some((letters, number)) = plain.split_once('~') else { return false };
    let (number, _) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let long = held.trim_start_matches('.');
    let long = long.split_once('.').map_or(long, |(base, _)| base).replace('.', "");
    let is_hashed = letters.len() == 6
        && letters.get(..2).is_some_and(|two| long.starts_with(two))
        && letters.bytes().skip(2).all(|b| b.is_ascii_hexdigit());
    let is_cut = letters.len() >= 3.min(long.len()) && long.starts_with(letters);
    is_number && (is_cut || is_hashed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn git_is_found_in_every_spelling() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git.",
            ".git ",
            ".git . .",
            ".g\u{200C}it",
            "\u{FEFF}.git",
            ".gi\u{206F}T",
            "git~1",
            "GIT~1",
            "git~12",
            ".git::$INDEX_ALLOCATION",
            ".git:x",
            ".git\\hooks",
            ".g\u{AD}it",
            ".git\u{200B}",
            "\u{FE0F}.GIT",
            "gi\u{AD}t~1",
            ".gi\u{3164}t",
        ] {
            assert!(is_git(name), "{name:?}");
        }

        let others = [".gitignore", "git", ".gitx", "x.git", "git~", "git~x", "~1"];
        for name in others.into_iter().chain(["проект.git", "日本.git"]) {
            assert!(!is_git(name), "{name:?}");
        }
    }

    #[test]
    fn what_runs_by_itself_is_found_wherever_it_stands_and_however_it_is_spelt() {
        for path in [
            ".gitmodules",
            "sub/.GITMODULES",
            "gitmod~1",
            "GI7EBA~1",
            ".envrc",
            "a/b/.EnvRC",
            ".envrc.local",
            ".bash_extra",
            "home/.BASH_completion",
            ".zpreztorc",
            ".zsh_aliases",
            ".vscode/tasks.json",
            "deep/.VSCODE/x/y",
            ".vscode",
            "vscode~1/tasks.json",
            ".github/workflows/ci.yml",
            ".husky/_/husky.sh",
            "scripts/pre-commit",
            "any/where/POST-CHECKOUT",
            ".Config/systemd/user/x.service",
            "mirror.git/config",
            "bare/HEAD",
            "x.code-workspace",
            "\u{202E}.bashrc",
            ".ba\u{17F}hrc",
            ".pre-commit-config.yaml",
            "lib/evil.pth",
            "Jenkinsfile",
            ".lefthook-local.toml",
            "LEFTHOOK-local.yml",
            ".mise.local.toml",
            "mise.production.toml",
            "mise/config.toml",
            ".rtx.local.toml",
            ".Rprofile",
            ".helix/languages.toml",
            ".kiro/settings/mcp.json",
            ".con\u{FB01}g/x",
            ".npmrc\u{AD}",
            "crates/Rust-Toolchain.toml",
            "rust-toolchain",
            ".bundle/plugin/index",
            ".pip/pip.conf",
            ".asdf/shims/ruby",
            ".gem/ruby/bin/rake",
            ".nvm/nvm.sh",
            ".pyenv/shims/python3",
            ".rbenv/shims/ruby",
            ".rustup/toolchains/stable/bin/cargo",
            "\u{200B}.npmrc",
            "le\u{AD}fthook.yml",
            ".\u{E9}t\u{E9}",
            "Jenkins\u{FB01}le",
            "po\u{FB06}-checkout",
            ".\u{FB01}x",
            "sitecu\u{FB06}omize.py",
            "проект.git/config",
        ] {
            assert!(find(&names(path)).is_some(), "{path}");
        }

        for path in [
            "src/hooks/use_state.ts",
            ".gitignore",
            ".gitattributes",
            "README.md",
            "vscode/tasks.json",
            "update.py",
            "src/head.rs",
            "Makefile",
            "package.json",
            "build.rs",
            "conftest.py",
            "a~1",
            "~",
            "env/rc",
            ".zip.d/notes",
            "bash_extra",
            "\u{E9}t\u{E9}.txt",
        ] {
            assert_eq!(find(&names(path)), None, "{path}");
        }
    }
}

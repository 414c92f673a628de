//! Stored bytes of every format that this program writes. `tests/data/fixtures/README.md` explains
//! how to change a format on purpose.

mod control;
mod journals;
mod omissions;
mod recording;
mod records;
mod views;
mod wire_versions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use journals::{compared_journals, stored_journals};

/// Defines a list of the names of all variants of an enum, and a function that returns the name of
/// a variant. The `match` in this function ensures that the list is complete.
macro_rules! variants {
    ($of:ident, $all:ident, $type:ident: $($name:ident)*) => {
        const $all: &[&str] = &[$(stringify!($name)),*];

        fn $of(value: &$type) -> &'static str {
            match value {
                $($type::$name { .. } => stringify!($name),)*
            }
        }
    };
}
use variants;

/// The directory of the fixtures.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fixtures")
}

/// A file with one line for each stored text: a name, a tab, and the text.
pub struct Lines {
    path: PathBuf,
    stored: BTreeMap<String, String>,
}

impl Lines {
    pub fn read(file: &str) -> Self {
        let path = directory().join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut stored = BTreeMap::new();
        for line in text.lines() {
            let (name, written) = line.split_once('\t').expect("a name and a tab");
            let before = stored.insert(name.to_owned(), written.to_owned());
            assert!(before.is_none(), "{}: `{name}` stands there twice", path.display());
        }
        Self { path, stored }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stored.iter().map(|(name, line)| (name.as_str(), line.as_str()))
    }

    /// Compares the text that is written today with the stored text. `read_only` contains names
    /// that no program writes any more, each with the reason. `FIXTURES=add` adds missing names;
    /// stored text is never changed.
    #[track_caller]
    pub fn hold(mut self, written: &[(String, String)], read_only: &[(&str, &str)]) {
        let mut wrong = Vec::new();
        let is_adding = std::env::var_os("FIXTURES").is_some_and(|value| value == "add");
        for (name, line) in written {
            assert!(!line.contains('\n'), "`{name}` is more than a line");
            match self.stored.get(name) {
                Some(stored) if stored == line => {}
                Some(stored) => wrong.push(format!(
                    "`{name}` is written in another form:\n  stored: {stored}\n  today:  {line}"
                )),
                None if is_adding => {
                    self.stored.insert(name.clone(), line.clone());
                }
                None => wrong.push(format!("`{name}` has no fixture")),
            }
        }
        for name in self.stored.keys() {
            let is_written = written.iter().any(|(known, _)| known == name);
            let is_read_only = read_only.iter().any(|(known, _)| known == name);
            if is_written == is_read_only {
                wrong.push(format!("`{name}` is either written today or read only, and not both"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}:\n{}\nSee tests/data/fixtures/README.md.",
            self.path.display(),
            wrong.join("\n")
        );
        if is_adding {
            let lines = self.stored.iter().map(|(name, line)| format!("{name}\t{line}\n"));
            std::fs::write(&self.path, lines.collect::<String>()).unwrap();
        }
    }
}

/// Checks that every variant has a case.
#[track_caller]
fn covers(all: &[&str], cases: impl Iterator<Item = &'static str>) {
    let cases: Vec<_> = cases.collect();
    let missing: Vec<_> = all.iter().filter(|name| !cases.contains(name)).collect();
    assert!(missing.is_empty(), "no fixture holds {missing:?}");
}

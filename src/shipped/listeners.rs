//! Listeners that come with the program, and the files that the installation of such a listener
//! writes.

use super::projects::PYTHON_KIT;
use super::{ListenerManifest, MANIFEST, ShippedFile, WrittenFile};

/// A listener that `organism listener install` writes out.
#[derive(Debug)]
pub struct ShippedListener {
    pub name: &'static str,
    pub description: &'static str,
    /// Program that the listener needs besides its own files; `None` if it needs no program. This
    /// program is installed together with organism.
    pub program: Option<&'static str>,
    files: &'static [ShippedFile],
    /// Lines to copy into a config, in which `DIR` stands for the directory of the listener's
    /// files. Empty for a kit, which is a library for writing listeners and no listener itself.
    pub config: &'static str,
}

impl ShippedListener {
    /// Returns the files of the listener, without the manifest.
    pub fn files(&self) -> &'static [ShippedFile] {
        self.files
    }

    /// Returns the files of the listener. The manifest is the last file.
    pub fn written_files(&self) -> Vec<WrittenFile> {
        let manifest = WrittenFile {
            path: MANIFEST.to_owned(),
            text: ListenerManifest::of(self).to_text(),
            is_executable: false,
        };
        self.files.iter().map(WrittenFile::from).chain([manifest]).collect()
    }
}

/// Returns the shipped listener with this name; `None` if there is no such listener.
pub fn listener(name: &str) -> Option<&'static ShippedListener> {
    LISTENERS.iter().find(|listener| listener.name == name)
}

macro_rules! files {
    ($name:literal: $($path:literal),+ $(; $($more:expr),+)?) => {
        &[
            $(ShippedFile::new(
                $path,
                include_str!(concat!("../../listeners/", $name, "/", $path)),
            ),)+
            $($($more,)+)?
        ]
    };
}

/// The Python kit, as a file that is installed beside a listener in Python.
const KIT_BESIDE: ShippedFile = ShippedFile::new("organism_listener.py", PYTHON_KIT);

/// All shipped listeners, and the kit for listeners in Python.
pub const LISTENERS: &[ShippedListener] = &[
    ShippedListener {
        name: "calculator",
        description: "works out arithmetic exactly; in Python",
        program: None,
        files: files!("calculator": "README.md", "calculator.py", "evaluate.py",
            "schema/calculator.xsd"; KIT_BESIDE),
        config: r#"[listeners.calculator]
description = "Works out arithmetic exactly."
command = ["python3", "DIR/calculator.py"]
schema = "DIR/schema/calculator.xsd"
accepts = ["calculate"]
replies = ["result", "calculation-failed"]
"#,
    },
    ShippedListener {
        name: "code-search",
        description: "searches and reads the files of a directory",
        program: Some("code-search"),
        files: files!("code-search": "README.md", "schema/code-search.xsd"),
        config: r#"[listeners.code-search]
description = "Searches and reads the project's files."
command = ["code-search", "${ROOT:-.}"]
schema = "organism:code-search.xsd"
accepts = ["search", "query", "extract"]
replies = ["search-results", "query-results", "extract-result", "tool-error"]
"#,
    },
    ShippedListener {
        name: "intake",
        description: "takes, checks and books invoices in UBL 2.1; in Python",
        program: None,
        files: files!("intake": "README.md", "book.py", "checks.py", "ledger.py", "reception.py",
            "rejects.py", "totals.py", "ubl.py", "words.py", "examples/full.xml",
            "schema/CodeLists.xsd", "schema/CommonAggregateComponents.xsd",
            "schema/CommonBasicComponents.xsd", "schema/Invoice.xsd", "schema/intake.xsd";
            KIT_BESIDE),
        config: r#"[listeners.reception]
description = "Checks each invoice as a document and hands it on."
command = ["python3", "DIR/reception.py"]
schema = ["DIR/schema/Invoice.xsd", "DIR/schema/intake.xsd"]
accepts = ["Invoice"]
forward = true
peers = ["totals", "rejects"]
replies = ["Invoice", "rejection"]

[listeners.totals]
description = "Adds each invoice up; has it booked if it comes out as stated, else rejected."
command = ["python3", "DIR/totals.py"]
schema = ["DIR/schema/Invoice.xsd", "DIR/schema/intake.xsd"]
accepts = ["Invoice"]
forward = true
peers = ["ledger", "rejects"]
replies = ["booking", "rejection"]

[listeners.ledger]
description = "Books each invoice once."
command = ["python3", "DIR/ledger.py", "${INTAKE_DATA:-intake-data}/ledger.jsonl"]
schema = "DIR/schema/intake.xsd"
accepts = ["booking"]
forward = true
peers = ["rejects"]
replies = ["invoice-accepted", "rejection"]

[listeners.rejects]
description = "Files each invoice that is turned down, and answers with the reason."
command = ["python3", "DIR/rejects.py", "${INTAKE_DATA:-intake-data}/rejects.jsonl"]
schema = "DIR/schema/intake.xsd"
accepts = ["rejection"]
replies = ["invoice-rejected"]
"#,
    },
    ShippedListener {
        name: "python",
        description: "no listener: the kit for listeners in Python, to put beside your program",
        program: None,
        files: files!("python": "README.md", "organism_listener.py", "organism_bus.py",
            "organism_environment.py", "pyproject.toml"),
        config: "",
    },
    ShippedListener {
        name: "shell-echo",
        description: "says a text again: how little a listener needs; in bash",
        program: None,
        files: files!("shell-echo": "README.md", "schema/shell-echo.xsd";
            ShippedFile::program("shell-echo", include_str!("../../listeners/shell-echo/shell-echo"))),
        config: r#"[listeners.shell-echo]
description = "Says a text again."
command = ["DIR/shell-echo"]
schema = "DIR/schema/shell-echo.xsd"
accepts = ["say"]
replies = ["echo"]
"#,
    },
    ShippedListener {
        name: "travel",
        description: "reserves seats and rooms in a file, to try undo; in Python",
        program: None,
        files: files!("travel": "README.md", "travel.py", "schema/travel.xsd"; KIT_BESIDE),
        config: r#"[listeners.flights]
description = "Reserves and cancels seats."
command = ["python3", "DIR/travel.py", "ledger.jsonl"]
schema = "DIR/schema/travel.xsd"
accepts = ["reserve-seat", "cancel-seat"]
replies = ["seat-reserved", "seat-cancelled", "reservation-failed"]
attempts = 1
undo.reserve-seat = { payload = "cancel-seat", with = { number = "reply/number" } }
"#,
    },
    ShippedListener {
        name: "workspace",
        description: "changes the files of a directory and runs commands in it",
        program: Some("workspace"),
        files: files!("workspace": "README.md", "schema/workspace.xsd";
            ShippedFile::new("schema/actions.xsd", include_str!("../../schemas/actions.xsd"))),
        config: r#"[listeners.workspace]
description = "Changes the project's files."
command = ["workspace", "${WORKSPACE:-.}"]
schema = ["organism:actions.xsd", "organism:workspace.xsd"]
accepts = ["proposed_file_replace_substring", "proposed_file_replace", "show-changes"]
replies = ["changes-applied", "action-failed", "workspace-changes"]
approval = "always"
previews = true
"#,
    },
];

//! The example workflows, converted into projects.
//!
//! The examples refer to files of the source tree. A project made from an example has its own
//! `organism.toml` and its own listeners beneath `listeners/`. Its config names shipped schemas
//! instead of schema files of the source tree.

use super::listeners::listener;
use super::projects::MODEL_LINES;
use super::{CREW, ShippedFile, WrittenFile};

/// Name of the crew workflow. Its files are written unchanged into a project, because they do not
/// refer to the source tree.
const CREW_NAME: &str = "crew";

/// An example workflow that `organism init --workflow` writes out.
#[derive(Debug)]
pub struct WorkflowProject {
    pub name: &'static str,
    pub description: &'static str,
    files: &'static [ShippedFile],
    /// Listener whose files are written into the project; `None` if the project needs no listener.
    listener: Option<&'static str>,
    /// Replacements for this example: pairs of an old and a new text. Further replacements apply to
    /// all examples.
    replaced: &'static [(&'static str, &'static str)],
}

macro_rules! example {
    ($name:literal: $($path:literal),*) => {
        &[
            ShippedFile::new("organism.toml", include_str!(concat!("../../config/", $name, ".toml"))),
            $(ShippedFile::new($path, include_str!(concat!("../../config/", $path))),)*
        ]
    };
}

/// The files of the research example. They include the source files in which the example searches.
const RESEARCH: &[ShippedFile] = &[
    ShippedFile::new("organism.toml", include_str!("../../config/research.toml")),
    ShippedFile::new(
        "research/recording.toml",
        include_str!("../../config/research/recording.toml"),
    ),
    ShippedFile::new("src/clock.rs", include_str!("../clock.rs")),
    ShippedFile::new("src/limits.rs", include_str!("../limits.rs")),
];

/// All workflows that a project can start from.
pub const WORKFLOWS: &[WorkflowProject] = &[
    WorkflowProject {
        name: "booking",
        description: "programs alone: two calls at once, and an undo where the payment fails",
        files: example!("booking": "booking/cases.toml"),
        listener: Some("travel"),
        replaced: &[("config/booking-ledger", "booking-ledger")],
    },
    WorkflowProject {
        name: "code-review",
        description: "one item for each changed file, typed findings, and a supervisor",
        files: example!("code-review": "code-review/change.diff", "code-review/recording.toml",
            "coder/project/greeting.py", "coder/project/test_greeting.py"),
        listener: None,
        replaced: &[],
    },
    WorkflowProject {
        name: CREW_NAME,
        description: "planner, coder and reviewer: a loop, a question and approvals (as --crew)",
        files: CREW,
        listener: None,
        replaced: &[],
    },
    WorkflowProject {
        name: "decision",
        description: "two agents on one goal at once, who then read each other",
        files: example!("decision": "decision/recording.toml"),
        listener: None,
        replaced: &[],
    },
    WorkflowProject {
        name: "documents",
        description: "a vote of three readings, a person where they differ, and a ledger",
        files: example!("documents": "documents/cases.toml", "documents/invoice.txt",
            "documents/recording.toml"),
        listener: Some("intake"),
        replaced: &[("config/documents-ledger", "documents-ledger")],
    },
    WorkflowProject {
        name: "essay",
        description: "a loop of writer and critic that goes on with the last draft",
        files: example!("essay": "essay/cases.toml", "essay/recording.toml"),
        listener: None,
        replaced: &[],
    },
    WorkflowProject {
        name: "research",
        description: "roles that an agent names at run time, verification, delegation",
        files: RESEARCH,
        listener: None,
        replaced: &[
            ("${ROOT:-..}", "${ROOT:-.}"),
            (
                "is the one above this file's, which the recorded turns are about.",
                "is this one. The recorded turns are about src/, two files of organism's own source.",
            ),
        ],
    },
];

/// Returns the workflow with this name; `None` if there is no such workflow.
pub fn workflow(name: &str) -> Option<&'static WorkflowProject> {
    WORKFLOWS.iter().find(|workflow| workflow.name == name)
}

impl WorkflowProject {
    /// Returns the files of the project and of its listener.
    pub fn written_files(&self) -> Vec<WrittenFile> {
        let own = self.files.iter().map(|file| {
            let mut written = WrittenFile::from(file);
            if self.name != CREW_NAME && file.path.ends_with(".toml") {
                written.text = self.without_source_tree(file.text);
            }
            written
        });

        let installed = self.listener.and_then(listener);
        let of_listener = installed.into_iter().flat_map(|listener| {
            let files = listener.written_files().into_iter();
            files.map(|file| WrittenFile {
                path: format!("listeners/{}/{}", listener.name, file.path),
                ..file
            })
        });
        own.chain(of_listener).collect()
    }

    /// Removes the references to the source tree from `text`, which is the text of a file. Adds the
    /// lines for real models (`MODEL_LINES`) to the config.
    fn without_source_tree(&self, text: &str) -> String {
        let name = self.name;
        let mut text = text
            .replace(&format!(" --config config/{name}.toml"), "")
            .replace(&format!("config/{name}/"), &format!("{name}/"))
            .replace(&format!("\"../{name}.toml\""), "\"../organism.toml\"")
            .replace("\"../listeners/code-search/schema/", "\"organism:")
            .replace("\"../listeners/", "\"listeners/")
            .replace("; docs/AGENTS.md describes the form.", ".")
            .replace("docs/CONFIG.md", "those beneath it");
        for (from, to) in self.replaced {
            text = text.replace(from, to);
        }

        let mut out = String::new();
        for line in text.lines() {
            out.push_str(line);
            out.push('\n');
            if line.starts_with("models.voice = ") {
                for model in MODEL_LINES.lines() {
                    out.push_str(&model.replace("# voice", "# models.voice"));
                    out.push('\n');
                }
            }
        }
        out
    }

    /// Returns the commands that a user types to try the project. They are in the comment at the
    /// beginning of the project's config.
    pub fn commands(&self) -> Vec<String> {
        let files = self.written_files();
        let config = files.iter().find(|file| file.path == "organism.toml");
        let lines = config.map(|file| file.text.as_str()).unwrap_or_default().lines();
        let head = lines.take_while(|line| line.starts_with('#'));
        head.filter_map(|line| line.strip_prefix("#     ")).map(str::to_owned).collect()
    }
}

//! The payloads that the workspace accepts, parsed into Rust values. Each payload has already
//! passed its schema.

use organism::xml::element::Element;

/// A request to the workspace, parsed from the payload of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceRequest {
    Set(ProposalSet),
    Show { from: Option<u64> },
    Undo,
    Install { proposal: String },
}

/// File changes and commands that one payload proposes. Either all changes are made or none, and
/// the commands run after the changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProposalSet {
    pub summary: Option<String>,
    pub edits: Vec<FileEdit>,
    pub steps: Vec<CommandStep>,
    /// Whether the payload has a name that always needs a person's approval, whatever the config
    /// states.
    pub is_held: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    pub path: String,
    pub kind: EditKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditKind {
    Substring { old: String, new: String },
    Replace { body: String },
    Insert { line: String, body: String },
    Create { body: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandStep {
    Command { id: Option<String>, directory: Option<String>, text: String },
    Packages { language: String, list: String },
}

impl WorkspaceRequest {
    /// Parses a payload. Returns `None` if the workspace does not accept the payload.
    pub fn read(payload: &str) -> Option<Self> {
        let element = Element::read(payload)?;

        Some(match element.local_name() {
            "proposed_actions" => Self::Set(ProposalSet {
                summary: owned(&element, "summary"),
                edits: element.children().filter_map(edit).collect(),
                steps: element.children().filter_map(step).collect(),
                is_held: false,
            }),
            "replace-dangerous-file" => {
                let body = crate::edit::body(&element.text()).to_owned();
                let path = owned(&element, "file_path")?;
                Self::Set(ProposalSet {
                    summary: owned(&element, "change_summary"),
                    edits: vec![FileEdit { path, kind: EditKind::Replace { body } }],
                    is_held: true,
                    ..ProposalSet::default()
                })
            }
            "show-changes" => Self::Show { from: element.attribute("from_set").map(set_number) },
            "undo-changes" => Self::Undo,
            "install-packages" => Self::Install { proposal: owned(&element, "proposal")? },
            _ => match edit(&element) {
                Some(edit) => {
                    let summary = owned(&element, "change_summary");
                    Self::Set(ProposalSet { summary, edits: vec![edit], ..ProposalSet::default() })
                }
                None => {
                    let steps = vec![step(&element)?];
                    Self::Set(ProposalSet { steps, ..ProposalSet::default() })
                }
            },
        })
    }
}

fn edit(element: &Element) -> Option<FileEdit> {
    let child = |name: &str| element.child(name).map(Element::text).unwrap_or_default();
    let body = || crate::edit::body(&element.text()).to_owned();
    let kind = match element.local_name() {
        "proposed_file_replace_substring" | "str_replace" => {
            EditKind::Substring { old: child("old_str"), new: child("new_str") }
        }
        "proposed_file_replace" => EditKind::Replace { body: body() },
        "proposed_file_insert" => {
            EditKind::Insert { line: owned(element, "line_number")?, body: body() }
        }
        "create_file" => EditKind::Create { body: body() },
        _ => return None,
    };

    let path = owned(element, "file_path").or_else(|| owned(element, "path"))?;
    Some(FileEdit { path, kind })
}

fn step(element: &Element) -> Option<CommandStep> {
    let directory = || owned(element, "working_directory").or_else(|| owned(element, "exec_dir"));
    Some(match element.local_name() {
        "proposed_shell_command" | "shell" => CommandStep::Command {
            id: owned(element, "id"),
            directory: directory(),
            text: element.text(),
        },
        "proposed_package_install" => CommandStep::Packages {
            language: owned(element, "language")?,
            list: owned(element, "package_list")?,
        },
        _ => return None,
    })
}

/// Parses the number of a set, which the schema declares as `xs:positiveInteger`. A number that is
/// too large for the type becomes its largest value, because no set has this number.
fn set_number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(u64::MAX)
}

fn owned(element: &Element, name: &str) -> Option<String> {
    element.attribute(name).map(str::to_owned)
}

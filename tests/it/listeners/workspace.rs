//! The workspace listener in an organism: its payloads, proposals of models, crashes and
//! redelivery.

mod agents;
mod crashes;
mod words;

use std::path::{Path, PathBuf};

use crate::organism::{CommandOutput, House};

const ACTIONS: &str = "https://xml-pipeline.org/ns/actions/v1";
const WORKSPACE: &str = "https://xml-pipeline.org/ns/workspace/v1";

/// Config line with the payloads that the workspace accepts: proposals of changes, and requests to
/// show or undo changes.
const FILES: &str = r#"accepts = ["proposed_file_replace_substring", "proposed_file_replace", "proposed_file_insert", "proposed_actions", "str_replace", "create_file", "show-changes", "undo-changes"]"#;
const ALL: &str = r#"accepts = ["proposed_file_replace_substring", "proposed_file_replace", "proposed_file_insert", "proposed_shell_command", "proposed_package_install", "proposed_actions", "shell", "str_replace", "create_file", "show-changes", "undo-changes", "install-packages"]"#;
const REPLIES: &str = r#"replies = ["changes-applied", "command-result", "install-proposed", "action-failed", "workspace-changes"]"#;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The config sections of a workspace `work` that runs `command`.
fn listener(name: &str, command: &str, accepts: &str) -> String {
    let root = project().display();
    format!(
        "[listeners.{name}]\ncommand = {command}\n\
         schema = [\"{root}/schemas/actions.xsd\", \"{root}/listeners/workspace/schema/workspace.xsd\"]\n\
         approval = \"never\"\n{accepts}\n{REPLIES}\n\n"
    )
}

fn direct() -> &'static str {
    r#"["workspace", "--state", "memory", "work"]"#
}

/// A house with a client whose only peer is the workspace.
fn house(command: &str) -> House {
    let desk = "[organism]\nname = \"talk\"\n\n[clients.desk]\npeers = [\"workspace\"]\n\n";
    housed(&format!("{desk}{}", listener("workspace", command, ALL)))
}

fn housed(config: &str) -> House {
    let program = Path::new(env!("CARGO_BIN_EXE_organism")).with_file_name("workspace");
    assert!(program.exists(), "build it first: cargo build -p workspace");
    let house = House::with(config);
    std::fs::create_dir(house.path("work")).unwrap();
    house
}

fn file(house: &House, path: &str) -> PathBuf {
    house.path("work").join(path)
}

fn read(house: &House, path: &str) -> String {
    std::fs::read_to_string(file(house, path)).unwrap()
}

fn ask(house: &House, payload: &str) -> CommandOutput {
    let said = house.send_text(payload, &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

fn action(name: &str, attributes: &str, content: &str) -> String {
    format!("<{name} xmlns=\"{ACTIONS}\" {attributes}>{content}</{name}>")
}

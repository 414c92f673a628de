//! Paths that a case lists in `never`, for each kind of goal.

use super::{CommandOutput, HEAD, tested};

/// A workflow that has a goal of each kind.
const FORMS: &str = r#"
organism.name = "talk"
clients.desk.peers = ["tour"]
models.voice = { provider = "openai", model = "m", api_key_env = "NO_SUCH_KEY" }
agents.writer = { model = "voice", peers = ["back"] }

[listeners.back]
command = ["./no-such-program"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[workflows.tour]
input = { topic = ["text"] }
output = "last"
[workflows.tour.goals]
plain = { agent = "writer", prompt = "Begin." }
panel = { all = ["writer", "writer"], prompt = "Compare." }
study = { each = "input/topic", agent = "writer", prompt = "Read {{item}}.", supervisor = "writer", supervise = "Correct what is wrong." }
improve = { loop = ["draft", "pick"], until = { judge = "writer", prompt = "Is it good?" }, max = 3 }
improve-more = { agent = "writer", prompt = "Improve." }
draft = { agent = "writer", prompt = "Write." }
pick = { choose = [{ when = "contains(draft, 'x')", run = ["extra"] }] }
extra = { agent = "writer", prompt = "Add." }
last = { agent = "writer", prompt = "End." }
"#;

/// Tests the workflow of `FORMS` with a case that gives no answers and lists these paths in
/// `never`. Returns the output of the command.
fn tested_forms(paths: &[&str]) -> CommandOutput {
    let head = HEAD.replace("input.topic = \"light\"", "input.topic = [\"light\"]");
    tested(FORMS, &format!("{head}[case.expect]\nnever = {paths:?}\n"))
}

#[test]
fn a_path_at_which_no_call_can_stand_is_refused_in_never() {
    let paths = [
        "plain_1",
        "plain_*",
        "plain_supervisor",
        "plain_judge",
        "plain-x",
        "plain/nobody",
        "plain/no*",
        "undo_plain_1",
        "panel_1",
        "panel_back",
        "panel/*",
        "study_first",
        "study_0",
        "study_1_judge",
        "study/*",
        "improve_draft",
        "improve_1",
        "draft_x",
        "pick",
        "pick_1",
        "extra_1_2",
    ];
    let tested = tested_forms(&paths);
    assert_eq!(tested.code, Some(65), "{tested:?}");
    for path in paths {
        let problem = format!("no call can have the path `{path}`");
        assert!(tested.err.contains(&problem), "{path}: {tested:?}");
    }
}

#[test]
fn each_form_of_a_goal_has_its_paths_in_never() {
    let paths = [
        "panel",
        "plain-2",
        "plain-*",
        "plain/back",
        "plain/*",
        "plain/ba*",
        "plain.inner",
        "undo_plain/back",
        "panel_writer",
        "panel_writer-2",
        "panel_wr*",
        "panel/back",
        "study",
        "study_1",
        "study_12-1/back",
        "study_1_supervisor",
        "study_*",
        "improve",
        "improve_1_judge",
        "improve_*",
        "improve-m*",
        "pan*",
        "undo_dra*",
        "draft",
        "draft_1",
        "draft_3-1",
        "draft_*",
        "extra_2",
        "undo_draft*",
    ];
    // It is a mistake of the case that it has no answer, and none of its file.
    let tested = tested_forms(&paths);
    assert_eq!(tested.code, Some(1), "{tested:?}");
    assert!(!tested.err.contains("no call can have the path"), "{tested:?}");
}

//! `organism workflow test` runs cases of a workflow with agents, listeners and a person.

mod never;
mod reports;

use std::process::Stdio;

use super::trial_listeners::{NATS, SECRETS, SPY};
use super::{CommandOutput, House, until};

const CONFIG: &str = r#"
organism.name = "talk"
clients.desk.peers = ["tour"]
humans.owner.description = "Owns the tour."
models.voice = { provider = "openai", model = "m", api_key_env = "NO_SUCH_KEY" }
agents.writer = { model = "voice", peers = ["back"], timeout = "1h" }

[listeners.back]
command = ["./player.pl", "back", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
timeout = "1h"

[listeners.solo]
command = ["./no-such-program"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 1
approval = "always"

[workflows.tour]
input = { topic = "text" }
output = "draft"
[workflows.tour.goals]
draft = { agent = "writer", prompt = "Write about {{input/topic}}." }
ask = { ask = "owner", prompt = "Publish it?", timeout = "1h" }
tell = { listener = "solo", payload = "ping", with = { n = "'1'" } }
"#;

const HEAD: &str = r#"config = "organism.toml"

[[case]]
name = "the tour"
workflow = "tour"
input.topic = "light"
"#;

const ANSWERS: &str = r#"
[case.answers]
draft = ["<hold><n>4</n></hold>", "A text."]
"draft/back" = "<held><n>4</n></held>"
ask = "<ask><decision>continue</decision></ask>"
tell = "<pong><n>1</n></pong>"
"#;

const EXPECT: &str = r#"
[case.expect]
output = "A text."
payloads."draft/back" = "<hold><n>4</n></hold>"
"#;

fn house(config: &str, case: &str) -> House {
    let house = House::with(config);
    house.write("cases.toml", case);
    house
}

fn tested(config: &str, case: &str) -> CommandOutput {
    house(config, case).organism(&["workflow", "test", "cases.toml"])
}

/// A workflow in which judges decide a loop and a choice, and a case of it.
const JUDGED: &str = r#"
organism.name = "talk"
clients.desk.peers = ["tour"]
models.voice = { provider = "openai", model = "m", api_key_env = "NO_SUCH_KEY" }
agents.writer = { model = "voice" }

[workflows.tour]
input = { topic = "text" }
output = "draft"
[workflows.tour.goals]
improve = { loop = ["draft"], until = { judge = "writer", prompt = "Good?" }, max = 2 }
draft = { agent = "writer", prompt = "Write about {{input/topic}}." }
route = { choose = [{ when = { judge = "writer", prompt = "Too long?" }, run = ["cut"] }] }
cut = { agent = "writer", prompt = "Cut it." }
"#;

const JUDGED_CASE: &str = r#"
[case.answers]
draft_1 = "A text."
improve_1_judge = "<judgement>no</judgement>"
draft_2 = "A better text."
improve_2_judge = "<judgement>yes</judgement>"
route_judge = "<judgement>no</judgement>"

[case.expect]
output = "A better text."
goals.route = "skipped"
never = ["cut"]
"#;

/// Returns the case with `to` in place of `from`.
fn case_with(from: &str, to: &str) -> String {
    let case = format!("{HEAD}{ANSWERS}{EXPECT}");
    assert!(case.contains(from), "{from}");
    case.replacen(from, to, 1)
}

#[track_caller]
fn assert_fails(tested: &CommandOutput, parts: &[&str]) {
    assert_eq!(tested.code, Some(1), "{tested:?}");
    assert!(tested.out.ends_with("0 passed, 1 failed\n"), "{tested:?}");
    for part in parts {
        assert!(tested.err.contains(part), "{part} in {}", tested.err);
    }
}

#[test]
fn a_case_answers_for_models_programs_and_people() {
    let house = house(CONFIG, &format!("{HEAD}{ANSWERS}{EXPECT}"));
    let tested = house.organism(&["workflow", "test", "cases.toml", "--json"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
    let [line] = &tested.json()[..] else { panic!("{tested:?}") };
    assert_eq!(line["passed"], true);
    assert_eq!(line["case"], "the tour");
    assert!(!house.data().exists(), "the journal of the project is not touched");
    assert!(!house.state().exists(), "nor is its state");
}

/// Asserts that a run fails with this code if the call at `path` gets `turn` as its answer.
fn assert_fault(path: &str, turn: &str, code: &str) {
    let answers: String = ANSWERS
        .lines()
        .map(|line| match line.split_once(" = ") {
            Some((key, _)) if key.trim_matches('"') == path => format!("{key} = {turn}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // What comes after the fault is not reached.
    let order = ["draft", "draft/back", "ask", "tell"];
    let reached = order.iter().position(|known| *known == path).unwrap();
    let is_reached = |line: &&str| {
        let key = line.split(" = ").next().unwrap_or_default().trim_matches('"');
        order.iter().position(|known| *known == key).is_none_or(|at| at <= reached)
    };
    let answers: String =
        answers.lines().filter(is_reached).map(|line| format!("{line}\n")).collect();
    let goal = path.split('/').next().unwrap();
    let expect = format!("[case.expect]\nfailed = {{ goal = \"{goal}\", code = \"{code}\" }}\n");
    let tested = tested(CONFIG, &format!("{HEAD}{answers}{expect}"));
    assert_eq!(tested.code, Some(0), "{path} {turn}: {tested:?}");
}

#[test]
fn a_fault_at_an_agents_goal_fails_it_with_its_code() {
    for code in [
        "timeout",
        "listener-failed",
        "undeliverable",
        "unknown-outcome",
        "budget-spent",
        "cancelled",
    ] {
        assert_fault("draft", &format!("{{ fail = \"{code}\" }}"), code);
    }
}

#[test]
fn a_fault_at_a_listener_fails_its_goal_with_its_code() {
    for code in ["timeout", "listener-failed", "undeliverable", "unknown-outcome", "denied"] {
        assert_fault("tell", &format!("{{ fail = \"{code}\" }}"), code);
    }
}

#[test]
fn a_fault_at_a_question_fails_its_goal_with_its_code() {
    for code in ["timeout", "denied", "cancelled"] {
        assert_fault("ask", &format!("{{ fail = \"{code}\" }}"), code);
    }
}

#[test]
fn an_agent_goes_on_after_a_fault_of_its_tool() {
    let case = case_with("\"<held><n>4</n></held>\"", "{ fail = \"timeout\" }");
    let tested = tested(CONFIG, &case);
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

#[test]
fn a_broken_definition_fails_its_case_where_it_differs() {
    let case =
        case_with("[case.expect]", "[case.expect]\ndocuments.draft.contains = \"about light\"");
    let working = tested(CONFIG, &case);
    assert_eq!(working.code, Some(0), "{working:?}");

    let broken = tested(&CONFIG.replace("Write about", "Write of"), &case);
    let parts = ["cases.toml:15:28: case-failed", "the document at `draft` does not hold this"];
    assert_fails(&broken, &parts);

    let broken = tested(&CONFIG.replace("output = \"draft\"", "output = \"tell/n\""), &case);
    assert_fails(&broken, &["the output differs in line 1: expected `A text.`, got `1`"]);
}

#[test]
fn a_call_without_an_answer_is_named() {
    let unanswered = tested(CONFIG, &case_with("tell = ", "tel = "));
    assert_eq!(unanswered.code, Some(65), "{unanswered:?}");
    assert!(unanswered.err.contains("did you mean `tell`?"), "{unanswered:?}");

    let unanswered =
        tested(CONFIG, &case_with("ask = \"<ask><decision>continue</decision></ask>\"\n", ""));
    assert_fails(&unanswered, &["answer-missing", "`owner` is called at `ask`", "add ask = "]);

    let mistyped =
        tested(CONFIG, &case_with("\"draft/back\" = \"<held>", "\"draft/bakc\" = \"<held>"));
    assert_fails(
        &mistyped,
        &["`back` is called at `draft/back`", "did you mean it by `draft/bakc`"],
    );

    let once = case_with("[\"<hold><n>4</n></hold>\", \"A text.\"]", "\"<hold><n>4</n></hold>\"");
    assert_fails(&tested(CONFIG, &once), &["`writer` is called at `draft` once more"]);
}

#[test]
fn a_missing_answer_is_not_confused_with_that_of_another_call_that_waits() {
    let twice = "draft = { all = [\"writer\", \"writer\"], vote = { by = \"last-line\" }, prompt = \"Ship {{input/topic}}?\" }";
    let config = CONFIG.replace(
        "draft = { agent = \"writer\", prompt = \"Write about {{input/topic}}.\" }",
        twice,
    );
    let case = format!(
        "{HEAD}\n[case.answers]\ndraft_writer = \"ship\"\n\n[case.expect]\noutput = \"ship\"\n"
    );
    let tested = tested(&config, &case);
    assert_fails(&tested, &["`writer` is called at `draft_writer-2`", "add draft_writer-2 = "]);
}

#[test]
fn a_case_answers_for_judges_with_a_judgement() {
    let case = format!("{HEAD}{JUDGED_CASE}");
    let judged = tested(JUDGED, &case);
    assert_eq!(judged.code, Some(0), "{judged:?}");

    let text = case.replace("<judgement>yes</judgement>", "yes");
    let parts = ["answer-refused", "the answer at `improve_2_judge` is refused"];
    assert_fails(&tested(JUDGED, &text), &parts);
}

#[test]
fn an_answer_that_nothing_takes_or_the_gate_refuses_fails_the_case() {
    let unused = case_with("tell = ", "draft_9 = \"No such pass.\"\ntell = ");
    assert_fails(&tested(CONFIG, &unused), &["answer-unused", "at `draft_9`"]);

    let refused = case_with("<ask><decision>continue", "<ask><decision>contineu");
    assert_fails(&tested(CONFIG, &refused), &["answer-refused", "the answer at `ask` is refused"]);

    let skips = CONFIG.replace("\"'1'\" } }", "\"'1'\" }, retry = 1, on_failure = \"skip\" }");
    let answer = "<pong><n>1</n></pong>";
    for wrong in ["<pong><m>1</m></pong>", "<pnog><n>1</n></pnog>", "<ping><n>1</n></ping>"] {
        let tested = tested(&skips, &case_with(answer, wrong));
        assert_fails(
            &tested,
            &["cases.toml:12:8: answer-refused", "the answer at `tell` is refused"],
        );
    }
}

#[test]
fn an_answer_of_a_program_that_the_gate_refuses_fails_the_case() {
    let answer = "<pong xmlns=\"urn:example:talk\"><n>1</n></pong>";
    let case = case_with("workflow = \"tour\"", "workflow = \"tour\"\nlisteners = [\"solo\"]");
    let case = case.replace("tell = \"<pong><n>1</n></pong>\"\n", "");
    let config = CONFIG.replace("\"'1'\" } }", "\"'1'\" }, retry = 1, on_failure = \"skip\" }");
    for wrong in [answer.replace("n>", "m>"), answer.replace("pong", "pnog")] {
        for (answer, is_right) in [(answer, true), (&wrong, false)] {
            let program = format!("while read -r -d '' frame; do printf '{answer}\\0'; done");
            let command = format!("[\"bash\", \"-c\", '''{program}''']");
            let tested = tested(&config.replace("[\"./no-such-program\"]", &command), &case);
            if is_right {
                assert_eq!(tested.code, Some(0), "{tested:?}");
                continue;
            }
            let place = "cases.toml:6:14: answer-refused";
            assert_fails(&tested, &[place, "the answer at `tell` is refused"]);
            let problems = tested.err.matches("answer-refused").count();
            assert_eq!(problems, 1, "a retry is refused for the same reason: {tested:?}");
        }
    }
}

#[test]
fn every_typo_of_a_case_file_is_reported_at_once() {
    let case = case_with("workflow = \"tour\"", "workflow = \"tuor\"\nlisteners = [\"bakc\"]")
        .replace("payloads.", "paylods.")
        .replace("tell = \"<pong><n>1</n></pong>\"", "tell = { fail = \"timout\" }");
    let tested = tested(CONFIG, &case);
    assert_eq!(tested.code, Some(65), "{tested:?}");
    for help in ["`tour`", "`back`", "`payloads`", "\"timeout\""] {
        assert!(tested.err.contains(&format!("did you mean {help}?")), "{help} in {tested:?}");
    }
    assert!(tested.err.ends_with("4 problems; nothing was started\n"), "{tested:?}");
}

#[test]
fn a_case_runs_a_program_that_it_names() {
    let case = case_with("workflow = \"tour\"", "workflow = \"tour\"\nlisteners = [\"back\"]");
    let case = case.replace("\"draft/back\" = \"<held><n>4</n></held>\"\n", "");
    let house = house(CONFIG, &case);
    house.write("let-go", "");
    let tested = house.organism(&["workflow", "test", "cases.toml"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

/// Makes a house whose case runs the spy in place of the listener `back`.
fn house_with_spy(more: &str) -> House {
    let case = case_with("workflow = \"tour\"", "workflow = \"tour\"\nlisteners = [\"back\"]");
    let case = case.replace("\"draft/back\" = \"<held><n>4</n></held>\"\n", "");
    let config = CONFIG.replace("\"./player.pl\"", "\"sh\", \"spy.sh\"");
    let config = config.replace("\"./no-such-program\"", "\"./player.pl\", \"solo\"");
    let house = House::settled(&format!("{config}\n{more}"));
    house.write("cases.toml", case);
    house.write("spy.sh", SPY);
    house.write("let-go", "");
    house
}

#[test]
fn a_program_of_a_case_gets_no_key_and_no_password() {
    let house = house_with_spy(NATS);
    let mut command = house.command(&["workflow", "test", "cases.toml"]);
    let tested = CommandOutput::from(command.envs(SECRETS).output().unwrap());
    assert_eq!(tested.code, Some(0), "{tested:?}");
    let variables = std::fs::read_to_string(house.path("variables")).unwrap();
    assert!(variables.contains("ORGANISM_LISTENER=back"), "{variables}");
    assert!(!variables.contains("hidden-"), "{variables}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_of_a_case_is_no_operator_of_the_running_organism() {
    let house = house_with_spy("");
    let mut command = house.command(&["run"]);
    command.env("NO_SUCH_KEY", "sk-hidden-0001");
    let running = house.run_with(command);
    let mut command = house.command(&["workflow", "test", "cases.toml"]);
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    let tested = CommandOutput::from(command.output().unwrap());
    assert_eq!(tested.code, Some(0), "{tested:?}");
    let paused = std::fs::read_to_string(house.path("paused")).unwrap();
    assert!(paused.ends_with("exit code 65\n"), "{paused}");
    assert!(paused.contains("hosted-process"), "{paused}");
    assert_eq!(running.stop(), Some(0));
}

/// A program that notes its process id when it gets a delivery, and never answers.
const HOLDER: &str = r#"
import os
os.read(0, 65536)
with open("has-delivery.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("has-delivery.new", "has-delivery")
while os.read(0, 65536):
    pass
"#;

#[test]
fn a_signal_ends_a_case_with_its_program_and_leaves_nothing_behind() {
    use rustix::process::Signal;

    // Twice. SIGINT and SIGHUP may be ignored where a script starts the tests in the background.
    for signal in [Signal::TERM; 2] {
        let case = case_with("workflow = \"tour\"", "workflow = \"tour\"\nlisteners = [\"back\"]");
        let case = case.replace("\"draft/back\" = \"<held><n>4</n></held>\"\n", "");
        let command = "[\"python3\", \"-S\", \"./holder.py\"]";
        let config = CONFIG.replace("[\"./player.pl\", \"back\", \"let-go\"]", command);
        let house = house(&config, &case);
        house.write("holder.py", HOLDER);
        let temporary = house.path("temporary");
        std::fs::create_dir(&temporary).unwrap();
        let mut command = house.command(&["workflow", "test", "cases.toml"]);
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();

        let delivery = house.path("has-delivery");
        let program =
            until("the program has its delivery", || std::fs::read_to_string(&delivery).ok());
        let journals = || std::fs::read_dir(&temporary).unwrap().count();
        assert_eq!(journals(), 1);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let stopped = CommandOutput::from(child.wait_with_output().unwrap());
        assert_eq!(stopped.code, Some(1), "{stopped:?}");
        assert!(stopped.err.contains("stopped by a signal"), "{stopped:?}");
        assert_eq!(journals(), 0);
        let process = std::path::Path::new("/proc").join(program);
        until("the program has ended", || (!process.exists()).then_some(()));
    }
}

#[test]
fn two_tests_at_once_do_not_disturb_each_other() {
    let house = house(CONFIG, &format!("{HEAD}{ANSWERS}{EXPECT}"));
    let start = || {
        let mut command = house.command(&["workflow", "test", "cases.toml"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [start(), start(), start()];
    for child in children {
        let tested = CommandOutput::from(child.wait_with_output().unwrap());
        assert_eq!(tested.code, Some(0), "{tested:?}");
    }
}

/// A workflow in which a goal fails after a retry. Meanwhile a program is busy for longer than both
/// attempts of the goal take.
const RACE: &str = r#"
organism.name = "talk"
clients.desk.peers = ["tour"]
models.voice = { provider = "openai", model = "m", api_key_env = "NO_SUCH_KEY" }
agents.writer = { model = "voice" }

[listeners.weak]
command = ["./no-such-program"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 2

[listeners.back]
command = ["sh", "-c", "sleep 3; exec ./player.pl back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]

[workflows.tour]
input = { topic = "text" }
output = "last"
[workflows.tour.goals]
flaky = { needs = [], listener = "weak", payload = "ping", with = { n = "'1'" } }
first = { needs = [], agent = "writer", prompt = "Begin {{input/topic}}." }
slow = { needs = ["first"], listener = "back", payload = "work", with = { n = "'2'" } }
last = { needs = ["slow"], agent = "writer", prompt = "End." }
"#;

#[test]
fn a_retry_waits_while_a_program_is_busy() {
    let answers = r#"listeners = ["back"]
[case.answers]
flaky = { fail = "listener-failed" }
first = "Begun."
last = "Ended."

[case.expect]
failed = { goal = "flaky", code = "listener-failed" }
goals = { slow = "done", last = "done" }
"#;
    let tested = tested(RACE, &format!("{HEAD}{answers}"));
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

#[test]
fn a_claim_that_cannot_fail_is_refused() {
    for empty in ["output = {}", "failed = {}", "goals = {}", "documents = {}", "never = []"] {
        let expect = format!("[case.expect]\n{empty}\n");
        let tested = tested(CONFIG, &format!("{HEAD}{ANSWERS}{expect}"));
        assert_eq!(tested.code, Some(65), "{empty}: {tested:?}");
        assert!(tested.err.contains("empty-value"), "{empty}: {tested:?}");
    }

    for path in ["dr*t", "drafty", "", "undo_", "*draft", "undo_drafty", "draft_7", "draft_*"] {
        let never = format!("[case.expect]\nnever = [\"{path}\"]\n");
        let tested = tested(CONFIG, &format!("{HEAD}{ANSWERS}{never}"));
        assert_eq!(tested.code, Some(65), "{path}: {tested:?}");
    }
}

#[test]
fn the_fallback_of_a_loop_is_called_in_no_pass() {
    let config = JUDGED.replace("max = 2 }", "max = 2, on_failure = \"rescue\" }");
    let config = config + "rescue = { agent = \"writer\", prompt = \"Rescue it.\" }\n";
    let case = format!("{HEAD}{JUDGED_CASE}");
    let fallback = tested(&config, &case.replace("[\"cut\"]", "[\"rescue\"]"));
    assert_eq!(fallback.code, Some(0), "{fallback:?}");

    let in_pass = tested(&config, &case.replace("[\"cut\"]", "[\"rescue_1\"]"));
    assert_eq!(in_pass.code, Some(65), "{in_pass:?}");
}

#[test]
fn a_goal_in_never_stands_for_its_parts() {
    let config = CONFIG
        .replace("draft = { agent", "draft = { each = \"input/topic\", agent")
        .replace("topic = \"text\"", "topic = [\"text\"]");
    let case = format!("{HEAD}{ANSWERS}{EXPECT}")
        .replace("input.topic = \"light\"", "input.topic = [\"light\"]")
        .replace("draft =", "draft_1 =")
        .replace("\"draft/back\"", "\"draft_1/back\"");
    let case = case.replace("output = \"A text.\"", "goals = { draft = \"done\" }");
    let working = tested(&config, &case);
    assert_eq!(working.code, Some(0), "{working:?}");

    let claimed = tested(&config, &format!("{case}never = [\"draft\"]\n"));
    assert_fails(&claimed, &["`writer` was called at `draft_1`"]);
}

#[test]
fn the_text_of_an_element_is_compared_exactly() {
    let spaced =
        case_with("back\" = \"<hold><n>4</n></hold>\"\n", "back\" = \"<hold><n> 4 </n></hold>\"\n");
    assert_fails(&tested(CONFIG, &spaced), &["the payload at `draft/back` differs"]);

    let between =
        case_with("back\" = \"<hold><n>4</n></hold>\"\n", "back\" = \"<hold> <n>4</n> </hold>\"\n");
    let tested = tested(CONFIG, &between);
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

#[test]
fn a_case_without_a_key_is_checked_all_the_same() {
    let case = case_with("name = \"the tour\"\n", "").replace("tell = ", "tel = ");
    let unnamed = tested(CONFIG, &case);
    assert!(unnamed.err.contains("needs `name`"), "{unnamed:?}");
    assert!(unnamed.err.contains("did you mean `tell`?"), "{unnamed:?}");
    assert!(unnamed.err.ends_with("2 problems; nothing was started\n"), "{unnamed:?}");

    let config = CONFIG.replace("clients.desk", "clients.idle.peers = [\"writer\"]\nclients.desk");
    let case = case_with("workflow = \"tour\"", "workflow = \"tour\"\nas = \"idle\"");
    let tested = tested(&config, &case);
    assert_eq!(tested.code, Some(65), "{tested:?}");
    assert!(tested.err.contains("the client `idle` may not call `tour`"), "{tested:?}");
}

const NESTED: &str = r#"
organism.name = "talk"
clients.desk.peers = ["outer"]

[payloads]
put = { name = "text" }
put-done = { number = "text" }
put-failed = { code = "text", reason = "text" }

[listeners.store]
command = ["cat"]
accepts = ["put"]
replies = ["put-done", "put-failed"]

[workflows.inner]
input = { name = "text" }
output = "p"
[workflows.inner.goals]
p = { listener = "store", payload = "put", with = { name = "input/name" } }

[workflows.outer]
input = { name = "text" }
output = "e/put-done/number"
[workflows.outer.goals]
e = { workflow = "inner", with = { name = "input/name" }, retry = 1 }
"#;

/// The inner workflow fails with a code that its listener replied. The reply of the inner workflow
/// states that the listener chose this code, so the outer workflow retries the inner one.
#[test]
fn a_workflow_above_retries_a_failure_that_is_a_listeners_own_reply() {
    let case = r#"config = "organism.toml"

[[case]]
name = "a code of the listener"
workflow = "outer"
input.name = "n"
[case.answers]
"e.p" = "<put-failed><code>denied</code><reason>no card</reason></put-failed>"
"e-1.p" = "<put-done><number>2</number></put-done>"
[case.expect]
output = "2"
"#;
    let tested = tested(NESTED, case);
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

#[test]
fn a_missing_answer_is_reported_once() {
    let case = case_with("\"draft/back\" = \"<held><n>4</n></held>\"\n", "");
    let config = CONFIG
        .replace("ask = { ask", "ask = { needs = [], ask")
        .replace("tell = { listener", "tell = { needs = [], listener");
    let tested = tested(&config, &case);
    assert_eq!(tested.err.matches("answer-missing").count(), 1, "{tested:?}");
}

#[test]
fn a_case_file_that_is_not_there_is_advised_about_as_a_case_file() {
    let house = House::new();
    let missing = house.organism(&["workflow", "test", "nofile.toml"]);
    assert_eq!(missing.code, Some(65), "{missing:?}");
    assert!(missing.err.contains("there is no file `nofile.toml`"), "{missing:?}");
    assert!(missing.err.contains("write one from a run"), "{missing:?}");
    assert!(!missing.err.contains("organism init"), "{missing:?}");
}

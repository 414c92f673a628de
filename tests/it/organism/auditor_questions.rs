//! The questions of docs/AUDIT.md about a journal of real runs, answered by the commands that the
//! page prints.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use organism::ids::Digest;
use serde_json::Value as Json;

use super::{CommandOutput, House, Running, TALK, numbered, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer", "tired", "flaky"]

[listeners.ledger]
command = ["./player.pl", "ledger"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[listeners.flaky]
command = ["./flaky.sh"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 2

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["ledger"]

[agents.writer.prompt]
rules_file = "rules.md"

[agents.tired]
model = "recorded"
schema = "talk.xsd"
accepts = ["hold"]
final = "held"
tokens = 1000

[models.recorded]
provider = "playback"
recording = "turns.toml"
max_tokens = 1000
price_in = 2.0
price_out = 10.0
currency = "EUR"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<say xmlns="urn:example:talk">book INV-777: 42 EUR</say><order xmlns="urn:example:talk"><m/></order>'
tokens_in = 1000
tokens_out = 100

[[turn]]
agent = "writer"
turn = 2
text = '<done xmlns="urn:example:talk"><n>INV-777</n></done>'
tokens_in = 2000
tokens_out = 100

[[turn]]
agent = "tired"
turn = 1
text = '<held xmlns="urn:example:talk"><n>1</n></held>'
"#;

/// Program of a listener that crashes in its first attempt, after it has read a part of the
/// delivery.
const FLAKY: &str = r#"#!/bin/sh
if [ ! -e crashed ]; then touch crashed; head -c 1 >/dev/null; exit 7; fi
exec ./player.pl flaky
"#;

const BOOKED: &str = "sess-booked777";
const REFUSED: &str = "sess-refused777";
const WAITING: &str = "sess-waiting777";
const CANCELLED: &str = "sess-cancel777";
const FLAKY_THREAD: &str = "sess-flaky001";
const TIRED: &str = "sess-tired001";

/// The journal that the questions are about, and the facts about its runs that the answers must
/// contain.
pub struct AuditedRuns {
    pub house: House,
    /// Id of the approved call. The field `digest` has the digest of the call's payload.
    pub write: String,
    pub digest: String,
    /// Id of the client's request that led to the approved call. The field `answer` has the id of
    /// the answer to this request.
    pub request: String,
    pub answer: String,
    /// Position of the last record before the approval.
    before: String,
    /// Config of the first runs. The field `later_config` has the config of the later runs.
    pub first_config: String,
    later_config: String,
}

impl AuditedRuns {
    /// Returns the journal of these tests, which simultaneous tests share.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<AuditedRuns>> = Mutex::new(Weak::new());
        // One test makes the journal while the others wait for it.
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(runs) = shared.upgrade() {
            return runs;
        }
        let runs = Arc::new(Self::new());
        *shared = Arc::downgrade(&runs);
        runs
    }

    fn new() -> Self {
        let house = House::with(CONFIG);
        house.write("turns.toml", TURNS);
        house.write("flaky.sh", FLAKY);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(house.path("flaky.sh"), mode).unwrap();
        house.write("rules.md", "Be brief.\n");
        house.write("order.xml", numbered("order", "INV-777"));
        let config = |house: &House| {
            let checked = house.organism(&["check", "--json"]).out;
            let checked: Json = serde_json::from_str(&checked).unwrap();
            checked["digest"].as_str().unwrap().to_owned()
        };

        let first_config = config(&house);
        let running = house.run();
        let (write, digest) = book(&house, BOOKED, |held| {
            let id = held["message"].as_str().unwrap();
            let hash = held["sha256"].as_str().unwrap();
            done(&house, &["approve", id, "--hash", hash, "--note", "as agreed"]);
        });
        let pinged = house.send_text(&numbered("ping", "1"), &["--new", FLAKY_THREAD]);
        assert_eq!(pinged.code, Some(0), "{pinged:?}");
        assert_eq!(running.stop(), Some(0));

        house.write("rules.md", "Be brief, and polite.\n");
        let later_config = config(&house);
        let running = house.run();
        book(&house, REFUSED, |held| {
            let id = held["message"].as_str().unwrap();
            done(&house, &["refuse", id, "--reason", "booked before"]);
        });
        fail(&house, running);

        let exported = house.organism(&["export", BOOKED, "--format", "jsonl"]).json();
        let of_kind = |kind: &str, from: &str| {
            let is_it = |line: &&Json| line["kind"] == kind && line["from"] == from;
            let line = exported.iter().find(is_it).unwrap_or_else(|| panic!("{exported:#?}"));
            line["id"].as_str().unwrap().to_owned()
        };
        let request = of_kind("call", "desk");
        let answer = of_kind("reply", "writer");
        let reported = house.organism(&["message", &write, "--json"]).json()[0].clone();
        let approved = reported["decisions"][0]["position"].as_u64().unwrap();
        let before = (approved - 1).to_string();
        Self { house, before, write, digest, request, answer, first_config, later_config }
    }

    /// Runs the command of a question in a shell, as the page prints it.
    fn ask(&self, question: &str) -> CommandOutput {
        let command = command_of(question);
        let program = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        // The variables of a command that this house would run.
        let variables = self.house.command(&[]);
        let mut shell = Command::new("bash");
        for (name, value) in variables.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.args(["-c", &command]).current_dir(self.house.path("")).env("PATH", path);
        shell.env("WRITE", &self.write).env("REQUEST", &self.request).env("ANSWER", &self.answer);
        shell.env("BEFORE", &self.before);
        shell.stdin(Stdio::null()).output().unwrap().into()
    }

    /// Runs the command of a question, and asserts that its output contains each part. Returns the
    /// output.
    fn answers(&self, question: &str, parts: &[&str]) -> String {
        let answer = self.ask(question);
        assert_eq!(answer.code, Some(0), "{question}: {answer:?}");
        for part in parts {
            assert!(answer.out.contains(part), "{question}: {part} is missing in\n{}", answer.out);
        }
        answer.out
    }
}

fn done(house: &House, arguments: &[&str]) {
    let done = house.organism(arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
}

/// Sends an order, and lets `decide` decide on the writer's held call. Returns the id of this call
/// and the digest of its payload.
fn book(house: &House, thread: &str, decide: impl Fn(&Json)) -> (String, String) {
    let mut send = house.command(&["send", "order.xml", "--as", "desk", "--new", thread]);
    let sender = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let held = until("the call is held", || held_in(house, thread));
    decide(&held);
    let sent: CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let text = |key: &str| held[key].as_str().unwrap().to_owned();
    (text("message"), text("sha256"))
}

fn held_in(house: &House, thread: &str) -> Option<Json> {
    let held = house.organism(&["approvals", "--json"]).json();
    held.into_iter().find(|call| call["thread"] == thread)
}

/// Causes several failures, which the journal records: a refused request, a spent budget, a
/// cancelled thread, and a thread that still waits when the organism ends.
fn fail(house: &House, running: Running) {
    let refused = house.send_text(&numbered("nonsense", "1"), &[]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    let tired = house.send_text(&numbered("hold", "1"), &["--new", TIRED]);
    assert_eq!(tired.code, Some(1), "{tired:?}");
    for thread in [CANCELLED, WAITING] {
        let order = numbered("order", "INV-777");
        house.send_text(&order, &["--no-wait", "--new", thread]);
        until("the call is held", || held_in(house, thread));
    }
    done(house, &["cancel", CANCELLED, "--reason", "not needed"]);
    assert_eq!(running.stop(), Some(0));
}

/// The rows of the page's table: question and command.
pub fn questions() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/AUDIT.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |line: &str| {
        let line = line.strip_prefix("| ")?;
        let (question, command) = line.split_once("? | `")?;
        let command = command.strip_suffix("` |")?;
        Some((format!("{question}?"), command.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

fn command_of(question: &str) -> String {
    let found = questions().into_iter().find(|(asked, _)| asked == question);
    found.unwrap_or_else(|| panic!("the page has no question `{question}`")).1
}

/// Defines a test for each question, and the list of the questions.
macro_rules! questions {
    ($($test:ident: $question:literal, $check:expr;)*) => {
        const TESTED: &[&str] = &[$($question),*];
        $(
            #[test]
            fn $test() {
                let check: fn(&AuditedRuns, &str) = $check;
                check(&AuditedRuns::shared(), $question);
            }
        )*
    };
}

/// Issue 17, 4.8: the page lists twenty-five questions, each has one command and a test, and at
/// most six need SQL.
#[test]
fn each_question_of_the_page_has_one_command_and_a_test() {
    let questions = questions();
    let asked: Vec<_> = questions.iter().map(|(question, _)| question.as_str()).collect();
    assert_eq!(asked, TESTED);
    assert_eq!(asked.len(), 25);
    for (question, command) in &questions {
        assert!(command.starts_with("organism "), "{question}: {command}");
        let outside: String = command.split('"').step_by(2).collect();
        assert!(!outside.contains([';', '&', '|', '<', '>', '\'']), "{question}: {command}");
    }
    let sql = questions.iter().filter(|(_, command)| command.starts_with("organism sql"));
    assert!(sql.count() <= 6);
}

questions! {
    a_write_names_who_approved_it_and_what_they_saw:
        "Who approved this write, and what did they see?", |runs, asked| {
            runs.answers(asked, &[
                "│ <say xmlns=\"urn:example:talk\">book INV-777: 42 EUR</say>",
                "approve   by operator at ",
                "saw the payload above",
                &runs.digest,
                "note: as agreed",
            ]);
        };
    all_messages_about_an_invoice_are_found:
        "Which messages touched invoice INV-777, all of them?", |runs, asked| {
            let found = runs.answers(asked, &[BOOKED, REFUSED, WAITING, CANCELLED]);
            let exported = runs.house.organism(&["export", "--format", "jsonl"]).json();
            let touches = |line: &&Json| {
                line["type"] == "message" && line["payload"].as_str().unwrap().contains("INV-777")
            };
            let count = exported.iter().filter(touches).count();
            assert!(count > 10, "{count}");
            let refusals = exported.iter().filter(|line| line["type"] != "message");
            let refusals = refusals.filter(|line| line.to_string().contains("INV-777")).count();
            let all = count + refusals;
            assert!(found.contains(&format!("\n{all} of {all}\n")), "{all}: {found}");
        };
    an_answer_names_its_model_and_prompt:
        "Which model and which prompt made this answer?", |runs, asked| {
            let turn = ["prompt", "writer", "--thread", BOOKED, "--turn", "2", "--json"];
            let prompt = runs.house.organism(&turn).json()[0].clone();
            let prompt = prompt["prompt"].as_str().unwrap();
            runs.answers(asked, &["writer, turn 2", "playback/", prompt, "2000 + 100 tokens"]);
        };
    refusals_are_counted_by_rule_agent_and_day:
        "How many refusals are there by rule, agent and day?", |runs, asked| {
            let counted = runs.answers(asked, &["schema-invalid", "not-in-vocabulary"]);
            // Each of the four orders led to one refused payload of the writer.
            let line = counted.lines().find(|line| line.contains("schema-invalid")).unwrap();
            assert!(line.contains("writer") && line.ends_with(" 4"), "{counted}");
        };
    costs_are_summed_by_agent_and_model:
        "What is the cost per agent and model?", |runs, asked| {
            // Four first turns and two second ones, at 2 and 10 EUR for a million tokens.
            runs.answers(asked, &["writer", "8000", "600", "0.022"]);
        };
    percentiles_of_latency_stand_by_listener:
        "What is the 95th percentile of the latency per listener?", |runs, asked| {
            runs.answers(asked, &["flaky", "ledger", "writer", "queue p95", "p95"]);
        };
    a_message_names_the_config_and_schema_in_force:
        "Which config and schema were in force for this message?", |runs, asked| {
            let checked = runs.house.organism(&["check", "--json"]).out;
            let checked: Json = serde_json::from_str(&checked).unwrap();
            let schema = checked["config"]["schemas"]["talk.xsd"].as_str().unwrap();
            let answer = runs.answers(asked, &["talk.xsd", schema, &runs.first_config]);
            assert!(!answer.contains(&runs.later_config), "{answer}");
        };
    a_message_names_its_outcome:
        "What was the outcome of this message?", |runs, asked| {
            runs.answers(asked, &["message   handled at record", "completed after", "done"]);
        };
    the_actions_of_operators_are_listed:
        "What did operators do?", |runs, asked| {
            let listed = runs.answers(asked, &["as agreed", "booked before", "not needed"]);
            let actions = ["approve", "refuse", "cancel"];
            let mut lines = listed.lines().skip(1);
            for action in actions {
                let line = lines.next().unwrap();
                assert!(line.contains(action) && line.contains("operator"), "{listed}");
            }
        };
    what_waits_is_listed_with_the_person_and_the_time:
        "What waits, for whom, and for how long?", |runs, asked| {
            let listed = runs.answers(asked, &[WAITING, "approval", "ledger"]);
            assert_eq!(listed.lines().count(), 2, "{listed}");
        };
    a_conversation_is_shown_in_order:
        "What happened in this conversation, in order?", |runs, asked| {
            let shown = runs.answers(asked, &["desk → writer", "writer → ledger", "approve by"]);
            let places = ["desk → writer", "writer → ledger", "approve by", "ledger → writer"];
            let places = places.map(|part| shown.find(part).unwrap());
            assert!(places.is_sorted(), "{shown}");
        };
    a_conversation_is_shown_as_it_was_at_a_moment:
        "How did this conversation stand before it was approved?", |runs, asked| {
            let shown = runs.answers(asked, &["writer → ledger", "approval-requested"]);
            assert!(!shown.contains("approve by") && !shown.contains("ledger → writer"), "{shown}");
        };
    the_exact_input_of_a_model_is_rendered_again:
        "What exactly was the model sent in this turn?", |runs, asked| {
            let shown = runs.answers(asked, &["Be brief.", "INV-777"]);
            assert!(!shown.contains("and polite"), "{shown}");
        };
    failed_conversations_are_listed:
        "Which conversations failed since yesterday?", |runs, asked| {
            let listed = runs.answers(asked, &[TIRED]);
            assert!(!listed.contains(BOOKED) && !listed.contains(FLAKY_THREAD), "{listed}");
        };
    conversations_are_chosen_by_their_cost:
        "Which conversations cost more than 0.005?", |runs, asked| {
            let listed = runs.answers(asked, &[BOOKED, REFUSED, "0.008"]);
            assert!(!listed.contains(WAITING) && !listed.contains(FLAKY_THREAD), "{listed}");
        };
    refusals_of_a_conversation_are_shown_with_their_place:
        "What did the gate refuse in this conversation, and why?", |runs, asked| {
            runs.answers(asked, &["schema-invalid", "at line 1", "<m/>", "1 of 1"]);
        };
    attempts_to_write_unknown_payloads_are_found:
        "Who tried to send what they may not?", |runs, asked| {
            runs.answers(asked, &["desk", "not-in-vocabulary", "nonsense", "1 of 1"]);
        };
    the_record_is_proved:
        "Did anyone change the record?", |runs, asked| {
            let proved = runs.ask(asked);
            assert_eq!(proved.code, Some(runs.house.proof_code()), "{proved:?}");
            let records = runs.house.reader().last().unwrap();
            assert!(proved.out.contains(&records.to_string()), "{proved:?}");
        };
    the_record_is_decided_again:
        "Is the record what the organism decides?", |runs, asked| {
            let decided = runs.ask(asked);
            assert_eq!(decided.code, Some(0), "{decided:?}");
        };
    configs_of_two_conversations_are_compared:
        "What changed in the config between two conversations?", |runs, asked| {
            let shown = runs.answers(asked, &["-Be brief.", "+Be brief, and polite."]);
            assert!(!shown.contains("max_tokens"), "{shown}");
        };
    the_config_of_a_conversation_is_shown:
        "What was the whole config when this conversation began?", |runs, asked| {
            runs.answers(asked, &["[listeners.ledger]", "approval = \"always\"", "price_in"]);
        };
    failed_attempts_are_listed_with_their_reasons:
        "What failed, and why?", |runs, asked| {
            let listed = runs.answers(asked, &["crashed", FLAKY_THREAD, "budget-spent", TIRED]);
            assert!(listed.lines().count() >= 3, "{listed}");
        };
    the_approved_bytes_are_written_exactly:
        "Which bytes exactly were approved?", |runs, asked| {
            let bytes = runs.answers(asked, &[]);
            assert_eq!(Digest::of(bytes.as_bytes()).to_string(), runs.digest);
            assert_eq!(bytes, format!("<say xmlns=\"{TALK}\">book INV-777: 42 EUR</say>"));
        };
    requests_of_a_client_are_listed:
        "What did this client ask for since yesterday?", |runs, asked| {
            let listed = runs.answers(asked, &["desk → writer", "desk → flaky", "desk → tired"]);
            assert!(listed.contains("6 of 6"), "{listed}");
        };
    cancelled_messages_are_found:
        "What was cancelled?", |runs, asked| {
            let found = runs.answers(asked, &[CANCELLED]);
            assert!(!found.contains(BOOKED), "{found}");
        };
}

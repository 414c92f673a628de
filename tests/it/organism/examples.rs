//! The examples of `config/`. Each is run by the commands at the head of its file, and its run
//! becomes a case of `organism workflow test`.

mod cases;
mod forks;
pub mod source_runs;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::CommandOutput;

const THREAD: &str = "sess-example0";

/// An example of `config/`, with a directory and a journal for one test.
pub struct Example {
    name: &'static str,
    pub place: TempDir,
}

impl Example {
    pub fn new(name: &'static str) -> Self {
        let place = TempDir::new().unwrap();
        for folder in ["config", "listeners", "schemas"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            std::os::unix::fs::symlink(from, place.path().join(folder)).unwrap();
        }
        Self { name, place }
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.place.path().join(file)).unwrap()
    }

    fn config(&self) -> String {
        self.read(&format!("config/{}.toml", self.name))
    }

    fn prepared(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.place.path()).env_remove("ORGANISM_CONFIG");
        for (name, path) in [
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
            ("WORKSPACE", "try-it"),
            ("BOOKING_LEDGER", "ledger.jsonl"),
            ("DOCUMENTS_LEDGER", "ledger.jsonl"),
            ("INTAKE_DATA", "books"),
        ] {
            command.env(name, self.place.path().join(path));
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(crate::nats::substrate(self.place.path()));
        command
    }

    /// Creates a command on the config of the example.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let config = format!("config/{}.toml", self.name);
        let mut command = self.prepared(env!("CARGO_BIN_EXE_organism"));
        command.args(arguments).args(["--config", &config]);
        command
    }

    fn organism(&self, arguments: &[&str]) -> CommandOutput {
        self.command(arguments).output().unwrap().into()
    }

    /// The indented lines at the head of the example's file.
    fn commands(&self) -> String {
        let config = self.config();
        let head: Vec<_> = config.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
        let runs = ["organism workflow run", "organism send"];
        assert!(head.iter().any(|line| runs.iter().any(|run| line.contains(run))), "{head:?}");
        head.join("\n")
    }

    fn shell(&self, commands: &str) -> CommandOutput {
        self.shell_command(commands).output().unwrap().into()
    }

    fn shell_command(&self, commands: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let script = format!("set -e\n{commands}");
        let mut command = self.prepared("sh");
        command.env("PATH", path).args(["-c", &script]);
        command
    }

    /// Runs the commands at the head of the file. The run's thread gets a known id.
    pub fn run(&self) -> CommandOutput {
        let run = self.shell(&format!("{} --new {THREAD}", self.commands()));
        assert_eq!(run.code, Some(0), "{run:?}");
        run
    }

    fn messages(&self, name: &str) -> Vec<Json> {
        let exported = self.organism(&["export", "--format", "jsonl"]).json();
        let is_named = |line: &Json| {
            let named = line["name"].as_str().and_then(|name| name.rsplit('}').next());
            line["type"] == "message" && named == Some(name)
        };
        exported.into_iter().filter(is_named).collect()
    }

    /// The documents of all goals that agents got, by the label of the goal's thread.
    fn documents(&self) -> BTreeMap<String, String> {
        let document = |goal: Json| {
            let label = goal["thread"].as_str()?.strip_prefix(&format!("{THREAD}."))?.to_owned();
            let payload = organism::xml::element::Element::read(goal["payload"].as_str()?)?;
            Some((label, payload.text()))
        };
        let goals = self.messages("goal").into_iter();
        goals.map(|goal| document(goal).expect("a goal has a thread and a text")).collect()
    }

    /// Asserts that `organism check` has no notes about the example.
    fn checked(&self) {
        let checked = self.organism(&["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
        let has_nothing_to_take = |line: &str| line.contains("takes ;");
        assert!(!checked.out.lines().any(has_nothing_to_take), "{checked:?}");
    }

    /// Asserts that `check` has no notes, that each recorded turn was used, and that agents got
    /// exactly these goals.
    fn used_up(&self, goals: &[&str]) {
        self.checked();
        let labels: Vec<_> = self.documents().into_keys().collect();
        assert_eq!(labels, goals);
        let recording = self.read(&format!("config/{}/recording.toml", self.name));
        let turns = recording.matches("[[turn]]").count();
        assert_eq!(self.messages("model-turn").len(), turns, "turns of {}", self.name);
    }
}

/// The last state of each goal in the output of a run.
fn states(run: &CommandOutput) -> BTreeMap<String, String> {
    let state = |line: &str| {
        let (_, line) = line.split_once(' ')?;
        let (goal, state) = line.trim().split_once("  ")?;
        let state = state.split([' ', ',']).next()?;
        Some((goal.to_owned(), state.to_owned()))
    };
    run.err.lines().filter(|line| !line.starts_with("run ")).filter_map(state).collect()
}

fn assert_states(run: &CommandOutput, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(goal, state)| ((*goal).to_owned(), (*state).to_owned())).collect();
    assert_eq!(states(run), expected, "{run:?}");
}

#[test]
fn the_crew_changes_a_project_until_its_reviewer_accepts() {
    let crew = Example::new("crew");
    let run = crew.run();
    for part in ["<crew-output", "The tests ended with exit code 0.", "OK\n", "ACCEPT</review>"] {
        assert!(run.out.contains(part), "{part} in {run:?}");
    }
    let done = ["plan", "work", "build", "review"].map(|goal| (goal, "done"));
    let skipped = ["clarify", "question"].map(|goal| (goal, "skipped"));
    assert_states(&run, &[&done[..], &skipped].concat());
    crew.used_up(&["build_1", "build_2", "plan", "review_1", "review_2"]);
    crew.becomes_a_case(&["plan", "build_1", "\"build_1/files\"", "\"review_2/commands\""]);
    let documents = crew.documents();
    for part in ["the same fault", "<iteration n=\"1\">", "+    return \"Hello\""] {
        assert!(documents["build_2"].contains(part), "{part} in {documents:?}");
    }
    let mut files: Vec<_> = std::fs::read_dir(crew.place.path().join("try-it"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(files, ["greeting.py", "test_greeting.py"]);
    let farewell = "return \"Goodbye\" + (\", \" + name if name else \"\") + \"!\"";
    assert!(crew.read("try-it/greeting.py").contains(farewell));
    assert!(crew.read("try-it/test_greeting.py").contains("farewell(\"\")"));
}

#[test]
fn the_crew_takes_at_most_40_lines_of_config() {
    let config = Example::new("crew").config();
    let is_config = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = config.lines().map(str::trim).filter(is_config).count();
    assert!(lines <= 40, "{lines} lines");
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crew");
    let files: Vec<_> =
        std::fs::read_dir(beside).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["recording.toml"], "no schema and no code");
}

#[test]
fn the_essay_is_drafted_until_its_critic_would_publish_it() {
    let essay = Example::new("essay");
    let run = essay.run();
    assert!(run.out.starts_with("# The Price of a Parking Space\n"), "{run:?}");
    assert!(run.out.ends_with("belongs to the street that earned it.\n"), "{run:?}");
    assert_states(&run, &["outline", "improve", "draft", "critique"].map(|goal| (goal, "done")));
    essay.used_up(&["critique_1", "critique_2", "draft_1", "draft_2", "outline"]);
    let case = essay.becomes_a_case(&["outline", "draft_1", "critique_2"]);
    essay.case_is_added_once(&case);
    let documents = essay.documents();
    let prompt = "Outline an essay of about 150 words on city parking, for town councillors.";
    assert!(documents["outline"].contains(prompt), "{documents:?}");
    assert!(documents["draft_2"].contains("leaves it out"), "{documents:?}");
}

#[test]
fn the_decision_is_recommended_after_both_sides_have_answered_each_other() {
    let decision = Example::new("decision");
    let run = decision.run();
    assert!(run.out.starts_with("Close on Mondays for three months, "), "{run:?}");
    assert_states(&run, &["frame", "evaluate", "answer", "recommend"].map(|goal| (goal, "done")));
    decision.used_up(&[
        "answer_critic",
        "answer_optimist",
        "evaluate_critic",
        "evaluate_optimist",
        "frame",
        "recommend",
    ]);
    decision.becomes_a_case(&["frame", "answer_optimist", "recommend"]);
    let documents = decision.documents();
    let facts = "four people close on Mondays?\nMondays bring 6 % of the sales";
    assert!(documents["frame"].contains(facts), "{documents:?}");
    for label in ["answer_critic", "answer_optimist", "recommend"] {
        for entry in ["<goal id=\"evaluate[critic]\">", "<goal id=\"evaluate[optimist]\">"] {
            assert!(documents[label].contains(entry), "{label}: {documents:?}");
        }
    }
}

#[test]
fn the_code_review_sends_a_weak_finding_back_and_reports_what_is_left() {
    let review = Example::new("code-review");
    let run = review.run();
    assert!(run.out.starts_with("- test_greeting.py:12 "), "{run:?}");
    assert!(run.out.ends_with("CHANGE\n"), "{run:?}");
    assert_states(&run, &["scan", "inspect", "report"].map(|goal| (goal, "done")));
    review.used_up(&[
        "inspect_1",
        "inspect_1-1",
        "inspect_1_supervisor",
        "inspect_1_supervisor-1",
        "inspect_2",
        "inspect_2_supervisor",
        "report",
        "scan",
    ]);
    review.becomes_a_case(&["inspect_1_supervisor", "inspect_1-1", "report"]);
    let documents = review.documents();
    assert!(documents["scan"].contains("\n+    names.sort()\n"), "{documents:?}");
    let correction = "<correction source=\"supervisor\">\nName an input and what happens to it";
    assert!(documents["inspect_1-1"].contains(correction), "{documents:?}");
    for part in ["sorted(names)", "expects the fault of greeting.py:5,"] {
        assert!(documents["report"].contains(part), "{part} in {documents:?}");
    }
    assert!(!documents["report"].contains("looks risky"), "{documents:?}");
}

#[test]
fn the_research_repeats_an_unsound_study_and_delegates_what_is_open() {
    let research = Example::new("research");
    let run = research.run();
    for part in ["<research-output", "pub const PAYLOAD_BYTES_MAX: usize = ", " (src/limits.rs:"] {
        assert!(run.out.contains(part), "{part} in {run:?}");
    }
    assert!(!run.out.contains("<unanswered>"), "{run:?}");
    let delegated = "specialist as reader of constants";
    let done = ["plan", "study", "check", "report", delegated].map(|goal| (goal, "done"));
    assert_states(&run, &done);
    research.used_up(&[
        "check_1",
        "check_2",
        "check_2-1",
        "plan",
        "report",
        "report.specialist_1",
        "study_1",
        "study_2",
        "study_2-1",
    ]);
    research.becomes_a_case(&["check_2-1", "\"report.specialist_1\"", "report"]);
    let documents = research.documents();
    let role = "<task role=\"reader of clocks\" parent-goal=\"study\">";
    assert!(documents["study_2"].starts_with(role), "{documents:?}");
    let correction = "<correction source=\"supervisor\">\nThere is no src/time.rs.";
    assert!(documents["study_2-1"].contains(correction), "{documents:?}");
    assert!(documents["check_2-1"].contains("`now` reads it (src/clock.rs:"), "{documents:?}");
    let role = "<task role=\"reader of constants\" parent-goal=\"report\">";
    assert!(documents["report.specialist_1"].starts_with(role), "{documents:?}");
}

/// Entries of the ledger, sorted: the kind of each action with its number.
fn ledger(booking: &Example) -> Vec<String> {
    let text = booking.read("ledger.jsonl");
    let line = |line| {
        let line: Json = serde_json::from_str(line).unwrap();
        format!("{} {}", line["kind"].as_str().unwrap(), line["number"].as_str().unwrap())
    };
    let mut lines: Vec<_> = text.lines().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn the_booking_cancels_what_is_reserved_when_it_cannot_be_paid() {
    let booking = Example::new("booking");
    let run = booking.run();
    let expected = "<trip-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/trip\">\
                    <seat>seat-1</seat><room>room-1</room><receipt>receipt-1</receipt>\
                    <amount>655</amount></trip-output>\n";
    assert_eq!(run.out, expected, "{run:?}");
    assert_states(&run, &["flight", "hotel", "pay"].map(|goal| (goal, "done")));
    let booked = ["charge receipt-1", "reserve-room room-1", "reserve-seat seat-1"];
    assert_eq!(ledger(&booking), booked);
    booking.checked();
    booking.becomes_a_case(&["flight", "hotel", "pay"]);

    let commands = booking.commands();
    let (from, to) = ("return=2027-03-06", "return=2027-03-15");
    assert!(commands.contains(from) && booking.config().contains(&format!("With {to}")));
    let run = booking.shell(&commands.replace(from, to));
    assert_eq!(run.code, Some(1), "{run:?}");
    let failed = "<goal>pay</goal><code>card-limit</code>\
                  <reason>1510 is over the card's limit of 1000</reason></trip-failed>\n";
    assert!(run.out.ends_with(failed), "{run:?}");
    assert_states(
        &run,
        &[
            ("flight", "done"),
            ("hotel", "done"),
            ("pay", "failed"),
            ("undo cancel-seat at flights", "done"),
            ("undo cancel-room at hotels", "done"),
        ],
    );
    let undone = ["cancel-room room-2", "cancel-seat seat-2"];
    let reserved = ["reserve-room room-1", "reserve-room room-2", "reserve-seat seat-1"];
    let expected =
        [&undone[..], &["charge receipt-1"], &reserved, &["reserve-seat seat-2"]].concat();
    assert_eq!(ledger(&booking), expected);
}

#[test]
fn a_document_is_booked_as_most_readings_have_it_and_answered_the_second_time() {
    let documents = Example::new("documents");
    let run = documents.run();
    let output = "<documents-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/documents\">\
                  <kind>invoice</kind>";
    assert_eq!(run.out, format!("{output}<entry>1</entry></documents-output>\n"), "{run:?}");
    let done = ["sort", "invoice", "read", "book"].map(|goal| (goal, "done"));
    let skipped =
        ["by-hand", "release", "approve", "answer", "letter"].map(|goal| (goal, "skipped"));
    assert_states(&run, &[&done[..], &skipped].concat());
    let labels: Vec<_> = documents.documents().into_keys().collect();
    assert_eq!(labels, ["read_reader", "read_reader-2", "read_reader-3", "sort"]);
    let booked = documents.read("ledger.jsonl");
    assert!(booked.contains("\"payable\": \"720.00\""), "{booked}");
    documents.checked();
    documents.becomes_a_case(&["sort", "read_reader-3", "book"]);

    let run = documents.shell(&documents.commands());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.starts_with(&format!("{output}<letter>Dear Lamp &amp; Wire,")), "{run:?}");
    let done = ["sort", "invoice", "read", "book", "answer", "letter"].map(|goal| (goal, "done"));
    let skipped = ["by-hand", "release", "approve"].map(|goal| (goal, "skipped"));
    assert_states(&run, &[&done[..], &skipped].concat());
    assert_eq!(documents.read("ledger.jsonl"), booked);
    let turns = documents.messages("model-turn").len();
    assert_eq!(turns, 9, "four turns of the first run, and five of the second");
}

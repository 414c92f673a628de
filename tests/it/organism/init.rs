//! `organism init`: each project passes `check` and runs at once on its recording. After one line
//! is changed, it runs on a real model.

mod installed;
mod workflows;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use super::provider::{Provider, ScriptedResponse};
use super::{CommandOutput, until};
use crate::json_schemas::assert_described;

/// A temporary directory in which `organism init` writes projects. Each project has its own journal
/// in this directory, unless the tests use JetStream.
struct Projects {
    place: TempDir,
}

impl Projects {
    fn new() -> Self {
        Self { place: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Creates a command that runs in a directory.
    fn command(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
        command.args(arguments).current_dir(self.path(directory));
        command.env("XDG_DATA_HOME", self.path("data")).env("XDG_STATE_HOME", self.path("state"));
        command.env("NO_COLOR", "1").env_remove("ORGANISM_CONFIG").env_remove("WORKSPACE");
        command.stdin(Stdio::null()).envs(crate::nats::substrate(self.place.path()));
        command
    }

    fn organism(&self, directory: &str, arguments: &[&str]) -> CommandOutput {
        let output = CommandOutput::from(self.command(directory, arguments).output().unwrap());
        assert_described(arguments, &output.out);
        output
    }

    /// Writes a project into the directory `new`, and asserts that `organism check` accepts the
    /// project without notes.
    fn init(arguments: &[&str]) -> Self {
        let projects = Self::new();
        let made = projects.organism("", &[&["init"], arguments, &["new"]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(!made.err.contains("to be done"), "{made:?}");
        projects.checked();
        projects
    }

    fn checked(&self) {
        let checked = self.organism("new", &["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
        assert!(checked.out.starts_with("new is good"), "{checked:?}");
    }

    /// Switches the config from the recorded model to the model of `provider`: comments out the
    /// line of the recorded model, and uncomments the line of `provider`.
    fn use_model(&self, provider: &str) {
        let config = self.read("new/organism.toml");
        let of_provider = format!("# voice = {{ provider = \"{provider}\",");
        let mut changed = 0;
        let lines = config.lines().map(|line| match line {
            line if line.starts_with("voice = { provider = \"playback\"") => format!("# {line}\n"),
            line if line.starts_with(&of_provider) => {
                changed += 1;
                format!("{}\n", &line["# ".len()..])
            }
            line => format!("{line}\n"),
        });
        let text: String = lines.collect();
        assert_eq!(changed, 1, "one line for {provider}");
        std::fs::write(self.path("new/organism.toml"), text).unwrap();
    }

    /// Makes the config name a scripted server.
    fn use_server(&self, server: &Provider) {
        self.use_model("openai-compatible");
        let config = self.read("new/organism.toml");
        let named = config.replace("https://HOST/v1", &server.url());
        assert_ne!(named, config);
        std::fs::write(self.path("new/organism.toml"), named).unwrap();
    }

    /// The first payload that waits for a person, as `verb` lists it.
    fn waiting(&self, verb: &str) -> Option<Json> {
        self.organism("new", &[verb, "--json"]).json().into_iter().next()
    }

    /// Waits for a change by the coder, and approves it.
    fn approve_change(&self, of: &str) {
        let held = until("a change waits for approval", || {
            self.waiting("approvals").filter(|held| held["thread"].as_str().unwrap().ends_with(of))
        });
        let message = held["message"].as_str().unwrap();
        let digest = held["sha256"].as_str().unwrap();
        let preview = &held["preview"]["recorded"];
        let text = preview["text"].as_str().unwrap();
        assert!(text.contains("+++ b/greeting.py"), "the diff is shown: {text}");
        let preview = preview["sha256"].as_str().unwrap();
        let approve = ["approve", message, "--hash", digest, "--preview", preview];
        let approved = self.organism("new", &approve);
        assert_eq!(approved.code, Some(0), "{approved:?}");
    }

    fn start_crew(&self) -> Child {
        let run = ["workflow", "run", "crew", "--quiet", "--input", "task=Remove the comma."];
        let mut command = self.command("new", &run);
        command.env("API_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

const KEY: &str = "a-key-of-a-test";

fn ended(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

/// Providers for which the config of each project contains a model as a comment.
const PROVIDERS: [&str; 4] = ["openai-compatible", "openai", "anthropic", "ollama"];

#[test]
fn the_agent_answers_on_its_recording_with_a_real_tool() {
    let projects = Projects::init(&["--agent"]);
    let sent = projects.organism("new", &["send", "question.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains("There are 112 days from 1 March 2027"), "{sent:?}");
    let thread = projects.organism("new", &["thread"]);
    for part in ["assistant → calendar  count-days", "from: 2027-03-01", "calendar → assistant"]
    {
        assert!(thread.out.contains(part), "{part}: {thread:?}");
    }

    let proved = projects.organism("new", &["verify"]);
    // A projection proves nothing by itself.
    let expected = if proved.out.contains("this is a projection") { 5 } else { 0 };
    assert_eq!(proved.code, Some(expected), "{proved:?}");
}

#[test]
fn the_agents_tool_reports_a_date_that_it_cannot_read() {
    let projects = Projects::init(&["--agent"]);
    let payload = "<count-days xmlns=\"https://xml-pipeline.org/ns/payloads/v1\">\
                   <from>2027-03-01Z</from><to>2027-03-02</to></count-days>";
    let config = projects.read("new/organism.toml");
    let direct = config.replace("peers = [\"assistant\"]", "peers = [\"assistant\", \"calendar\"]");
    std::fs::write(projects.path("new/organism.toml"), direct).unwrap();
    std::fs::write(projects.path("new/days.xml"), payload).unwrap();
    let sent = projects.organism("new", &["send", "days.xml"]);
    assert!(sent.out.contains("<days-failed"), "{sent:?}");
    assert!(sent.out.contains("write YYYY-MM-DD"), "{sent:?}");
}

#[test]
fn the_agent_runs_on_a_real_model_after_one_changed_line() {
    let projects = Projects::init(&["--agent"]);
    let call = "<count-days><from>2027-01-01</from><to>2027-01-08</to></count-days>";
    let server = Provider::start(vec![
        ScriptedResponse::Text(call.to_owned()),
        ScriptedResponse::Text("It is a week.".to_owned()),
    ]);
    projects.use_server(&server);
    projects.checked_with_key();

    let mut command = projects.command("new", &["send", "question.xml"]);
    let sent: CommandOutput = command.env("API_KEY", KEY).output().unwrap().into();
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains(">It is a week.</answer>"), "{sent:?}");
    let requests = server.seen().requests;
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[1].contains("tool_result"), "{}", requests[1]);
    assert!(!requests[0].contains("spawn-thread suggested"), "{}", requests[0]);
}

impl Projects {
    fn checked_with_key(&self) {
        let mut command = self.command("new", &["check"]);
        for key in ["API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
            command.env(key, KEY);
        }
        let checked: CommandOutput = command.output().unwrap().into();
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
    }
}

#[test]
fn each_commented_model_is_a_valid_line() {
    for project in ["--agent", "--crew"] {
        let projects = Projects::init(&[project]);
        let recorded = projects.read("new/organism.toml");
        for provider in PROVIDERS {
            std::fs::write(projects.path("new/organism.toml"), &recorded).unwrap();
            projects.use_model(provider);
            let config = projects.read("new/organism.toml").replace("https://HOST/", "https://h/");
            std::fs::write(projects.path("new/organism.toml"), config).unwrap();
            projects.checked_with_key();
        }
    }
}

#[test]
fn the_crew_asks_waits_for_approvals_and_changes_the_project() {
    let projects = Projects::init(&["--crew"]);
    let run = projects.start_crew();
    let question = until("the planner's question", || projects.waiting("answer"));
    let message = question["message"].as_str().unwrap();
    assert!(question["payload"].as_str().unwrap().contains("May a name be only spaces"));
    let answer = "<question xmlns=\"https://xml-pipeline.org/ns/workflow/v1/crew/goals\">\
                  <answer>No.</answer></question>";
    std::fs::write(projects.path("answer.xml"), answer).unwrap();
    let answered = projects.organism("new", &["answer", message, "../answer.xml"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");

    let before = projects.read("new/project/greeting.py");
    projects.approve_change(".build_1");
    projects.approve_change(".build_2");
    let ran = ended(run);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("ACCEPT") && ran.out.contains("OK"), "{ran:?}");
    let after = projects.read("new/project/greeting.py");
    assert_ne!(before, after);
    assert_eq!(after.matches("if name else").count(), 2, "{after}");

    let exported = projects.organism("new", &["export", "--format", "jsonl"]).json();
    let is_turn = |line: &&Json| {
        line["type"] == "message" && line["name"].as_str().unwrap().ends_with("}model-turn")
    };
    let turns = projects.read("new/recording.toml").matches("[[turn]]").count();
    assert_eq!(exported.iter().filter(is_turn).count(), turns, "each recorded turn was used");
}

/// The crew's report about a run of this test in the project.
fn report_of(projects: &Projects, test: &str) -> String {
    let file = format!(
        "import signal, unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        {test}\n"
    );
    std::fs::write(projects.path("new/project/test_greeting.py"), file).unwrap();
    let payload = "<run-tests xmlns=\"https://xml-pipeline.org/ns/payloads/v1\"/>";
    std::fs::write(projects.path("new/tests.xml"), payload).unwrap();
    let sent = projects.organism("new", &["send", "tests.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    sent.out
}

#[test]
fn the_crews_tool_reports_any_output_and_tests_that_do_not_end() {
    let projects = Projects::init(&["--crew"]);
    let config = projects.read("new/organism.toml");
    let direct = config.replace("peers = [\"crew\"]", "peers = [\"crew\", \"tests\"]");
    assert_ne!(direct, config);
    std::fs::write(projects.path("new/organism.toml"), direct).unwrap();
    let report = report_of(&projects, "print('a\\x1b[31m\\x00b')");
    assert!(report.contains("<passed>true</passed>"), "{report}");
    assert!(report.contains("a\u{fffd}[31m\u{fffd}b"), "{report}");

    let tool = projects.read("new/tools/run_tests.py");
    let short = tool.replace("SECONDS_MAX = 300", "SECONDS_MAX = 1");
    assert_ne!(short, tool);
    std::fs::write(projects.path("new/tools/run_tests.py"), short).unwrap();
    let report = report_of(&projects, "signal.pause()");
    assert!(report.contains("<passed>false</passed>"), "{report}");
    assert!(report.contains("did not end within 1 seconds"), "{report}");
}

#[test]
fn the_crew_runs_on_a_real_model_after_one_changed_line() {
    let projects = Projects::init(&["--crew"]);
    let texts =
        ["1. Remove it.\n\nNONE", "<search><query>comma</query></search>", "Done.", "ACCEPT"];
    let answers = texts.map(|text| ScriptedResponse::Text(text.to_owned()));
    let server = Provider::start(answers.to_vec());
    projects.use_server(&server);
    let ran = ended(projects.start_crew());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("<report>Done.</report>"), "{ran:?}");
    assert_eq!(server.requests(), 4);
}

#[test]
fn the_plain_project_greets() {
    let projects = Projects::init(&[]);
    let sent = projects.organism("new", &["send", "hello.xml"]);
    assert!(sent.out.contains("Hello, world!"), "{sent:?}");
}

/// Names of everything in a directory.
fn listed(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn init_lists_what_it_wrote_and_the_next_commands() {
    let projects = Projects::new();
    let made = projects.organism("", &["init", "--agent", "two words"]);
    assert_eq!((made.code, made.out.as_str()), (Some(0), ""), "{made:?}");
    for part in
        ["wrote to two words:", "  tools/days.py", "  cd 'two words'\n", "send question.xml"]
    {
        assert!(made.err.contains(part), "{part}: {made:?}");
    }
    let config = projects.read("two words/organism.toml");
    assert!(config.contains("organism.name = \"two-words\""), "{config}");
    assert!(made.err.contains("the name of the organism is two-words:"), "{made:?}");
    let made = projects.organism("", &["init", "\u{8336}"]);
    assert!(made.err.contains("the name of the organism is greeter:"), "{made:?}");

    let made = projects.organism("two words", &["init", "--crew", "../in/the/deep"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!made.err.contains("the name of the organism"), "{made:?}");
    assert!(projects.read("in/the/deep/organism.toml").contains("organism.name = \"deep\""));
}

#[test]
fn the_json_about_each_project_follows_its_schema() {
    for project in [&[][..], &["--agent"], &["--crew"], &["--workflow", "essay"]] {
        let projects = Projects::init(project);
        for command in ["check", "config"] {
            // `organism` compares each line with the schema of the command.
            let shown = projects.organism("new", &[command, "--json"]);
            assert_eq!(shown.code, Some(0), "{command}: {shown:?}");
        }
        let models = projects.organism("new", &["models", "--json"]).json();
        assert_eq!(models.is_empty(), project.is_empty(), "{models:?}");
    }
}

#[test]
fn init_shows_a_directory_by_a_name_that_the_shell_accepts_and_the_terminal_ignores() {
    let projects = Projects::new();
    let names = [("d\u{1b}[31m\u{9b}1mX", "d\\u{1b}[31m\\u{9b}1mX"), ("-x", "-x")];
    for (name, shown) in names {
        let made = projects.organism("", &["init", "--", name]);
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(made.err.contains(&format!("wrote to {shown}:")), "{made:?}");
        let next = made.err.lines().find_map(|line| line.strip_prefix("  cd ")).unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("cd {next} && ls organism.toml")]);
        let listed: CommandOutput = shell.current_dir(projects.path("")).output().unwrap().into();
        assert_eq!(listed.out, "organism.toml\n", "{listed:?}");
    }
}

#[test]
fn init_says_which_program_is_missing() {
    let projects = Projects::new();
    // No copy: a file that was just written cannot be executed while a process started meanwhile
    // holds it open.
    let programs = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let copy = programs.path().join("organism");
    std::fs::hard_link(env!("CARGO_BIN_EXE_organism"), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.current_dir(projects.place.path()).args(["init", "--crew", "new"]);
    command.env("XDG_DATA_HOME", projects.path("data")).env("NO_COLOR", "1");
    // The search for programs begins beside the organism's own, and goes on along PATH.
    command.env("PATH", "/nowhere").stdin(Stdio::null());
    let made: CommandOutput = command.output().unwrap().into();
    assert_eq!(made.code, Some(0), "{made:?}");
    for part in ["to be done before the first run", "no program `code-search`", "`workspace`"] {
        assert!(made.err.contains(part), "{part}: {made:?}");
    }
}

#[test]
fn init_writes_everything_or_nothing() {
    let projects = Projects::new();
    std::fs::write(projects.path("file"), "mine").unwrap();
    std::fs::create_dir(projects.path("taken")).unwrap();
    std::fs::write(projects.path("taken/question.xml"), "mine").unwrap();
    std::fs::create_dir(projects.path("blocked")).unwrap();
    std::fs::write(projects.path("blocked/tools"), "mine").unwrap();
    let refused: [(&[&str], &str); 6] = [
        (&["init", "--agent", "--crew", "new"], "cannot be used with"),
        (&["init", "--agent", "file"], "file is no directory"),
        (&["init", "--agent", "file/beneath"], "file is no directory"),
        (&["init", "--agent", "taken"], "taken already has question.xml"),
        (
            &["init", "--agent", "sub/../par"],
            "sub/../par leads through a directory that is missing",
        ),
        (&["init", "--agent", "blocked"], "blocked/tools is no directory"),
    ];
    for (arguments, reason) in refused {
        let made = projects.organism("", arguments);
        assert_eq!(made.code, Some(2), "{made:?}");
        assert!(made.err.contains(reason), "{made:?}");
    }
    assert_eq!(listed(projects.place.path()), ["blocked", "file", "taken"]);
    assert_eq!(listed(&projects.path("taken")), ["question.xml"]);
    assert_eq!(listed(&projects.path("blocked")), ["tools"]);
}

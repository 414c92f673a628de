//! `organism init --workflow`: each example is a project of its own, without the source tree.

use std::path::Path;

use organism::shipped::{LISTENERS, WORKFLOWS};

use super::{CommandOutput, KEY, PROVIDERS, Projects, listed};

/// The project of a workflow, in the directory `new`.
fn project(name: &str) -> Projects {
    Projects::init(&["--workflow", name])
}

impl Projects {
    /// Runs the commands that the comment at the beginning of the config lists, with the programs
    /// of this build.
    fn run_head(&self) -> CommandOutput {
        let config = self.read("new/organism.toml");
        let head = config.lines().take_while(|line| line.starts_with('#'));
        let commands: Vec<_> = head.filter_map(|line| line.strip_prefix("#     ")).collect();
        assert!(commands.iter().any(|line| line.contains("organism workflow run")), "{config}");
        let programs = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("sh");
        let script = format!("set -e\n{}", commands.join("\n"));
        shell.args(["-c", &script]).current_dir(self.path("new")).env("PATH", path);
        shell.env("XDG_DATA_HOME", self.path("data")).env("XDG_STATE_HOME", self.path("state"));
        for variable in ["ORGANISM_CONFIG", "ROOT", "BOOKING_LEDGER", "DOCUMENTS_LEDGER"] {
            shell.env_remove(variable);
        }
        shell.envs(crate::nats::substrate(self.path("").as_path()));
        shell.output().unwrap().into()
    }
}

#[test]
fn each_workflow_runs_by_the_command_at_its_head() {
    for workflow in WORKFLOWS.iter().filter(|workflow| workflow.name != "crew") {
        let ran = project(workflow.name).run_head();
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", workflow.name);
        assert!(!ran.out.is_empty(), "{}: {ran:?}", workflow.name);
        // What the recorded turns look for is in the project.
        assert!(!ran.out.contains("(nothing found)"), "{}: {ran:?}", workflow.name);
    }
}

#[test]
fn each_workflow_passes_its_cases() {
    for (name, cases) in [
        ("booking", "booking/cases.toml"),
        ("documents", "documents/cases.toml"),
        ("essay", "essay/cases.toml"),
        ("crew", "cases.toml"),
    ] {
        let project = project(name);
        let files = listed(&project.path("new"));
        let count = project.read(&format!("new/{cases}")).matches("\n[[case]]").count();

        let tested = project.organism("new", &["workflow", "test", cases]);
        assert_eq!((tested.code, tested.err.as_str()), (Some(0), ""), "{name}: {tested:?}");
        let passed = format!("{count} passed, 0 failed\n");
        assert!(count > 2 && tested.out.ends_with(&passed), "{name}: {tested:?}");
        assert!(!project.path("data").exists(), "{name}: a case uses a journal of its own");
        assert_eq!(listed(&project.path("new")), files, "{name}: a case starts no program");
    }
}

#[test]
fn no_written_file_refers_to_the_source_tree() {
    for workflow in WORKFLOWS {
        for file in workflow.written_files() {
            for part in ["config/", "docs/", "../listeners", "../schemas"] {
                let line = file.text.lines().find(|line| line.contains(part));
                assert_eq!(line, None, "{} of {}", file.path, workflow.name);
            }
        }
    }

    for listener in LISTENERS {
        let default = format!("listeners/{}/", listener.name);
        for file in listener.written_files() {
            let text = file.text.replace(&default, "");
            for part in ["config/", "docs/", "listeners/", "../schemas"] {
                let line = text.lines().find(|line| line.contains(part));
                assert_eq!(line, None, "{} of {}", file.path, listener.name);
            }
        }
    }
}

#[test]
fn each_workflow_names_the_models_in_place_of_its_recording() {
    for workflow in WORKFLOWS.iter().filter(|workflow| workflow.name != "booking") {
        let files = workflow.written_files();
        let config = &files.iter().find(|file| file.path == "organism.toml").unwrap().text;
        for provider in PROVIDERS {
            let line = format!("voice = {{ provider = \"{provider}\",");
            let found = config.lines().any(|l| l.starts_with('#') && l.contains(&line));
            assert!(found, "{provider} in {}", workflow.name);
        }
    }
}

#[test]
fn a_workflow_takes_a_model_from_a_comment() {
    let projects = project("essay");
    let config = projects.read("new/organism.toml");
    let recorded = config.lines().find(|line| line.starts_with("models.voice = ")).unwrap();
    let changed = config.replace(recorded, "").replace(
        "# models.voice = { provider = \"openai\"",
        "models.voice = { provider = \"openai\"",
    );
    std::fs::write(projects.path("new/organism.toml"), changed).unwrap();
    let mut command = projects.command("new", &["check"]);
    let checked: CommandOutput = command.env("OPENAI_API_KEY", KEY).output().unwrap().into();
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
}

#[test]
fn an_unknown_workflow_is_answered_with_all_names() {
    let projects = Projects::new();
    let made = projects.organism("", &["init", "--workflow", "esay", "new"]);
    assert_eq!(made.code, Some(2), "{made:?}");
    assert!(made.err.contains("did you mean `essay`?"), "{made:?}");
    assert!(made.err.contains("booking, code-review, crew, decision"), "{made:?}");
    let list = projects.organism("", &["init", "--workflow", "lisst", "new"]);
    assert!(list.err.contains("did you mean `list`? (there are booking, "), "{list:?}");
    let both = projects.organism("", &["init", "--workflow", "essay", "--crew", "new"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let names = projects.organism("", &["init", "--workflow", "list"]);
    assert_eq!((names.code, names.out.lines().count()), (Some(0), WORKFLOWS.len()), "{names:?}");
    let named = projects.organism("", &["init", "--workflow", "list", "new"]);
    assert_eq!(named.code, Some(2), "{named:?}");
    assert!(listed(projects.place.path()).is_empty());
}

//! Two projects with the same name use the same keys, while their organisms are killed under load.
//! Neither organism answers for the other, and each keeps all its own records.
//!
//! `KILLS=…` sets the number of kills; `SEED=…` repeats the choices.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use super::kill::{choices, environment, torture};
use super::project::Projects;
use super::{CommandOutput, ECHO_CONFIG, House, Running, TALK, say, talk_reply, until};

const NAMES: [&str; 2] = ["one", "two"];
const SENDS: usize = 2;

fn text(project: &str, round: u64, at: usize) -> String {
    format!("{project}-{round}-{at}")
}

fn key(round: u64, at: usize) -> String {
    format!("key-{round}-{at}")
}

/// Submits a text of this project under a key that the other project also uses.
fn send(projects: &Projects, project: &str, round: u64, at: usize) -> Child {
    let file = format!("{round}-{at}.xml");
    fs::write(projects.path(project, &file), say(&text(project, round, at))).unwrap();
    let key = key(round, at);
    let mut send = projects.command(project, &["send", &file, "--as", "desk", "--key", &key]);
    send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn log(projects: &Projects, project: &str) -> String {
    fs::read_to_string(projects.path(project, "log")).unwrap()
}

/// Starts an organism. It may have to wait for a command of the same project that holds the
/// journal.
fn run(projects: &Projects, project: &str) -> Running {
    let log = File::create(projects.path(project, "log")).unwrap();
    let mut run = projects.command(project, &["run"]);
    Running { child: run.stdout(Stdio::null()).stderr(log).spawn().unwrap() }
}

fn is_ready(projects: &Projects, project: &str, running: &mut Running) {
    until("the organism is ready", || {
        let log = log(projects, project);
        assert_eq!(running.child.try_wait().unwrap(), None, "{log}");
        log.contains("is ready").then_some(())
    });
}

#[test]
fn two_projects_of_one_name_that_are_killed_under_load_never_answer_for_each_other() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    NAMES.iter().for_each(|name| projects.make(name, ECHO_CONFIG));
    assert_eq!(projects.organism("one", &["adopt", "--new"]).code, Some(0));
    assert_eq!(projects.send("one", "begun", &[]).out, talk_reply("begun"));
    assert_eq!(projects.organism("two", &["adopt", "--new"]).code, Some(0));
    let [data, _] = projects.directories("one");
    let with_data = format!("name = \"talk\"\ndata = \"{}\"", data.display());
    projects.make("thief", &ECHO_CONFIG.replace("name = \"talk\"", &with_data));

    let mut choices = choices();
    let rounds = environment("KILLS").unwrap_or(if torture() { 100 } else { 3 });
    for round in 0..rounds {
        let sends = NAMES
            .map(|name| (0..SENDS).map(|at| send(&projects, name, round, at)).collect::<Vec<_>>());
        let mut running = NAMES.map(|name| run(&projects, name));
        for (name, running) in NAMES.iter().zip(&mut running) {
            is_ready(&projects, name, running);
        }
        let doomed = choices.below(2) as usize;
        let more = NAMES.map(|name| {
            (SENDS..2 * SENDS).map(|at| send(&projects, name, round, at)).collect::<Vec<_>>()
        });
        let stolen = projects.send("thief", "stolen", &["--key", &key(round, 0)]);
        assert_eq!((stolen.code, stolen.out.as_str()), (Some(78), ""), "{stolen:?}");
        running[doomed].child.kill().unwrap();

        for ((name, sends), more) in NAMES.iter().zip(sends).zip(more) {
            for (at, child) in sends.into_iter().chain(more).enumerate() {
                let ended = CommandOutput::from(child.wait_with_output().unwrap());
                // A client whose organism was killed may lack its answer, but never gets the
                // other's.
                let own = talk_reply(&text(name, round, at));
                let is_cut_short = matches!(ended.code, Some(69 | 75)) && ended.out.is_empty();
                assert!(ended.out == own || is_cut_short, "{name}: {ended:?}");
            }
        }
    }

    for name in NAMES {
        let mut running = run(&projects, name);
        is_ready(&projects, name, &mut running);
        for (round, at) in (0..rounds).flat_map(|round| (0..2 * SENDS).map(move |at| (round, at))) {
            let answered = send(&projects, name, round, at).wait_with_output().unwrap();
            let answered = CommandOutput::from(answered);
            assert_eq!(answered.out, talk_reply(&text(name, round, at)), "{answered:?}");
        }
        assert_eq!(running.stop(), Some(0));
        let exported = projects.organism(name, &["export", "--format", "jsonl"]).json();
        let called = exported.iter().filter(|line| {
            line["kind"] == "call" && line["name"] == format!("{{{TALK}}}say").as_str()
        });
        let begun = usize::from(name == "one");
        assert_eq!(called.count(), begun + rounds as usize * 2 * SENDS, "{name}");
        let verified = projects.organism(name, &["verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

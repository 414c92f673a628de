//! An organism is identified by the path of its config. Projects with the same name never use each
//! other's journals, and a moved project continues after an operator has adopted its journal.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use organism::config::directory_name;
use organism::failpoint::PROJECT;
use organism::service::encoding::VERSION;

use super::{CONFIG, CommandOutput, ECHO_CONFIG, House, Running, numbered, say, talk_reply, until};
use crate::json_schemas::assert_described;
use crate::nats::proof_code;

/// Projects with the same name in a house. They share the user's directories and the servers of the
/// journal.
pub struct Projects {
    pub house: House,
}

impl Projects {
    fn new(names: &[&str]) -> Self {
        let projects = Self { house: House::new() };
        names.iter().for_each(|name| projects.make(name, ECHO_CONFIG));
        projects
    }

    pub fn make(&self, project: &str, config: &str) {
        fs::create_dir(self.house.path(project)).unwrap();
        for file in ["player.pl", "talk.xsd"] {
            fs::copy(self.house.path(file), self.path(project, file)).unwrap();
        }
        fs::write(self.path(project, "organism.toml"), config).unwrap();
    }

    pub fn path(&self, project: &str, name: &str) -> PathBuf {
        self.house.path(project).join(name)
    }

    /// The default directories of a project, for its data and its state.
    pub fn directories(&self, project: &str) -> [PathBuf; 2] {
        let name = directory_name("talk", &self.path(project, "organism.toml"));
        ["data", "state"].map(|kind| self.house.path(kind).join("organism").join(&name))
    }

    pub fn command(&self, project: &str, arguments: &[&str]) -> Command {
        let mut command = self.house.command(arguments);
        command.current_dir(self.house.path(project));
        command
    }

    /// Runs a command until it exits. Repeats it if the index lacks the latest records, because the
    /// writer of the index gets little time on a busy machine.
    pub fn organism(&self, project: &str, arguments: &[&str]) -> CommandOutput {
        until("the index has caught up", || {
            let output = self.command(project, arguments).output().unwrap();
            let answer = CommandOutput::from(output);
            (!answer.is_behind()).then_some(answer)
        })
    }

    pub fn send(&self, project: &str, text: &str, arguments: &[&str]) -> CommandOutput {
        fs::write(self.path(project, "payload.xml"), say(text)).unwrap();
        let send = ["send", "payload.xml", "--as", "desk"];
        self.organism(project, &[&send, arguments].concat())
    }

    fn run(&self, project: &str) -> Running {
        self.house.run_with(self.command(project, &["run"]))
    }

    fn thread_ids(&self, project: &str) -> Vec<String> {
        let listed = self.organism(project, &["threads", "--json"]).json();
        listed.iter().map(|line| line["thread"].as_str().unwrap().to_owned()).collect()
    }

    /// The recorded payloads of `operator-action`.
    fn actions(&self, project: &str) -> Vec<String> {
        let exported = self.organism(project, &["export", "--format", "jsonl"]).json();
        let actions = exported.into_iter().filter(|line| {
            let name = line["name"].as_str().unwrap_or_default();
            name == "{https://xml-pipeline.org/ns/core/v1}operator-action"
        });
        actions.map(|line| line["payload"].as_str().unwrap().to_owned()).collect()
    }
}

#[track_caller]
fn refused(said: &CommandOutput, named: &[&str]) {
    assert_eq!(said.code, Some(78), "{said:?}");
    assert_eq!(said.out, "", "{said:?}");
    named.iter().for_each(|name| assert!(said.err.contains(name), "{name}: {said:?}"));
}

#[test]
fn a_project_is_never_answered_by_another_one_of_its_name() {
    let projects = Projects::new(&["one", "two"]);
    let running = projects.run("one");
    let [data, _] = projects.directories("one");
    let answered = projects.send("one", "first", &["--key", "k"]);
    assert_eq!(answered.out, talk_reply("first"), "{answered:?}");

    let named = [&data.display().to_string(), "one/organism.toml", "organism adopt", "--new"];
    refused(&projects.send("two", "second", &["--key", "k"]), &named);
    refused(&projects.organism("two", &["run"]), &named);
    let listed = projects.organism("two", &["threads"]);
    assert_ne!(listed.code, Some(0), "{listed:?}");
    assert_eq!(listed.out, "", "{listed:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_new_journal_begins_beside_that_of_another_project_of_its_name() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    projects.make("one", ECHO_CONFIG);
    projects.make("two", ECHO_CONFIG);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    let begun = projects.organism("two", &["adopt", "--new"]);
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let answered = projects.send("two", "second", &["--key", "k"]);
    assert_eq!(answered.out, talk_reply("second"), "{answered:?}");
    assert_ne!(projects.thread_ids("one"), projects.thread_ids("two"));

    // With two other journals, the command needs the name of one.
    projects.make("three", ECHO_CONFIG);
    let [one, _] = projects.directories("one");
    let [two, _] = projects.directories("two");
    let named = [&one.display().to_string(), &two.display().to_string(), "--from"];
    refused(&projects.organism("three", &["adopt"]), &named);
    let begun = projects.house.run_with(projects.command("three", &["run", "--new"]));
    assert_eq!(begun.stop(), Some(0));
    let again = projects.run("three");
    assert_eq!(again.stop(), Some(0), "it is its own from then on");
}

#[test]
fn a_journal_of_another_path_is_refused_to_every_command_until_it_is_adopted() {
    let projects = Projects { house: House::new() };
    let shared = projects.house.path("shared");
    let with_data = format!("name = \"talk\"\ndata = \"{}\"", shared.display());
    let config = ECHO_CONFIG.replace("name = \"talk\"", &with_data);
    projects.make("one", &config);
    projects.make("two", &config);
    let running = projects.run("one");
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    let [thread] = &projects.thread_ids("one")[..] else { panic!("one thread") };

    let own = projects.path("two", "organism.toml").display().to_string();
    let stored = projects.path("one", "organism.toml").display().to_string();
    let named = [own.as_str(), stored.as_str(), "organism adopt"];
    refused(&projects.send("two", "second", &["--key", "k"]), &named);
    for command in [
        &["threads"][..],
        &["thread", thread],
        &["search", "first"],
        &["export"],
        &["verify"],
        &["approvals"],
        &["answer"],
        &["cancel", thread],
        &["run"],
        &["run", "--new"],
    ] {
        refused(&projects.organism("two", command), &named);
    }
    let by_hand = projects.organism("two", &["threads", "--data", &shared.display().to_string()]);
    assert_eq!(by_hand.code, Some(0), "what is named by its directory can be read: {by_hand:?}");

    refused(&projects.organism("two", &["adopt"]), &named);
    let held = projects.organism("two", &["adopt", "--from", &stored]);
    assert_eq!(held.code, Some(75), "{held:?}");
    assert_eq!(projects.send("one", "third", &[]).out, talk_reply("third"), "it goes on as it was");
    assert_eq!(running.stop(), Some(0));

    let from = "../one/organism.toml";
    let adopted = projects.organism("two", &["adopt", "--from", from, "--note", "moved <house>"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    let again = projects.send("two", "first", &["--key", "k"]);
    assert_eq!(again.out, talk_reply("first"), "{again:?}");
    let [action] = &projects.actions("two")[..] else { panic!("one action") };
    assert!(action.contains("action=\"adopt\" by=\"operator\" uid="), "{action}");
    assert!(action.contains("reason=\"moved &lt;house&gt;\""), "{action}");
    assert!(action.contains(&format!("<detail name=\"from\">{stored}</detail>")), "{action}");
    assert!(action.contains(&format!("<detail name=\"to\">{own}</detail>")), "{action}");
    refused(&projects.send("one", "fourth", &[]), &named);
    assert_eq!(
        projects.organism("two", &["adopt"]).code,
        Some(0),
        "there is nothing more to adopt"
    );
    assert_eq!(projects.actions("two").len(), 1);
    assert_eq!(projects.organism("two", &["verify"]).code, Some(proof_code()));
}

#[test]
fn a_journal_is_taken_from_a_project_that_is_still_there_only_by_its_name() {
    let projects = Projects::new(&["one"]);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    projects.make("copy", ECHO_CONFIG);
    let own = projects.path("copy", "organism.toml").display().to_string();
    let owner = projects.path("one", "organism.toml").display().to_string();
    let [data, _] = projects.directories("one");

    let start = projects.send("copy", "second", &[]);
    refused(&start, &[&own, &owner, "whose config is still there", "organism adopt --new"]);
    // The next command names the config that this one was given.
    let named = projects.organism("copy", &["adopt", "--config", &own]);
    refused(&named, &[&format!("`organism adopt --new --config {own}`")]);
    let from = format!("organism adopt --from {owner}");
    let plain = projects.organism("copy", &["adopt"]);
    refused(&plain, &[&own, &owner, "still there", &from, "organism adopt --new"]);
    let wrong = projects.organism("copy", &["adopt", "--from", "../nowhere/organism.toml"]);
    refused(&wrong, &["nowhere/organism.toml", &owner]);
    assert!(data.exists(), "nothing was changed");
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));

    // A refused adoption takes nothing away from the other project.
    let [own_data, _] = projects.directories("copy");
    assert_eq!(projects.organism("copy", &["adopt", "--new"]).code, Some(0));
    let occupied = projects.organism("copy", &["adopt", "--from", &owner]);
    refused(&occupied, &[&own_data.display().to_string(), "move one of them away"]);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    fs::rename(&own_data, projects.house.path("away")).unwrap();

    let adopted = projects.organism("copy", &["adopt", "--from", &owner]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert!(adopted.err.contains(&owner), "{adopted:?}");
    assert_eq!(projects.send("copy", "first", &["--key", "k"]).out, talk_reply("first"));
    let lost = projects.send("one", "third", &[]);
    refused(&lost, &[&own, "organism adopt"]);
}

#[test]
fn a_second_init_of_one_name_is_shown_how_its_project_begins() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    let runs = |directory: &str, arguments: &[&str]| -> CommandOutput {
        let mut command = projects.house.command(arguments);
        command.current_dir(projects.house.path(directory)).output().unwrap().into()
    };
    let ways = ["one", "two"].map(|parent| {
        fs::create_dir(projects.house.path(parent)).unwrap();
        let made = runs(parent, &["init", "hello"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(made.err.contains("\n  checkpoints/\n"), "{made:?}");
        if parent == "one" {
            assert_eq!(runs("one/hello", &["send", "hello.xml"]).code, Some(0));
        }
        made.err.contains("organism adopt --new")
    });
    assert_eq!(ways, [false, true]);
    let namesake = "another project of this name has a journal; `organism adopt --new` begins one";
    let is_noted = ["one/hello", "two/hello"].map(|directory| {
        let checked = runs(directory, &["check"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        checked.err.contains(&format!("note: if this config is started: {namesake}"))
    });
    assert_eq!(is_noted, [false, true]);
    let checked = runs("two/hello", &["check", "--json"]);
    assert_described(&["check", "--json"], &checked.out);
    let problem = serde_json::from_str::<serde_json::Value>(&checked.out).unwrap();
    assert!(problem["start_problem"].as_str().unwrap().starts_with(namesake), "{problem:#}");

    let start = runs("two/hello", &["send", "hello.xml"]);
    refused(
        &start,
        &["one/hello/organism.toml", "two/hello/organism.toml", "organism adopt --new"],
    );
    assert_eq!(runs("two/hello", &["adopt", "--new"]).code, Some(0));
    let sent = runs("two/hello", &["send", "hello.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn a_moved_project_is_refused_until_it_is_adopted() {
    let projects = Projects::new(&["one"]);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    let before = projects.thread_ids("one");
    let [data, state] = projects.directories("one");
    let stored = projects.path("one", "organism.toml").display().to_string();
    fs::rename(projects.house.path("one"), projects.house.path("two")).unwrap();

    let named = [&data.display().to_string(), stored.as_str(), "organism adopt", "--new"];
    refused(&projects.send("two", "first", &["--key", "k"]), &named);
    for command in [
        &["threads"][..],
        &["verify"],
        &["search", "first"],
        &["cancel", before[0].as_str()],
        &["repair", "--accept-loss"],
        &["key", "show"],
    ] {
        refused(&projects.organism("two", command), &named);
    }
    let adopted = projects.organism("two", &["adopt"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert!(!data.exists() && !state.exists());

    let again = projects.send("two", "first", &["--key", "k"]);
    assert_eq!(again.out, talk_reply("first"), "{again:?}");
    assert_eq!(projects.thread_ids("two"), before);
    assert_eq!(projects.organism("two", &["verify"]).code, Some(proof_code()));
}

#[test]
fn directories_of_an_earlier_version_are_named_and_adopted() {
    let projects = Projects::new(&["one"]);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    let before = projects.thread_ids("one");
    let [data, state] = projects.directories("one");
    let [old_data, old_state] = [&data, &state].map(|path| path.with_file_name("talk"));
    fs::remove_file(data.join("project")).unwrap();
    let unnamed = projects.send("one", "first", &["--key", "k"]);
    refused(&unnamed, &[&data.display().to_string(), "organism adopt"]);
    fs::rename(&data, &old_data).unwrap();
    fs::rename(&state, &old_state).unwrap();

    let named = [&old_data.display().to_string(), "earlier version", "organism adopt"];
    refused(&projects.send("one", "first", &["--key", "k"]), &named);
    // The process crashed after it had renamed the first of two directories.
    fs::rename(&old_state, &state).unwrap();
    let adopted = projects.organism("one", &["adopt"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    assert_eq!(projects.thread_ids("one"), before);
    assert_eq!(projects.actions("one").len(), 1);
    assert_eq!(projects.organism("one", &["verify"]).code, Some(proof_code()));
}

#[test]
fn an_adoption_that_was_cut_short_before_its_end_is_completed_by_the_next_one() {
    let projects = Projects::new(&["one"]);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    fs::rename(projects.house.path("one"), projects.house.path("two")).unwrap();
    let [data, state] = projects.directories("one");
    let [new_data, new_state] = projects.directories("two");
    fs::rename(state, new_state).unwrap();
    fs::rename(data, &new_data).unwrap();

    let stored = projects.path("one", "organism.toml").display().to_string();
    refused(&projects.send("two", "second", &[]), &[&stored, "organism adopt"]);
    let adopted = projects.organism("two", &["adopt"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert_eq!(projects.send("two", "first", &["--key", "k"]).out, talk_reply("first"));
    assert_eq!(projects.organism("two", &["verify"]).code, Some(proof_code()));
}

/// Two projects from an earlier version keep their keys when they are adopted. In that version, all
/// organisms with the same name shared one directory for their state.
#[test]
fn two_projects_of_an_earlier_version_that_shared_their_state_keep_their_keys_when_adopted() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    let shared = projects.house.path("state").join("organism").join("talk");
    for name in ["one", "two"] {
        let data = projects.house.path(&format!("data-{name}"));
        let with_data = format!("name = \"talk\"\ndata = \"{}\"", data.display());
        projects.make(name, &ECHO_CONFIG.replace("name = \"talk\"", &with_data));
        let [_, state] = projects.directories(name);
        if shared.exists() {
            fs::rename(&shared, &state).unwrap();
        }
        assert_eq!(projects.send(name, name, &["--key", "k"]).out, talk_reply(name));
        fs::rename(&state, &shared).unwrap();
        fs::remove_file(data.join("project")).unwrap();
    }

    for name in ["one", "two"] {
        let [_, state] = projects.directories(name);
        let adopted = projects.organism(name, &["adopt"]);
        assert_eq!(adopted.code, Some(0), "{adopted:?}");
        let copied = format!("copied {} to {}", shared.display(), state.display());
        assert!(adopted.err.contains(&copied), "{adopted:?}");
        assert_eq!(fs::read(state.join("key")).unwrap(), fs::read(shared.join("key")).unwrap());
    }
    for name in ["one", "two"] {
        assert_eq!(projects.send(name, name, &["--key", "k"]).out, talk_reply(name));
        let verified = projects.organism(name, &["verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        let [action] = &projects.actions(name)[..] else { panic!("one action") };
        assert!(action.contains("<detail name=\"copied\">"), "{action}");
    }
}

#[test]
fn a_project_is_its_path_as_given_and_links_are_not_resolved() {
    let projects = Projects::new(&["one"]);
    std::os::unix::fs::symlink(projects.house.path("one"), projects.house.path("current")).unwrap();
    let config = projects.path("current", "organism.toml").display().to_string();
    assert_eq!(projects.send("one", "first", &["--config", &config]).out, talk_reply("first"));
    let [data, _] = projects.directories("current");
    assert!(data.exists(), "it is named after the link");

    // A command that enters by the link and names no config belongs to the same project.
    let mut entered = projects.command("current", &["threads", "--json"]);
    entered.env("PWD", projects.house.path("current"));
    let listed = CommandOutput::from(entered.output().unwrap());
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert_eq!(listed.json().len(), 1);
    let roundabout = projects.house.path("one/../current/./organism.toml").display().to_string();
    let listed = projects.organism("one", &["threads", "--json", "--config", &roundabout]);
    assert_eq!(listed.json().len(), 1, "{listed:?}");
}

#[test]
fn of_two_projects_that_begin_in_one_directory_at_once_one_is_refused() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    let with_data = format!("name = \"talk\"\ndata = \"{}\"", projects.house.path("s").display());
    let config = ECHO_CONFIG.replace("name = \"talk\"", &with_data);
    for round in 0..4 {
        let names = [format!("a{round}"), format!("b{round}")];
        let starts = names.each_ref().map(|name| {
            projects.make(name, &config);
            fs::write(projects.path(name, "payload.xml"), say(name)).unwrap();
            let mut send = projects.command(name, &["send", "payload.xml", "--as", "desk"]);
            send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let ends = starts.map(|start| CommandOutput::from(start.wait_with_output().unwrap()));
        let codes = ends.each_ref().map(|end| end.code);
        assert!(codes == [Some(0), Some(78)] || codes == [Some(78), Some(0)], "{ends:?}");
        until("the directory is free", || fs::remove_dir_all(projects.house.path("s")).ok());
    }
}

#[test]
fn a_project_that_finds_a_directory_free_is_refused_if_another_is_bound_to_it_first() {
    let projects = Projects { house: House::settled(ECHO_CONFIG) };
    let with_data = format!("name = \"talk\"\ndata = \"{}\"", projects.house.path("s").display());
    let config = ECHO_CONFIG.replace("name = \"talk\"", &with_data);
    for name in ["slow", "quick"] {
        projects.make(name, &config);
        fs::write(projects.path(name, "payload.xml"), say(name)).unwrap();
    }

    let [place] = PROJECT;
    let go_on = projects.house.path("go-on");
    let log = projects.house.path("slow.txt");
    let mut slow = projects.command("slow", &["send", "payload.xml", "--as", "desk"]);
    slow.env("ORGANISM_FAILPOINT", place).env("ORGANISM_FAILPOINT_UNTIL", &go_on);
    slow.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let slow = slow.spawn().unwrap();
    let read = || fs::read_to_string(&log).unwrap();
    until("it has found the directory free", || read().contains(place).then_some(()));
    assert_eq!(projects.send("quick", "quick", &[]).out, talk_reply("quick"));

    fs::write(&go_on, "").unwrap();
    let ended = slow.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(78), "{}", read());
    assert!(ended.stdout.is_empty(), "{ended:?}");
    assert!(read().contains("belongs to"), "{}", read());
    assert_eq!(projects.organism("quick", &["verify"]).code, Some(0));
}

/// Replaces `from` by `to` in the config file. An organism that runs keeps the config of its start.
fn edited(house: &House, from: &str, to: &str) {
    let text = fs::read_to_string(house.path("organism.toml")).unwrap();
    assert!(text.contains(from), "{text}");
    house.write("organism.toml", text.replace(from, to));
}

fn digest(house: &House) -> String {
    house.handshake().config.unwrap().to_string()
}

#[test]
fn a_changed_config_stops_new_submissions_and_every_other_command_notes_it() {
    let held = CONFIG.replace("[listeners.solo]", "[listeners.solo]\napproval = \"always\"");
    let house = House::with(&held);
    let running = house.run();
    let waits = |number: &str| {
        let sent = house.send_text(&numbered("ping", number), &["--no-wait", "--json"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
        let held = house.organism(&["approvals", "--json"]).json();
        let call = held.iter().find(|call| call["thread"] == thread.as_str()).unwrap();
        let of = |key: &str| call[key].as_str().unwrap().to_owned();
        (thread.clone(), of("message"), of("sha256"))
    };
    let [one, two, three] = ["1", "2", "3"].map(waits);
    let before = digest(&house);

    house.write("organism.toml", format!("{held}\n# a comment is no change\n"));
    assert_eq!(house.send_text(&say("same"), &[]).out, talk_reply("same"));
    assert_eq!(house.organism(&["threads"]).err, "");

    edited(&house, "peers = [\"echo\", \"holder\", \"solo\"]", "peers = [\"echo\", \"solo\"]");
    let after = digest(&house);
    assert_ne!(before, after);
    let refused = house.send_text(&say("new"), &[]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    for text in [&before, &after, "restart", "nothing was sent"] {
        assert!(refused.err.contains(text), "{text}: {refused:?}");
    }
    house.write("payload.xml", say("new"));
    let recorded = house.organism(&["record", "out.xml", "payload.xml", "--as", "desk"]);
    assert_eq!(recorded.code, Some(75), "{recorded:?}");
    assert!(recorded.err.contains(&before) && recorded.err.contains(&after), "{recorded:?}");

    let says_so = |arguments: &[&str]| {
        let worked = house.organism(arguments);
        assert_eq!(worked.code, Some(0), "{worked:?}");
        let told = worked.err.matches("the config has changed since the organism started").count();
        assert_eq!(told, 1, "{arguments:?}: {worked:?}");
    };
    says_so(&["threads"]);
    // The name of a listener in the environment does not make a process a hosted process.
    let named = house.command(&["threads"]).env("ORGANISM_LISTENER", "echo").output().unwrap();
    let named = CommandOutput::from(named);
    assert!(named.err.contains("the config has changed"), "{named:?}");
    says_so(&["thread", &one.0]);
    says_so(&["approvals"]);
    says_so(&["export"]);
    says_so(&["approve", &one.1, "--hash", &one.2]);

    // Also if the config can no longer be loaded.
    edited(&house, "[clients.desk]", "[clients.desk]\nnonsense = 1");
    says_so(&["threads"]);
    says_so(&["refuse", &two.1]);
    says_so(&["cancel", &three.0]);
    assert_eq!(house.send_text(&say("new"), &[]).code, Some(78), "its problems are drawn");
    house.write("organism.toml", &held);
    assert_eq!(house.send_text(&say("back"), &[]).out, talk_reply("back"), "and it works again");
    assert_eq!(running.stop(), Some(0));

    let failed = [&two.0, &three.0].map(|thread| {
        let shown = house.organism(&["export", thread, "--format", "jsonl"]).out;
        shown.contains("denied") || shown.contains("cancelled")
    });
    assert_eq!(failed, [true, true]);
    house.verified();
}

#[test]
fn an_answer_of_a_person_counts_under_a_changed_config() {
    let human = "[humans.boss]\nschema = \"people.xsd\"\naccepts = [\"question\"]\n\
                 replies = [\"decision\", \"pass\"]\n";
    let asks = CONFIG.replace("\"solo\"]", "\"solo\", \"boss\"]");
    let house = House::with(&format!("{asks}\n{human}"));
    house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
    house.write("question.xml", "<question xmlns=\"urn:example:people\">May I?</question>");
    house.write("pass.xml", "<pass xmlns=\"urn:example:people\"/>");
    let running = house.run();
    let sent = house.organism(&["send", "--as", "desk", "--no-wait", "question.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let open = || house.organism(&["answer", "--json"]).json();
    let question = until("the question is open", || open().pop());

    edited(&house, "\"solo\", \"boss\"]", "\"boss\"]");
    let message = question["message"].as_str().unwrap();
    let answered = house.organism(&["answer", message, "pass.xml"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(answered.err.contains("the config has changed since the organism started"));
    assert_eq!(open(), Vec::<serde_json::Value>::new());
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_restart_takes_the_changed_config() {
    let house = House::new();
    let running = house.run();
    edited(&house, "peers = [\"echo\", \"holder\", \"solo\"]", "peers = [\"echo\"]");
    assert_eq!(house.send_text(&say("new"), &[]).code, Some(75));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.send_text(&say("new"), &[]).out, talk_reply("new"), "it is started with it");
    let running = house.run();
    assert_eq!(house.send_text(&say("newer"), &[]).out, talk_reply("newer"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_request_of_another_project_or_of_none_is_refused_at_the_socket() {
    use std::io::{Read as _, Write as _};
    let house = House::with_echo();
    let running = house.run();
    let project = house.path("organism.toml").display().to_string();
    let ask = |handshake: &str| {
        let path = house.data().join("control.sock");
        let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
        writeln!(socket, "organism/{VERSION} {{\"do\":\"status\"{handshake}}}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    for handshake in ["", ",\"project\":\"/elsewhere/organism.toml\""] {
        let answer = ask(handshake);
        assert_eq!(answer, format!("organism/{VERSION} {{\"otherproject\":\"{project}\"}}\n"));
    }
    let answer = ask(&format!(",\"project\":\"{project}\""));
    let status =
        format!("organism/{VERSION} {{\"status\":{{\"config\":\"{}\"}}}}\n", digest(&house));
    assert_eq!(answer, status);
    assert_eq!(running.stop(), Some(0));
}

/// Opens a socket of the test at this path, in place of an organism's socket. The socket sends no
/// response. Returns the requests that the socket receives.
fn forge(path: &Path) -> Arc<Mutex<String>> {
    let received = Arc::new(Mutex::new(String::new()));
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let taken = Arc::clone(&received);
    drop(std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut line = String::new();
            BufReader::new(stream.unwrap()).read_line(&mut line).unwrap();
            taken.lock().unwrap().push_str(&line);
        }
    }));
    received
}

/// A process of the same user may put its own socket at the path of the organism's socket. Commands
/// send nothing to the socket of a process that does not hold the journal.
#[test]
fn a_socket_of_another_process_than_the_holder_of_the_journal_gets_nothing() {
    let house = House::new();
    let running = house.run();
    let path = house.data().join("control.sock");
    let kept = house.data().join("kept.sock");
    fs::hard_link(&path, &kept).unwrap();
    let forged = house.data().join("forged.sock");
    let received = forge(&forged);
    fs::rename(&forged, &path).unwrap();

    let holder = format!("process {} holds the journal", running.child.id());
    let server = format!("served by process {}", std::process::id());
    house.write("payload.xml", say("secret"));
    let thread = "sess-none0000";
    for command in [&["send", "payload.xml", "--as", "desk"][..], &["cancel", thread]] {
        let refused = house.organism(command);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert_eq!(refused.out, "", "{refused:?}");
        assert_eq!(*received.lock().unwrap(), "", "{command:?}");
    }
    let refused = house.organism(&["send", "payload.xml", "--as", "desk"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    for text in [&holder, &server] {
        assert!(refused.err.contains(text), "{text}: {refused:?}");
    }
    assert_eq!(*received.lock().unwrap(), "");
    let listed = house.organism(&["threads"]);
    assert_eq!(listed.code, Some(0), "the record can be read: {listed:?}");

    fs::rename(&kept, &path).unwrap();
    assert_eq!(house.send_text(&say("back"), &[]).out, talk_reply("back"));
    assert_eq!(running.stop(), Some(0));
}

/// A process whose pump has failed serves its socket for a moment after another process has taken
/// the journal. Here, this program takes its place, and leaves after more connections than a command
/// makes in a tenth of a second.
#[test]
fn a_command_waits_for_a_pump_that_takes_over_the_journal_to_open_its_socket() {
    let house = House::new();
    let running = house.run();
    let path = house.data().join("control.sock");
    let kept = house.data().join("kept.sock");
    fs::hard_link(&path, &kept).unwrap();
    let forged = house.data().join("forged.sock");
    let earlier = std::os::unix::net::UnixListener::bind(&forged).unwrap();
    fs::rename(&forged, &path).unwrap();
    let leaving = std::thread::spawn(move || {
        for _ in 0..12 {
            let (mut connection, _) = earlier.accept().unwrap();
            let mut received = String::new();
            connection.read_to_string(&mut received).unwrap();
            assert_eq!(received, "");
        }
        fs::rename(&kept, &path).unwrap();
    });

    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    leaving.join().unwrap();
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_socket_that_no_holder_of_a_journal_serves_is_replaced() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("first"), &[]).out, talk_reply("first"));
    let path = house.data().join("control.sock");
    let forged = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answered = house.send_text(&say("second"), &[]);
    assert_eq!(answered.out, talk_reply("second"), "{answered:?}");
    drop(forged);
    house.verified();
}

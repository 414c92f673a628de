//! Proposals of models, from the turn in which a model writes a proposal to the changed files.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::organism::examples::source_runs::approve_until;
use crate::organism::{CommandOutput, House, until};

use super::{FILES, direct, file, housed, listener, project, read};

const HEAD: &str = r#"[organism]
name = "talk"

[clients.desk]
peers = ["coder"]

[models.recorded]
provider = "playback"
recording = "recording.toml"

"#;

/// A house with a coder that has these peers, takes these turns and then ends its call.
fn coder(peers: &str, listeners: &str, turns: &[&str]) -> House {
    let schema = project().join("config/coder/coder.xsd");
    let agent = format!(
        "[agents.coder]\nschema = \"{}\"\naccepts = [\"task\"]\npeers = {peers}\n\
         model = \"recorded\"\nmax_actions_per_turn = 20\n\n",
        schema.display()
    );
    let house = housed(&format!("{HEAD}{agent}{listeners}"));
    let mut recording = "recorded = \"a test\"\n".to_owned();
    let end = "<attempt_completion><result>done</result></attempt_completion>";
    for (index, turn) in turns.iter().chain([&end]).enumerate() {
        let text = toml::Value::String((*turn).to_owned());
        let turn = index + 1;
        recording.push_str(&format!("[[turn]]\nagent = \"coder\"\nturn = {turn}\ntext = {text}\n"));
    }
    house.write("recording.toml", recording);
    house
}

const TASK: &str = "<task xmlns=\"https://xml-pipeline.org/ns/coder/v1\">go</task>";

fn task(house: &House) -> CommandOutput {
    let said = house.send_text(TASK, &["--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

/// All records, as text.
fn record(house: &House) -> String {
    house.organism(&["export", "--format", "jsonl"]).out
}

const RAW: &str = r#"I write two files and change one of them.
<proposed_file_replace file_path="raw.ts"
  change_summary='Say "why"'>
const f = (a, b) => a && b < c ? "x" : '<y/>';
if (a & b) { log(`<div class="z">${a}</div>`) } // &lt; &amp; stay
</proposed_file_replace>
<create_file path='single.txt'>it's "quoted", 100% && <b>
</create_file>
<str_replace
    path = "raw.ts">
  <!-- the condition -->
  <old_str>a && b < c</old_str>
  <!-- becomes -->
  <new_str>a || b >= c && !"<old_str>"</new_str>
</str_replace>
<proposed_package_install language="typescript" package_list="zod, drizzle-orm" />
<shell id="default"
  exec_dir=".">
test -s single.txt && echo "a < b && c => 'd'" > out.txt
</shell>
<proposed_actions summary="Two at once">
  <proposed_file_insert file_path="raw.ts" line_number="1">
// <T extends U & V>
</proposed_file_insert>
  <proposed_file_replace file_path="x.html"><p class='q'>&nbsp;</p></proposed_file_replace>
</proposed_actions>"#;

// A14
#[test]
fn raw_bodies_arrive_in_the_files_as_the_model_wrote_them() {
    let house = coder("[\"workspace\"]", &listener("workspace", direct(), super::ALL), &[RAW]);
    task(&house);
    let expected = "const f = (a, b) => a || b >= c && !\"<old_str>\" ? \"x\" : '<y/>';\n\
                    // <T extends U & V>\n\
                    if (a & b) { log(`<div class=\"z\">${a}</div>`) } // &lt; &amp; stay\n";
    assert_eq!(read(&house, "raw.ts"), expected);
    assert_eq!(read(&house, "single.txt"), "it's \"quoted\", 100% && <b>\n");
    assert_eq!(read(&house, "out.txt"), "a < b && c => 'd'\n");
    assert_eq!(read(&house, "x.html"), "<p class='q'>&nbsp;</p>");
    let record = record(&house);
    assert!(record.contains("npm install --no-fund --no-audit zod drizzle-orm"), "{record}");
    assert!(!record.contains("action-failed"), "{record}");
}

// A12
#[test]
fn different_actions_go_to_different_listeners() {
    let commands = r#"accepts = ["proposed_shell_command", "shell"]"#;
    let listeners = listener("files", direct(), FILES) + &listener("commands", direct(), commands);
    let turn = "<create_file path=\"a\">a</create_file><shell>echo b > b</shell>\
                <proposed_file_replace file_path=\"c\">c</proposed_file_replace>";
    let next = "<proposed_shell_command>cat a c > d</proposed_shell_command>";
    let house = coder("[\"files\", \"commands\"]", &listeners, &[turn, next]);
    task(&house);
    assert_eq!(read(&house, "d"), "ac");
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let mut routed: Vec<String> = exported
        .iter()
        .filter(|line| {
            line["type"] == "message" && line["kind"] == "call" && line["from"] == "coder"
        })
        .map(|line| {
            let name = line["name"].as_str().unwrap().rsplit('}').next().unwrap();
            format!("{name} to {}", line["to"].as_str().unwrap())
        })
        .collect();
    routed.sort();
    let expected = [
        "create_file to files",
        "proposed_file_replace to files",
        "proposed_shell_command to commands",
        "shell to commands",
    ];
    assert_eq!(routed, expected);
}

// A15
#[test]
fn a_model_gets_its_failures_as_errors() {
    let turns = [
        "<create_file path=\"a\">x x</create_file>",
        "<str_replace path=\"a\"><old_str>x</old_str><new_str>y</new_str></str_replace>",
    ];
    let house = coder("[\"workspace\"]", &listener("workspace", direct(), super::ALL), &turns);
    task(&house);
    assert_eq!(read(&house, "a"), "x x");
    let record = record(&house);
    assert!(record.contains("several-matches") && record.contains("in lines 1, 1"), "{record}");
}

/// The default of `approval` holds the write of a file that other programs execute.
#[test]
fn a_file_that_runs_by_itself_is_written_only_with_approval() {
    let dangerous = r#"accepts = ["replace-dangerous-file"]"#;
    let dangerous =
        listener("dangerous", direct(), dangerous).replace("approval = \"never\"\n", "");
    let listeners = listener("files", direct(), FILES) + &dangerous;
    let turns = [
        "<create_file path=\".envrc\">echo pwned</create_file>",
        "<replace-dangerous-file file_path=\".envrc\">echo approved</replace-dangerous-file>",
        "<replace-dangerous-file file_path=\".husky/pre-commit\">echo no</replace-dangerous-file>",
    ];
    let house = coder("[\"files\", \"dangerous\"]", &listeners, &turns);
    let running = house.run();
    let sent = house.send_text(TASK, &["--no-wait", "--key", "once"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    let held = until("the first call is held", || held_call(&house, ".envrc"));
    assert!(!file(&house, ".envrc").exists());
    assert!(record(&house).contains("waits for a person's approval"), "the plain write is refused");
    let [id, hash] = ["message", "sha256"].map(|key| held[key].as_str().unwrap());
    let approved = house.organism(&["approve", id, "--hash", hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");

    let held = until("the second call is held", || held_call(&house, ".husky/pre-commit"));
    assert_eq!(read(&house, ".envrc"), "echo approved");
    let refused =
        house.organism(&["refuse", held["message"].as_str().unwrap(), "--reason", "not here"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");

    let ended = house.send_text(TASK, &["--key", "once"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!file(&house, ".husky").exists());
    assert_eq!(running.stop(), Some(0));
}

/// The waiting held call whose payload contains `text`.
fn held_call(house: &House, text: &str) -> Option<serde_json::Value> {
    let listed = house.organism(&["approvals", "--json"]).json();
    listed.into_iter().find(|call| call.to_string().contains(text))
}

/// The example `config/coder.toml` mends its project if an operator runs the commands in the first
/// lines of that config.
#[test]
fn the_example_coder_mends_the_project_and_its_tests_pass() {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("try-it");
    std::fs::create_dir(&work).unwrap();
    for file in ["greeting.py", "test_greeting.py"] {
        let from = project().join("config/coder/project").join(file);
        std::fs::copy(from, work.join(file)).unwrap();
    }
    assert!(!tests_pass(&work));
    let organism = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
        command.args(arguments).args(["--config", "config/coder.toml"]);
        command.current_dir(project()).env("WORKSPACE", &work);
        for (name, folder) in [("XDG_DATA_HOME", "data"), ("XDG_STATE_HOME", "state")] {
            command.env(name, place.path().join(folder));
        }
        command.envs(crate::nats::substrate(place.path()));
        command
    };
    let mut send = organism(&["send", "config/coder/task.xml"]);
    let sending = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sender = std::thread::spawn(|| CommandOutput::from(sending.wait_with_output().unwrap()));
    let organism = |arguments: &[&str]| CommandOutput::from(organism(arguments).output().unwrap());
    let approved = approve_until(|| sender.is_finished(), organism);
    let sent = sender.join().unwrap();
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(approved >= 2, "{approved} calls were approved");
    assert!(sent.out.contains("+    return \"Hello\" + (\", \" + name if name else"), "{sent:?}");
    assert!(tests_pass(&work));
    let listed = std::fs::read_dir(&work).unwrap().count();
    assert_eq!(listed, 2, "nothing is left lying about");
}

fn tests_pass(work: &Path) -> bool {
    let arguments = ["-B", "-m", "unittest"];
    let run = Command::new("python3").args(arguments).current_dir(work).output().unwrap();
    run.status.success()
}

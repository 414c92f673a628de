//! `[alerts]`: a command is run once for each cause that an operator must know of, and the journal
//! records how the command ended (issue 18, part 6).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use organism::ids::Position;
use organism::system::{AlertEvent, AlertReport};
use organism::thread::{Fact, Input};
use serde_json::Value as Json;

use super::{House, Running, TALK, numbered, say, until};
use crate::nats::{Server, is_streamed};

pub const CONFIG: &str = r#"
[organism]
name = "talk"

[alerts]
command = ["./notify", "an argument"]
ALERTS

[clients.desk]
peers = ["echo", "holder", "asked"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[listeners.holder]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
timeout = "300ms"
attempts = 1
instances = 3

[listeners.asked]
command = ["./player.pl", "asked"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
approval = "always"
"#;

/// Program of the alert command. It appends each report to the file `alerts`, and some of its
/// environment variables to the file `variables`.
pub const NOTIFY: &str = r#"#!/bin/sh
read -r line
printf '%s\n' "$line" >> alerts
printf '%s %s %s %s\n' "$ORGANISM_ALERT_EVENT" "$ORGANISM_ALERT_ID" "$1" "$SECRET" >> variables
"#;

const SHORT: &str = "window = \"4s\"\nrefusals = 3";

fn house_with(settings: &str, notify: &str) -> House {
    let house = House::with(&CONFIG.replace("ALERTS", settings));
    write_notify(&house, notify);
    house
}

pub fn house(settings: &str) -> House {
    house_with(settings, NOTIFY)
}

pub fn write_notify(house: &House, notify: &str) {
    house.write("notify", notify);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("notify"), mode).unwrap();
}

/// Reports that the alert command got, in order.
fn commanded(house: &House) -> Vec<Json> {
    let text = std::fs::read_to_string(house.path("alerts")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Event and count of each report that the alert command got about this kind and subject.
pub fn events(house: &House, kind: &str, subject: &str) -> Vec<(String, u64)> {
    let all = commanded(house).into_iter();
    let own = all.filter(|report| report["kind"] == kind && report["subject"] == subject);
    own.map(|report| {
        let event = report["event"].as_str().unwrap().to_owned();
        (event, report["count"].as_u64().unwrap())
    })
    .collect()
}

/// Reports on record, in order.
fn recorded(house: &House) -> Vec<AlertReport> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap().into_iter();
    let reports = records.filter_map(|sealed| match sealed.record.input {
        Input::Alert(report) => Some(report),
        _ => None,
    });
    reports.collect()
}

pub fn recorded_events(house: &House, subject: &str) -> Vec<AlertEvent> {
    let own = recorded(house).into_iter().filter(|report| report.subject == subject);
    own.map(|report| report.event).collect()
}

pub fn fail(house: &House) {
    let failed = house.send_text(&numbered("hold", "1"), &[]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
}

pub fn refuse(house: &House) {
    let refused = house.send_text(&format!("<hold xmlns=\"{TALK}\"/>"), &[]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
}

pub fn event(word: &str, count: u64) -> (String, u64) {
    (word.to_owned(), count)
}

fn kill(mut running: Running) {
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

/// Each of two simultaneous causes raises one alert, however long its burst of events lasts. The
/// alert states the count of the events, and ends.
#[test]
fn each_burst_raises_one_alert_which_states_its_count_and_its_end() {
    let house = house(SHORT);
    let running = house.run();
    for _ in 0..5 {
        refuse(&house);
    }
    fail(&house);
    fail(&house);

    let has_ended = |kind: &str, subject: &str| events(&house, kind, subject).len() == 2;
    until("the refusals end", || has_ended("refusals", "desk").then_some(()));
    until("the failures end", || has_ended("failures", "holder").then_some(()));
    // Records are read in groups, so the alert may be raised with more than it needs.
    let raised = events(&house, "refusals", "desk")[0].1;
    assert!((3..=5).contains(&raised), "{raised}");
    assert_eq!(events(&house, "refusals", "desk"), [event("raised", raised), event("ended", 5)]);
    assert_eq!(events(&house, "failures", "holder"), [event("raised", 1), event("ended", 2)]);
    assert_eq!(commanded(&house).len(), 4, "{:?}", commanded(&house));
    until("each is on record as sent", || {
        let sent = recorded(&house).into_iter().filter(|r| r.event == AlertEvent::Sent);
        (sent.count() == 4).then_some(())
    });
    let expected = [AlertEvent::Raised, AlertEvent::Sent, AlertEvent::Ended, AlertEvent::Sent];
    assert_eq!(recorded_events(&house, "holder"), expected);

    let all = commanded(&house);
    let failure = all.iter().find(|report| report["kind"] == "failures").unwrap();
    assert_eq!(failure["organism"], "talk");
    let thread = failure["thread"].as_str().unwrap();
    assert!(house.organism(&["thread", thread]).out.contains("sess-"), "{failure}");
    let query = "SELECT event, subject, occurrences FROM alert WHERE kind = 'failures'";
    let rows = house.organism(&["sql", query, "--csv"]);
    assert!(
        rows.out.contains("raised,holder,1") && rows.out.contains("ended,holder,2"),
        "{rows:?}"
    );
    let shown = house.organism(&["thread", "sess-organism"]);
    assert!(shown.out.contains("calls to `holder` end as failed"), "{shown:?}");
    let found = house.organism(&["search", "holder", "--thread", "sess-organism"]);
    assert!(found.out.contains("alert"), "{found:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The alert command gets no byte of a payload, and no variable that is withheld from listeners.
#[test]
fn no_payload_is_in_what_the_command_gets() {
    let settings = format!("{SHORT}\nenv = {{ SECRET = \"for-the-command\" }}");
    let house = house(&settings);
    let running = house.run();
    let text = "never-in-an-alert";
    for _ in 0..3 {
        let refused = house.send_text(&format!("<hold xmlns=\"{TALK}\">{text}</hold>"), &[]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
    }
    until("it is raised", || (!commanded(&house).is_empty()).then_some(()));
    let variables = until("its variables", || {
        let text = std::fs::read_to_string(house.path("variables")).unwrap_or_default();
        text.ends_with('\n').then_some(text)
    });
    assert!(variables.starts_with("raised refusals/desk/"), "{variables}");
    assert!(variables.trim().ends_with(" an argument for-the-command"), "{variables}");
    let reports = std::fs::read_to_string(house.path("alerts")).unwrap();
    assert!(!reports.contains(text) && !variables.contains(text), "{reports}");
    assert_eq!(running.stop(), Some(0));
}

/// A cause raises only one alert, even if the organism is killed twice. If it is killed after the
/// cause was recorded but before the alert, the next start raises the alert. If it is killed after
/// the alert, no start raises the alert again, and further events of the cause are only counted.
#[test]
fn a_cause_alerts_once_whatever_is_killed() {
    let house = house("window = \"1h\"");
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_FAILPOINT", "before-result");
    let mut running = house.run_with(command);
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    running.child.wait().unwrap();
    assert!(recorded(&house).is_empty(), "{:?}", recorded(&house));

    let running = house.run();
    until("it is sent", || (recorded_events(&house, "holder").len() == 2).then_some(()));
    kill(running);

    let running = house.run();
    fail(&house);
    refuse(&house);
    assert_eq!(running.stop(), Some(0));
    let running = house.run();
    for _ in 0..19 {
        refuse(&house);
    }
    // The alert about the refusals is behind everything that the starts might have raised again.
    until("the other alert", || (!events(&house, "refusals", "desk").is_empty()).then_some(()));
    assert_eq!(events(&house, "refusals", "desk"), [event("raised", 20)]);
    assert_eq!(events(&house, "failures", "holder"), [event("raised", 1)]);
    assert_eq!(recorded_events(&house, "holder"), [AlertEvent::Raised, AlertEvent::Sent]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// An alert command that runs while its pump is killed runs again, with the same id.
#[test]
fn a_command_that_its_pump_did_not_outlive_runs_again() {
    let house =
        house_with(SHORT, "#!/bin/sh\necho \"$ORGANISM_ALERT_ID\" >> begun\nexec sleep 600\n");
    let running = house.run();
    fail(&house);
    until("it runs", || house.path("begun").exists().then_some(()));
    kill(running);

    write_notify(&house, NOTIFY);
    let running = house.run();
    let raised = until("it runs again", || commanded(&house).into_iter().next());
    let begun = std::fs::read_to_string(house.path("begun")).unwrap();
    assert_eq!(begun.trim(), raised["id"].as_str().unwrap());
    assert_eq!(raised["event"], "raised");
    assert_eq!(running.stop(), Some(0));
}

/// An alert command that fails, hangs, floods its output or cannot be started blocks no other work,
/// and its failure is recorded.
#[test]
fn a_command_that_does_not_do_its_work_blocks_nothing() {
    let cases = [
        ("#!/bin/sh\necho no network >&2\nexit 3\n", "exit status: 3: no network"),
        ("#!/bin/sh\nsleep 600 &\nsleep 600\n", "did not end within 500ms and was killed"),
        ("#!/bin/sh\nwhile :; do echo flood; echo flood >&2; done\n", "and was killed"),
        ("#!/etc/passwd\n", "cannot start"),
    ];
    for (notify, expected) in cases {
        let house = house("window = \"1h\"\ntimeout = \"500ms\"");
        let running = house.run();
        write_notify(&house, notify);
        fail(&house);
        for _ in 0..5 {
            assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0), "{notify}");
        }
        let events = until("its failure is on record", || {
            let events = recorded_events(&house, "holder");
            (events.len() == 2).then_some(events)
        });
        assert_eq!(events, [AlertEvent::Raised, AlertEvent::NotSent], "{notify}");
        let failure = recorded(&house).pop().unwrap();
        assert!(failure.detail.contains(expected), "{failure:?}");
        assert!(!failure.detail.contains("exit status: 69"), "{failure:?}");
        assert!(house.log().contains("the command of the alert failures/holder/"));
        assert_eq!(running.stop(), Some(0), "{notify}");
    }
}

/// The alert command gets the soft limit of open files that `organism run` had, and no variable
/// beside its documented ones.
#[test]
fn the_alert_command_gets_the_soft_limit_of_open_files_that_run_had() {
    let notify = "#!/bin/sh\nread -r line\nenv > variables\nulimit -n > limit.next\n\
                  mv limit.next limit\n";
    let house = house_with("window = \"1h\"", notify);
    let script = "ulimit -Sn 300; exec \"$0\" \"$@\"";
    let running = house.run_with(house.script(script, &["run"]));
    fail(&house);
    let limit = until("the command runs", || std::fs::read_to_string(house.path("limit")).ok());
    assert_eq!(limit.trim(), "300");
    let variables = std::fs::read_to_string(house.path("variables")).unwrap();
    assert!(!variables.contains("SOFT_FILE_LIMIT"), "{variables}");
    assert_eq!(running.stop(), Some(0));
}

/// Position of the record that began the hold of the call that `message` opened.
fn hold_of(house: &House, message: &str) -> Position {
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let is_hold = |fact: &Fact| match fact {
        Fact::Held { call, .. } => call.to_string() == message,
        _ => false,
    };
    let held = records.iter().find(|sealed| sealed.record.facts.iter().any(is_hold));
    held.unwrap().record.position
}

/// Issue 18, 6: an approval that waits for too long raises one alert, even if the organism restarts
/// meanwhile. The alert names the record of the hold as its cause. The hold is then older than the
/// setting `window`, and a start does not read older records again.
#[test]
fn an_approval_that_waits_raises_one_alert_until_somebody_decides() {
    let house = house("waiting = \"3s\"\nwindow = \"1s\"");
    let running = house.run();
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json();
    let message = held[0]["message"].as_str().unwrap().to_owned();
    let hash = held[0]["sha256"].as_str().unwrap().to_owned();
    // Each of these calls takes 300 ms, so the window is over.
    (0..4).for_each(|_| fail(&house));
    kill(running);

    let running = house.run();
    until("it is raised", || (events(&house, "waiting", &message).len() == 1).then_some(()));
    let is_own = |report: &Json| report["subject"] == *message;
    let raised = commanded(&house).into_iter().find(is_own).unwrap();
    assert_eq!(raised["cause"], hold_of(&house, &message).0);
    until("it is sent", || (recorded_events(&house, &message).len() == 2).then_some(()));
    kill(running);

    let running = house.run();
    let approved = house.organism(&["approve", &message, "--hash", &hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    until("it ends", || (events(&house, "waiting", &message).len() == 2).then_some(()));
    assert_eq!(events(&house, "waiting", &message), [event("raised", 1), event("ended", 1)]);
    assert_eq!(running.stop(), Some(0));
}

/// A budget raises one alert when four fifths of it are used.
#[test]
fn a_budget_at_four_fifths_raises_one_alert() {
    let (before, after) = CONFIG.split_once("[listeners.echo]").unwrap();
    let agent = "[limits]\nmodel_calls = 5\n\n[agents.echo]\nmodel = \"recorded\"\nschema = \"talk.xsd\"\n\
                 accepts = [\"say\"]\nfinal = \"said\"\n\n[models.recorded]\nprovider = \"playback\"\n\
                 recording = \"turns.toml\"\nmax_tokens = 300\n\n";
    let (_, rest) = after.split_once("[listeners.holder]").unwrap();
    let config = format!("{before}{agent}[listeners.holder]{rest}").replace("ALERTS", "");
    let house = House::with(&config);
    write_notify(&house, NOTIFY);
    let mut turns = "recorded = \"for a test\"\n".to_owned();
    for turn in 1..=5 {
        let text = match turn {
            5 => format!("<said xmlns=\"{TALK}\">done</said>"),
            _ => format!("<thinking>Thought {turn}.</thinking>"),
        };
        turns += &format!("[[turn]]\nagent = \"echo\"\nturn = {turn}\ntext = '{text}'\n");
    }
    house.write("turns.toml", turns);

    let running = house.run();
    let sent = house.send_text(&say("write"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let raised = until("it is raised", || commanded(&house).into_iter().next());
    let subject = raised["subject"].as_str().unwrap();
    let thread = raised["thread"].as_str().unwrap();
    assert_eq!(subject, format!("model-calls in {thread}"));
    until("it is sent", || (recorded_events(&house, subject).len() == 2).then_some(()));
    kill(running);
    let running = house.run();
    fail(&house);
    until("the next alert", || (!events(&house, "failures", "holder").is_empty()).then_some(()));
    assert_eq!(events(&house, "budgets", subject), [event("raised", 1)]);
    assert_eq!(running.stop(), Some(0));
}

/// A failure to copy checkpoints raises one alert, which ends when a copy succeeds.
#[test]
fn a_problem_with_the_record_raises_one_alert_and_ends() {
    let house = house("");
    let running = house.run();
    std::fs::remove_dir_all(house.copies()).unwrap();
    // A decision of an operator is signed at once, so its checkpoint has to be copied.
    assert_eq!(house.organism(&["pause", "holder"]).code, Some(0));
    let copies = || events(&house, "record", "checkpoint-copies");
    until("it is raised", || (copies().len() == 1).then_some(()));
    std::fs::create_dir(house.copies()).unwrap();
    assert_eq!(house.organism(&["resume", "holder"]).code, Some(0));
    until("it ends", || (copies().len() == 2).then_some(()));
    assert_eq!(copies(), [event("raised", 1), event("ended", 1)]);
    assert_eq!(running.stop(), Some(0));
}

/// A house that has run once, with the path of its journal's database.
fn house_with_journal() -> (House, PathBuf) {
    let house = House::settled(&CONFIG.replace("ALERTS", ""));
    write_notify(&house, NOTIFY);
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let database = house.data().join(organism::journal::sqlite::DATABASE);
    (house, database)
}

/// Damages the database of a journal, so that a start refuses it. Returns the undamaged content.
fn damage(database: &Path) -> Vec<u8> {
    let whole = std::fs::read(database).unwrap();
    let mut damaged = whole.clone();
    damaged[..16].copy_from_slice(b"no journal at al");
    std::fs::write(database, damaged).unwrap();
    whole
}

/// A journal that a start refuses raises one alert. The alert cannot be recorded at once, but is on
/// record when the organism runs again. The same holds for an alert about a full disk.
#[test]
fn a_journal_that_is_refused_raises_one_alert_which_is_recorded_later() {
    let (house, database) = house_with_journal();
    let whole = damage(&database);

    for _ in 0..2 {
        let refused = house.organism(&["run"]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
    }
    assert_eq!(events(&house, "record", "journal"), [event("raised", 1)]);

    // An alert about a full disk that the earlier run raised, and that its command took.
    let file = house.state().join("unrecorded-alert.json");
    let mut alerts: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let mut disk = alerts[0].clone();
    disk["report"]["subject"] = "disk".into();
    alerts.as_array_mut().unwrap().push(disk);
    std::fs::write(&file, alerts.to_string()).unwrap();

    std::fs::write(&database, whole).unwrap();
    let running = house.run();
    let expected = [AlertEvent::Raised, AlertEvent::Sent, AlertEvent::Ended, AlertEvent::Sent];
    for subject in ["journal", "disk"] {
        until("it is over", || (recorded_events(&house, subject).len() == 4).then_some(()));
        assert_eq!(recorded_events(&house, subject), expected, "{subject}");
    }
    assert_eq!(events(&house, "record", "journal"), [event("raised", 1), event("ended", 1)]);
    assert_eq!(events(&house, "record", "disk"), [event("ended", 1)]);
    let left: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!([]));
    assert_eq!(running.stop(), Some(0));
}

/// The alert of a start that is refused because `state` was moved away is kept in `data` until
/// `state` is back.
#[test]
fn a_start_without_the_state_directory_raises_one_alert_and_makes_none() {
    if is_streamed() {
        return;
    }
    let (house, _) = house_with_journal();
    let away = house.path("away");
    std::fs::rename(house.state(), &away).unwrap();
    for _ in 0..2 {
        assert_eq!(house.organism(&["run"]).code, Some(5));
    }
    assert_eq!(events(&house, "record", "journal"), [event("raised", 1)]);
    assert!(!house.state().exists());

    std::fs::rename(&away, house.state()).unwrap();
    let running = house.run();
    until("it is over", || (commanded(&house).len() == 2).then_some(()));
    assert_eq!(events(&house, "record", "journal"), [event("raised", 1), event("ended", 1)]);
    assert_eq!(running.stop(), Some(0));
}

/// Each of two errors raises an alert of its own, and the next run records and ends both.
#[test]
fn two_errors_with_which_starts_refuse_a_journal_are_two_alerts() {
    let (house, database) = house_with_journal();
    let whole = damage(&database);

    assert_ne!(house.organism(&["run"]).code, Some(0));
    std::fs::remove_file(&database).unwrap();
    assert_ne!(house.organism(&["run"]).code, Some(0));
    let raised: Vec<_> = commanded(&house).iter().map(|alert| alert["id"].clone()).collect();
    assert_eq!(raised.len(), 2, "{raised:?}");
    assert_ne!(raised[0], raised[1]);

    std::fs::write(&database, whole).unwrap();
    let running = house.run();
    until("both are over", || (commanded(&house).len() == 4).then_some(()));
    let mut ended = commanded(&house).split_off(2);
    ended.sort_by_key(|alert| alert["since"].to_string());
    assert!(ended.iter().all(|alert| alert["event"] == "ended"), "{ended:?}");
    let ids: Vec<_> = ended.iter().map(|alert| alert["id"].clone()).collect();
    assert_eq!(ids, raised);
    assert_eq!(running.stop(), Some(0));
    let recorded = recorded_events(&house, "journal");
    let count = |event| recorded.iter().filter(|recorded| **recorded == event).count();
    assert_eq!((count(AlertEvent::Raised), count(AlertEvent::Ended)), (2, 2));
}

/// A partition whose journal a start refuses raises one alert, while the other partition is pumped.
#[test]
fn a_journal_of_one_partition_that_is_refused_raises_one_alert() {
    let server = Server::start();
    let address = server.address();
    let journal = format!(
        "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\npartitions = 2\n\n\
         [nats]\nurl = \"{address}\"\n"
    );
    let house = House::settled(&format!("{}\n{journal}", CONFIG.replace("ALERTS", "")));
    let more = "printf '%s ' \"$ORGANISM_ALERT_ID\" \"$ORGANISM_ALERT_PARTITION\" >> partitions\n";
    write_notify(&house, &format!("{NOTIFY}{more}"));
    assert_eq!(house.run().stop(), Some(0));
    let database = house.data().join("p1").join(organism::journal::sqlite::DATABASE);
    damage(&database);

    for _ in 0..2 {
        let running = house.run();
        until("it is raised", || (!commanded(&house).is_empty()).then_some(()));
        // The second run ends after it would have raised the alert again.
        assert_ne!(running.stop(), Some(0));
    }
    assert_eq!(events(&house, "record", "journal"), [event("raised", 1)]);
    // Alerts of two partitions may be about records of the same number.
    let partitions = std::fs::read_to_string(house.path("partitions")).unwrap();
    assert!(partitions.ends_with("@1 1 "), "{partitions}");
    assert!(commanded(&house)[0]["id"].as_str().unwrap().ends_with("@1"));
}

/// A reload may begin, change and end alerts. Alerts that a reload begins are not about earlier
/// records.
#[test]
fn a_reload_changes_alerts() {
    let house = house(SHORT);
    let with = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let (before, rest) = with.split_once("[alerts]").unwrap();
    let (_, after) = rest.split_once("[clients").unwrap();
    let without = format!("{before}[clients{after}");
    house.write("organism.toml", &without);

    let running = house.run();
    fail(&house);
    house.write("organism.toml", with.replace("refusals = 3", "refusals = 2"));
    let reloaded = house.organism(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    refuse(&house);
    refuse(&house);
    until("it is raised", || (!events(&house, "refusals", "desk").is_empty()).then_some(()));
    assert_eq!(events(&house, "refusals", "desk")[0], event("raised", 2));

    house.write("organism.toml", &without);
    assert_eq!(house.organism(&["reload"]).code, Some(0));
    let count = recorded(&house).len();
    refuse(&house);
    refuse(&house);
    assert_eq!(running.stop(), Some(0));
    assert_eq!(recorded(&house).len(), count, "{:?}", recorded(&house));
    assert_eq!(recorded_events(&house, "holder"), [], "the call failed before the reload");
}

/// Mistakes in the section `[alerts]` are found before anything starts, each with its location.
#[test]
fn mistakes_in_the_section_are_found_at_their_places() {
    let cases = [
        ("comand = \"./notify\"", "did you mean `command`?"),
        ("refusals = 3", "the section `alerts` needs `command`"),
        ("command = \"./notfy\"", "did you mean `notify` in the same directory?"),
        ("command = \"./notify\"\nwaiting = \"soon\"", "`soon` is not a duration"),
        ("command = \"./notify\"\nwindow = \"2d\"", "`window` of the section `alerts` is too long"),
        ("command = \"./notify\"\non = [\"failure\"]", "did you mean \"failures\"?"),
        ("command = \"./notify\"\nrefusals = 0", "a whole number from 1 to 1000000"),
    ];
    for (section, expected) in cases {
        let house = house("");
        let text = std::fs::read_to_string(house.path("organism.toml")).unwrap();
        let old = "command = [\"./notify\", \"an argument\"]\n";
        house.write("organism.toml", text.replace(old, &format!("{section}\n")));
        let checked = house.organism(&["check"]);
        assert_eq!(checked.code, Some(78), "{checked:?}");
        assert!(checked.err.contains(expected), "{section}: {}", checked.err);
        assert!(checked.err.contains('^'), "{section}: {}", checked.err);
    }
}

//! Kills during a workflow that has every part: goals at once, items, a vote, a verification, a
//! loop, a supervisor, roles, an inner workflow that undoes its calls, and listeners whose calls
//! are not repeated.
//!
//! After each kill the run continues from its record. `SEED=…` repeats the choices;
//! `ORGANISM_TORTURE=1` enlarges the campaigns to `KILLS` kills.

mod judge;
mod places;
mod states;

use std::collections::{BTreeMap, BTreeSet};

use organism::ids::Position;
use organism::journal::sqlite::JournalReader;
use organism::thread::Fact;

use super::bookings::{BANK, booking_listeners, copy_booker, ledger};
use super::kill::{choices, environment, start, torture};
use super::workflow::messages;
use super::workflow_roles::recording;
use super::{CommandOutput, House, Running, until};
use crate::campaign::Campaign;
use judge::RunHistory;

/// Maximum number of kills in a long campaign.
const KILLS_MAX: u64 = 200;

/// A config with fourteen goals, including the goals of the inner workflow that undoes its calls.
const CONFIG: &str = concat!(
    r#"
organism.name = "talk"
clients.desk.peers = ["grand"]
models.voice = { provider = "playback", recording = "recording.toml" }
agents.writer = { model = "voice", transport = "xml", attempts = 20 }
agents.critic = { model = "voice", transport = "xml", attempts = 20 }
agents.reader = { model = "voice", transport = "xml", attempts = 20, concurrency = 1 }

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]
attempts = 20
"#,
    booking_listeners!(),
    r#"
[workflows.trip]
input = { n = "text" }
on_failure = "undo"
[workflows.trip.goals]
room = { listener = "hotel", payload = "book", with = { n = "input/n" } }
bed = { needs = [], listener = "hotel", payload = "book", with = { n = "'2'" } }
pay = { needs = ["room", "bed"], listener = "bank", payload = "charge", with = { n = "'3'" } }

[workflows.grand]
input = { unit = ["integer"] }
peers = ["hotel", "bank"]
output = { view = "views/critic", chosen = "pick", units = "units/item", studies = "study/item", text = "draft", polished = "polish", report = "report" }
[workflows.grand.goals]
outline = { agent = "writer", prompt = "Outline it." }
trip = { needs = [], workflow = "trip", with = { n = "'1'" }, on_failure = "skip" }
tell = { needs = [], listener = "bank", payload = "notify", with = { n = "'4'" }, on_failure = "skip" }
units = { needs = [], each = "input/unit", listener = "back", with = { n = "item" }, concurrency = 2 }
views = { needs = ["outline"], all = ["writer", "critic"], prompt = "Judge the outline." }
pick = { needs = ["views"], all = ["reader", "reader", "critic"], vote = { by = "last-line" }, prompt = "Left or right?" }
study = { needs = ["outline"], each = "input/unit", agent = "reader", verify = "check", accept = "last-line(check) = 'sound'", retry = 1, prompt = "Study {{item}}." }
check = { agent = "critic", prompt = "Is it sound?" }
improve = { needs = ["pick", "study"], loop = ["draft", "critique"], until = "last-line(critique) = 'publish'", max = 3 }
draft = { agent = "writer", prompt = "Write the text." }
critique = { agent = "critic", prompt = "Judge the draft." }
polish = { agent = "writer", supervisor = "critic", supervise = "Is it short?", prompt = "Polish it." }
report = { needs = ["polish", "units", "trip", "tell"], agent = "writer", roles = { agent = "reader", max = 1 }, prompt = "Report." }
"#
);

const TURNS: &[(&str, &str, &str)] = &[
    ("writer", "outline", "One. Two."),
    ("writer", "views_writer", "It is mine."),
    ("critic", "views_critic", "It is thin."),
    ("reader", "pick_reader", "Left."),
    ("reader", "pick_reader-2", "Right."),
    ("critic", "pick_critic", "Of course:\nleft"),
    ("reader", "study_1", "First study."),
    ("critic", "check_1", "sound"),
    ("reader", "study_2", "Second study."),
    ("critic", "check_2", "unsound"),
    ("reader", "study_2-1", "Second study, again."),
    ("critic", "check_2-1", "sound"),
    ("writer", "draft_1", "A first text."),
    ("critic", "critique_1", "REVISE"),
    ("writer", "draft_2", "A second text."),
    ("critic", "critique_2", "PUBLISH"),
    ("writer", "polish", "A long polished text."),
    (
        "critic",
        "polish_supervisor",
        "<verdict><decision>correct</decision><text>Shorter.</text></verdict>",
    ),
    ("writer", "polish-1", "Polished."),
    ("critic", "polish_supervisor-1", "<verdict><decision>continue</decision></verdict>"),
    ("writer", "report", "<delegate role=\"clerk\">Count it.</delegate>"),
    ("reader", "report.reader_1", "Two."),
    ("writer", "report", "Two parts."),
];

const OUTPUT: &str = concat!(
    "<grand-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/grand\">",
    "<view>It is thin.</view><chosen>Left.</chosen>",
    "<units><worked xmlns=\"urn:example:talk\"><n>3</n></worked>",
    "<worked xmlns=\"urn:example:talk\"><n>1</n></worked></units>",
    "<studies>First study.\nSecond study, again.</studies>",
    "<text>A second text.</text><polished>Polished.</polished><report>Two parts.</report>",
    "</grand-output>\n",
);

const REQUEST: &str = "<grand xmlns=\"https://xml-pipeline.org/ns/workflow/v1/grand\">\
                       <unit>3</unit><unit>1</unit></grand>";

fn house() -> House {
    // Nor is a call of the bank repeated.
    let house = House::with(&CONFIG.replace(BANK, &format!("{BANK}attempts = 1\n")));
    house.write("recording.toml", recording(TURNS));
    copy_booker(&house);
    house
}

fn send(house: &House, more: &[&str]) -> CommandOutput {
    let base = ["--new", "sess-grandrun", "--key", "once"];
    house.send_text(REQUEST, &[&base[..], more].concat())
}

/// Whether the result of the run is among the records after `read`. Moves `read` to the last
/// record, so that each check reads only the new ones.
fn is_over(house: &House, read: &mut Position) -> bool {
    let mut new_records = || {
        let reader = JournalReader::open(&house.data()).ok()?;
        let last = reader.last().ok()?;
        let records = reader.records(Position(read.0 + 1), last).ok()?;
        *read = last;
        Some(records)
    };
    let facts = new_records().into_iter().flatten().flat_map(|sealed| sealed.record.facts);
    let is_output = |fact: Fact| matches!(fact, Fact::Accepted { message, .. } if *message.name.local == *"grand-output");
    facts.into_iter().any(is_output)
}

/// Starts an organism that is to die at a failpoint. Returns whether it died before the run was
/// over.
fn dies_at(house: &House, failpoint: &str) -> bool {
    outlives_run(house, failpoint).is_none()
}

/// Starts an organism that is to die at a failpoint. Returns the organism if it lives until the
/// result of the run is on record; `None` if it died before.
fn outlives_run(house: &House, failpoint: &str) -> Option<Running> {
    house.write("log", "");
    let mut running = start(house, Some(failpoint));
    let is_gone = until("the organism is ready or gone", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        (is_gone || house.log().contains("is ready")).then_some(is_gone)
    });
    if is_gone {
        return None;
    }

    send(house, &["--no-wait"]);
    let mut read = Position(0);
    let is_gone = until("it dies, or the run ends", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        if is_gone { Some(true) } else { is_over(house, &mut read).then_some(false) }
    });
    (!is_gone).then_some(running)
}

/// For each number in `steps`, starts the organism and kills it after this number of steps. Stops
/// early when the run is over, or when a workflow is at its last attempt. Returns the number of
/// kills.
fn die_and_resume(house: &House, steps: impl Iterator<Item = u64>) -> usize {
    let mut deaths = 0;
    for nth in steps {
        if !dies_at(house, &format!("stepped:{nth}")) {
            break;
        }
        deaths += 1;
        if RunHistory::of(house).has_workflow_at_last_attempt() {
            break;
        }
    }
    deaths
}

/// Subthreads of the run. In each of them, an agent carries out a goal.
fn goal_threads() -> BTreeSet<String> {
    TURNS.iter().map(|(_, thread, _)| format!("sess-grandrun.{thread}")).collect()
}

/// Asserts that the run ended as it would without a kill, and that nothing was done twice.
fn assert_resumed(house: &House) -> RunHistory {
    let again = house.run();
    let sent = send(house, &[]);
    assert_eq!(sent.out, OUTPUT, "{sent:?}");
    assert_eq!(again.stop(), Some(0));
    house.verified();

    let goals: Vec<_> = messages(house, "goal").into_iter().collect();
    let threads: BTreeSet<_> =
        goals.iter().map(|goal| goal["thread"].as_str().unwrap().to_owned()).collect();
    assert_eq!(threads, goal_threads());
    assert_eq!(goals.len(), threads.len(), "no goal ran in a second thread");

    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for line in ledger(house) {
        *effects.entry(line).or_default() += 1;
    }
    assert!(effects.values().all(|times| *times == 1), "done twice: {effects:?}");
    let history = RunHistory::of(house);
    history.assert_attempts();
    history.assert_undone(house);
    history.assert_charged_and_shown(house);
    history
}

#[test]
fn a_run_with_every_part_ends_once_as_an_undisturbed_one() {
    let house = house();
    let sent = send(&house, &[]);
    assert_eq!(sent.out, OUTPUT, "{sent:?}");
    assert_eq!(messages(&house, "goal").len(), goal_threads().len());
    let lines = ledger(&house);
    let mut effects: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    effects.sort_unstable();
    assert_eq!(effects, ["book", "book", "cancel", "cancel", "charge", "notify"]);
    RunHistory::of(&house).assert_undone(&house);
}

#[test]
fn a_killed_run_with_every_part_resumes_and_does_nothing_twice() {
    let mut report = Campaign::new("kills of a workflow with every part");
    let mut choices = choices();
    let most = if torture() { environment("KILLS").unwrap_or(KILLS_MAX).min(KILLS_MAX) } else { 4 };
    let most = usize::try_from(most).unwrap();
    let (mut kills, mut runs, mut repeated) = (0, 0, 0);
    while kills < most {
        let house = house();
        // Few steps between kills at first, so that each run dies in several of its states.
        let steps = std::iter::repeat_with(|| 4 + choices.below(40)).take(4);
        kills += die_and_resume(&house, steps);
        repeated += assert_resumed(&house).repeated_turns();
        runs += 1;
        assert!(runs <= 2 * most + 4, "it died {kills} times in {runs} runs");
    }
    report.note(format!("{kills} kills of {runs} runs, {repeated} turns of models repeated"));
}

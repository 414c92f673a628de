//! Misbehaving listeners, as child processes of a running organism.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use organism::envelope::{Disposition, MessageKind};
use organism::thread::{Fact, Record};

use super::judge;
use crate::campaign::Campaign;
use crate::organism::{CommandOutput, House, Running, until};

const NS: &str = "urn:example:hostile";

/// The misbehaviours of listeners, each with the exit code of `send` and with a text from the
/// answer that the caller gets.
const WAYS: [(&str, i32, &str); 18] = [
    ("killed-before", 0, ">well<"),
    ("killed-after", 0, ">well<"),
    ("killed-always", 1, "code=\"listener-failed\""),
    ("silent", 1, "code=\"timeout\""),
    ("memory", 1, "code=\"listener-failed\""),
    ("stderr-lines", 0, ">well<"),
    ("stderr-line", 0, ">well<"),
    ("files", 0, ">well<"),
    ("twice", 0, ">once<"),
    ("none", 0, "<ack "),
    ("two", 0, ">two<"),
    ("thousand", 0, ">x<"),
    ("ten-thousand", 1, "code=\"listener-failed\""),
    ("half", 1, "code=\"listener-failed\""),
    ("half-and-hang", 1, "code=\"timeout\""),
    ("not-utf8", 1, "code=\"listener-failed\""),
    ("not-xml", 1, "code=\"listener-failed\""),
    ("too-long", 1, "code=\"listener-failed\""),
];

/// Misbehaviours in which the listener hangs. The test chooses the time-out of such a listener.
const HANGS: [&str; 4] = ["silent", "half-and-hang", "slow", "stopped"];

/// A house with one correct listener, and one listener for each misbehaviour. The memory of the
/// listeners is limited. `timeout` applies to listeners that hang; the other listeners have two
/// minutes.
fn house(ways: &[&str], timeout: &str) -> House {
    let peers: Vec<String> = ways.iter().map(|way| format!("\"at-{way}\"")).collect();
    let mut config = format!(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [{}, \"at-well\"]\n",
        peers.join(", ")
    );
    let mut schema = format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"{NS}\">\n\
         <xs:element name=\"answered\" type=\"xs:string\"/>\n"
    );
    for way in ways.iter().chain(&["well"]) {
        let timeout = if HANGS.contains(way) { timeout } else { "2m" };
        // Where memory is limited, the shell of the listener limits it.
        config.push_str(&format!(
            "[listeners.at-{way}]\nschema = \"hostile.xsd\"\naccepts = [\"{way}\"]\n\
             replies = [\"answered\"]\ntimeout = \"{timeout}\"\n\
             command = [\"sh\", \"-c\", \"ulimit -v 400000; exec ./hostile.py\"]\n\
             [listeners.at-{way}.env]\nEFFECTS = \"effects-{way}\"\n"
        ));
        schema.push_str(&format!("<xs:element name=\"{way}\" type=\"xs:string\"/>\n"));
    }
    let house = House::with(&config);
    house.write("hostile.xsd", schema + "</xs:schema>\n");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/abuse/hostile.py");
    std::fs::copy(program, house.path("hostile.py")).unwrap();
    house
}

/// Starts the organism and waits until every process has started. A process may start slowly on a
/// busy machine.
fn run(house: &House, ways: &[&str]) -> Running {
    let running = house.run();
    let is_up = |way: &&str| house.path(&format!("effects-{way}")).exists();
    until("every listener is up", || ways.iter().chain(&["well"]).all(is_up).then_some(()));
    running
}

fn payload(way: &str) -> String {
    format!("<{way} xmlns=\"{NS}\">go</{way}>")
}

/// The effects that a listener has logged, one line `message attempt` for each effect.
fn effects(house: &House, way: &str) -> Vec<String> {
    let noted = std::fs::read_to_string(house.path(&format!("effects-{way}"))).unwrap_or_default();
    noted.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

fn facts(records: &[Record]) -> impl Iterator<Item = &Fact> {
    records.iter().flat_map(|record| &record.facts)
}

#[test]
fn every_misbehaving_listener_gives_its_caller_a_result_and_the_record_adds_up() {
    let mut campaign = Campaign::new("listeners at their worst");
    let ways: Vec<&str> = WAYS.iter().map(|(way, ..)| *way).collect();
    let house = house(&ways, "5s");
    let running = run(&house, &ways);
    let (mut wrong, mut longest) = (Vec::new(), Duration::ZERO);
    std::thread::scope(|scope| {
        let sent: Vec<_> = ways
            .iter()
            .map(|way| scope.spawn(|| house.send_text(&payload(way), &["--new", &thread(way)])))
            .collect();
        // Meanwhile, an uninvolved client is served.
        until("every listener has misbehaved", || {
            let asked = Instant::now();
            let told = house.send_text(&payload("well"), &[]);
            longest = longest.max(asked.elapsed());
            assert!(told.out.contains(">well<"), "{told:?}");
            sent.iter().all(|sending| sending.is_finished()).then_some(())
        });
        for ((way, code, says), sending) in WAYS.iter().zip(sent) {
            let told = sending.join().unwrap();
            if told.code != Some(*code) || !told.out.contains(says) {
                let out = told.out.chars().take(300).collect::<String>();
                wrong.push(format!("{way}: {:?} {out} {}", told.code, told.err));
            }
        }
    });
    campaign.note(format!("{} ways; another caller waited at most {longest:.2?}", ways.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    judge::quiet(&house);
    assert_eq!(running.stop(), Some(0), "{}", house.log());
    let tally = judge::assert_house_kept(&house);
    campaign.note(format!("{tally:?}"));
    effects_have_rising_attempts(&house);
    refused_answers_are_on_record(&judge::records(&house));
}

/// The id of the root thread that is used for one misbehaviour.
fn thread(way: &str) -> String {
    format!("sess-{:0<12}", way.replace('-', ""))
}

/// Checks the attempts in which each listener has handled its message. A message is handled a
/// second time only if the listener was killed, and then in a later attempt.
fn effects_have_rising_attempts(house: &House) {
    let numbers = |way: &str| -> Vec<String> {
        let effects = effects(house, way);
        let ids: Vec<&str> = effects.iter().map(|e| e.split_once(' ').unwrap().0).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "one message: {effects:?}");
        effects.iter().map(|e| e.split_once(' ').unwrap().1.to_owned()).collect()
    };
    assert_eq!(numbers("killed-before"), ["3"]);
    assert_eq!(numbers("killed-after"), ["1", "2"]);
    assert!(numbers("killed-always").is_empty());
    for way in ["none", "two", "ten-thousand", "not-utf8", "not-xml", "twice"] {
        assert_eq!(numbers(way), ["1"], "{way} is not tried again");
    }
}

/// Checks the number of failed attempts that are on record for each of several misbehaviours.
fn refused_answers_are_on_record(records: &[Record]) {
    let mut failures: HashMap<String, Vec<String>> = HashMap::new();
    for record in records {
        for fact in &record.facts {
            if let Fact::AttemptFailed { failure, .. } = fact {
                failures.entry(record.tree.to_string()).or_default().push(failure.to_string());
            }
        }
    }
    let count = |way: &str| failures.get(&thread(way)).map_or(0, Vec::len);
    assert_eq!(count("killed-before"), 2);
    assert_eq!(count("killed-after"), 1);
    assert_eq!(count("killed-always"), 3);
    assert_eq!(count("not-utf8"), 1, "{failures:#?}");
    assert_eq!(count("ten-thousand"), 1, "{failures:#?}");
}

#[test]
fn a_slow_listener_that_says_so_is_waited_for() {
    let house = house(&["slow"], "4s");
    let pipe = house.path("effects-slow.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let running = run(&house, &["slow"]);
    let begun = Instant::now();
    let told = std::thread::scope(|scope| {
        let sent = scope.spawn(|| house.send_text(&payload("slow"), &[]));
        // The call ended after its time-out, measured by the clock.
        until("its timeout is over", || (begun.elapsed() > Duration::from_secs(6)).then_some(()));
        assert!(!sent.is_finished());
        std::fs::write(&pipe, "go on").unwrap();
        sent.join().unwrap()
    });
    assert!(told.out.contains(">well<"), "{told:?}");
    assert_eq!(running.stop(), Some(0));
    judge::assert_house_kept(&house);
    assert_eq!(effects(&house, "slow").len(), 1, "it was handed over once");
}

#[test]
fn an_answer_after_the_timeout_of_a_stopped_listener_is_recorded_late() {
    let house = house(&["stopped"], "1s");
    let running = run(&house, &["stopped"]);
    let told: CommandOutput = house.send_text(&payload("stopped"), &[]);
    assert!(told.code == Some(1) && told.out.contains("code=\"timeout\""), "{told:?}");
    let pid = std::fs::read_to_string(house.path("effects-stopped.stopped")).unwrap();
    assert!(Command::new("kill").args(["-CONT", pid.trim()]).status().unwrap().success());
    until("its answer is on record", || {
        let records = judge::records(&house);
        judge::messages(&records).any(|message| message.kind == MessageKind::Reply).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    judge::assert_house_kept(&house);
    let records = judge::records(&house);
    let reply =
        judge::messages(&records).find(|message| message.kind == MessageKind::Reply).unwrap();
    let late = facts(&records).any(|fact| {
        matches!(fact, Fact::Disposed { message, how: Disposition::Late } if *message == reply.id)
    });
    assert!(late, "the caller had been told of the timeout; the answer is kept as late");
    assert_eq!(told.out.matches('<').count(), told.out.matches('>').count(), "one result");
}

//! `traceparent` through the whole product: accepted, recorded, delivered, and logged.

use super::{House, Running, numbered, say, talk_reply, until};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Starts an organism that logs the output of its listeners.
fn talkative(house: &House) -> Running {
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_LOG", "info");
    house.run_with(command)
}

#[test]
fn a_given_trace_reaches_every_listener_and_the_log_and_is_on_record() {
    let house = House::with_orders();
    let running = talkative(&house);
    let sent = house.send_text(&numbered("order", "7"), &["--traceparent", GIVEN]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let heard = until("both listeners said what they were told", || {
        let log = house.log();
        let lines = log.lines().filter(|line| line.contains("traced 00-"));
        let lines: Vec<_> = lines.map(str::to_owned).collect();
        // `front` receives its call twice: alone, and with the answer of `back`.
        (lines.len() == 3).then_some(lines)
    });
    let mut spans = std::collections::BTreeSet::new();
    for line in &heard {
        let (_, told) = line.split_once("traced 00-").unwrap();
        let (trace, rest) = told.split_once('-').unwrap();
        assert_eq!(trace, TRACE, "{line}");
        let (span, flags) = rest.split_once('-').unwrap();
        assert_eq!(flags.get(..2), Some("01"), "{line}");
        assert!(spans.insert(span.to_owned()) && span != "00f067aa0ba902b7", "{line}");
        // The line itself names its trace.
        assert!(line.contains(&format!("trace=\"{TRACE}\"")), "{line}");
        assert!(line.contains(&format!("span={span}")), "{line}");
    }
    assert_eq!(running.stop(), Some(0));
    let recorded = house.organism(&["thread", &thread(&house), "--json"]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let reader = house.reader();
    let records = reader.records(organism::ids::Position(1), reader.last().unwrap()).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let traced = facts.filter_map(|fact| match fact {
        organism::thread::Fact::Traced { trace } => Some(trace.to_string()),
        _ => None,
    });
    assert_eq!(traced.collect::<Vec<_>>(), [GIVEN]);
    house.verified();
}

fn thread(house: &House) -> String {
    let threads = house.organism(&["threads", "--all", "--json"]).json();
    let ids = threads.iter().filter_map(|line| line["thread"].as_str());
    ids.into_iter().find(|id| *id != "sess-organism").unwrap().to_owned()
}

#[test]
fn the_environments_trace_holds_where_none_is_given_and_a_bad_one_is_as_none() {
    let house = House::with_echo();
    let running = talkative(&house);
    let send = |trace: &str| {
        house.write("say.xml", say("hello"));
        let mut command = house.command(&["send", "say.xml", "--as", "desk"]);
        let sent = command.env("TRACEPARENT", trace).output().unwrap();
        assert_eq!(String::from_utf8(sent.stdout).unwrap(), talk_reply("hello"));
        house.log().matches("traced 00-").count()
    };
    until("it is told", || (send(GIVEN) > 0).then_some(()));
    assert!(house.log().contains(TRACE), "{}", house.log());
    let before = house.log().matches("traced 00-").count();
    assert_eq!(send("00-nonsense"), before);
    let wrong = house.send_text(&say("hello"), &["--traceparent", "nonsense"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("not a traceparent, such as 00-"), "{wrong:?}");
    assert_eq!(running.stop(), Some(0));
}

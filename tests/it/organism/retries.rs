//! `organism retry` on a real journal: a failed or refused message is sent again, as a new message
//! of the same sender (issue 18, part 3.8).

use std::process::Stdio;

use organism::ids::{MessageId, Position};
use organism::thread::{Fact, Input};
use rusqlite::Connection;
use serde_json::Value as Json;

use super::try_threads::trial;
use super::{CONFIG, CommandOutput, House, numbered, order_config, until};
use crate::web::view::ViewServer;
use crate::web::view::operate::operating;

/// A config in which a call to the holder times out after some seconds.
fn config(more: &str) -> String {
    CONFIG
        .replace("accepts = [\"hold\"]", &format!("timeout = \"4s\"\n{more}\naccepts = [\"hold\"]"))
}

/// Ids of the refused submissions.
fn refused(house: &House) -> Vec<MessageId> {
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let is_refused = |fact: &Fact| matches!(fact, Fact::Refused { .. });
    let ids = records.iter().filter_map(|sealed| match &sealed.record.input {
        Input::Submitted { id, .. } if sealed.record.facts.iter().any(is_refused) => Some(*id),
        _ => None,
    });
    ids.collect()
}

fn retry(house: &House, arguments: &[&str]) -> CommandOutput {
    house.organism(&[&["retry"], arguments].concat())
}

/// Sends a request that times out. Returns the id of its message.
fn time_out(house: &House, number: &str, thread: &str) -> String {
    let sent = house.send_text(&numbered("hold", number), &["--new", thread]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    house.messages("hold").pop().unwrap().0.to_string()
}

fn disposition(house: &House, id: &str) -> Json {
    house.organism(&["message", id, "--json"]).json()[0]["disposition"].clone()
}

fn held(house: &House) -> usize {
    house.messages("held").len()
}

#[test]
fn a_failed_call_is_retried_once_and_keeps_its_disposition() {
    let house = House::with(&config(""));
    let running = house.run_noting();
    let id = time_out(&house, "1", "sess-source01");
    assert_eq!(disposition(&house, &id), "expired");
    house.write("let-go", "");

    let retried = retry(&house, &[&id[..8], "--note", "it is up again", "--json"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let line = retried.json().remove(0);
    assert_eq!((&line["result"], &line["thread"]), (&"retried".into(), &"sess-source01".into()));
    let new = line["calls"][0].as_str().unwrap().to_owned();
    until("it is answered", || (held(&house) >= 1).then_some(()));
    assert_eq!(disposition(&house, &id), "expired", "the old disposition stays");
    let shown = house.organism(&["message", &new, "--json"]).json().remove(0);
    assert_eq!((&shown["from"], &shown["to"]), (&"desk".into(), &"holder".into()));
    assert!(shown["causes"][0]["name"].as_str().unwrap().ends_with("}operator-action"));

    let again = retry(&house, &[&id]);
    assert_eq!(again.code, Some(65), "{again:?}");
    assert!(again.err.contains(&format!("was retried before, as {new}")), "{again:?}");
    let completed = retry(&house, &[&new]);
    assert_eq!(completed.code, Some(65), "{completed:?}");
    assert!(completed.err.contains("its call ended with its result"), "{completed:?}");
    let (reply, _) = house.messages("held")[0];
    let reply = retry(&house, &[&reply.to_string()]);
    assert!(reply.err.contains("it opened no call"), "{reply:?}");
    let unknown = retry(&house, &["0123456789abcdef"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.err.contains("no message 0123456789abcdef is on record"), "{unknown:?}");

    let sql = "SELECT action, reason, login IS NOT NULL AS who FROM action WHERE action = 'retry'";
    let actions = house.organism(&["sql", sql, "--json"]);
    assert!(actions.out.contains("it is up again"), "{actions:?}");
    let thread = house.organism(&["thread", "sess-source01"]);
    assert!(thread.out.contains("retry"), "{thread:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A retry that has failed is retried by its own id. Two simultaneous retries of one message send
/// one message.
#[test]
fn a_retry_is_retried_and_two_at_once_send_one() {
    let house = House::with(&config(""));
    let running = house.run_noting();
    let id = time_out(&house, "1", "sess-source01");
    let first = retry(&house, &[&id, "--json"]).json().remove(0);
    let first = first["calls"][0].as_str().unwrap().to_owned();
    let open = retry(&house, &[&first]);
    assert_eq!(open.code, Some(65), "{open:?}");
    assert!(open.err.contains("its call is open"), "{open:?}");
    until("the retry has failed", || (disposition(&house, &first) == "expired").then_some(()));
    house.write("let-go", "");

    let both: Vec<_> = (0..2)
        .map(|_| {
            let mut command = house.command(&["retry", &first]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs = both.into_iter().map(|child| child.wait_with_output().unwrap());
    let mut codes: Vec<_> = outputs.map(|output| output.status.code()).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(65)]);
    let sent = house.messages("hold");
    assert_eq!(sent.len(), 3);
    let last = sent[2].0.to_string();
    until("it is answered", || (disposition(&house, &last) == "handled").then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A retry that may repeat work shows the attempts and needs `--again`. This applies if the config
/// sets `attempts = 1`, or if the outcome of an attempt is unknown.
#[test]
fn a_retry_that_may_repeat_work_shows_the_attempts_and_needs_again() {
    let house = House::with(&config("attempts = 1"));
    let mut running = house.run_noting();
    let once = time_out(&house, "1", "sess-source01");
    let sent = house.send_text(&numbered("hold", "2"), &["--new", "sess-source02", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let unknown = house.messages("hold").pop().unwrap().0.to_string();
    until("it is in flight", || {
        let shown = house.organism(&["message", &unknown, "--json"]).json().remove(0);
        (shown["attempts"] != serde_json::json!([])).then_some(())
    });
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let running = house.run_noting();
    until("its outcome is unknown", || {
        house.organism(&["thread", "sess-source02"]).out.contains("unknown-outcome").then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    house.write("organism.toml", CONFIG);
    house.write("let-go", "");
    let running = house.run_noting();
    let before = house.effects();
    let listed = retry(&house, &["--reason", "unknown-outcome", "--json"]).json();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["message"], *unknown);
    let refused = retry(&house, &[&unknown]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for expected in ["its outcome is unknown", "holder", "pass --again"] {
        assert!(refused.err.contains(expected), "{expected}: {refused:?}");
    }
    let as_json = retry(&house, &[&unknown, "--json"]).json().remove(0);
    assert_eq!(as_json["result"], "unconfirmed", "{as_json}");
    assert_eq!(as_json["attempts"].as_array().unwrap().len(), 1, "{as_json}");
    assert_eq!(house.effects(), before);

    let all = retry(&house, &["--all", "--json"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    let results: Vec<_> = all.json().iter().map(|line| line["result"].clone()).collect();
    assert_eq!(results, ["retried", "unconfirmed"], "attempts are those of today's config");
    let confirmed = retry(&house, &[&unknown, "--again"]);
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    until("both are answered", || (held(&house) >= 2).then_some(()));
    assert_eq!(running.stop(), Some(0));

    house.write("organism.toml", config("attempts = 1"));
    std::fs::remove_file(house.path("let-go")).unwrap();
    let running = house.run_noting();
    let third = time_out(&house, "3", "sess-source03");
    let refused = retry(&house, &[&third]);
    let reason = "has `attempts = 1`, so a retry needs a confirmation\n";
    assert!(refused.err.contains(reason), "{refused:?}");
    let all = retry(&house, &["--all"]);
    assert!(all.err.contains("left out: 1"), "{all:?}");
    assert_ne!(third, once);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A submission that the config refused is accepted when it is retried after a change of the
/// config.
#[test]
fn a_refused_submission_is_retried_after_the_config_changed() {
    let house = House::with(&CONFIG.replace("\"holder\", \"solo\"", "\"holder\""));
    let running = house.run_noting();
    let sent = house.send_text(&numbered("ping", "1"), &[]);
    assert_eq!(sent.code, Some(65), "{sent:?}");
    let id = refused(&house)[0].to_string();
    let still = retry(&house, &[&id]);
    assert_eq!(still.code, Some(65), "{still:?}");
    assert!(still.err.contains("not-in-vocabulary"), "{still:?}");
    let keyed = ["--key", "sent-again"];
    let sent = house.send_text(&numbered("ping", "2"), &keyed);
    assert_eq!(sent.code, Some(65), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    house.write("organism.toml", CONFIG);
    let running = house.run_noting();
    let listed = retry(&house, &["--json"]).json();
    assert_eq!(listed.len(), 2, "a refused retry is none of its own: {listed:?}");
    assert_eq!(
        (&listed[0]["message"], &listed[0]["reason"]),
        (&(*id).into(), &"not-in-vocabulary".into())
    );
    let none = retry(&house, &["--all", "--reason", "not-well-formed", "--listener", "solo"]);
    assert_eq!(none.code, Some(0), "{none:?}");
    for (option, wrong, near) in
        [("--reason", "not-wellformed", "not-well-formed"), ("--listener", "sollo", "solo")]
    {
        let unknown = retry(&house, &["--all", option, wrong]);
        assert_eq!(unknown.code, Some(2), "{unknown:?}");
        assert!(unknown.err.contains(&format!("did you mean `{near}`?")), "{unknown:?}");
    }
    // The client itself sends the other submission again, so no retry of it can succeed.
    let sent = house.send_text(&numbered("ping", "2"), &keyed);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let all = retry(&house, &["--all"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.err.contains("left out: key-reused"), "{all:?}");
    until("it is answered", || (house.messages("pong").len() == 2).then_some(()));
    let again = retry(&house, &[&id]);
    assert_eq!(again.code, Some(65), "{again:?}");
    let rest = retry(&house, &["--all", "--json"]);
    assert_eq!(rest.code, Some(0), "{rest:?}");
    let rest = rest.json();
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["result"], "refused");
    let named = retry(&house, &[rest[0]["message"].as_str().unwrap()]);
    assert_eq!(named.code, Some(65), "{named:?}");
    assert!(named.err.contains("was sent with the same key since"), "{named:?}");
    let sql = "SELECT count(*) AS n FROM refusal WHERE rule = 'key-reused'";
    let counted = house.organism(&["sql", sql, "--json"]);
    assert_eq!(counted.json()[0]["n"], 0, "nothing is recorded: {counted:?}");
    assert_eq!(running.stop(), Some(0));
    // This command starts an organism for a retry that is refused, so no work goes on.
    let alone = retry(&house, &[&id]);
    assert_eq!(alone.code, Some(65), "{alone:?}");
    assert!(!alone.err.contains("the work goes on"), "{alone:?}");
    house.verified();

    // The retry has opened the thread, so there is no page about a time before it.
    let sql = "SELECT thread FROM message WHERE payload = 'pong' ORDER BY position DESC";
    let thread = house.organism(&["sql", "--json", sql]).json().remove(0);
    let view = ViewServer::start(&house, &[]);
    let page = view.page(&format!("/threads/{}", thread["thread"].as_str().unwrap()));
    assert!(page.contains("<b>retry</b> by "), "{page}");
    for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let path = link.replace("&amp;", "&");
        // An anchor leads to a place in the same page.
        if path.starts_with('/') {
            assert_eq!(view.get(&path).status, 200, "{path}");
        }
    }
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// The retry of a listener's call runs in a subthread of its own, and its result goes to the
/// client.
#[test]
fn the_call_of_a_listener_is_retried_in_a_subthread() {
    let player = "command = [\"./player.pl\", \"back\"]";
    let silent = "command = [\"sleep\", \"600\"]\ntimeout = \"1s\"";
    let house = House::with(&order_config(1).replace(player, silent));
    let running = house.run_noting();
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let (work, _) = house.messages("work")[0].clone();
    assert_eq!(retry(&house, &["--json"]).out, "", "a caller deals with the failures of its calls");
    assert_eq!(running.stop(), Some(0));

    house.write("organism.toml", order_config(1));
    let running = house.run_noting();
    let retried = retry(&house, &[&work.to_string(), "--json"]).json().remove(0);
    assert_eq!(retried["thread"], "sess-source01.retry", "{retried}");
    until("it is answered", || {
        let found = house.messages("worked");
        found.iter().any(|(_, thread)| thread.as_str() == "sess-source01.retry").then_some(())
    });
    let reply = house.organism(&["thread", "sess-source01.retry"]);
    assert!(reply.out.contains("back → desk"), "{reply:?}");
    assert_eq!(house.messages("done").len(), 1, "the earlier caller gets nothing");

    // No fork and no trial repeats this retry: they could not send it to its recipient alone.
    let forked = house.organism(&["fork", retried["calls"][0].as_str().unwrap()]);
    let reason = "went to back alone, by an operator's retry, which no fork repeats";
    assert!(forked.code == Some(0) && forked.err.contains(reason), "{forked:?}");
    assert!(forked.err.contains("continue it with"), "it calls nothing: {forked:?}");
    assert_eq!(running.stop(), Some(0));
    let tried = trial(&house, &["organism.toml", "--threads", "sess-source01"]);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    assert!(tried.err.contains("is an operator's retry of one call"), "{tried:?}");
    house.verified();
}

#[test]
fn a_redacted_payload_cannot_be_retried() {
    let house = House::with(&config(""));
    let running = house.run_noting();
    let id = time_out(&house, "1", "sess-source01");
    assert_eq!(running.stop(), Some(0));
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let is_submitted =
        |input: &Input| matches!(input, Input::Submitted { id: own, .. } if own.to_string() == id);
    let submitted = records.iter().find(|sealed| is_submitted(&sealed.record.input)).unwrap();
    let db = Connection::open(house.data().join("journal.db")).unwrap();
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE position = ?1";
    assert_eq!(db.execute(blank, [submitted.record.position.0]).unwrap(), 1);
    drop(db);
    let repaired = house.organism(&["repair", "--accept-redaction", "--note", "privacy"]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");

    let refused = retry(&house, &[&id]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("its payload is redacted"), "{refused:?}");

    let view = operating(&house);
    let page = view.page("/refused");
    assert!(page.contains("its payload is redacted") && page.contains("[redacted]"), "{page}");
    assert!(!page.contains("\\u{0}"), "{page}");
    let page = view.page(&format!("/messages/{id}"));
    assert!(page.contains(">Fork here</a>") && !page.contains(">Retry</a>"), "{page}");
}

/// After a kill -9 at any step of a retry, the retry exists once or not at all.
#[test]
fn a_retry_survives_kill_9_at_every_point() {
    for point in ["stepped", "before-append", "before-commit", "after-commit", "after-append"] {
        let house = House::with(&CONFIG.replace("\"holder\", \"solo\"", "\"holder\""));
        let running = house.run_noting();
        assert_eq!(house.send_text(&numbered("ping", "1"), &[]).code, Some(65));
        assert_eq!(running.stop(), Some(0));
        let id = refused(&house)[0].to_string();
        house.write("organism.toml", CONFIG);

        // The boot of the pump steps and appends, too.
        for nth in 2..=3 {
            let mut command = house.command(&["retry", &id]);
            command.env("EFFECTS", house.path("effects"));
            command.env("ORGANISM_FAILPOINT", format!("{point}:{nth}"));
            command.output().unwrap();
        }
        let running = house.run_noting();
        let last = retry(&house, &[&id]);
        assert!([Some(0), Some(65)].contains(&last.code), "{point}: {last:?}");
        until("it is answered", || (house.messages("pong").len() == 1).then_some(()));
        assert_eq!(house.messages("ping").len(), 1, "{point}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// A retry is new work, which an organism accepts only from a command with its config.
#[test]
fn a_retry_by_the_data_directory_is_refused_with_the_reason() {
    let house = House::new();
    let data = house.data().display().to_string();
    let refused = retry(&house, &["--all", "--data", &data]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("a retry is new work"), "{refused:?}");
}

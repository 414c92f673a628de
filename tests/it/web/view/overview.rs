//! The pages about the whole record agree with `organism stats` and with the views of `organism
//! sql`.

use organism::clock::Time;

use super::{ViewServer, text_of};
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::{House, say, until};

/// The cells of a page's tables as text, a line for each row.
fn rows(page: &str) -> Vec<String> {
    let rows = page.split("<tr>").skip(1);
    let cells = |row: &str| {
        let row = row.split("</tr>").next().unwrap();
        let row = row.replace("</td>", "</td> ").replace("</th>", "</th> ");
        text_of(&format!("<x>{row}")).trim().replace('\u{202f}', "")
    };
    rows.map(cells).collect()
}

fn has_row(page: &str, parts: &[&str]) -> bool {
    rows(page).iter().any(|row| parts.iter().all(|part| row.contains(part)))
}

#[test]
fn sums_are_those_of_the_command() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    for by in ["agent,model", "listener", "rule,agent,day"] {
        let page = view.page(&format!("/costs?by={}", by.replace(',', "%2C")));
        let page = page.replace('\u{202f}', "");
        let page = page.split("The costliest threads").next().unwrap();
        let groups = runs.house.organism(&["stats", "--by", by, "--json"]).json();
        // One row has the headers, and one the sums of several groups.
        let others = if groups.len() > 1 { 2 } else { 1 };
        assert_eq!(rows(page).len(), groups.len() + others, "{by}");
        for group in groups {
            let keys = by.split(',').map(|key| group[key].as_str().unwrap().to_owned());
            let numbers = ["turns", "tokens_in", "attempts", "refusals"];
            let numbers = numbers.iter().filter_map(|name| group[*name].as_u64());
            let numbers = numbers.filter(|number| *number > 0).map(|number| number.to_string());
            let parts: Vec<_> = keys.chain(numbers).collect();
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            assert!(has_row(page, &parts), "{by}: {parts:?} in {:?}", rows(page));
        }
    }
    assert!(text_of(&view.page("/costs")).contains("0.022"));
    for wrong in ["by=colour", "since=yesterdayish"] {
        assert_eq!(view.get(&format!("/costs?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn costs_name_their_currency_and_the_costliest_threads() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/costs");
    let text = text_of(&page);
    assert!(text.contains("Costs are in EUR, the currency of the models' prices"), "{text}");

    let (_, list) = page.split_once("The costliest threads").unwrap();
    let links = list.split("data-entry href=\"/threads/").skip(1);
    let links: Vec<_> = links.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.len() > 1, "{links:?}");
    let one = organism::index::read(&runs.house.data(), &mut |_, _| {}, &mut |index| {
        index.costliest_trees(None, None, 1)
    });
    assert_eq!(one.unwrap()[0].thread, links[0], "one query has the costliest alone");
    let mut costs = Vec::new();
    for link in &links {
        let sql = format!("SELECT cost_nano FROM tree WHERE thread = '{link}'");
        costs.push(runs.house.organism(&["sql", &sql, "--json"]).json()[0]["cost_nano"].as_u64());
    }
    assert!(costs.is_sorted_by(|one, other| one >= other), "{costs:?}");
    let sql = "SELECT max(cost_nano) AS most, count(*) AS trees FROM tree WHERE cost_nano > 0";
    let all = runs.house.organism(&["sql", sql, "--json"]).json().remove(0);
    assert_eq!(costs.first().copied().flatten(), all["most"].as_u64());
    assert_eq!(links.len() as u64, all["trees"].as_u64().unwrap().min(20));
    assert!(has_row(list, &[links[0], " EUR"]), "{:?}", rows(list));
}

#[test]
fn the_costliest_threads_are_those_of_the_time_that_the_page_sums() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let costliest = |path: &str| {
        let page = view.page(path);
        let (_, list) = page.split_once("The costliest threads").unwrap();
        let links = list.split("data-entry href=\"/threads/").skip(1);
        let mut links: Vec<_> =
            links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
        links.sort();
        links
    };
    let threads = |condition: &str| {
        let sql =
            format!("SELECT thread FROM tree WHERE cost_nano > 0 AND {condition} ORDER BY thread");
        let found = runs.house.organism(&["sql", &sql, "--json"]).json();
        let threads = found.iter().map(|row| row["thread"].as_str().unwrap().to_owned());
        threads.collect::<Vec<_>>()
    };
    let sql = "SELECT opened_us, updated_us FROM tree WHERE thread = 'sess-refused777'";
    let times = runs.house.organism(&["sql", sql, "--json"]).json().remove(0);
    let times = ["opened_us", "updated_us"].map(|name| Time(times[name].as_i64().unwrap()));
    let [opened, updated] = times;

    let before = costliest(&format!("/costs?until={opened}"));
    assert_eq!(before, threads(&format!("opened_us < {}", opened.0)));
    let after = costliest(&format!("/costs?since={updated}"));
    assert_eq!(after, threads(&format!("updated_us >= {}", updated.0)));
    let all = threads("1");
    assert!(before.len() < all.len() && after.len() < all.len(), "{before:?} {after:?} {all:?}");
    assert!(!before.is_empty() && !after.is_empty(), "{before:?} {after:?}");

    let none = view.page("/costs?until=2000-01-01");
    assert!(none.contains("No thread of this time has a cost."), "{none}");
    assert!(text_of(&none).contains("Costs are in EUR"), "{none}");
    let since = view.page("/costs?since=2000-01-01");
    assert!(since.contains("href=\"/threads?cost_over=0&amp;since=2000-01-01\""), "{since}");
}

#[test]
fn a_page_of_the_listeners_adds_later_calls_to_those_that_were_counted() {
    let house = House::new();
    let running = house.run();
    let view = ViewServer::start(&house, &[]);
    for calls in 1..=3 {
        let sent = house.send_text(&say(&calls.to_string()), &[]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let counted = format!("echo ({calls})");
        until("the call is counted", || {
            has_row(&view.page("/listeners"), &[&counted]).then_some(())
        });
    }
    let sql = "SELECT count(*) AS calls FROM call WHERE caller = 'desk' AND listener = 'echo'";
    assert_eq!(house.organism(&["sql", sql, "--json"]).json()[0]["calls"], 3);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_card_of_a_waiting_call_names_what_the_gate_refused_in_the_same_turn() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/waiting");
    let card = page.split("In the same turn, its model also wrote:").nth(1).unwrap();
    let card = card.split("</ul>").next().unwrap();
    let text = text_of(&format!("<{card}"));
    assert!(text.contains("order: the gate refused it, schema-invalid, record "), "{text}");
    assert!(card.contains("href=\"/records/"), "{card}");
}

#[test]
fn what_was_refused_and_what_failed_stands_by_reason_with_links() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/refused");
    assert!(has_row(&page, &["schema-invalid", "writer", " 4"]), "{:?}", rows(&page));
    assert!(has_row(&page, &["not-in-vocabulary", "desk", " 1"]), "{:?}", rows(&page));
    let link = "href=\"/search?kind=refusal&amp;rule=not-in-vocabulary&amp;from=desk\"";
    assert!(page.contains(link), "{page}");
    let found = view.page("/search?kind=refusal&rule=not-in-vocabulary&from=desk");
    assert!(text_of(&found).contains("nonsense"), "{found}");

    // Each refusal leads to its record, with the refused text, its turn and its prompt.
    let link = found.split("href=\"/records/").nth(1).unwrap().split('"').next().unwrap();
    let record = text_of(&view.page(&format!("/records/{link}")));
    for part in ["Refused by the gate", "not-in-vocabulary", "desk", "nonsense", "sha256 "] {
        assert!(record.contains(part), "{part} in {record}");
    }
    let conversation = view.page("/threads/sess-booked777");
    let link = conversation.split("href=\"/records/").nth(1).unwrap().split('"').next().unwrap();
    let record = view.get(&format!("/records/{link}")).body;
    let text = text_of(&record);
    for part in ["schema-invalid", "of the raw text of the turn", "Raw text of the turn", "Hash"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The chain of a thread leaves out the records of other threads.
    assert!(text.contains("Followsrecord "), "{text}");
    assert!(text.contains(" of this thread, hash "), "{text}");
    assert!(record.contains("/prompt\">this prompt"), "{record}");
    for missing in ["/records/0", "/records/999999", "/records/x"] {
        assert_eq!(view.get(missing).status, 404, "{missing}");
    }

    // An attempt and the call that ended with it are one failure, and a denial is none.
    let sql = "SELECT kind, listener, count(DISTINCT position) AS errors FROM error \
               WHERE kind <> 'denied' GROUP BY 1, 2";
    let failures = page.split("aria-label=\"Failures by kind and listener\"").nth(1).unwrap();
    let failures = failures.split("</table>").next().unwrap();
    assert!(!failures.contains("denied"), "{failures}");
    let denials = page.split("aria-label=\"Refusals of people by listener\"").nth(1).unwrap();
    let denials = denials.split("</table>").next();
    assert!(has_row(denials.unwrap(), &["ledger", " 1"]), "{denials:?}");
    let newest = page.split("aria-label=\"The newest failures\"").nth(1).unwrap();
    let newest = newest.split("</table>").next().unwrap();
    assert_eq!(newest.matches("budget-spent").count(), 1, "{newest}");
    assert!(page.contains("href=\"#retry\">Can be retried</a>"), "{page}");
    let outlook = "class=\"outlook\"><bdi>fails again unless a budget in the config is raised";
    assert!(page.contains(outlook), "{page}");
    for line in runs.house.organism(&["sql", sql, "--json"]).json() {
        let count = line["errors"].to_string();
        let parts = [line["kind"].as_str().unwrap(), line["listener"].as_str().unwrap(), &count];
        assert!(has_row(&page, &parts), "{parts:?} in {:?}", rows(&page));
    }
    assert!(has_row(&page, &["crashed", "flaky", "sess-flaky001"]), "{:?}", rows(&page));
    assert!(page.contains("href=\"/threads/sess-tired001\""), "{page}");
}

#[test]
fn a_call_that_its_failed_attempt_has_ended_is_one_error() {
    let runs = AuditedRuns::shared();
    let sql = "SELECT thread, errors FROM tree WHERE errors > 0 ORDER BY 1";
    let trees = runs.house.organism(&["sql", sql, "--json"]).json();
    let errors: Vec<_> = trees
        .iter()
        .map(|tree| (tree["thread"].as_str().unwrap(), tree["errors"].as_u64().unwrap()))
        .collect();
    let expected = ["sess-flaky001", "sess-refused777", "sess-tired001"].map(|thread| (thread, 1));
    assert_eq!(errors, expected);
    let sql = "SELECT count(*) AS entries FROM error WHERE listener = 'tired'";
    let entries = runs.house.organism(&["sql", sql, "--json"]).json().remove(0);
    assert_eq!(entries["entries"], 2, "the failure of the attempt, and the end of the call");

    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/listeners");
    let own = "<th scope=\"row\"><bdi>tired</bdi>";
    let row = page.split("<tr>").find(|row| row.contains(own)).unwrap();
    let (_, errors) = row.split_once("data-label=\"Errors\">").unwrap();
    assert!(errors.starts_with("<a href=\"/refused#failed\">1<"), "{row}");
    let ledger = page.split("<tr>").find(|row| row.contains("scope=\"row\"><bdi>ledger</bdi>"));
    let (_, errors) = ledger.unwrap().split_once("data-label=\"Errors\">").unwrap();
    assert!(
        errors.starts_with("</td>"),
        "a person's refusal is no error of the listener: {ledger:?}"
    );

    let listed = view.page("/threads?errors=on");
    assert!(!listed.contains("href=\"/threads/sess-refused777\""), "{listed}");
    let all = view.page("/threads");
    let row = all.split("<tr>").find(|row| row.contains("href=\"/threads/sess-refused777\""));
    assert!(
        text_of(&format!("<tr>{}", row.unwrap())).contains("1 call refused by a person"),
        "{row:?}"
    );
}

#[test]
fn listeners_are_shown_with_the_peers_that_they_may_call_and_have_called() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/listeners");
    let expected: [&[&str]; 4] = [
        &["desk", "client", "flaky, tired, writer", "flaky (1), tired (1), writer (4)"],
        &["writer", "agent", "ledger", "ledger (4)"],
        &["ledger", "listener"],
        &["flaky", "2", "1"],
    ];
    for parts in expected {
        assert!(has_row(&page, parts), "{parts:?} in {:?}", rows(&page));
    }
}

#[test]
fn actions_of_people_are_listed_with_their_reasons() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/actions");
    let expected: [&[&str]; 3] = [
        &["approve", "operator", "as agreed", "sess-booked777"],
        &[
            "refuse",
            "operator",
            "writer → ledger say",
            "sha256 ",
            "waited ",
            "booked before",
            "sess-refused777",
            "unsigned, operating system user ",
        ],
        &["cancel", "operator", "the whole thread", "not needed", "sess-cancel777"],
    ];
    for parts in expected {
        assert!(has_row(&page, parts), "{parts:?} in {:?}", rows(&page));
    }
}

#[test]
fn the_page_of_the_record_shows_whole_keys_and_why_they_are_trusted() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let text = until("the record is proved", || {
        Some(text_of(&view.page("/record"))).filter(|text| text.contains("Decided again"))
    });
    let key = text.split("Public key").nth(1).and_then(|rest| rest.get(..64)).unwrap();
    assert!(key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    for part in ["yes: the state of this organism has it", "every checkpoint"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(&format!("organism verify DIR --key {key}")), "{text}");
}

/// The page of the threads states which records are checked, that newer records are not checked
/// yet, and which command completes the proof.
#[test]
fn the_line_on_the_record_names_the_records_that_are_not_checked_yet() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    let view = ViewServer::start(&house, &[]);
    let line = || {
        let page = view.page("/threads");
        text_of(&format!("<p{}", page.split("<p class=\"hint verdict\"").nth(1).unwrap()))
    };
    let checked = until("the record is checked", || {
        Some(line()).filter(|line| line.contains("no change found"))
    });
    assert!(checked.contains("records 1 to ") && checked.contains(" checked at 20"), "{checked}");
    assert!(checked.contains("The proof is incomplete: organism verify"), "{checked}");
    assert_eq!(house.send_text(&say("again"), &[]).code, Some(0));
    let later = line();
    assert!(later.contains(" newer record"), "{later}");
    assert!(later.contains(" not checked yet"), "{later}");
    assert_eq!(running.stop(), Some(0));
}

/// The journal is moved away and back, as by a restore. Each time, the page of the record and the
/// line above the threads state the result of a new proof.
#[test]
fn the_record_is_proved_again_when_its_journal_is_gone_and_when_it_is_back() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    let view = ViewServer::start(&house, &[]);
    let is_checked = || {
        let page = view.get("/threads");
        (page.status == 200 && page.body.contains("no change found")).then_some(())
    };
    until("the record is checked", is_checked);

    let away = house.path("away");
    std::fs::rename(house.data(), &away).unwrap();
    let lost = until("the loss is found", || {
        Some(text_of(&view.page("/record"))).filter(|text| text.contains("BROKEN"))
    });
    assert!(lost.contains("journal.db is gone"), "{lost}");

    std::fs::rename(&away, house.data()).unwrap();
    until("the line states the new proof", is_checked);
    let found = text_of(&view.page("/record"));
    assert!(found.contains("records unchanged") && !found.contains("BROKEN"), "{found}");
}

/// A break in the first records ends the proof before it has counted a record. The page states the
/// break, and does not show the record as proved or empty.
#[test]
fn a_record_that_is_broken_near_its_beginning_is_not_shown_as_proved_or_empty() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    // The index is made before the break, which would end its making.
    assert_eq!(house.organism(&["sql", "SELECT 1"]).code, Some(0));
    let journal = rusqlite::Connection::open(house.data().join("journal.db")).unwrap();
    journal.execute("UPDATE step SET time = time + 1 WHERE position = 2", []).unwrap();
    drop(journal);

    let view = ViewServer::start(&house, &[]);
    let text = until("the record is checked", || {
        Some(text_of(&view.page("/record"))).filter(|text| text.contains("Decided again"))
    });
    assert!(text.contains("Checked at 20") && text.contains("UnchangedBROKEN"), "{text}");
    assert!(text.contains("Broken at2: its hash does not match"), "{text}");
    for wrong in ["Proved at", "Missing", "is empty", "Checkpoints0", "Redacted"] {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }
    let threads = text_of(&view.page("/threads"));
    assert!(threads.contains("BROKEN at record 2: its hash does not match"), "{threads}");
    assert!(!threads.contains("newer record") && !threads.contains("1 to 0"), "{threads}");
}

#[test]
fn pages_about_a_quiet_record_say_that_there_is_nothing() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let view = ViewServer::start(&house, &[]);
    let expected = [
        ("/refused", "Nothing was refused."),
        ("/refused", "Nothing failed."),
        ("/costs", "Nothing of this kind is on record."),
        ("/costs", "no currency is assumed"),
        ("/actions", "No operator has decided or changed anything."),
    ];
    for (path, text) in expected {
        assert!(text_of(&view.page(path)).contains(text), "{path}");
    }
}

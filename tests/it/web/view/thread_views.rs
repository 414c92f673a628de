//! The three views on the page of a thread show the same messages, and hostile names as text.

use super::conversation::{linked, messages, timeline};
use super::{ViewServer, last_record, text_of};
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::diff::essay_house;
use crate::organism::{House, numbered, say};

#[test]
fn the_views_of_a_page_show_the_same_messages() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    for thread in ["sess-booked777", "sess-refused777", "sess-flaky001"] {
        let all = messages(&timeline(&runs.house, thread));
        for limit in [2, 500] {
            let path = format!("/threads/{thread}?limit={limit}&from=1");
            let conversation = view.page(&path);
            let sequence = view.page(&format!("{path}&view=sequence"));
            let chart = view.page(&format!("{path}&view=timeline"));
            assert_eq!(linked(&sequence), linked(&conversation), "{path}");
            assert!(linked(&chart).iter().all(|id| all.contains(id)), "{path}");
            for page in [&conversation, &sequence, &chart] {
                let link = format!("href=\"/threads/{thread}?limit={limit}&amp;from=1");
                assert!(page.matches(&link).count() >= 3, "{link} in {page}");
            }
            let next = |page: &str| page.split("rel=\"next\" href=\"").nth(1).map(str::to_owned);
            let after = |page: &str| {
                next(page)?.split("from=").nth(1)?.split(['"', '&']).next().map(str::to_owned)
            };
            assert_eq!(after(&sequence), after(&conversation));
            assert_eq!(after(&chart), after(&conversation));
        }
    }

    assert_eq!(view.get("/threads/sess-booked777?view=graph").status, 400);
    let held = view.page("/threads/sess-booked777?view=sequence");
    let names = held.split("aria-label=\"Listeners\"").nth(1).unwrap().split("</svg>").next();
    let names = text_of(names.unwrap());
    for name in ["desk", "writer", "ledger"] {
        assert!(names.contains(name), "{name} in {names}");
    }
    let failed = text_of(&view.page("/threads/sess-flaky001?view=sequence"));
    assert!(failed.contains("failed"), "{failed}");
}

#[test]
fn the_timeline_shows_where_the_time_of_each_call_went() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/threads/sess-booked777?view=timeline");
    for kind in ["work", "model", "person"] {
        let bars = page.matches(&format!("data-span=\"{kind}\"")).count();
        assert!(bars > 1, "{kind}: {bars} in {page}");
    }
    let row = page.split("<tr>").find(|row| row.contains(&runs.write)).unwrap();
    assert!(text_of(row).contains("writer → ledger"), "{row}");
    assert!(row.contains("data-span=\"person\""), "{row}");

    // The lines behind the bars are drawn once.
    let bars = page.matches("<use href=\"#timeline-grid\">").count();
    assert_eq!(bars, timeline_rows(&page).len(), "{page}");
    assert_eq!(page.matches("id=\"timeline-grid\"").count(), 1, "{page}");
    assert_eq!(page.matches("class=\"tick\"").count(), 1, "{page}");

    let flaky = view.page("/threads/sess-flaky001?view=timeline");
    assert!(text_of(&flaky).contains("Retries"), "{flaky}");

    let essay = essay_house();
    let view = ViewServer::start(&essay, &[]);
    let page = view.page("/threads/sess-essay000?view=timeline");
    assert!(page.contains("data-entry href=\"/threads/sess-essay000.critique_1\""), "{page}");
    let page = view.page("/threads/sess-essay000.critique_1?view=timeline");
    assert!(page.contains("data-span=\"model\""), "{page}");
}

/// The depth and the text of each row of a timeline, without the rows of the axis.
fn timeline_rows(page: &str) -> Vec<(String, String)> {
    let rows = page.split("<tr").skip(2).filter(|row| row.contains("scope=\"row\""));
    let rows = rows.map(|row| {
        let depth = row.split("<th class=\"depth-").nth(1).unwrap().split('"').next().unwrap();
        let head = row.split("<th").nth(1).unwrap().split("</th>").next().unwrap();
        (depth.to_owned(), text_of(&format!("<th{head}")).trim().to_owned())
    });
    rows.collect()
}

#[test]
fn a_timeline_has_an_axis_with_units_and_shows_what_stands_beneath_what() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/threads/sess-booked777?view=timeline");
    let axis = page.split("<svg class=\"axis\"").nth(1).unwrap().split("</svg>").next().unwrap();
    let labels: Vec<_> =
        axis.split("<text").skip(1).map(|text| text_of(&format!("<text{text}"))).collect();
    assert!(labels.len() > 1, "{labels:?}");
    assert_eq!(labels[0], "0");
    let has_unit =
        |label: &String| [" us", " ms", " s", " min"].iter().any(|unit| label.ends_with(unit));
    assert!(labels[1..].iter().all(has_unit), "{labels:?}");

    let rows = timeline_rows(&page);
    let rows: Vec<_> = rows.iter().map(|(depth, text)| (&**depth, &**text)).collect();
    let expected = [
        ("0", "desk → writer order"),
        ("1", "turn 1"),
        ("2", "writer → ledger say"),
        ("2", "the gate refused order: schema-invalid"),
        ("1", "turn 2"),
    ];
    assert_eq!(rows, expected);

    let essay = essay_house();
    let view = ViewServer::start(&essay, &[]);
    let rows = timeline_rows(&view.page("/threads/sess-essay000?view=timeline"));
    assert_eq!(rows[0], ("0".to_owned(), "desk → essay essay".to_owned()));
    let beneath =
        rows[1..].iter().filter(|(depth, text)| depth == "1" && text.starts_with("subthread "));
    assert_eq!(beneath.count(), 5, "{rows:?}");
}

/// The head of a waiting thread states the wait, and the timeline shows the wait as a bar with a
/// time. The pages of other threads have no box for a wait. The page of the same thread at an
/// earlier moment has none either, and states only that the thread waited then.
#[test]
fn a_thread_that_waits_says_so_and_its_wait_has_a_time() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let waiting = "/threads/sess-waiting777";
    let page = view.page(waiting);
    let head = page.split("id=\"needs-you\"").nth(1).unwrap().split("<dl").next().unwrap();
    let said = text_of(&format!("<{head}"));
    assert!(said.contains("Waits for an approval: writer → ledger say"), "{said}");
    assert!(said.contains("It is not handed over."), "{said}");
    assert!(!said.contains("Approve"), "a view that is read-only decides nothing: {said}");
    let past = format!("{waiting}?at={}", last_record(&runs.house));
    for other in ["/threads/sess-booked777", &past] {
        assert!(!text_of(&view.page(other)).contains("It is not handed over."), "{other}");
    }

    assert!(view.page(&past).contains("data-status=\"waits\">waits for an approval<"), "{past}");

    // The wait is the status on every page, and the arrow of the call does not reach its listener.
    let paths = [
        waiting,
        "/threads",
        "/costs",
        "/threads/sess-waiting777/tree",
        "/compare",
        "/compare?a=sess-booked777&b=sess-waiting777",
    ];
    for path in paths {
        let page = view.page(path);
        assert!(page.contains("data-status=\"waits\">waits for an approval<"), "{path}: {page}");
    }
    let listed = runs.house.organism(&["threads"]).out;
    assert!(listed.contains("waits for an approval"), "{listed}");
    let diagram = view.page(&format!("{waiting}?view=sequence"));
    assert!(diagram.contains("data-kind=\"held\""), "{diagram}");
    assert!(text_of(&diagram).contains("waits for a person"), "{diagram}");

    let page = view.page(&format!("{waiting}?view=timeline"));
    let row = page.split("<tr>").skip(1).find(|row| row.contains("waits for an approval")).unwrap();
    let bar = row.split("data-span=\"person\"").nth(1).unwrap().split('>').next().unwrap();
    let number = |name: &str| -> f64 {
        let text = bar.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
        text.parse().unwrap()
    };
    assert!(bar.contains("data-open"), "{bar}");
    assert!(number("x") + number("width") <= 1_000.5 && number("width") >= 3.0, "{bar}");
    let legend = text_of(&page).split("Waited for a person").nth(1).unwrap().to_owned();
    assert!(!legend.trim_start().starts_with("0 us"), "{legend}");

    // The call of the client is open, too, so its bar goes on until now, with its work inside.
    let order =
        page.split("<tr>").skip(1).find(|row| row.contains("<b><bdi>order</bdi></b>")).unwrap();
    let open = order.split("data-span=\"open\"").nth(1).unwrap().split('>').next().unwrap();
    let width = open.split(" width=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(width.parse::<f64>().unwrap() > 990.0, "{order}");
    assert!(text_of(&format!("<tr>{order}")).contains("waits for its calls"), "{order}");

    // The message that the agent gets together with the answer to its call has a row, and does not
    // make the call ready.
    let text = text_of(&format!("<tr>{order}"));
    assert!(text.contains("waits for its calls, 1 message queued"), "{text}");
    let note = page.split("<tr>").find(|row| row.contains("<b><bdi>huh</bdi></b>")).unwrap();
    assert!(note.contains("data-span=\"undelivered\""), "{note}");
    assert!(note.contains("queued: its call waits for its calls"), "{note}");
    let queue = queue_of(&view, "writer");
    assert!(!queue.contains(" for "), "{queue}");
    for path in [waiting.to_owned(), format!("{waiting}?view=sequence")] {
        let text = text_of(&view.page(&path));
        assert!(text.contains("huh") && text.contains("queued"), "{path}: {text}");
        assert!(!text.contains("in flight"), "{path}: {text}");
    }
    let past = text_of(&view.page(&past));
    assert!(past.contains("unsettled") && !past.contains("queued"), "{past}");
    let listed = text_of(&view.page("/threads"));
    assert!(listed.contains("2 unsettled, 1 held"), "{listed}");

    // The axis states how much of the wait is left out.
    let axis = page.split("<svg class=\"axis\"").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(axis.contains("class=\"break\""), "{axis}");
    assert!(axis.contains(" left out</text>"), "{axis}");
    // Hatched, the time that is left out does not look like a bar.
    assert!(axis.contains("<path fill=\"url(#timeline-hatch)\""), "{axis}");
    assert!(page.contains("<details class=\"hint\"><summary>How to read this</summary>"), "{page}");

    // A short work is wide enough to see beside a long wait.
    let work = order.split("data-span=\"work\"").nth(1).unwrap().split('>').next().unwrap();
    let width = work.split(" width=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(width.parse::<f64>().unwrap() > 100.0, "{order}");
}

/// Text of the cell `Queue` of a listener on the page of the listeners.
fn queue_of(view: &ViewServer, listener: &str) -> String {
    let page = view.page("/listeners");
    let head = format!("<th scope=\"row\"><bdi>{listener}</bdi></th>");
    let row = page.split("<tr>").find(|row| row.starts_with(&head)).unwrap();
    let cell = row.split("data-label=\"Queue\"").nth(1).unwrap();
    text_of(&format!("<td{}", cell.split("</td>").next().unwrap()))
}

/// A call to a paused listener is queued. The timeline shows its wait as a bar, and the page of the
/// listeners counts the call as queued.
#[test]
fn the_timeline_shows_a_queued_call_that_the_page_of_the_listeners_counts() {
    let house = House::new();
    let running = house.run();
    assert_eq!(house.organism(&["pause", "solo"]).code, Some(0));
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait", "--new", "sess-queued01"]);
    assert!(matches!(sent.code, Some(0 | 3)), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let page = view.page("/threads/sess-queued01?view=timeline");
    let row = page.split("<tr>").find(|row| row.contains("<b><bdi>ping</bdi></b>")).unwrap();
    let bar = row.split("data-span=\"queue\"").nth(1).unwrap().split('>').next().unwrap();
    assert!(bar.contains("data-open"), "{bar}");
    assert!(text_of(&format!("<tr>{row}")).contains("queued"), "{row}");
    let queued = row.split("data-label=\"Queued\">").nth(1).unwrap();
    assert!(!queued.starts_with("</td>"), "{row}");
    let legend = page.split("<dl class=\"facts legend\">").nth(1).unwrap();
    let legend = legend.split("</dl>").next().unwrap();
    assert!(text_of(legend).contains("Queued"), "{legend}");

    let queue = queue_of(&view, "solo");
    assert!(queue.starts_with("1 for "), "{queue}");

    // Every page has the same word for the state of the message.
    let message = row.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    for (path, words) in [
        ("/threads/sess-queued01", "ping queued"),
        ("/threads/sess-queued01?view=sequence", "ping, queued"),
        (message, "queued; solo has not got it"),
        ("/threads", "1 unsettled"),
    ] {
        let text = text_of(&view.page(path));
        assert!(text.contains(words), "{words} at {path}: {text}");
        assert!(!text.contains("in flight"), "{path}: {text}");
    }
    let list = view.page("/threads");
    assert!(list.contains(", <span class=\"paused\">paused in part</span>"), "{list}");
}

/// The page of a prompt names every payload that the turn wrote, including those that the gate
/// refused. It also states the tokens, the cost and the latency of the turn, and links to the raw
/// text.
#[test]
fn the_page_of_a_prompt_names_what_the_turn_wrote_and_what_the_gate_refused() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    // The prompt names the namespaces of the core.
    let page = view.get(&format!("/messages/{}/prompt", runs.write)).body;
    let led_to = page.split("<ul class=\"led-to\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let text = text_of(&format!("<ul>{led_to}"));
    assert!(text.contains("say to ledger: handled"), "{text}");
    assert!(text.contains("order: the gate refused it, schema-invalid, record "), "{text}");
    assert!(led_to.contains(&format!("href=\"/messages/{}\"", runs.write)), "{led_to}");
    assert!(led_to.contains("href=\"/records/"), "{led_to}");

    let text = text_of(&page).replace('\u{202f}', " ");
    for part in ["1 000 in, 100 out", " EUR", "Latency", "The raw text of the turn"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let link = page.split("#turn-text\"").next().unwrap().rsplit("href=\"").next().unwrap();
    let note = view.get(link).body;
    let raw = note.split("id=\"turn-text\"").nth(1).unwrap();
    assert!(raw.contains("Raw text of the turn"), "{note}");
}

#[test]
fn hostile_payloads_in_diagrams_are_text_and_the_pages_are_bounded() {
    let house = House::with_echo();
    let running = house.run();
    let hostile = format!("<![CDATA[<script>alert(1)</script>]]>\u{202e}{}", "x".repeat(300_000));
    assert_eq!(house.send_text(&say(&hostile), &["--new", "sess-hostile1"]).code, Some(0));
    let siblings = "&lt;b&gt;1&lt;/b&gt;\n".repeat(3_000);
    for _ in 0..20 {
        let sent = house.send_text(&say(&siblings), &["--thread", "sess-hostile1"]);
        assert_eq!(sent.code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    for name in ["sequence", "timeline"] {
        let page = view.page(&format!("/threads/sess-hostile1?view={name}"));
        assert!(page.len() < 200_000, "{name}: {} bytes", page.len());
        for text in ["<script>alert", "\u{202e}"] {
            assert!(!page.contains(text), "{text:?}");
        }
    }
}

#[test]
fn the_page_of_the_listeners_shows_rates_errors_and_the_last_refusals() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/listeners");
    let text = text_of(&page);
    for part in ["Per minute", "Queue", "Errors", "Last refusals", "not-in-vocabulary"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let row = |name: &str| {
        let head = format!("<th scope=\"row\"><bdi>{name}</bdi></th>");
        let row = page.split("<tr>").find(|row| row.starts_with(&head)).unwrap();
        row.split("<td").skip(1).map(|cell| text_of(&format!("<td{cell}"))).collect::<Vec<_>>()
    };
    let rate: f64 = row("ledger")[1].parse().unwrap();
    assert!(rate > 0.0, "{:?}", row("ledger"));
    assert!(row("flaky")[4].parse::<u64>().unwrap() > 0, "{:?}", row("flaky"));
}

#[test]
fn the_page_of_a_message_shows_the_raw_text_of_its_turn_with_its_findings() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let answer = view.page(&format!("/messages/{}", runs.answer));
    assert!(text_of(&answer).contains("Raw text of the turn, "), "{answer}");

    // The turn whose payload was refused: its note has the finding, too.
    let timeline = timeline(&runs.house, "sess-booked777");
    let items = timeline["items"].as_array().unwrap();
    let notes = items.iter().filter_map(|item| {
        let message = &item["message"];
        let payload = message["payload"].as_str()?;
        payload.contains("<finding ").then(|| message["id"].as_str().unwrap().to_owned())
    });
    let notes: Vec<_> = notes.collect();
    assert!(!notes.is_empty(), "{timeline}");
    // The note contains the namespaces of payloads.
    let page = view.get(&format!("/messages/{}", notes[0])).body;
    let (_, raw) = page.split_once("Raw text of the turn").unwrap();
    let mark = raw.split("<mark>").nth(1).unwrap().split("</mark>").next().unwrap();
    assert_eq!(text_of(&format!("<mark>{mark}")), "<m/>1");
    let list = raw.split("<ol class=\"findings\">").nth(1).unwrap().split("</ol>").next().unwrap();
    let list = text_of(&format!("<ol>{list}"));
    assert!(list.contains(", column 89: unknown-param: `order` has no child `m`"), "{list}");
}

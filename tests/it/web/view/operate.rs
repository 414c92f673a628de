//! Actions in the web view: an action that a named person confirms is done once and on record, and
//! no other action is done.

mod attacks;
mod chromium;
mod partitions;
mod retries;
mod signed;
mod waiting;

use organism::organism::operator::this_user;
use serde_json::Value as Json;

use super::{ViewServer, last_record, text_of};
use crate::organism::diff::essay_house;
use crate::organism::provider::Provider;
use crate::organism::{House, numbered, say, talk_reply, until};
use crate::web::HttpResponse;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "holder", "solo", "boss"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"

[listeners.holder]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[humans.boss]
schema = "people.xsd"
accepts = ["question"]
replies = ["decision", "pass"]
"#;

const PEOPLE: &str = "urn:example:people";

fn house_with(config: &str) -> House {
    let house = House::with(config);
    house.write("people.xsd", include_str!("../../../data/organism/people.xsd"));
    house
}

fn house() -> House {
    house_with(CONFIG)
}

/// Login name of the user of the tests. This user is the operator if the config names no operator.
fn own_name() -> String {
    this_user().login.unwrap()
}

pub fn operating(house: &House) -> ViewServer {
    ViewServer::start(house, &["--operate", "--as", &own_name()])
}

/// The calls that wait for an approval.
fn held(house: &House) -> Vec<Json> {
    house.organism(&["approvals", "--all", "--json"]).json()
}

/// Sends a text, which opens a call that is held for an approval. Returns the message id of the
/// call.
fn hold(house: &House, text: &str) -> String {
    let sent = house.send_text(&say(text), &["--no-wait", "--key", text]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    held(house).pop().unwrap()["message"].as_str().unwrap().to_owned()
}

/// Approves a call at the terminal.
fn approved(house: &House, message: &str) {
    let held = held(house).into_iter().find(|call| call["message"] == message).unwrap();
    let hash = held["sha256"].as_str().unwrap();
    let approved = house.organism(&["approve", message, "--hash", hash]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
}

/// Sends a question, which waits for a person's answer. Returns the message id of the question.
fn ask(house: &House, text: &str) -> String {
    let question = format!("<question xmlns=\"{PEOPLE}\">{text}</question>");
    let sent = house.send_text(&question, &["--no-wait", "--key", text]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let open = house.organism(&["answer", "--json"]).json();
    open.last().unwrap()["message"].as_str().unwrap().to_owned()
}

/// The value of a hidden field of a form.
fn hidden<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" type=\"hidden\" value=\"")).unwrap();
    rest.split('"').next().unwrap()
}

/// A form as a browser sends it.
fn form(fields: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        text.bytes().map(byte).collect::<String>()
    };
    let pairs: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", escaped(name), escaped(value)))
        .collect();
    pairs.join("&")
}

impl ViewServer {
    /// Posts a form with the session, as a browser does from a page of the view.
    fn post(&self, path: &str, fields: &[(&str, &str)]) -> HttpResponse {
        let headers = [("Origin", "null"), ("Sec-Fetch-Site", "same-origin")];
        self.post_with(path, &headers, fields)
    }

    fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> HttpResponse {
        let host = self.at.to_string();
        let mut all = vec![("Host", &*host), ("Cookie", &*self.cookie)];
        all.retain(|(name, _)| headers.iter().all(|(known, _)| known != name));
        all.extend(headers);
        self.request("POST", path, &all, &form(fields))
    }

    /// Opens the page of an action, and confirms it.
    fn confirm(&self, path: &str, texts: &[(&str, &str)]) -> HttpResponse {
        let page = self.page(path);
        self.confirm_page(&page, texts)
    }

    fn confirm_page(&self, page: &str, texts: &[(&str, &str)]) -> HttpResponse {
        let mut fields = vec![("token", hidden(page, "token"))];
        if page.contains("name=\"hash\"") {
            fields.push(("hash", hidden(page, "hash")));
        }
        fields.extend(texts);
        self.post("/operate/confirm", &fields)
    }

    /// Target of the link with this text on a page.
    fn link(&self, path: &str, text: &str) -> String {
        let page = self.page(path);
        let links = page.split("<a ").skip(1).map(|rest| rest.split("</a>").next().unwrap());
        let mut found = links.filter(|link| link.ends_with(&format!(">{text}")));
        let link = found.next().unwrap_or_else(|| panic!("no link `{text}` in {page}"));
        let (_, rest) = link.split_once("href=\"").unwrap();
        rest.split('"').next().unwrap().replace("&amp;", "&")
    }
}

/// The rows of a query.
fn rows(house: &House, sql: &str) -> Vec<Json> {
    house.organism(&["sql", "--json", sql]).json()
}

#[test]
fn an_approval_and_a_refusal_are_confirmed_once_and_on_record_with_their_person() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let view = operating(&house);

    let approve = view.link("/waiting", "Approve");
    assert!(approve.contains(&message) && approve.contains("hash="), "{approve}");
    let page = view.page(&approve);
    for part in ["&gt;one&lt;/say&gt;", "Approve exactly this", &own_name(), "sha256"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let effect = "Once approved, exactly this goes to ";
    assert!(text_of(&page).contains(effect), "{page}");
    assert_eq!(held(&house).len(), 1, "a page decides nothing");

    let texts = [("note", "looks right")];
    let done = view.confirm_page(&page, &texts);
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.body.contains("Done."), "{}", done.body);
    let receipt = text_of(&done.body);
    for part in ["Receipt", "desk → echo say", "one", "sha256 ", "looks right", &own_name()] {
        assert!(receipt.contains(part), "{part} in {receipt}");
    }
    assert!(done.body.contains("href=\"/records/"), "{}", done.body);
    assert!(receipt.contains("No other call waits for a person."), "{receipt}");
    let result = house.send_text(&say("one"), &["--key", "one"]);
    assert_eq!(result.out, talk_reply("one"));

    let again = view.confirm_page(&page, &texts);
    assert_eq!(again.status, 409, "{}", again.body);
    let shown = text_of(&view.page("/actions"));
    assert!(shown.contains("looks right") && shown.contains(&own_name()), "{shown}");
    assert_eq!(shown.matches("looks right").count(), 1, "{shown}");
    assert!(shown.contains(&format!("unsigned, operating system user {}", own_name())), "{shown}");

    hold(&house, "two");
    let refuse = view.link("/waiting", "Refuse");
    let texts = [("reason", "not today"), ("note", "too late")];
    hold(&house, "three");
    let done = view.confirm(&refuse, &texts);
    assert_eq!(done.status, 200, "{}", done.body);
    let receipt = text_of(&done.body);
    assert!(receipt.contains("Next: desk → echo say. 1 call waits for a person."), "{receipt}");
    let result = house.send_text(&say("two"), &["--key", "two"]);
    assert!(result.out.contains("denied") && result.out.contains("not today"), "{result:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_form_without_a_session_is_kept_until_the_token_opens_one() {
    let house = house();
    let running = house.run();
    let message = ask(&house, "left or right?");
    let view = operating(&house);
    let page = view.page(&view.link("/waiting", "Answer"));
    let reply = hidden(&page, "reply").to_owned();
    let remark = "a long text & <b>";
    let remark_field = "value decision / remark";
    let typed = [("message", &*message), ("reply", &reply), (remark_field, remark)];
    let own = [("Origin", "null"), ("Sec-Fetch-Site", "same-origin")];
    let without = [&own[..], &[("Cookie", "")]].concat();
    let escaped = "value=\"a long text &amp; &lt;b&gt;\"";

    let asked = view.post_with("/operate/answer", &without, &typed);
    assert_eq!(asked.status, 401, "{}", asked.body);
    assert!(text_of(&asked.body).contains("so nothing was sent"), "{}", asked.body);
    assert!(asked.body.contains(escaped), "{}", asked.body);

    let kept = typed.map(|(name, value)| (format!("form.{name}"), value));
    let mut fields = vec![("form", "/operate/answer")];
    fields.extend(kept.iter().map(|(name, value)| (&**name, *value)));
    let token_form = |token| [&[("token", token)], &*fields].concat();
    let wrong = view.post_with("/session", &without, &token_form("wrong"));
    assert_eq!(wrong.status, 403, "{}", wrong.body);
    assert!(wrong.body.contains(escaped), "{}", wrong.body);
    let opened = view.post_with("/session", &without, &token_form(&view.token));
    assert_eq!(opened.status, 200, "{}", opened.body);
    assert!(super::header(&opened, "set-cookie").is_some(), "{}", opened.head);
    assert!(opened.body.contains("action=\"/operate/answer\""), "{}", opened.body);
    assert_eq!(hidden(&opened.body, "message"), message);
    assert!(opened.body.contains(escaped), "{}", opened.body);

    let confirmed = view.post_with("/operate/confirm", &without, &[("token", "x")]);
    assert_eq!(confirmed.status, 401, "{}", confirmed.body);
    assert!(text_of(&confirmed.body).contains("so nothing was done"), "{}", confirmed.body);
    assert_eq!(hidden(&confirmed.body, "next"), "/waiting");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn two_decisions_at_once_are_one_and_the_other_is_refused() {
    let house = house();
    let running = house.run();
    hold(&house, "one");
    let view = operating(&house);
    let approve = view.page(&view.link("/waiting", "Approve"));
    let refuse = view.page(&view.link("/waiting", "Refuse"));

    let answers = std::thread::scope(|scope| {
        let decide = |page| {
            let view = &view;
            scope.spawn(move || view.confirm_page(page, &[]).status)
        };
        let decided = [&*approve, &*refuse].map(decide);
        decided.map(|deciding| deciding.join().unwrap())
    });
    let mut sorted = answers;
    sorted.sort_unstable();
    assert_eq!(sorted, [200, 409], "approve, refuse: {answers:?}");

    let late = view.get(&view_path("/operate/approve", &held(&house)));
    assert_eq!(late.status, 400, "{}", late.body);
    assert_eq!(running.stop(), Some(0));
}

/// The receipt of a decision names the record of this decision. A second decision about the same
/// call was refused, and its record has the same verb and message.
#[test]
fn the_receipt_of_a_decision_names_its_own_record_beside_a_refused_one() {
    let house = house();
    let running = house.run();
    let view = operating(&house);
    for text in ["one", "two", "three"] {
        let message = hold(&house, text);
        let path = view.link("/waiting", "Refuse");
        let pages = [view.page(&path), view.page(&path)];
        let answers = std::thread::scope(|scope| {
            let decide = |(page, reason)| {
                let view = &view;
                scope.spawn(move || (reason, view.confirm_page(page, &[("reason", reason)])))
            };
            let [one, other] = &pages;
            let decided = [(&**one, "reason of A"), (&**other, "reason of B")].map(decide);
            decided.map(|deciding| deciding.join().unwrap())
        });

        let (reason, done) = answers.iter().find(|(_, answer)| answer.status == 200).unwrap();
        let receipt = text_of(&done.body);
        assert!(receipt.contains(&format!("Reason{reason}")), "{reason} in {receipt}");
        assert!(!receipt.contains("unproved"), "{receipt}");
        let position = until("the decision is in the index", || {
            let sql =
                format!("SELECT position FROM action WHERE message = '{message}' AND accepted");
            rows(&house, &sql).first().map(|row| row["position"].to_string())
        });
        assert!(done.body.contains(&format!("href=\"/records/{position}\"")), "{}", done.body);
    }
    assert_eq!(running.stop(), Some(0));
}

/// Path of the page `page` about the first call in `calls`. If `calls` is empty, the path names no
/// call.
fn view_path(page: &str, calls: &[Json]) -> String {
    let message = calls.first().map(|call| call["message"].as_str().unwrap());
    format!("{page}?message={}", message.unwrap_or_default())
}

#[test]
fn a_form_from_the_schema_answers_a_question_and_keeps_what_was_typed() {
    let house = house();
    let running = house.run();
    let message = ask(&house, "left or right?");
    let view = operating(&house);
    let path = view.link("/waiting", "Answer");
    let page = view.page(&path);
    for part in ["left or right?", "What is to be done.", "<option value=\"leave\">", "one a line"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(page.contains("(required if price is part of the answer)"), "{page}");

    let verdict = "which decision / verdict";
    let [days, remark] = ["days", "remark"].map(|name| format!("value decision / {name}"));
    let reply = hidden(&page, "reply").to_owned();
    let typed = [
        ("message", &*message),
        ("reply", &reply),
        (verdict, "do"),
        (&days, "soon"),
        (&remark, "first\r\nsecond <b>"),
    ];
    let wrong = view.post("/operate/answer", &typed);
    assert_eq!(wrong.status, 422, "{}", wrong.body);
    for part in ["does not accept", "value=\"soon\"", "second &lt;b&gt;", "value=\"do\" selected"] {
        assert!(wrong.body.contains(part), "{part} in {}", wrong.body);
    }

    let missing = view.post("/operate/answer", &typed[..2]);
    assert_eq!(missing.status, 422);
    assert!(missing.body.contains("this has to be answered"), "{}", missing.body);

    let typed = [typed[0], typed[1], typed[2], (&*days, "3"), typed[4]];
    let shown = view.post("/operate/answer", &typed);
    assert_eq!(shown.status, 200, "{}", shown.body);
    let check = text_of(&shown.body);
    assert!(check.contains(">second &lt;b&gt;</remark>"), "{}", shown.body);
    for part in ["verdictdo", "days3", "pricenot part of the answer", "byleft out"] {
        assert!(check.contains(part), "{part} in {check}");
    }
    let changed = view.post("/operate/answer", &[&typed[..], &[("change", "yes")]].concat());
    assert_eq!(changed.status, 200, "{}", changed.body);
    for part in ["Check the answer", "value=\"3\"", "value=\"do\" selected"] {
        assert!(changed.body.contains(part), "{part} in {}", changed.body);
    }
    let done = view.confirm_page(&shown.body, &[]);
    assert_eq!(done.status, 200, "{}", done.body);
    let question = format!("<question xmlns=\"{PEOPLE}\">left or right?</question>");
    let result = house.send_text(&question, &["--key", "left or right?"]);
    for part in [">do</verdict>", ">3</days>", ">first</remark>", ">second &lt;b&gt;</remark>"] {
        assert!(result.out.contains(part), "{part} in {result:?}");
    }

    // The gate judges what is written as XML, and the form keeps it.
    let message = ask(&house, "again?");
    let written = [("message", &*message), ("reply", &reply), ("xml", "just do it")];
    let shown = view.post("/operate/answer", &written);
    assert_eq!(shown.status, 200, "{}", shown.body);
    let refused = view.confirm_page(&shown.body, &[]);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("just do it") && refused.body.contains("Refused:"));
    assert_eq!(running.stop(), Some(0));
}

/// The texts of the links to actions on a thread.
fn actions(page: &str) -> Vec<String> {
    let bar = page.split("id=\"operate-bar\">").nth(1).unwrap().split("</p>").next().unwrap();
    bar.split("<a ").skip(1).map(|link| text_of(&format!("<a {link}"))).collect()
}

#[test]
fn a_thread_offers_only_actions_that_have_an_effect() {
    let house = house();
    let running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-open00001"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let sent = house.send_text(&numbered("ping", "1"), &["--new", "sess-ended0001"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let view = operating(&house);
    let [open, ended] = ["/threads/sess-open00001", "/threads/sess-ended0001"];
    until("the end is indexed", || view.page(ended).contains("completed").then_some(()));
    assert_eq!(actions(&view.page(open)), ["Pause thread", "Cancel its calls", "Pause and cancel"]);
    // A client may continue it.
    assert_eq!(actions(&view.page(ended)), ["Pause thread"]);
    let last = last_record(&house);
    assert!(!view.page(&format!("{open}?at={last}")).contains("operate-bar"));

    assert_eq!(view.confirm(&view.link(open, "Pause thread"), &[]).status, 200);
    let page = until("the pause is indexed", || {
        Some(view.page(open)).filter(|page| page.contains("Paused since"))
    });
    assert!(!page.contains("key-warning"), "decisions need no signature: {page}");
    let status = |thread: &str| {
        let page = view.page("/threads");
        let row = page.split("<tr>").find(|row| row.contains(&format!("href=\"{thread}\"")));
        let cell = row.unwrap().split("data-label=\"Status\"").nth(1).unwrap();
        text_of(&format!("<td{}", cell.split("</td>").next().unwrap()))
    };
    assert_eq!([status(open), status(ended)], ["running, paused", "completed"]);
    assert_eq!(actions(&page), ["Resume", "Cancel its calls", "Pause and cancel"]);
    // The script replaces this part of an open page.
    let notes = page.split("<div id=\"pauses\">").nth(1).unwrap().split("</div>").next().unwrap();
    assert!(notes.contains("Paused since"), "{notes}");
    let page = view.page(ended);
    assert!(page.contains("<div id=\"pauses\"></div>"), "{page}");
    assert_eq!(view.confirm(&view.link(open, "Cancel its calls"), &[]).status, 200);
    let page = until("the end is indexed", || {
        Some(view.page(open)).filter(|page| page.contains("cancelled"))
    });
    assert_eq!(actions(&page), ["Resume"]);
    assert_eq!(running.stop(), Some(0));
}

/// A subthread that has ended gets no further message, so its page offers no action. The page names
/// the pauses of the threads above the subthread.
#[test]
fn an_ended_subthread_offers_no_action_and_names_the_pause_of_its_root() {
    let house = essay_house();
    let running = house.run();
    let view = operating(&house);
    let [root, child] = ["/threads/sess-essay000", "/threads/sess-essay000.critique_1"];
    assert_eq!(actions(&view.page(root)), ["Pause thread"]);
    assert_eq!(actions(&view.page(child)), [""; 0]);

    assert_eq!(house.organism(&["pause", "sess-essay000"]).code, Some(0));
    let page = until("the pause is indexed", || {
        Some(view.page(child)).filter(|page| page.contains("Paused since"))
    });
    assert_eq!(actions(&page), [""; 0]);
    assert_eq!(actions(&view.page(root)), ["Resume"]);
    assert_eq!(running.stop(), Some(0));
}

/// Several pages show the same text for the person who acted: the pages of the thread, of the
/// message, of the actions and of the pauses.
#[test]
fn the_person_of_an_action_has_one_form_on_every_page() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let view = operating(&house);
    assert_eq!(view.confirm(&view.link("/waiting", "Approve"), &[("note", "seen")]).status, 200);
    assert_eq!(view.confirm(&view.link("/operate", "Pause all"), &[]).status, 200);
    let thread = rows(&house, "SELECT thread FROM action WHERE action = 'approve'");
    let thread = thread[0]["thread"].as_str().unwrap();
    let host = this_user().host.map(|host| format!(", on {host}")).unwrap_or_default();
    let person = format!("by {} (operator{host})", own_name());
    until("the pause is indexed", || {
        view.page("/threads").contains("Everything is paused since").then_some(())
    });
    let paths = [
        "/threads".to_owned(),
        format!("/threads/{thread}"),
        format!("/messages/{message}"),
        "/operate".to_owned(),
    ];
    for path in paths {
        let text = text_of(&view.page(&path));
        assert!(text.contains(&person), "{path}: {person} in {text}");
        assert!(!text.contains("by operator") && !text.contains("by: operator"), "{path}: {text}");
    }
    // A page that begins with a message of a decision's record names the person, too.
    for from in 1..6 {
        let text = text_of(&view.page(&format!("/threads/{thread}?from={from}")));
        assert!(!text.contains("by: operator"), "{from}: {text}");
    }
    let listed = text_of(&view.page("/actions"));
    // Two rows, and the strip that states the pause.
    assert_eq!(listed.matches(person.trim_start_matches("by ")).count(), 3, "{listed}");
    let arrows = text_of(&view.page(&format!("/threads/{thread}?view=sequence")));
    assert!(arrows.contains(&format!("approve by {}", own_name())), "{arrows}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_pause_a_resume_and_the_kill_switch_reach_the_organism() {
    let house = house();
    let running = house.run();
    let view = operating(&house);
    let pause = view.link("/operate", "Pause all");
    let done = view.confirm(&pause, &[("note", "looking into it")]);
    assert_eq!(done.status, 200, "{}", done.body);
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(house.recorded("pong"), 0);

    let overview = until("the pause is indexed", || {
        let page = view.page("/operate");
        page.contains("looking into it").then_some(page)
    });
    assert!(text_of(&overview).contains("all since"), "{overview}");
    assert!(
        overview.contains("data-label=\"State\"><span class=\"paused\">paused (all)"),
        "{overview}"
    );
    for path in ["/threads", "/costs", "/operate"] {
        let page = view.page(path);
        let strip = page.split("id=\"paused\" role=\"status\">").nth(1).unwrap();
        let strip = strip.split("</p>").next().unwrap();
        let text = text_of(&format!("<p>{strip}"));
        for part in ["Everything is paused since", &own_name(), "(looking into it)"] {
            assert!(text.contains(part), "{part} at {path}: {text}");
        }
        assert!(strip.contains("href=\"/operate/pause?verb=resume&amp;target=all\""), "{strip}");
    }
    let reader = ViewServer::start(&house, &[]);
    let page = reader.page("/threads");
    assert!(page.contains("<code>organism resume all</code> ends it"), "{page}");
    let resume = view.link("/operate", "Resume");
    let resume = until("the waiting call is indexed", || {
        let page = view.page(&resume);
        text_of(&page).contains("1 open call in 1 thread").then_some(page)
    });
    assert!(resume.contains("looking into it"), "the pause and its note: {resume}");
    assert!(!overview.contains(">Pause all<"), "it would change nothing: {overview}");
    let effect = "What is queued is handed over; calls that wait for a person keep waiting.";
    assert!(resume.contains(effect), "{resume}");
    let done = view.confirm_page(&resume, &[]);
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.body.contains("id=\"paused\" role=\"status\" hidden"), "{}", done.body);
    let again = view.confirm_page(&resume, &[]);
    assert_eq!(again.status, 409, "a confirmation counts once: {}", again.body);
    until("what waited is done", || (house.recorded("pong") == 1).then_some(()));

    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--json"]);
    let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    let path = format!("/threads/{thread}");
    until("it is in flight", || {
        let page = view.get(&path);
        (page.status == 200 && text_of(&page.body).contains("hold in flight")).then_some(())
    });
    for (shown, words) in [("sequence", "hold, in flight"), ("timeline", "in flight")] {
        let text = text_of(&view.page(&format!("{path}?view={shown}")));
        assert!(text.contains(words) && !text.contains("queued"), "{shown}: {text}");
    }
    let kill = view.link(&path, "Pause and cancel");
    let page = view.page(&kill);
    assert!(page.contains("1 call will be cancelled; no other call is open."), "{page}");
    assert!(!page.contains("is cancelled"), "the page asks first: {page}");
    assert_eq!(view.confirm_page(&page, &[]).status, 200);
    let threads = house.organism(&["threads", "--json"]).json();
    let killed = threads.iter().find(|row| row["thread"] == *thread).unwrap();
    assert_eq!(killed["open"].as_u64().unwrap_or_default(), 0, "{killed}");

    let listener = "/operate/pause?verb=pause&target=solo";
    assert_eq!(view.confirm(listener, &[]).status, 200);
    for (path, status) in [
        ("/operate/pause?verb=pause&target=nobody", 404),
        ("/operate/pause?verb=pause&target=desk", 404),
        ("/operate/pause?verb=stop&target=all", 400),
        ("/operate/pause?verb=pause&target=sess-nope0000", 404),
        ("/operate/cancel?thread=x", 400),
        ("/operate/cancel?thread=sess-nope0000", 404),
    ] {
        assert_eq!(view.get(path).status, status, "{path}");
    }
    let sent = house.send_text(&numbered("hold", "2"), &["--no-wait", "--json"]);
    let other = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    let cancel = format!("/operate/cancel?thread={other}");
    let done = view.confirm(&cancel, &[("reason", "enough")]);
    assert_eq!(done.status, 200, "{}", text_of(&done.body));
    let again = view.confirm(&format!("/operate/cancel?thread={thread}"), &[]);
    assert_eq!(again.status, 409, "nothing is open there: {}", text_of(&again.body));
    let actions = text_of(&view.page("/actions"));
    for part in ["pause-and-cancel", "resume", "enough", "looking into it"] {
        assert!(actions.contains(part), "{part} in {actions}");
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_fork_begins_at_a_message_with_another_payload() {
    let house = house();
    let running = house.run();
    let sent = house.send_text(&numbered("ping", "1"), &["--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let view = operating(&house);
    let request = rows(&house, "SELECT id FROM message WHERE payload = 'ping' LIMIT 1");
    let message = request[0]["id"].as_str().unwrap().to_owned();
    let path = view.link(&format!("/messages/{message}"), "Fork here");
    let page = view.page(&path);
    assert!(page.contains("&lt;n&gt;1&lt;/n&gt;"), "the recorded payload is in the form: {page}");
    let boot = rows(&house, "SELECT id FROM message WHERE payload = 'boot'");
    let boot = view.get(&format!("/messages/{}", boot[0]["id"].as_str().unwrap())).body;
    assert!(!boot.contains("Fork here"), "no request of a client comes before it: {boot}");
    assert_eq!(actions(&view.page("/threads/sess-organism")), [""; 0]);
    let text = text_of(&page);
    for part in ["up to its message ping", "solo is a listener: it will answer the unchanged"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    // A browser sends a field with line feeds in place of the carriage returns of the record.
    let broken = numbered("ping", "1").replace("<n>", "\r\n\r<n>");
    assert_eq!(house.send_text(&broken, &["--new", "sess-lines0001"]).code, Some(0));
    let sql = "SELECT id FROM message WHERE thread = 'sess-lines0001' AND payload = 'ping'";
    let request = rows(&house, sql);
    let id = request[0]["id"].as_str().unwrap();
    let typed = broken.replace("\r\n\r", "\r\n\r\n");
    let shown = view.post("/operate/fork", &[("message", id), ("payload", &typed)]);
    let text = text_of(&shown.body);
    assert!(text.contains("It begins with this, as in the source"), "{text}");

    let edited = numbered("ping", "2");
    let fields = [("message", &*message), ("payload", &edited), ("client", "desk")];
    let wrong = view.post("/operate/fork", &[&fields[..], &[("tokens", "many")]].concat());
    assert_eq!(wrong.status, 422, "{}", wrong.body);
    assert!(wrong.body.contains("&lt;n&gt;2&lt;/n&gt;"), "{}", wrong.body);

    let fields = [&fields[..], &[("tokens", "1000"), ("live", "solo")]].concat();
    let shown = view.post("/operate/fork", &fields);
    assert_eq!(shown.status, 200, "{}", shown.body);
    let check = text_of(&shown.body);
    let effect = "solo is a listener: it is called for real, so it will get this changed request";
    for part in ["The request of the source", "which is changed", effect] {
        assert!(check.contains(part), "{part} in {check}");
    }
    for part in ["Maximum tokens1000", "Maximum moneynone"] {
        assert!(check.contains(part), "{part} in {check}");
    }
    let done = view.confirm_page(&shown.body, &[("note", "what if")]);
    assert_eq!(done.status, 200, "{}", done.body);
    let fork = view_link(&done.body);
    until("the fork is done", || (house.recorded("pong") == 3).then_some(()));
    assert_ne!(fork, format!("/threads/{}", sent.json()[0]["thread"].as_str().unwrap()));
    until("the fork has a page", || (view.get(&fork).status == 200).then_some(()));

    // A payload that the gate refuses comes back in the form.
    let fields = [("message", &*message), ("payload", "<ping/>"), ("client", "desk")];
    let shown = view.post("/operate/fork", &fields);
    let text = text_of(&shown.body);
    assert!(text.contains("this changed request will wait for an approval"), "{text}");
    let refused = view.confirm_page(&shown.body, &[]);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("&lt;ping/&gt;") && refused.body.contains("Refused:"));
    assert_eq!(running.stop(), Some(0));
}

/// A fork with a money budget is refused for a model without a price, because the budget would have
/// no effect. Both the web view and `organism fork` refuse it.
#[test]
fn a_fork_with_an_amount_of_money_is_refused_for_a_model_without_a_price() {
    let provider = Provider::start(Vec::new());
    let agent = "[agents.writer]\nmodel = \"live\"\nschema = \"talk.xsd\"\naccepts = [\"order\"]\n\
                 final = \"done\"\n";
    let house = house_with(&format!("{CONFIG}\n{agent}\n{}", provider.model("live", "")));
    let running = house.run();
    let sent = house.send_text(&numbered("ping", "1"), &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let request = rows(&house, "SELECT id FROM message WHERE payload = 'ping' LIMIT 1");
    let message = request[0]["id"].as_str().unwrap().to_owned();
    let view = operating(&house);

    let fields = [("message", &*message), ("client", "desk")];
    let money = view.post("/operate/fork", &[&fields[..], &[("money", "0.50")]].concat());
    assert_eq!(money.status, 422, "{}", money.body);
    assert!(text_of(&money.body).contains("the model `live` has no price"), "{}", money.body);
    assert!(money.body.contains("value=\"0.50\""), "the form keeps it: {}", money.body);
    let refused = house.organism(&["fork", &message, "--money", "0.50"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("the model `live` has no price"), "{refused:?}");
    let tokens = view.post("/operate/fork", &[&fields[..], &[("tokens", "1000")]].concat());
    assert_eq!(tokens.status, 200, "{}", tokens.body);
    assert_eq!(rows(&house, "SELECT id FROM message WHERE payload = 'fork'").len(), 0);
    assert_eq!(running.stop(), Some(0));
}

fn view_link(page: &str) -> String {
    let (_, rest) = page.split_once("The fork: <a href=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn without_an_organism_each_action_says_what_to_start() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let view = operating(&house);
    let shown = view.page(&view.link("/waiting", "Approve"));
    assert_eq!(running.stop(), Some(0));

    let answers = [
        view.get(&format!("/operate/approve?message={message}")),
        view.get("/operate/pause?verb=pause&target=all"),
        view.confirm_page(&shown, &[]),
    ];
    for answer in answers {
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert!(answer.body.contains("organism run"), "{}", answer.body);
    }
    assert!(view.page("/operate").contains("organism run"));

    let running = house.run();
    assert_eq!(held(&house).len(), 1, "the call waits on");
    let done = view.confirm_page(&shown, &[]);
    assert_eq!(done.status, 200, "the confirmation was not used up: {}", done.body);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn many_waiting_calls_stand_on_several_pages_and_each_can_be_decided() {
    const CALLS: usize = 103;
    let house = house();
    let running = house.run();
    std::fs::create_dir(house.path("each")).unwrap();
    for number in 0..CALLS {
        house.write(&format!("each/{number:03}.xml"), say(&format!("text {number:03}")));
    }
    let sent = house.organism(&["send", "--as", "desk", "--each", "each", "--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    assert_eq!(held(&house).len(), CALLS);
    // The running organism returns all, and the command lists the oldest.
    let listed = house.organism(&["approvals", "--json"]);
    assert_eq!(listed.json(), held(&house)[..100]);
    assert!(listed.err.contains("the 100 oldest of 103 calls"), "{}", listed.err);

    let view = operating(&house);
    let calls = |page: &str| page.matches("<article class=\"call\"").count();
    let first = view.page("/waiting");
    assert_eq!(calls(&first), 100);
    assert!(text_of(&first).contains("3 more calls"), "{first}");
    let next = view.link("/waiting", "3 more calls");
    let second = view.page(&next);
    assert_eq!(calls(&second), 3);
    assert!(second.contains("Those before") && !second.contains("more call"), "{second}");

    // No call stands on both pages, or on none.
    let shown = |page: &str| -> Vec<String> {
        let parts = page.split("&gt;text ").skip(1);
        parts.map(|part| part.chars().take(3).collect()).collect()
    };
    let mut all = [shown(&first), shown(&second)].concat();
    all.sort();
    assert_eq!(all, (0..CALLS).map(|number| format!("{number:03}")).collect::<Vec<_>>());

    // A message leads to its own call, however many wait before it.
    let last = held(&house).pop().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(!first.contains(&last), "{last}");
    let own = view.page(&view.link(&format!("/messages/{last}"), "Decide"));
    assert!(own.contains(&format!("id=\"call-{last}\"")) && calls(&own) == 1, "{own}");

    assert_eq!(view.confirm(&view.link(&next, "Approve"), &[]).status, 200);
    until("it is decided", || (held(&house).len() == CALLS - 1).then_some(()));
    let beyond = view.page("/waiting?skip=999999999999");
    assert!(text_of(&beyond).contains("No more calls wait"), "{beyond}");
    assert_eq!(running.stop(), Some(0));
}

//! The browser answers each of the twenty-five questions of docs/AUDIT.md in at most three clicks
//! from `/`. A click follows a link of the page, or sends a form of the page.

use std::path::Path;

use super::{ViewServer, text_of};
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::until;

const CLICKS_MAX: usize = 3;

/// The path of a person through the pages.
struct PagePath<'v> {
    view: &'v ViewServer,
    page: String,
    clicks: usize,
}

impl<'v> PagePath<'v> {
    /// Opens `/`, which leads to the threads.
    fn new(view: &'v ViewServer) -> Self {
        let first = view.get("/");
        assert_eq!(super::header(&first, "location"), Some("/threads"));
        Self { view, page: view.page("/threads"), clicks: 0 }
    }

    fn click(&mut self, step: &str, question: &str) {
        self.clicks += 1;
        let path = match step.split_once(": ") {
            Some(("form", query)) => self.form_path(query),
            _ => self.link(step, question),
        };
        // A page of a config has the namespaces of its schemas.
        let response = self.view.get(&path);
        assert_eq!(response.status, 200, "{question}: {path}");
        self.page = response.body;
    }

    /// Target of the first link on the page whose target contains `part`.
    fn link(&self, part: &str, question: &str) -> String {
        let links = self.page.split("href=\"").skip(1);
        let mut links = links.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
        let link = links.find(|link| link.contains(part));
        link.unwrap_or_else(|| panic!("{question}: no link with {part} in {}", self.page))
    }

    /// The address that opens when the form of the page is sent with the values in `query`.
    fn form_path(&self, query: &str) -> String {
        let (_, form) = self.page.split_once("<form").unwrap();
        let (form, _) = form.split_once("</form>").unwrap();
        for pair in query.split('&') {
            let name = pair.split('=').next().unwrap();
            assert!(form.contains(&format!("name=\"{name}\"")), "{name} in {form}");
        }
        let (_, action) = form.split_once("action=\"").unwrap();
        format!("{}?{query}", action.split('"').next().unwrap())
    }
}

/// The rows of the table in docs/AUDIT.md about the browser: question and path.
fn documented() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/AUDIT.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| question | in the browser |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    let row = |line: &str| {
        let (question, path) = line.strip_prefix("| ").unwrap().split_once(" | ").unwrap();
        (question.to_owned(), path.strip_suffix(" |").unwrap().to_owned())
    };
    rows.map(row).collect()
}

/// Issue 18: each question is answered in at most three clicks, counted from `/`.
#[test]
fn each_question_is_answered_in_three_clicks() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    until("the record is proved", || {
        text_of(&view.page("/record")).contains("Decided again").then_some(())
    });

    let [write, request, answer] = [&runs.write, &runs.request, &runs.answer];
    let booked = "/threads/sess-booked777";
    let [write, request, answer] = [write, request, answer].map(|id| format!("/messages/{id}"));
    let (write, request, answer) = (write.as_str(), request.as_str(), answer.as_str());
    let digest = runs.digest.as_str();
    let first_config = runs.first_config.as_str();
    let prompt = format!("{answer}/prompt");
    let raw = format!("{write}/raw");

    // The steps and what the last page shows, in the order of the questions.
    let paths: [(&[&str], &[&str]); 25] = [
        (&[booked, write], &["approve by ", " (operator", "Saw this payload", digest, "as agreed"]),
        (
            &["/search", "form: words=INV-777"],
            &["sess-booked777", "sess-cancel777", "newest first"],
        ),
        (&[booked, answer], &["Written by a model", "playback/", "2 000 in, 100 out"]),
        (&["/refused"], &["schema-invalid", "writer", "not-in-vocabulary"]),
        (&["/costs"], &["writer", "8 000", "600", "0.022"]),
        (&["/listeners"], &["flaky", "ledger", "queue p95"]),
        (&[booked, write], &["talk.xsd", first_config]),
        (&[booked, request], &["handled at record", "completed", "after"]),
        (&["/actions"], &["as agreed", "booked before", "not needed"]),
        (&["/waiting"], &["sess-waiting777", "approval", "ledger", "Since"]),
        (&[booked], &["desk → writer", "writer → ledger", "approve by"]),
        (&[booked, "777?at="], &["writer → ledger", "As it was after record"]),
        (&[booked, answer, &prompt], &["Be brief.", "INV-777", "the record names this digest"]),
        (&["form: status=failed&since=1d"], &["sess-tired001"]),
        (&["form: cost_over=0.005"], &["sess-booked777", "sess-refused777", "0.008"]),
        (&[booked], &["the gate refused order of writer: schema-invalid", "<m/>"]),
        (&["/refused", "rule=not-in-vocabulary"], &["nonsense", "desk"]),
        (&["/record"], &["Unchanged", "up to record"]),
        (&["/record"], &["Decided again", "records as they are"]),
        (
            &["/config", "form: before=sess-booked777&after=sess-refused777"],
            &["-Be brief.", "+Be brief, and polite."],
        ),
        (&[booked, "/config?at="], &["[listeners.ledger]", "approval = \"always\"", "price_in"]),
        (&["/refused"], &["crashed", "sess-flaky001", "budget-spent", "sess-tired001"]),
        (&[booked, write, &raw], &[]),
        (
            &["/search", "form: from=desk&kind=call&since=1d"],
            &["desk → writer", "desk → flaky", "6 of 6"],
        ),
        (&["/search", "form: disposition=cancelled"], &["sess-cancel777"]),
    ];

    let documented = documented();
    let asked = crate::organism::auditor_questions::questions();
    let questions: Vec<_> = asked.into_iter().map(|(question, _)| question).collect();
    let rows: Vec<_> = documented.iter().map(|(question, _)| question.clone()).collect();
    assert_eq!(rows, questions);
    let mut missing = Vec::new();
    for ((question, described), (steps, parts)) in documented.iter().zip(paths) {
        assert_eq!(described.split(" → ").count(), steps.len(), "{question}: {described}");
        let mut path = PagePath::new(&view);
        if steps.last() == Some(&&*raw) {
            for step in &steps[..2] {
                path.click(step, question);
            }
            let bytes = view.get(&path.link(&raw, question)).body;
            let approved = organism::ids::Digest::of(bytes.as_bytes()).to_string();
            assert_eq!(approved, runs.digest);
            continue;
        }
        for step in steps {
            path.click(step, question);
        }
        assert!(path.clicks <= CLICKS_MAX, "{question}: {} clicks", path.clicks);
        let text = text_of(&path.page).replace('\u{202f}', " ");
        let absent = parts.iter().filter(|part| !text.contains(**part));
        missing.extend(absent.map(|part| format!("{question}: {part} is missing in {text}")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n\n"));
}

//! A real Chromium opens the pages of the web view on journals of the examples: as a person with a
//! pointer, with the keyboard alone, and with the script off. `tests/data/web/walk.py` drives the
//! browser.
//!
//! `ORGANISM_PICTURES` keeps screenshots of each page in `target/browser-pictures`: two with the
//! value `two`, on a phone and on a laptop, and six with the value `all`. If no Chromium is found,
//! the test reports this. With `ORGANISM_TORTURE=1`, the test fails in this case.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::ViewServer;
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::examples::Example;
use crate::organism::kill::torture;
use crate::organism::{CommandOutput, House, say};

/// File in which a test notes that it did not run. `.ci/run` prints the file.
const SKIPPED: &str = "target/browser-skipped.txt";
/// Directory of the screenshots.
const PICTURES: &str = "target/browser-pictures";
/// The interpreter with the packages that `.ci/browser` installs.
pub(super) const PYTHON: &str = "target/browser/bin/python3";

/// Programs that are tried in this order if `CHROMIUM` names none. `.ci/browser` has the same list.
const WITHOUT_NAME: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// Names with markup and control characters, which no page may interpret.
const HOSTILE: [&str; 3] = [
    "<script>console.error(1)</script><img src=\"http://192.0.2.1/x\" onerror=\"alert(2)\">",
    "<style>*{display:none}</style><base href=\"http://192.0.2.1/\">",
    "\u{202e}gpj.exe\u{202c}\u{200b}\u{feff}\u{0}\u{7}",
];

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Path of Chromium on this machine; `None` if Chromium or the packages that drive it are not
/// installed. A Chromium without windows comes first: its walks take half of the processor time.
pub fn chromium() -> Option<PathBuf> {
    let found = match std::env::var_os("CHROMIUM") {
        Some(named) => program_named(&named),
        None => WITHOUT_NAME.iter().find_map(|name| program_named(name.as_ref())),
    };
    found.filter(|_| repository().join(PYTHON).exists())
}

/// Finds a program on `PATH`. An absolute `name` is the path itself.
fn program_named(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    programs.into_iter().find(|program| program.is_file())
}

/// The directory of the screenshots; `None` if none are taken.
pub(super) fn pictures() -> Option<PathBuf> {
    let is_wanted = torture() || std::env::var_os("ORGANISM_PICTURES").is_some();
    let pictures = repository().join(PICTURES);
    is_wanted.then(|| {
        std::fs::create_dir_all(&pictures).unwrap();
        pictures
    })
}

/// A journal with hostile texts in every place that a client can write to.
fn hostile_journal() -> House {
    let house = House::with_echo();
    let running = house.run();
    for text in HOSTILE {
        let text = text.replace(['\u{0}', '\u{7}'], "");
        assert_eq!(house.send_text(&say(&format!("<![CDATA[{text}]]>")), &[]).code, Some(0));
    }
    let siblings = format!("<![CDATA[{}]]>", "<b>1</b>".repeat(5_000));
    for text in ["x".repeat(500_000), siblings] {
        assert_eq!(house.send_text(&say(&text), &[]).code, Some(0));
    }
    let refused = format!("<say xmlns=\"{}\"/>", HOSTILE[0].replace(['<', '"'], "&lt;"));
    assert_eq!(house.send_text(&refused, &[]).code, Some(65));
    assert_eq!(running.stop(), Some(0));
    house
}

/// An example after its run, with its view.
fn example(name: &'static str) -> (Example, ViewServer) {
    let example = Example::new(name);
    example.run();
    let view = ViewServer::start_command(example.command(&["serve"]), example.place.path());
    (example, view)
}

/// Issue 18: a real Chromium opens every view on journals that the examples made, without a message
/// on its console, a request beyond loopback, or a serious finding of axe.
#[test]
fn a_browser_opens_every_page_and_walks_from_a_thread_to_a_prompt() {
    // The pages read the same index on either kind of journal.
    if std::env::var_os("ORGANISM_TEST_NATS").is_some() {
        return;
    }
    let Some(chromium) = chromium() else {
        assert!(!torture(), "no Chromium is found; `make browser` says how to get one");
        let text = "the web view in a browser: no Chromium is found\n";
        std::fs::write(repository().join(SKIPPED), text).unwrap();
        return;
    };

    // The other journals have pages of the same kinds as those of the documents and the booking.
    let names: &[_] = if torture() { &["essay", "documents", "booking"] } else { &["essay"] };
    let examples: Vec<_> = names.iter().copied().map(|name| (name, example(name))).collect();
    let runs = AuditedRuns::shared();
    let hostile = hostile_journal();
    let houses = [("audited", &runs.house), ("hostile", &hostile)];
    let houses = houses.map(|(name, house)| (name, ViewServer::start(house, &[])));

    // The first view that has a page of a kind gets a picture of it.
    let views = houses.iter().map(|(name, view)| (name, view));
    let views = views.chain(examples.iter().map(|(name, (_, view))| (name, view)));
    let views = views.map(|(name, view)| {
        json!({
            "name": name, "address": view.address(), "walks": *name == "essay",
            "hostile": *name == "hostile",
        })
    });
    let order = json!({
        "chromium": chromium, "pictures": pictures(), "views": views.collect::<Vec<_>>(),
        // Links lead to more pages of one kind than a short run has time for.
        "is_short": !torture(),
        "all_widths": std::env::var_os("ORGANISM_PICTURES").is_some_and(|which| which == "all"),
    });
    let walked = walk(&order.to_string());
    assert_eq!(walked.code, Some(0), "{}\n{}", walked.out, walked.err);
    println!("{}{}", walked.err, walked.out);
}

/// Makes the browser walk through the views that `order` lists.
fn walk(order: &str) -> CommandOutput {
    let mut command = Command::new(repository().join(PYTHON));
    command.arg(repository().join("tests/data/web/walk.py")).stdin(Stdio::piped());
    let mut walk = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    walk.stdin.take().unwrap().write_all(order.as_bytes()).unwrap();
    walk.wait_with_output().unwrap().into()
}

//! Reports of test campaigns, one line each. The line is printed, even if the campaign fails. With
//! `ORGANISM_CAMPAIGNS=FILE`, the line is also appended to this file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Instant;

/// A campaign. Its report line is written when this value is dropped.
pub struct Campaign {
    name: String,
    begun: Instant,
    notes: Vec<String>,
}

/// Returns notes that name the run of all tests: whether its journals are on JetStream, and the
/// program that `NATS_SERVER` names in place of the installed server. A campaign need not use
/// either of them.
fn run_notes(is_streamed: bool, server: Option<&str>) -> Vec<String> {
    let journal = is_streamed.then(|| "in the run on JetStream".to_owned());
    let server = server.map(|program| format!("in the run with {program}"));
    journal.into_iter().chain(server).collect()
}

impl Campaign {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), begun: Instant::now(), notes: Vec::new() }
    }

    /// Adds a note to the report line of the campaign. Notes state the size, an injected fault with
    /// its count, or a measurement.
    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let verdict = if std::thread::panicking() { "FAILED" } else { "ok" };
        let (name, took) = (&self.name, self.begun.elapsed().as_secs_f64());
        let is_streamed = std::env::var_os("ORGANISM_TEST_NATS").is_some();
        let server = std::env::var("NATS_SERVER").ok();
        self.notes.extend(run_notes(is_streamed, server.as_deref()));

        let line = format!("{verdict:6} {name:34} {took:7.1} s  {}\n", self.notes.join(", "));
        print!("{line}");
        let Some(path) = std::env::var_os("ORGANISM_CAMPAIGNS") else { return };
        let file = OpenOptions::new().append(true).create(true).open(path);
        // If the file cannot be written, the verdict of the test still shows the failure.
        file.and_then(|mut file| file.write_all(line.as_bytes())).ok();
    }
}

#[test]
fn a_campaign_names_its_run_if_the_run_is_not_the_usual_one() {
    assert_eq!(run_notes(false, None), Vec::<String>::new());
    let named = ["in the run on JetStream", "in the run with target/nats-2.12.8/bin/nats-server"];
    assert_eq!(run_notes(true, Some("target/nats-2.12.8/bin/nats-server")), named);
}

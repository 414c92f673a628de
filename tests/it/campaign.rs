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
        let line = format!("{verdict:6} {name:34} {took:7.1} s  {}\n", self.notes.join(", "));
        print!("{line}");
        let Some(path) = std::env::var_os("ORGANISM_CAMPAIGNS") else { return };
        let file = OpenOptions::new().append(true).create(true).open(path);
        // If the file cannot be written, the verdict of the test still shows the failure.
        file.and_then(|mut file| file.write_all(line.as_bytes())).ok();
    }
}

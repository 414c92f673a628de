//! Hostile texts: each gets its verdict within the time limit, and no reference is fetched or
//! expanded.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use expect_test::expect_file;
use organism::envelope::Refusal;
use organism::pump::gate::{Checked, Gate};
use serde::Deserialize;

use super::stage::{data, gate, name};
use crate::processor::ProcessorTime;

/// Text in the files to which the hostile texts refer. If a verdict contains this text, a parser
/// has followed a reference.
const CANARY: &str = "CANARY-7d1f";

#[derive(Deserialize)]
struct Case {
    file: String,
    class: String,
    expect: String,
    limit_ms: u64,
}

/// The generated files, and a server to which no parser may connect while it reads these files.
struct Corpus {
    folder: tempfile::TempDir,
    bait: TcpListener,
}

impl Corpus {
    fn generate() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bait = TcpListener::bind("127.0.0.1:0").unwrap();
        bait.set_nonblocking(true).unwrap();
        let output = Command::new("python3")
            .arg(data("attacks/generate.py"))
            .arg(folder.path())
            .arg(format!("--port={}", bait.local_addr().unwrap().port()))
            .output()
            .expect("python3 is needed to generate the hostile texts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder, bait }
    }

    /// Returns the cases for the gate. Another test covers the cases for schemas.
    fn cases(&self) -> Vec<Case> {
        let manifest = std::fs::read_to_string(self.folder.path().join("MANIFEST.jsonl")).unwrap();
        let all = manifest.lines().map(|line| serde_json::from_str::<Case>(line).unwrap());
        all.filter(|case| case.class != "schema").collect()
    }
}

/// Returns the verdict of the gate as one line, or the reason why the verdict is wrong.
fn judge(case: &Case, text: &[u8], verdict: &Result<Checked, Refusal>) -> Result<String, String> {
    match (verdict, case.expect.as_str()) {
        (Err(refusal), "reject" | "literal") => {
            let place = refusal.place.as_ref();
            let place = place.map_or("-".into(), |p| format!("{}:{}", p.line, p.column));
            Ok(format!("{} {place}", refusal.rule))
        }
        (Ok(checked), "accept" | "literal") => {
            let kept = checked.payload().as_str().as_bytes();
            let typed = text.windows(kept.len()).any(|window| window == kept);
            if typed { Ok("accepted".into()) } else { Err("not what was typed".into()) }
        }
        (verdict, expected) => Err(format!("{expected} expected, got {verdict:?}")),
    }
}

fn timed(gate: &Gate, path: &Path, text: &[u8]) -> (Result<Checked, Refusal>, Duration) {
    // Relative references would resolve from this directory.
    assert!(path.exists());
    let start = ProcessorTime::start();
    let verdict = gate.check(&name("client"), text);
    (verdict, start.elapsed())
}

#[test]
fn every_hostile_text_gets_its_verdict_in_time() {
    let corpus = Corpus::generate();
    let gate = gate();
    let (mut lines, mut wrong, mut worst) = (String::new(), Vec::new(), (0.0, String::new()));
    let cases = corpus.cases();
    for case in &cases {
        let path = corpus.folder.path().join(&case.file);
        let text = std::fs::read(&path).unwrap();
        let (verdict, took) = timed(&gate, &path, &text);
        let ratio = took.as_secs_f64() * 1000.0 / case.limit_ms as f64;
        if ratio > worst.0 {
            worst = (ratio, case.file.clone());
        }
        if ratio > 1.0 {
            wrong.push(format!("{}: {took:?}, limit {} ms", case.file, case.limit_ms));
        }
        match judge(case, &text, &verdict) {
            Ok(line) => lines.push_str(&format!("{} {line}\n", case.file)),
            Err(why) => wrong.push(format!("{}: {why}", case.file)),
        }
        assert!(!format!("{verdict:?}").contains(CANARY), "{}", case.file);
    }
    let accepted = lines.lines().filter(|line| line.ends_with("accepted")).count();
    println!(
        "{} hostile texts: {accepted} accepted, {} refused, {} wrong; worst {:.3} of its limit ({})",
        cases.len(),
        cases.len() - accepted - wrong.len(),
        wrong.len(),
        worst.0,
        worst.1,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    expect_file![data("attacks/verdicts.txt")].assert_eq(&lines);
    assert!(corpus.bait.accept().is_err(), "somebody connected");
}

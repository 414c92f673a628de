//! Hidden command that passes the content of files to the gate, which validates all payloads of an
//! organism. Prints for each file whether the gate accepts the content under a given config and
//! from a given sender.

use std::io::BufRead as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::cli::exit::CommandFailure;
use crate::cli::output;
use crate::cli::render::put_json;
use crate::cli::startup;
use crate::envelope::RefusalRule;
use crate::ids::ListenerName;
use crate::organism;
use crate::pump::gate::Gate;
use crate::xml::findings::TextLocation;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: startup::ConfigArg,
    /// Sender of the payloads, a client or listener of the config.
    #[arg(long, value_name = "NAME")]
    from: String,
    /// Read JSON lines `{"id","file"}` from stdin; write one verdict line for each.
    #[arg(long, required = true)]
    batch: bool,
}

#[derive(Debug, Deserialize)]
struct GateQuestion {
    #[serde(rename = "id", default)]
    id: Json,
    #[serde(rename = "file")]
    file: PathBuf,
}

#[derive(Debug, Serialize)]
struct GateAnswer {
    #[serde(rename = "id")]
    id: Json,
    /// The verdict: `accepted` or `refused`; `error` if the file could not be read.
    #[serde(rename = "verdict")]
    verdict: &'static str,
    #[serde(rename = "rule", skip_serializing_if = "Option::is_none")]
    rule: Option<RefusalRule>,
    #[serde(rename = "place", skip_serializing_if = "Option::is_none")]
    place: Option<TextLocation>,
    #[serde(rename = "message", skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Writes one output line for every input line, even for an invalid one.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let sender = ListenerName::parse(&args.from);
    let sender = sender.map_err(|error| CommandFailure::usage(error.to_string()))?;
    let gate = organism::gate(args.config.load()?)?;

    for line in std::io::stdin().lock().split(b'\n') {
        let line = line?;
        if !line.trim_ascii().is_empty() {
            put_json(&answer(&gate, &sender, &line))?;
        }
        if output::is_closed() {
            break;
        }
    }

    Ok(())
}

fn answer(gate: &Gate, sender: &ListenerName, line: &[u8]) -> GateAnswer {
    let error = |id: Json, message: String| GateAnswer {
        id,
        verdict: "error",
        rule: None,
        place: None,
        message: Some(message),
    };

    let question = match serde_json::from_slice::<GateQuestion>(line) {
        Ok(question) => question,
        Err(wrong) => {
            let id = serde_json::from_slice::<Json>(line).ok();
            let id = id.and_then(|mut line| line.get_mut("id").map(Json::take));
            return error(id.unwrap_or_default(), wrong.to_string());
        }
    };

    let text = match std::fs::read(&question.file) {
        Ok(text) => text,
        Err(wrong) => return error(question.id, format!("{}: {wrong}", question.file.display())),
    };

    let id = question.id;

    match gate.check(sender, &text) {
        Ok(_) => GateAnswer { id, verdict: "accepted", rule: None, place: None, message: None },
        Err(refusal) => GateAnswer {
            id,
            verdict: "refused",
            rule: Some(refusal.rule),
            place: refusal.place,
            message: Some(refusal.message),
        },
    }
}

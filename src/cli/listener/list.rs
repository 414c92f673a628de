//! `organism listener list`: shows the listeners that come with organism.

use std::process::ExitCode;

use super::super::exit::CommandExit;
use crate::shipped::{self, ShippedListener};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one line of JSON for each listener.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    for listener in shipped::LISTENERS {
        if args.json {
            put_line!("{}", in_json(listener));
        } else {
            put_line!("{:12} {}  {}", listener.name, shipped::VERSION, listener.description);
        }
    }

    if !args.json {
        note!("\n`organism listener install NAME` writes one to listeners/NAME");
    }
    Ok(CommandExit::Done.into())
}

fn in_json(listener: &ShippedListener) -> serde_json::Value {
    let files: Vec<_> = listener.files().iter().map(|file| file.path).collect();
    serde_json::json!({
        "name": listener.name,
        "version": shipped::VERSION,
        "description": listener.description,
        "program": listener.program,
        "files": files,
    })
}

//! `organism tail`: messages as they are recorded.

use std::process::ExitCode;

use crate::audit::{Refused, Said};
use crate::ids::{Position, ThreadId};
use crate::journal::Sealed;
use crate::limits;
use crate::thread::Fact;

use super::exit::Exit;
use super::place::{self, Place, known};
use super::render::{self, Paper, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Only this thread and what is beneath it.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// How many records back to begin.
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: u64,
    /// End with what is recorded now.
    #[arg(long)]
    no_follow: bool,
    /// Whole payloads.
    #[arg(long)]
    full: bool,
    /// A line of JSON per message or refusal.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let within = args.thread.as_deref().map(known).transpose()?;
    let paper = Paper::stdout(args.full);
    let last = place::reader(&args.place)?.last().map_err(place::failed)?;
    let mut seen = Position(last.0.saturating_sub(args.lines));
    loop {
        // Opened anew each time: a reader that lingers would hold back the pump's housekeeping.
        let reader = place::reader(&args.place)?;
        let last = reader.last().map_err(place::failed)?;
        while seen < last {
            let to = Position(last.0.min(seen.0 + limits::SCAN_RECORDS));
            for sealed in reader.records(Position(seen.0 + 1), to).map_err(place::failed)? {
                show(&sealed, within.as_ref(), &paper, args.json)?;
            }
            seen = to;
        }
        if args.no_follow {
            return Ok(Exit::Done.into());
        }
        drop(reader);
        std::thread::sleep(limits::TAIL_INTERVAL);
    }
}

fn show(
    Sealed { record, .. }: &Sealed,
    within: Option<&ThreadId>,
    paper: &Paper,
    json: bool,
) -> anyhow::Result<()> {
    let inside = |thread: &ThreadId| within.is_none_or(|of| thread == of || thread.is_beneath(of));
    for fact in &record.facts {
        match fact {
            Fact::Accepted { message, .. } if inside(&message.thread) => {
                let said = Said::new(record.position, message);
                if json { put_json(&said)? } else { put(&render::said(paper, &said))? }
            }
            Fact::Refused { sender, thread, refusal, .. }
                if inside(thread.as_ref().unwrap_or(&record.tree)) =>
            {
                let (at, time) = (record.position, record.time);
                let refused = Refused::new(at, time, sender, thread.as_ref(), refusal);
                if json { put_json(&refused)? } else { put(&render::refused(paper, &refused))? }
            }
            _ => {}
        }
    }
    Ok(())
}

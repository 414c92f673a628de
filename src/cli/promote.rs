//! `organism promote`: moves an embedded journal to JetStream, after the user has changed the
//! config to a journal on JetStream.

use std::process::ExitCode;

use serde_json::json;

use crate::organism::promote::{PromotedJournal, PromotionPhase, PromotionResult, promote};

use super::exit::{CommandExit, CommandFailure};
use super::render::{count, progress_bar, put, put_json};
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

const WRITE: &str = "the config keeps the journal in its file; with the organism stopped, write\n\n  \
    [journal]\n  store = \"jetstream\"\n  durability = \"synced\"\n\n  [nats]\n  url = \"nats://127.0.0.1:4222\"\n\n\
    and run this again";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_without_keys()?;
    let bar = progress_bar("{msg:9} ", args.json);
    let outcome = promote(&config, &mut |phase, done, all| {
        bar.set_message(match phase {
            PromotionPhase::Proving => "proving",
            PromotionPhase::Publishing => "sending",
            PromotionPhase::Comparing => "comparing",
        });
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();

    match outcome? {
        PromotionResult::NowhereToGo => {
            return Err(CommandFailure::new(CommandExit::Config, WRITE).into());
        }
        PromotionResult::NothingToDo if args.json => put_json(&json!({ "promoted": null }))?,
        PromotionResult::NothingToDo => put("the journal is on JetStream already\n")?,
        PromotionResult::Moved(promoted) if args.json => {
            put_json(&json!({ "promoted": promoted }))?
        }
        PromotionResult::Moved(promoted) => put(&summary(&promoted))?,
    }

    Ok(CommandExit::Done.into())
}

fn summary(promoted: &PromotedJournal) -> String {
    let PromotedJournal { journal, stream, records, trees, checkpoints, blobs, published, .. } =
        promoted;
    let suffix = match records - published {
        0 => String::new(),
        before => format!(", {before} of them were there already"),
    };

    format!(
        "journal      {journal}\nstream       {stream}, {}\nrecords      {records} in {}{suffix}\n\
         checkpoints  {checkpoints}, {}\nlast hash    {}\nheads        {}\n\
         read back and the same; start the organism\n",
        count(promoted.messages, "message"),
        count(*trees as u64, "tree"),
        count(*blobs as u64, "blob"),
        promoted.last_hash,
        promoted.merkle_root,
    )
}

//! `organism approvals`: lists the calls that wait for an approval, with the exact bytes of each
//! payload.

mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::audit::HeldCall;
use crate::config::{self, ConfigEnvironment};
use crate::ids::ThreadId;

use super::action_text::ActionText;
use super::all_from::{self, is_from};
use super::decision::{self, DecisionArgs, SoughtCalls};
use super::held_page::{HeldPageArgs, note_page};
use super::journal_target::{self, JournalTarget};
use super::named_config;
use super::render::{RenderOutput, held, put, put_visible_json};
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Show only calls of this thread and its subthreads. The output ends with the command that
    /// approves all of them.
    #[arg(long, value_name = "THREAD", conflicts_with_all = ["limit", "all"])]
    all_from: Option<String>,
    /// Show one call after another on the terminal, and ask for each decision.
    #[arg(long, conflicts_with_all = ["json", "limit", "all"])]
    watch: bool,
    /// With --watch: note on the decisions, which goes on record. The callers do not receive the
    /// note.
    #[arg(long, default_value = "", requires = "watch")]
    note: ActionText,
    /// With --watch: sign the decisions with this operator's key.
    #[arg(long, value_name = "FILE", requires = "watch")]
    sign: Option<PathBuf>,
    /// Write one line of JSON for each listed call. With --all-from, a last line contains the hash
    /// over all listed calls.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: HeldPageArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = journal_target::data_dir(&args.place)?;
    let within = args.all_from.as_deref().map(journal_target::known).transpose()?;
    if args.watch {
        let config = ConfigArg { config: args.place.config };
        let decision = DecisionArgs { note: args.note, sign: args.sign, data: args.place.data };
        return watch::watch(&data, within.as_ref(), &config, &decision);
    }

    let is_wanted = |call: &HeldCall| within.as_ref().is_none_or(|thread| is_from(call, thread));
    decision::require_journal(&data)?;
    // The hash of the calls of a thread covers all of them.
    let most = if within.is_some() { usize::MAX } else { args.page.most() };
    let mut waiting = decision::waiting_with_previews(&data, SoughtCalls::Oldest(most), is_wanted)?;
    waiting.page.calls.retain(is_wanted);
    let page = &waiting.page;
    if args.json {
        write_json(&page.calls, within.as_ref())?;
    } else if !page.calls.is_empty() || waiting.unknown.is_empty() {
        write_text(&page.calls, within.as_ref(), &args.place)?;
    }
    if within.is_none() {
        note_page(page, "calls that wait for an approval");
    }
    Ok(waiting.exit().into())
}

fn write_json(waiting: &[HeldCall], within: Option<&ThreadId>) -> anyhow::Result<()> {
    waiting.iter().try_for_each(put_visible_json)?;
    if let Some(thread) = within {
        let sha256 = all_from::digest(waiting).to_string();
        let all = json!({"all_from": thread, "count": waiting.len(), "sha256": sha256});
        put_visible_json(&all)?;
    }
    Ok(())
}

fn write_text(
    waiting: &[HeldCall],
    within: Option<&ThreadId>,
    place: &JournalTarget,
) -> anyhow::Result<()> {
    if waiting.is_empty() {
        match within {
            Some(thread) => note!("{}", all_from::none_waits(thread)),
            None => note!("no calls wait for an approval"),
        }
        return Ok(());
    }

    let journal = named_config::option_or_data(place.data.as_deref());
    let options = format!("{}{journal}", sign_option(place));
    let output = RenderOutput::stdout(true);
    for call in waiting {
        let short = shortened(&call.sha256.to_string());
        let preview = call.preview_sha256().map(|sha256| shortened(&sha256.to_string()));
        let preview = preview.map(|short| format!(" --preview {short}")).unwrap_or_default();
        let command = if call.can_only_be_refused() {
            format!("organism refuse {}{options}", call.message)
        } else {
            format!("organism approve {} --hash {short}{preview}{options}", call.message)
        };
        put(&format!("{}  {command}\n\n", held(&output, call)))?;
    }

    if let Some(thread) = within {
        let short = shortened(&all_from::digest(waiting).to_string());
        put(&format!("all {}:\n", waiting.len()))?;
        put(&format!("  organism approve --all-from {thread} --hash {short}{options}\n"))?;
        put(&format!("  organism refuse --all-from {thread}{options}\n"))?;
    }
    Ok(())
}

/// Returns the option that a suggested decision needs if the config names operators, and otherwise
/// an empty text. Without a config that can be loaded, the operators are unknown.
fn sign_option(place: &JournalTarget) -> &'static str {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(place.config.as_deref(), &around).ok();
    let config = path.filter(|_| place.data.is_none());
    let config = config.and_then(|path| config::load_for_check(&path, &around).ok());
    if config.is_some_and(|config| !config.operators.is_empty()) { " --sign FILE" } else { "" }
}

/// Number of hexadecimal digits of a hash that a suggested command contains. The command contains
/// the first digits of the hash, which are enough to identify a payload.
const HASH_CHARS: usize = 16;

fn shortened(hash: &str) -> String {
    hash.chars().take(HASH_CHARS).collect()
}

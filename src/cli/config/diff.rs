//! `organism config diff`: shows what differs between two configs.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use crate::config::{ComparedConfig, ConfigChange, config_changes};
use crate::xml::invisible_characters::visible;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::journal_target::{JournalTarget, failed_stored};
use super::super::render::{count, put, put_visible_json};
use super::super::startup::{self, ConfigArg};
use super::moment::{boot_at, is_moment};

#[derive(Debug, clap::Args)]
pub struct ConfigDiffArgs {
    /// The old config of the comparison: a config file, `now`, or a moment on record (a position, a
    /// thread, the digest of a config, a time, or `last`).
    before: String,
    /// The new config of the comparison, named in the same way as the old config.
    after: String,
    #[command(flatten)]
    place: JournalTarget,
    /// Partition in which the command looks for moments on record. Required for a position if the
    /// organism has several partitions, because each partition counts its own positions.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ConfigDiffArgs) -> anyhow::Result<ExitCode> {
    let before = side(&args.before, args)?;
    let after = side(&args.after, args)?;
    let changes = config_changes(&before, &after);
    if args.json {
        let shown: Vec<_> = changes.iter().map(json_of).collect();
        put_visible_json(&json!({
            "before": before.digest,
            "after": after.digest,
            "equal": changes.is_empty(),
            "effective_only": before.is_effective_only(&after),
            "changes": shown,
        }))?;
        return Ok(CommandExit::Done.into());
    }

    let text: String = changes.iter().map(text_of).collect();
    put(&visible(&text))?;
    note!("{}", summary(&before, &after, changes.len()));
    if before.is_effective_only(&after) {
        note!(
            "only the settings on which decisions depend were compared: a start of an early version \
             stored no others, such as those of [organism] and [http]"
        );
    }
    Ok(CommandExit::Done.into())
}

fn summary(before: &ComparedConfig, after: &ComparedConfig, changes: usize) -> String {
    let ComparedConfig { digest: old, .. } = before;
    let ComparedConfig { digest: new, .. } = after;
    match changes {
        0 if old == new => format!("the configs are equal: {old}"),
        0 => format!("the configs differ in the order of their entries alone: {old} and {new}"),
        changes if old == new => format!(
            "{}, on which no decision depends: the effective config is {old} on both sides",
            count(changes as u64, "difference")
        ),
        changes => format!("{} between {old} and {new}", count(changes as u64, "difference")),
    }
}

/// Loads the config that one argument of the command names.
fn side(word: &str, args: &ConfigDiffArgs) -> anyhow::Result<ComparedConfig> {
    if word == "now" {
        let config = ConfigArg { config: args.place.config.clone() }.load_unbound()?;
        return Ok(ComparedConfig::of_config(&config));
    }

    if Path::new(word).is_file() {
        let config = startup::other_config(Path::new(word))?;
        return Ok(ComparedConfig::of_config(&config));
    }

    if !is_moment(word) {
        let text = format!(
            "`{word}` is neither a config file nor `now` nor a moment on record: a position, a \
             thread, a config's digest, a time, or `last`"
        );
        return Err(CommandFailure::usage(text).into());
    }

    let found = boot_at(word, args.partition, &args.place)?;
    ComparedConfig::of_boot(&found.reader, &found.boot).map_err(failed_stored)
}

fn text_of(change: &ConfigChange) -> String {
    let ConfigChange { path, before, after, diff } = change;
    let sign = match (before, after) {
        (None, _) => '+',
        (_, None) => '-',
        _ => '~',
    };
    let mut out = format!("{sign} {path}\n");
    if let Some(diff) = diff {
        diff.lines().for_each(|line| out.push_str(&format!("    {line}\n")));
        return out;
    }

    for (sign, value) in [('-', before), ('+', after)] {
        for line in value.iter().flat_map(|value| value.lines()) {
            out.push_str(&format!("    {sign} {line}\n"));
        }
    }
    out
}

fn json_of(change: &ConfigChange) -> Json {
    let ConfigChange { path, before, after, diff } = change;
    json!({ "path": path, "before": before, "after": after, "diff": diff })
}

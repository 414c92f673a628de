//! `organism config`: shows the present config, or a config that was in force earlier. With
//! `--out`, writes the config to files, from which it can be loaded.

mod diff;
mod moment;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use crate::config::{CONFIG_NAME, StoredConfig, StoredConfigError, effective_config_of};

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{JournalTarget, failed_stored};
use super::new_files::NewFiles;
use super::render::{put, put_json};
use super::startup::ConfigArg;
use moment::{BootOnRecord, boot_at};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<ConfigVerb>,
    #[command(flatten)]
    place: JournalTarget,
    /// Show the config that was in force at this moment: a position, the id of a thread (for its
    /// first message), the first digits of a config's digest, a time such as 2026-11-20T10:00, an
    /// age such as 2h, or `last` for the last start or reload. Default: the config as it is now.
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
    /// Partition whose journal contains the position of --at, if the organism has several
    /// partitions.
    #[arg(long, value_name = "N", requires = "at")]
    partition: Option<u32>,
    /// Write the config with its prompts and schemas into this directory, so that the config can be
    /// loaded from there. The programs of listeners are not on record, so they are not written.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigVerb {
    /// Show what differs between two configs.
    Diff(diff::ConfigDiffArgs),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(ConfigVerb::Diff(diff)) = &args.verb {
        return diff::run(diff);
    }

    let Some(at) = &args.at else {
        if args.place.data.is_some() {
            let text = "--data names a journal: add --at MOMENT, or name the config with --config";
            return Err(CommandFailure::usage(text).into());
        }
        let config = ConfigArg { config: args.place.config.clone() }.load_unbound()?;
        let shown = ShownConfig {
            digest: config.digest.to_string(),
            effective: config.text.clone(),
            stored: Some((*config.stored).clone()),
            boot: None,
        };
        return show(&shown, &args);
    };

    let boot = boot_at(at, args.partition, &args.place)?;
    let stored = match StoredConfig::read(&boot.reader, &boot.boot) {
        Ok(stored) => Some(stored),
        Err(StoredConfigError::NotStored { .. }) if args.json && args.out.is_none() => None,
        Err(error) => return Err(failed_stored(error)),
    };
    let effective = effective_config_of(&boot.reader, &boot.boot).map_err(failed_stored)?;
    let digest = boot.boot.config.to_string();
    show(&ShownConfig { digest, effective, stored, boot: Some(boot) }, &args)
}

/// A config to show: the present config from the config file, or an earlier config from the
/// journal.
struct ShownConfig {
    digest: String,
    /// The effective config as JSON.
    effective: String,
    /// The stored form of the config. `None` if the config was recorded by an early version of the
    /// program, which did not store configs.
    stored: Option<StoredConfig>,
    /// The recorded boot or reload that put the config in force; `None` for the config that the
    /// file contains now.
    boot: Option<BootOnRecord>,
}

fn show(shown: &ShownConfig, args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(directory), Some(stored)) = (&args.out, &shown.stored) {
        write_out(directory, stored)?;
    }

    if args.json {
        put_json(&shown.json())?;
        return Ok(CommandExit::Done.into());
    }

    if let Some(on_record) = &shown.boot {
        note!("{}", on_record.text());
    }
    if let Some(stored) = &shown.stored {
        match &args.out {
            Some(directory) => put_line!("{}", directory.join(CONFIG_NAME).display()),
            None => put(&stored.toml)?,
        }
        note_missing(stored);
    }

    Ok(CommandExit::Done.into())
}

/// Writes the config with all its files. Fails if one of the files already exists. After an error,
/// removes the files that this call has written.
fn write_out(directory: &Path, stored: &StoredConfig) -> anyhow::Result<()> {
    let mut files = NewFiles::in_directory(directory)?;
    for (name, text) in stored.all_files() {
        files.write(name, text, false)?;
    }
    for name in stored.directories() {
        files.ensure_directory(name)?;
    }

    files.keep();
    Ok(())
}

/// Prints a note about everything that the stored config leaves out: secrets, the values of
/// environment variables, and recordings that are too large.
fn note_missing(stored: &StoredConfig) {
    let manifest = &stored.manifest;
    if !manifest.withheld.is_empty() {
        note!(
            "note: secrets are not stored; write your own in place of WITHHELD_…: {}",
            manifest.withheld.join(", ")
        );
    }

    if !manifest.variables.is_empty() {
        let names: Vec<_> = manifest.variables.iter().map(String::as_str).collect();
        note!("note: it refers to variables of the environment: {}", names.join(", "));
    }

    for (name, digest) in &manifest.left_out {
        note!("note: the recording {name} is too large to be stored; its SHA-256 is {digest}");
    }
}

impl ShownConfig {
    fn json(&self) -> Json {
        let effective: Json = serde_json::from_str(&self.effective).unwrap_or(Json::Null);
        let mut shown = json!({ "config": self.digest });
        let Some(members) = shown.as_object_mut() else { return shown };
        if let Some(BootOnRecord { boot, partition, .. }) = &self.boot {
            members.insert("position".to_owned(), json!(boot.position));
            members.insert("partition".to_owned(), json!(partition));
            members.insert("epoch".to_owned(), json!(boot.epoch));
            members.insert("time".to_owned(), json!(boot.time.to_string()));
            members.insert("core_version".to_owned(), json!(boot.core_version));
        }

        members.insert("effective".to_owned(), effective);
        if let Some(stored) = &self.stored {
            members.insert("file".to_owned(), json!(stored.manifest.file));
            members.insert("toml".to_owned(), json!(stored.toml));
            members.insert("files".to_owned(), json!(stored.files));
            members.insert("withheld".to_owned(), json!(stored.manifest.withheld));
            members.insert("variables".to_owned(), json!(stored.manifest.variables));
            members.insert("left_out".to_owned(), json!(stored.manifest.left_out));
        }
        shown
    }
}

//! Which journal a command is about.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::journal::Error;
use crate::journal::sqlite::Reader;

use super::exit::{Exit, Failed};

#[derive(Debug, clap::Args)]
pub struct Place {
    /// The organism's config, which says where its journal is.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The journal's directory.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
    /// The directory of what is kept outside the journal.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub state: Option<PathBuf>,
}

/// Where the journal of these arguments is.
pub fn data_dir(place: &Place) -> anyhow::Result<PathBuf> {
    match (&place.data, &place.config) {
        (Some(data), _) => Ok(data.clone()),
        (None, None) => xdg("XDG_DATA_HOME", ".local/share"),
        (None, Some(config)) => {
            let message = format!("cannot read {} yet; say --data DIR", config.display());
            Err(Failed::new(Exit::Usage, message).into())
        }
    }
}

/// Where the checkpoints of these arguments are kept outside the journal.
pub fn state_dir(place: &Place) -> anyhow::Result<PathBuf> {
    match &place.state {
        Some(state) => Ok(state.clone()),
        None => xdg("XDG_STATE_HOME", ".local/state"),
    }
}

fn xdg(variable: &str, beneath_home: &str) -> anyhow::Result<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match set {
        Some(base) => base,
        None => {
            let home = std::env::var_os("HOME").context("neither --data nor HOME is set")?;
            PathBuf::from(home).join(beneath_home)
        }
    };
    Ok(base.join("organism"))
}

pub fn reader(place: &Place) -> anyhow::Result<Reader> {
    Reader::open(&data_dir(place)?).map_err(failed)
}

/// A journal's error, with its exit code and what to do about it.
pub fn failed(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::Broken { .. } => Exit::ChainBroken,
        Error::Format { .. } => Exit::InvalidData,
        Error::Held { .. } | Error::Full { .. } => Exit::TryAgain,
        Error::Misplaced { .. } => Exit::Bug,
        _ => Exit::Unavailable,
    };
    let advice = match &error {
        Error::Missing { .. } => "; say --data DIR, or start an organism first",
        Error::Broken { .. } => "; `organism verify` says what can be proved",
        Error::Held { .. } => "; stop that process, or read the journal without it",
        _ => "",
    };
    Failed::new(exit, format!("{error}{advice}")).into()
}

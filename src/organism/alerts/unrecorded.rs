//! Alerts about a journal that takes no more records: an error in the journal ended the pump, or
//! prevented a start of the organism.
//!
//! A file in the state directory holds such an alert until the organism runs again and records the
//! alert. While the file exists, the same error raises no further alert. So a program that restarts
//! the organism repeatedly causes only one alert.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command::AlertCommand;
use crate::clock::Time;
use crate::config::{AlertsConfig, Config};
use crate::ids::Position;
use crate::journal::Error;
use crate::system::{AlertEvent, AlertKind, AlertReport};

/// Subject of alerts about the journal as a whole.
pub(super) const JOURNAL: &str = "journal";

/// An alert that is not on record yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnrecordedAlert {
    #[serde(rename = "report")]
    pub report: AlertReport,
    /// Why the alert command failed; `None` if the command accepted the report.
    #[serde(rename = "failure", default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

fn path_in(state: &Path, partition: Option<u32>) -> PathBuf {
    match partition {
        Some(partition) => state.join(format!("unrecorded-alert-{partition}.json")),
        None => state.join("unrecorded-alert.json"),
    }
}

impl UnrecordedAlert {
    pub fn read(state: &Path, partition: Option<u32>) -> Option<Self> {
        let text = std::fs::read(path_in(state, partition)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn remove(state: &Path, partition: Option<u32>) {
        // A file that stays is recorded again, which is harmless.
        std::fs::remove_file(path_in(state, partition)).ok();
    }

    fn write(&self, state: &Path, partition: Option<u32>) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let path = path_in(state, partition);
        if let Err(error) = std::fs::write(&path, text) {
            tracing::warn!("{} could not be written: {error}", path.display());
        }
    }
}

/// Whether the error shows a fault of the journal itself. False if another process writes the
/// journal, or if the connection to NATS failed.
fn is_about_record(error: &Error) -> bool {
    !matches!(error, Error::InUse { .. } | Error::Fenced { .. } | Error::Nats(_))
}

fn is_wanted(config: &AlertsConfig, error: &Error) -> bool {
    config.rules.on.contains(&AlertKind::Record) && is_about_record(error)
}

/// Runs the alert command for an error that ended the pump. Blocks until the command has ended.
pub(super) fn report(command: &AlertCommand, state: &Path, error: &Error) {
    if !is_wanted(command.config(), error) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(send(command, state, error)),
        Err(cause) => tracing::error!("the command of alerts could not be started: {cause}"),
    }
}

/// Runs the alert command that the config names, after `error` in the journal has prevented a start
/// of the organism.
pub(in crate::organism) async fn report_failed_start(config: &Config, error: &Error) {
    let Some(command) = AlertCommand::of(config, None) else { return };
    if is_wanted(command.config(), error) {
        send(&command, &config.state, error).await;
    }
}

async fn send(command: &AlertCommand, state: &Path, error: &Error) {
    let detail = error.to_string();
    let before = UnrecordedAlert::read(state, command.partition());
    if before.is_some_and(|before| before.report.detail == detail) {
        return;
    }

    let report = AlertReport {
        event: AlertEvent::Raised,
        kind: AlertKind::Record,
        subject: JOURNAL.to_owned(),
        cause: Position(0),
        through: Position(0),
        since: Time::now(),
        count: 1,
        thread: None,
        detail,
    };
    let failure = command.run(&report).await.err();
    if let Some(failure) = &failure {
        tracing::error!("the command of an alert failed: {failure}");
    }
    UnrecordedAlert { report, failure }.write(state, command.partition());
}

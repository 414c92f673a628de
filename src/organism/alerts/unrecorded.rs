//! Alerts of the kind [`AlertKind::Record`] that are raised and not on record yet. The command of
//! such an alert does not wait for the record, because the journal may take no records.
//!
//! A file in the state directory holds these alerts until the pump has recorded them, which may be
//! after a restart. If the state directory is missing, the file is in the data directory. In the
//! new run, the same error in the journal may end the pump once more, or prevent the start of the
//! organism. If the file already holds an alert with the same error, no further alert is raised. So
//! a program that restarts the organism repeatedly causes only one alert.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::command::AlertCommand;
use crate::clock::Time;
use crate::config::{AlertsConfig, Config};
use crate::durable_file;
use crate::ids::Position;
use crate::journal::Error;
use crate::limits;
use crate::locks::locked;
use crate::system::{AlertEvent, AlertId, AlertKind, AlertReport};

/// Unit of the length of the file with the unrecorded alerts, in bytes: the length is a multiple of
/// this number. The alerts come first, and blanks fill the rest of the file.
const ROOM_BYTES: usize = 4096;

/// Subject of alerts about the journal as a whole.
pub(super) const JOURNAL: &str = "journal";

/// An alert that is not on record yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnrecordedAlert {
    #[serde(rename = "report")]
    pub report: AlertReport,
    /// Why the alert command failed; `None` if the command accepted the report, or has not ended.
    #[serde(rename = "failure", default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the alert command has not ended yet.
    #[serde(rename = "pending", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pending: bool,
}

/// The file with the unrecorded alerts of one pump.
pub(super) struct UnrecordedAlertFile {
    path: PathBuf,
    /// The file in the data directory. A start that is refused because the state directory was
    /// moved away writes this file, and makes no new state directory.
    without_state: PathBuf,
}

impl UnrecordedAlertFile {
    pub fn new(data: &Path, state: &Path, partition: Option<u32>) -> Self {
        let name = match partition {
            Some(partition) => format!("unrecorded-alert-{partition}.json"),
            None => "unrecorded-alert.json".to_owned(),
        };
        Self { path: state.join(&name), without_state: data.join(name) }
    }

    /// Returns the unrecorded alerts, oldest first.
    pub fn read(&self) -> Vec<UnrecordedAlert> {
        let mut alerts = read_file(&self.path);
        for alert in read_file(&self.without_state) {
            // After a kill during a move, both files hold it.
            if alerts.iter().all(|other| other.report.id() != alert.report.id()) {
                alerts.push(alert);
            }
        }
        alerts
    }

    /// Adds an alert. Replaces an alert with the same id.
    pub fn add(&self, alert: UnrecordedAlert) {
        self.change(|alerts| {
            alerts.retain(|other| other.report.id() != alert.report.id());
            alerts.push(alert);
        });
    }

    /// Notes how the command of an alert ended. Does nothing if the file does not hold the alert.
    pub fn note_result(&self, id: &AlertId, result: &Result<(), String>) {
        self.change(|alerts| {
            for alert in alerts.iter_mut().filter(|alert| alert.report.id() == *id) {
                alert.is_pending = false;
                alert.failure = result.clone().err();
            }
        });
    }

    pub fn remove(&self, id: &AlertId) {
        self.change(|alerts| alerts.retain(|alert| alert.report.id() != *id));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<UnrecordedAlert>)) {
        // Lock: held from the read to the write, because the thread of alerts and the thread of the
        // pump change the file. Nothing else is locked meanwhile.
        static CHANGE: Mutex<()> = Mutex::new(());
        let _change = locked(&CHANGE);

        let before = self.read();
        let mut alerts = before.clone();
        change(&mut alerts);
        if alerts == before {
            return;
        }

        if let Err(error) = self.write(&alerts) {
            tracing::warn!("{} could not be written: {error}", self.path.display());
        }
    }

    /// Creates the file with room for alerts, so that the program can write alerts into it while
    /// the disk is full. Does nothing if the file exists.
    pub fn reserve(&self) {
        if !self.path.exists()
            && let Err(error) = self.write(&self.read())
        {
            tracing::warn!("{} could not be written: {error}", self.path.display());
        }
    }

    fn write(&self, alerts: &[UnrecordedAlert]) -> std::io::Result<()> {
        let is_stateless = !self.path.parent().is_some_and(Path::exists);
        let path = if is_stateless { &self.without_state } else { &self.path };
        let mut text = serde_json::to_vec(alerts).unwrap_or_default();
        text.resize(text.len().next_multiple_of(ROOM_BYTES), b' ');
        let unfinished = path.with_extension("new");
        durable_file::replace(path, &unfinished, &text).or_else(|_| {
            // A new file needs room that a full disk does not have. The present file has it.
            std::fs::remove_file(unfinished).ok();
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.write_all(&text)?;
            file.set_len(text.len() as u64)?;
            file.sync_all()
        })?;
        if !is_stateless {
            std::fs::remove_file(&self.without_state).ok();
        }
        Ok(())
    }
}

/// Returns the alerts in the file `path`. A file of an earlier version holds one alert and no list.
fn read_file(path: &Path) -> Vec<UnrecordedAlert> {
    let text = std::fs::read(path).unwrap_or_default();
    let one = || serde_json::from_slice(&text).map(|alert| vec![alert]);
    serde_json::from_slice(&text).or_else(|_| one()).unwrap_or_default()
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
pub(super) fn report(command: &AlertCommand, data: &Path, state: &Path, error: &Error) {
    if !is_wanted(command.config(), error) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(send(command, data, state, error)),
        Err(cause) => tracing::error!("the command of alerts could not be started: {cause}"),
    }
}

/// Runs the alert command that the config names, after `error` in the journal has prevented a start
/// of the organism.
pub(in crate::organism) async fn report_failed_start(config: &Config, error: &Error) {
    let Some(command) = AlertCommand::of(config, None) else { return };
    if is_wanted(command.config(), error) {
        send(&command, &config.data, &config.state, error).await;
    }
}

async fn send(command: &AlertCommand, data: &Path, state: &Path, error: &Error) {
    let detail = error.to_string();
    let file = UnrecordedAlertFile::new(data, state, command.partition());
    let mut alerts = file.read();
    alerts.retain(|alert| alert.report.subject == JOURNAL);
    if alerts.iter().any(|alert| alert.report.detail == detail) {
        return;
    }

    // The text of an error may differ at each start, such as by the id of a process.
    if alerts.len() >= limits::ALERTS_PER_WINDOW_MAX {
        let count = alerts.len();
        tracing::warn!(
            "no alert was raised, because {count} alerts are not on record yet: {detail}"
        );
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
    file.add(UnrecordedAlert { report, failure, is_pending: false });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(subject: &str) -> UnrecordedAlert {
        let report = AlertReport {
            event: AlertEvent::Raised,
            kind: AlertKind::Record,
            subject: subject.to_owned(),
            cause: Position(3),
            through: Position(3),
            since: Time(1),
            count: 1,
            thread: None,
            detail: "the disk is full".to_owned(),
        };
        UnrecordedAlert { report, failure: None, is_pending: true }
    }

    #[test]
    fn the_file_holds_each_alert_until_it_is_removed() {
        let [data, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = UnrecordedAlertFile::new(data.path(), state.path(), None);
        let [disk, index] = ["disk", "index"].map(alert);
        file.add(disk.clone());
        file.add(index.clone());
        file.add(index.clone());
        file.note_result(&disk.report.id(), &Err("no such file".to_owned()));
        let failure = Some("no such file".to_owned());
        let failed = UnrecordedAlert { failure, is_pending: false, ..disk.clone() };
        assert_eq!(file.read(), [failed, index.clone()]);

        file.remove(&disk.report.id());
        assert_eq!(file.read().len(), 1);
        file.remove(&index.report.id());
        assert!(file.read().is_empty());
    }

    #[test]
    fn two_errors_in_the_journal_have_alerts_with_ids_of_their_own() {
        let [data, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = UnrecordedAlertFile::new(data.path(), state.path(), None);
        let [mut first, mut second] = [JOURNAL, JOURNAL].map(alert);
        for (alert, since) in [(&mut first, Time(7)), (&mut second, Time(8))] {
            alert.report.cause = Position(0);
            alert.report.since = since;
            file.add(alert.clone());
        }
        assert_eq!(file.read(), [first.clone(), second.clone()]);
        assert_eq!(first.report.id().to_string(), "record/journal/7");

        file.remove(&first.report.id());
        assert_eq!(file.read(), [second]);
    }

    #[test]
    fn alerts_of_starts_without_a_state_directory_move_to_the_next_one() {
        let house = tempfile::tempdir().unwrap();
        let [data, state] = ["data", "state"].map(|name| house.path().join(name));
        std::fs::create_dir(&data).unwrap();
        let file = UnrecordedAlertFile::new(&data, &state, None);
        let [first, second] = ["first", "second"].map(alert);
        file.add(first.clone());
        assert!(!state.exists());
        assert_eq!(file.read(), std::slice::from_ref(&first));

        std::fs::create_dir(&state).unwrap();
        std::fs::copy(&file.without_state, &file.path).unwrap();
        assert_eq!(file.read(), std::slice::from_ref(&first), "the move was cut short");
        file.reserve();
        file.add(second.clone());
        assert_eq!(file.read(), [first, second]);
        assert!(!file.without_state.exists());
    }

    #[test]
    fn a_file_of_an_earlier_version_holds_one_alert() {
        let [data, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = UnrecordedAlertFile::new(data.path(), state.path(), Some(1));
        let journal = UnrecordedAlert { is_pending: false, ..alert(JOURNAL) };
        std::fs::write(&file.path, serde_json::to_vec(&journal).unwrap()).unwrap();
        assert_eq!(file.read(), [journal]);
    }
}

//! Runs the alert command that the config names, for one report about an alert.
//!
//! The report goes to the command's standard input as JSON. The report, the command's arguments and
//! its environment contain no byte of a payload.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::time::timeout;

use crate::bus::nats::endpoint_variables::ENDPOINT_VARIABLES;
use crate::bus::process::{PumpMark, START_FAILURE, direct, spawn_piped};
use crate::children::OwnedChild;
use crate::clock::Time;
use crate::config::{AlertsConfig, Config};
use crate::limits;
use crate::mutant::mutant;
use crate::system::AlertReport;

/// The alert command of an organism, with everything that is needed to start it.
#[derive(Debug, Clone)]
pub struct AlertCommand {
    organism: String,
    /// Number of the pump's partition; `None` if the organism has only one partition.
    partition: Option<u32>,
    config: AlertsConfig,
    directory: std::path::PathBuf,
    /// Names of environment variables that the command must not inherit.
    withheld: Vec<String>,
    mark: Option<PumpMark>,
}

/// The JSON form of a report about an alert. The alert command reads this form from its standard
/// input.
#[derive(Serialize)]
struct ReportLine<'a> {
    #[serde(rename = "organism")]
    organism: &'a str,
    #[serde(rename = "partition", skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(rename = "id")]
    id: String,
    #[serde(rename = "event")]
    event: &'static str,
    #[serde(rename = "kind")]
    kind: &'static str,
    #[serde(rename = "subject")]
    subject: &'a str,
    #[serde(rename = "since")]
    since: String,
    #[serde(rename = "time")]
    time: String,
    #[serde(rename = "count")]
    count: u64,
    #[serde(rename = "cause")]
    cause: u64,
    #[serde(rename = "thread", skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(rename = "detail")]
    detail: &'a str,
}

impl AlertCommand {
    /// Returns the alert command that this config names; `None` if the config has no alerts.
    pub fn of(config: &Config, mark: Option<&PumpMark>) -> Option<Self> {
        let alerts = config.alerts.as_deref()?;
        Some(Self {
            organism: config.name.clone(),
            partition: config.own_partition(),
            config: alerts.clone(),
            directory: config.directory.clone(),
            withheld: config.withheld.clone(),
            mark: mark.cloned(),
        })
    }

    pub fn config(&self) -> &AlertsConfig {
        &self.config
    }

    pub fn partition(&self) -> Option<u32> {
        self.partition
    }

    /// Runs the command for `report`, and returns when the command has ended or was killed.
    ///
    /// # Errors
    ///
    /// Returns the reason if the command did not accept the report.
    pub async fn run(&self, report: &AlertReport) -> Result<(), String> {
        let program = self.config.command.first().map_or("", String::as_str);
        let (mut child, _owned) =
            self.spawn(report).map_err(|error| format!("cannot start `{program}`: {error}"))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));

        let input = self.line(report);
        let patience = self.config.timeout;
        let ended = if mutant("wait-for-the-alert-command") {
            Ok(converse(&mut child, input, program).await)
        } else {
            timeout(patience, converse(&mut child, input, program)).await
        };
        // The group may have members after its leader has ended.
        if let Some(group) = group {
            // Signalling fails if the group has no members, which is the desired state.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // The command has ended, or was sent SIGKILL.
        let _ = timeout(limits::EXIT_GRACE, child.wait()).await;

        match ended {
            Ok(result) => result,
            Err(_) => Err(format!("`{program}` did not end within {patience:?} and was killed")),
        }
    }

    fn spawn(&self, report: &AlertReport) -> std::io::Result<(Child, OwnedChild)> {
        let mut words = self.config.command.iter();
        let mut command = direct(words.next().map_or("", String::as_str));
        let hidden = self.withheld.iter().map(String::as_str);
        for name in hidden.chain(ENDPOINT_VARIABLES) {
            command.env_remove(name);
        }

        let partition = self.partition.map(|partition| partition.to_string()).unwrap_or_default();
        command
            .args(words)
            .envs(self.config.env.iter().map(|(name, value)| (name, value.expose())))
            .env("ORGANISM_ALERT_ID", self.id_of(report))
            .env("ORGANISM_ALERT_KIND", report.kind.as_str())
            .env("ORGANISM_ALERT_EVENT", report.event.as_str())
            .env("ORGANISM_ALERT_SUBJECT", &report.subject)
            .env("ORGANISM_ALERT_COUNT", report.count.to_string())
            .env("ORGANISM_ALERT_SINCE", report.since.to_string())
            .env("ORGANISM_ALERT_PARTITION", partition)
            .env("ORGANISM_ALERT_THREAD", report.thread.as_ref().map_or("", |id| id.as_str()))
            .current_dir(&self.directory)
            // An interrupt at the terminal drains the organism and must not kill the command.
            .process_group(0);
        spawn_piped(&mut command, self.mark.as_ref(), None)
    }

    /// Returns the id of the alert, such as `failures/search/120`. Each partition numbers its own
    /// records, so with several partitions, the id ends with the partition, such as `@3`.
    fn id_of(&self, report: &AlertReport) -> String {
        let id = report.id();
        match self.partition {
            Some(partition) => format!("{id}@{partition}"),
            None => id.to_string(),
        }
    }

    fn line(&self, report: &AlertReport) -> String {
        let line = ReportLine {
            organism: &self.organism,
            partition: self.partition,
            id: self.id_of(report),
            event: report.event.as_str(),
            kind: report.kind.as_str(),
            subject: &report.subject,
            since: report.since.to_string(),
            time: Time::now().to_string(),
            count: report.count,
            cause: report.cause.0,
            thread: report.thread.as_ref().map(ToString::to_string),
            detail: &report.detail,
        };
        let mut text = serde_json::to_string(&line).expect("plain data is JSON");
        text.push('\n');
        text
    }
}

/// Writes `input` to the command's standard input, reads its whole output, and waits for its exit.
/// An error names `program`.
async fn converse(child: &mut Child, input: String, program: &str) -> Result<(), String> {
    let stdin = child.stdin.take();
    let stdout = tokio::spawn(read_bounded(child.stdout.take()));
    let stderr = tokio::spawn(read_bounded(child.stderr.take()));

    let write = async move {
        if let Some(mut stdin) = stdin {
            // A command that reads no input has closed it, which is its own choice.
            stdin.write_all(input.as_bytes()).await.ok();
        }
    };
    let (status, ()) = tokio::join!(child.wait(), write);
    let status = status.map_err(|error| format!("`{program}` has no exit code: {error}"))?;

    let mut output = String::new();
    for reader in [stdout, stderr] {
        let abort = reader.abort_handle();
        match timeout(limits::ALERT_OUTPUT_WAIT, reader).await {
            Ok(Ok(bytes)) => output.push_str(&String::from_utf8_lossy(&bytes)),
            _ => abort.abort(),
        }
    }

    let output = output.trim();
    if status.success() {
        if !output.is_empty() {
            tracing::info!("the command of an alert: {output}");
        }
        return Ok(());
    }

    Err(failure(program, status, output))
}

/// Returns the reason for a command that ended with an error. `output` is its whole output.
fn failure(program: &str, status: ExitStatus, output: &str) -> String {
    // This program started the command, and could not be replaced by it.
    let start = format!("{START_FAILURE} `{program}`: ");
    if let Some(why) = output.strip_prefix(&start) {
        return format!("cannot start `{program}`: {why}");
    }

    let last: Vec<char> = output.chars().rev().take(limits::LAST_STDERR_LINE_CHARS_MAX).collect();
    let last: String = last.into_iter().rev().collect();
    if last.is_empty() {
        format!("`{program}` ended with {status}")
    } else {
        format!("`{program}` ended with {status}: {last}")
    }
}

/// Reads the output of a command until its end, but returns only a bounded part from its beginning.
async fn read_bounded(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut chunk = vec![0; limits::ALERT_OUTPUT_BYTES_MAX];
    while let Ok(read) = from.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        let room = limits::ALERT_OUTPUT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(chunk.get(..read.min(room)).unwrap_or_default());
    }

    kept
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_command_that_cannot_be_executed_is_reported_without_the_status_of_its_launcher() {
        let status = ExitStatus::from_raw(69 << 8);
        let output = "organism: cannot start `./notify`: Permission denied (os error 13)";
        let expected = "cannot start `./notify`: Permission denied (os error 13)";
        assert_eq!(failure("./notify", status, output), expected);

        let of_another = "organism: cannot start `./other`: no";
        let expected =
            "`./notify` ended with exit status: 69: organism: cannot start `./other`: no";
        assert_eq!(failure("./notify", status, of_another), expected);
        assert_eq!(failure("./notify", status, ""), "`./notify` ended with exit status: 69");
    }
}

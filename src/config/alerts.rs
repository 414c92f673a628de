//! The section `[alerts]`: the kinds of causes that raise alerts, such as failed calls to a
//! listener, and the command that runs for each raised alert.

use std::path::Path;
use std::time::Duration;

use crate::limits;
use crate::system::AlertKind;

use super::SecretValue;
use super::config_problem::ConfigProblems;
use super::environment::ConfigEnvironment;
use super::program;
use super::read::TableReader;
use super::tree::{ExpandedText, Located};

/// Settings of alerts: the command that runs for each alert, and the rules that state when to raise
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertsConfig {
    /// Absolute path of the program, followed by its arguments.
    pub command: Vec<String>,
    /// Environment variables that the program gets in addition to the inherited variables.
    pub env: Vec<(String, SecretValue)>,
    pub rules: AlertRulesConfig,
    /// Maximum time that the command may run.
    pub timeout: Duration,
}

/// Kinds of causes that raise alerts, and the thresholds at which alerts are raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRulesConfig {
    pub on: Vec<AlertKind>,
    /// An alert is raised when this number of payloads from one sender was refused within `window`.
    pub refusals: u64,
    /// An alert is raised when this number of calls to one listener has failed within `window`.
    pub failures: u64,
    /// Period in which refusals and failures are counted. An alert about refusals or failures ends
    /// when no further refusal or failure of its cause occurs for a period of this length.
    pub window: Duration,
    /// An alert is raised when a call has waited for a person for this time.
    pub waiting: Duration,
}

/// The `[alerts]` section as it is written in the config, before its program is located and its
/// secrets are read.
pub(super) struct DeclaredAlerts {
    command: Vec<Located<ExpandedText>>,
    env: Vec<(Located<String>, Located<ExpandedText>)>,
    rules: AlertRulesConfig,
    timeout: Duration,
}

/// Reads the section, and reports every problem in it. `is_stored` states whether the config comes
/// from a journal. Such a config may have an empty list `on`, which earlier versions accepted.
pub(super) fn read(read: &mut TableReader<'_>, is_stored: bool) -> Option<DeclaredAlerts> {
    let has_command = read.required("command", "[\"./notify\"]");
    let most = limits::ALERT_COUNT_CEILING;
    if !is_stored && read.is_empty_list("on") {
        let place = read.place_of("on");
        read.empty("on", &place);
    }

    let words = AlertKind::ALL.map(AlertKind::as_str);
    let on = read.choices("on", &words).unwrap_or_else(|| words.map(str::to_owned).to_vec());
    let is_on = |kind: &AlertKind| on.iter().any(|word| word == kind.as_str());
    let rules = AlertRulesConfig {
        on: AlertKind::ALL.into_iter().filter(is_on).collect(),
        refusals: read.count("refusals", most).unwrap_or(limits::ALERT_REFUSALS_DEFAULT),
        failures: read.count("failures", most).unwrap_or(limits::ALERT_FAILURES_DEFAULT),
        window: read
            .duration("window", limits::ALERT_WINDOW_CEILING)
            .unwrap_or(limits::ALERT_WINDOW_DEFAULT),
        waiting: read
            .duration("waiting", limits::PATIENCE_CEILING)
            .unwrap_or(limits::ALERT_WAITING_DEFAULT),
    };

    let timeout = read.duration("timeout", limits::ALERT_TIMEOUT_CEILING);
    let timeout = timeout.unwrap_or(limits::ALERT_TIMEOUT_DEFAULT);
    let command = read.one_or_more("command");
    let env = read.free("env");
    has_command.then_some(DeclaredAlerts { command, env, rules, timeout })
}

impl DeclaredAlerts {
    /// Finds the program of the alert command, and reads the secrets for the program's environment.
    pub fn configured(
        &self,
        directory: &Path,
        around: &ConfigEnvironment,
        problems: &mut ConfigProblems,
    ) -> AlertsConfig {
        AlertsConfig {
            command: program::command(&self.command, &self.env, directory, around, problems),
            env: program::environment(&self.env, directory, problems),
            rules: self.rules.clone(),
            timeout: self.timeout,
        }
    }
}

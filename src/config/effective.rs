//! The config as it takes effect, as one text that can be recorded: what prompts and routing
//! depend on, and nothing secret.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contract::{Contract, TreeLimits};
use crate::ids::{Digest, ListenerName};
use crate::thread::{OperatorKeys, OperatorPublicKey};

use super::AgentSpec;
use super::members::Declared;

#[derive(Serialize)]
pub(super) struct Effective<'a> {
    pub name: &'a str,
    pub limits: &'a TreeLimits,
    pub payload_bytes: usize,
    pub contracts: Vec<&'a Contract>,
    pub processes: Vec<Process<'a>>,
    pub agents: &'a [AgentSpec],
    pub models: Vec<serde_json::Value>,
    /// Public keys by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<ListenerName, OperatorPublicKey>,
    /// By path as the config writes it.
    pub schemas: BTreeMap<String, Digest>,
}

/// Commands as they were written: variables may hold secrets.
#[derive(Serialize)]
pub(super) struct Process<'a> {
    name: &'a str,
    command: Vec<&'a str>,
    env: Vec<&'a str>,
    instances: u32,
}

pub(super) fn processes(members: &[Declared]) -> Vec<Process<'_>> {
    let hosted = members.iter().filter_map(|m| Some((m, m.process.as_ref()?)));
    let shown = hosted.map(|(member, process)| Process {
        name: member.name.value.as_str(),
        command: process.command.iter().map(|word| word.value.written.as_str()).collect(),
        env: process.env.iter().map(|(key, _)| key.value.as_str()).collect(),
        instances: process.instances,
    });
    shown.collect()
}

pub(super) fn operators(keys: &OperatorKeys) -> BTreeMap<ListenerName, OperatorPublicKey> {
    keys.iter().cloned().collect()
}

impl Effective<'_> {
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data without maps of odd keys is JSON")
    }
}

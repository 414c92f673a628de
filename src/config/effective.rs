//! The effective config as one text, which the journal records. The text contains everything on
//! which prompts and routing depend, but no secrets.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contract::{Contract, Schedule, TreeLimits};
use crate::ids::{Digest, ListenerName};
use crate::thread::{OperatorKeys, OperatorPublicKey};

use super::members::DeclaredMember;
use super::{AgentSpec, ConfiguredWorkflow};

#[derive(Serialize)]
pub(super) struct EffectiveConfig<'a> {
    #[serde(rename = "name")]
    pub name: &'a str,
    #[serde(rename = "limits")]
    pub limits: &'a TreeLimits,
    #[serde(rename = "payload_bytes")]
    pub payload_bytes: usize,
    /// Portable names of the folders from which schemas may import. A portable name is valid on
    /// every machine.
    #[serde(rename = "catalogue", skip_serializing_if = "Vec::is_empty")]
    pub catalogue: Vec<String>,
    #[serde(rename = "contracts")]
    pub contracts: Vec<&'a Contract>,
    #[serde(rename = "processes")]
    pub processes: Vec<EffectiveProcess<'a>>,
    #[serde(rename = "agents")]
    pub agents: &'a [AgentSpec],
    #[serde(rename = "models")]
    pub models: Vec<serde_json::Value>,
    /// Public keys of operators, by the operator's name.
    #[serde(rename = "operators", skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<ListenerName, OperatorPublicKey>,
    /// Public keys with which operators sign in web browsers, by the operator's name.
    #[serde(rename = "operators_in_browsers", skip_serializing_if = "BTreeMap::is_empty")]
    pub browser_keys: BTreeMap<ListenerName, OperatorPublicKey>,
    /// Clients that may see the text that models write. Each client sees the text only in its own
    /// threads.
    #[serde(rename = "clients_with_steps", skip_serializing_if = "Vec::is_empty")]
    pub clients_with_steps: Vec<ListenerName>,
    /// Digest of each schema file. The keys are the files' portable names, which are valid on every
    /// machine.
    #[serde(rename = "schemas")]
    pub schemas: BTreeMap<String, Digest>,
    /// Digests of the compiled workflow definitions, by the names of the workflows.
    #[serde(rename = "workflows", skip_serializing_if = "BTreeMap::is_empty")]
    pub workflows: BTreeMap<&'a str, Digest>,
    #[serde(rename = "schedules", skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<EffectiveSchedule<'a>>,
}

/// A schedule in the effective config, with the digest of its payload in place of the payload's
/// text.
#[derive(Serialize)]
pub(super) struct EffectiveSchedule<'a> {
    #[serde(rename = "name")]
    name: &'a str,
    #[serde(rename = "times")]
    times: String,
    #[serde(rename = "as")]
    client: &'a str,
    #[serde(rename = "payload")]
    payload: Digest,
    #[serde(rename = "missed")]
    missed: &'static str,
    #[serde(rename = "concurrency")]
    concurrency: u32,
}

pub(super) fn schedules(schedules: &[Schedule]) -> Vec<EffectiveSchedule<'_>> {
    let shown = schedules.iter().map(|schedule| EffectiveSchedule {
        name: schedule.name.as_str(),
        times: schedule.times.to_string(),
        client: schedule.client.as_str(),
        payload: Digest::of(schedule.payload.as_bytes()),
        missed: schedule.missed.as_str(),
        concurrency: schedule.concurrency,
    });
    shown.collect()
}

/// A process listener in the effective config. Its command contains references to variables instead
/// of their values, because the values may be secret.
#[derive(Serialize)]
pub(super) struct EffectiveProcess<'a> {
    #[serde(rename = "name")]
    name: &'a str,
    #[serde(rename = "command")]
    command: Vec<&'a str>,
    #[serde(rename = "env")]
    env: Vec<&'a str>,
    #[serde(rename = "instances")]
    instances: u32,
}

pub(super) fn processes(members: &[DeclaredMember]) -> Vec<EffectiveProcess<'_>> {
    let hosted = members.iter().filter_map(|m| Some((m, m.process.as_ref()?)));
    let shown = hosted.map(|(member, process)| EffectiveProcess {
        name: member.name.value.as_str(),
        command: process.command.iter().map(|word| word.value.written.as_str()).collect(),
        env: process.env.iter().map(|(key, _)| key.value.as_str()).collect(),
        instances: process.instances,
    });
    shown.collect()
}

pub(super) fn workflows(configured: &[ConfiguredWorkflow]) -> BTreeMap<&str, Digest> {
    let digests = configured.iter();
    digests.map(|one| (one.definition.name.value.as_str(), one.compiled.digest)).collect()
}

pub(super) fn operators(keys: &OperatorKeys) -> BTreeMap<ListenerName, OperatorPublicKey> {
    let mut first = BTreeMap::new();
    for (name, key) in keys.iter() {
        first.entry(name.clone()).or_insert(*key);
    }
    first
}

/// Returns the public keys with which operators sign in web browsers.
pub(super) fn browser_keys(keys: &OperatorKeys) -> BTreeMap<ListenerName, OperatorPublicKey> {
    let first = operators(keys);
    let others = keys.iter().filter(|(name, key)| first.get(name) != Some(key));
    others.cloned().collect()
}

impl EffectiveConfig<'_> {
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data without maps of odd keys is JSON")
    }
}

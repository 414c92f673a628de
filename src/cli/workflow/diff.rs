//! `organism workflow diff`: shows what differs between two definitions, and what that means for
//! runs under way.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::config::Config;
use crate::contract::Role;
use crate::ids::{ListenerName, ThreadId};
use crate::organism::with_runs_of;
use crate::workflow::{
    DefinedCall, DefinitionChange, GoalId, WorkflowDefinition, defined_calls, definition_changes,
};
use crate::xml::invisible_characters::visible;

use super::super::exit::CommandExit;
use super::super::journal_target::JournalTarget;
use super::super::output::{put, put_json_line};
use super::super::startup;
use super::recorded::run_on_record;

#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// Source of the old workflow definitions of the comparison: a config file, or the thread of a
    /// run.
    before: String,
    /// Source of the new workflow definitions of the comparison: a config file, or the thread of a
    /// run.
    after: String,
    #[command(flatten)]
    place: JournalTarget,
    /// Write one JSON object for each workflow.
    #[arg(long)]
    json: bool,
}

/// The workflow definitions that one argument of the command selects.
struct DiffSide {
    definitions: BTreeMap<ListenerName, WorkflowDefinition>,
    /// The config that the argument names; `None` if the argument names a run.
    config: Option<Config>,
}

pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let mut before = side(&args.before, &args.place)?;
    let mut after = side(&args.after, &args.place)?;
    // A run has one workflow; other workflows of a config are left out of the comparison.
    for (run, other) in [(&before, &after), (&after, &before)] {
        let is_run = run.config.is_none();
        let Some(name) = run.definitions.keys().next().filter(|_| is_run) else { continue };
        if !other.definitions.contains_key(name) {
            note!("note: the other side has no workflow `{name}`");
        }
    }
    if before.config.is_none() {
        after.definitions.retain(|name, _| before.definitions.contains_key(name));
    }
    if after.config.is_none() {
        before.definitions.retain(|name, _| after.definitions.contains_key(name));
    }

    let mut names: Vec<_> = before.definitions.keys().chain(after.definitions.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let compared = ComparedWorkflow::new(name, &before, &after);
        if args.json {
            put_json_line(&compared.json().to_string());
        } else {
            put(&visible(&compared.text()))?;
        }
    }
    Ok(CommandExit::Done.into())
}

fn side(text: &str, place: &JournalTarget) -> anyhow::Result<DiffSide> {
    let thread = ThreadId::parse(text).ok().filter(|_| !Path::new(text).exists());
    if let Some(thread) = thread {
        let definition = run_on_record(place, &thread)?.definition()?;
        let definitions = BTreeMap::from([(definition.name.value.clone(), definition)]);
        return Ok(DiffSide { definitions, config: None });
    }

    let config = startup::other_config(Path::new(text))?;
    let definitions = config.workflows.iter().map(|workflow| &workflow.definition);
    let definitions =
        definitions.map(|definition| (definition.name.value.clone(), definition.clone())).collect();
    Ok(DiffSide { definitions, config: Some(config) })
}

/// The comparison of one workflow.
struct ComparedWorkflow<'a> {
    name: &'a ListenerName,
    state: &'static str,
    changes: Vec<DefinitionChange>,
    /// Calls that runs of the first definition make, but that the gate of the second config would
    /// refuse.
    refused: Vec<RefusedCall<'a>>,
}

/// A call of a run that the gate refuses.
struct RefusedCall<'a> {
    call: DefinedCall<'a>,
    /// Whether the called listener still is a peer of the workflow, which does not accept the
    /// payload from it.
    is_peer: bool,
}

/// Lists the calls of runs of `definition` that the gate refuses under `config`.
fn refused_calls<'a>(definition: &'a WorkflowDefinition, config: &Config) -> Vec<RefusedCall<'a>> {
    let workflow = &definition.name.value;
    let extended = with_runs_of(config, definition).ok();
    let contracts = extended.as_ref().map_or(&config.contracts, |extended| &extended.contracts);
    let contract = contracts.get(workflow);
    if contract.is_some_and(|contract| contract.role != Role::Workflow) {
        // The runs fail: the calls go to another kind of member, which has their name.
        return Vec::new();
    }

    let calls = defined_calls(definition).into_iter();
    let refused = calls.filter(|call| !call.is_permitted(contracts, workflow));
    let refused = refused.map(|call| {
        let is_peer = contract.is_some_and(|contract| contract.peers.contains(call.callee));
        RefusedCall { call, is_peer }
    });
    refused.collect()
}

impl RefusedCall<'_> {
    fn text(&self) -> String {
        let DefinedCall { goal, callee, payload } = &self.call;
        let subject = match goal {
            Some(goal) => format!("`{goal}`"),
            None => "the list of `report_to`".to_owned(),
        };
        let reason = match payload {
            Some(payload) if self.is_peer => {
                format!("`{callee}` does not accept `{}` any more", payload.local)
            }
            None if self.is_peer => format!("`{callee}` accepts none of its payloads any more"),
            _ => format!("`{callee}` is no peer any more"),
        };
        format!("  in runs under way, {subject} is refused from then on: {reason}\n")
    }
}

impl<'a> ComparedWorkflow<'a> {
    fn new(name: &'a ListenerName, before: &'a DiffSide, after: &DiffSide) -> Self {
        let old = before.definitions.get(name);
        let new = after.definitions.get(name);
        let changes = match (old, new) {
            (Some(old), Some(new)) => definition_changes(old, new),
            _ => Vec::new(),
        };
        let state = match (old, new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ if changes.is_empty() => "unchanged",
            _ => "changed",
        };

        let refused = match (old, &after.config) {
            (Some(old), Some(config)) => refused_calls(old, config),
            _ => Vec::new(),
        };

        Self { name, state, changes, refused }
    }

    fn text(&self) -> String {
        let Self { name, state, changes, refused } = self;
        let mut out = format!("{name}: {state}\n");
        for change in changes {
            let DefinitionChange { path, before, after } = change;
            let sign = match (before, after) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            out.push_str(&format!("  {sign} {path}\n"));
            for (sign, text) in [('-', before), ('+', after)] {
                let text = text.as_deref().unwrap_or_default();
                for line in text.lines() {
                    out.push_str(&format!("      {sign} {line}\n"));
                }
            }
            if change.holds_for_open_runs(changes) {
                out.push_str("      holds for runs under way, too\n");
            }
        }

        let immediate = changes.iter().filter(|change| change.holds_for_open_runs(changes)).count();
        match *state {
            "changed" if immediate == changes.len() => {}
            "changed" if immediate > 0 => out.push_str(
                "  runs under way finish on the definition that they began with, except for what \
                 holds for them, too\n",
            ),
            "changed" => {
                out.push_str("  runs under way finish on the definition that they began with\n");
            }
            "removed" => out.push_str(
                "  runs under way finish on the definition that they began with; no new call is \
                 accepted\n",
            ),
            _ => {}
        }

        out.extend(refused.iter().map(RefusedCall::text));
        out
    }

    fn json(&self) -> serde_json::Value {
        let Self { name, state, changes, refused } = self;
        let changes: Vec<_> = changes
            .iter()
            .map(|DefinitionChange { path, before, after }| {
                json!({ "path": path, "before": before, "after": after })
            })
            .collect();
        let refused: Vec<_> = refused
            .iter()
            .map(|RefusedCall { call, .. }| {
                json!({ "goal": call.goal.map(GoalId::as_str), "peer": call.callee })
            })
            .collect();
        json!({ "workflow": name, "state": state, "changes": changes, "refused": refused })
    }
}

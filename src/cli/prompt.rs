//! `organism prompt`: shows the exact prompt of an agent, without sending it to a model.

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use crate::ids::ListenerName;
use crate::model::tokens::RequestSize;
use crate::model::{ModelRequest, block_json};
use crate::organism::{
    Error, PromptComparison, PromptPreview, TurnSelector, preview, request_text,
};

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{JournalTarget, known, require_thread};
use super::past_prompt::past_prompt;
use super::render::{RenderOutput, put, put_json};
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the agent.
    agent: String,
    #[command(flatten)]
    place: JournalTarget,
    /// Id of a recorded thread. The command shows a prompt of the agent in this thread. Default:
    /// the prompt for an example task, which is made from the agent's schema.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Number of a turn in the thread, from 1. The command shows the prompt exactly as it was sent
    /// in this turn, even if the config has changed since then. Default: the prompt of the turn
    /// that would come next. If each task of the agent in the thread has ended, a note states so,
    /// and the prompt is that of a further turn for the last task.
    #[arg(long, value_name = "N", requires = "thread")]
    turn: Option<u32>,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
    /// Write only the body of the request, byte for byte in its wire format.
    #[arg(long, conflicts_with = "json")]
    wire: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let agent = ListenerName::parse(&args.agent);
    let agent = agent.map_err(|error| CommandFailure::usage(error.to_string()))?;
    let thread = args.thread.as_deref().map(known).transpose()?;
    let shown = match (thread, args.turn) {
        (Some(thread), Some(turn)) => past_prompt(&args.place, &agent, &thread, turn)?,
        (Some(thread), None) => to_come(&args.place, &agent, &TurnSelector::Next(thread))?,
        (None, _) => to_come(&args.place, &agent, &TurnSelector::Example)?,
    };

    if let Some(PromptComparison::Differs { part }) = shown.comparison {
        note!(
            "note: the request is shown as it was sent; the config of that turn, as this program \
             reads it, renders another {part}"
        );
    }
    if shown.has_ended {
        note!(
            "note: {agent} has no open task in the thread, so no turn is due; this is the prompt of \
             a further turn for its last task, which has ended"
        );
    }
    if args.wire {
        put(&shown.wire)?;
    } else if args.json {
        put_json(&value(&shown))?;
    } else {
        put(&text(&RenderOutput::stdout(true), &shown))?;
    }

    Ok(CommandExit::Done.into())
}

/// Renders the prompt of the turn that the agent would take next.
fn to_come(
    place: &JournalTarget,
    agent: &ListenerName,
    turn: &TurnSelector,
) -> anyhow::Result<PromptPreview> {
    if place.data.is_some() {
        let text = "--data names a journal: add --turn N, or name the config with --config";
        return Err(CommandFailure::usage(text).into());
    }

    let config = ConfigArg { config: place.config.clone() }.load_to_read()?;
    let shown = preview(config, agent, turn);
    if let (Err(Error::Preview { .. }), TurnSelector::Next(thread)) = (&shown, turn) {
        require_thread(place, thread)?;
    }
    Ok(shown?)
}

fn value(shown: &PromptPreview) -> Json {
    let ModelRequest { origin, system, messages, tools, tool_choice, one_call, .. } =
        &shown.request;
    let messages = messages.iter().map(|message| {
        let blocks: Vec<Json> = message.blocks.iter().map(block_json).collect();
        json!({"role": message.role.as_str(), "blocks": blocks})
    });
    let tools = tools.iter().map(|tool| {
        json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        })
    });

    let size = shown.size();
    json!({
        "agent": origin.agent,
        "thread": origin.thread,
        "turn": origin.turn,
        "position": shown.position,
        "prompt": shown.digest,
        "recorded": shown.recorded,
        "config": shown.config,
        "config_renders_it": shown.comparison.map(|again| again == PromptComparison::Equal),
        "system": system,
        "messages": messages.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "tool_choice": tool_choice.map(|choice| format!("{choice:?}").to_lowercase()),
        "one_call": one_call,
        "max_tokens": shown.request.answer_bound(),
        "tokens": {
            "schema": size.schema,
            "payload": size.payload,
            "counted": size.family.as_str(),
        },
    })
}

fn size(size: &RequestSize) -> String {
    let total = size.total();
    let schema = size.schema;
    let payload = size.payload;
    let counted = if size.family.is_estimate() { "an estimate" } else { size.family.as_str() };
    format!(
        "{total} tokens: {schema} of prompt, tools and framing, {payload} of the thread ({counted})"
    )
}

fn text(output: &RenderOutput, shown: &PromptPreview) -> String {
    let request = &shown.request;
    let mut out = String::new();
    if let (Some(config), Some(_)) = (shown.config, shown.recorded) {
        let proof = match shown.comparison {
            Some(PromptComparison::Equal) => ", which renders the same request again",
            Some(PromptComparison::Differs { .. }) | None => "",
        };
        out.push_str(&format!("{}\n{config}{proof}\n\n", output.bold("config")));
    }
    out.push_str(&request_text(request, |name| output.bold(name)));
    out.push_str(&format!("\n{}\n{}\n", output.bold("size"), size(&shown.size())));
    out
}

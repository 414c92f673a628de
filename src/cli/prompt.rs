//! `organism prompt`: shows the exact prompt of an agent, without sending it to a model.

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use crate::ids::{ListenerName, ThreadId};
use crate::model::tokens::RequestSize;
use crate::model::{ChatBlock, ModelRequest};
use crate::organism::{PromptPreview, TurnSelector, preview};

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::known;
use super::render::{RenderOutput, put, put_json};
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the agent.
    agent: String,
    #[command(flatten)]
    config: ConfigArg,
    /// Thread on record. Without it, an example task from the agent's schema.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Turn of that thread, from 1. Without it, the turn that would come next.
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
    let agent =
        agent.map_err(|error| CommandFailure::new(CommandExit::Usage, error.to_string()))?;
    let thread = args.thread.as_deref().map(known).transpose()?;
    let moment = moment(thread, args.turn);
    let shown = preview(args.config.load_to_read()?, &agent, &moment)?;
    if args.wire {
        put(&shown.wire)?;
    } else if args.json {
        put_json(&value(&shown))?;
    } else {
        put(&text(&RenderOutput::stdout(true), &shown))?;
    }

    Ok(CommandExit::Done.into())
}

fn moment(thread: Option<ThreadId>, turn: Option<u32>) -> TurnSelector {
    match (thread, turn) {
        (None, _) => TurnSelector::Example,
        (Some(thread), None) => TurnSelector::Next(thread),
        (Some(thread), Some(turn)) => TurnSelector::Taken(thread, turn),
    }
}

fn value(shown: &PromptPreview) -> Json {
    let ModelRequest { origin, system, messages, tools, tool_choice, one_call, max_tokens } =
        &shown.request;
    let messages = messages.iter().map(|message| {
        let blocks: Vec<Json> = message.blocks.iter().map(block).collect();
        json!({"role": message.role.as_str(), "blocks": blocks})
    });
    let tools = tools.iter().map(|tool| {
        json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        })
    });

    json!({
        "agent": origin.agent,
        "thread": origin.thread,
        "turn": origin.turn,
        "position": shown.position,
        "prompt": shown.digest,
        "recorded": shown.recorded,
        "system": system,
        "messages": messages.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "tool_choice": tool_choice.map(|choice| format!("{choice:?}").to_lowercase()),
        "one_call": one_call,
        "max_tokens": max_tokens,
        "tokens": {
            "schema": shown.size.schema,
            "payload": shown.size.payload,
            "counted": shown.size.family.as_str(),
        },
    })
}

fn size(size: &RequestSize) -> String {
    let total = size.total();
    let schema = size.schema;
    let payload = size.payload;
    let counted = if size.family.is_estimate() { "an estimate" } else { size.family.as_str() };
    format!("{total} tokens: {schema} of prompt and tools, {payload} of the thread ({counted})")
}

fn block(block: &ChatBlock) -> Json {
    match block {
        ChatBlock::Text(text) => json!({"text": text}),
        ChatBlock::Call(call) => {
            json!({"call": call.name, "id": call.id, "arguments": call.arguments})
        }
        ChatBlock::Result { id, text, failed } => {
            json!({"result": text, "id": id, "failed": failed})
        }
        ChatBlock::Own(own) => json!({"own": own.json, "provider": own.provider}),
    }
}

fn text(output: &RenderOutput, shown: &PromptPreview) -> String {
    let request = &shown.request;
    let mut out = format!("{}\n{}\n", output.bold("system"), request.system);
    for message in &request.messages {
        out.push_str(&format!("\n{}\n", output.bold(message.role.as_str())));
        for block in &message.blocks {
            let line = match block {
                ChatBlock::Text(text) => text.clone(),
                ChatBlock::Call(call) => {
                    format!("call {} {}({})", call.id, call.name, call.arguments)
                }
                ChatBlock::Result { id, text, .. } => format!("result of {id}\n{text}"),
                ChatBlock::Own(own) => format!("block of {}: {}", own.provider, own.json),
            };
            out.push_str(&line);
            out.push('\n');
        }
    }

    for tool in &request.tools {
        out.push_str(&format!(
            "\n{} {}\n{}\n{}\n",
            output.bold("tool"),
            tool.name,
            tool.description,
            tool.parameters
        ));
    }

    out.push_str(&format!("\n{}\n{}\n", output.bold("size"), size(&shown.size)));
    out
}

//! The notice at the end of a model request. It states the number of the turn, the available
//! actions, and how to end the call. The notice is recorded with its turn, and later prompts do not
//! contain it.

use std::fmt::Write as _;

use super::in_format;
use super::native::NativeTools;
use super::xml_final::TurnSlots;
use crate::agent::system_prompt::prompt_sections::{PromptInput, name_of_final};
use crate::agent::{ActionTransport, FinalMode, RendererVersion};

/// How far a call has got when one of its turns begins.
#[derive(Debug, Clone, Copy)]
pub struct TurnProgress {
    /// Number of the turn within its call, counted from 1.
    pub iteration: u32,
    /// Whether the context window is full. If so, this turn is the last one of the call.
    pub window_full: bool,
    /// Number of further requests to the agent in the thread. These requests wait for the end of
    /// the call.
    pub waiting: u32,
}

pub fn write(
    prompt: &PromptInput,
    tools: &NativeTools,
    turn: &TurnProgress,
    slots: &TurnSlots,
) -> String {
    let iteration = turn.iteration;
    let most = prompt.max_iterations;
    let mut out = format!("<notice>\nTurn {iteration} of {most} for this task.");
    if turn.window_full {
        out.push_str(
            " Your context window is full and something was left out, so this turn is the last: \
             only what ends the task counts.",
        );
    } else if iteration >= most {
        out.push_str(" It is the last: only what ends the task counts.");
    }

    out.push('\n');
    if prompt.version >= RendererVersion::V12 {
        out.push_str(&waiting_requests(turn.waiting));
    }
    let local = |word: &super::VocabularyEntry| word.name.local.to_string();

    match prompt.transport {
        _ if turn.window_full => {}
        ActionTransport::Xml => {
            let names: Vec<String> = prompt.vocabulary.tools().map(local).collect();
            if !names.is_empty() {
                let _ = writeln!(out, "Tools, written as XML: {}.", names.join(", "));
            }
        }
        _ => {
            let all = tools.concise();
            if !all.is_empty() {
                let _ = writeln!(out, "Native tools:\n- {}", all.join("\n- "));
            }
        }
    }

    let format = &prompt.finals.format;
    let words = format.words();
    let answer = format!("write your answer as {words} in a response without any action");
    let _ = match prompt.transport {
        // The turn's slot is named nowhere else.
        ActionTransport::XmlFinal
            if prompt.finals.by == FinalMode::Text && prompt.version >= RendererVersion::V6 =>
        {
            writeln!(out, "To end the task, {answer}, or: {}", slots.example(format))
        }
        _ if prompt.finals.by == FinalMode::Text => writeln!(out, "To end the task, {answer}."),
        ActionTransport::XmlFinal => {
            writeln!(out, "To end the task, in {words}: {}", slots.example(format))
        }
        _ => {
            let finals: Vec<String> = prompt.vocabulary.finals().map(local).collect();
            let format = in_format(&prompt.finals, prompt.version);
            writeln!(out, "To end the task: {}{format}.", name_of_final(&finals))
        }
    };

    out.push_str("</notice>");
    out
}

/// Returns the line about the further requests to the agent in the thread. Such a request can end
/// the agent's `wait`. Without this line, the agent would then see no reason for its next turn.
fn waiting_requests(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => "1 further request waits in this thread until you have ended this task.\n".to_owned(),
        _ => format!(
            "{count} further requests wait in this thread until you have ended this task.\n"
        ),
    }
}

//! Shows a thread while it grows, with one line for each message. Explains each kind of event when
//! it occurs for the first time.

use std::collections::HashSet;

use crate::clock::Time;
use crate::envelope::{Message, MessageKind, Refusal, RefusalRule};
use crate::ids::{ListenerName, ThreadId};
use crate::system;
use crate::thread::{Fact, Record};

use super::RenderOutput;
use super::table::cut;
use crate::audit::{core_words, payload_lines};

pub struct DemoView {
    output: RenderOutput,
    began: Option<Time>,
    explained: HashSet<&'static str>,
}

impl DemoView {
    pub fn new(output: RenderOutput) -> Self {
        Self { output, began: None, explained: HashSet::new() }
    }

    /// Draws the lines that show one record. Returns an empty text for a record of the organism's
    /// own thread, which the demo does not show.
    pub fn record(&mut self, record: &Record) -> String {
        if record.tree.as_str() == ThreadId::ORGANISM {
            return String::new();
        }

        let mut out = String::new();
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, .. } => self.message(&mut out, message),
                Fact::Refused { sender, thread: Some(thread), refusal, .. } => {
                    self.refusal(&mut out, record.time, sender, thread, refusal);
                }
                _ => {}
            }
        }

        out
    }

    fn message(&mut self, out: &mut String, message: &Message) {
        if &*message.name.local == system::MODEL_TURN {
            return;
        }

        self.explain(out, &message.thread, explanation(message));
        let from = message.from.as_str();
        let to = message.to.as_str();
        let name = &message.name.local;
        let gist = gist(message);
        let line = match message.kind {
            MessageKind::Note => format!("{from}  {name}  {gist}"),
            MessageKind::System => format!("⚙ → {to}  {name}  {gist}"),
            _ => format!("{from} → {to}  {name}  {gist}"),
        };

        let line = self.line(message.time, &message.thread, &line);
        out.push_str(&match message.kind {
            MessageKind::Note => self.output.dim(&line),
            MessageKind::System => self.output.cyan(&line),
            _ => line,
        });
        out.push('\n');
    }

    fn refusal(
        &mut self,
        out: &mut String,
        time: Time,
        sender: &ListenerName,
        thread: &ThreadId,
        refusal: &Refusal,
    ) {
        let explanation = match refusal.rule {
            RefusalRule::SchemaInvalid => {
                Some("it violates its schema; the agent corrects it by the findings")
            }
            RefusalRule::NotInVocabulary => {
                Some("not a peer of this agent; refused without details")
            }
            _ => None,
        };

        self.explain(out, thread, explanation);
        let line = format!("✗ {sender}  refused: {}", refusal.rule);
        let line = self.line(time, thread, &line);
        out.push_str(&self.output.red(&line));
        out.push('\n');
    }

    fn explain(&mut self, out: &mut String, thread: &ThreadId, explanation: Option<&'static str>) {
        let Some(explanation) =
            explanation.filter(|explanation| self.explained.insert(explanation))
        else {
            return;
        };
        let line = format!("         {}— {explanation}", margin(thread));
        out.push_str(&self.output.yellow(&line));
        out.push('\n');
    }

    fn line(&mut self, time: Time, thread: &ThreadId, text: &str) -> String {
        let began = *self.began.get_or_insert(time);
        let offset = time.since(began).as_secs_f64();
        cut(&format!("{offset:>7.3}s {}{text}", margin(thread)), self.output.columns)
    }
}

/// Returns the left margin of a message in `thread`. The margin has one vertical bar for each
/// thread above `thread`, so it is empty for a root thread.
fn margin(thread: &ThreadId) -> String {
    "│ ".repeat(thread.depth())
}

/// Returns the values of a payload on one line.
fn gist(message: &Message) -> String {
    let local = &*message.name.local;
    let payload = message.payload.as_str();
    let is_core = &*message.name.namespace == system::NAMESPACE;
    let (head, lines) = if is_core {
        (core_words::gist(local, payload), core_words::lines(local, payload))
    } else {
        (None, payload_lines::lines(payload))
    };

    let lines = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty() && !line.ends_with(':'));
    let head = head.as_deref().into_iter();
    head.chain(lines).collect::<Vec<_>>().join("; ")
}

/// Returns an explanation of the event that a message records; `None` if the event needs none. The
/// view shows each explanation only once.
fn explanation(message: &Message) -> Option<&'static str> {
    match &*message.name.local {
        "spawn-thread" => Some("a subthread: its work runs beside this one"),
        "todo-until" => Some("a public plan: recorded and shown, but never interpreted"),
        "set-timer" => Some("a timer, kept in the journal"),
        "thread-result" => Some("the result of the subthread, returned to its parent"),
        "answer" if message.thread.is_root() => Some("the final answer to the question"),
        _ => None,
    }
}

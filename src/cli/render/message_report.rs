//! Draws everything on record about one message, in sections.

use crate::audit::{
    CallPreviewView, GateVerdict, MessageDecision, MessageReport, MessageState, RecordedConfig,
    RefusalView, event_text,
};
use crate::envelope::Money;
use crate::index::{IndexedAttempt, IndexedCall, IndexedMessage, IndexedTurn};
use crate::system;

use super::held::barred;
use super::table::table;
use super::{RenderOutput, clean, count, micros};

/// Maximum number of lines that the report shows of a payload. `--full` shows all lines.
const LINES_MAX: usize = 40;
/// Maximum number of characters that the report shows of a payload. `--full` shows all characters.
const CHARS_MAX: usize = 4_000;

/// Draws a report. A text that another party wrote is drawn behind a bar, or on a single line
/// without characters that could control the terminal.
pub fn draw_report(output: &RenderOutput, report: &MessageReport) -> String {
    let mut page = ReportPage { output, text: String::new() };
    page.envelope(report);
    page.payload(report.message.payload.as_deref());
    page.chain(report);
    page.outcome(report);
    page.checks(report);
    page.turn(report.turn.as_ref());
    page.people(report);
    page.attempts(report);
    page.neighbours(report);
    page.text
}

/// Draws a table of messages.
pub fn message_rows(output: &RenderOutput, messages: &[IndexedMessage]) -> String {
    let row = |message: &IndexedMessage| {
        let local = message.name.rsplit_once('}').map_or(&*message.name, |(_, local)| local);
        vec![
            message.id.to_string(),
            message.position.to_string(),
            message.kind.clone(),
            format!("{} → {}", message.from, message.to),
            clean(local),
            MessageState::of_indexed(message).as_str().to_owned(),
        ]
    };
    let rows: Vec<_> = messages.iter().map(row).collect();
    table(output, &["id", ">record", "kind", "from → to", "payload", "disposition"], &rows)
}

struct ReportPage<'p> {
    output: &'p RenderOutput,
    text: String,
}

impl ReportPage<'_> {
    fn line(&mut self, name: &str, text: &str) {
        let text = clean(text).replace('\n', "\\n");
        self.text.push_str(format!("  {name:<9} {text}").trim_end());
        self.text.push('\n');
    }

    fn title(&mut self, text: &str) {
        self.text.push('\n');
        self.text.push_str(&self.output.bold(text));
        self.text.push('\n');
    }

    fn envelope(&mut self, report: &MessageReport) {
        let message = &report.message;
        let title = format!("{}  {}", message.id, clean(&message.name.local));
        self.text.push_str(&self.output.bold(&title));
        self.text.push('\n');
        self.line("payload", &message.name.to_string());
        self.line("from", message.from.as_str());
        self.line("to", message.to.as_str());
        self.line("thread", &format!("{}, seq {}", message.thread, message.seq));
        self.line("kind", message.kind.as_str());
        match message.call {
            Some(call) if call.0 == message.id => self.line("call", "this message opened it"),
            Some(call) => self.line("call", &call.to_string()),
            None => {}
        }
        self.line("time", &message.time);
    }

    fn payload(&mut self, payload: Option<&str>) {
        let Some(payload) = payload else {
            return self.line("bytes", "the payload was redacted: its digest alone is on record");
        };

        if self.output.full {
            return barred(self.output, payload, &mut self.text);
        }

        let line_ends = || payload.match_indices('\n').map(|(at, _)| at);
        let lines_end = line_ends().nth(LINES_MAX - 1).unwrap_or(payload.len());
        let chars_end = payload.char_indices().nth(CHARS_MAX).map_or(payload.len(), |(at, _)| at);
        let end = lines_end.min(chars_end);
        barred(self.output, payload.get(..end).unwrap_or_default(), &mut self.text);

        if end < payload.len() {
            let left = if end == lines_end {
                count(line_ends().skip(LINES_MAX - 1).count() as u64, "more line")
            } else {
                count((payload.len() - end) as u64, "more byte")
            };
            self.text.push_str(&self.output.dim(&format!("  … {left} (--full)\n")));
        }
    }

    fn chain(&mut self, report: &MessageReport) {
        let record = &report.record;
        self.title("In the chain");
        self.line("bytes", &format!("{}, sha256 {}", report.bytes, report.message.digest));
        self.line("record", &format!("{}, hash {}", record.position, record.hash));
        if record.previous.0 > 0 {
            self.line("after", &format!("{}, hash {}", record.previous, record.previous_hash));
        }
        self.line("head", &format!("{}, hash {}", record.head, record.head_hash));
        self.line("tree", record.tree.as_str());
    }

    fn outcome(&mut self, report: &MessageReport) {
        self.title("Outcome");
        let disposition = match (report.message.disposition, report.disposed) {
            (Some(how), Some(at)) => format!("{} at record {at}", how.as_str()),
            (Some(how), None) => how.as_str().to_owned(),
            (None, _) => MessageState::of_indexed(&report.row).as_str().to_owned(),
        };
        self.line("message", &disposition);
        if let Some(call) = &report.call {
            self.line("call", &outcome_of(call));
        }
        for error in &report.errors {
            let text = format!("record {}: {}: {}", error.position, error.kind, error.detail);
            self.line("error", &text);
        }
    }

    fn checks(&mut self, report: &MessageReport) {
        self.title("Checked with");
        self.line("gate", gate(report.gate));
        for refusal in &report.refused_beside {
            self.line("beside", &refused(refusal));
        }
        let in_call = &report.refused_in_call;
        for refusal in &in_call.refusals {
            self.line("refused", &refused(refusal));
        }
        let left = in_call.total.saturating_sub(in_call.refusals.len() as u64);
        if left > 0 {
            self.line("refused", &format!("… {}", count(left, "more refusal")));
        }

        for schema in &report.schemas {
            self.line("schema", &format!("{}, sha256 {}", schema.file, schema.sha256));
        }
        if report.schemas.is_empty() {
            self.line("schema", schema_without_file(report));
        }
        if let Some(RecordedConfig { digest, core_version, position, epoch }) = &report.config {
            self.line(
                "config",
                &format!(
                    "{digest}, from record {position} (epoch {epoch}, core version {core_version})"
                ),
            );
        }
    }

    fn turn(&mut self, turn: Option<&IndexedTurn>) {
        let Some(turn) = turn else { return };
        self.title("Written by a model");
        self.line("agent", &format!("{}, turn {}", turn.agent, turn.turn));
        let provider = turn.provider.as_deref().unwrap_or("?");
        let mut model = format!("{provider}/{}", turn.model.as_deref().unwrap_or("?"));
        if let Some(answered) =
            turn.answered_by.as_ref().filter(|by| Some(*by) != turn.model.as_ref())
        {
            model.push_str(&format!(", answered by {answered}"));
        }
        if turn.failovers > 0 {
            model.push_str(&format!(", after {}", count(turn.failovers, "failed request")));
        }
        self.line("model", &model);
        if let Some(prompt) = turn.prompt {
            self.line("prompt", &format!("sha256 {prompt}"));
        }
        if let Some(inputs) = turn.inputs {
            self.line("inputs", &format!("sha256 {inputs}"));
        }
        self.line("used", &used(turn));
        self.line("note", &turn.note.to_string());
    }

    fn people(&mut self, report: &MessageReport) {
        if report.holds.is_empty() && report.decisions.is_empty() {
            return;
        }

        self.title("People");
        for held in &report.holds {
            let why = held.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let hold = &held.hold;
            let outcome = hold.outcome.as_deref().unwrap_or("waits still");
            let waited = hold.waited_us.map(|time| format!(" after {}", micros(time)));
            let text = format!(
                "for an {}{why} since {}: {outcome}{}",
                hold.kind,
                hold.since,
                waited.unwrap_or_default()
            );
            self.line("waited", &text);
        }
        for shown in &report.previews {
            self.preview(&shown.preview);
        }
        let left = report.decisions_left_out();
        if left > 0 {
            self.line("refused", &format!("… {}", count(left, "earlier refused decision")));
        }
        for decision in &report.decisions {
            self.decision(report, decision);
        }
    }

    fn preview(&mut self, preview: &CallPreviewView) {
        match preview {
            CallPreviewView::Recorded { sha256, text: Some(text) } => {
                self.line("preview", &format!("sha256 {sha256}"));
                barred(self.output, text, &mut self.text);
            }
            CallPreviewView::Recorded { sha256, text: None } => {
                self.line("preview", &format!("sha256 {sha256}, redacted since"));
            }
            CallPreviewView::Requested | CallPreviewView::Missing { .. } => {}
        }
    }

    fn decision(&mut self, report: &MessageReport, decision: &MessageDecision) {
        let done = if decision.accepted { "" } else { ", refused by the organism" };
        let text = format!("by {} at {}{done}", decision.by, decision.time);
        self.line(decision.action, &format!("{text}, record {}", decision.position));
        if let Some(origin) = &decision.origin {
            let who = &origin.who;
            let login = who.login.as_deref().unwrap_or("unknown");
            let uid = who.uid.map(|uid| format!(", uid {uid}")).unwrap_or_default();
            let host = who.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
            self.line("", &format!("user {login}{uid}{host}"));
        }
        if let Some(signed) = &decision.signed {
            self.line("", &event_text::signature_text(signed));
        }
        if let Some(seen) = &decision.payload {
            let is_this = report.message.digest.to_string().starts_with(seen);
            let which = if is_this { "the payload above" } else { "ANOTHER payload" };
            self.line("", &format!("saw {which}, sha256 {seen}"));
        }
        if let Some(seen) = &decision.preview {
            self.line("", &format!("saw the preview, sha256 {seen}"));
        }
        let note = decision.origin.as_ref().map(|origin| origin.note.as_str());
        for (name, text) in [("reason", decision.reason.as_deref()), ("note", note)] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                self.line("", &format!("{name}: {text}"));
            }
        }
    }

    fn attempts(&mut self, report: &MessageReport) {
        if report.attempts.is_empty() {
            return;
        }

        self.title("Attempts");
        let row = |attempt: &IndexedAttempt| {
            vec![
                format!("  {}", attempt.attempt),
                attempt.listener.clone(),
                attempt.handed_over.clone(),
                micros(attempt.queue_us),
                attempt.work_us.map_or("-".to_owned(), micros),
                attempt.outcome.clone().unwrap_or_else(|| "in flight".to_owned()),
            ]
        };
        let rows: Vec<_> = report.attempts.iter().map(row).collect();
        let headers = ["  attempt", "listener", "handed over", ">queued", ">worked", "outcome"];
        self.text.push_str(&table(self.output, &headers, &rows));
        let all = report.call.as_ref().map_or(0, |call| call.attempts);
        let left = all.saturating_sub(report.attempts.len() as u64);
        if left > 0 {
            self.line("", &format!("… {}", count(left, "earlier attempt")));
        }
    }

    fn neighbours(&mut self, report: &MessageReport) {
        if !report.causes.is_empty() {
            self.title("Because of");
            self.messages(&report.causes);
        }

        let effects = &report.effects;
        if effects.total > 0 {
            let more = if effects.is_more { "more than " } else { "" };
            self.title(&format!("Caused {more}{}", count(effects.total, "message")));
            self.messages(&effects.messages);
            let left = effects.total.saturating_sub(effects.messages.len() as u64);
            if left > 0 {
                self.line("", &format!("… {left} more between the first and the last"));
            }
        }
    }

    fn messages(&mut self, messages: &[IndexedMessage]) {
        for row in message_rows(self.output, messages).lines() {
            self.text.push_str(&format!("  {row}\n"));
        }
    }
}

fn outcome_of(call: &IndexedCall) -> String {
    let listener = &call.listener;
    let Some(outcome) = &call.outcome else { return format!("open at {listener}") };
    let fault = call.fault.as_ref().map(|fault| format!(" ({})", clean(fault)));
    let time = call.duration_us.map(|time| format!(" after {}", micros(time)));
    let attempts = count(call.attempts, "attempt");
    format!(
        "{outcome}{}{} by {listener}, {attempts}",
        fault.unwrap_or_default(),
        time.unwrap_or_default()
    )
}

const fn gate(verdict: GateVerdict) -> &'static str {
    match verdict {
        GateVerdict::Passed => "passed",
        GateVerdict::PassedWithin => "passed as a part of another payload",
        GateVerdict::WrittenByCore => "the core wrote this message",
    }
}

fn schema_without_file(report: &MessageReport) -> &'static str {
    if &*report.message.name.namespace == system::NAMESPACE {
        "core.xsd, a part of the program"
    } else {
        "generated from the config, or not stored"
    }
}

fn refused(refusal: &RefusalView) -> String {
    format!(
        "record {}: {} of {}: {}",
        refusal.position,
        refusal.rule,
        refusal.sender,
        refusal.located_message()
    )
}

fn used(turn: &IndexedTurn) -> String {
    let mut text = format!("{} + {} tokens", turn.tokens_in, turn.tokens_out);
    if turn.cost_nano > 0 {
        let currency = turn.currency.as_deref().unwrap_or_default();
        text.push_str(&format!(", {} {currency}", Money(turn.cost_nano)));
    }
    text.push_str(&format!(", {}", micros(turn.latency_us)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(payload: &str, full: bool) -> String {
        let output = RenderOutput { colour: false, columns: 80, table_columns: usize::MAX, full };
        let mut page = ReportPage { output: &output, text: String::new() };
        page.payload(Some(payload));
        page.text
    }

    #[test]
    fn a_payload_is_cut_after_its_first_lines_or_characters() {
        let lines = drawn(&"é\n".repeat(50), false);
        assert_eq!(lines.matches('é').count(), 40);
        assert!(lines.ends_with("│ é\n  … 11 more lines (--full)\n"), "{lines}");

        let line = "é".repeat(5_000);
        let shown = drawn(&line, false);
        assert_eq!(shown.matches('é').count(), 4_000);
        assert!(shown.ends_with("é\n  … 2000 more bytes (--full)\n"), "{shown}");
        assert_eq!(drawn(&line, true).matches('é').count(), 5_000);
    }
}

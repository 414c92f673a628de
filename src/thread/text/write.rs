//! Writes the text of a record into one buffer, without intermediate values.

use std::io::Write as _;

use serde::Serialize;
use uuid::Uuid;

use crate::envelope::{Message, MessageKind};
use crate::ids::{Attempt, CallId, PayloadName};
use crate::thread::{Fact, Input, Opener, Opening, Record, Verdict};

/// Decimal digits of the greatest `u64`.
const NUMBER_DIGITS_MAX: usize = 20;

impl Record {
    /// Appends the text of the record to `out`.
    pub fn write_text(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        RecordWriter { record: self, out, latest: None }.record()
    }
}

struct RecordWriter<'r, 'o> {
    record: &'r Record,
    out: &'o mut Vec<u8>,
    /// Call of the message that was written last.
    latest: Option<CallId>,
}

impl RecordWriter<'_, '_> {
    fn record(&mut self) -> std::io::Result<()> {
        self.raw("{\"input\":");
        self.input()?;
        self.raw(",\"facts\":[");

        for (index, fact) in self.record.facts.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            self.fact(fact)?;
        }

        self.raw("]}");
        Ok(())
    }

    fn input(&mut self) -> std::io::Result<()> {
        let mut numbers = FactNumbers::default();
        match &self.record.input {
            Input::Submitted { id, client, thread, suggested, key, verdict } => {
                self.uuid("{\"submitted\":{\"id\":\"", id.0);
                self.plain("\",\"client\":\"", client.as_str());
                self.raw("\"");
                self.option(",\"thread\":", thread)?;
                self.option(",\"suggested\":", suggested)?;
                self.option(",\"key\":", key)?;
                self.raw(",\"verdict\":");
                self.verdict(verdict, &mut numbers);
            }
            Input::Outcome { listener, call, attempt, verdicts, turn, arrived } => {
                self.plain("{\"outcome\":{\"listener\":\"", listener.as_str());
                self.uuid("\",\"call\":\"", call.0.0);
                self.attempt("\",\"attempt\":\"", *attempt);
                self.raw("\",\"verdicts\":[");
                for (index, verdict) in verdicts.iter().enumerate() {
                    if index > 0 {
                        self.raw(",");
                    }
                    self.verdict(verdict, &mut numbers);
                }
                self.raw("]");
                self.option(",\"turn\":", turn)?;
                self.option(",\"arrived\":", arrived)?;
            }
            other => return self.json(other),
        }

        self.raw("}}");
        Ok(())
    }

    fn verdict(&mut self, verdict: &Verdict, numbers: &mut FactNumbers) {
        let (word, digest) = match verdict {
            Verdict::Passed(digest) => ("passed", digest),
            Verdict::Refused(digest) => ("refused", digest),
        };

        match numbers.of(verdict, &self.record.facts) {
            Some(number) => {
                self.plain("{\"", word);
                self.number("\":", number as u64);
                self.raw("}");
            }
            None => {
                self.plain("{\"", word);
                self.raw("\":\"");
                self.out.extend_from_slice(&digest.hex());
                self.raw("\"}");
            }
        }
    }

    fn fact(&mut self, fact: &Fact) -> std::io::Result<()> {
        match fact {
            Fact::OutcomeReceived { call, attempt } => {
                self.raw("{\"heard\":{");
                if about(&self.record.input) != Some((*call, *attempt)) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.attempt("\",\"attempt\":\"", *attempt);
                    self.raw("\"");
                }
            }
            Fact::Disposed { message, how } => {
                self.uuid("{\"disposed\":{\"message\":\"", message.0);
                self.plain("\",\"how\":\"", how.as_str());
                self.raw("\"");
            }
            Fact::CallClosed { call, how } => {
                self.raw("{\"call-closed\":{");
                if about(&self.record.input).map(|(call, _)| call) != Some(*call) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.raw("\",");
                }
                self.raw("\"how\":");
                self.json(how)?;
            }
            Fact::HandedOver { call, attempt } => {
                self.raw("{\"handed-over\":{");
                if self.latest != Some(*call) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.raw("\",");
                }
                self.attempt("\"attempt\":\"", *attempt);
                self.raw("\"");
            }
            Fact::Accepted { message, opening, key } => {
                self.latest = message.call;
                self.message(message)?;
                if let Some(opening) = opening {
                    self.opening(message, opening)?;
                }
                self.option(",\"key\":", key)?;
            }
            other => return self.json(other),
        }

        self.raw("}}");
        Ok(())
    }

    fn message(&mut self, message: &Message) -> std::io::Result<()> {
        self.uuid("{\"accepted\":{\"id\":\"", message.id.0);
        self.plain("\",\"kind\":\"", message.kind.as_str());
        self.plain("\",\"from\":\"", message.from.as_str());
        self.plain("\",\"to\":\"", message.to.as_str());
        if message.thread != self.record.tree {
            self.plain("\",\"thread\":\"", message.thread.as_str());
        }

        self.number("\",\"seq\":", message.seq);
        if let Some(cause) = message.cause {
            self.uuid(",\"cause\":\"", cause.0);
            self.raw("\"");
        }

        let own = (message.kind == MessageKind::Call).then_some(CallId(message.id));
        match message.call {
            call if call == own => {}
            Some(call) => {
                self.uuid(",\"call\":\"", call.0.0);
                self.raw("\"");
            }
            None => self.raw(",\"call\":null"),
        }

        if message.time != self.record.time {
            write!(self.out, ",\"time\":{}", message.time.0)?;
        }

        self.name(&message.name)?;
        self.raw(",\"digest\":\"");
        self.out.extend_from_slice(&message.payload.digest.hex());
        self.number("\",\"length\":", message.payload.len() as u64);
        Ok(())
    }

    fn opening(&mut self, message: &Message, opening: &Opening) -> std::io::Result<()> {
        self.raw(match opening.opener {
            Opener::Client { .. } => ",\"opening\":{\"by\":\"client\"",
            Opener::Call { .. } => ",\"opening\":{\"by\":\"call\"",
        });
        if *opening.opener.name() != message.from {
            self.plain(",\"name\":\"", opening.opener.name().as_str());
            self.raw("\"");
        }

        if let Opener::Call { call, thread, .. } = &opening.opener {
            if Some(call.0) != message.cause {
                self.uuid(",\"call\":\"", call.0.0);
                self.raw("\"");
            }
            if *thread != message.thread {
                self.plain(",\"thread\":\"", thread.as_str());
                self.raw("\"");
            }
        }

        self.option(",\"group\":", &opening.group)?;
        self.raw(if opening.forward { ",\"forward\":true}" } else { "}" });
        Ok(())
    }

    fn name(&mut self, name: &PayloadName) -> std::io::Result<()> {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        self.raw(",\"name\":");
        if !name.namespace.bytes().all(is_plain) || !name.local.bytes().all(is_plain) {
            return self.json(name);
        }

        self.raw("\"");
        if !name.namespace.is_empty() {
            self.plain("{", &name.namespace);
            self.raw("}");
        }
        self.plain(&name.local, "\"");
        Ok(())
    }

    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes `text` as it is. `text` must contain nothing that JSON escapes.
    fn plain(&mut self, before: &str, text: &str) {
        self.raw(before);
        self.raw(text);
    }

    fn attempt(&mut self, before: &str, attempt: Attempt) {
        self.number(before, attempt.epoch.into());
        self.number(".", attempt.n.into());
    }

    fn number(&mut self, before: &str, number: u64) {
        self.raw(before);
        push_number(self.out, number);
    }

    fn uuid(&mut self, before: &str, id: Uuid) {
        self.raw(before);
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        self.raw(id.as_hyphenated().encode_lower(&mut text));
    }

    fn option<T: Serialize>(&mut self, before: &str, value: &Option<T>) -> std::io::Result<()> {
        let Some(value) = value else { return Ok(()) };
        self.raw(before);
        self.json(value)
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> std::io::Result<()> {
        serde_json::to_writer(&mut *self.out, value).map_err(Into::into)
    }
}

/// Appends the decimal digits of a number, without the cost of a formatter.
fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; NUMBER_DIGITS_MAX];
    let mut rest = number;
    let mut left = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
        left -= 1;
        if rest == 0 {
            break;
        }
    }

    out.extend_from_slice(digits.get(left..).unwrap_or_default());
}

/// Returns the call and the attempt that an input names, if any.
pub(super) fn about(input: &Input) -> Option<(CallId, Attempt)> {
    match input {
        Input::Outcome { call, attempt, .. } => Some((*call, *attempt)),
        _ => None,
    }
}

/// Finds the index of the fact to which a verdict refers. Each search begins after the fact of the
/// previous verdict, because verdicts usually have the order of their facts. Searches from the
/// start would take quadratic time.
#[derive(Default)]
struct FactNumbers {
    passed: usize,
    refused: usize,
}

impl FactNumbers {
    fn of(&mut self, verdict: &Verdict, facts: &[Fact]) -> Option<usize> {
        let next = match verdict {
            Verdict::Passed(_) => &mut self.passed,
            Verdict::Refused(_) => &mut self.refused,
        };

        let later = facts.get(*next..).unwrap_or_default();
        let later = later.iter().position(|fact| fits(verdict, fact)).map(|at| at + *next);
        let number = later.or_else(|| facts.iter().position(|fact| fits(verdict, fact)))?;
        *next = number + 1;
        Some(number)
    }
}

fn fits(verdict: &Verdict, fact: &Fact) -> bool {
    match (verdict, fact) {
        (Verdict::Passed(digest), Fact::Accepted { message, .. }) => {
            message.payload.digest == *digest
        }
        (Verdict::Refused(digest), Fact::Refused { refusal, .. }) => refusal.digest == *digest,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_a_formatter_writes_them() {
        for number in [0, 7, 10, 1024, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}

//! Writes the text of a record into one buffer, without intermediate values.

use std::io::Write as _;

use serde::Serialize;
use uuid::Uuid;

use super::implied_values::{AboutOutcome, implied_call, implied_disposition};
use crate::envelope::{Message, MessageKind, Money, Turn};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, PayloadName};
use crate::thread::{Closing, Fact, Input, Opener, Opening, Record, Verdict};

/// Maximum number of decimal digits in a `u64`.
const NUMBER_DIGITS_MAX: usize = 20;

impl Record {
    /// Appends the text of the record to `out`.
    pub fn write_text(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let about = AboutOutcome::of(&self.input);
        RecordWriter { record: self, out, about, latest: None, latest_call: None }.record()
    }
}

struct RecordWriter<'r, 'o> {
    record: &'r Record,
    out: &'o mut Vec<u8>,
    /// Values of the record's input that the texts of facts may leave out, such as the call and the
    /// listener. `None` if the input is not an outcome, that is, the payloads that a listener
    /// returned.
    about: Option<AboutOutcome>,
    /// Message that was written last; `None` before the first message of the record.
    latest: Option<MessageId>,
    /// Call of the message that was written last. `None` before the first message, or if the last
    /// message belongs to no call.
    latest_call: Option<CallId>,
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
                if let Some(turn) = turn {
                    self.turn(turn)?;
                }
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
                let own = self.about.as_ref().map(|about| (about.call, about.attempt));
                if own != Some((*call, *attempt)) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.attempt("\",\"attempt\":\"", *attempt);
                    self.raw("\"");
                }
            }
            Fact::Disposed { message, how } => {
                self.raw("{\"disposed\":{");
                let mut before = "";
                if self.latest.or(self.input_call()) != Some(*message) {
                    self.uuid("\"message\":\"", message.0);
                    self.raw("\"");
                    before = ",";
                }
                if *how != implied_disposition(self.latest) {
                    self.raw(before);
                    self.plain("\"how\":\"", how.as_str());
                    self.raw("\"");
                }
            }
            Fact::Used { call, agent, tokens_in, tokens_out, money, attempt } => {
                let spending = (*tokens_in, *tokens_out, *money);
                self.used(*call, agent.as_ref(), spending, *attempt);
            }
            Fact::CallClosed { call, how } => {
                self.raw("{\"call-closed\":{");
                let mut before = "";
                if self.input_call() != Some(call.0) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.raw("\"");
                    before = ",";
                }
                if *how != Closing::Completed {
                    self.raw(before);
                    self.raw("\"how\":");
                    self.json(how)?;
                }
            }
            Fact::HandedOver { call, attempt } => {
                self.raw("{\"handed-over\":{");
                if self.latest_call != Some(*call) {
                    self.uuid("\"call\":\"", call.0.0);
                    self.raw("\",");
                }
                self.attempt("\"attempt\":\"", *attempt);
                self.raw("\"");
            }
            Fact::Accepted { message, opening, key } => {
                self.latest = Some(message.id);
                self.latest_call = message.call;
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

    fn used(
        &mut self,
        call: CallId,
        agent: Option<&ListenerName>,
        spending: (u64, u64, Money),
        attempt: Option<Attempt>,
    ) {
        let about = self.about.as_ref();
        let is_own = about.is_some_and(|about| about.is_by(call, agent));
        let is_of_turn = about.is_some_and(|about| about.spending == Some(spending));
        self.raw("{\"used\":{");

        let mut before = "";
        if !is_own {
            self.uuid("\"call\":\"", call.0.0);
            if let Some(agent) = agent {
                self.plain("\",\"agent\":\"", agent.as_str());
            }
            self.raw("\"");
            before = ",";
        }
        if !is_of_turn {
            self.raw(before);
            let (tokens_in, tokens_out, money) = spending;
            self.spending(tokens_in, tokens_out, money);
            before = ",";
        }
        if let Some(attempt) = attempt {
            self.raw(before);
            self.attempt("\"attempt\":\"", attempt);
            self.raw("\"");
        }
    }

    /// Returns the id of the message that opened the call of the record's input. Returns `None` if
    /// the input is not an outcome.
    fn input_call(&self) -> Option<MessageId> {
        self.about.as_ref().map(|about| about.call.0)
    }

    /// Writes the parts of a turn that are not empty.
    fn turn(&mut self, turn: &Turn) -> std::io::Result<()> {
        // All fields are named, so that the compiler objects to a new one that is not written.
        let Turn {
            note,
            findings,
            broken,
            tokens_in,
            tokens_out,
            money,
            spent,
            written,
            inputs,
            recorded: _,
        } = turn;
        self.raw(",\"turn\":{");
        self.spending(*tokens_in, *tokens_out, *money);
        self.option(",\"note\":", &(!note.is_empty()).then_some(note))?;
        self.option(",\"findings\":", &(!findings.is_empty()).then_some(findings))?;
        self.option(",\"broken\":", &(!broken.is_empty()).then_some(broken))?;
        self.option(",\"spent\":", spent)?;
        self.option(",\"written\":", &(!written.is_empty()).then_some(written))?;
        self.option(",\"inputs\":", inputs)?;
        self.raw("}");
        Ok(())
    }

    fn spending(&mut self, tokens_in: u64, tokens_out: u64, money: Money) {
        self.number("\"tokens_in\":", tokens_in);
        self.number(",\"tokens_out\":", tokens_out);
        if !money.is_zero() {
            self.number(",\"money\":", money.0);
        }
    }

    fn message(&mut self, message: &Message) -> std::io::Result<()> {
        let is_sender_implied =
            self.about.as_ref().is_some_and(|about| about.is_sender(message.kind, &message.from));
        let about = self.about.as_ref().filter(|_| is_sender_implied);
        let is_to_listener = about.is_some_and(|about| about.listener == message.to);

        self.uuid("{\"accepted\":{\"id\":\"", message.id.0);
        self.raw("\"");
        if !is_sender_implied || message.kind != MessageKind::Call {
            self.plain(",\"kind\":\"", message.kind.as_str());
            self.raw("\"");
        }
        if !is_sender_implied {
            self.plain(",\"from\":\"", message.from.as_str());
            self.raw("\"");
        }
        if !is_to_listener {
            self.plain(",\"to\":\"", message.to.as_str());
            self.raw("\"");
        }
        if message.thread != self.record.tree {
            self.plain(",\"thread\":\"", message.thread.as_str());
            self.raw("\"");
        }

        self.number(",\"seq\":", message.seq);
        match message.cause {
            None if is_sender_implied => self.raw(",\"cause\":null"),
            None => {}
            cause if cause == self.input_call() && is_sender_implied => {}
            cause if cause == self.input_call() => self.raw(",\"cause\":\"input\""),
            Some(cause) => {
                self.uuid(",\"cause\":\"", cause.0);
                self.raw("\"");
            }
        }

        match message.call {
            call if call
                == implied_call(message.id, message.kind, message.cause, is_sender_implied) => {}
            Some(call) if Some(call.0) == message.cause => self.raw(",\"call\":\"cause\""),
            Some(call) if Some(call.0) == self.input_call() => self.raw(",\"call\":\"input\""),
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

    /// Writes `text` as it is. `text` must contain no character that JSON escapes.
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

/// Finds, for each verdict of a record, the index of the fact to which the verdict refers. Passed
/// and refused verdicts are searched separately. `passed` and `refused` are the indexes at which
/// the next search begins: directly after the fact that was found last. If a search reaches the end
/// of the list, it continues from the beginning. Verdicts usually have the order of their facts, so
/// most searches end at once.
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

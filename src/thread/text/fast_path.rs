//! A fast path for records of outcomes, which are nearly all records. The fast path parses only the
//! exact form that organism writes, without a general JSON parser. [`super::read`] parses every
//! other form.

use std::borrow::Cow;

use uuid::Uuid;

use super::implied_values::AboutOutcome;
use super::read::RecordReader;
use super::serde_form::{
    AcceptedForm, FactOrDigest, MessageReference, OpenerKind, OpeningForm, UsedForm, VerdictForm,
};
use crate::envelope::{Disposition, MessageKind, Money, Turn};
use crate::ids::{CallId, Digest, ListenerName, MessageId};
use crate::thread::{Closing, Fact, Input};

/// Parses a record of an outcome. Returns `None` if the text has another form or is invalid.
pub fn outcome(reader: &mut RecordReader<'_>, text: &str) -> Option<(Input, Vec<Fact>)> {
    let mut text = RecordText(text);
    let listener = text.after("{\"input\":{\"outcome\":{\"listener\":\"")?.plain()?;
    let call = CallId(MessageId(text.after(",\"call\":\"")?.uuid()?));
    let attempt = text.after(",\"attempt\":\"")?.plain()?.parse().ok()?;
    let verdicts = text.after(",\"verdicts\":[")?.row(RecordText::verdict)?;
    let turn = text.turn()?;
    let listener = reader.names.listener(listener).ok()?;
    let spending = turn.as_ref().map(|turn| (turn.tokens_in, turn.tokens_out, turn.money));
    // Must be set before the facts are read: they omit what the outcome states.
    reader.about = Some(AboutOutcome { call, attempt, listener: listener.clone(), spending });
    let facts = text.after("}},\"facts\":[")?.row(|text| text.fact(reader))?;
    if text.0 != "}" {
        return None;
    }

    let verdicts = verdicts.into_iter().map(|verdict| verdict.verdict(&facts).ok());
    let verdicts = verdicts.collect::<Option<_>>()?;
    Some((Input::Outcome { listener, call, attempt, verdicts, turn, arrived: None }, facts))
}

/// The part of a record's text that has not been parsed yet.
struct RecordText<'t>(&'t str);

impl<'t> RecordText<'t> {
    fn after(&mut self, token: &str) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(token)?;
        Some(self)
    }

    fn skip(&mut self, token: &str) -> bool {
        self.after(token).is_some()
    }

    /// Parses the rest of a string, after its opening quote. Returns `None` if the string contains
    /// an escape.
    fn plain(&mut self) -> Option<&'t str> {
        let end = memchr::memchr2(b'"', b'\\', self.0.as_bytes())?;
        let (text, rest) = self.0.split_at_checked(end)?;
        if text.bytes().any(|byte| byte < b' ') {
            return None;
        }
        self.0 = rest.strip_prefix('"')?;
        Some(text)
    }

    /// Parses the rest of a string, after its opening quote. Returns `None` if the string does not
    /// have exactly `length` bytes.
    fn fixed(&mut self, length: usize) -> Option<&'t str> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest.strip_prefix('"')?;
        Some(text)
    }

    fn uuid(&mut self) -> Option<Uuid> {
        Uuid::try_parse(self.fixed(uuid::fmt::Hyphenated::LENGTH)?).ok()
    }

    fn number<N: std::str::FromStr>(&mut self) -> Option<N> {
        let end = self.0.bytes().position(|byte| !byte.is_ascii_digit())?;
        let (digits, rest) = self.0.split_at_checked(end)?;
        if digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        self.0 = rest;
        digits.parse().ok()
    }

    /// Parses the rest of an array, after its opening bracket. Returns `None` if `element` fails,
    /// or if the array has another form than the one that organism writes.
    fn row<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut row = Vec::new();
        while !self.skip("]") {
            if !row.is_empty() {
                self.after(",")?;
            }
            row.push(element(self)?);
        }

        Some(row)
    }

    fn verdict(&mut self) -> Option<VerdictForm> {
        let verdict = if self.skip("{\"passed\":") {
            VerdictForm::Passed
        } else {
            self.after("{\"refused\":").map(|_| VerdictForm::Refused)?
        };

        let fact = FactOrDigest::Fact(self.number()?);
        self.after("}")?;
        Some(verdict(fact))
    }

    /// Parses a model turn that has only token counts and a price. Returns `Some(None)` if the next
    /// part of the text is not a turn. Returns `None` if the turn has further parts, such as a note
    /// or findings.
    fn turn(&mut self) -> Option<Option<Turn>> {
        let format_2 = ",\"turn\":{\"note\":\"\",\"findings\":[],\"broken\":[],\"tokens_in\":";
        let is_format_2 = self.skip(format_2);
        if !is_format_2 && !self.skip(",\"turn\":{\"tokens_in\":") {
            return Some(None);
        }

        let (tokens_in, tokens_out, money) = self.spending()?;
        self.after(if is_format_2 { ",\"spent\":null}" } else { "}" })?;
        Some(Some(Turn { tokens_in, tokens_out, money, ..Turn::default() }))
    }

    /// Parses the prompt tokens, the answer tokens, and the price of all these tokens. If the text
    /// states no price, the price is 0. Returns `None` if the text has another form.
    fn spending(&mut self) -> Option<(u64, u64, Money)> {
        let tokens_in = self.number()?;
        let tokens_out = self.after(",\"tokens_out\":")?.number()?;
        let money = if self.skip(",\"money\":") { self.number()? } else { 0 };
        Some((tokens_in, tokens_out, Money(money)))
    }

    fn fact(&mut self, reader: &mut RecordReader<'_>) -> Option<Fact> {
        if self.skip("{\"heard\":{}}") {
            let about = reader.about.as_ref()?;
            return Some(Fact::OutcomeReceived { call: about.call, attempt: about.attempt });
        }

        let fact = if self.skip("{\"disposed\":{") {
            let stated = self.maybe_uuid("\"message\":\"")?.map(MessageId);
            let how = if stated.is_some() { ",\"how\":\"" } else { "\"how\":\"" };
            let message = stated.or_else(|| reader.implied_message())?;
            let how = if self.skip(how) {
                self.one_of(&Disposition::ALL, Disposition::as_str)?
            } else {
                reader.implied_disposition()
            };
            Fact::Disposed { message, how }
        } else if self.skip("{\"accepted\":{\"id\":\"") {
            let form = self.accepted()?;
            reader.accepted(form).ok()?
        } else if self.skip("{\"used\":{") {
            let form = self.used()?;
            reader.used(form).ok()?
        } else if self.skip("{\"handed-over\":{\"") {
            let call = if self.skip("call\":\"") {
                let call = CallId(MessageId(self.uuid()?));
                self.after(",\"")?;
                call
            } else {
                reader.latest_call?
            };
            let attempt = self.after("attempt\":\"")?.plain()?.parse().ok()?;
            Fact::HandedOver { call, attempt }
        } else {
            // A format 2 or 3 text states this manner of closing; later ones imply it.
            self.after("{\"call-closed\":{")?.skip("\"how\":\"completed\"");
            Fact::CallClosed { call: reader.input_call()?, how: Closing::Completed }
        };

        self.after("}}")?;
        Some(fact)
    }

    fn used(&mut self) -> Option<UsedForm> {
        let mut form = UsedForm::default();
        let mut tokens = "\"tokens_in\":";
        if self.skip("\"call\":\"") {
            form.call = Some(CallId(MessageId(self.uuid()?)));
            let agent = self.after(",\"agent\":\"")?.plain()?;
            form.agent = Some(ListenerName::parse(agent).ok()?);
            tokens = ",\"tokens_in\":";
        }

        if self.skip(tokens) {
            let (tokens_in, tokens_out, money) = self.spending()?;
            form.tokens_in = Some(tokens_in);
            form.tokens_out = Some(tokens_out);
            form.money = money;
        }
        Some(form)
    }

    fn accepted(&mut self) -> Option<AcceptedForm<'t>> {
        let id = MessageId(self.uuid()?);
        Some(AcceptedForm {
            id,
            kind: self.maybe_kind()?,
            from: self.maybe(",\"from\":\"")?,
            to: self.maybe(",\"to\":\"")?,
            thread: self.maybe(",\"thread\":\"")?,
            seq: self.after(",\"seq\":")?.number()?,
            cause: self.maybe_reference(",\"cause\":")?,
            call: self.maybe_reference(",\"call\":")?,
            time: None,
            name: Cow::Borrowed(self.after(",\"name\":\"")?.plain()?),
            digest: Digest::parse(self.after(",\"digest\":\"")?.fixed(64)?).ok()?,
            length: self.after(",\"length\":")?.number()?,
            opening: self.opening()?,
            key: None,
        })
    }

    fn opening(&mut self) -> Option<Option<OpeningForm<'t>>> {
        if !self.skip(",\"opening\":{\"by\":\"call\"") {
            return Some(None);
        }

        let name = self.maybe(",\"name\":\"")?;
        let call = self.maybe_uuid(",\"call\":\"")?.map(|call| CallId(MessageId(call)));
        let thread = self.maybe(",\"thread\":\"")?;
        self.after("}")?;
        Some(Some(OpeningForm {
            by: OpenerKind::Call,
            name,
            call,
            thread,
            group: None,
            forward: false,
        }))
    }

    fn maybe_kind(&mut self) -> Option<Option<MessageKind>> {
        if self.skip(",\"kind\":\"") {
            self.one_of(&MessageKind::ALL, MessageKind::as_str).map(Some)
        } else {
            Some(None)
        }
    }

    fn maybe(&mut self, token: &str) -> Option<Option<Cow<'t, str>>> {
        if self.skip(token) {
            self.plain().map(|text| Some(Cow::Borrowed(text)))
        } else {
            Some(None)
        }
    }

    fn maybe_uuid(&mut self, token: &str) -> Option<Option<Uuid>> {
        if self.skip(token) { self.uuid().map(Some) } else { Some(None) }
    }

    /// Parses `token`, and the reference to a message, or `null`, that follows `token`:
    /// - If the text does not continue with `token`, returns `Some(None)`.
    /// - If `null` follows `token`, returns `Some(Some(None))`.
    /// - If a reference follows `token`, returns it in three layers of `Some`.
    /// - If anything else follows `token`, returns `None`.
    fn maybe_reference(&mut self, token: &str) -> Option<Option<Option<MessageReference>>> {
        if !self.skip(token) {
            return Some(None);
        }
        if self.skip("null") {
            return Some(Some(None));
        }

        self.after("\"")?;
        let reference = if self.skip("input\"") {
            MessageReference::Input
        } else if self.skip("cause\"") {
            MessageReference::Cause
        } else {
            MessageReference::Id(MessageId(self.uuid()?))
        };
        Some(Some(Some(reference)))
    }

    fn one_of<T: Copy>(&mut self, all: &[T], text: fn(T) -> &'static str) -> Option<T> {
        let word = self.plain()?;
        all.iter().copied().find(|value| text(*value) == word)
    }
}

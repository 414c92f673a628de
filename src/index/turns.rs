//! Writes the index rows of model turns. The values come from the notes that record the turns.

use std::borrow::Cow;

use rusqlite::params;

use crate::envelope::Message;
use crate::ids::{Digest, MessageId};
use crate::thread::{Fact, Record};
use crate::xml::scan::attributes;

use super::fold::IndexFold;
use super::hours::{EventNames, TurnUsage};
use super::threads::TreeNameRole;

const INSERT: &str = "INSERT INTO turn_row(n, thread, call, position, time, agent, turn, provider, \
                      model, answered_by, stop, tokens_in, tokens_out, estimated, cost, currency, \
                      latency, failovers, prompt, inputs, recorded) VALUES (?1, ?2, ?3, ?4, \
                      ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
                      ?21)";

/// Name that stands for the model of a turn whose note was redacted, so that sums by model include
/// the turn.
const REDACTED_MODEL: &str = "[redacted]";

/// Attributes of the note that records a turn.
struct NoteValues<'t>(Vec<(&'t str, Cow<'t, str>)>);

impl<'t> NoteValues<'t> {
    fn of(record: &Record, note: &'t Message) -> Self {
        if note.payload.is_redacted() {
            Self::of_redacted(record, note)
        } else {
            Self(attributes(note.payload.as_str()))
        }
    }

    /// Returns the attributes of a redacted note that the rest of the record still states: the
    /// agent, the call, and the tokens and the cost that were charged.
    fn of_redacted(record: &Record, note: &Message) -> Self {
        let agent = note.to.to_string();
        let mut values = vec![("agent", agent), ("model", REDACTED_MODEL.to_owned())];
        values.extend(note.call.map(|call| ("call", call.to_string())));
        for fact in &record.facts {
            if let Fact::Used { call, tokens_in, tokens_out, money, .. } = fact
                && note.call == Some(*call)
            {
                values.push(("tokens_in", tokens_in.to_string()));
                values.push(("tokens_out", tokens_out.to_string()));
                values.push(("cost", money.to_string()));
            }
        }
        Self(values.into_iter().map(|(name, value)| (name, Cow::Owned(value))).collect())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(called, _)| *called == name).map(|(_, value)| &**value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    fn digest(&self, name: &str) -> Option<Digest> {
        self.text(name).and_then(|text| Digest::parse(text).ok())
    }

    fn call(&self) -> Option<MessageId> {
        self.text("call").and_then(|text| text.parse().ok())
    }
}

/// Adds the turn that `note` records. If the note was redacted, adds what other parts of the record
/// still state about the turn.
pub fn add(
    fold: &mut IndexFold<'_>,
    record: &Record,
    note: &Message,
    (n, thread): (i64, i64),
) -> rusqlite::Result<()> {
    let is_redacted = note.payload.is_redacted();
    let values = NoteValues::of(record, note);
    let Some(agent) = values.text("agent") else { return Ok(()) };
    let agent = fold.names.number(agent)?;
    fold.threads.add_name(thread, TreeNameRole::Agent, agent)?;
    let provider = fold.names.optional(values.text("provider"))?;
    let model = fold.names.optional(values.text("model"))?;
    let answered_by = fold.names.optional(values.text("answered_by"))?;
    let stop = fold.names.optional(values.text("stop"))?;
    let currency = fold.names.optional(values.text("currency"))?;
    if let Some(currency) = currency {
        fold.threads.add_name(thread, TreeNameRole::Currency, currency)?;
    }
    let call = values.call();
    let prompt = values.digest("prompt");
    let inputs = values.digest("inputs");
    // Every other `<` in the note's texts is escaped, so each match is an element of the note.
    let failovers = note.payload.as_str().matches("<tried ").count();
    let latency = values.number("latency_ms").unwrap_or_default().saturating_mul(1_000);
    let numbers = TurnUsage {
        failovers: i64::try_from(failovers).unwrap_or(i64::MAX),
        tokens_in: values.number("tokens_in").unwrap_or_default(),
        tokens_out: values.number("tokens_out").unwrap_or_default(),
        cost_nano: values.text("cost").map_or(0, billionths),
        latency: (!is_redacted).then_some(latency),
    };
    let is_recorded = values.text("recorded").is_some();
    if !is_recorded {
        let names = EventNames::of_turn(agent, answered_by.or(model));
        fold.hours.add_turn(record.time.0, n, names, numbers);
    }

    fold.db.prepare_cached(INSERT)?.execute(params![
        n,
        thread,
        call.as_ref().map(|call| call.0.as_bytes().as_slice()),
        record.position.0,
        record.time.0,
        agent,
        (!is_redacted).then(|| values.number("turn").unwrap_or_default()),
        provider,
        model,
        answered_by,
        stop,
        numbers.tokens_in,
        numbers.tokens_out,
        (!is_redacted).then(|| values.text("estimated") == Some("true")),
        numbers.cost_nano,
        currency,
        numbers.latency,
        (!is_redacted).then_some(numbers.failovers),
        prompt.as_ref().map(|digest| digest.0.as_slice()),
        inputs.as_ref().map(|digest| digest.0.as_slice()),
        is_recorded
    ])?;
    fold.threads.add(thread, record, |sums| sums.turns += 1)
}

/// Converts an amount such as `0.0042` to billionths, exactly.
fn billionths(amount: &str) -> i64 {
    let (units, decimals) = amount.split_once('.').unwrap_or((amount, ""));
    let decimals = format!("{decimals:0<9}");
    let rest = decimals.get(..9).and_then(|text| text.parse::<i64>().ok());
    let units = units.parse::<i64>().unwrap_or_default();
    units.saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::billionths;

    #[test]
    fn amounts_are_read_without_rounding() {
        assert_eq!(billionths("0.0042"), 4_200_000);
        assert_eq!(billionths("5.00"), 5_000_000_000);
        assert_eq!(billionths("0.000000001"), 1);
        assert_eq!(billionths("12"), 12_000_000_000);
    }
}

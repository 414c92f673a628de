//! Hourly statistics of model calls, attempts and refusals: counts, sums and durations for each
//! hour in UTC, by agent, model, listener and rule of refusal. Statistics about a longer time read
//! these totals instead of every event.

use std::collections::HashMap;
use std::ops::Range;

use rusqlite::{Connection, Row, params};

use crate::envelope::CurrencyTotals;
use crate::word_enum::word_enum;

use super::duration_histogram::{DurationHistogram, LAST_BUCKET, bucket_bounds};

/// Number of microseconds in an hour.
pub const HOUR_MICROS: i64 = 3_600_000_000;
/// Value of a field of [`EventNames`] if the event has no name of that kind.
pub const NO_NAME: i64 = -1;

/// The names under which an event is counted. Each name is a number from the index's table of
/// names, or [`NO_NAME`] if the event has no such name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventNames {
    /// The agent of a model call, or the sender of a refused payload.
    pub agent: i64,
    /// The model that answered a model call.
    pub model: i64,
    /// The listener of an attempt or of a model call, or the sender of a refused payload.
    pub listener: i64,
    /// The rule under which a payload was refused.
    pub rule: i64,
}

impl EventNames {
    pub fn of_turn(agent: i64, model: Option<i64>) -> Self {
        Self { agent, model: model.unwrap_or(NO_NAME), listener: agent, rule: NO_NAME }
    }

    pub fn of_refusal(sender: i64, rule: i64) -> Self {
        Self { agent: sender, model: NO_NAME, listener: sender, rule }
    }

    pub fn of_attempt(listener: i64) -> Self {
        Self { agent: NO_NAME, model: NO_NAME, listener, rule: NO_NAME }
    }
}

/// Totals of a set of events: counts, sums and durations.
#[derive(Debug, Clone, Default)]
pub struct EventTotals {
    pub turns: u64,
    /// Number of failed model requests after which a later request of the same turn was answered.
    pub failovers: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Cost in billionths of the currency unit. Amounts in different currencies are added up as
    /// plain numbers.
    pub cost_nano: u64,
    /// Cost in each currency. Empty in the totals of single hours.
    pub costs: CurrencyTotals,
    /// Durations from the request of a model call to its answer.
    pub latency: DurationHistogram,
    pub refusals: u64,
    /// Number of ended attempts.
    pub attempts: u64,
    /// Number of attempts that ended without an answer.
    pub failed: u64,
    /// Durations for which calls were queued: from the time at which a call became ready until it
    /// was handed over to the listener.
    pub queued: DurationHistogram,
    /// Durations for which calls were with listeners: from the hand-over of a call to the end of
    /// the attempt.
    pub worked: DurationHistogram,
}

impl EventTotals {
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.failovers += other.failovers;
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.cost_nano = self.cost_nano.saturating_add(other.cost_nano);
        self.costs.add_all(&other.costs);
        self.latency.add(&other.latency);
        self.refusals += other.refusals;
        self.attempts += other.attempts;
        self.failed += other.failed;
        self.queued.add(&other.queued);
        self.worked.add(&other.worked);
    }

    fn measured(&mut self, measure: Measure) -> &mut DurationHistogram {
        match measure {
            Measure::Latency => &mut self.latency,
            Measure::Queue => &mut self.queued,
            Measure::Work => &mut self.worked,
        }
    }
}

word_enum! {
    /// A kind of measured duration, such as the time for which a call was queued. Rows store each
    /// kind as one word.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Measure {
        Latency = "latency",
        Queue = "queue",
        Work = "work",
    }
}

/// Ranges of row numbers that contain all events of one hour. A query for a part of the hour reads
/// only rows in these ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourSpan {
    /// Lowest and highest row number of turns and refusals.
    pub events: (i64, i64),
    /// Lowest and highest row number of the calls with an attempt that ended in this hour.
    pub calls: (i64, i64),
}

impl HourSpan {
    const EMPTY: Self = Self { events: (i64::MAX, i64::MIN), calls: (i64::MAX, i64::MIN) };
}

fn widen(span: &mut (i64, i64), n: i64) {
    *span = (span.0.min(n), span.1.max(n));
}

/// The times of an ended attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptTimes {
    pub call: i64,
    pub listener: i64,
    pub ready: i64,
    pub handed_over: i64,
    pub ended: i64,
    pub is_handled: bool,
}

/// Usage of one model call. The usage is added to the totals of the hour in which the model turn
/// was recorded.
#[derive(Debug, Clone, Copy)]
pub struct TurnUsage {
    pub failovers: i64,
    pub tokens_in: i64,
    pub tokens_out: i64,
    pub cost_nano: i64,
    /// Microseconds that the model took; `None` if the note of the turn was redacted.
    pub latency: Option<i64>,
}

/// Totals of the events since the last flush, for each hour and each combination of names.
pub struct HourRows<'d> {
    db: &'d Connection,
    sums: HashMap<(i64, EventNames), EventTotals, foldhash::fast::RandomState>,
    spans: HashMap<i64, HourSpan, foldhash::fast::RandomState>,
}

impl<'d> HourRows<'d> {
    pub fn new(db: &'d Connection) -> Self {
        Self { db, sums: HashMap::default(), spans: HashMap::default() }
    }

    /// Counts a model call. `n` is the number of the model call's row.
    pub fn add_turn(&mut self, time: i64, n: i64, names: EventNames, turn: TurnUsage) {
        widen(&mut self.span(time).events, n);
        self.sums(time, names).add_turn(turn);
    }

    /// Adds `count` refusals to the totals of the hour that contains `time`. `n` is the row number
    /// of a single refusal; `None` if the record states only a number of refusals, which have no
    /// rows.
    pub fn add_refusals(&mut self, time: i64, n: Option<i64>, names: EventNames, count: u64) {
        let span = self.span(time);
        if let Some(n) = n {
            widen(&mut span.events, n);
        }
        self.sums(time, names).refusals += count;
    }

    pub fn add_attempt(&mut self, attempt: AttemptTimes) {
        widen(&mut self.span(attempt.ended).calls, attempt.call);
        self.sums(attempt.ended, EventNames::of_attempt(attempt.listener)).add_attempt(attempt);
    }

    fn sums(&mut self, time: i64, names: EventNames) -> &mut EventTotals {
        self.sums.entry((hour_of(time), names)).or_default()
    }

    fn span(&mut self, time: i64) -> &mut HourSpan {
        self.spans.entry(hour_of(time)).or_insert(HourSpan::EMPTY)
    }

    /// Adds the totals in memory to the rows of their hours.
    pub fn flush(&mut self) -> rusqlite::Result<()> {
        for ((hour, names), mut sums) in self.sums.drain() {
            save(self.db, hour, names, &sums)?;
            for measure in Measure::ALL {
                save_durations(self.db, (hour, names), measure, sums.measured(measure))?;
            }
        }
        for (hour, HourSpan { events, calls }) in self.spans.drain() {
            let sql = "INSERT INTO hour_span_row(hour, first_event, last_event, first_call, \
                       last_call) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET \
                       first_event = min(first_event, excluded.first_event), \
                       last_event = max(last_event, excluded.last_event), \
                       first_call = min(first_call, excluded.first_call), \
                       last_call = max(last_call, excluded.last_call)";
            let row = params![hour, events.0, events.1, calls.0, calls.1];
            self.db.prepare_cached(sql)?.execute(row)?;
        }
        Ok(())
    }
}

impl EventTotals {
    pub fn add_turn(&mut self, turn: TurnUsage) {
        let TurnUsage { failovers, tokens_in, tokens_out, cost_nano, latency } = turn;
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        self.turns += 1;
        self.failovers += count(failovers);
        self.tokens_in = self.tokens_in.saturating_add(count(tokens_in));
        self.tokens_out = self.tokens_out.saturating_add(count(tokens_out));
        self.cost_nano = self.cost_nano.saturating_add(count(cost_nano));
        if let Some(latency) = latency {
            self.latency.count(latency);
        }
    }

    pub fn add_attempt(&mut self, attempt: AttemptTimes) {
        let AttemptTimes { ready, handed_over, ended, is_handled, .. } = attempt;
        self.attempts += 1;
        self.failed += u64::from(!is_handled);
        self.queued.count(handed_over.saturating_sub(ready));
        self.worked.count(ended.saturating_sub(handed_over));
    }
}

pub fn hour_of(time: i64) -> i64 {
    time.div_euclid(HOUR_MICROS)
}

fn save(db: &Connection, hour: i64, names: EventNames, sums: &EventTotals) -> rusqlite::Result<()> {
    let sql = "INSERT INTO hour_row(hour, agent, model, listener, rule, turns, failovers, \
               tokens_in, tokens_out, cost, refusals, attempts, failed) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
               ON CONFLICT DO UPDATE SET turns = turns + excluded.turns, \
               failovers = failovers + excluded.failovers, \
               tokens_in = min(tokens_in + excluded.tokens_in, ?14), \
               tokens_out = min(tokens_out + excluded.tokens_out, ?14), \
               cost = min(cost + excluded.cost, ?14), \
               refusals = refusals + excluded.refusals, attempts = attempts + excluded.attempts, \
               failed = failed + excluded.failed";
    let EventNames { agent, model, listener, rule } = names;
    // SQLite adds up to a float beyond the largest integer, so the statement takes the minimum.
    let saturated = |sum: u64| i64::try_from(sum).unwrap_or(i64::MAX);
    db.prepare_cached(sql)?.execute(params![
        hour,
        agent,
        model,
        listener,
        rule,
        sums.turns,
        sums.failovers,
        saturated(sums.tokens_in),
        saturated(sums.tokens_out),
        saturated(sums.cost_nano),
        sums.refusals,
        sums.attempts,
        sums.failed,
        i64::MAX
    ])?;
    Ok(())
}

fn save_durations(
    db: &Connection,
    (hour, names): (i64, EventNames),
    measure: Measure,
    durations: &DurationHistogram,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO hour_duration_row(hour, agent, model, listener, rule, measure, bucket, \
               count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
               ON CONFLICT DO UPDATE SET count = count + excluded.count";
    let EventNames { agent, model, listener, rule } = names;
    let mut statement = db.prepare_cached(sql)?;
    for (bucket, count) in durations.buckets() {
        let word = measure.as_str();
        statement.execute(params![hour, agent, model, listener, rule, word, bucket, count])?;
    }
    Ok(())
}

/// Writes the table with the bounds of all buckets of durations.
pub fn create_buckets(db: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT INTO duration_bucket(bucket, above, up_to) VALUES (?1, ?2, ?3)";
    let mut statement = db.prepare(sql)?;
    for bucket in 0..=LAST_BUCKET {
        let (above, up_to) = bucket_bounds(bucket);
        statement.execute(params![bucket, above, up_to])?;
    }
    Ok(())
}

/// Reads the totals of all hours in `hours`. The totals are stored in parts, and each part is
/// passed to `take` with its hour and its names. Several parts may have the same hour and names,
/// and `take` must add these up.
pub fn read_hours(
    db: &Connection,
    hours: &Range<i64>,
    mut take: impl FnMut(i64, EventNames, &EventTotals),
) -> rusqlite::Result<()> {
    let sql = "SELECT hour, agent, model, listener, rule, turns, failovers, tokens_in, tokens_out, \
               cost, refusals, attempts, failed FROM hour_row WHERE hour >= ?1 AND hour < ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([hours.start, hours.end])?;
    while let Some(row) = rows.next()? {
        let sums = EventTotals {
            turns: row.get(5)?,
            failovers: row.get(6)?,
            tokens_in: row.get(7)?,
            tokens_out: row.get(8)?,
            cost_nano: row.get(9)?,
            refusals: row.get(10)?,
            attempts: row.get(11)?,
            failed: row.get(12)?,
            ..EventTotals::default()
        };
        take(row.get(0)?, names_of(row)?, &sums);
    }

    let sql = "SELECT hour, agent, model, listener, rule, measure, bucket, count \
               FROM hour_duration_row WHERE hour >= ?1 AND hour < ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([hours.start, hours.end])?;
    while let Some(row) = rows.next()? {
        let word: String = row.get(5)?;
        let mut sums = EventTotals::default();
        if let Some(measure) = Measure::parse(&word) {
            sums.measured(measure).count_in(row.get(6)?, row.get(7)?);
        }
        take(row.get(0)?, names_of(row)?, &sums);
    }
    Ok(())
}

fn names_of(row: &Row<'_>) -> rusqlite::Result<EventNames> {
    let agent = row.get(1)?;
    let model = row.get(2)?;
    Ok(EventNames { agent, model, listener: row.get(3)?, rule: row.get(4)? })
}

/// Returns the ranges of row numbers of an hour's events; `None` if the hour has no events.
pub fn hour_span(db: &Connection, hour: i64) -> rusqlite::Result<Option<HourSpan>> {
    let sql = "SELECT first_event, last_event, first_call, last_call FROM hour_span_row \
               WHERE hour = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([hour])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let events = (row.get(0)?, row.get(1)?);
    Ok(Some(HourSpan { events, calls: (row.get(2)?, row.get(3)?) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::SCHEMA;

    #[test]
    fn a_sum_beyond_the_largest_integer_is_saturated() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let most = i64::MAX;
        let turn = TurnUsage {
            failovers: 0,
            tokens_in: most,
            tokens_out: most,
            cost_nano: most,
            latency: None,
        };

        let mut hours = HourRows::new(&db);
        for _ in 0..2 {
            (0..3).for_each(|n| hours.add_turn(0, n, EventNames::of_turn(1, None), turn));
            hours.flush().unwrap();
        }

        let mut sums = EventTotals::default();
        read_hours(&db, &(0..1), |_, _, stored| sums.add(stored)).unwrap();
        let most = most.unsigned_abs();
        assert_eq!((sums.turns, sums.tokens_in), (6, most));
        assert_eq!((sums.tokens_out, sums.cost_nano), (most, most));
    }
}

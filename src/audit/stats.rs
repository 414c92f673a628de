//! Counts, costs and times of recorded events, grouped by agent, model, listener, rule or day.
//!
//! The numbers for whole hours come from totals in the index. For the incomplete hours at both ends
//! of the time range, they are computed from the events.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rusqlite::{Connection, Row};

use crate::clock::Time;
use crate::envelope::{CurrencyTotals, Money};
use crate::index::{
    AttemptTimes, Error, EventNames, EventTotals, HOUR_MICROS, IndexReader, NO_NAME, TurnUsage,
    hour_of, hour_span, read_hours,
};
use crate::word_enum::word_enum;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

word_enum! {
    /// A property by which statistics are grouped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StatsKey {
        /// The agent of a model call, or the sender of a refused payload.
        Agent = "agent",
        /// The model that answered.
        Model = "model",
        /// The listener of an attempt or of a model call, or the sender of a refused payload.
        Listener = "listener",
        /// The rule of a refusal.
        Rule = "rule",
        /// The day in UTC.
        Day = "day",
    }
}

/// The events that statistics count, and the keys that group them.
#[derive(Debug, Clone)]
pub struct StatsQuery {
    /// Keys that group the events, in order.
    pub by: Vec<StatsKey>,
    /// Beginning of the time range: events before this time are not counted. `None` for no
    /// beginning.
    pub since: Option<Time>,
    /// End of the time range: events at or after this time are not counted. `None` for no end.
    pub until: Option<Time>,
}

/// Totals for each group of events. The key of a group is the list of its values, such as an agent
/// and a day, as text.
#[derive(Debug, Clone, Default)]
pub struct Stats(pub BTreeMap<Vec<String>, EventTotals>);

impl Stats {
    /// Adds the statistics of another journal.
    pub fn add(&mut self, other: Self) {
        for (keys, group) in other.0 {
            self.0.entry(keys).or_default().add(&group);
        }
    }
}

/// Sums the events in an index. An event counts only if it has a value for every key by which the
/// query groups.
///
/// # Errors
///
/// Returns errors of the index's file.
pub fn stats(reader: &IndexReader, query: &StatsQuery) -> Result<Stats, Error> {
    let currencies = reader.currencies()?;
    let groups = Groups { by: &query.by, groups: HashMap::new() };
    let stats = groups.of(reader.connection(), query, &currencies);
    stats.map_err(|error| reader.failed(error))
}

struct Groups<'q> {
    by: &'q [StatsKey],
    groups: HashMap<Vec<i64>, EventTotals>,
}

/// A time range, divided into its whole hours and the incomplete hours at its ends.
struct TimeParts {
    hours: Range<i64>,
    ends: Vec<Range<i64>>,
}

impl TimeParts {
    fn of(query: &StatsQuery) -> Self {
        let since = query.since.map_or(i64::MIN, |time| time.0);
        let until = query.until.map_or(i64::MAX, |time| time.0);
        let first = if since == i64::MIN { i64::MIN } else { hour_after(since) };
        let end = if until == i64::MAX { i64::MAX } else { hour_of(until) };
        if first > end {
            let part = since..until;
            return Self { hours: 0..0, ends: vec![part] };
        }

        let start_of = |hour: i64| hour.saturating_mul(HOUR_MICROS);
        let ends = [since..start_of(first), start_of(end)..until];
        let ends = ends.into_iter().filter(|part| part.start < part.end);
        Self { hours: first..end, ends: ends.collect() }
    }
}

/// Returns the first hour that begins at or after `time`.
fn hour_after(time: i64) -> i64 {
    hour_of(time.saturating_add(HOUR_MICROS - 1))
}

impl Groups<'_> {
    fn of(
        mut self,
        db: &Connection,
        query: &StatsQuery,
        currencies: &[String],
    ) -> rusqlite::Result<Stats> {
        let TimeParts { hours, ends } = TimeParts::of(query);
        read_hours(db, &hours, |hour, names, sums| {
            if let Some(group) = self.group(&names, hour.saturating_mul(HOUR_MICROS)) {
                group.add(sums);
            }
        })?;
        for part in ends {
            self.take_part(db, &part)?;
        }
        self.split_costs(db, query, currencies)?;
        self.named(db)
    }

    /// Returns the totals of the group to which an event belongs. Adds the group if it is new. A
    /// group has one value for each key of the query. `names` are the event's agent, model,
    /// listener and rule; `time` is in microseconds. Returns `None` if the event has no value for
    /// one of the keys.
    fn group(&mut self, names: &EventNames, time: i64) -> Option<&mut EventTotals> {
        let value = |key: &StatsKey| match key {
            StatsKey::Agent => names.agent,
            StatsKey::Model => names.model,
            StatsKey::Listener => names.listener,
            StatsKey::Rule => names.rule,
            StatsKey::Day => time.div_euclid(DAY_MICROS),
        };
        let is_whole = !self.by.iter().any(|key| *key != StatsKey::Day && value(key) == NO_NAME);
        let values = || self.by.iter().map(value).collect();
        is_whole.then(|| self.groups.entry(values()).or_default())
    }

    /// Adds the events in a part of an hour to their groups. The bounds of `part` are in
    /// microseconds.
    fn take_part(&mut self, db: &Connection, part: &Range<i64>) -> rusqlite::Result<()> {
        let Some(span) = hour_span(db, hour_of(part.start))? else { return Ok(()) };
        self.take_turns(db, part, span.events)?;
        self.take_refusals(db, part, span.events)?;
        self.take_attempts(db, part, span.calls)
    }

    /// Splits the cost of each group by currency. `currencies` are all currencies in the index.
    fn split_costs(
        &mut self,
        db: &Connection,
        query: &StatsQuery,
        currencies: &[String],
    ) -> rusqlite::Result<()> {
        if currencies.len() > 1 {
            return self.take_costs(db, query);
        }

        let currency = currencies.first().map(String::as_str);
        for group in self.groups.values_mut().filter(|group| group.cost_nano > 0) {
            group.costs = CurrencyTotals::of(currency, Money(group.cost_nano));
        }
        Ok(())
    }

    /// Adds the cost of every turn to its group, with its currency. The totals of hours have no
    /// currencies, so this function reads the turns.
    fn take_costs(&mut self, db: &Connection, query: &StatsQuery) -> rusqlite::Result<()> {
        let sql = "SELECT max(time), agent, coalesce(answered_by, model), \
                   (SELECT text FROM name WHERE n = currency), sum(cost) FROM turn_row \
                   WHERE time >= ?1 AND time < ?2 AND cost > 0 \
                   GROUP BY time / ?3, agent, coalesce(answered_by, model), currency";
        let since = query.since.map_or(i64::MIN, |time| time.0);
        let until = query.until.map_or(i64::MAX, |time| time.0);
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([since, until, DAY_MICROS])?;
        while let Some(row) = rows.next()? {
            let names = EventNames::of_turn(row.get(1)?, row.get(2)?);
            let currency: Option<String> = row.get(3)?;
            let amount = Money(row.get(4)?);
            if let Some(group) = self.group(&names, row.get(0)?) {
                group.costs.add(currency.as_deref(), amount);
            }
        }
        Ok(())
    }

    fn each_row(
        db: &Connection,
        (part, rows): (&Range<i64>, (i64, i64)),
        sql: &str,
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([part.start, part.end, rows.0, rows.1])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    }

    fn take_turns(
        &mut self,
        db: &Connection,
        part: &Range<i64>,
        rows: (i64, i64),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT time, agent, coalesce(answered_by, model), failovers, tokens_in, \
                   tokens_out, cost, latency FROM turn_row \
                   WHERE n BETWEEN ?3 AND ?4 AND time >= ?1 AND time < ?2 AND recorded = 0";
        Self::each_row(db, (part, rows), sql, |row| {
            let names = EventNames::of_turn(row.get(1)?, row.get(2)?);
            let turn = TurnUsage {
                failovers: row.get::<_, Option<i64>>(3)?.unwrap_or_default(),
                tokens_in: row.get(4)?,
                tokens_out: row.get(5)?,
                cost_nano: row.get(6)?,
                latency: row.get(7)?,
            };
            if let Some(group) = self.group(&names, row.get(0)?) {
                group.add_turn(turn);
            }
            Ok(())
        })
    }

    fn take_refusals(
        &mut self,
        db: &Connection,
        part: &Range<i64>,
        rows: (i64, i64),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT time, sender, rule, 1 FROM refusal_row \
                   WHERE n BETWEEN ?3 AND ?4 AND time >= ?1 AND time < ?2 \
                   UNION ALL \
                   SELECT time, client, (SELECT n FROM name WHERE text = 'busy'), count \
                   FROM busy_row WHERE time >= ?1 AND time < ?2";
        Self::each_row(db, (part, rows), sql, |row| {
            let names = EventNames::of_refusal(row.get(1)?, row.get(2)?);
            let count: u64 = row.get(3)?;
            if let Some(group) = self.group(&names, row.get(0)?) {
                group.refusals += count;
            }
            Ok(())
        })
    }

    fn take_attempts(
        &mut self,
        db: &Connection,
        part: &Range<i64>,
        calls: (i64, i64),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT call, listener, ready, handed_over, ended, outcome = 'handled' \
                   FROM delivery_row WHERE call BETWEEN ?3 AND ?4 AND ended >= ?1 AND ended < ?2 \
                   AND outcome <> 'not-taken'";
        Self::each_row(db, (part, calls), sql, |row| {
            let attempt = AttemptTimes {
                call: row.get(0)?,
                listener: row.get(1)?,
                ready: row.get(2)?,
                handed_over: row.get(3)?,
                ended: row.get(4)?,
                is_handled: row.get(5)?,
            };
            let names = EventNames::of_attempt(attempt.listener);
            if let Some(group) = self.group(&names, attempt.ended) {
                group.add_attempt(attempt);
            }
            Ok(())
        })
    }

    /// Returns the groups with the texts of their keys, such as names of agents, in place of the
    /// numbers that identify these texts.
    fn named(self, db: &Connection) -> rusqlite::Result<Stats> {
        let mut names = db.prepare("SELECT text FROM name WHERE n = ?1")?;
        let mut stats = Stats::default();

        for (values, group) in self.groups {
            let mut texts = Vec::new();
            for (key, value) in self.by.iter().zip(&values) {
                texts.push(match key {
                    StatsKey::Day => day(*value),
                    _ => names.query_row([value], |row| row.get(0))?,
                });
            }
            // Two numbers can stand for the same text, if a payload's name equals another name.
            stats.0.entry(texts).or_default().add(&group);
        }

        Ok(stats)
    }
}

/// Formats the date of a day, given as the number of days since 1970-01-01.
fn day(number: i64) -> String {
    let text = Time(number.saturating_mul(DAY_MICROS)).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

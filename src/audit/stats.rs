//! Counts, costs and times of what is on record, grouped by agent, model, listener, rule or day.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row, params};

use crate::clock::Time;
use crate::index::{Error, IndexReader};

use super::duration_histogram::DurationHistogram;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;
/// Key of events that name nothing for it.
const NONE: i64 = -1;

/// A property by which statistics are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsKey {
    /// The agent of a model call, or the sender of a refused payload.
    Agent,
    /// The model that answered.
    Model,
    /// The listener of an attempt or of a model call, or the sender of a refused payload.
    Listener,
    /// The rule of a refusal.
    Rule,
    /// The day in UTC.
    Day,
}

impl StatsKey {
    pub const ALL: [Self; 5] = [Self::Agent, Self::Model, Self::Listener, Self::Rule, Self::Day];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Listener => "listener",
            Self::Rule => "rule",
            Self::Day => "day",
        }
    }
}

/// Which events are counted, and how they are grouped.
#[derive(Debug, Clone)]
pub struct StatsQuery {
    /// Keys of a group, in order.
    pub by: Vec<StatsKey>,
    /// First moment that counts.
    pub since: Option<Time>,
    /// Moment before which everything is that counts.
    pub until: Option<Time>,
}

/// Sums of one group.
#[derive(Debug, Clone, Default)]
pub struct StatsGroup {
    pub turns: u64,
    /// Requests to a model that failed before another one answered.
    pub failovers: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Cost in billionths of the currency unit.
    pub cost_nano: u64,
    /// Times from the request of a model call to its answer.
    pub latency: DurationHistogram,
    pub refusals: u64,
    /// Attempts of listeners to handle a call that have ended.
    pub attempts: u64,
    /// Attempts that ended without an answer.
    pub failed: u64,
    /// Times from when a call was ready until its listener got it.
    pub queued: DurationHistogram,
    /// Times from then until the attempt ended.
    pub worked: DurationHistogram,
}

impl StatsGroup {
    fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.failovers += other.failovers;
        self.tokens_in += other.tokens_in;
        self.tokens_out += other.tokens_out;
        self.cost_nano += other.cost_nano;
        self.latency.add(&other.latency);
        self.refusals += other.refusals;
        self.attempts += other.attempts;
        self.failed += other.failed;
        self.queued.add(&other.queued);
        self.worked.add(&other.worked);
    }
}

/// Statistics, by the texts of the keys.
#[derive(Debug, Clone, Default)]
pub struct Stats(pub BTreeMap<Vec<String>, StatsGroup>);

impl Stats {
    /// Adds the statistics of another journal.
    pub fn add(&mut self, other: Self) {
        for (keys, group) in other.0 {
            self.0.entry(keys).or_default().add(&group);
        }
    }
}

/// Sums what an index holds. A group contains only events that have a value for each of its keys.
///
/// # Errors
///
/// Those of the index's file.
pub fn stats(reader: &IndexReader, query: &StatsQuery) -> Result<Stats, Error> {
    let groups = Groups { query, groups: HashMap::new() };
    groups.of(reader.connection()).map_err(|error| reader.failed(error))
}

/// The properties of one event, as numbers of names.
#[derive(Clone, Copy)]
struct EventKeys {
    agent: i64,
    model: i64,
    listener: i64,
    rule: i64,
    time: i64,
}

impl EventKeys {
    fn value(&self, key: StatsKey) -> i64 {
        match key {
            StatsKey::Agent => self.agent,
            StatsKey::Model => self.model,
            StatsKey::Listener => self.listener,
            StatsKey::Rule => self.rule,
            StatsKey::Day => self.time.div_euclid(DAY_MICROS),
        }
    }
}

struct Groups<'q> {
    query: &'q StatsQuery,
    groups: HashMap<Vec<i64>, StatsGroup>,
}

impl Groups<'_> {
    fn of(mut self, db: &Connection) -> rusqlite::Result<Stats> {
        self.take_turns(db)?;
        self.take_refusals(db)?;
        self.take_deliveries(db)?;
        self.named(db)
    }

    /// The group of an event. `None` if the event has no value for one of the keys.
    fn group(&mut self, keys: &EventKeys) -> Option<&mut StatsGroup> {
        let values: Vec<i64> = self.query.by.iter().map(|key| keys.value(*key)).collect();
        let is_whole = !values.contains(&NONE);
        is_whole.then(|| self.groups.entry(values).or_default())
    }

    fn each_row(
        &mut self,
        db: &Connection,
        sql: &str,
        take: impl Fn(&mut Self, &Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let since = self.query.since.map_or(i64::MIN, |time| time.0);
        let until = self.query.until.map_or(i64::MAX, |time| time.0);
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query(params![since, until])?;
        while let Some(row) = rows.next()? {
            take(self, row)?;
        }
        Ok(())
    }

    fn take_turns(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT time, agent, coalesce(answered_by, model, -1), failovers, tokens_in, \
                   tokens_out, cost, latency FROM turn_row WHERE time >= ?1 AND time < ?2";
        self.each_row(db, sql, |groups, row| {
            let agent = row.get(1)?;
            let time = row.get(0)?;
            let keys = EventKeys { agent, model: row.get(2)?, listener: agent, rule: NONE, time };
            let Some(group) = groups.group(&keys) else { return Ok(()) };

            group.turns += 1;
            group.failovers += row.get::<_, u64>(3)?;
            group.tokens_in += row.get::<_, u64>(4)?;
            group.tokens_out += row.get::<_, u64>(5)?;
            group.cost_nano += row.get::<_, u64>(6)?;
            group.latency.count(row.get(7)?);
            Ok(())
        })
    }

    fn take_refusals(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT time, sender, rule, 1 FROM refusal_row WHERE time >= ?1 AND time < ?2 \
                   UNION ALL \
                   SELECT time, client, coalesce((SELECT n FROM name WHERE text = 'busy'), -1), \
                   count FROM busy_row WHERE time >= ?1 AND time < ?2";
        self.each_row(db, sql, |groups, row| {
            let sender = row.get(1)?;
            let time = row.get(0)?;
            let rule = row.get(2)?;
            let keys = EventKeys { agent: sender, model: NONE, listener: sender, rule, time };
            let count: u64 = row.get(3)?;
            if let Some(group) = groups.group(&keys) {
                group.refusals += count;
            }
            Ok(())
        })
    }

    fn take_deliveries(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT ended, listener, outcome = 'handled', handed_over - ready, \
                   ended - handed_over FROM delivery_row \
                   WHERE ended >= ?1 AND ended < ?2 AND outcome <> 'not-taken'";
        self.each_row(db, sql, |groups, row| {
            let time = row.get(0)?;
            let listener = row.get(1)?;
            let keys = EventKeys { agent: NONE, model: NONE, listener, rule: NONE, time };
            let Some(group) = groups.group(&keys) else { return Ok(()) };

            group.attempts += 1;
            group.failed += u64::from(!row.get::<_, bool>(2)?);
            group.queued.count(row.get(3)?);
            group.worked.count(row.get(4)?);
            Ok(())
        })
    }

    /// The groups with the texts of their keys.
    fn named(self, db: &Connection) -> rusqlite::Result<Stats> {
        let mut names = db.prepare("SELECT text FROM name WHERE n = ?1")?;
        let mut stats = Stats::default();

        for (values, group) in self.groups {
            let mut texts = Vec::new();
            for (key, value) in self.query.by.iter().zip(&values) {
                texts.push(match key {
                    StatsKey::Day => day(*value),
                    _ => names.query_row([value], |row| row.get(0))?,
                });
            }
            // Two numbers may stand for one text, where a name of a payload equals another name.
            stats.0.entry(texts).or_default().add(&group);
        }

        Ok(stats)
    }
}

/// The date of a day since 1970.
fn day(number: i64) -> String {
    let text = Time(number.saturating_mul(DAY_MICROS)).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

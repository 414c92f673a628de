//! Queries that select recorded threads. A query is one argument of the command line. It consists
//! either of ids of threads, or of words and filters such as `agent=NAME`. A filter has the same
//! name as its option of `organism threads`.

use std::path::PathBuf;

use super::exit::CommandFailure;
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::noted_partitions_in;
use super::{indexed, threads};
use crate::config::nearest;
use crate::envelope::Money;
use crate::ids::ThreadId;
use crate::index::{TreeFilter, check_words};
use crate::organism::TrialThread;

/// The query that matches every thread.
const ALL: &str = "all";
/// Names of the filters. Each is also the name of an option of `organism threads`.
const FILTERS: [&str; 9] = [
    "agent",
    "cost-over",
    "errors",
    "listener",
    "needs-you",
    "payload",
    "since",
    "status",
    "until",
];

/// A parsed query, which selects recorded threads by their ids or by a filter.
#[derive(Debug)]
pub enum ThreadQuery {
    Ids(Vec<ThreadId>),
    Filter(Box<TreeFilter>),
}

impl ThreadQuery {
    /// Parses the terms of a query, which are separated by white space. The terms are either ids of
    /// threads, or words and filters of the form `filter=value`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let terms: Vec<&str> = text.split_whitespace().collect();
        let is_id = |term: &&str| term.starts_with(ThreadId::ROOT_PREFIX);
        if terms.is_empty() {
            let text = format!(
                "--threads takes ids of threads, filters such as `agent=NAME`, words, or `{ALL}`"
            );
            return Err(CommandFailure::usage(text).into());
        }
        if !terms.iter().any(is_id) {
            return Ok(Self::Filter(Box::new(filter(&terms)?)));
        }

        if let Some(other) = terms.iter().find(|term| !is_id(term)) {
            let text = format!("--threads takes ids or filters, and `{other}` stands beside an id");
            return Err(CommandFailure::usage(text).into());
        }
        let mut ids = Vec::new();
        for term in terms {
            if term.contains(',') {
                let right = separated(text).map(|ids| format!(": --threads \"{ids}\""));
                let right = right.unwrap_or_default();
                let text =
                    format!("--threads: `{term}` is no thread id; separate ids by spaces{right}");
                return Err(CommandFailure::usage(text).into());
            }
            let id = journal_target::known(term)?;
            if !id.is_root() {
                let root = id.root();
                let text = format!("{id} is a part of {root}; name the whole thread");
                return Err(CommandFailure::usage(text).into());
            }
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(Self::Ids(ids))
    }

    /// Finds at most `most` threads that match the query, in the journals that `place` selects.
    /// Also returns whether more threads match. If the query does not list ids, prefers the threads
    /// with the newest records.
    pub fn threads(
        &self,
        place: &JournalTarget,
        most: usize,
    ) -> anyhow::Result<(Vec<TrialThread>, bool)> {
        let mut found = match self {
            Self::Ids(ids) => ids.iter().map(|id| of_id(place, id)).collect::<Result<_, _>>()?,
            Self::Filter(filter) => of_filter(place, filter, most)?,
        };
        let has_more = found.len() > most;
        found.truncate(most);
        Ok((found, has_more))
    }
}

/// Returns the ids in a text, separated by spaces. In the text, commas or spaces separate the ids.
/// Returns `None` if a part of the text is no id of a root thread.
fn separated(text: &str) -> Option<String> {
    let is_separator = |char: char| char == ',' || char.is_whitespace();
    let ids: Vec<&str> = text.split(is_separator).filter(|part| !part.is_empty()).collect();
    let is_root = |part: &&str| ThreadId::parse(part).is_ok_and(|id| id.is_root());
    ids.iter().all(is_root).then(|| ids.join(" "))
}

fn filter(terms: &[&str]) -> anyhow::Result<TreeFilter> {
    let mut filter = TreeFilter { is_without_organism: true, ..TreeFilter::default() };
    if terms == [ALL] {
        return Ok(filter);
    }

    let mut words = Vec::new();
    for term in terms {
        let Some((name, value)) = term.split_once('=') else {
            words.push(*term);
            continue;
        };
        let text = || Some(value.to_owned());
        match name {
            "agent" => filter.agent = text(),
            "listener" => filter.listener = text(),
            "payload" => filter.payload = text(),
            "status" => {
                threads::known_status(value)?;
                filter.status = text();
            }
            "since" => filter.since = Some(indexed::moment(value)?),
            "until" => filter.until = Some(indexed::moment(value)?),
            "cost-over" => {
                let wrong =
                    |why| CommandFailure::usage(format!("--threads cost-over={value}: {why}"));
                filter.cost_over = Some(amount(value).map_err(wrong)?);
            }
            "errors" => filter.has_errors = flag(name, value)?,
            "needs-you" => filter.needs_person = flag(name, value)?,
            _ => {
                let near = nearest(name, FILTERS);
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let text = format!(
                    "--threads: no filter is called `{name}`{near} (the filters: {})",
                    FILTERS.join(", ")
                );
                return Err(CommandFailure::usage(text).into());
            }
        }
    }
    filter.words = words.join(" ");
    check_words(&filter.words).map_err(|error| {
        CommandFailure::usage(format!("--threads: {error}; `{ALL}` selects every thread"))
    })?;
    Ok(filter)
}

/// Parses an amount of money from the command line.
pub fn amount(text: &str) -> Result<Money, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.map(Money::of_units).ok_or_else(|| "it is an amount such as 0.50".to_owned())
}

fn flag(name: &str, text: &str) -> anyhow::Result<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let text = format!("--threads {name}={text}: it is true or false");
            Err(CommandFailure::usage(text).into())
        }
    }
}

fn of_id(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<TrialThread> {
    let readers = journal_target::readers(place)?;
    for reader in readers {
        let head = reader.head(thread);
        if head.map_err(|error| journal_target::failed_in(&reader, error))?.is_some() {
            let journal = reader.data().to_owned();
            return Ok(TrialThread { thread: thread.clone(), journal });
        }
    }
    Err(journal_target::unknown(place, thread).into())
}

/// Finds the threads that a filter selects, those with the newest records first. Reads at most
/// `most` + 1 threads from each journal. If the result has more than `most` threads, the caller
/// drops the rest and knows that more threads match.
fn of_filter(
    place: &JournalTarget,
    filter: &TreeFilter,
    most: usize,
) -> anyhow::Result<Vec<TrialThread>> {
    let wanted = most.saturating_add(1);
    let journals: Vec<PathBuf> = noted_partitions_in(&journal_target::data_dir(place)?)
        .into_iter()
        .map(|(_, data)| data)
        .collect();
    let mut listed = Vec::new();
    for journal in journals {
        let trees = indexed::read(place, &journal, &mut |reader| reader.trees(filter, wanted))?;
        listed.extend(trees.into_iter().map(|tree| (tree.updated, tree.thread, journal.clone())));
    }
    listed.sort_by_key(|(updated, ..)| std::cmp::Reverse(*updated));
    let threads = listed.into_iter().map(|(_, thread, journal)| {
        Ok(TrialThread { thread: journal_target::known(&thread)?, journal })
    });
    threads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::CommandExit;

    #[test]
    fn ids_that_are_separated_by_commas_are_refused_with_the_right_form() {
        for text in ["sess-abcdefgh,sess-ijklmnop", "sess-abcdefgh, sess-ijklmnop"] {
            let error = ThreadQuery::parse(text).unwrap_err().to_string();
            let right = "separate ids by spaces: --threads \"sess-abcdefgh sess-ijklmnop\"";
            assert!(error.ends_with(right), "{error}");
        }
        assert!(ThreadQuery::parse("sess-abcdefgh sess-ijklmnop").is_ok());

        // No form is suggested that would be refused in turn.
        for text in ["sess-abcdefgh,agent=writer", "sess-abcdefgh,sess-ijklmnop.part"] {
            let error = ThreadQuery::parse(text).unwrap_err().to_string();
            assert!(error.ends_with("; separate ids by spaces"), "{error}");
        }
    }

    /// A trial may spend money. A query without a word to search for would select every thread, so
    /// it is refused.
    #[test]
    fn words_that_contain_no_word_are_refused() {
        for text in ["*", "€", "agent=writer …"] {
            let error = ThreadQuery::parse(text).unwrap_err();
            assert!(error.to_string().contains("contains no word"), "{text}: {error}");
            let failure = error.downcast_ref::<CommandFailure>().unwrap();
            assert_eq!(failure.exit, CommandExit::Usage);
        }
        assert!(ThreadQuery::parse("invoice* …").is_ok());
        assert!(ThreadQuery::parse("agent=writer").is_ok());
    }
}

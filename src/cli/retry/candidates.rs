//! Finds the messages to retry: by their ids, or by a filter, such as the reason of the failure.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::audit::{
    EarlierAttempt, RetryMessage, earlier_attempts, retry_message_page, retry_messages_with_id,
};
use crate::index::{self, IndexReader, MessageSelector, RetryCursor, RetryFilter};

use super::super::exit::CommandFailure;
use super::super::indexed;
use super::super::journal_target::JournalTarget;
use super::super::message_lookup;
use super::super::missing_partitions::noted_partitions_in;
use super::super::render::{RenderOutput, clean, columns, second_of, table};

/// A message that the command retries or lists, with its partition and its earlier attempts.
#[derive(Debug, Clone)]
pub struct NamedMessage {
    pub message: RetryMessage,
    pub partition: u32,
    pub attempts: Vec<EarlierAttempt>,
}

/// Finds the only message whose id begins with `digits`. Fails if there is no such message, or if
/// there are several.
pub fn named(data: &Path, digits: &str) -> anyhow::Result<NamedMessage> {
    let prefix = MessageSelector::parse(digits).ok_or_else(|| {
        CommandFailure::usage(format!(
            "`{digits}` is no id of a message: write at least its first {} hexadecimal digits; \
             `organism retry` lists what can be retried",
            MessageSelector::DIGITS_MIN
        ))
    })?;

    let mut is_behind = false;
    let mut found = read_each(data, &mut |index, partition| {
        is_behind |= index.is_behind();
        named_of(index, partition, retry_messages_with_id(index, &prefix)?)
    })?;
    if is_behind {
        message_lookup::check_selection(&prefix, digits, found.len())?;
    }
    if found.len() > 1 {
        let rows = draw(&found);
        let text =
            format!("several messages begin with {digits}; write more digits of one:\n{rows}");
        return Err(CommandFailure::usage(text).into());
    }
    found.pop().ok_or_else(|| {
        if let Some(failure) = message_lookup::unavailable(data, digits) {
            return failure.into();
        }
        let text = format!(
            "no message {digits} is on record; `organism search` and `organism thread --ids` show \
             ids, and `organism retry` lists what can be retried"
        );
        CommandFailure::usage(text).into()
    })
}

/// Requests that match a filter: the oldest ones of each journal.
#[derive(Debug)]
pub struct OldestMatches {
    pub messages: Vec<NamedMessage>,
    /// Whether any journal has more requests that match the filter.
    pub has_more: bool,
}

/// Finds the client requests that failed or were refused, and that match the filter. The result
/// contains the oldest requests of each journal, at most `most` from one journal.
pub fn matching(data: &Path, filter: &RetryFilter, most: usize) -> anyhow::Result<OldestMatches> {
    let mut has_more = false;
    let messages = read_each(data, &mut |index, partition| {
        let page = retry_message_page(index, filter, RetryCursor::first(index), most)?;
        has_more |= page.next.is_some();
        named_of(index, partition, page.messages)
    })?;
    Ok(OldestMatches { messages, has_more })
}

/// Whether any journal has this name of a listener, or this code of a refusal or failure.
pub fn is_on_record(data: &Path, name: &str) -> anyhow::Result<bool> {
    let mut is_found = false;
    read_each(data, &mut |index, _| {
        is_found |= index.has_name(name)?;
        Ok(Vec::new())
    })?;
    Ok(is_found)
}

/// The requests that a filter selects in all journals, page by page. A page has requests of one
/// journal, the oldest ones first. Each request is on one page at most, even if it still matches
/// the filter after its retry. Requests that are recorded after the first page of their journal was
/// read are on no page.
pub struct MatchingPages {
    filter: RetryFilter,
    /// Maximum number of requests on a page.
    rows: usize,
    /// The journals that have pages left, each with its partition.
    journals: VecDeque<(u32, PathBuf)>,
    /// Start of the next page in the first of `journals`; `None` if no page of this journal was
    /// read.
    cursor: Option<RetryCursor>,
}

impl MatchingPages {
    pub fn new(data: &Path, filter: RetryFilter, rows: usize) -> Self {
        let journals = noted_partitions_in(data)
            .into_iter()
            .map(|(partition, journal)| (partition.unwrap_or_default(), journal))
            .collect();
        Self { filter, rows, journals, cursor: None }
    }

    /// Reads the next page that has requests. Returns no requests if all pages were read.
    pub fn next_page(&mut self) -> anyhow::Result<Vec<NamedMessage>> {
        while let Some((partition, journal)) = self.journals.front() {
            let begin = self.cursor;
            let (messages, next) = indexed::read(&place(journal), journal, &mut |index| {
                let cursor = begin.unwrap_or_else(|| RetryCursor::first(index));
                let page = retry_message_page(index, &self.filter, cursor, self.rows)?;
                Ok((named_of(index, *partition, page.messages)?, page.next))
            })?;

            self.cursor = next;
            if next.is_none() {
                self.journals.pop_front();
            }
            if !messages.is_empty() {
                return Ok(messages);
            }
        }
        Ok(Vec::new())
    }
}

/// Minimum number of characters of a shortened id. They include the time of the message, to the
/// millisecond.
const ID_CHARS_MIN: usize = 13;

/// Draws a table with one row for each of the messages. If the rows are wider than the terminal,
/// shortens the ids to the beginnings that tell the rows apart, so that the reasons remain visible.
pub fn draw(named: &[NamedMessage]) -> String {
    draw_to(&RenderOutput::stdout(false), named)
}

fn draw_to(output: &RenderOutput, named: &[NamedMessage]) -> String {
    if named.is_empty() {
        return String::new();
    }
    let ids: Vec<String> = named.iter().map(|named| named.message.id.to_string()).collect();
    let unlimited = RenderOutput { table_columns: usize::MAX, ..*output };
    let whole = draw_with_ids(&unlimited, named, &ids);
    if whole.lines().all(|line| columns(line) <= output.table_columns) {
        return whole;
    }

    let chars = distinct_chars(&ids).max(ID_CHARS_MIN);
    let short = ids.iter().map(|id| id.get(..chars).unwrap_or(id).to_owned());
    draw_with_ids(output, named, &short.collect::<Vec<_>>())
}

/// Returns the smallest number of characters after which all of the different `ids` differ.
fn distinct_chars(ids: &[String]) -> usize {
    let mut sorted: Vec<&String> = ids.iter().collect();
    sorted.sort_unstable();
    let neighbours = sorted.iter().zip(sorted.iter().skip(1));
    let equal = neighbours.map(|(id, next)| {
        id.bytes().zip(next.bytes()).take_while(|(byte, other)| byte == other).count()
    });
    equal.max().map_or(0, |equal| equal + 1)
}

fn draw_with_ids(output: &RenderOutput, named: &[NamedMessage], ids: &[String]) -> String {
    let row = |(named, id): (&NamedMessage, &String)| {
        let message = &named.message;
        vec![
            id.clone(),
            message.record.to_string(),
            second_of(&message.time),
            clean(&message.sender),
            message.listener.as_deref().map_or_else(|| "-".to_owned(), clean),
            clean(&message.reason),
        ]
    };
    let rows: Vec<_> = named.iter().zip(ids).map(row).collect();
    let headers = ["id", ">record", "time", "from", "to", "reason"];
    table(output, &headers, &rows)
}

type NamedQuery<'q> =
    &'q mut dyn FnMut(&mut IndexReader, u32) -> Result<Vec<NamedMessage>, index::Error>;

fn read_each(data: &Path, query: NamedQuery<'_>) -> anyhow::Result<Vec<NamedMessage>> {
    let place = place(data);
    let mut found = Vec::new();
    for (partition, journal) in noted_partitions_in(data) {
        let partition = partition.unwrap_or_default();
        found.extend(indexed::read(&place, &journal, &mut |index| query(index, partition))?);
    }
    Ok(found)
}

fn place(data: &Path) -> JournalTarget {
    JournalTarget { config: None, data: Some(data.to_owned()), state: None }
}

fn named_of(
    index: &IndexReader,
    partition: u32,
    found: Vec<RetryMessage>,
) -> Result<Vec<NamedMessage>, index::Error> {
    let named = found.into_iter().map(|message| {
        let attempts = earlier_attempts(index, message.id)?;
        Ok(NamedMessage { message, partition, attempts })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::RetryError;
    use crate::cli::exit::{self, CommandExit};
    use crate::clock::Time;
    use crate::envelope::{Refusal, RefusalRule};
    use crate::ids::{Digest, ListenerName, MessageId, Position, ThreadId};
    use crate::journal::sqlite::SqliteJournal;
    use crate::journal::{Journal as _, partition_in};
    use crate::thread::{Fact, Input, Record, Verdict};

    /// Makes the record of a submission that the gate refused. The id of the submitted message is
    /// `number`.
    fn refused(number: u8) -> Record {
        refused_by(number, RefusalRule::NotInVocabulary, b"<ping/>")
    }

    fn refused_by(number: u8, rule: RefusalRule, text: &[u8]) -> Record {
        let sender = ListenerName::operator();
        let refusal = Refusal::new(rule, "it is refused", text);
        Record {
            position: Position(0),
            tree: ThreadId::organism(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(i64::from(number)),
            input: Input::Submitted {
                id: MessageId(Uuid::from_u128(number.into())),
                client: sender.clone(),
                thread: None,
                suggested: None,
                key: None,
                verdict: Verdict::Refused(Digest::of(text)),
            },
            facts: vec![Fact::Refused { sender, thread: None, call: None, refusal }],
        }
    }

    fn append(home: &Path, numbers: impl Iterator<Item = u8>) {
        append_records(home, numbers.map(refused).collect());
    }

    fn append_records(home: &Path, records: Vec<Record>) {
        append_records_to(home, &home.join("data"), records);
    }

    fn append_records_to(home: &Path, data: &Path, mut records: Vec<Record>) {
        let state = home.join("state");
        let mut journal = SqliteJournal::open(data, &state, &mut |_| Ok(())).unwrap();
        journal.append(&mut records).unwrap();
        journal.close(Time(100)).unwrap();
    }

    fn numbers(page: &[NamedMessage]) -> Vec<u128> {
        page.iter().map(|named| named.message.id.0.as_u128()).collect()
    }

    /// Reads all pages of five candidates, and appends two candidates after the first page. The
    /// pages must contain each of the five candidates once, and none of the appended ones. No
    /// candidate leaves the filter meanwhile, as if each retry were refused or needed a
    /// confirmation. The next page must still begin after the last returned candidate.
    #[test]
    fn pages_have_each_candidate_once_and_none_that_is_recorded_later() {
        let home = tempfile::tempdir().unwrap();
        append(home.path(), 1..=5);
        let mut pages = MatchingPages::new(&home.path().join("data"), RetryFilter::default(), 2);
        assert_eq!(numbers(&pages.next_page().unwrap()), [1, 2]);

        // A retry that fails is a new candidate, which this command must not send again.
        append(home.path(), 6..=7);
        assert_eq!(numbers(&pages.next_page().unwrap()), [3, 4]);
        assert_eq!(numbers(&pages.next_page().unwrap()), [5]);
        assert_eq!(numbers(&pages.next_page().unwrap()), []);
    }

    #[test]
    fn requests_that_no_retry_can_mend_are_left_out_with_the_reason() {
        let home = tempfile::tempdir().unwrap();
        let refusals: [(RefusalRule, &[u8]); 4] = [
            (RefusalRule::NotInVocabulary, b"<ping/>"),
            (RefusalRule::UnknownCaller, b"<ping/>"),
            (RefusalRule::HostedProcess, b"<ping/>"),
            (RefusalRule::NotUtf8, b"<ping>\xff</ping>"),
        ];
        let records = refusals.into_iter().zip(1..);
        let records = records.map(|((rule, text), number)| refused_by(number, rule, text));
        append_records(home.path(), records.collect());

        let data = home.path().join("data");
        let found = |is_unretriable| {
            let filter = RetryFilter { is_unretriable, ..RetryFilter::default() };
            matching(&data, &filter, 10).unwrap().messages
        };
        assert_eq!(numbers(&found(false)), [1]);
        let obstacles: Vec<_> =
            found(true).into_iter().map(|named| named.message.obstacle.unwrap()).collect();
        let not_utf8 = RetryError::Text(RefusalRule::NotUtf8);
        assert_eq!(obstacles, [RetryError::NoClient, RetryError::NoClient, not_utf8]);
    }

    #[test]
    fn a_row_in_80_columns_states_the_reason() {
        let home = tempfile::tempdir().unwrap();
        append(home.path(), 1..=2);
        let data = home.path().join("data");
        let draw = |messages: &[NamedMessage], table_columns| {
            let output = RenderOutput { colour: false, columns: 80, table_columns, full: false };
            draw_to(&output, messages)
        };
        let mut listed = matching(&data, &RetryFilter::default(), 10).unwrap().messages;
        listed[1].message.id = "0197c0de-0000-7000-8000-00000000000a".parse().unwrap();
        let whole = draw(&listed, usize::MAX);
        assert!(whole.contains("\n0197c0de-0000-7000-8000-00000000000a  "), "{whole}");

        let narrow = draw(&listed, 80);
        let rows: Vec<_> = narrow.lines().skip(1).collect();
        assert!(rows[0].starts_with("00000000-0000  "), "{narrow}");
        assert!(rows[1].starts_with("0197c0de-0000  "), "{narrow}");
        assert!(rows.iter().all(|row| row.ends_with("  not-in-vocabulary")), "{narrow}");
        // Ids with a common beginning are longer, so that each of them names one message.
        assert_eq!(distinct_chars(&["ab-1".to_owned(), "ab-2".to_owned(), "b".to_owned()]), 4);
    }

    #[test]
    fn a_message_that_may_be_in_a_missing_partition_is_unavailable() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        append_records_to(home.path(), &partition_in(&data, 0), vec![refused(1)]);
        let failure_of = |id: &str| exit::code(&named(&data, id).unwrap_err());

        let [recorded, other] = [1, 2].map(|number| Uuid::from_u128(number).to_string());
        assert_eq!(named(&data, &recorded).unwrap().message.id.to_string(), recorded);
        assert_eq!(failure_of(&other), CommandExit::Usage);
        // As a backup notes it.
        std::fs::write(data.join("partitions"), "2\n").unwrap();
        assert_eq!(failure_of(&other), CommandExit::Unavailable);
    }

    #[test]
    fn a_list_that_ends_early_states_that_there_are_more() {
        let home = tempfile::tempdir().unwrap();
        append(home.path(), 1..=3);
        let data = home.path().join("data");
        let listed = |most| matching(&data, &RetryFilter::default(), most).unwrap();
        assert_eq!(numbers(&listed(2).messages), [1, 2]);
        assert!(listed(2).has_more);
        assert_eq!(numbers(&listed(3).messages), [1, 2, 3]);
        assert!(!listed(3).has_more);
    }
}

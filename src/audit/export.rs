//! Exports the records of all trees or of one tree, as a file for other programs and for archives.

use std::collections::{HashMap, VecDeque};
use std::io::Write;

use serde::Serialize;

use crate::clock::Time;
use crate::envelope::{self, Disposition, Message, Payload};
use crate::ids::{MessageId, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::limits;
use crate::thread::{Fact, Record};
use crate::xml::escape::escape_text;

use super::views::{BusyRefusals, MessageView, RefusalView};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// One well-formed XML document of all records. Each record contains envelopes, dispositions,
    /// refusals and other facts. A disposition states how the handling of a message ended.
    Xml,
    /// One line of JSON for each message or refusal.
    Jsonl,
}

/// Filter that selects the records to export.
#[derive(Debug, Clone, Default)]
pub struct ExportFilter {
    /// Root thread of the tree to which the export is limited; `None` for all trees.
    pub tree: Option<ThreadId>,
    /// Beginning of the time range: records before this time are not written. `None` for no
    /// beginning.
    pub since: Option<Time>,
    /// End of the time range: records at or after this time are not written. `None` for no end.
    pub until: Option<Time>,
}

/// Writes the records that `filter` selects. If there are several journals, an XML document has a
/// part for each journal, and the JSON lines of all journals are sorted by time.
pub fn export(
    readers: &[JournalReader],
    filter: &ExportFilter,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let tree = filter.tree.as_ref();
    let source = |reader| -> Result<_, Error> {
        let head = match tree {
            Some(root) => JournalReader::head(reader, root)?.unwrap_or_default(),
            None => reader.last()?,
        };
        let since = filter.since.map(|since| reader.first_since(since)).transpose()?;
        let first = since.unwrap_or(Position(1));
        let until = filter.until.map(|until| reader.first_since(until)).transpose()?;
        let last = until.map_or(head, |until| head.min(Position(until.0.saturating_sub(1))));
        Ok(ExportSource { reader, tree, head, first, last })
    };

    let sources = readers.iter().map(source).collect::<Result<Vec<_>, _>>()?;
    match (format, sources.as_slice()) {
        (ExportFormat::Xml, [source]) => xml(source, out),
        (ExportFormat::Xml, several) => {
            written(writeln!(out, "<e:journals xmlns:e=\"{}\">", envelope::NAMESPACE))?;
            several.iter().try_for_each(|source| xml(source, out))?;
            written(writeln!(out, "</e:journals>"))
        }
        (ExportFormat::Jsonl, sources) => jsonl(sources, out),
    }
}

/// The records of one journal that an export writes. These records can be read several times.
struct ExportSource<'r> {
    reader: &'r JournalReader,
    tree: Option<&'r ThreadId>,
    /// Position of the last record of the tree that the filter names, or of the journal if the
    /// filter names no tree.
    head: Position,
    /// Position of the first record to write.
    first: Position,
    /// Position of the last record to write.
    last: Position,
}

/// Calls `visit` with each record of several journals, in the order of time. The records of one
/// journal always keep their own order, even where their times do not increase.
fn each_in_time(
    sources: &[ExportSource<'_>],
    visit: &mut dyn FnMut(&HashedRecord) -> Result<(), Error>,
) -> Result<(), Error> {
    if let [source] = sources {
        return source.each(visit);
    }

    let mut ahead = Vec::new();
    for source in sources {
        let from = source.first.0;
        ahead.push(PeekedJournal { source, from, read: source.first()?.into() });
    }

    loop {
        let earliest = ahead.iter_mut().filter(|ahead| !ahead.read.is_empty());
        let time =
            |ahead: &&mut PeekedJournal<'_, '_>| ahead.read.front().map(|next| next.record.time);
        let Some(earliest) = earliest.min_by_key(time) else { return Ok(()) };
        if let Some(sealed) = earliest.next()? {
            visit(&sealed)?;
        }
    }
}

/// A journal that is being exported, with the records that were read from it but not written yet.
struct PeekedJournal<'s, 'r> {
    source: &'s ExportSource<'r>,
    from: u64,
    read: VecDeque<HashedRecord>,
}

impl PeekedJournal<'_, '_> {
    fn next(&mut self) -> Result<Option<HashedRecord>, Error> {
        let next = self.read.pop_front();
        if self.read.is_empty() && self.source.tree.is_none() {
            self.from += limits::SCAN_RECORDS;
            self.read = self.source.some(self.from)?.into();
        }
        Ok(next)
    }
}

impl ExportSource<'_> {
    /// Returns a copy of this source in which the last record to write is the last record of the
    /// journal or tree.
    fn to_head(&self) -> Self {
        Self { last: self.head, ..*self }
    }

    /// Reads the records to write. If the filter names a tree, reads all of them; otherwise, reads
    /// only the first batch.
    fn first(&self) -> Result<Vec<HashedRecord>, Error> {
        if self.tree.is_some() { self.tree_records() } else { self.some(self.first.0) }
    }

    fn tree_records(&self) -> Result<Vec<HashedRecord>, Error> {
        if self.head == Position(0) {
            return Ok(Vec::new());
        }
        let mut records = self.reader.walk(self.head)?;
        records.retain(|sealed| (self.first..=self.last).contains(&sealed.record.position));
        Ok(records)
    }

    /// Reads one batch of records from position `from`.
    fn some(&self, from: u64) -> Result<Vec<HashedRecord>, Error> {
        if from > self.last.0 {
            return Ok(Vec::new());
        }
        let to = self.last.0.min(from + limits::SCAN_RECORDS - 1);
        self.reader.records(Position(from), Position(to))
    }

    fn each(&self, visit: &mut dyn FnMut(&HashedRecord) -> Result<(), Error>) -> Result<(), Error> {
        if self.tree.is_some() {
            return self.tree_records()?.iter().try_for_each(visit);
        }

        let mut from = self.first.0;
        while from <= self.last.0 {
            let to = self.last.0.min(from + limits::SCAN_RECORDS - 1);
            self.reader.records(Position(from), Position(to))?.iter().try_for_each(&mut *visit)?;
            from = to + 1;
        }

        Ok(())
    }
}

fn written(result: std::io::Result<()>) -> Result<(), Error> {
    result.map_err(|source| Error::Io { context: "writing the export".to_owned(), source })
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum ExportLine {
    #[serde(rename = "message")]
    Message(MessageView),
    #[serde(rename = "refusal")]
    Refusal(RefusalView),
    #[serde(rename = "busy")]
    Busy(BusyRefusals),
}

fn jsonl(sources: &[ExportSource<'_>], out: &mut dyn Write) -> Result<(), Error> {
    let mut ended: HashMap<MessageId, Disposition> = HashMap::new();
    let to_head: Vec<_> = sources.iter().map(ExportSource::to_head).collect();
    each_in_time(&to_head, &mut |sealed| {
        for fact in &sealed.record.facts {
            if let Fact::Disposed { message, how } = fact {
                ended.insert(*message, *how);
            }
        }
        Ok(())
    })?;
    each_in_time(sources, &mut |sealed| {
        let busy = BusyRefusals::of(&sealed.record).map(ExportLine::Busy);
        let lines =
            sealed.record.facts.iter().filter_map(|fact| line(&sealed.record, fact, &ended));
        for line in busy.into_iter().chain(lines) {
            let text = serde_json::to_string(&line).map_err(std::io::Error::other);
            written(text.and_then(|text| writeln!(out, "{text}")))?;
        }
        Ok(())
    })
}

fn line(
    record: &Record,
    fact: &Fact,
    ended: &HashMap<MessageId, Disposition>,
) -> Option<ExportLine> {
    match fact {
        Fact::Accepted { message, .. } => {
            let disposition = ended.get(&message.id).copied();
            Some(ExportLine::Message(MessageView {
                disposition,
                ..MessageView::new(record.position, message)
            }))
        }
        Fact::Refused { sender, thread, refusal, .. } => {
            let at = record.position;
            let time = record.time;
            Some(ExportLine::Refusal(RefusalView::new(at, time, sender, thread.as_ref(), refusal)))
        }
        _ => None,
    }
}

fn xml(source: &ExportSource<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let about = source.reader.about()?;
    written(writeln!(
        out,
        "<e:journal xmlns:e=\"{}\" id=\"{}\" epoch=\"{}\">",
        envelope::NAMESPACE,
        about.journal,
        about.epoch
    ))?;
    source.each(&mut |sealed| written(record(sealed, out)))?;
    written(writeln!(out, "</e:journal>"))
}

fn record(
    HashedRecord { record, hash, .. }: &HashedRecord,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    writeln!(
        out,
        "<e:record position=\"{}\" tree=\"{}\" previous=\"{}\" time=\"{}\" hash=\"{hash}\">",
        record.position, record.tree, record.previous, record.time
    )?;
    let input = serde_json::to_string(&record.input)?;
    writeln!(out, "<e:input>{}</e:input>", escape_text(&input))?;
    record.facts.iter().try_for_each(|fact| self::fact(fact, out))?;
    writeln!(out, "</e:record>")
}

fn fact(fact: &Fact, out: &mut dyn Write) -> std::io::Result<()> {
    match fact {
        Fact::Accepted { message, .. } => self::message(message, out),
        Fact::Disposed { message, how } => {
            writeln!(out, "<e:disposition message=\"{message}\" how=\"{}\"/>", how.as_str())
        }
        Fact::Refused { sender, thread, refusal, .. } => {
            write!(out, "<e:refusal sender=\"{sender}\" rule=\"{}\"", refusal.rule)?;
            if let Some(thread) = thread {
                write!(out, " thread=\"{thread}\"")?;
            }
            write!(out, " length=\"{}\" digest=\"{}\">", refusal.length, refusal.digest)?;
            write!(out, "<e:reason>{}</e:reason>", escape_text(&refusal.message))?;
            writeln!(out, "<e:head>{}</e:head></e:refusal>", escape_text(&refusal.head))
        }
        other => {
            let text = serde_json::to_string(other)?;
            writeln!(out, "<e:fact>{}</e:fact>", escape_text(&text))
        }
    }
}

/// Writes a message as XML. Omits the namespace declaration of envelopes, because the root element
/// of the document already declares this namespace.
fn message(message: &Message, out: &mut dyn Write) -> std::io::Result<()> {
    let mut text = String::new();
    let payload = &message.payload;
    if payload.is_redacted() {
        let length = payload.len();
        let digest = payload.digest;
        let mark = format!("<e:redacted length=\"{length}\" digest=\"{digest}\"/>");
        let marked = Message { payload: Payload::new(mark), ..message.clone() };
        envelope::text::write_delivered(&mut text, &marked, false, None);
    } else {
        envelope::text::write_delivered(&mut text, message, false, None);
    }

    writeln!(out, "{text}")
}

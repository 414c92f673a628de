//! Writing the record out, whole or one tree, for other programs and for keeps.

use std::collections::HashMap;
use std::io::Write;

use serde::Serialize;

use crate::envelope::{self, Disposition, Message, Payload};
use crate::ids::{MessageId, Position, ThreadId};
use crate::journal::sqlite::Reader;
use crate::journal::{Error, Sealed};
use crate::limits;
use crate::thread::{Fact, Record};

use super::said::{Refused, Said};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One well-formed document of records: envelopes, dispositions, refusals, other facts.
    Xml,
    /// A line of JSON per message or refusal.
    Jsonl,
}

/// Writes every record, or those of `tree`, as they stand now.
pub fn export(
    reader: &Reader,
    tree: Option<&ThreadId>,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let head = match tree {
        Some(root) => reader.head(root)?.unwrap_or_default(),
        None => reader.last()?,
    };
    let source = Source { reader, tree, head };
    match format {
        Format::Xml => xml(&source, out),
        Format::Jsonl => jsonl(&source, out),
    }
}

/// The records to write, the same ones each time they are gone through.
struct Source<'r> {
    reader: &'r Reader,
    tree: Option<&'r ThreadId>,
    head: Position,
}

impl Source<'_> {
    fn each(&self, visit: &mut dyn FnMut(&Sealed) -> Result<(), Error>) -> Result<(), Error> {
        if self.tree.is_some() {
            return self.reader.walk(self.head)?.iter().try_for_each(visit);
        }
        let mut from = 1;
        while from <= self.head.0 {
            let to = self.head.0.min(from + limits::SCAN_RECORDS - 1);
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
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Message(Said),
    Refusal(Refused),
}

fn jsonl(source: &Source<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let mut ended: HashMap<MessageId, Disposition> = HashMap::new();
    source.each(&mut |sealed| {
        for fact in &sealed.record.facts {
            if let Fact::Disposed { message, how } = fact {
                ended.insert(*message, *how);
            }
        }
        Ok(())
    })?;
    source.each(&mut |sealed| {
        let lines =
            sealed.record.facts.iter().filter_map(|fact| line(&sealed.record, fact, &ended));
        for line in lines {
            let text = serde_json::to_string(&line).map_err(std::io::Error::other);
            written(text.and_then(|text| writeln!(out, "{text}")))?;
        }
        Ok(())
    })
}

fn line(record: &Record, fact: &Fact, ended: &HashMap<MessageId, Disposition>) -> Option<Line> {
    match fact {
        Fact::Accepted { message, .. } => {
            let disposition = ended.get(&message.id).copied();
            Some(Line::Message(Said { disposition, ..Said::new(record.position, message) }))
        }
        Fact::Refused { sender, thread, refusal, .. } => {
            let (at, time) = (record.position, record.time);
            Some(Line::Refusal(Refused::new(at, time, sender, thread.as_ref(), refusal)))
        }
        _ => None,
    }
}

fn xml(source: &Source<'_>, out: &mut dyn Write) -> Result<(), Error> {
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

fn record(Sealed { record, hash }: &Sealed, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "<e:record position=\"{}\" tree=\"{}\" previous=\"{}\" time=\"{}\" hash=\"{hash}\">",
        record.position, record.tree, record.previous, record.time
    )?;
    let input = serde_json::to_string(&record.input)?;
    writeln!(out, "<e:input>{}</e:input>", escape(&input))?;
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
            write!(out, "<e:reason>{}</e:reason>", escape(&refusal.message))?;
            writeln!(out, "<e:head>{}</e:head></e:refusal>", escape(&refusal.head))
        }
        other => {
            let text = serde_json::to_string(other)?;
            writeln!(out, "<e:fact>{}</e:fact>", escape(&text))
        }
    }
}

/// The document's root binds the envelope's prefix already.
fn message(message: &Message, out: &mut dyn Write) -> std::io::Result<()> {
    let mut text = String::new();
    let payload = &message.payload;
    if payload.is_redacted() {
        let (length, digest) = (payload.len(), payload.digest);
        let mark = format!("<e:redacted length=\"{length}\" digest=\"{digest}\"/>");
        let marked = Message { payload: Payload::new(mark), ..message.clone() };
        envelope::text::write_delivered(&mut text, &marked, false);
    } else {
        envelope::text::write_delivered(&mut text, message, false);
    }
    writeln!(out, "{text}")
}

/// As XML text; what XML cannot hold becomes U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\r' => escaped.push_str("&#13;"),
            '\t' | '\n' => escaped.push(char),
            '\0'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            other => escaped.push(other),
        }
    }
    escaped
}

//! Searches messages by text.

use crate::ids::{Position, ThreadId};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::thread::Fact;

use super::views::MessageView;

/// Returns the newest `limit` messages that contain `text` in their payload, names or thread,
/// oldest first. Case is ignored. `within` restricts the search to a thread and its subthreads.
pub fn search(
    reader: &JournalReader,
    text: &str,
    within: Option<&ThreadId>,
    limit: usize,
) -> Result<Vec<MessageView>, Error> {
    let text = text.to_lowercase();
    let mut found = Vec::new();
    let mut to = reader.last()?;

    while to > Position(0) && found.len() < limit {
        let from = Position(to.0.saturating_sub(limits::SCAN_RECORDS - 1).max(1));
        let records = reader.records(from, to)?;
        for sealed in records.iter().rev() {
            let views = sealed.record.facts.iter().rev().filter_map(|fact| match fact {
                Fact::Accepted { message, .. } => {
                    Some(MessageView::new(sealed.record.position, message))
                }
                _ => None,
            });
            let inside = |view: &MessageView| {
                within.is_none_or(|of| view.thread == *of || view.thread.is_beneath(of))
            };
            found.extend(views.filter(|view| inside(view) && view.mentions(&text)));
        }
        to = Position(from.0 - 1);
    }

    found.truncate(limit);
    found.reverse();
    Ok(found)
}

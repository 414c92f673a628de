//! Counts the consecutive rounds of a call in which every result was a failure.
//!
//! A round is everything that a listener receives together after an outcome. The results of calls,
//! threads and timers are results; the core's confirmation of a primitive is not. A second count
//! holds only rounds in which every request was refused.

use super::{Call, PendingMessage};
use crate::envelope::MessageKind;

impl Call {
    /// Number of consecutive rounds in which every result was a failure, including the results that
    /// wait for their delivery. A round without results changes nothing.
    pub fn rounds_failed(&self) -> u32 {
        counted(self.failed_rounds, self.pending.iter().filter_map(PendingMessage::has_failed))
    }

    /// Number of consecutive rounds that brought nothing but refusals, including the answers that
    /// wait for their delivery.
    pub fn rounds_refused(&self) -> u32 {
        counted(self.refused_rounds, self.pending.iter().filter_map(PendingMessage::is_refusal))
    }
}

/// The count after one more round, of which these are the results.
fn counted(before: u32, results: impl Iterator<Item = bool>) -> u32 {
    let mut failed = 0;
    for has_failed in results {
        if !has_failed {
            return 0;
        }
        failed = 1;
    }

    before.saturating_add(failed)
}

impl PendingMessage {
    /// Whether the message reports a failure; `None` if the message is not a result.
    fn has_failed(&self) -> Option<bool> {
        let message = &self.message;
        if message.kind == MessageKind::Reply {
            return Some(false);
        }

        if message.kind != MessageKind::System {
            return None;
        }

        match &*message.name.local {
            "system-error" | "system-thread-error" | "huh" => Some(true),
            "thread-result" => {
                let text = message.payload.as_str();
                let tag = text.split_once('>').map_or(text, |(tag, _)| tag);
                Some(!tag.contains(" status=\"completed\""))
            }
            "timer-fired" => Some(false),
            _ => self.answers_call.then_some(false),
        }
    }

    /// Whether the message refuses a request; `None` if it answers none. A thread that cannot be opened
    /// settles the goal that it was for, so that it is progress.
    fn is_refusal(&self) -> Option<bool> {
        let message = &self.message;
        if message.kind != MessageKind::System {
            return (message.kind == MessageKind::Reply).then_some(false);
        }

        match &*message.name.local {
            "huh" | "system-thread-error" => Some(true),
            "system-error" => {
                let text = message.payload.as_str();
                let tag = text.split_once('>').map_or(text, |(tag, _)| tag);
                Some(!self.answers_call && !tag.contains(" about=\"spawn-thread\""))
            }
            "budget-warning" => None,
            _ => Some(false),
        }
    }
}

//! Counts the consecutive rounds of a call in which every result was a failure. A round is one
//! delivery to the call's listener that contains results of calls, threads or timers.
//! - A refusal of the listener's payload counts as a failed result.
//! - The core's confirmations of primitives, such as `thread-spawned`, do not count as results.
//! - The first delivery of a call contains no results, so it is not a round.

use super::{Call, PendingMessage};
use crate::envelope::MessageKind;

impl Call {
    /// Returns the number of consecutive failed rounds, counted back from the latest round. A round
    /// has failed if every result in it is a failure. If there are results that are not delivered
    /// yet, they count as the latest round.
    pub fn rounds_failed(&self) -> u32 {
        let mut failed = 0;
        for has_failed in self.pending.iter().filter_map(PendingMessage::has_failed) {
            if !has_failed {
                return 0;
            }
            failed = 1;
        }

        self.failed_rounds.saturating_add(failed)
    }
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
}

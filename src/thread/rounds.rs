//! Rounds of a call: how many in a row brought nothing but failures.
//!
//! A round is everything that a listener is given at once after an outcome. Its results are what
//! became of calls, threads and timers; that the core has done what a primitive requested is none.

use super::{Call, Pending};
use crate::envelope::Kind;

impl Call {
    /// Rounds in a row in which every result was a failure, those that wait to be delivered
    /// included. A round without any result changes nothing.
    pub fn rounds_failed(&self) -> u32 {
        let mut failed = 0;
        for has_failed in self.pending.iter().filter_map(Pending::has_failed) {
            if !has_failed {
                return 0;
            }
            failed = 1;
        }

        self.failed_rounds.saturating_add(failed)
    }
}

impl Pending {
    /// Whether it reports a failure and nothing else; `None` where it is no result.
    fn has_failed(&self) -> Option<bool> {
        let message = &self.message;
        if message.kind == Kind::Reply {
            return Some(false);
        }

        if message.kind != Kind::System {
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

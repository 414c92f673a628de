//! The counts of a tree start again with a client's next request. What model calls took of its
//! tokens and money is counted over its whole life.

use super::state::{Thread, Tree, Usage};
use crate::clock::Time;
use crate::envelope::Money;

/// The first version of the step that records each renewal. Before it, wall time alone started
/// again, with every request to a tree at rest.
pub(super) const RECORDED_SINCE: u32 = 13;

/// Budgets that are counted for one request; a tree is warned of each again after a renewal.
const RENEWED: [&str; 4] = ["messages", "model-calls", REQUEST_TOKENS, REQUEST_MONEY];

pub const REQUEST_TOKENS: &str = "request-tokens";
pub const REQUEST_MONEY: &str = "request-money";

/// Usage of a tree at the last restart of its counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewal {
    usage: Usage,
    /// Threads beneath the root.
    threads: usize,
}

impl Tree {
    /// Usage since the last restart of the counts.
    pub fn request_usage(&self) -> Usage {
        let (all, before) = (self.usage, self.renewed().usage);
        Usage {
            messages: all.messages.saturating_sub(before.messages),
            model_calls: all.model_calls.saturating_sub(before.model_calls),
            tokens: all.tokens.saturating_sub(before.tokens),
            money: Money(all.money.0.saturating_sub(before.money.0)),
        }
    }

    /// The root, and the threads that were opened since the counts last started again.
    pub fn request_threads(&self) -> usize {
        self.threads.len().saturating_sub(self.renewed().threads)
    }

    fn renewed(&self) -> Renewal {
        self.renewal.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn renew(&mut self, time: Time) {
        let (usage, threads) = (self.usage, self.threads.len().saturating_sub(1));
        self.renewal = Some(Box::new(Renewal { usage, threads }));
        self.started = time;
        self.warned.retain(|budget| !RENEWED.contains(&budget.as_str()));
        for thread in self.threads.values_mut() {
            thread.earlier_children = thread.children.len();
        }
    }
}

impl Thread {
    /// Children that were opened since the counts of the tree last started again.
    pub fn request_children(&self) -> usize {
        self.children.len().saturating_sub(self.earlier_children)
    }
}

//! Renewal: the counts of a tree restart with a client's next request. Tokens and money of model
//! calls are also counted over the tree's whole life.

use super::state::{Thread, Tree, Usage};
use crate::clock::Time;
use crate::envelope::Money;

/// First version of the step that records each renewal. Before it, only wall time restarted, with
/// every request to a tree at rest.
pub(super) const RECORDED_SINCE: u32 = 13;

/// Budgets that are counted for each request. After a renewal the tree may be warned of each again.
const RENEWED: [&str; 4] = ["messages", "model-calls", REQUEST_TOKENS, REQUEST_MONEY];

pub const REQUEST_TOKENS: &str = "request-tokens";
pub const REQUEST_MONEY: &str = "request-money";

/// Usage of a tree at the last restart of its counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewal {
    usage: Usage,
    /// Number of threads beneath the root.
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

    /// Number of threads since the last restart of the counts, including the root.
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
    /// Number of children opened since the last restart of the counts.
    pub fn request_children(&self) -> usize {
        self.children.len().saturating_sub(self.earlier_children)
    }
}

//! Renewal of budgets: a new request of a client resets the budget counts of its thread tree. The
//! request resets nothing if the tree has open calls, or if the config lets a listener send in the
//! name of the client. The tokens and money of model calls are also counted a second time, in
//! counts that are never reset.

use serde::{Deserialize, Serialize};

use super::state::{Thread, Tree, Usage};
use crate::clock::Time;
use crate::envelope::Money;

/// First core version in which a further request of a client can reset the budget counts of its
/// tree. In earlier versions, such a request only restarted the wall time of a tree without open
/// calls.
pub(super) const RECORDED_SINCE: u32 = 13;

/// Budgets whose counts a renewal resets. The tree may then get a warning about each of them again.
const RENEWED: [&str; 4] = ["messages", "model-calls", REQUEST_TOKENS, REQUEST_MONEY];

pub const REQUEST_TOKENS: &str = "request-tokens";
pub const REQUEST_MONEY: &str = "request-money";

/// Usage of a thread tree when its budget counts were last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    #[serde(rename = "usage")]
    usage: Usage,
    /// Number of threads beneath the root thread when the tree's budget counts were last reset.
    #[serde(rename = "threads")]
    threads: usize,
}

impl Tree {
    /// Returns the usage of the tree since its budget counts were last reset.
    pub fn request_usage(&self) -> Usage {
        let all = self.usage;
        let before = self.renewed().usage;
        Usage {
            messages: all.messages.saturating_sub(before.messages),
            model_calls: all.model_calls.saturating_sub(before.model_calls),
            tokens: all.tokens.saturating_sub(before.tokens),
            money: Money(all.money.0.saturating_sub(before.money.0)),
        }
    }

    /// Returns the number of threads opened since the tree's budget counts were last reset, plus
    /// one for the root thread.
    pub fn request_threads(&self) -> usize {
        self.threads.len().saturating_sub(self.renewed().threads)
    }

    fn renewed(&self) -> Renewal {
        self.renewal.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn renew(&mut self, time: Time) {
        let usage = self.usage;
        let threads = self.threads.len().saturating_sub(1);
        self.renewal = Some(Box::new(Renewal { usage, threads }));
        self.started = time;
        self.warned = self
            .warned
            .iter()
            .filter(|budget| !RENEWED.contains(&budget.as_str()))
            .cloned()
            .collect();
        for thread in self.threads.values_mut() {
            thread.earlier_children = thread.children.len();
        }
    }
}

impl Thread {
    /// Returns the number of child threads opened since the tree's budget counts were last reset.
    pub fn request_children(&self) -> usize {
        self.children.len().saturating_sub(self.earlier_children)
    }
}

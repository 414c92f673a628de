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

/// Separates the budget from its limit in [`Tree::warned`].
const AT_LIMIT: &str = " at ";

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

    /// Whether the tree was warned of the budget at this limit. A warning that was recorded without
    /// its limit holds for each limit.
    pub fn is_warned(&self, budget: &str, limit: u64) -> bool {
        let is_entry = |warned: &String| match warned.split_once(AT_LIMIT) {
            Some((known, at)) => known == budget && at.parse() == Ok(limit),
            None => warned == budget,
        };
        self.warned.iter().any(is_entry)
    }

    pub(super) fn warn(&mut self, budget: &str, limit: Option<u64>) {
        let warned = match limit {
            Some(limit) => format!("{budget}{AT_LIMIT}{limit}"),
            None => budget.to_owned(),
        };
        self.warned.insert(warned);
    }

    fn renewed(&self) -> Renewal {
        self.renewal.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn renew(&mut self, time: Time) {
        let usage = self.usage;
        let threads = self.threads.len().saturating_sub(1);
        self.renewal = Some(Box::new(Renewal { usage, threads }));
        self.started = time;
        let is_renewed = |warned: &String| {
            let budget = warned.split_once(AT_LIMIT).map_or(warned.as_str(), |(budget, _)| budget);
            RENEWED.contains(&budget)
        };
        self.warned = self.warned.iter().filter(|warned| !is_renewed(warned)).cloned().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_warned_of_each_limit_and_again_in_each_request() {
        let mut tree = Tree::default();
        tree.warn("messages", Some(100));
        tree.warn("tokens of at", Some(5));
        assert!(tree.is_warned("messages", 100));
        assert!(tree.is_warned("tokens of at", 5));
        assert!(!tree.is_warned("messages", 200));
        assert!(!tree.is_warned("tokens", 5));

        tree.renew(Time(0));
        assert!(!tree.is_warned("messages", 100));
        assert!(tree.is_warned("tokens of at", 5));
    }

    #[test]
    fn a_warning_of_an_earlier_version_holds_for_each_limit() {
        let mut tree = Tree::default();
        tree.warn("messages", None);
        tree.warn("tokens", None);
        let text = serde_json::to_string(&tree).unwrap();
        assert!(text.contains(r#""warned":["messages","tokens"]"#), "{text}");
        let mut tree: Tree = serde_json::from_str(&text).unwrap();
        assert!(tree.is_warned("tokens", 7));

        tree.renew(Time(0));
        assert!(!tree.is_warned("messages", 7));
        assert!(tree.is_warned("tokens", 7));
    }
}

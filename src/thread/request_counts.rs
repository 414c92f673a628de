//! Renewal of budgets: a new request of a client resets the budget counts of its thread tree. The
//! request resets nothing if the tree has open calls, or if the config lets a listener send in the
//! name of the client. The tokens and money of model calls are also counted a second time, in
//! counts that are never reset.

use serde::{Deserialize, Serialize};

use super::WarningStatus;
use super::state::{Thread, Tree, Usage};
use crate::clock::Time;
use crate::envelope::Money;
use crate::ids::ListenerName;

/// First core version in which a further request of a client can reset the budget counts of its
/// tree. In earlier versions, such a request only restarted the wall time of a tree without open
/// calls.
pub(super) const RECORDED_SINCE: u32 = 13;

/// Budgets whose counts a renewal resets. The tree may then get a warning about each of them again.
const RENEWED: [&str; 4] = ["messages", "model-calls", REQUEST_TOKENS, REQUEST_MONEY];

/// Separates the budget from the agent whose own budget it is.
const OF_AGENT: &str = " of ";

/// Separates the budget from its limit in [`Tree::warned`].
const AT_LIMIT: &str = " at ";

/// Marks a warning in [`Tree::warned`] that no agent has got.
const UNSENT: &str = " unsent";

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

    /// Returns whether an agent has got the warning of a budget at this limit: `Sent` or `Unsent`.
    /// Returns `None` if no warning is recorded. A warning that was recorded without its limit
    /// holds for each limit. `agent` is the agent whose own budget this is, or `None` for a budget
    /// of the tree.
    pub fn warning_status(
        &self,
        budget: &str,
        agent: Option<&ListenerName>,
        limit: u64,
    ) -> Option<WarningStatus> {
        self.warned.iter().find_map(|warned| {
            let mut rest = warned.strip_prefix(budget)?;
            if let Some(agent) = agent {
                rest = rest.strip_prefix(OF_AGENT)?.strip_prefix(agent.as_str())?;
            }
            if rest.is_empty() {
                return Some(WarningStatus::Sent);
            }

            let at = rest.strip_prefix(AT_LIMIT)?;
            let (at, status) = match at.strip_suffix(UNSENT) {
                Some(at) => (at, WarningStatus::Unsent),
                None => (at, WarningStatus::Sent),
            };
            (at.parse() == Ok(limit)).then_some(status)
        })
    }

    pub(super) fn warn(&mut self, budget: &str, limit: Option<u64>, status: WarningStatus) {
        let warned = match limit {
            Some(limit) => format!("{budget}{AT_LIMIT}{limit}"),
            None => budget.to_owned(),
        };
        let unsent = format!("{warned}{UNSENT}");
        if status == WarningStatus::Unsent {
            self.warned.insert(unsent);
        } else {
            self.warned.remove(&unsent);
            self.warned.insert(warned);
        }
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

/// Returns the name of a budget in records. `agent` is the agent whose own budget this is, or
/// `None` for a budget of the tree.
pub fn budget_name(budget: &str, agent: Option<&ListenerName>) -> String {
    match agent {
        Some(agent) => format!("{budget}{OF_AGENT}{agent}"),
        None => budget.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> ListenerName {
        ListenerName::parse(name).unwrap()
    }

    #[test]
    fn a_tree_is_warned_of_each_limit_and_again_in_each_request() {
        let mut tree = Tree::default();
        let at = agent("at");
        let own = budget_name("tokens", Some(&at));
        tree.warn("messages", Some(100), WarningStatus::Sent);
        tree.warn(&own, Some(5), WarningStatus::Sent);
        let sent = Some(WarningStatus::Sent);
        assert_eq!(tree.warning_status("messages", None, 100), sent);
        assert_eq!(tree.warning_status("tokens", Some(&at), 5), sent);
        assert_eq!(tree.warning_status("messages", None, 200), None);
        assert_eq!(tree.warning_status("tokens", None, 5), None);
        assert_eq!(tree.warning_status("tokens", Some(&agent("a")), 5), None);

        tree.renew(Time(0));
        assert_eq!(tree.warning_status("messages", None, 100), None);
        assert_eq!(tree.warning_status("tokens", Some(&at), 5), sent);
    }

    #[test]
    fn a_warning_is_unsent_until_it_is_sent_later() {
        let mut tree = Tree::default();
        tree.warn("messages", Some(100), WarningStatus::Unsent);
        tree.warn("tokens", Some(5), WarningStatus::Unsent);
        let unsent = Some(WarningStatus::Unsent);
        assert_eq!(tree.warning_status("messages", None, 100), unsent);
        assert_eq!(tree.warning_status("tokens", None, 5), unsent);
        assert_eq!(tree.warning_status("tokens", None, 6), None);

        tree.renew(Time(0));
        assert_eq!(tree.warning_status("messages", None, 100), None);
        assert_eq!(tree.warning_status("tokens", None, 5), unsent);

        tree.warn("tokens", Some(5), WarningStatus::SentLater);
        assert_eq!(tree.warning_status("tokens", None, 5), Some(WarningStatus::Sent));
        assert_eq!(tree.warned.len(), 1);
    }

    #[test]
    fn a_warning_of_an_earlier_version_holds_for_each_limit() {
        let mut tree = Tree::default();
        tree.warn("messages", None, WarningStatus::Sent);
        tree.warn("tokens", None, WarningStatus::Sent);
        let text = serde_json::to_string(&tree).unwrap();
        assert!(text.contains(r#""warned":["messages","tokens"]"#), "{text}");
        let mut tree: Tree = serde_json::from_str(&text).unwrap();
        assert_eq!(tree.warning_status("tokens", None, 7), Some(WarningStatus::Sent));

        tree.renew(Time(0));
        assert_eq!(tree.warning_status("messages", None, 7), None);
        assert_eq!(tree.warning_status("tokens", None, 7), Some(WarningStatus::Sent));
    }
}

//! Budgets of thread trees, and of agents in a thread tree.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::envelope::Money;
use crate::limits;

/// Limits of one tree of threads. Child threads use the budget of their parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLimits {
    /// Maximum number of levels of threads beneath the root thread.
    #[serde(rename = "depth")]
    pub depth: u32,
    /// Maximum number of child threads that one thread may open for each request of a client.
    #[serde(rename = "children")]
    pub children: u32,
    #[serde(rename = "threads")]
    pub threads: u32,
    #[serde(rename = "messages")]
    pub messages: u64,
    /// Maximum number of failed rounds in a row that one call may have. A round consists of all
    /// results that the listener receives in one delivery. A round has failed if every one of its
    /// results is a failure.
    #[serde(rename = "rounds_failed")]
    pub rounds_failed: u32,
    #[serde(rename = "model_calls")]
    pub model_calls: u64,
    #[serde(rename = "tokens")]
    pub tokens: u64,
    /// Money limit of the tree; `None` if only tokens limit the cost.
    #[serde(rename = "money", default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Maximum tokens that one request of a client may use. The limit for the whole tree applies as
    /// well. `None` if only the limit for the tree applies.
    #[serde(rename = "per_request_tokens", default, skip_serializing_if = "Option::is_none")]
    pub per_request_tokens: Option<u64>,
    #[serde(rename = "per_request_money", default, skip_serializing_if = "Option::is_none")]
    pub per_request_money: Option<Money>,
    #[serde(rename = "wall_time")]
    pub wall_time: Duration,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            depth: limits::THREAD_DEPTH_DEFAULT,
            children: limits::CHILDREN_DEFAULT,
            threads: limits::THREADS_DEFAULT,
            messages: limits::MESSAGES_DEFAULT,
            rounds_failed: limits::ROUNDS_FAILED_DEFAULT,
            model_calls: limits::MODEL_CALLS_DEFAULT,
            tokens: limits::TOKENS_DEFAULT,
            money: None,
            per_request_tokens: None,
            per_request_money: None,
            wall_time: limits::WALL_TIME_DEFAULT,
        }
    }
}

impl TreeLimits {
    /// Returns the budget of the tree for the model calls of all agents.
    pub fn budget(&self) -> Budget {
        Budget { tokens: Some(self.tokens), money: self.money }
    }

    /// Returns the budget for all model calls of one request, whichever agents make the calls.
    pub fn request_budget(&self) -> Budget {
        Budget { tokens: self.per_request_tokens, money: self.per_request_money }
    }
}

/// Limits on the tokens and the money of model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    #[serde(rename = "tokens", default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(rename = "money", default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
}

impl Budget {
    /// Whether the budget has no limit.
    pub const fn is_open(&self) -> bool {
        self.tokens.is_none() && self.money.is_none()
    }

    /// Combines two budgets: takes the smaller limit for tokens, and the smaller limit for money.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.into_iter().chain(other.tokens).min(),
            money: self.money.into_iter().chain(other.money).min(),
        }
    }
}

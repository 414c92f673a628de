//! Paths of calls, by which a test case names the calls of a run:
//!
//! - For a goal: the labels of its thread, such as `draft_1` or `leg.room`.
//! - For a call that an agent makes for a goal: the goal's path, a slash and the name of the
//!   listener, such as `draft_1/search`.
//! - For a call that undoes an earlier call: `undo_` and the path of the earlier call.

use std::collections::HashMap;

use crate::contract::{Contracts, Role};
use crate::envelope::Message;
use crate::ids::{CallId, ThreadId};
use crate::workflow::undone_call;

const UNDO: &str = "undo_";

/// The paths of a run's calls. If a call undoes another call, the path of the undone call must be
/// determined first.
pub struct CallPaths<'a> {
    contracts: &'a Contracts,
    known: HashMap<CallId, String>,
}

impl<'a> CallPaths<'a> {
    pub fn new(contracts: &'a Contracts) -> Self {
        Self { contracts, known: HashMap::new() }
    }

    /// Returns the path of the call that `request` opens.
    pub fn name(&mut self, request: &Message) -> String {
        let call = CallId(request.id);
        if let Some(known) = self.known.get(&call) {
            return known.clone();
        }

        let sender = self.contracts.get(&request.from);
        let is_goal = sender.is_some_and(|sender| sender.role == Role::Workflow);
        let goal = self.goal_of(&request.thread);
        let path = match (is_goal, goal.as_str()) {
            (true, _) => goal,
            (false, "") => String::new(),
            (false, _) => format!("{goal}/{}", request.to),
        };
        self.known.insert(call, path.clone());
        path
    }

    /// Whether the path of the call that `request` opens cannot be determined yet, because
    /// `request` undoes an earlier call to which [`CallPaths::name`] has not given a path.
    pub fn is_unknown(&self, request: &Message) -> bool {
        let undone = undone_call(request.thread.label());
        undone.is_some_and(|call| !self.known.contains_key(&call))
    }

    fn goal_of(&self, thread: &ThreadId) -> String {
        if let Some(undone) = undone_call(thread.label()) {
            let path = self.known.get(&undone).map_or("", String::as_str);
            return format!("{UNDO}{path}");
        }

        let labels = thread.as_str().split_once('.');
        labels.map(|(_, labels)| labels.to_owned()).unwrap_or_default()
    }
}

//! Pauses as plain state: the targets that operators have paused, and the deadlines that do not run
//! during a pause.
//!
//! A pause keeps the calls that it covers from being handed over. It does not affect a call that a
//! listener already has. While a pause keeps a call from being handed over, the deadlines of the
//! call do not run. Neither do the time limits of the call's thread and of the threads above it. If
//! nothing else in the tree can continue, the wall time of the tree does not run, either.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::operator::DecisionOrigin;
use super::state::{Call, State, Tree};
use super::uncounted_time::UNCOUNTED_SINCE;
use crate::clock::Time;
use crate::ids::{ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::word_enum::word_enum;

/// The part of an organism that a pause covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PauseTarget {
    /// Every call.
    #[serde(rename = "all")]
    All,
    /// The calls to one agent or other listener.
    #[serde(rename = "listener")]
    Listener(ListenerName),
    /// The calls in one thread and in the threads beneath it.
    #[serde(rename = "thread")]
    Thread(ThreadId),
}

impl PauseTarget {
    /// Parses a target as [`fmt::Display`] formats it. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            None => (text == Self::All.kind()).then_some(Self::All),
            Some(("listener", name)) => ListenerName::parse(name).ok().map(Self::Listener),
            Some(("thread", id)) => ThreadId::parse(id).ok().map(Self::Thread),
            Some(_) => None,
        }
    }

    pub fn covers(&self, thread: &ThreadId, callee: &ListenerName) -> bool {
        match self {
            Self::All => true,
            Self::Listener(listener) => listener == callee,
            Self::Thread(paused) => thread.is_within(paused),
        }
    }

    fn covers_call(&self, call: &Call) -> bool {
        self.covers(&call.thread, &call.callee)
    }

    /// Returns the thread whose tree gets the record of the pause. A signature on the pause names
    /// this thread, too.
    pub fn home(&self) -> ThreadId {
        match self {
            Self::Thread(thread) => thread.clone(),
            Self::All | Self::Listener(_) => ThreadId::organism(),
        }
    }

    /// Returns the root of the tree that contains all calls of the target; `None` if these calls
    /// may be in several trees.
    pub fn tree(&self) -> Option<ThreadId> {
        match self {
            Self::Thread(thread) => Some(thread.root()),
            Self::All | Self::Listener(_) => None,
        }
    }

    /// Returns the text that names the target in a command: `all`, a listener's name or a thread's
    /// id.
    pub fn name(&self) -> &str {
        match self {
            Self::All => "all",
            Self::Listener(listener) => listener.as_str(),
            Self::Thread(thread) => thread.as_str(),
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Listener(_) => "listener",
            Self::Thread(_) => "thread",
        }
    }
}

/// Formats the target as an operator reads and signs it, such as `listener search`.
impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Listener(listener) => write!(f, "listener {listener}"),
            Self::Thread(thread) => write!(f, "thread {thread}"),
        }
    }
}

word_enum! {
    /// The kinds of an operator's pause action: pausing, pausing with cancellation, and resuming.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum PauseVerb {
        #[serde(rename = "pause")]
        Pause,
        /// Pauses, and cancels the deliveries in flight.
        #[serde(rename = "pause-and-cancel")]
        PauseAndCancel,
        #[serde(rename = "resume")]
        Resume,
    }
}

/// An operator's request to pause or to resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseAction {
    #[serde(rename = "verb")]
    pub verb: PauseVerb,
    #[serde(rename = "target")]
    pub target: PauseTarget,
    /// The operator who signed the action; the anonymous operator if the action is not signed.
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// A pause in force, with its target, its beginning and its author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    #[serde(rename = "target")]
    pub target: PauseTarget,
    /// Time of the record of the pause.
    #[serde(rename = "since")]
    pub since: Time,
    #[serde(rename = "by")]
    pub by: ListenerName,
    /// Note of the operator; empty if the operator gave no note.
    #[serde(rename = "note", default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The pauses in force, the oldest first.
///
/// **Invariant:** each target has at most one pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pauses(Vec<Pause>);

impl Pauses {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of paused threads.
    pub fn threads(&self) -> usize {
        let threads = self.0.iter().filter(|pause| matches!(pause.target, PauseTarget::Thread(_)));
        threads.count()
    }

    /// Whether a pause covers every call to `listener`. False if only calls in some threads are
    /// paused.
    pub fn covers_listener(&self, listener: &ListenerName) -> bool {
        self.0.iter().any(|pause| match &pause.target {
            PauseTarget::All => true,
            PauseTarget::Listener(paused) => paused == listener,
            PauseTarget::Thread(_) => false,
        })
    }

    /// Whether a pause may cover a call of the tree with the root `root`.
    pub fn may_cover_tree(&self, root: &ThreadId) -> bool {
        self.0.iter().any(|pause| match &pause.target {
            PauseTarget::All | PauseTarget::Listener(_) => true,
            PauseTarget::Thread(paused) => paused.root() == *root,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pause> {
        self.0.iter()
    }

    pub fn get(&self, target: &PauseTarget) -> Option<&Pause> {
        self.0.iter().find(|pause| pause.target == *target)
    }

    /// Returns a pause that covers the calls to `callee` in `thread`. Returns `None` if no pause
    /// covers them.
    pub fn covering(&self, thread: &ThreadId, callee: &ListenerName) -> Option<&Pause> {
        self.0.iter().find(|pause| pause.target.covers(thread, callee))
    }

    pub fn covers(&self, thread: &ThreadId, callee: &ListenerName) -> bool {
        self.covering(thread, callee).is_some()
    }

    fn insert(&mut self, pause: Pause) {
        self.remove(&pause.target);
        self.0.push(pause);
    }

    fn remove(&mut self, target: &PauseTarget) {
        self.0.retain(|pause| pause.target != *target);
    }
}

impl State {
    /// Whether a pause covers the call. A covered call is not handed over, and its timers do not
    /// fire.
    pub fn is_paused(&self, call: &Call) -> bool {
        self.pauses.covers(&call.thread, &call.callee)
    }

    pub(super) fn pause(&mut self, pause: Pause) {
        self.pauses.insert(pause);
        self.follow_pauses_in_all();
    }

    pub(super) fn resume(&mut self, target: &PauseTarget) {
        self.pauses.remove(target);
        self.follow_pauses_in_all();
    }

    /// Stops or restarts the time limits and deadlines of all trees in memory, after a pause began
    /// or ended.
    fn follow_pauses_in_all(&mut self) {
        let roots = self.roots_in_memory();
        self.follow_pauses_in(&roots);
    }

    /// Stops or restarts the time limits and deadlines of the trees `roots`, according to the
    /// pauses in force. A caller that has put trees back into memory must call this method for
    /// these trees.
    pub fn follow_pauses_in(&mut self, roots: &[ThreadId]) {
        let core_version = self.core_version;
        let is_paused = !self.pauses.is_empty();
        for root in roots {
            let Some(tree) = self.trees.get_mut(root) else { continue };
            tree.follow_pauses(&self.pauses, self.time, core_version);
            tree.follow_people(self.time, core_version, is_paused);
        }
    }

    /// Returns the open calls that `target` covers in the trees `roots`, in the order of their
    /// threads and ids.
    pub fn calls_of(&self, target: &PauseTarget, roots: &[ThreadId]) -> Vec<&Call> {
        let calls = self.open_calls_in(roots);
        let mut covered: Vec<_> = calls.filter(|call| target.covers_call(call)).collect();
        covered.sort_by(|a, b| (&a.thread, a.id).cmp(&(&b.thread, b.id)));
        covered
    }
}

impl Tree {
    /// Stops or restarts the deadlines of the tree's calls and the time limits of its spawned
    /// threads, according to `pauses`. `time` is the time of the latest record. `core_version`
    /// decides whether the stopped time is also left out of the time of workflow runs.
    pub(super) fn follow_pauses(&mut self, pauses: &Pauses, time: Time, core_version: u32) {
        let is_frozen = !mutant("count-the-time-of-a-pause");
        for call in self.calls.values_mut() {
            let is_covered = pauses.covers(&call.thread, &call.callee);
            let is_kept = is_covered && call.handed_over.is_none() && is_frozen;
            match call.kept_since {
                None if is_kept => call.kept_since = Some(time),
                Some(since) if !is_kept => {
                    call.kept_since = None;
                    call.extend(time.since(since));
                }
                _ => {}
            }
        }

        let measures_time = |call: &Call| call.uncounted.is_some() || call.has_bound;
        let has_kept = self.has_kept_calls();
        let has_limits = self.threads.values().any(|thread| thread.allotted.is_some());
        if !has_kept && !has_limits && !self.open_calls().any(measures_time) {
            return;
        }

        let kept = self.calls.values().filter(|call| call.kept_since.is_some());
        let still: std::collections::HashSet<_> =
            kept.flat_map(|call| call.thread.upwards()).collect();
        for (id, thread) in self.threads.iter_mut() {
            let Some(allotted) = thread.allotted.as_mut() else { continue };
            let is_still = still.contains(id);
            match allotted.still_since {
                None if is_still => allotted.still_since = Some(time),
                Some(since) if !is_still => {
                    allotted.still_since = None;
                    let until = &mut allotted.limits.until;
                    *until = until.map(|until| until.plus(time.since(since)));
                }
                _ => {}
            }
        }
        if core_version < UNCOUNTED_SINCE {
            return;
        }

        for call in self.calls.values_mut() {
            call.follow_stillness(still.contains(&call.thread), time);
        }
    }

    /// Whether a pause keeps any call of the tree from being handed over.
    pub(super) fn has_kept_calls(&self) -> bool {
        self.open_calls().any(|call| call.kept_since.is_some())
    }
}

impl Call {
    /// Extends two deadlines of the call by the duration `by`: the end of its hold, and the time
    /// limit for its delivery to a process of the listener.
    pub(super) fn extend(&mut self, by: Duration) {
        self.offered_since = self.offered_since.map(|since| since.plus(by));
        if let Some(held) = &mut self.held {
            held.until = held.until.map(|until| until.plus(by));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_a_thread_covers_everything_beneath_it_and_nothing_beside_it() {
        let root = ThreadId::parse("sess-aaaaaaaa").unwrap();
        let finder = ListenerName::parse("finder").unwrap();
        let paused = PauseTarget::Thread(root.child("a"));

        let is_covered = |thread: &ThreadId| paused.covers(thread, &finder);
        assert!(is_covered(&root.child("a")));
        assert!(is_covered(&root.child("a").child("b")));
        assert!(!is_covered(&root));
        assert!(!is_covered(&root.child("ab")));
    }
}

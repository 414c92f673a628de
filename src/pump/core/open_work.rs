//! Open work at the end of a pump, described for the program's log.

use std::collections::BTreeMap;
use std::fmt;

use super::Core;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::limits;
use crate::plural::count;

/// Open calls and timers at the end of a pump. The journal contains them all, and they continue at
/// the next start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenWork {
    /// Number of open calls, by thread and callee.
    pub threads: BTreeMap<ThreadId, BTreeMap<ListenerName, usize>>,
    /// Number of held calls.
    pub held: usize,
    /// Number of timers of the trees in memory.
    pub timers: usize,
    /// Number of open calls that wait in trees outside memory.
    pub outside: usize,
}

impl Core {
    pub fn left_open(&self) -> OpenWork {
        let in_memory = self.state.trees.values().map(|tree| tree.calls.len()).sum();
        let outside = self.state.calls.len().saturating_sub(in_memory);
        OpenWork { held: self.holds.len(), outside, ..self.left_open_after(Position(0)) }
    }

    /// Returns the open work of the trees in memory that have a record after `position`.
    pub fn left_open_after(&self, position: Position) -> OpenWork {
        let mut left = OpenWork::default();
        for tree in self.state.trees.values().filter(|tree| tree.head > position) {
            left.held += usize::try_from(tree.held).unwrap_or(usize::MAX);
            left.timers += tree.timers.len();
            for call in tree.calls.values() {
                let callees = left.threads.entry(call.thread.clone()).or_default();
                *callees.entry(call.callee.clone()).or_default() += 1;
            }
        }

        left
    }
}

impl OpenWork {
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.timers == 0 && self.outside == 0
    }
}

/// Formats like `2 calls (sess-abcdefgh: researcher; sess-abcdefgh.a: coder), 1 held, 1 timer`.
impl fmt::Display for OpenWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_memory: usize = self.threads.values().flat_map(BTreeMap::values).sum();
        let calls = in_memory + self.outside;
        let shown = self.threads.iter().take(limits::LEFT_OPEN_SHOWN).map(|(thread, callees)| {
            let callees = callees.iter().map(|(name, calls)| match calls {
                1 => name.to_string(),
                calls => format!("{name} {calls} times"),
            });
            format!("{thread}: {}", callees.collect::<Vec<_>>().join(", "))
        });
        let mut shown: Vec<_> = shown.collect();
        if self.threads.len() > shown.len() {
            shown.push(count(self.threads.len() - shown.len(), "more thread"));
        }

        f.write_str(&count(calls, "call"))?;
        if calls > 0 {
            write!(f, " ({})", shown.join("; "))?;
        }

        if self.held > 0 {
            write!(f, ", {} held", self.held)?;
        }

        if self.timers > 0 {
            write!(f, ", {}", count(self.timers, "timer"))?;
        }

        Ok(())
    }
}

//! Cancels threads. A listener can cancel a thread beneath its own thread. A thread can also be
//! bound to a call: when this call closes, the thread is cancelled.

use std::collections::VecDeque;

use super::{Core, Step};
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::system::CorePayload;
use crate::thread::{Call, Opener};

/// Recorded reason for the cancellation of a thread that was bound to a call: the call has closed.
const CALL_ENDED: &str = "the call that this thread is bound to has ended";

impl Core {
    /// Returns the open calls that end together with `call`. Each of them is in a thread that is
    /// bound to `call`, or beneath such a thread. The result consists of pairs: the bound thread
    /// and the open call. For each bound thread, the calls in the deepest threads come first. The
    /// function scans the open calls of the tree once.
    pub(super) fn bound_calls(&self, call: CallId) -> Vec<(ThreadId, CallId)> {
        let spawner = self.state.call(call).filter(|open| open.has_bound);
        let Some(spawner) = spawner.filter(|_| !mutant("let-bound-threads-run")) else {
            return Vec::new();
        };
        let Some(tree) = self.state.tree(&spawner.thread) else { return Vec::new() };
        let is_bound = |thread: &ThreadId| {
            tree.threads.get(thread).is_some_and(|thread| thread.bound == Some(call))
        };

        let mut found = Vec::new();
        for open in tree.calls.values().filter(|open| open.thread.is_beneath(&spawner.thread)) {
            if is_nested(open) {
                continue;
            }
            let bound = threads_up_to(&open.thread, &spawner.thread).find(is_bound);
            found.extend(bound.map(|bound| (bound, open.thread.clone(), open.id)));
        }
        found.sort_by(|a, b| (&a.0, b.1.depth(), &a.1, a.2).cmp(&(&b.0, a.1.depth(), &b.1, b.2)));
        found.into_iter().map(|(bound, _, id)| (bound, id)).collect()
    }

    /// Returns the threads that are bound to `call` and in which no call was ever opened.
    pub(super) fn unused_bound_threads(&self, call: CallId) -> Vec<ThreadId> {
        let spawner = self.state.call(call).filter(|open| open.has_bound);
        let spawner = spawner.filter(|_| !mutant("let-bound-threads-run"));
        let tree = spawner.and_then(|spawner| self.state.tree(&spawner.thread));
        let threads = tree.into_iter().flat_map(|tree| tree.threads.iter());
        let unused = threads.filter(|(_, thread)| {
            thread.bound == Some(call) && thread.open_calls == 0 && thread.result.is_none()
        });
        let mut unused: Vec<_> = unused.map(|(id, _)| id.clone()).collect();
        unused.sort_unstable();
        unused
    }

    /// Records that `threads` have ended, because the call to which they are bound has closed.
    /// `threads` must come from [`Core::unused_bound_threads`].
    pub(super) fn note_unused(&mut self, step: &mut Step, threads: &[ThreadId]) {
        for thread in threads {
            self.cancelled_note(step, thread, CALL_ENDED);
        }
    }

    /// Cancels `calls`, which come from [`Core::bound_calls`], and records a note in each bound
    /// thread. The caller also closes the call to which the threads are bound, so nothing can use
    /// the results of `calls`.
    pub(super) fn cancel_bound(&mut self, step: &mut Step, calls: Vec<(ThreadId, CallId)>) {
        let (mut threads, calls): (VecDeque<_>, Vec<_>) = calls.into_iter().unzip();
        let mut noted = None;
        self.close_all(step, &calls, |core, step, call| {
            let thread = threads.pop_front();
            if let Some(thread) = thread.filter(|thread| noted.as_ref() != Some(thread)) {
                core.cancelled_note(step, &thread, CALL_ENDED);
                noted = Some(thread);
            }
            core.cancel_call(step, call, CALL_ENDED);
        });
    }

    /// Whether `thread`, or a thread between `thread` and `above`, has ended because the call to
    /// which it is bound has closed. Does not check `above` itself.
    pub(super) fn has_ended(&self, thread: &ThreadId, above: &ThreadId) -> bool {
        threads_up_to(thread, above).any(|thread| {
            let bound = self.state.thread(&thread).and_then(|thread| thread.bound);
            bound.is_some_and(|call| self.state.call(call).is_none())
        })
    }

    /// Cancels all open calls in a thread and its subthreads, and records the reason in the thread.
    /// Records nothing if no call is open.
    pub(super) fn cancel_subtree(
        &mut self,
        step: &mut Step,
        thread: &ThreadId,
        message: &'static str,
    ) {
        let open = self.to_cancel(thread);
        if open.is_empty() {
            return;
        }

        self.cancelled_note(step, thread, message);
        self.close_all(step, &open, |core, step, call| core.cancel_call(step, call, message));
    }

    fn cancelled_note(&mut self, step: &mut Step, thread: &ThreadId, message: &'static str) {
        let answer = CorePayload::ThreadCancelled { thread: thread.clone(), message };
        self.system_note(step, thread, &ListenerName::core(), &answer);
    }
}

/// Whether `call` was opened by another call of the same thread.
fn is_nested(call: &Call) -> bool {
    matches!(&call.opening.opener, Opener::Call { thread, .. } if *thread == call.thread)
}

/// Returns the threads from `thread` up to the direct child of `above`.
fn threads_up_to<'t>(
    thread: &ThreadId,
    above: &'t ThreadId,
) -> impl Iterator<Item = ThreadId> + 't {
    thread.upwards().take_while(move |thread| thread.is_beneath(above))
}

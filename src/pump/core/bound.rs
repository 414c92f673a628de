//! Threads that the core cancels: those that are bound to a call that has closed, and those that a
//! listener above them ends.

use super::{Core, Step};
use crate::ids::{ListenerName, ThreadId};
use crate::mutant::mutant;
use crate::system::Answer;

/// Reason for the end of a thread whose call has closed.
const CALL_ENDED: &str = "the call that this thread is bound to has ended";

impl Core {
    /// Cancels the threads that are bound to a call, once it is closed: a result of theirs is too late.
    pub(super) fn cancel_bound(&mut self, step: &mut Step, threads: Vec<ThreadId>) {
        for thread in threads.iter().filter(|_| !mutant("let-bound-threads-run")) {
            self.cancel_subtree(step, thread, CALL_ENDED);
        }
    }

    /// Cancels everything open in a thread and beneath it, and records why in the thread. Where nothing
    /// is open, nothing is recorded.
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

        let answer = Answer::ThreadCancelled { thread: thread.clone(), message };
        self.system_note(step, thread, &ListenerName::core(), &answer);
        for call in open {
            self.cancel_call(step, call, message);
        }
    }
}

//! Repeated client keys. A client may repeat a submission with the same client key and the same
//! payload. The repeated submission starts nothing. Its client gets the receipt of the earlier
//! submission.

use super::Core;
use super::event::{Receipt, Submission};
use super::refusals::refusal_of;
use crate::clock::Time;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, ListenerName};
use crate::mutant::mutant;
use crate::thread::KeyUse;

impl Core {
    /// Returns the receipt of the earlier submission with the same client key. Returns `None` if no
    /// earlier submission has the key, or if the key has expired.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the earlier submission had another payload.
    pub(super) fn same_key_again(
        &self,
        submission: &Submission,
        time: Time,
    ) -> Result<Option<Receipt>, Refusal> {
        let used = self
            .use_of_key(submission)
            .filter(|used| !self.has_expired(used, &submission.client, time));
        let (Some(used), Ok(checked)) = (used, &submission.payload) else { return Ok(None) };
        if checked.payload().digest == used.digest {
            let thread = used.thread.clone();
            let calls = used.calls.clone();
            let held = self.awaits_approval(&calls);
            return Ok(Some(Receipt::Accepted { thread, calls, again: true, held }));
        }

        let message = "this key was used for another payload; use a new key";
        Err(refusal_of(RefusalRule::KeyReused, message, checked))
    }

    /// Returns the earlier submission that used the client key of `submission`. Returns `None` if
    /// there is no such submission, or if `submission` has no key.
    pub(super) fn use_of_key(&self, submission: &Submission) -> Option<&KeyUse> {
        let key = submission.key.clone().filter(|_| !mutant("forget-the-key"))?;
        self.state.keys.get(&(submission.client.clone(), key))
    }

    /// Whether a client key has expired. A key expires when it is older than the time for which the
    /// client's keys are kept, and no call of its submission is open any more. A key with an open
    /// call does not expire, so that a retry never starts the same work in parallel.
    pub(super) fn has_expired(&self, used: &KeyUse, client: &ListenerName, time: Time) -> bool {
        let contract = self.contracts.get(client);
        let Some(kept) = contract.and_then(|client| client.keys_for) else { return false };
        let is_open = |call: &CallId| self.state.calls.contains_key(call);
        let is_in_use = used.calls.iter().any(is_open) && !mutant("expire-a-key-in-use");
        !is_in_use && self.state.key_age(used, time) >= kept
    }

    /// Whether the config limits the time for which the keys of at least one client are kept.
    pub(super) fn has_key_time(&self) -> bool {
        self.contracts.iter().any(|client| client.keys_for.is_some())
    }
}

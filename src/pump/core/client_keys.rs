//! Repeated client keys. A client may repeat a submission with the same client key and the same
//! payload. The repeated submission starts nothing. Its client gets the receipt of the earlier
//! submission, also if the present config refuses the payload.

use std::time::Duration;

use super::Core;
use super::event::{Receipt, Submission};
use super::refusals::refusal_of;
use crate::clock::Time;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::ListenerName;
use crate::mutant::mutant;
use crate::thread::KeyUse;

impl Core {
    /// Returns the receipt of the earlier submission that used the client key of `submission`.
    /// Returns `None` if there is no such submission, or if the key has expired. Also returns
    /// `None` if the payloads differ and the gate has refused the payload of `submission`.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the earlier submission had another payload, and the gate accepts the
    /// payload of `submission`.
    pub(super) fn same_key_again(
        &self,
        submission: &Submission,
        time: Time,
    ) -> Result<Option<Receipt>, Refusal> {
        let used = self
            .use_of_key(submission)
            .filter(|used| !self.has_expired(used, &submission.client, time));
        let Some(used) = used else { return Ok(None) };
        let digest = match &submission.payload {
            Ok(checked) => Some(checked.payload().digest),
            Err(_) => submission.refused_digest,
        };
        if digest == Some(used.digest) {
            let thread = used.thread.clone();
            let calls = used.calls.clone();
            let held = self.awaiting_approval(&calls);
            return Ok(Some(Receipt::Accepted { thread, calls, again: true, held }));
        }

        let message = "this key was used for another payload; use a new key";
        match &submission.payload {
            Ok(checked) => Err(refusal_of(RefusalRule::KeyReused, message, checked)),
            // The refusal of the gate comes first.
            Err(_) => Ok(None),
        }
    }

    /// Returns the earlier submission that used the client key of `submission`. Returns `None` if
    /// there is no such submission, or if `submission` has no key.
    pub(super) fn use_of_key(&self, submission: &Submission) -> Option<&KeyUse> {
        let key = submission.key.clone().filter(|_| !mutant("forget-the-key"))?;
        self.state.keys.get(&(submission.client.clone(), key))
    }

    /// Whether a client key has expired: it is older than the time for which the client's keys are
    /// kept, and no call is open in the tree of its submission. While a call is open, the key does
    /// not expire, so that a retry never starts the same work in parallel. The open call may be in
    /// a thread that outlives the call of the submission.
    pub(super) fn has_expired(&self, used: &KeyUse, client: &ListenerName, time: Time) -> bool {
        let Some(kept) = self.time_of_keys(client) else { return false };
        let tree = self.state.tree(&used.thread);
        let is_in_use = tree.is_some_and(|tree| !tree.calls.is_empty());
        let is_in_use = is_in_use && !mutant("expire-a-key-in-use");
        !is_in_use && self.state.key_age(used, time) >= kept
    }

    /// Returns the time for which the keys of `client` are kept. Returns `None` if they do not
    /// expire.
    pub(super) fn time_of_keys(&self, client: &ListenerName) -> Option<Duration> {
        self.contracts.get(client).and_then(|client| client.keys_for)
    }

    /// Whether the config limits the time for which the keys of at least one client are kept.
    pub(super) fn has_key_time(&self) -> bool {
        self.contracts.iter().any(|client| client.keys_for.is_some())
    }
}

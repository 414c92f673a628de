//! The client's submissions of payloads, and the wait for results.

use uuid::Uuid;

use super::{OpenedFork, RetryDeadline, ServiceClient};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Digest, ThreadId};
use crate::service::{
    Error, PartitionUnavailable, ResultsRequest, ServiceRequest, ServiceResponse, SubmitRequest,
    SubmitUpdate, TreeWait,
};

impl ServiceClient {
    /// Submits a payload. Calls `on_update` with the receipt. If the request waits for results,
    /// also calls `on_update` with each result, and with each reason why the submission's threads
    /// make no progress.
    pub async fn submit(
        &self,
        mut request: SubmitRequest,
        on_update: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let has_generated_key = request.key.is_none() && self.partitions().is_some();
        let partition = self.partitions().map_or(0, |partitions| {
            request.assign_thread_and_key();
            request.partition(partitions)
        });

        let retries = self.retries(partition);
        let progress = SubmissionProgress::of_submission(request, has_generated_key, retries);
        self.await_results(progress, on_update).await
    }

    /// Repeats the request of `progress` until all expected responses have come. Calls `on_update`
    /// with each update for the client.
    pub(super) async fn await_results(
        &self,
        mut progress: SubmissionProgress,
        mut on_update: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let partition = progress.retries.partition;
        while !progress.expected.is_nothing() {
            progress.begin_attempt();
            let request = progress.request.clone();
            let on_response = |response| {
                if let Some(update) = progress.take(response, self.is_local_silent()) {
                    on_update(update);
                }
            };
            let attempted = self.attempt(partition, &request, on_response).await;
            progress.end_attempt(attempted).await?;
        }
        Ok(())
    }
}

/// Progress of a submission, or of the wait for the results of a fork.
pub(super) struct SubmissionProgress {
    /// The request that the next attempt sends: the submission, or a request for the missing
    /// results if the calls are already accepted.
    request: ServiceRequest,
    expected: ExpectedReplies,
    /// Whether the client generated the key of the submission. If so, only an earlier attempt of
    /// the same submission can have used the key.
    has_generated_key: bool,
    waits: ReportedWaits,
    retries: RetryDeadline,
    /// Reason why the present attempt got no answer; `None` if no reason is known.
    unavailable: Option<PartitionUnavailable>,
    /// The error of the present attempt; `None` if it has not failed.
    failed: Option<Error>,
}

impl SubmissionProgress {
    fn of_submission(
        submission: SubmitRequest,
        has_generated_key: bool,
        retries: RetryDeadline,
    ) -> Self {
        let expected = ExpectedReplies::Receipt { wait: submission.wait };
        let request = ServiceRequest::Submit(submission);
        Self { has_generated_key, ..Self::new(request, expected, retries) }
    }

    pub(super) fn of_fork(fork: &OpenedFork, retries: RetryDeadline) -> Self {
        // The fork is on record, whatever its results are.
        let retries = RetryDeadline { is_unsure: true, ..retries };
        let OpenedFork { thread, calls, client, secret } = fork.clone();
        let expected = ExpectedReplies::Results(calls.len());
        let request = ResultsRequest { thread, calls, client: Some(client), secret };
        Self::new(ServiceRequest::AwaitResults(request), expected, retries)
    }

    fn new(request: ServiceRequest, expected: ExpectedReplies, retries: RetryDeadline) -> Self {
        Self {
            request,
            expected,
            has_generated_key: false,
            waits: ReportedWaits::default(),
            retries,
            unavailable: None,
            failed: None,
        }
    }

    fn begin_attempt(&mut self) {
        self.waits.begin_attempt();
        self.unavailable = None;
        self.failed = None;
    }

    /// Records a response to the present attempt. Returns the update for the client; `None` if the
    /// response contains no update. `is_local_silent` is true if the organism on this machine has
    /// not responded.
    fn take(&mut self, response: ServiceResponse, is_local_silent: bool) -> Option<SubmitUpdate> {
        match response {
            ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, .. })
                if refusal.rule == RefusalRule::UnknownCaller
                    && (is_local_silent || self.retries.is_unsure) =>
            {
                self.failed = Some(self.missing_proof(&refusal));
            }
            ServiceResponse::SubmitUpdate(update) => return self.take_update(update),
            ServiceResponse::Unavailable(why) => self.unavailable = Some(why),
            ServiceResponse::Failed(detail) => self.failed = Some(Error::Failed { detail }),
            _ => {}
        }
        None
    }

    fn take_update(&mut self, mut update: SubmitUpdate) -> Option<SubmitUpdate> {
        if let SubmitUpdate::Refused { refusal, .. } = &update
            && let Some(why) = self.unavailability(refusal)
        {
            self.unavailable = Some(why);
            return None;
        }
        if let SubmitUpdate::Waits(wait) = &update
            && !self.waits.add(wait)
        {
            return None;
        }

        self.expected.subtract(&update);
        match &mut update {
            SubmitUpdate::Accepted { thread, calls, again, .. } => {
                *again &= !self.has_generated_key;
                if let ServiceRequest::Submit(submission) = &self.request {
                    let results = ResultsRequest {
                        thread: thread.clone(),
                        calls: calls.clone(),
                        client: Some(submission.client.clone()),
                        secret: submission.secret.clone(),
                    };
                    self.request = ServiceRequest::AwaitResults(results);
                }
                self.retries.is_unsure = true;
            }
            SubmitUpdate::Result { call, .. } => {
                if let ServiceRequest::AwaitResults(results) = &mut self.request {
                    results.calls.retain(|expected| expected != call);
                }
            }
            _ => {}
        }
        Some(update)
    }

    /// Checks whether the client should repeat the request after `refusal`, because the submission
    /// is still undecided. If so, returns the reason as an unavailability of the partition. If
    /// `refusal` is the final answer, returns `None`.
    fn unavailability(&self, refusal: &Refusal) -> Option<PartitionUnavailable> {
        match refusal.rule {
            RefusalRule::Draining if self.retries.is_allowed => {
                Some(PartitionUnavailable::passing(refusal.to_string()))
            }
            // An earlier attempt may be recorded.
            RefusalRule::Busy | RefusalRule::StorageFull if self.retries.is_unsure => {
                Some(PartitionUnavailable::lasting(refusal.to_string()).unsure())
            }
            _ => None,
        }
    }

    /// Returns the error for a request that a pump refuses because the client has not proved its
    /// identity. There are two cases:
    /// - The request is a submission over NATS. The refusal is not final: the organism on this
    ///   machine requires no proof, but does not respond now. That organism may have accepted an
    ///   earlier attempt, or may accept a later one.
    /// - The request is for results. The calls are on record and continue, so only the results are
    ///   refused.
    ///
    /// The client does not repeat the request, because the pump records each of these refusals.
    fn missing_proof(&self, refusal: &Refusal) -> Error {
        let message = &refusal.message;
        if let ServiceRequest::AwaitResults(results) = &self.request {
            let thread = results.thread.clone();
            return Error::ResultsRefused { thread, detail: message.clone() };
        }

        let detail = format!("the organism on this host does not respond, and {message}");
        if self.retries.is_unsure {
            Error::Undecided { detail, failed: false }
        } else {
            Error::NotReady { detail }
        }
    }

    /// Ends the present attempt, which had the result `attempted`:
    /// - If all responses have come, returns at once.
    /// - If the attempt failed, returns its error.
    /// - Otherwise, waits until the request may be repeated. Returns an error if it must not be
    ///   repeated any more.
    async fn end_attempt(&mut self, attempted: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = attempted {
            let partition = self.retries.partition;
            return Err(if self.retries.is_unsure { error.undecided(partition) } else { error });
        }

        if self.expected.is_nothing() {
            return Ok(());
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }

        // A pump that has served an attempt for long ends it in this way.
        let unavailable = self.unavailable.take();
        let was_served = unavailable.as_ref().is_some_and(|why| why.soon && why.unsure);
        if !was_served {
            self.waits.keep_earlier();
        }
        self.retries.wait(unavailable).await
    }
}

/// The reasons for waiting that a client has received while it waits for results. With this list,
/// the client does not report the same reason a second time after a repeated request.
#[derive(Default)]
struct ReportedWaits {
    /// Reasons received before the present attempt: in the latest attempt that a pump certainly
    /// served, and in all attempts since then.
    earlier: Vec<TreeWait>,
    current: Vec<TreeWait>,
}

impl ReportedWaits {
    fn begin_attempt(&mut self) {
        self.earlier = std::mem::take(&mut self.current);
    }

    /// Keeps the reasons in `earlier` for the next attempt. Must be called if it is uncertain
    /// whether a pump has served the present attempt.
    fn keep_earlier(&mut self) {
        self.current.append(&mut self.earlier);
    }

    /// Adds a reason for waiting that was received in the present attempt. Returns false if
    /// `earlier` contains the same reason, and otherwise true.
    fn add(&mut self, wait: &TreeWait) -> bool {
        self.current.push(wait.clone());
        !self.earlier.contains(wait)
    }
}

/// The missing responses of a submission, or of the wait for the results of a fork.
enum ExpectedReplies {
    Receipt { wait: bool },
    Results(usize),
}

impl ExpectedReplies {
    fn subtract(&mut self, update: &SubmitUpdate) {
        *self = match (&*self, update) {
            (_, SubmitUpdate::Waits(_)) => return,
            (Self::Receipt { wait: true }, SubmitUpdate::Accepted { calls, .. }) => {
                Self::Results(calls.len())
            }
            (Self::Results(missing), SubmitUpdate::Result { .. }) => {
                Self::Results(missing.saturating_sub(1))
            }
            _ => Self::Results(0),
        };
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Results(0))
    }
}

impl SubmitRequest {
    /// Returns the partition of the thread that the submission continues or suggests. For an
    /// invalid thread id, returns partition 0, because the pump of any partition refuses the id.
    pub fn partition(&self, partitions: u32) -> u32 {
        let named = self.thread.as_ref().or(self.suggested.as_ref());
        let thread = named.and_then(|id| ThreadId::parse(id).ok());
        thread.map_or(0, |thread| thread.partition(partitions))
    }

    /// Assigns a thread and a client key to a submission that lacks them. All attempts then reach
    /// the same partition and count as one submission. If the submission has a key but no thread,
    /// the thread is derived from the key, so the same key of the same client always gives the same
    /// thread.
    pub fn assign_thread_and_key(&mut self) {
        if self.thread.is_none() && self.suggested.is_none() {
            self.suggested = Some(self.thread_of_key().unwrap_or_else(new_root_thread).to_string());
        }

        self.key.get_or_insert_with(|| format!("{OWN_KEY}{}", Uuid::now_v7().simple()));
    }

    /// Replaces the suggested thread by a new one in `partition`. `partitions` is the number of
    /// partitions of the organism.
    pub fn suggest_new_thread(&mut self, partition: u32, partitions: u32) {
        let mut ids = std::iter::repeat_with(new_root_thread);
        let suggested = ids.find(|id| id.partition(partitions) == partition);
        self.suggested = suggested.map(|id| id.to_string());
    }

    /// Returns the suggested thread if its id is derived from the client's key, and otherwise
    /// `None`.
    pub fn suggested_by_key(&self) -> Option<ThreadId> {
        let suggested = self.suggested.as_deref()?;
        self.thread_of_key().filter(|thread| thread.as_str() == suggested)
    }

    /// Returns the thread whose id is derived from the client's key; `None` if there is no key.
    fn thread_of_key(&self) -> Option<ThreadId> {
        let key = self.key.as_ref()?;
        let digest = Digest::of_parts(&[self.client.as_str().as_bytes(), b"\0", key.as_bytes()]);
        Some(ThreadId::root_of(&digest))
    }
}

/// Makes the id of a new root thread.
pub fn new_root_thread() -> ThreadId {
    ThreadId::root_of(&Digest::of(Uuid::now_v7().as_bytes()))
}

/// Prefix of client keys that this client generates.
const OWN_KEY: &str = "door-";

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::ids::{CallId, ListenerName, MessageId};
    use crate::limits;
    use crate::service::{OtherProject, WaitKind};

    fn submission(client: &str, key: Option<&str>) -> SubmitRequest {
        let mut request = SubmitRequest {
            client: ListenerName::parse(client).unwrap(),
            thread: None,
            suggested: None,
            key: key.map(str::to_owned),
            payload: Vec::new(),
            wait: true,
            trace: None,
            secret: None,
        };

        request.assign_thread_and_key();
        request
    }

    #[test]
    fn one_key_of_one_client_leads_to_one_thread_and_no_other_key_or_client_does() {
        let one = submission("desk", Some("7"));
        assert_eq!(one.suggested, submission("desk", Some("7")).suggested);
        assert_ne!(one.suggested, submission("desk", Some("8")).suggested);
        assert_ne!(one.suggested, submission("desk7", Some("")).suggested);
        assert_eq!(one.key.as_deref(), Some("7"));
    }

    #[test]
    fn without_a_key_every_submission_has_a_thread_and_a_key_of_its_own() {
        let one = submission("desk", None);
        let other = submission("desk", None);
        assert_ne!(one.suggested, other.suggested);
        assert_ne!(one.key, other.key);
        assert!(one.key.is_some_and(|key| key.len() <= limits::CLIENT_KEY_BYTES_MAX));
        ThreadId::parse(&one.suggested.unwrap()).unwrap();
    }

    /// If the organism on this host does not respond, it may still carry out the first attempt. A
    /// refusal over NATS for missing proof must then lead to an error instead of a final refusal,
    /// because a final refusal states that the submission was not carried out.
    #[tokio::test]
    async fn missing_proof_over_nats_is_no_refusal_after_the_organism_on_this_host_fell_silent() {
        let refusal =
            Refusal::new(RefusalRule::UnknownCaller, "over NATS it has to prove itself", b"");
        for (is_local_silent, is_unsure, expected) in [
            (false, false, None),
            (true, false, Some("try again")),
            (true, true, Some("may still be carried out")),
            (false, true, Some("may still be carried out")),
        ] {
            let until = Instant::now();
            let retries = RetryDeadline { partition: 0, is_allowed: true, until, is_unsure };
            let request = submission("desk", None);
            let mut progress = SubmissionProgress::of_submission(request, true, retries);
            let refusal = refusal.clone();
            let refused = SubmitUpdate::Refused { refusal, retry_after_ms: None };
            let update = progress.take(ServiceResponse::SubmitUpdate(refused), is_local_silent);
            assert_eq!(update.is_some(), expected.is_none(), "{is_local_silent} {is_unsure}");

            let ended = progress.end_attempt(Ok(())).await.map_err(|error| error.to_string());
            match (ended, expected) {
                (ended, None) => assert_eq!(ended, Ok(())),
                (ended, Some(expected)) => {
                    let error = ended.unwrap_err();
                    assert!(error.contains("it has to prove itself"), "{error}");
                    assert!(error.contains(expected), "{error}");
                }
            }
        }
    }

    /// A pump that proves no client refuses only the results. The calls are on record, so the
    /// error must leave their result open, also if the organism has no room for the wait or the
    /// wait failed. Any other error is final.
    #[tokio::test]
    async fn refused_or_missing_results_leave_open_how_an_accepted_request_ends() {
        let thread = ThreadId::parse("sess-accepted").unwrap();
        let calls = vec![CallId(MessageId(Uuid::now_v7()))];
        let retries = || {
            let until = Instant::now();
            RetryDeadline { partition: 0, is_allowed: true, until, is_unsure: false }
        };
        let of_fork = || {
            let (thread, calls) = (thread.clone(), calls.clone());
            let client = ListenerName::parse("desk").unwrap();
            let fork = OpenedFork { thread, calls, client, secret: None };
            SubmissionProgress::of_fork(&fork, retries())
        };
        let of_accepted = || {
            let request = submission("desk", None);
            let mut progress = SubmissionProgress::of_submission(request, true, retries());
            let (thread, calls) = (thread.clone(), calls.clone());
            let accepted = SubmitUpdate::Accepted { thread, calls, again: false, held: false };
            progress.take(ServiceResponse::SubmitUpdate(accepted), false).unwrap();
            progress
        };
        for is_local_silent in [false, true] {
            for mut progress in [of_fork(), of_accepted()] {
                let refusal = Refusal::new(RefusalRule::UnknownCaller, "it has no secret", b"");
                let refused = SubmitUpdate::Refused { refusal, retry_after_ms: None };
                let update = progress.take(ServiceResponse::SubmitUpdate(refused), is_local_silent);
                assert!(update.is_none(), "{update:?}");
                let error = progress.end_attempt(Ok(())).await.unwrap_err();
                assert!(matches!(error, Error::ResultsRefused { .. }), "{error:?}");
                let error = error.to_string();
                assert!(error.contains("it has no secret"), "{error}");
                assert!(error.contains("`organism thread sess-accepted`"), "{error}");
            }

            for (is_allowed, why) in [
                (false, PartitionUnavailable::lasting("too many commands")),
                (false, PartitionUnavailable::failed("it failed")),
                (true, PartitionUnavailable::failed("it failed")),
            ] {
                for mut progress in [of_fork(), of_accepted()] {
                    progress.retries.is_allowed = is_allowed;
                    progress.begin_attempt();
                    progress.take(ServiceResponse::Unavailable(why.clone()), is_local_silent);
                    let error = progress.end_attempt(Ok(())).await.unwrap_err();
                    assert!(matches!(error, Error::Undecided { .. }), "{error:?}");
                }
            }

            for mut progress in [of_fork(), of_accepted()] {
                progress.begin_attempt();
                progress.take(ServiceResponse::failed("it is not on record"), is_local_silent);
                let error = progress.end_attempt(Ok(())).await.unwrap_err();
                assert!(matches!(error, Error::Failed { .. }), "{error:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_refused_attempt_does_not_decide_a_request_that_may_be_on_record() {
        let retries = |is_unsure| {
            let until = Instant::now();
            RetryDeadline { partition: 1, is_allowed: true, until, is_unsure }
        };
        let of_submission = |is_unsure| {
            SubmissionProgress::of_submission(submission("desk", None), true, retries(is_unsure))
        };
        let thread = ThreadId::parse("sess-fork0001").unwrap();
        let fork = OpenedFork {
            thread,
            calls: vec![CallId(MessageId(Uuid::now_v7()))],
            client: ListenerName::parse("desk").unwrap(),
            secret: None,
        };
        for refused in [
            || Error::OtherPartitions { running: 2, ours: 3 },
            || Error::ConfigChanged { running: Digest::of(b"other"), ours: None },
            || Error::OtherVersion { theirs: 2, ours: 1 },
            || {
                let stored = "/other/organism.toml".into();
                Error::OtherProject(OtherProject { data: "/d".into(), stored, ours: "/o".into() })
            },
        ] {
            for (mut progress, is_decided) in [
                (of_submission(false), true),
                (of_submission(true), false),
                (SubmissionProgress::of_fork(&fork, retries(false)), false),
            ] {
                let error = progress.end_attempt(Err(refused())).await.unwrap_err().to_string();
                assert_eq!(error.contains("; nothing was "), is_decided, "{error}");
                let is_undecided = error.contains("read the thread before you send again");
                assert_eq!(is_undecided, !is_decided, "{error}");
            }
        }
    }

    /// If a pump may have recorded an earlier attempt, an error of a repeated attempt must leave
    /// the result open. Such an error occurs, for example, when the NATS servers no longer accept
    /// the credentials.
    #[tokio::test]
    async fn an_error_of_a_repetition_leaves_the_submission_undecided() {
        for (is_unsure, expected) in [
            (false, "no access"),
            (true, "gave a result (the organism could not carry out the request: no access)"),
        ] {
            let until = Instant::now();
            let retries = RetryDeadline { partition: 1, is_allowed: true, until, is_unsure };
            let request = submission("desk", None);
            let mut progress = SubmissionProgress::of_submission(request, true, retries);
            let ended = progress.end_attempt(Err(Error::failed("no access"))).await;
            let error = ended.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(
                error.contains("read the thread before you send again"),
                is_unsure,
                "{error}"
            );
        }
    }

    #[test]
    fn a_wait_that_the_previous_attempt_has_reported_is_not_new() {
        let wait = |target: &str| TreeWait {
            thread: ThreadId::parse("sess-waits0001").unwrap(),
            listener: ListenerName::parse("solo").unwrap(),
            wait: WaitKind::Paused { target: target.to_owned() },
        };
        let mut waits = ReportedWaits::default();
        waits.begin_attempt();
        assert!(waits.add(&wait("all")));
        waits.begin_attempt();
        assert!(!waits.add(&wait("all")));
        assert!(waits.add(&wait("solo")));

        // An attempt that reached no pump finds no wait.
        waits.begin_attempt();
        waits.keep_earlier();
        waits.begin_attempt();
        assert!(!waits.add(&wait("all")));

        // A wait that one attempt has not found is new when a later one finds it.
        waits.begin_attempt();
        waits.begin_attempt();
        assert!(waits.add(&wait("all")));
    }
}

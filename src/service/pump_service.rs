//! The service of one pump: carries out a request and sends every response.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    CallWaiters, Error, ForkRequest, LiveRequest, PartitionUnavailable, PauseReport, PauseRequest,
    ReplyPayload, ResponseSender, ResultsRequest, ServiceRequest, ServiceResponse, SubmitRequest,
    SubmitUpdate, TreeWatch,
};
use crate::audit::{self, CallPreviewView, ForkPoint, HeldCall, PointTurn};
use crate::blocking_work;
use crate::envelope::Refusal;
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};
use crate::journal;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::mutant::mutant;
use crate::pump::core::{ForkRuling, PauseRuling, Receipt, Target};
use crate::pump::driver::{
    CallCompletion, Handle, HeldPreview, HeldRequest, PumpStopped, PumpUnavailable,
};
use crate::thread::{
    Allotment, DecisionOrigin, ForkAction, ForkSource, ForkedRequest, PauseAction, PauseTarget,
    Verdict, client_result, reopened_id,
};

/// Reason for the refusal of a fork at a point that was found, but whose open calls cannot be
/// opened again.
const CANNOT_REOPEN: &str = ": the calls that were open there cannot be opened again, because a \
    message of them was redacted, or the config no longer has their agents";

#[derive(Clone)]
pub struct PumpService {
    pub(super) pump: Handle,
    pub(super) data: PathBuf,
    waiters: CallWaiters,
}

impl From<PumpStopped> for Error {
    fn from(_: PumpStopped) -> Self {
        Self::Stopped
    }
}

impl From<PumpUnavailable> for Error {
    fn from(error: PumpUnavailable) -> Self {
        match error {
            PumpUnavailable::Stopped(stopped) => stopped.into(),
            PumpUnavailable::Waits(obstacle) => Self::NotReady { detail: obstacle.to_string() },
        }
    }
}

impl PumpService {
    /// Creates the service of `pump`, whose journal is in `data`.
    pub fn new(pump: Handle, data: PathBuf) -> Self {
        let waiters = CallWaiters::new(pump.clone());
        Self { pump, data, waiters }
    }

    /// Carries out a request on the pump, and sends each response. A submission is carried out even
    /// if its client leaves. An operator's request, such as a pause, lapses if the returned future
    /// is dropped before the pump has taken the request.
    pub async fn respond(
        &self,
        request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let why = match self.carry_out(request, responses).await {
            Err(Error::NotReady { detail }) => PartitionUnavailable::lasting(detail),
            Err(Error::Undecided { detail, .. }) => PartitionUnavailable::lasting(detail).unsure(),
            // Only work that reads can fail in this way, so it has done nothing.
            Err(error @ Error::Panicked) => PartitionUnavailable::failed(error.to_string()),
            other => return other,
        };
        responses.send(ServiceResponse::Unavailable(why)).await.ok();
        Ok(())
    }

    async fn carry_out(
        &self,
        request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let response = match request {
            ServiceRequest::Submit(request) => return self.submit(request, responses).await,
            ServiceRequest::AwaitResults(request) => return self.results(request, responses).await,
            ServiceRequest::Cancel { thread, reason, origin, .. } => {
                self.cancel(thread, reason, origin).await?
            }
            ServiceRequest::Pause(request) => self.pause(request).await?,
            ServiceRequest::Fork(request) => self.fork(*request).await?,
            ServiceRequest::Retry(request) => self.retry(*request).await?,
            ServiceRequest::Decide(decision) => {
                let refusal = self.ruling(decision.submit(&self.pump)).await?;
                ServiceResponse::Ruled(refusal.map(Box::new))
            }
            ServiceRequest::JournalId { .. } => {
                let data = self.data.clone();
                let journal = blocking_work::run(move || journal_in(&data)).await??;
                ServiceResponse::JournalId(journal)
            }
            ServiceRequest::HeldThread { message, .. } => {
                ServiceResponse::HeldThread(self.answer(self.pump.held_thread(message)).await?)
            }
            ServiceRequest::HeldCalls { message, .. } => {
                match message {
                    Some(message) => {
                        let held = self.answer(self.pump.held_call(message)).await?;
                        send_held(held, responses).await;
                    }
                    None => {
                        let mut held = self.answer(self.pump.held_calls()).await?;
                        while let Some(batch) = self.answer(held.next_batch()).await? {
                            send_held(batch, responses).await;
                        }
                    }
                }
                ServiceResponse::HeldCallsEnd
            }
            ServiceRequest::FollowJournals => {
                return follow(0, self.pump.recorded(), responses).await;
            }
            ServiceRequest::FollowLive(request) => {
                return follow_live(&self.pump, &request, responses).await;
            }
            // The control socket responds to these requests itself.
            ServiceRequest::Status | ServiceRequest::Reload { .. } => {
                ServiceResponse::failed("this request is for the control socket of the organism")
            }
        };

        responses.send(response).await.ok();
        Ok(())
    }

    /// Returns the pump's answer to a query. Fails if the pump does not answer in time.
    async fn answer<T, E>(&self, answer: impl Future<Output = Result<T, E>>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        match timeout(limits::PUMP_RULING_TIMEOUT, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::NotReady { detail: self.reason_for_silence() }),
        }
    }

    /// Returns the pump's ruling on a request of an operator. If the ruling does not come in time,
    /// withdraws the request, and returns an error. If the pump had already taken the request, it
    /// may still carry out the request.
    pub(super) async fn ruling<T>(
        &self,
        ruling: impl Future<Output = Result<T, PumpStopped>>,
    ) -> Result<T, Error> {
        match timeout(limits::PUMP_RULING_TIMEOUT, ruling).await {
            Ok(ruling) => Ok(ruling?),
            Err(_) => Err(Error::Undecided { detail: self.reason_for_silence(), failed: false }),
        }
    }

    /// Returns the reason why the pump has not answered within [`limits::PUMP_RULING_TIMEOUT`].
    fn reason_for_silence(&self) -> String {
        let seconds = limits::PUMP_RULING_TIMEOUT.as_secs();
        match self.pump.waits_for() {
            Some(obstacle) => obstacle.to_string(),
            None => format!("the pump did not answer within {seconds} s"),
        }
    }

    async fn cancel(
        &self,
        thread: ThreadId,
        reason: String,
        origin: Option<DecisionOrigin>,
    ) -> Result<ServiceResponse, Error> {
        if self.answer(self.pump.tree_head(thread.clone())).await?.is_none() {
            return Ok(ServiceResponse::UnknownThread);
        }

        Ok(match self.ruling(self.pump.cancel(thread, reason, origin)).await? {
            Ok(()) => ServiceResponse::Cancelled,
            Err(refusal) => ServiceResponse::Ruled(Some(Box::new(refusal))),
        })
    }

    async fn pause(&self, request: PauseRequest) -> Result<ServiceResponse, Error> {
        let PauseRequest { verb, target, origin, .. } = request;
        let is_thread = matches!(target, PauseTarget::Thread(_));
        let by = ListenerName::operator();
        let action = PauseAction { verb, target, by, origin };
        let ruling = self.ruling(self.pump.pause(action)).await?;

        let report =
            |is_changed, in_flight| ServiceResponse::Paused(PauseReport { is_changed, in_flight });
        Ok(match ruling {
            PauseRuling::Done { in_flight } => report(true, in_flight),
            PauseRuling::Unchanged { in_flight } => report(false, in_flight),
            PauseRuling::UnknownTarget if is_thread => ServiceResponse::UnknownThread,
            PauseRuling::UnknownTarget => ServiceResponse::UnknownListener,
            PauseRuling::Refused(refusal) => ServiceResponse::Ruled(Some(Box::new(refusal))),
        })
    }

    /// Forks a thread. Reads the fork point from the journal, because the request's data about the
    /// fork point is not trusted.
    async fn fork(&self, request: ForkRequest) -> Result<ServiceResponse, Error> {
        let ForkRequest { thread, source, message, record, client, payload, live, .. } = request;
        let ForkRequest { allotment, origin, unpinned, .. } = request;
        let data = self.data.clone();
        let fork = thread.clone();
        let contracts = self.pump.contracts();
        let is_answered = move |name: &ListenerName| contracts.is_answered_in_forks(name);
        let find = move || -> Result<_, journal::Error> {
            let reader = JournalReader::open(&data)?;
            let Some(point) = ForkPoint::find(&reader, record, message, &is_answered)? else {
                return Ok(Err(String::new()));
            };
            if point.source.message != message || point.source.thread != source {
                let why = point.obstacle.map(|obstacle| format!(": it {obstacle}"));
                return Ok(Err(why.unwrap_or_default()));
            }
            let taken_over = point.taken_over(&reader, &fork, &is_answered)?;
            Ok(match taken_over {
                Some(taken_over) => Ok((point, taken_over)),
                None => Err(CANNOT_REOPEN.to_owned()),
            })
        };
        let (point, taken_over) = match blocking_work::run(find).await?? {
            Ok(found) => found,
            Err(why) => {
                let text = format!(
                    "the message {message} is no place at which a thread can be forked{why}"
                );
                return Ok(ServiceResponse::failed(text));
            }
        };
        // The requester may edit the message of a turn. The message of a request is always sent.
        let is_sent = point.request.is_some();
        if payload.is_some() != is_sent && (is_sent || point.turn.is_none()) {
            let text =
                "a fork at a client's request has a payload, and one after a result has none";
            return Ok(ServiceResponse::failed(text));
        }

        let again = |turn: &PointTurn| CallId(reopened_id(&thread, turn.call.0));
        let sender = match (point.request, &point.turn) {
            (Some(request), _) => Some((request.sender, None)),
            (None, Some(turn)) => Some((turn.agent.clone(), Some(again(turn)))),
            (None, None) => None,
        };
        let sender = sender.filter(|_| payload.is_some());
        let request = sender.map(|(sender, call)| ForkedRequest {
            id: MessageId(Uuid::now_v7()),
            sender,
            verdict: Verdict::Passed(Digest::ZERO),
            call,
        });
        let allotment = Allotment { until: None, ..allotment };
        let allotment = (allotment != Allotment::default()).then_some(allotment);
        let by = ListenerName::operator();
        let source = ForkSource { unpinned, ..point.source };
        let action = ForkAction { thread, source, client, live, allotment, request, by, origin };
        let payload = payload.as_deref().map(str::as_bytes);
        Ok(match self.ruling(self.pump.fork(action, taken_over, payload)).await? {
            ForkRuling::Forked { thread, calls } => ServiceResponse::Forked { thread, calls },
            ForkRuling::Refused(refusal) => ServiceResponse::Ruled(Some(Box::new(refusal))),
        })
    }

    async fn submit(
        &self,
        request: SubmitRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let send = async |update| responses.send(ServiceResponse::SubmitUpdate(update)).await.ok();
        let SubmitRequest { client, thread, suggested, key, payload, wait, trace, .. } = request;
        let target = match thread {
            Some(id) => Target::Thread { id },
            None => Target::New { suggested },
        };

        let (waits, mut watch) = TreeWatch::new(self.pump.clone());
        let waits = wait.then_some(waits);
        let submitted = self.pump.submit_watched(trace, &client, target, key, &payload, waits);
        // Boxed, because this task waits for the completions much longer than for the receipt.
        let (receipt, mut completions) = Box::pin(submitted).await?;

        let mut recorded = None;
        send(match receipt {
            Receipt::Accepted { thread, calls, again, held } => {
                recorded = again.then(|| (thread.clone(), calls.clone()));
                watch.accept(&thread, &held);
                let held = !held.is_empty();
                SubmitUpdate::Accepted { thread, calls, again, held }
            }
            Receipt::Refused { refusal, retry_after } => {
                let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
                SubmitUpdate::Refused { refusal, retry_after_ms: retry_after.map(millis) }
            }
            Receipt::NoThread { answer } => SubmitUpdate::NoThread { payload: answer },
        })
        .await;
        if !wait {
            return Ok(());
        }

        loop {
            let completion = loop {
                tokio::select! {
                    biased;
                    completed = completions.next() => break completed.transpose()?,
                    wait = watch.next() => send(SubmitUpdate::Waits(wait)).await,
                    // The client has left. The pump still records the results.
                    () = responses.closed() => return Ok(()),
                };
            };
            let Some(completion) = completion else { break };
            send(result_of(&completion)).await;
        }

        match recorded {
            Some((thread, calls)) => self.await_results(&thread, calls, responses, watch).await,
            None => Ok(()),
        }
    }

    /// Suggests a new thread in `partition` for a submission whose client key may have expired.
    /// Does so only if all of these conditions are met: the keys of this client expire, the
    /// suggested thread is derived from the client's key, and this thread already exists.
    ///
    /// If the key has expired, the submission is new work and needs the new thread. If the key has
    /// not expired, the pump sends the recorded answer and ignores the suggestion. Later
    /// submissions with the key reach the same pump, because the new thread is in `partition`.
    pub async fn replace_taken_thread(
        &self,
        submission: &mut SubmitRequest,
        partition: u32,
        partitions: u32,
    ) {
        let contracts = self.pump.contracts();
        let client = contracts.get(&submission.client);
        if client.is_none_or(|client| client.keys_for.is_none()) {
            return;
        }
        let Some(thread) = submission.suggested_by_key() else { return };

        // Read from the journal, because a pump answers no query while its journal is unavailable.
        let data = self.data.clone();
        let read = move || JournalReader::open(&data)?.head(&thread);
        let head = blocking_work::run(read).await;
        // If the journal cannot be read, the pump decides on the suggestion.
        if matches!(head, Ok(Ok(Some(_)))) {
            submission.suggest_new_thread(partition, partitions);
        }
    }

    /// Sends the results of calls that the pump has already accepted. First checks whether the
    /// requester may get them. Until all results are sent, also sends the reasons for waiting.
    async fn results(
        &self,
        request: ResultsRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let ResultsRequest { thread, calls, client, .. } = request;
        if let Some(client) = &client
            && !opened(&self.pump, client, Some(&thread)).await?
        {
            // The text is the same for another client's thread and for a thread that does not
            // exist, so that no client learns which threads exist.
            let detail = format!("the client `{client}` has no thread {thread} to wait for");
            responses.send(ServiceResponse::Failed(detail)).await.ok();
            return Ok(());
        }

        let (waits, mut watch) = TreeWatch::new(self.pump.clone());
        // A call may wait for an approval since the receipt, and a fork has no receipt.
        watch.accept(&thread, &[]);
        self.pump.watch(thread.clone(), waits).await?;
        self.await_results(&thread, calls, responses, watch).await
    }

    /// Sends the results of calls that the pump has already accepted, in the order of `calls`. The
    /// result of a completed call comes from the journal. While a call is open, sends the reasons
    /// for waiting that `watch` reports.
    async fn await_results(
        &self,
        thread: &ThreadId,
        calls: Vec<CallId>,
        responses: &ResponseSender,
        mut watch: TreeWatch,
    ) -> Result<(), Error> {
        for call in calls {
            let mut completion = pin!(self.waiters.completion(thread, call));
            let completed = loop {
                let wait = tokio::select! {
                    biased;
                    completed = &mut completion => break completed,
                    () = responses.closed() => return Err(Error::Stopped),
                    wait = watch.next() => wait,
                };
                let update = SubmitUpdate::Waits(wait);
                responses.send(ServiceResponse::SubmitUpdate(update)).await.ok();
            };
            let result = match completed {
                Ok(Some(completion)) => Some(result_of(&completion)),
                Ok(None) => recorded(&self.data, thread, call).await?,
                // The pump may have recorded the result just before it ended.
                Err(_) => Some(recorded(&self.data, thread, call).await?.ok_or(Error::Stopped)?),
            };
            let missing =
                || Error::failed(format_args!("the call {call} of {thread} is not on record"));
            let result = result.ok_or_else(missing)?;
            responses.send(ServiceResponse::SubmitUpdate(result)).await.ok();
        }

        Ok(())
    }

    /// Records a refusal that was decided by an entry point, such as the control socket, and not by
    /// the pump.
    pub async fn record_refusal(&self, sender: &ListenerName, refusal: &Refusal) {
        tracing::warn!(%sender, "refused at an entry point: {refusal}");
        // A pump that has stopped records nothing, but the log contains the refusal.
        self.pump.record_refusal(sender, refusal.clone()).await.ok();
    }

    /// Counts a submission of `client` that an entry point has refused because the organism is
    /// busy.
    pub fn count_busy(&self, client: &ListenerName) {
        self.pump.count_busy(client);
    }
}

/// Sends the position of the last readable record of the journal, now and each time the journal has
/// grown. Returns when the client leaves, or with [`Error::Stopped`] when the pump ends.
pub async fn follow(
    partition: u32,
    mut recorded: watch::Receiver<Position>,
    responses: &ResponseSender,
) -> Result<(), Error> {
    if recorded.has_changed().is_err() {
        return Err(Error::Stopped);
    }

    loop {
        let position = *recorded.borrow_and_update();
        // The send fails only if the client has left, which ends the loop.
        responses.send(ServiceResponse::Recorded { partition, position }).await.ok();

        tokio::select! {
            // `changed` fails only after the last position of an ended pump was sent.
            changed = recorded.changed() => changed.map_err(|_| Error::Stopped)?,
            () = responses.closed() => return Ok(()),
        }
    }
}

/// Sends the events of the pump's live channel until the client leaves. Returns [`Error::Stopped`]
/// when the pump ends.
async fn follow_live(
    pump: &Handle,
    request: &LiveRequest,
    responses: &ResponseSender,
) -> Result<(), Error> {
    if let Some(client) = &request.client
        && !opened(pump, client, request.thread.as_ref()).await?
        && !mutant("watch-any-thread")
    {
        // The text is the same for another client's thread and for a thread that does not exist, so
        // that no client learns which threads exist.
        let thread = request.signed_thread();
        let detail = format!("the client `{client}` has no thread {thread} to watch");
        responses.send(ServiceResponse::Failed(detail)).await.ok();
        return Ok(());
    }

    let mut recorded = pump.recorded();
    let reader = pump.live().open(request.filter());

    loop {
        tokio::select! {
            event = reader.next() => {
                // While the client does not read, this send waits, and the reader's queue drops
                // events.
                if responses.send(ServiceResponse::Live(event)).await.is_err() {
                    return Ok(());
                }
            }
            changed = recorded.changed() => changed.map_err(|_| Error::Stopped)?,
            () = responses.closed() => return Ok(()),
        }
    }
}

/// Whether `client` opened the tree that contains `thread`. Returns false if `thread` is `None`.
async fn opened(
    pump: &Handle,
    client: &ListenerName,
    thread: Option<&ThreadId>,
) -> Result<bool, Error> {
    let Some(thread) = thread else { return Ok(false) };
    Ok(pump.tree_opener(thread.clone()).await?.as_ref() == Some(client))
}

fn result_of(completion: &CallCompletion) -> SubmitUpdate {
    let replies = completion.messages.iter().map(|message| ReplyPayload::of(message)).collect();
    SubmitUpdate::Result { call: completion.call, how: completion.how, replies }
}

/// Returns the thread of the held call that `message` opened; `None` if the journal in `data` has
/// no such call. A held call waits for the decision of a person.
pub(super) fn held_in(data: &Path, message: MessageId) -> Result<Option<ThreadId>, Error> {
    let held = audit::held(&JournalReader::open(data)?)?;
    Ok(held.into_iter().find(|call| call.message == message).map(|call| call.thread))
}

/// Returns the id of the journal in `data`.
pub fn journal_in(data: &Path) -> Result<Uuid, Error> {
    Ok(JournalReader::open(data)?.about()?.journal)
}

/// Returns the recorded result of a call; `None` if the journal contains no result.
async fn recorded(
    data: &Path,
    thread: &ThreadId,
    call: CallId,
) -> Result<Option<SubmitUpdate>, Error> {
    let data = data.to_owned();
    let root = thread.root();
    let read = move || -> Result<_, journal::Error> {
        let reader = JournalReader::open(&data)?;
        match reader.head(&root)? {
            Some(Position(0)) | None => Ok(Vec::new()),
            Some(head) => reader.walk(head),
        }
    };

    let records = blocking_work::run(read).await??;
    let result = client_result(records.iter().map(|sealed| &sealed.record), call);
    Ok(result.map(|(how, messages)| {
        let replies = messages.into_iter().map(ReplyPayload::of).collect();
        SubmitUpdate::Result { call, how, replies }
    }))
}

/// Sends one response for each held call, which is a call that waits for the decision of a person.
async fn send_held(held: Vec<HeldRequest>, responses: &ResponseSender) {
    for held in held {
        let HeldRequest { request, hold, since, until, why, preview } = held;
        let call = HeldCall::new(&request, hold, (since, until), why);
        let call = call.with_preview(preview.map(view_of));
        responses.send(ServiceResponse::HeldCall(Box::new(call))).await.ok();
    }
}

fn view_of(preview: HeldPreview) -> CallPreviewView {
    match preview {
        HeldPreview::Requested => CallPreviewView::Requested,
        HeldPreview::Recorded(note) => CallPreviewView::recorded(&note),
        HeldPreview::Missing(reason) => CallPreviewView::Missing { reason },
    }
}

//! One pump as a door sees it: asked for something, it answers until everything is said.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use uuid::Uuid;

use super::Error;
use super::access::Denied;
use crate::audit;
use crate::ids::{CallId, MessageId, Position, ThreadId};
use crate::journal;
use crate::journal::sqlite::Reader;
use crate::pump::core::{Receipt, Target};
use crate::pump::driver::{CallCompletion, Handle};
use crate::service::{
    CallWaiters, ReplyPayload, ServiceRequest, ServiceResponse, SubmitRequest, SubmitUpdate,
    TreeWatch,
};

#[derive(Clone)]
pub struct Station {
    handle: Handle,
    data: PathBuf,
    waiters: CallWaiters,
}

impl Station {
    /// The pump behind `handle`, whose journal is in `data`.
    pub fn new(handle: Handle, data: PathBuf) -> Self {
        let waiters = CallWaiters::new(handle.clone());
        Self { handle, data, waiters }
    }

    /// Whoever asked may have gone: what was asked for is done all the same.
    pub(super) async fn answer(
        &self,
        ask: ServiceRequest,
        tell: mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        match ask {
            ServiceRequest::Submit(parcel) => self.send(parcel, &tell).await,
            ServiceRequest::AwaitResults { thread, calls } => {
                self.results(&thread, calls, &tell).await
            }
            ServiceRequest::Cancel { thread, reason, origin, .. } => {
                let cancelled = self.handle.cancel(thread, reason, origin).await;
                let said = match cancelled.map_err(|_| Error::Stopped)? {
                    Ok(()) => ServiceResponse::Cancelled,
                    Err(refusal) => ServiceResponse::Ruled(Some(Box::new(refusal))),
                };
                tell.send(said).await.ok();
                Ok(())
            }
            ServiceRequest::Decide(matter) => {
                let ruled = matter.submit(&self.handle).await.map_err(|_| Error::Stopped)?;
                tell.send(ServiceResponse::Ruled(ruled.map(Box::new))).await.ok();
                Ok(())
            }
            ServiceRequest::JournalId { .. } => {
                let data = self.data.clone();
                let look = move || journal_in(&data);
                let journal = tokio::task::spawn_blocking(look).await;
                tell.send(ServiceResponse::JournalId(journal.map_err(|_| Error::Stopped)??))
                    .await
                    .ok();
                Ok(())
            }
            // The socket answers it.
            ServiceRequest::Status => Ok(()),
            ServiceRequest::HeldThread { message, .. } => {
                let thread = self.handle.held_thread(message).await;
                tell.send(ServiceResponse::HeldThread(thread.map_err(|_| Error::Stopped)?))
                    .await
                    .ok();
                Ok(())
            }
        }
    }

    /// Submits a parcel and tells what becomes of it.
    async fn send(
        &self,
        parcel: SubmitRequest,
        tell: &mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        let target = match parcel.thread {
            Some(id) => Target::Thread { id },
            None => Target::New { suggested: parcel.suggested },
        };
        let SubmitRequest { client, key, payload, trace, .. } = parcel;
        let (notices, mut watch) = TreeWatch::new();
        let notices = parcel.wait.then_some(notices);
        let submitted = self.handle.submit_watched(trace, &client, target, key, &payload, notices);
        let (receipt, results) = submitted.await.map_err(|_| Error::Stopped)?;
        let (sent, known) = match receipt {
            Receipt::Accepted { thread, calls, again, held } => {
                let known = again.then(|| (thread.clone(), calls.clone()));
                watch.knows(&calls);
                (SubmitUpdate::Accepted { thread, calls, again, held }, known)
            }
            Receipt::Refused { refusal, retry_after } => {
                let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
                (SubmitUpdate::Refused { refusal, retry_after_ms: retry_after.map(millis) }, None)
            }
            Receipt::NoThread { answer } => (SubmitUpdate::NoThread { payload: answer }, None),
        };
        tell.send(ServiceResponse::SubmitUpdate(sent)).await.ok();
        if !parcel.wait {
            return Ok(());
        }
        for mut result in results {
            let done = loop {
                tokio::select! {
                    biased;
                    done = &mut result => break done.map_err(|_| Error::Stopped)?,
                    wait = watch.next() => {
                        tell.send(ServiceResponse::SubmitUpdate(SubmitUpdate::Waits(wait))).await.ok();
                    }
                }
            };
            tell.send(ServiceResponse::SubmitUpdate(result_of(&done))).await.ok();
        }
        match known {
            Some((thread, calls)) => self.results(&thread, calls, tell).await,
            None => Ok(()),
        }
    }

    /// The results of calls that were opened earlier: of an open call when it completes, of a call
    /// that is over from the record, which is read once.
    async fn results(
        &self,
        thread: &ThreadId,
        calls: Vec<CallId>,
        tell: &mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        for call in calls {
            let completed = tokio::select! {
                completed = self.waiters.completion(call) => completed,
                () = tell.closed() => return Err(Error::Stopped),
            };
            let sent = match completed {
                Ok(Some(completion)) => Some(result_of(&completion)),
                Ok(None) => recorded(&self.data, thread, call).await?,
                // The pump may have recorded the result just before it ended.
                Err(_) => Some(recorded(&self.data, thread, call).await?.ok_or(Error::Stopped)?),
            };
            let missing = || format!("the call {call} of {thread} is not on record");
            let sent = sent.ok_or_else(|| Error::Control { detail: missing() })?;
            tell.send(ServiceResponse::SubmitUpdate(sent)).await.ok();
        }
        Ok(())
    }

    /// Has a refusal recorded that was decided at the entry point.
    pub(super) async fn record_denied(&self, denied: &Denied) {
        let Denied { sender, refusal } = denied;
        tracing::warn!(%sender, "refused at an entry point: {refusal}");
        // A pump that stopped records nothing; the log has it.
        self.handle.record_refusal(sender, refusal.clone()).await.ok();
    }

    /// Whether there is such a thread here.
    pub(super) async fn knows(&self, thread: &ThreadId) -> Result<bool, Error> {
        let head = self.handle.tree_head(thread.clone()).await;
        Ok(head.map_err(|_| Error::Stopped)?.is_some())
    }
}

fn result_of(completion: &CallCompletion) -> SubmitUpdate {
    let replies = completion.messages.iter().map(|message| ReplyPayload::of(message)).collect();
    SubmitUpdate::Result { call: completion.call, how: completion.how, replies }
}

/// The thread of a call that waits for a person, by the journal in `data`.
pub(super) fn held_in(data: &Path, message: MessageId) -> Result<Option<ThreadId>, Error> {
    let held = audit::held(&Reader::open(data)?)?;
    Ok(held.into_iter().find(|call| call.message == message).map(|call| call.thread))
}

/// Id of the journal in `data`.
pub(super) fn journal_in(data: &Path) -> Result<Uuid, Error> {
    Ok(Reader::open(data)?.about()?.journal)
}

/// The result of a call, once there is one.
async fn recorded(
    data: &Path,
    thread: &ThreadId,
    call: CallId,
) -> Result<Option<SubmitUpdate>, Error> {
    let (path, root) = (data.to_owned(), thread.root());
    let read = move || -> Result<_, journal::Error> {
        let reader = Reader::open(&path)?;
        match reader.head(&root)? {
            Some(Position(0)) | None => Ok(Vec::new()),
            Some(head) => reader.walk(head),
        }
    };
    let records = tokio::task::spawn_blocking(read).await.map_err(|_| Error::Stopped)??;
    let result = records.iter().find_map(|sealed| sealed.record.result_of(call));
    Ok(result.map(|(how, messages)| {
        let replies = messages.into_iter().map(ReplyPayload::of).collect();
        SubmitUpdate::Result { call, how, replies }
    }))
}

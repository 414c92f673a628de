//! The client's requests for forks.

use uuid::Uuid;

use super::{ServiceClient, unexpected};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, Digest, ThreadId};
use crate::service::signing::OperatorSigner;
use crate::service::{Error, ForkRequest, ServiceRequest, ServiceResponse, SubmitUpdate};

/// A fork that a pump has recorded.
#[derive(Debug, Clone)]
pub struct OpenedFork {
    pub thread: ThreadId,
    /// The calls that the fork's first request opens; empty if the fork has no first request.
    pub calls: Vec<CallId>,
}

impl ServiceClient {
    /// Chooses an id for a fork of the thread `source`. The id belongs to the same partition as
    /// `source`.
    pub fn fork_id(&self, source: &ThreadId) -> ThreadId {
        let partitions = self.partitions().unwrap_or(1);
        loop {
            let id = ThreadId::root_of(&Digest::of(Uuid::now_v7().as_bytes()));
            // Ids in the fork must not become longer than the source's ids that they replace.
            let length = id.as_str().len().min(source.root().as_str().len());
            let Some(id) = id.as_str().get(..length).and_then(|id| ThreadId::parse(id).ok()) else {
                continue;
            };
            if id.partition(partitions) == source.partition(partitions) {
                return id;
            }
        }
    }

    /// Forks a thread. Returns the refusal if the pump refuses the fork.
    pub async fn fork(
        &self,
        request: ForkRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Result<OpenedFork, Refusal>, Error> {
        let source = request.source.clone();
        let partition = self.partition_of(&source);
        let mut request = ServiceRequest::Fork(Box::new(request));
        self.sign(&mut request, Some(&source), signer).await?;

        match self.response(partition, &request).await? {
            (ServiceResponse::Forked { thread, calls }, _) => Ok(Ok(OpenedFork { thread, calls })),
            // An earlier attempt that was carried out may be the cause of this refusal.
            (ServiceResponse::Ruled(Some(refusal)), true)
                if matches!(
                    refusal.rule,
                    RefusalRule::BadLabel | RefusalRule::NotSigned | RefusalRule::Busy
                ) =>
            {
                Err(Error::Lost)
            }
            (ServiceResponse::Ruled(Some(refusal)), _) => Ok(Err(*refusal)),
            (ServiceResponse::Failed(detail), _) => Err(Error::Failed { detail }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Waits for the results of a fork's first request.
    pub async fn fork_results(
        &self,
        fork: &OpenedFork,
        mut on_update: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let thread = fork.thread.clone();
        let mut calls = fork.calls.clone();
        let partition = self.partition_of(&thread);
        let mut retries = self.retries(partition);
        while !calls.is_empty() {
            let calls_left = calls.clone();
            let request =
                ServiceRequest::AwaitResults { thread: thread.clone(), calls: calls_left };
            let mut unavailable = None;
            let mut failed = None;
            let on_response = |response| match response {
                ServiceResponse::SubmitUpdate(update) => {
                    if let SubmitUpdate::Result { call, .. } = &update {
                        calls.retain(|expected| expected != call);
                    }
                    on_update(update);
                }
                ServiceResponse::Unavailable(why) => unavailable = Some(why),
                ServiceResponse::Failed(detail) => failed = Some(Error::Failed { detail }),
                _ => {}
            };
            self.attempt(partition, &request, on_response).await?;
            match failed {
                _ if calls.is_empty() => return Ok(()),
                Some(error) => return Err(error),
                None => retries.wait(unavailable).await?,
            }
        }
        Ok(())
    }
}

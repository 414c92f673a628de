//! The client's requests for forks.

use uuid::Uuid;

use super::submission::SubmissionProgress;
use super::{ServiceClient, unexpected};
use crate::envelope::Refusal;
use crate::ids::{CallId, Digest, ListenerName, ThreadId};
use crate::service::signing::OperatorSigner;
use crate::service::{
    BearerSecret, Error, ForkRequest, ServiceRequest, ServiceResponse, SubmitUpdate,
};

/// A fork that a pump has recorded.
#[derive(Debug, Clone)]
pub struct OpenedFork {
    pub thread: ThreadId,
    /// The calls that the fork's first request opens; empty if the fork has no first request.
    pub calls: Vec<CallId>,
    /// The client that receives the results of the fork.
    pub client: ListenerName,
    /// The secret with which the command proves `client` over NATS; `None` if the client has no
    /// secret, or if the command does not know it.
    pub secret: Option<BearerSecret>,
}

impl ServiceClient {
    /// Chooses a thread id for a fork of the thread `source`. The chosen id belongs to the same
    /// partition as `source`.
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
        let partition = self.partition_of(&request.source);
        let client = request.client.clone();
        let mut request = ServiceRequest::Fork(Box::new(request));
        self.sign(&mut request, signer).await?;

        match self.response(partition, &request).await? {
            ServiceResponse::Forked { thread, calls } => {
                Ok(Ok(OpenedFork { thread, calls, client, secret: None }))
            }
            ServiceResponse::Ruled(Some(refusal)) => Ok(Err(*refusal)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for the results of a fork's first request. Calls `on_update` with each result, and
    /// with each reason why the fork's threads make no progress.
    pub async fn fork_results(
        &self,
        fork: &OpenedFork,
        on_update: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let retries = self.retries(self.partition_of(&fork.thread));
        self.await_results(SubmissionProgress::of_fork(fork, retries), on_update).await
    }
}

//! The client's requests with which an operator retries messages.

use super::{ServiceClient, unexpected};
use crate::envelope::Refusal;
use crate::ids::{Digest, MessageId, ThreadId};
use crate::service::signing::OperatorSigner;
use crate::service::{Error, RetryReport, RetryRequest, ServiceRequest, ServiceResponse};

impl ServiceClient {
    /// Returns the id of a new root thread in `partition`, for the retry of a refused submission.
    /// `message` is the id of the submission. The same submission always gives the same thread id,
    /// so the submission can be retried only once.
    pub fn retry_thread(&self, message: MessageId, partition: u32) -> ThreadId {
        let partitions = self.partitions().unwrap_or(1);
        let ids = (0_u64..).map(|number| {
            ThreadId::root_of(&Digest::of(format!("retry {message} {number}").as_bytes()))
        });
        let is_there = |id: &ThreadId| id.partition(partitions) == partition % partitions.max(1);
        ids.into_iter().find(is_there).unwrap_or_else(ThreadId::organism)
    }

    /// Retries a message. Returns the refusal if the pump refuses the retry.
    pub async fn retry(
        &self,
        request: RetryRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Result<RetryReport, Refusal>, Error> {
        let partition = request.partition;
        let mut request = ServiceRequest::Retry(Box::new(request));
        self.sign(&mut request, signer).await?;

        match self.response(partition, &request).await? {
            ServiceResponse::Retried(report) => Ok(Ok(report)),
            ServiceResponse::Ruled(Some(refusal)) => Ok(Err(*refusal)),
            other => Err(unexpected(&other)),
        }
    }
}

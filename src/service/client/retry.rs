//! The client's requests with which an operator retries messages.

use super::{ServiceClient, unexpected};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{Digest, MessageId, ThreadId};
use crate::service::signing::OperatorSigner;
use crate::service::{Error, RetryReport, RetryRequest, ServiceRequest, ServiceResponse};

impl ServiceClient {
    /// Returns the id of the thread that a retry opens for a refused submission. `message` is the
    /// id of the submission, which was refused before it had a thread. The thread is a root thread
    /// in `partition`. The same submission always gives the same thread id, so the submission can
    /// be retried only once.
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
        let source = request.source.clone();
        let mut request = ServiceRequest::Retry(Box::new(request));
        if let Some(signer) = signer {
            let journal = self.journal_in_partition(partition).await?;
            signer.sign(&mut request, journal, &source);
        }

        match self.response(partition, &request).await? {
            (ServiceResponse::Retried(report), _) => Ok(Ok(report)),
            // An earlier attempt that was carried out may be the cause of this refusal.
            (ServiceResponse::Ruled(Some(refusal)), true)
                if matches!(refusal.rule, RefusalRule::NotSigned | RefusalRule::Busy) =>
            {
                Err(Error::Lost)
            }
            (ServiceResponse::Ruled(Some(refusal)), _) => Ok(Err(*refusal)),
            (ServiceResponse::Failed(detail), _) => Err(Error::Failed { detail }),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

//! Finds the journal and the thread that an operator's signature must name. A browser needs them
//! before it makes the signature.

use super::ServiceClient;
use crate::service::signing::SignaturePlace;
use crate::service::{Error, ServiceRequest};

impl ServiceClient {
    /// Finds the journal and the thread that a signature of this request must name. Returns `None`
    /// if the request concerns no thread on record. The pump will refuse such a request.
    pub async fn signature_place(
        &self,
        request: &ServiceRequest,
    ) -> Result<Option<SignaturePlace>, Error> {
        let thread = match request {
            ServiceRequest::Decide(decision) => self.held_thread(decision.message).await?,
            ServiceRequest::Cancel { thread, .. } => Some(thread.clone()),
            ServiceRequest::Pause(pause) => Some(pause.target.home()),
            ServiceRequest::Fork(fork) => Some(fork.source.clone()),
            ServiceRequest::Retry(retry) => Some(retry.source.clone()),
            _ => None,
        };
        let Some(thread) = thread else { return Ok(None) };

        let journal = match request {
            ServiceRequest::Pause(pause) => Some(self.journal_in_partition(pause.partition).await?),
            ServiceRequest::Retry(retry) => Some(self.journal_in_partition(retry.partition).await?),
            _ => self.journal_of(&thread).await?,
        };
        Ok(journal.map(|journal| SignaturePlace::now(journal, thread)))
    }
}

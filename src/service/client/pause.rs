//! The client's requests to pause or resume a thread, a listener, or everything.

use super::{ServiceClient, unexpected};
use crate::envelope::Refusal;
use crate::ids::ListenerName;
use crate::journal::partitions_in;
use crate::service::signing::OperatorSigner;
use crate::service::{Error, PauseReport, PauseRequest, ServiceRequest, ServiceResponse};
use crate::thread::{DecisionOrigin, PauseTarget, PauseVerb};

/// Reason why a pump did not carry out a pause or a resume.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("{0}")]
    Refused(Box<Refusal>),
    #[error("the config of the running organism has no agent or listener `{0}`")]
    UnknownListener(ListenerName),
    #[error("{0}")]
    Service(#[from] Error),
}

impl ServiceClient {
    /// Requests a pause or a resume of `target`. For a thread, sends one request, to the thread's
    /// partition. For any other target, sends a request to every partition. Returns one entry for
    /// each of these partitions, in ascending order: the partition's number, and the result of its
    /// request.
    pub async fn pause(
        &self,
        verb: PauseVerb,
        target: &PauseTarget,
        origin: &DecisionOrigin,
        signer: Option<&OperatorSigner>,
    ) -> Vec<(u32, Result<PauseReport, PauseError>)> {
        self.pause_each(self.pause_requests(verb, target, origin), signer).await
    }

    /// Returns the requests of a pause or a resume, one for each partition that `target` concerns.
    pub fn pause_requests(
        &self,
        verb: PauseVerb,
        target: &PauseTarget,
        origin: &DecisionOrigin,
    ) -> Vec<PauseRequest> {
        let count = || u32::try_from(partitions_in(&self.data).len()).unwrap_or(1);
        let partitions = self.partitions().unwrap_or_else(count).max(1);
        let concerned = match target {
            PauseTarget::Thread(thread) => vec![thread.partition(partitions)],
            PauseTarget::All | PauseTarget::Listener(_) => (0..partitions).collect(),
        };

        let requests = concerned.into_iter().map(|partition| {
            let origin = Some(origin.clone());
            PauseRequest { verb, target: target.clone(), partition, origin }
        });
        requests.collect()
    }

    /// Sends each request to the pump of its partition. Signs the requests with `signer`, or sends
    /// them unchanged if there is no signer. Returns one entry for each request, in the order of
    /// the requests: the partition's number, and the result.
    pub async fn pause_each(
        &self,
        requests: Vec<PauseRequest>,
        signer: Option<&OperatorSigner>,
    ) -> Vec<(u32, Result<PauseReport, PauseError>)> {
        // The requests are sent concurrently, so that an unreachable pump does not delay the
        // others.
        let results = requests.into_iter().map(async |request| {
            let partition = request.partition;
            (partition, self.pause_in(request, signer).await)
        });
        futures_util::future::join_all(results).await
    }

    async fn pause_in(
        &self,
        request: PauseRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<PauseReport, PauseError> {
        let partition = request.partition;
        let target = request.target.clone();
        let mut request = ServiceRequest::Pause(request);
        self.sign(&mut request, signer).await?;

        match (self.response(partition, &request).await?, target) {
            (ServiceResponse::Paused(report), _) => Ok(report),
            (ServiceResponse::Ruled(Some(refusal)), _) => Err(PauseError::Refused(refusal)),
            (ServiceResponse::UnknownThread, PauseTarget::Thread(thread)) => {
                Err(Error::NoThread { thread }.into())
            }
            (ServiceResponse::UnknownListener, PauseTarget::Listener(listener)) => {
                Err(PauseError::UnknownListener(listener))
            }
            (other, _) => Err(unexpected(&other).into()),
        }
    }
}

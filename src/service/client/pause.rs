//! The client's requests to pause or resume. Such a request can concern the pumps of all
//! partitions.

use uuid::Uuid;

use super::{ServiceClient, unexpected};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::ListenerName;
use crate::journal::partitions_in;
use crate::service::signing::OperatorSigner;
use crate::service::{
    Error, PauseReport, PauseRequest, ServiceRequest, ServiceResponse, journal_in,
};
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
    /// Requests a pause or a resume of `target`. If the target is a thread, the request goes to the
    /// partition of the thread. Any other target concerns all partitions. Returns the result of
    /// each partition concerned, with the number of the partition, in the order of the numbers.
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

    /// Sends each request to the pump of its partition, signed with `signer` if there is one.
    /// Without `signer`, an existing signature of a request is kept. Returns the result of each
    /// partition, in the order of the requests.
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
        if let Some(signer) = signer {
            let journal = self.journal_in_partition(partition).await?;
            signer.sign(&mut request, journal, &target.home());
        }

        match (self.response(partition, &request).await?, target) {
            ((ServiceResponse::Paused(report), _), _) => Ok(report),
            // An earlier attempt that was carried out may be the cause of this refusal.
            ((ServiceResponse::Ruled(Some(refusal)), true), _)
                if matches!(refusal.rule, RefusalRule::NotSigned | RefusalRule::Busy) =>
            {
                Err(Error::Lost.into())
            }
            ((ServiceResponse::Ruled(Some(refusal)), _), _) => Err(PauseError::Refused(refusal)),
            ((ServiceResponse::UnknownThread, _), PauseTarget::Thread(thread)) => {
                Err(Error::NoThread { thread }.into())
            }
            ((ServiceResponse::UnknownListener, _), PauseTarget::Listener(listener)) => {
                Err(PauseError::UnknownListener(listener))
            }
            ((other, _), _) => Err(unexpected(&other).into()),
        }
    }

    /// Returns the id of the journal of a partition.
    pub(super) async fn journal_in_partition(&self, partition: u32) -> Result<Uuid, Error> {
        if self.partitions().is_none() {
            let mut journals = partitions_in(&self.data).into_iter();
            let found = journals.find(|(number, _)| number.unwrap_or_default() == partition);
            let none =
                || Error::failed(format_args!("there is no journal of partition {partition}"));
            return journal_in(&found.ok_or_else(none)?.1);
        }

        match self.response(partition, &ServiceRequest::JournalId { partition }).await?.0 {
            ServiceResponse::JournalId(journal) => Ok(journal),
            other => Err(unexpected(&other)),
        }
    }
}

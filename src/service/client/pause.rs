//! The client's requests to pause or resume a thread, a listener, or everything.

use super::{ServiceClient, unexpected};
use crate::envelope::Refusal;
use crate::ids::ListenerName;
use crate::journal::partitions_in;
use crate::plural;
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
    #[error("{}", text(_0))]
    Service(#[from] Error),
}

impl PauseError {
    /// Whether the result is unknown: the pause or the resume may have taken effect, or may still
    /// take effect.
    pub fn is_result_unknown(&self) -> bool {
        matches!(self, Self::Service(error) if error.missing_result().is_some())
    }
}

/// Returns the text of `error` for a pause or a resume. If the result of the request is unknown,
/// the text names the command that shows the pauses in force. The general advice of `error` would
/// not fit, because it is about keys and threads of submissions.
fn text(error: &Error) -> String {
    match error.missing_result() {
        Some(missing) => format!(
            "{missing}; the request may have taken effect, or may later: `organism threads` shows \
             the pauses in force"
        ),
        None => error.to_string(),
    }
}

/// Describes the failures of a pause or a resume in `count` partitions, such as `1 of 2 partitions
/// did not pause`. Partitions without a known result are counted apart, because the request may
/// still take effect there.
pub fn failed_partitions<'e>(
    verb: PauseVerb,
    failures: impl Iterator<Item = &'e PauseError>,
    count: usize,
) -> String {
    let verb = if verb == PauseVerb::Resume { "resume" } else { "pause" };
    let (unknown, failed): (Vec<_>, Vec<_>) =
        failures.partition(|failure| failure.is_result_unknown());
    let unknown = unknown.len();
    let failed = failed.len();
    let partitions = plural::count(count, "partition");
    let failed = (failed > 0).then(|| format!("{failed} of {partitions} did not {verb}"));
    let unknown = (unknown > 0)
        .then(|| format!("{unknown} of {partitions} gave no result and may {verb} later"));
    [failed, unknown].into_iter().flatten().collect::<Vec<_>>().join("; ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_without_a_result_are_not_counted_as_failed() {
        let lost = || PauseError::Service(Error::Lost);
        let none = || {
            let detail = "no pump".to_owned();
            PauseError::Service(Error::NoPump { partition: 1, detail })
        };
        let text =
            |failures: &[PauseError]| failed_partitions(PauseVerb::Pause, failures.iter(), 3);

        assert_eq!(text(&[none()]), "1 of 3 partitions did not pause");
        assert_eq!(text(&[lost(), lost()]), "2 of 3 partitions gave no result and may pause later");
        assert_eq!(
            text(&[none(), lost()]),
            "1 of 3 partitions did not pause; 1 of 3 partitions gave no result and may pause later"
        );
    }

    #[test]
    fn a_missing_result_of_a_pause_is_explained_without_a_key_and_a_thread() {
        let detail = "no quorum".to_owned();
        for error in [
            Error::Lost,
            Error::Undecided { detail: detail.clone(), failed: false },
            Error::Unanswered { partition: 0, detail },
        ] {
            let error = PauseError::from(error);
            assert!(error.is_result_unknown(), "{error}");
            let text = error.to_string();
            assert!(!text.contains("key") && !text.contains("read the thread"), "{text}");
            assert!(text.contains("may have taken effect, or may later"), "{text}");
        }
    }
}

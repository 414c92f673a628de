//! The part of the pump's service that carries out retries by operators.

use uuid::Uuid;

use super::pump_service::PumpService;
use super::{Error, RetryReport, RetryRequest, ServiceResponse};
use crate::audit::RetrySource;
use crate::blocking_work;
use crate::ids::{Digest, ListenerName, MessageId};
use crate::journal::sqlite::JournalReader;
use crate::pump::core::RetryRuling;
use crate::thread::{RetryAction, Verdict};

impl PumpService {
    /// Retries a message. Reads the message from the journal, because the request's data about the
    /// message is not trusted.
    pub(super) async fn retry(&self, request: RetryRequest) -> Result<ServiceResponse, Error> {
        let RetryRequest { message, record, source, thread, is_confirmed, origin, .. } = request;
        let data = self.data.clone();
        let find = move || RetrySource::find(&JournalReader::open(&data)?, record, message);
        let found = blocking_work::run(find).await??;
        let found = match found {
            Ok(found) if found.tree == source => found,
            Ok(_) => {
                let text = format!("{message} cannot be retried: it is not in {source}");
                return Ok(ServiceResponse::failed(text));
            }
            Err(why) => {
                return Ok(ServiceResponse::failed(format!("{message} cannot be retried: {why}")));
            }
        };

        let action = RetryAction {
            message,
            record,
            source,
            thread: found.thread.unwrap_or(thread),
            id: MessageId(Uuid::now_v7()),
            sender: found.sender,
            to: found.to,
            key: found.key,
            is_unknown: found.is_unknown,
            is_confirmed,
            verdict: Verdict::Passed(Digest::ZERO),
            by: ListenerName::operator(),
            origin,
        };
        let retried = self.pump.retry(action, found.payload.as_bytes());
        Ok(match self.ruling(retried).await? {
            RetryRuling::Retried { thread, calls } => {
                ServiceResponse::Retried(RetryReport::Retried { thread, calls })
            }
            RetryRuling::AlreadyRetried(retry) => {
                ServiceResponse::Retried(RetryReport::AlreadyRetried { retry })
            }
            RetryRuling::Unconfirmed(reason) => {
                ServiceResponse::Retried(RetryReport::Unconfirmed { reason })
            }
            RetryRuling::Refused(refusal) => ServiceResponse::Ruled(Some(Box::new(refusal))),
        })
    }
}

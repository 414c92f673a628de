//! Asking whoever pumps a partition.

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Exchange, Heard, Hearer, Speaker};
use crate::limits;
use crate::nats::StatusCode;
use crate::organism::Error;
use crate::service::encoding;
use crate::service::{PartitionUnavailable, ServiceRequest, ServiceResponse};

impl Exchange {
    /// Sends a request, and hands over each response as it comes. The last one is
    /// [`ServiceResponse::Unavailable`] where no pump answers, or where one stops answering.
    pub async fn ask(
        &self,
        partition: u32,
        ask: &ServiceRequest,
        tell: &mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        let gone = |detail: &str, heard: bool, unsure: bool| {
            let detail = detail.to_owned();
            ServiceResponse::Unavailable(PartitionUnavailable { detail, soon: heard, unsure })
        };
        // Whoever asked may have gone.
        let say = async |said: ServiceResponse| tell.send(said).await.ok();
        // Away for long, a connection takes nothing more.
        let put = timeout(limits::EXCHANGE_SILENCE, self.put(partition, ask)).await;
        let Some(mut replies) = put.unwrap_or(Ok(None))? else {
            say(gone("the servers of NATS are away", false, false)).await;
            return Ok(());
        };
        let mut hearer = Hearer::default();
        let mut silent = true;
        loop {
            let patience = match silent {
                true => limits::EXCHANGE_GREETING,
                false => limits::EXCHANGE_SILENCE,
            };
            let Ok(Some(message)) = timeout(patience, replies.next()).await else {
                say(gone("whoever has it is silent", !silent, true)).await;
                return Ok(());
            };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                if silent {
                    say(gone("nobody has its lease", false, false)).await;
                    return Ok(());
                }
                continue;
            }
            silent = false;
            match hearer.take(&message.payload) {
                Heard::Line(line) => drop(say(encoding::decode(&line)?).await),
                Heard::More | Heard::Stranger => {}
                Heard::End => return Ok(()),
                Heard::Broken => {
                    say(gone("a part of the answer was lost", true, true)).await;
                    return Ok(());
                }
            }
        }
    }

    /// None where nothing can be asked any more.
    async fn put(
        &self,
        partition: u32,
        ask: &ServiceRequest,
    ) -> Result<Option<crate::nats::Subscriber>, Error> {
        let strange = |error: serde_json::Error| Error::Control { detail: error.to_string() };
        let asked = encoding::encode(ask).map_err(strange)?;
        let (inbox, subject) = (self.client.new_inbox(), self.subject(partition));
        let Ok(replies) = self.client.subscribe(inbox.clone()).await else { return Ok(None) };
        for piece in Speaker::new().pieces(&asked) {
            let (subject, inbox) = (subject.clone(), inbox.clone());
            let put = self.client.publish_with_reply(subject, inbox, piece.into()).await;
            if put.is_err() {
                return Ok(None);
            }
        }
        Ok(Some(replies))
    }
}

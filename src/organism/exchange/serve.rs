//! Answering for a partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use super::{Exchange, Heard, Hearer, Is, Speaker};
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{Client, Message};
use crate::organism::Error;
use crate::organism::control::refused;
use crate::organism::partitioned::Table;
use crate::service::encoding::{self, DecodeError};
use crate::service::{PartitionUnavailable, ServiceRequest, ServiceResponse};

/// What every inbox begins with: an answer never goes anywhere else.
const INBOX: &str = "_INBOX.";

/// Whether an answer may go there.
pub(super) fn is_inbox(subject: &str) -> bool {
    let fits = subject.starts_with(INBOX) && !subject.contains(['*', '>', ' ']);
    fits || mutant("answer-anywhere")
}

/// A partition's subject, while it is listened to.
pub(in crate::organism) struct Serving {
    client: Client,
    listening: JoinHandle<()>,
    answered: mpsc::Receiver<()>,
}

impl Exchange {
    pub async fn serve(&self, table: &Arc<Table>, partition: u32) -> Result<Serving, Error> {
        let subject = self.subject(partition);
        let failed = |detail: String| Error::Control { detail };
        let subscribed = self.client.subscribe(subject).await;
        let mut asked = subscribed.map_err(|error| failed(error.to_string()))?;
        // Every answer holds an end of this: it closes when all of them are given.
        let (answering, answered) = mpsc::channel(1);
        let desk = Desk { client: self.client.clone(), table: Arc::clone(table), partition };
        let listening = tokio::spawn(async move {
            let mut halves = Halves::default();
            let places = Arc::new(Semaphore::new(limits::EXCHANGES_MAX));
            while let Some(message) = asked.next().await {
                let Some((inbox, ask)) = halves.take(&message) else { continue };
                // More than that are answered when there is room: they hear silence, and ask again.
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let (desk, answering) = (desk.clone(), answering.clone());
                drop(tokio::spawn(async move {
                    desk.answer(inbox, &ask).await;
                    drop((place, answering));
                }));
            }
        });
        Ok(Serving { client: self.client.clone(), listening, answered })
    }
}

impl Serving {
    /// Takes nothing more; who was heard is told everything.
    pub fn hush(&mut self) {
        self.listening.abort();
    }

    /// Takes nothing more, and hands over what is said to those who asked.
    pub async fn farewell(mut self) {
        self.listening.abort();
        let all = async { while self.answered.recv().await.is_some() {} };
        if timeout(limits::EXCHANGE_FAREWELL, all).await.is_err() {
            tracing::warn!("somebody who asked over NATS was not told everything");
        }
        timeout(limits::EXCHANGE_FAREWELL, self.client.flush()).await.map(drop).unwrap_or_default();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Questions that are not whole yet, by the inbox they want their answer in.
#[derive(Default)]
struct Halves(HashMap<String, (Hearer, Instant)>);

impl Halves {
    /// A whole question, and where its answer goes.
    fn take(&mut self, message: &Message) -> Option<(String, Vec<u8>)> {
        let inbox = message.reply.as_ref()?.as_str();
        if !is_inbox(inbox) {
            tracing::warn!("a question is refused that wants its answer at `{inbox}`");
            return None;
        }
        let (mut hearer, since) =
            self.0.remove(inbox).unwrap_or((Hearer::default(), Instant::now()));
        match hearer.take(&message.payload) {
            Heard::Line(line) => return Some((inbox.to_owned(), line)),
            Heard::More => {}
            Heard::End | Heard::Stranger | Heard::Broken => return None,
        }
        self.0.retain(|_, (_, since)| since.elapsed() < limits::EXCHANGE_HALF_PATIENCE);
        if self.0.len() < limits::EXCHANGE_HALVES_MAX {
            self.0.insert(inbox.to_owned(), (hearer, since));
        }
        None
    }
}

#[derive(Clone)]
struct Desk {
    client: Client,
    table: Arc<Table>,
    partition: u32,
}

impl Desk {
    async fn answer(&self, inbox: String, ask: &[u8]) {
        let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
        let mut teller = Teller { client: &self.client, inbox, speaker: Speaker::new() };
        let (table, partition) = (Arc::clone(&self.table), self.partition);
        let ask = match encoding::decode::<ServiceRequest>(ask) {
            Ok(ask) => ask,
            Err(DecodeError::OtherVersion { theirs }) => {
                teller.put_line(&encoding::refuse_version(theirs)).await;
                return teller.put(Is::End).await;
            }
            Err(error) => return teller.end(&format!("not a question: {error}")).await,
        };
        if let Err(denied) = table.rules.judge_remote(&ask) {
            table.record_denied(&denied).await;
            teller.say(&refused(&ask, denied.refusal)).await;
            return teller.put(Is::End).await;
        }
        let mut answering =
            tokio::spawn(async move { table.answer_here(partition, ask, tell).await });
        let mut beat = interval(limits::EXCHANGE_BEAT);
        let turn = sleep(limits::EXCHANGE_TURN);
        tokio::pin!(turn);
        loop {
            tokio::select! {
                said = told.recv() => match said {
                    Some(said) => teller.say(&said).await,
                    None => break,
                },
                _ = beat.tick() => teller.put(Is::Beat).await,
                () = &mut turn => {
                    answering.abort();
                    teller.say(&gone_on()).await;
                    return teller.put(Is::End).await;
                }
            }
        }
        match (&mut answering).await {
            Ok(Ok(())) => teller.put(Is::End).await,
            Ok(Err(error)) => teller.end(&error.to_string()).await,
            Err(error) => teller.end(&error.to_string()).await,
        }
    }
}

/// Says line after line into one inbox.
struct Teller<'c> {
    client: &'c Client,
    inbox: String,
    speaker: Speaker,
}

impl Teller<'_> {
    async fn say(&mut self, said: &ServiceResponse) {
        match encoding::encode(said) {
            Ok(line) => self.put_line(&line).await,
            Err(error) => tracing::error!("an answer that is no JSON: {error}"),
        }
    }

    async fn put_line(&mut self, line: &[u8]) {
        for piece in self.speaker.pieces(line) {
            self.publish(piece).await;
        }
    }

    async fn put(&mut self, is: Is) {
        let piece = self.speaker.one(is, b"");
        self.publish(piece).await;
    }

    async fn end(&mut self, detail: &str) {
        self.say(&ServiceResponse::Failed(detail.to_owned())).await;
        self.put(Is::End).await;
    }

    async fn publish(&self, piece: Vec<u8>) {
        // A connection that is closed for good leaves nobody to tell.
        self.client.publish(self.inbox.clone(), piece.into()).await.ok();
    }
}

/// To be asked again by whoever still waits.
fn gone_on() -> ServiceResponse {
    let detail = "it takes longer".to_owned();
    ServiceResponse::Unavailable(PartitionUnavailable { detail, soon: true, unsure: false })
}

/// A partition that is not here any more, or not yet.
pub(in crate::organism) fn changing_hands() -> ServiceResponse {
    let detail = "it is changing hands".to_owned();
    ServiceResponse::Unavailable(PartitionUnavailable { detail, soon: true, unsure: false })
}

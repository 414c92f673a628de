//! Responds to requests over NATS that are meant for the pump of a partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{interval, sleep, timeout};

use super::PumpRpc;
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{Client, Message};
use crate::organism::Error;
use crate::organism::control::{refused, unanswered};
use crate::organism::partitioned::PartitionMap;
use crate::owned_tasks::AbortOnDrop;
use crate::service::chunks::{ChunkDecoder, ChunkEncoder, ChunkKind, DecodedChunk};
use crate::service::encoding;
use crate::service::{
    LiveRequest, NatsTransport, PartitionUnavailable, ServiceRequest, ServiceResponse,
    response_queue,
};

/// Prefix of inboxes. Responses are published only to subjects with this prefix.
const INBOX: &str = "_INBOX.";

/// Whether a subject is an inbox, that is, a subject to which responses may be published.
pub(super) fn is_inbox(subject: &str) -> bool {
    let fits = subject.starts_with(INBOX) && !subject.contains(['*', '>', ' ']);
    fits || mutant("answer-anywhere")
}

/// Subscription to the requests of a partition.
pub(in crate::organism) struct PartitionSubscription {
    client: Client,
    receiving: AbortOnDrop,
    responded: mpsc::Receiver<()>,
}

impl PumpRpc {
    /// Responds to the requests to the pump of `partition` until the returned subscription is
    /// dropped. While the servers deny the subscription, the partition is not ready in `map`.
    pub async fn serve(
        &self,
        map: &Arc<PartitionMap>,
        partition: u32,
    ) -> Result<PartitionSubscription, Error> {
        let known = Arc::clone(map);
        let report = Box::new(move |denied| known.set_requests_denied(partition, denied));
        let subject = self.transport.subject(partition);
        let mut messages = self.subscribe_renewed(subject, report).await?;

        // Every request in progress holds a sender of this channel, so the channel closes when all
        // requests are done.
        let (responding, responded) = mpsc::channel(1);
        let client = self.transport.client().clone();
        let transport = self.transport.clone();
        let map = Arc::clone(map);
        let handler = RequestHandler { transport: transport.clone(), map, partition };

        let receiving = AbortOnDrop::new(tokio::spawn(async move {
            let mut partial = PartialRequests::new(transport);
            // Bounds the requests in progress, so that clients elsewhere cannot exhaust this
            // process.
            let permits = Arc::new(Semaphore::new(limits::SERVICE_REQUESTS_MAX));

            while let Some(message) = messages.next().await {
                let (inbox, request) = match partial.add(&message) {
                    ArrivedChunk::Request { inbox, request } => (inbox, request),
                    ArrivedChunk::OtherOrganism { inbox } => {
                        handler.writer(inbox).write_mark(ChunkKind::End).await;
                        continue;
                    }
                    ArrivedChunk::Other => continue,
                };
                // If no permit is free, the request gets no response, and its client repeats it.
                let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
                let handler = handler.clone();
                let responding = responding.clone();
                drop(tokio::spawn(async move {
                    handler.respond(inbox, &request, responding).await;
                    drop(permit);
                }));
            }
        }));

        Ok(PartitionSubscription { client, receiving, responded })
    }
}

impl PartitionSubscription {
    /// Stops accepting requests. A request in progress still gets all its responses.
    pub fn stop(&mut self) {
        self.receiving.abort();
    }

    /// Stops accepting requests, and waits until requests in progress have all their responses.
    pub async fn drain(mut self) {
        self.receiving.abort();
        let all = async { while self.responded.recv().await.is_some() {} };
        if timeout(limits::SERVICE_FLUSH_TIMEOUT, all).await.is_err() {
            tracing::warn!("could not send all responses to a request over NATS");
        }
        timeout(limits::SERVICE_FLUSH_TIMEOUT, self.client.flush())
            .await
            .map(drop)
            .unwrap_or_default();
    }
}

/// Result of the arrival of a chunk.
enum ArrivedChunk {
    /// The request has all its chunks now.
    Request { inbox: String, request: Vec<u8> },
    /// The request is meant for another organism of the same name. Its sender learns the journal of
    /// this organism from an empty response, and waits for the pump of its own one.
    OtherOrganism { inbox: String },
    /// The chunk is refused, or the request lacks chunks.
    Other,
}

/// Requests whose chunks have not all arrived yet. The key is the inbox for the response.
struct PartialRequests {
    transport: NatsTransport,
    partial: HashMap<String, (ChunkDecoder, Instant)>,
    /// Number of requests that were refused because their reply subject is no inbox. A warning is
    /// logged only when this number is a power of two.
    refused: u64,
    /// Number of chunks of other organisms. A warning is logged as for refused requests.
    other_organisms: u64,
}

impl PartialRequests {
    fn new(transport: NatsTransport) -> Self {
        Self { transport, partial: HashMap::new(), refused: 0, other_organisms: 0 }
    }

    /// Adds a chunk to its request.
    fn add(&mut self, message: &Message) -> ArrivedChunk {
        let Some(inbox) = message.reply.as_deref() else { return ArrivedChunk::Other };
        if !is_inbox(inbox) {
            self.refused += 1;
            if self.refused.is_power_of_two() {
                tracing::warn!(
                    count = self.refused,
                    "refused a request whose reply subject `{inbox}` is not an inbox of its sender"
                );
            }
            return ArrivedChunk::Other;
        }

        let inbox = inbox.to_owned();
        let journal = self.transport.journal();
        let (mut decoder, since) =
            self.partial.remove(&inbox).unwrap_or((ChunkDecoder::new(journal), Instant::now()));

        match decoder.decode(&message.payload) {
            DecodedChunk::Message(request) => return ArrivedChunk::Request { inbox, request },
            DecodedChunk::Incomplete => {}
            DecodedChunk::End | DecodedChunk::OtherStream | DecodedChunk::Broken => {
                return ArrivedChunk::Other;
            }
            DecodedChunk::OtherOrganism(journal) => {
                self.warn_of_other(&journal);
                return ArrivedChunk::OtherOrganism { inbox };
            }
        }

        self.partial
            .retain(|_, (_, since)| since.elapsed() < limits::SERVICE_PARTIAL_REQUEST_TIMEOUT);
        if self.partial.len() < limits::SERVICE_PARTIAL_REQUESTS_MAX {
            self.partial.insert(inbox, (decoder, since));
        }

        ArrivedChunk::Other
    }

    fn warn_of_other(&mut self, journal: &str) {
        self.other_organisms += 1;
        if self.other_organisms.is_power_of_two() {
            let conflict = self.transport.name_conflict("the sender of a refused request", journal);
            tracing::warn!(count = self.other_organisms, "{conflict}");
        }
    }
}

#[derive(Clone)]
struct RequestHandler {
    transport: NatsTransport,
    map: Arc<PartitionMap>,
    partition: u32,
}

impl RequestHandler {
    /// Returns a writer of the responses to a request that is answered at `inbox`.
    fn writer(&self, inbox: String) -> InboxWriter<'_> {
        let encoder = ChunkEncoder::start(self.transport.journal());
        InboxWriter { client: self.transport.client(), inbox, encoder }
    }

    /// Responds to a request. An orderly stop of the server waits until `responding` is dropped.
    async fn respond(&self, inbox: String, request: &[u8], responding: mpsc::Sender<()>) {
        let mut writer = self.writer(inbox);
        let map = Arc::clone(&self.map);
        let partition = self.partition;
        let mut request = match encoding::decode_request::<ServiceRequest>(request) {
            Ok(request) => request,
            Err(refusal) => {
                writer.write_line(&refusal).await;
                return writer.write_mark(ChunkKind::End).await;
            }
        };

        if let Err(denied) = map.rules.in_force().rules.judge_remote(&request) {
            map.record_denied(&denied).await;
            writer.write(&refused(&request, denied.refusal)).await;
            return writer.write_mark(ChunkKind::End).await;
        }

        map.rules.in_force().rules.grant_remote(&mut request);
        if let ServiceRequest::FollowLive(live) = &request {
            // A subscription ends with the pump, and has no last response that a stop could wait
            // for.
            drop(responding);
            return self.follow_live(live.clone(), writer).await;
        }

        if matches!(request, ServiceRequest::FollowJournals) {
            let failed = ServiceResponse::failed("journals are followed on their own host");
            writer.write(&failed).await;
            return writer.write_mark(ChunkKind::End).await;
        }

        let (responses, mut received) = response_queue();
        let is_query = request.is_query();
        let mut responding =
            tokio::spawn(async move { map.respond_here(partition, request, &responses).await });
        let mut heartbeat = interval(limits::SERVICE_KEEP_ALIVE_INTERVAL);
        let timeout = sleep(limits::SERVICE_REQUEST_TIME_MAX);
        tokio::pin!(timeout);

        loop {
            tokio::select! {
                response = received.recv() => match response {
                    Some(response) => writer.write(&response).await,
                    None => break,
                },
                _ = heartbeat.tick() => writer.write_mark(ChunkKind::Heartbeat).await,
                () = &mut timeout => {
                    responding.abort();
                    let why = PartitionUnavailable::passing("the request takes longer").unsure();
                    writer.write(&ServiceResponse::Unavailable(why)).await;
                    return writer.write_mark(ChunkKind::End).await;
                }
            }
        }

        match (&mut responding).await {
            Ok(Ok(())) => writer.write_mark(ChunkKind::End).await,
            Ok(Err(error)) => writer.fail(error).await,
            Err(error) => writer.end_with(&unanswered(&error, is_query)).await,
        }
    }
}

impl RequestHandler {
    /// Sends the events of the live channel until the reader leaves. Also sends heartbeats, which
    /// show whether the reader has left: if the reader's inbox has no subscriber, the NATS servers
    /// reply to the heartbeat.
    async fn follow_live(&self, request: LiveRequest, mut writer: InboxWriter<'_>) {
        let client = self.transport.client();
        let absences = client.new_inbox();
        let Ok(mut absent) = client.subscribe(absences.clone()).await else { return };
        let (responses, mut received) = response_queue();
        let map = Arc::clone(&self.map);
        let partition = self.partition;
        let request = ServiceRequest::FollowLive(request);
        let responding =
            tokio::spawn(async move { map.respond_here(partition, request, &responses).await });

        let mut heartbeat = interval(limits::SERVICE_KEEP_ALIVE_INTERVAL);
        loop {
            tokio::select! {
                response = received.recv() => match response {
                    Some(response) => writer.write(&response).await,
                    None => break,
                },
                _ = heartbeat.tick() => writer.ask_for_presence(&absences).await,
                // Returning drops the receiver, which ends the subscription.
                _ = absent.next() => return,
            }
        }

        match responding.await {
            Ok(Ok(())) => writer.write_mark(ChunkKind::End).await,
            Ok(Err(error)) => writer.fail(error).await,
            Err(error) => writer.end_with(&unanswered(&error, true)).await,
        }
    }
}

/// Publisher of all responses to one request.
struct InboxWriter<'c> {
    client: &'c Client,
    inbox: String,
    encoder: ChunkEncoder,
}

impl InboxWriter<'_> {
    async fn write(&mut self, response: &ServiceResponse) {
        match encoding::encode(response) {
            Ok(line) => self.write_line(&line).await,
            Err(error) => tracing::error!("could not encode a response as JSON: {error}"),
        }
    }

    async fn write_line(&mut self, line: &[u8]) {
        for chunk in self.encoder.encode_message(line) {
            self.publish(chunk).await;
        }
    }

    async fn write_mark(&mut self, kind: ChunkKind) {
        let chunk = self.encoder.encode(kind, b"");
        self.publish(chunk).await;
    }

    /// Publishes a heartbeat. If the inbox has no subscriber, the NATS servers reply on the subject
    /// `absences`.
    async fn ask_for_presence(&mut self, absences: &str) {
        let beat = self.encoder.encode(ChunkKind::Heartbeat, b"");
        let inbox = self.inbox.clone();
        let absences = absences.to_owned();
        self.client.publish_with_reply(inbox, absences, beat.into()).await.ok();
    }

    async fn fail(&mut self, detail: impl std::fmt::Display) {
        self.end_with(&ServiceResponse::failed(detail)).await;
    }

    /// Writes the last response.
    async fn end_with(&mut self, response: &ServiceResponse) {
        self.write(response).await;
        self.write_mark(ChunkKind::End).await;
    }

    async fn publish(&self, chunk: Vec<u8>) {
        // The publish fails if the connection is closed, and then no client can be reached.
        self.client.publish(self.inbox.clone(), chunk.into()).await.ok();
    }
}

//! The transport over NATS to the pump of a partition. Requests go to the subject
//! `organism.<name>.pump.<partition>`. Requests and responses have the same encoding as on the
//! control socket, and travel as [`chunks`](super::chunks). Chunks name the journal of their
//! organism, so that another organism of the same name neither carries out a request nor answers
//! it.
//!
//! The client receives responses on its own inbox. A pump that serves a request sends a heartbeat
//! every second, so that the client notices when the pump has died. The transport uses core NATS,
//! which can lose a request. The client then repeats the request, and a client key keeps a repeated
//! submission from taking effect twice. Without a connection to a server, the transport sends
//! nothing, so that no request takes effect after its sender has given up.

use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::chunks::{ChunkDecoder, ChunkEncoder, DecodedChunk};
use super::{
    Error, PartitionUnavailable, ResponseSender, ServiceRequest, ServiceResponse, encoding,
};
use crate::limits;
use crate::nats::{self, Client, PermissionErrors, State, StatusCode, Subscriber};

/// A NATS connection to the pumps of one organism.
#[derive(Clone)]
pub struct NatsTransport {
    client: Client,
    denials: PermissionErrors,
    organism: String,
    /// Prefix of the names of the streams in which this organism keeps its journal. All hosts of an
    /// organism share it, also before they have a copy of the journal.
    journal: String,
}

impl NatsTransport {
    pub async fn connect(
        servers: &nats::Options,
        organism: &str,
        journal: &str,
    ) -> Result<Self, Error> {
        let name = format!("organism {organism}");
        let (client, denials) = nats::connect_with_denials(servers, &name).await?;
        let organism = organism.to_owned();
        let journal = journal.to_owned();
        Ok(Self { client, denials, organism, journal })
    }

    /// Returns the permission errors of the connection.
    pub fn denials(&self) -> &PermissionErrors {
        &self.denials
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the prefix of the names of the streams in which this organism keeps its journal.
    pub fn journal(&self) -> &str {
        &self.journal
    }

    /// Returns the warning that another organism has the name of this one. `sender` is the process
    /// or the request from which this is known, and `theirs` the prefix of that organism's streams.
    pub fn name_conflict(&self, sender: &str, theirs: &str) -> String {
        let Self { organism, journal, .. } = self;
        format!(
            "{sender} belongs to another organism of the name `{organism}` on these servers: its \
             journal is in the stream {theirs}, and that of this organism in {journal}. Give one \
             of them another `name`, or another account of the servers"
        )
    }

    /// Returns the NATS subject for `address`. The address is the number of a partition, or a word
    /// that stands for all processes of this organism.
    pub fn subject(&self, address: impl std::fmt::Display) -> String {
        format!("organism.{}.pump.{address}", self.organism)
    }

    /// Sends a request and passes on each response. If no pump responds, or if the pump stops
    /// responding, passes on [`ServiceResponse::Unavailable`] as the last response.
    pub async fn send(
        &self,
        partition: u32,
        request: &ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        // The send fails only if the client has left, which needs no handling.
        let respond = async |response| responses.send(response).await.ok();
        let unavailable = |why| respond(ServiceResponse::Unavailable(why));

        // If the server takes no bytes, the queue of the NATS client is full and publishing blocks.
        let published =
            timeout(limits::SERVICE_SILENCE_MAX, self.publish(partition, request)).await;
        let Some(mut replies) = published.unwrap_or(Ok(None))? else {
            let silence = || "the servers of NATS do not respond".to_owned();
            let why = self.denials.refusal().unwrap_or_else(silence);
            unavailable(PartitionUnavailable::lasting(why)).await;
            return Ok(());
        };

        let mut decoder = ChunkDecoder::new(&self.journal);
        let mut is_silent = true;
        let mut other_organism = None;

        loop {
            let patience = if is_silent {
                limits::SERVICE_FIRST_KEEP_ALIVE_TIMEOUT
            } else {
                limits::SERVICE_SILENCE_MAX
            };
            let Ok(Some(message)) = timeout(patience, replies.next()).await else {
                unavailable(self.silence(is_silent, other_organism.as_deref())).await;
                return Ok(());
            };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                if is_silent {
                    let why = format!(
                        "no pump receives requests at `{}`: none holds its lease, or NATS denies \
                         its pump this subject",
                        self.subject(partition)
                    );
                    unavailable(PartitionUnavailable::lasting(why)).await;
                    return Ok(());
                }
                continue;
            }

            let decoded = decoder.decode(&message.payload);
            // The pump of this organism may still respond.
            if let DecodedChunk::OtherOrganism(journal) = decoded {
                other_organism = Some(journal);
                continue;
            }

            is_silent = false;
            match decoded {
                DecodedChunk::Message(line) => drop(respond(encoding::decode(&line)?).await),
                DecodedChunk::Incomplete
                | DecodedChunk::OtherStream
                | DecodedChunk::OtherOrganism(_) => {}
                DecodedChunk::End => return Ok(()),
                DecodedChunk::Broken => {
                    let why = PartitionUnavailable::passing("a part of the response was lost");
                    unavailable(why.unsure()).await;
                    return Ok(());
                }
            }
        }
    }

    /// Returns why a request gets no further response. `is_silent` states whether it got none at
    /// all, and `other_organism` names the journal of another organism whose pump has refused it.
    fn silence(&self, is_silent: bool, other_organism: Option<&str>) -> PartitionUnavailable {
        let detail = "the pump that holds its lease does not respond";
        let why = match (is_silent, other_organism) {
            (false, _) => PartitionUnavailable::passing(detail),
            (true, None) => PartitionUnavailable::lasting(detail),
            (true, Some(theirs)) => {
                let conflict = self.name_conflict("a pump that refused the request", theirs);
                PartitionUnavailable::lasting(format!(
                    "no pump of this organism responds, and {conflict}"
                ))
            }
        };
        why.unsure()
    }

    /// Publishes a request and returns the subscription to its replies. Returns `None` if there is
    /// no connection to a server or the connection breaks. In this case, the pump never gets the
    /// whole request.
    async fn publish(
        &self,
        partition: u32,
        request: &ServiceRequest,
    ) -> Result<Option<Subscriber>, Error> {
        let request = encoding::encode(request).map_err(Error::failed)?;
        let subject = self.subject(partition);
        let inbox = self.client.new_inbox();
        if !self.is_connected() {
            return Ok(None);
        }
        let Ok(replies) = self.client.subscribe(inbox.clone()).await else { return Ok(None) };

        for chunk in ChunkEncoder::start(&self.journal).encode_message(&request) {
            // Ordering rule: checked directly before each publish. During an outage, the NATS
            // client would queue the request and send it after the outage, when the sender does not
            // expect its effects any more.
            if !self.is_connected() {
                return Ok(None);
            }
            let subject = subject.clone();
            let inbox = inbox.clone();
            let published = self.client.publish_with_reply(subject, inbox, chunk.into()).await;
            if published.is_err() {
                return Ok(None);
            }
        }

        Ok(Some(replies))
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }
}

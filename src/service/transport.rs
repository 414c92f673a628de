//! The transports of requests. Each transport leads from a client to the pump that carries out the
//! client's requests.

use super::{
    Error, LiveGrant, NatsTransport, PumpService, ResponseSender, ServiceRequest, SocketTransport,
};

pub enum ServiceTransport {
    /// The pump runs in this process.
    InProcess(PumpService),
    /// The organism runs on this machine, and is reached over its control socket.
    Socket(SocketTransport),
    /// The pump of the partition is reached over NATS, and may run on any machine.
    Nats(NatsTransport),
}

impl ServiceTransport {
    /// Sends a request and passes on each response, including the last one. Returns [`Error::Lost`]
    /// if the responses break off.
    pub async fn send(
        &self,
        partition: u32,
        request: &ServiceRequest,
        responses: ResponseSender,
    ) -> Result<(), Error> {
        match self {
            Self::InProcess(pump) => {
                let mut request = request.clone();
                // The pump runs in this process, which sees everything anyway.
                if let ServiceRequest::FollowLive(live) = &mut request {
                    live.client = None;
                    live.granted = Some(LiveGrant::Text);
                }
                pump.respond(request, &responses).await
            }
            Self::Socket(socket) => socket.send(request, &responses).await,
            Self::Nats(nats) => nats.send(partition, request, &responses).await,
        }
    }
}

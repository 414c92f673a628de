//! The transports between a client and the pump that carries out its requests.

use tokio::sync::mpsc;

use super::{Error, NatsTransport, PumpService, ServiceRequest, ServiceResponse, SocketTransport};

pub enum ServiceTransport {
    /// A pump of this process.
    InProcess(PumpService),
    /// The control socket of an organism on this host.
    Socket(SocketTransport),
    /// The pump of a partition on any host.
    Nats(NatsTransport),
}

impl ServiceTransport {
    /// Sends a request and passes on each response up to the last one; [`Error::Lost`] if the
    /// responses break off.
    pub async fn send(
        &self,
        partition: u32,
        request: &ServiceRequest,
        responses: mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        match self {
            Self::InProcess(pump) => pump.respond(request.clone(), &responses).await,
            Self::Socket(socket) => socket.send(request, &responses).await,
            Self::Nats(nats) => nats.send(partition, request, &responses).await,
        }
    }
}

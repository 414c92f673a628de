//! The one interface to a running organism: requests, responses, their encoding, the client, its
//! transports, and the service that carries out requests on a pump. Every entry point is a caller
//! of this interface: commands, other pumps over NATS, and programs that embed the organism.
//!
//! This module must not know terminals or browsers. It starts no pump and listens on no socket.

pub mod announcement;
pub mod changed_config;
pub mod chunks;
mod client;
pub mod encoding;
mod error;
pub mod handshake;
mod nats_transport;
mod pump_service;
mod request;
mod response;
mod response_queue;
mod retry;
pub mod signing;
mod socket_transport;
mod transport;
mod tree_waits;
mod waiters;

pub use client::{OpenedFork, PauseError, ServiceClient, failed_partitions, new_root_thread};
pub use error::{Error, OtherProject, is_config_present};
pub use nats_transport::NatsTransport;
pub use pump_service::{PumpService, follow, journal_in};
pub use request::{
    BearerSecret, DecisionRequest, ForkRequest, LiveGrant, LiveRequest, PauseRequest,
    ResultsRequest, RetryRequest, ServiceRequest, SubmitRequest, SubmittedAnswer,
};
pub use response::{
    PartitionUnavailable, PauseReport, ReloadReport, ReplyPayload, RetryReport, ServiceResponse,
    SubmitUpdate,
};
pub use response_queue::{ResponseReceiver, ResponseSender, response_queue};
pub use socket_transport::{SocketTransport, bind_socket, socket_path};
pub use transport::ServiceTransport;
pub use tree_waits::{TreeWait, TreeWatch, WaitKind};
pub use waiters::CallWaiters;

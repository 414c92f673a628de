//! Models: requests and answers in one form for every provider.
//!
//! An answer is a stream of text that must end with its terminator: a stream that stops without
//! one is an [`Error`], never a short success. Must not know agents, threads' state, the journal
//! or the pump.

mod answer;
mod anthropic;
mod error;
mod estimate;
pub mod http;
mod key;
mod openai;
pub mod playback;
pub mod remote;
mod request;
pub mod router;
pub mod sse;
mod terms;
pub mod tokens;
mod wire;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

pub use answer::{AnswerChunk, ModelRoute, OwnBlock, StopReason, StreamEnd, TokenUsage, ToolCall};
pub use error::{CallPhase, Error};
pub use key::{BadKey, KeySource, ProviderKey};
pub use playback::PlaybackModel;
pub use remote::RemoteModel;
pub use request::{
    ChatBlock, ChatMessage, ChatRole, ModelRequest, ModelTool, RequestOrigin, ToolChoice,
};
pub use router::ModelRouter;
pub use terms::{ModelTerms, RouteTerms, TokenPrice};
pub use wire::{WireSettings, plain_body};

/// Whether a request may leave, once that is known.
pub type AdmissionFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Admits the requests of one model call, each before it leaves.
pub trait CallAdmission: Send + Sync {
    /// A request is about to go to `route`, which its router knows as `name` and may try so often.
    ///
    /// # Errors
    /// [`Error::Exhausted`] where it was tried that often already, [`Error::NoBudget`] and
    /// [`Error::NoPump`] where nothing may leave at all.
    fn admit<'a>(&'a self, route: ModelRoute, name: String, most: u32) -> AdmissionFuture<'a>;
}

/// A call under way; dropping it ends it and closes its connection.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<StreamEnd, Error>> + Send + 'a>>;

/// Takes an answer piece by piece, in order.
pub type OnChunk<'a> = &'a mut (dyn FnMut(AnswerChunk<'_>) + Send);

/// Something that answers as a model does.
pub trait ModelProvider: Debug + Send + Sync {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a>;

    /// As [`ModelProvider::call`], with every request admitted before it leaves.
    fn call_admitted<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_chunk: OnChunk<'a>,
        admission: &'a dyn CallAdmission,
    ) -> CallFuture<'a> {
        Box::pin(async move {
            let route = self.route();
            let name = route.to_string();
            admission.admit(route, name, u32::MAX).await?;
            self.call(request, on_chunk).await
        })
    }

    /// Route that is tried first.
    fn route(&self) -> ModelRoute;

    /// Settings of requests to `route`; `None` for a provider that uses no network.
    fn settings(&self, route: &ModelRoute) -> Option<WireSettings> {
        let _ = route;
        None
    }
}

/// A model behind whatever provides it. Cheap to clone.
pub type SharedModel = Arc<dyn ModelProvider>;

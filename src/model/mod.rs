//! Models: requests and answers in one form for every provider.
//!
//! An answer is a stream of text that must end with its terminator. A stream that stops without the
//! terminator is an [`Error`], never a short success. This module must not know agents, the state
//! of threads, the journal or the pump.

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
mod unasked_model;
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
pub use unasked_model::UnaskedModel;
pub use wire::{WireSettings, block_json, plain_body};

/// Future that resolves when a request may be sent. Fails with the reason if the request must not
/// be sent.
pub type AdmissionFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Admission control for a model call: each request of the call needs permission before it is sent.
pub trait CallAdmission: Send + Sync {
    /// Requests permission to send a request to `route`. `name` is the router's name for the route.
    /// `most` is the maximum number of requests that this model call may send to the route.
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] if the route has already been tried `most` times. [`Error::NoBudget`]
    /// if the budget is spent. [`Error::NoPump`] if the pump has stopped.
    fn admit<'a>(&'a self, route: ModelRoute, name: String, most: u32) -> AdmissionFuture<'a>;

    /// Returns the call's request in the form for `provider`; `None` if the request already has
    /// this form. If the conversation contains native calls, the form depends on the provider. A
    /// native call is written as a block of the provider's API only if this provider made the call.
    fn request_for(&self, provider: &str) -> Option<ModelRequest> {
        let _ = provider;
        None
    }
}

/// A running model call. Dropping this future ends the call and closes the connection.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<StreamEnd, Error>> + Send + 'a>>;

/// Callback that receives the pieces of an answer, in order.
pub type OnChunk<'a> = &'a mut (dyn FnMut(AnswerChunk<'_>) + Send);

/// A source of model answers: a provider, a router, or a recording.
pub trait ModelProvider: Debug + Send + Sync {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a>;

    /// Like [`ModelProvider::call`], but sends each request only with the permission of
    /// `admission`.
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

    /// Returns the first route that a call tries.
    fn route(&self) -> ModelRoute;

    /// Returns the settings of requests to `route`. If several routes have the same provider and
    /// the same name of the model, returns the settings of each, in the order of the routes. If
    /// earlier versions of this program sent requests with other settings, these follow each, because
    /// recorded requests may have them. Returns no settings for a provider that uses no network.
    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        let _ = route;
        Vec::new()
    }

    /// Returns the maximum tokens of the answer to `request` on the first route. Returns `None` if
    /// neither the request nor the config sets a maximum.
    fn answer_bound(&self, request: &ModelRequest) -> Option<u32> {
        let settings = self.settings(&self.route());
        match settings.first() {
            Some(settings) => settings.max_tokens(request),
            None => request.answer_bound(),
        }
    }
}

/// A model that several owners share. Cheap to clone.
pub type SharedModel = Arc<dyn ModelProvider>;

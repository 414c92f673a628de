//! Models: what a provider is asked and what it answers, the same for every provider.
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

pub use answer::{Chunk, End, OwnBlock, Route, StopReason, ToolCall, Usage};
pub use error::{Error, Phase};
pub use key::{BadKey, Key, KeySource};
pub use playback::Playback;
pub use remote::Remote;
pub use request::{Block, Origin, Request, Role, Said, Tool, ToolChoice};
pub use router::Router;
pub use terms::{Price, Term, Terms};
pub use wire::{WireSettings, plain_body};

/// Whether a request may leave, once that is known.
pub type Admitting<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Admits the requests of one model call, each before it leaves.
pub trait Admission: Send + Sync {
    /// A request is about to go to `route`, which its router knows as `name` and may try so often.
    ///
    /// # Errors
    /// [`Error::Exhausted`] where it was tried that often already, [`Error::NoBudget`] and
    /// [`Error::NoPump`] where nothing may leave at all.
    fn admit<'a>(&'a self, route: Route, name: String, most: u32) -> Admitting<'a>;
}

/// A call under way; dropping it ends it and closes its connection.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<End, Error>> + Send + 'a>>;

/// Takes an answer piece by piece, in order.
pub type OnChunk<'a> = &'a mut (dyn FnMut(Chunk<'_>) + Send);

/// Something that answers as a model does.
pub trait Provider: Debug + Send + Sync {
    fn call<'a>(&'a self, request: &'a Request, on_chunk: OnChunk<'a>) -> Calling<'a>;

    /// As [`Provider::call`], with every request admitted before it leaves.
    fn call_admitted<'a>(
        &'a self,
        request: &'a Request,
        on_chunk: OnChunk<'a>,
        admission: &'a dyn Admission,
    ) -> Calling<'a> {
        Box::pin(async move {
            let route = self.route();
            let name = route.to_string();
            admission.admit(route, name, u32::MAX).await?;
            self.call(request, on_chunk).await
        })
    }

    /// Who is asked first.
    fn route(&self) -> Route;

    /// What a request to `route` is sent with besides; `None` where no network is between.
    fn settings(&self, route: &Route) -> Option<WireSettings> {
        let _ = route;
        None
    }
}

/// A model behind whatever provides it. Cheap to clone.
pub type Model = Arc<dyn Provider>;

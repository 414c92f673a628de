//! Models that refuse every call. A trial, which runs recorded threads again, uses these models if
//! the trial has no budget. Such a trial may use only recorded answers, so these models replace the
//! models on the network.

use std::sync::Arc;

use super::{
    CallAdmission, CallFuture, Error, ModelProvider, ModelRequest, ModelRoute, OnChunk,
    SharedModel, WireSettings,
};

/// A model that fails every call. It has the settings of a real model, so that a request to it has
/// the same text and digest as a request to the real model.
#[derive(Debug)]
pub struct UnaskedModel(SharedModel);

impl UnaskedModel {
    pub fn in_place_of(model: SharedModel) -> SharedModel {
        Arc::new(Self(model))
    }

    fn refuse(&self, request: &ModelRequest) -> Error {
        Error::NotOnRecord {
            route: self.0.route(),
            agent: request.origin.agent.to_string(),
            turn: request.origin.turn,
        }
    }
}

impl ModelProvider for UnaskedModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, _: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(async move { Err(self.refuse(request)) })
    }

    fn call_admitted<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_chunk: OnChunk<'a>,
        _: &'a dyn CallAdmission,
    ) -> CallFuture<'a> {
        // Nothing is reserved, since nothing is sent.
        self.call(request, on_chunk)
    }

    fn route(&self) -> ModelRoute {
        self.0.route()
    }

    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        self.0.settings(route)
    }
}

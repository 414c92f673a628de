//! Spans of agents' turns and model calls, with the attribute names of OpenTelemetry's conventions
//! for generative AI. Spans contain no text of the conversation.

use std::borrow::Cow;

use crate::bus::native_host::{HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::clock::Time;
use crate::config::{ModelSpec, ProviderConfig};
use crate::envelope::AttemptFailure;
use crate::ids::ListenerName;
use crate::limits;
use crate::model::{
    self, CallFuture, ModelRequest, ModelRoute, OnChunk, SharedModel, StopReason, StreamEnd,
    TokenUsage,
};
use crate::trace::{AttributeValue, Span, SpanKind, SpanTracer};

/// An agent that records a span for each of its turns, if the trace of the turn is exported.
pub(super) struct TracedAgent<H> {
    pub agent: H,
    pub name: ListenerName,
    /// Route that each model call of the agent tries first. A route is a provider with one of its
    /// models.
    pub route: ModelRoute,
    pub tracer: SpanTracer,
}

impl<H: NativeHandler> NativeHandler for TracedAgent<H> {
    async fn handle(
        &self,
        mut delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        let Some(at) = delivery.trace.filter(|trace| self.tracer.keeps(trace)) else {
            return self.agent.handle(delivery, context).await;
        };

        let own = at.at(self.tracer.another(at.span()));
        delivery.trace = Some(own);
        let name = format!("invoke_agent {}", self.name);
        let span = Span::new(own, SpanKind::Internal, name, Time::now())
            .of(Some(at.span()))
            .with("gen_ai.operation.name", "invoke_agent")
            .with("gen_ai.agent.name", self.name.to_string())
            .with("gen_ai.conversation.id", delivery.thread.to_string());
        let mut open = SpanGuard::new(&self.tracer, of_route(span, &self.route));
        let answered = self.agent.handle(delivery, context).await;

        match &answered {
            Ok(outcome) => open.ends(None, |span| match &outcome.turn {
                Some(turn) => span
                    .with("gen_ai.usage.input_tokens", turn.tokens_in)
                    .with("gen_ai.usage.output_tokens", turn.tokens_out),
                None => span,
            }),
            Err(failure) => open.ends(Some(failure.word().into()), |span| span),
        }

        answered
    }
}

/// A model that records a span for each of its calls, if the trace of the call is exported.
#[derive(Debug)]
pub(super) struct TracedModel {
    model: SharedModel,
    tracer: SpanTracer,
    /// Address of the provider. `None` for a model without a network.
    server: Option<(String, u16)>,
}

impl TracedModel {
    pub fn new(model: SharedModel, spec: &ModelSpec, tracer: &SpanTracer) -> Self {
        let server = match &spec.provider {
            ProviderConfig::Remote { options, .. } => {
                Some((options.endpoint.host().to_owned(), options.endpoint.port()))
            }
            ProviderConfig::Playback { .. } | ProviderConfig::Routed { .. } => None,
        };

        Self { model, tracer: tracer.clone(), server }
    }

    fn span(&self, request: &ModelRequest, span: Span) -> Span {
        let span = span
            .with("gen_ai.operation.name", "chat")
            .with("gen_ai.agent.name", request.origin.agent.to_string())
            .with("gen_ai.conversation.id", request.origin.thread.to_string())
            .with_some(
                "gen_ai.request.max_tokens",
                self.model.answer_bound(request).map(u64::from),
            );
        let span = of_route(span, &self.model.route());
        match &self.server {
            Some((host, port)) => {
                span.with("server.address", host.clone()).with("server.port", u64::from(*port))
            }
            None => span,
        }
    }

    async fn call(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
    ) -> Result<StreamEnd, model::Error> {
        let Some(at) = request.origin.trace.filter(|trace| self.tracer.keeps(trace)) else {
            return self.model.call(request, on_chunk).await;
        };

        // The provider gets the id of the span of this call.
        let own = at.at(self.tracer.another(at.span()));
        let mut traced_request = request.clone();
        traced_request.origin.trace = Some(own);
        let name = format!("chat {}", self.model.route().model);
        let span = Span::new(own, SpanKind::Client, name, Time::now()).of(Some(at.span()));
        let mut open = SpanGuard::new(&self.tracer, self.span(request, span));
        let answered = self.model.call(&traced_request, on_chunk).await;

        match &answered {
            Ok(end) => open.ends(None, |span| of_end(span, end)),
            Err(error) => open.ends(Some(error.word().into()), |span| {
                let status = error.status().map(u64::from);
                span.with_some("http.response.status_code", status)
            }),
        }

        answered
    }
}

impl model::ModelProvider for TracedModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(self.call(request, on_chunk))
    }

    fn settings(&self, route: &ModelRoute) -> Vec<model::WireSettings> {
        self.model.settings(route)
    }

    fn route(&self) -> ModelRoute {
        self.model.route()
    }
}

fn of_route(span: Span, route: &ModelRoute) -> Span {
    span.with("gen_ai.provider.name", provider(&route.provider))
        .with("gen_ai.request.model", route.model.clone())
}

/// Returns the name of a provider in OpenTelemetry's conventions. If the conventions have no name
/// for the provider, returns the name that the provider has in the config.
fn provider(name: &str) -> String {
    match name {
        "xai" => "x_ai",
        "mistral" => "mistral_ai",
        other => other,
    }
    .to_owned()
}

fn of_end(span: Span, end: &StreamEnd) -> Span {
    let TokenUsage { tokens_in, tokens_out, cached, cache_written, estimated } = end.usage;
    let some = |tokens: u64| (tokens > 0).then_some(tokens);
    let finish = AttributeValue::Texts(vec![Cow::Borrowed(finish(end.stop))]);
    let model = end.model.as_deref().map(|name| {
        let visible = name.chars().filter(|c| !c.is_control());
        visible.take(limits::MODEL_NAME_CHARS_MAX).collect::<String>()
    });
    let mut span = span
        .with_some("gen_ai.response.model", model)
        .with("gen_ai.usage.input_tokens", tokens_in)
        .with("gen_ai.usage.output_tokens", tokens_out)
        .with_some("gen_ai.usage.cache_read.input_tokens", some(cached))
        .with_some("gen_ai.usage.cache_creation.input_tokens", some(cache_written));
    span.attributes.push(("gen_ai.response.finish_reasons", finish));
    if estimated {
        span.attributes.push(("organism.usage.estimated", AttributeValue::Flag(true)));
    }

    span
}

const fn finish(stop: StopReason) -> &'static str {
    match stop {
        StopReason::Normal => "stop",
        StopReason::Calls => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refused => "content_filter",
        StopReason::Unknown => "unknown",
    }
}

/// Guard for the span of a turn or model call. If the guard is dropped before the turn or model
/// call has ended, the guard ends the span and marks it as cancelled.
struct SpanGuard<'a> {
    tracer: &'a SpanTracer,
    span: Option<Span>,
}

impl<'a> SpanGuard<'a> {
    fn new(tracer: &'a SpanTracer, span: Span) -> Self {
        Self { tracer, span: Some(span) }
    }

    fn ends(&mut self, error: Option<Cow<'static, str>>, with: impl FnOnce(Span) -> Span) {
        if let Some(span) = self.span.take() {
            let mut span = with(span);
            span.ended = Time::now();
            span.error = error;
            self.tracer.enqueue(span);
        }
    }
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        self.ends(Some("cancelled".into()), |span| span);
    }
}

//! The main loop of a listener. Each handler serves one payload name. The loop passes each delivery
//! to the handler for the payload that opened the call.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;

use tracing_subscriber::EnvFilter;

use crate::bus::memory::CallMemory;
use crate::ids::PayloadName;
use crate::nats::CLIENT_LOG_LEVELS;

use super::connection::KitConnection;
use super::delivery_channel::DeliveryChannel;
use super::nats::{self, NatsEndpoint};
use super::payload::{IntoReply, Preview, Reply, TypedPayload};
use super::request::Request;

type PreviewHandler = Box<dyn FnMut(&Request) -> Result<Preview, String>>;

type PayloadHandler = Box<dyn FnMut(&Request) -> Result<Reply, HandlerFailure>>;

/// Reason why the handler of a call has no answer that can be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandlerFailure {
    /// The handler returned an error. The pump retries the call.
    #[error("{0}")]
    Failed(String),
    /// The payload does not have the fields of the handler's type. A retry would fail in the same
    /// way, so the call must end.
    #[error("the payload cannot be read: {0}")]
    UnreadablePayload(String),
    /// The answer of the handler cannot be sent. A retry would repeat the effects of the handler,
    /// so the call must end.
    #[error("the answer cannot be sent: {0}")]
    UnwritableAnswer(String),
}

/// Serves the calls of one payload name with `handler`. A `main` function needs nothing else. See
/// [`Listener::serve`].
pub fn serve<P, R, E>(handler: impl FnMut(P, &Request) -> Result<R, E> + 'static) -> ExitCode
where
    P: TypedPayload,
    R: IntoReply,
    E: Display,
{
    Listener::new().on(handler).serve()
}

/// Writes the warnings of the kit to standard error. Does nothing if the program has a log of its
/// own.
fn log_warnings() {
    let filter = EnvFilter::new(format!("warn,{CLIENT_LOG_LEVELS}"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(false)
        // A closed standard error must not end the listener.
        .log_internal_errors(false);
    log.try_init().ok();
}

/// A listener, with one handler for each payload name that can open a call.
#[derive(Default)]
pub struct Listener {
    handlers: HashMap<PayloadName, PayloadHandler>,
    otherwise: Option<PayloadHandler>,
    preview: Option<PreviewHandler>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Listener {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the handler for calls whose first payload has the type `P`.
    pub fn on<P, R, E>(
        mut self,
        mut handler: impl FnMut(P, &Request) -> Result<R, E> + 'static,
    ) -> Self
    where
        P: TypedPayload,
        R: IntoReply,
        E: Display,
    {
        let typed = move |request: &Request| {
            let payload = request.read::<P>();
            let payload = payload.map_err(|e| HandlerFailure::UnreadablePayload(causes(&e)))?;
            reply_of(handler(payload, request))
        };
        self.handlers.insert(P::payload_name(), Box::new(typed));
        self
    }

    /// Sets the handler for all calls whose payload has no handler of its own. This handler reads
    /// the payload as text.
    pub fn otherwise<R, E>(
        mut self,
        mut handler: impl FnMut(&Request) -> Result<R, E> + 'static,
    ) -> Self
    where
        R: IntoReply,
        E: Display,
    {
        self.otherwise = Some(Box::new(move |request| reply_of(handler(request))));
        self
    }

    /// Sets the handler for previews. While a call waits for a person, this handler shows what the
    /// call would do. This handler must change nothing. A listener needs this handler if its config
    /// declares `previews = true`. The handler that carries out the call must check
    /// [`Request::holds`] before it acts.
    pub fn on_preview<E: Display>(
        mut self,
        mut handler: impl FnMut(&Request) -> Result<Preview, E> + 'static,
    ) -> Self {
        self.preview = Some(Box::new(move |request| handler(request).map_err(|e| e.to_string())));
        self
    }

    /// Serves the deliveries that arrive on standard input, until the pump closes standard input.
    /// If the pump dies while a handler runs, the program ends. If the environment sets
    /// [`NatsEndpoint::URL`], serves deliveries from NATS instead, until a signal ends the program.
    ///
    /// If a handler returns `Err`, a child process exits with code 1, and a replica on NATS answers
    /// with an error. In both cases, the pump treats the attempt as a crash of the listener and
    /// retries the call. To report a failure to the caller, return a payload instead. If the call
    /// was cancelled before the handler returned `Err`, the error is only logged, and the answer
    /// has no payloads.
    ///
    /// A call ends without a retry if its payload lacks the fields of the handler's type, or if the
    /// answer cannot be sent because it is too large or contains a character that XML does not
    /// allow.
    ///
    /// Logs warnings to standard error, such as a lost server or a denied operation, unless the
    /// program has installed a `tracing` subscriber before.
    pub fn serve(self) -> ExitCode {
        log_warnings();
        let served = NatsEndpoint::of_environment().and_then(|place| match place {
            Some(place) => self.serve_at(&place, nats::signalled()),
            None => KitConnection::standard()
                .map_err(|e| format!("cannot take over standard input and output: {e}"))
                .and_then(|connection| self.run(connection)),
        });
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                // Standard error may be closed, too. The exit code still shows the failure.
                let _ = writeln!(io::stderr(), "{reason}");
                ExitCode::FAILURE
            }
        }
    }

    /// Serves the deliveries that arrive on `input`, and writes the answers to `output`, in place
    /// of standard input and standard output.
    pub fn serve_on(self, input: OwnedFd, output: OwnedFd) -> Result<(), String> {
        self.run(KitConnection::new(input, output))
    }

    /// Serves deliveries from NATS until `stopped` completes. Then accepts no further deliveries,
    /// finishes those that it already has, and returns.
    pub fn serve_at(
        mut self,
        place: &NatsEndpoint,
        stopped: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        self.check_handlers()?;
        let gives_previews = self.preview.is_some();
        nats::serve(place, gives_previews, stopped, &mut |request| self.handle(request))
    }

    /// Fails if the listener has no handler for calls.
    fn check_handlers(&self) -> Result<(), String> {
        if self.handlers.is_empty() && self.otherwise.is_none() {
            return Err("there are no handlers: register them with `on` before `serve`".to_owned());
        }
        Ok(())
    }

    fn run(mut self, connection: KitConnection) -> Result<(), String> {
        self.check_handlers()?;
        let connection = Rc::new(connection);
        let line: Rc<dyn DeliveryChannel> = connection.clone();
        let mut memory = CallMemory::default();

        loop {
            let frame = connection.next().map_err(|e| format!("cannot read a frame: {e}"))?;
            let Some(frame) = frame else { return Ok(()) };
            // The cancel came too late: the call has been answered.
            if frame.starts_with(b"<cancel") {
                continue;
            }
            let mut request = Request::parse(&frame, Rc::clone(&line))?;
            let call = request.call;
            let attempt = request.attempt;
            let answered = if request.complete(&mut memory) {
                if !connection.watch().begin() {
                    return Ok(());
                }
                let reply = self.handle(&request);
                connection.watch().end();

                match reply {
                    Ok(reply) => {
                        let remembers = !request.asks_preview && request.remember(&mut memory);
                        connection.answer(call, attempt, &reply, remembers)
                    }
                    Err(HandlerFailure::Failed(reason)) if connection.has_cancel_message(call) => {
                        log_failure_after_cancel(&reason);
                        connection.answer(call, attempt, &Reply::ack(), false)
                    }
                    Err(failure @ HandlerFailure::Failed(_)) => return Err(failure.to_string()),
                    Err(failure) => {
                        connection.answer_with_reason(call, attempt, &failure.to_string())
                    }
                }
            } else {
                connection.miss_memory(call, attempt)
            };
            answered.map_err(|e| format!("cannot answer: {e}"))?;
        }
    }

    fn handle(&mut self, request: &Request) -> Result<Reply, HandlerFailure> {
        if request.asks_preview {
            return Ok(self.preview(request));
        }

        let name = request.payload_name();
        let Some(handler) = self.handlers.get_mut(name).or(self.otherwise.as_mut()) else {
            return Err(HandlerFailure::Failed(self.missing_handler(name)));
        };
        let reply = handler(request).map_err(|failure| match failure {
            HandlerFailure::Failed(reason) => HandlerFailure::Failed(format!("{name}: {reason}")),
            other => other,
        })?;

        reply.check_characters().map_err(HandlerFailure::UnwritableAnswer)?;
        Ok(reply)
    }

    /// Returns the reason of a call whose payload name `name` has no handler.
    fn missing_handler(&self, name: &PayloadName) -> String {
        let mut known: Vec<_> = self.handlers.keys().map(ToString::to_string).collect();
        known.sort();
        format!("no handler for {name}, only for {}", known.join(", "))
    }
}

impl Listener {
    /// Answers the request for a preview of a call. If the listener has no handler for previews, or
    /// if the handler fails, the answer contains no preview, and the listener continues with other
    /// calls.
    fn preview(&mut self, request: &Request) -> Reply {
        let previewed = match &mut self.preview {
            Some(handler) => handler(request),
            None => {
                Err("this listener has no handler for previews, so take `previews = true` out \
                         of its config"
                    .to_owned())
            }
        };
        previewed.map_or_else(
            |reason| {
                // Standard error may be closed. The person still learns that there is no preview.
                let _ = writeln!(io::stderr(), "no preview: {reason}");
                Reply::ack()
            },
            Preview::into_reply,
        )
    }
}

/// Logs the error that a handler returned after its call was cancelled. The cancellation may be the
/// cause of the error.
pub(super) fn log_failure_after_cancel(reason: &str) {
    // Standard error may be closed. The call has ended, so the reason has no other reader.
    let _ = writeln!(io::stderr(), "failed after its call was cancelled: {reason}");
}

/// Makes an answer from `returned`, the return value of a handler. Fails if `returned` is an error,
/// or a value that cannot be written as an answer.
fn reply_of<R: IntoReply, E: Display>(returned: Result<R, E>) -> Result<Reply, HandlerFailure> {
    let returned = returned.map_err(|e| HandlerFailure::Failed(e.to_string()))?;
    returned.into_reply().map_err(HandlerFailure::UnwritableAnswer)
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }

    text
}

//! Buffers a model's answer while it streams. Also counts the tokens of failed requests. A failed
//! request is charged if the provider may have worked on it.

use std::time::Duration;

use tokio::time::Instant;

use crate::bus::ModelState;
use crate::clock::Time;
use crate::envelope::{Money, RouteTry};
use crate::limits;
use crate::model::{AnswerChunk, Error, ModelRequest, ModelRoute, ModelTerms, TokenUsage};

/// Buffer for the answer to one model call. Several requests may be needed until the answer is
/// complete.
#[derive(Debug, Default)]
pub(super) struct AnswerBuffer {
    pub raw: String,
    pub thoughts: String,
    /// Whether the reasoning was cut at the maximum size of a turn.
    is_reasoning_cut: bool,
    /// Whether the text of the answer exceeds the maximum size of a turn. The buffer drops text
    /// beyond this size.
    pub is_too_long: bool,
    /// Number of bytes of `raw` that [`AnswerBuffer::unread`] has returned.
    read: usize,
    /// Number of bytes received for the current request, including bytes that the buffer dropped.
    bytes: usize,
    /// Route of the latest request: its provider and its model. `None` before the first request.
    route: Option<ModelRoute>,
    /// The router's name for the route of the latest request; `None` before the first request.
    name: Option<String>,
    /// Time at which the latest request was sent; `None` before the first request.
    sent: Option<Instant>,
    is_under_way: bool,
    /// Whether the stream of the current request's answer has begun.
    has_begun: bool,
    /// Time at which the latest pause of the router ends; `None` if there was no pause. During a
    /// pause, the router sends no request.
    pause: Option<Instant>,
    lost: Vec<LostRequest>,
}

/// A request that failed or broke off before its answer was complete.
#[derive(Debug)]
struct LostRequest {
    route: ModelRoute,
    /// The router's name for the route; `None` if no reservation named the route.
    name: Option<String>,
    reason: &'static str,
    bytes: usize,
    /// Whether the request's prompt must be charged. True if the provider has worked, or may have
    /// worked, on the request.
    is_charged: bool,
}

/// Mark at the end of reasoning that was cut.
const CUT_MARK: &str = "…";

/// Reason that is recorded for a request that was aborted because the model call was cancelled.
pub(super) const CANCELLED: &str = "cancelled";

impl AnswerBuffer {
    /// Records that a request was sent to `route`. `name` is the router's name for the route.
    pub fn begin(&mut self, route: ModelRoute, name: String) {
        self.bytes = 0;
        self.has_begun = false;
        self.route = Some(route);
        self.name = Some(name);
        self.sent = Some(Instant::now());
        self.is_under_way = true;
    }

    /// Returns the time since the latest request was sent. The time of earlier requests and of
    /// pauses is not included. Returns zero before the first request.
    pub fn latency(&self) -> Duration {
        self.sent.map(|sent| sent.elapsed()).unwrap_or_default()
    }

    /// Returns the router's name for the route of the latest request; `None` before the first
    /// request.
    pub fn route_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the new state of the model call if the chunk changes the state. Otherwise, returns
    /// `None`.
    pub fn changed_state(&mut self, chunk: &AnswerChunk<'_>) -> Option<ModelState> {
        match chunk {
            AnswerChunk::Text(_) | AnswerChunk::Reasoning(_) | AnswerChunk::Withheld(_)
                if self.bytes == 0 =>
            {
                let route = self.route.as_ref()?;
                Some(ModelState::Streaming(route.to_string()))
            }
            AnswerChunk::Waiting(route, until) if self.pause != Some(*until) => {
                self.pause = Some(*until);
                let rest = until.saturating_duration_since(Instant::now());
                Some(ModelState::Delayed(route.to_string(), Time::now().plus(rest)))
            }
            _ => None,
        }
    }

    /// Adds one chunk to the buffered answer.
    pub fn keep(&mut self, chunk: AnswerChunk<'_>) {
        match chunk {
            AnswerChunk::Text(text) => {
                self.count(text.len());
                self.keep_text(text);
            }
            AnswerChunk::Reasoning(text) => {
                self.count(text.len());
                self.keep_reasoning(text);
            }
            AnswerChunk::Withheld(bytes) => self.count(bytes),
            AnswerChunk::Begun => {
                self.is_under_way = true;
                self.has_begun = true;
            }
            AnswerChunk::Waiting(..) | AnswerChunk::Queued => {}
            AnswerChunk::Failed(error) => {
                if !self.is_under_way {
                    self.route = error.route().cloned();
                    self.name = None;
                    self.is_under_way = true;
                }
                self.fail(error);
            }
            AnswerChunk::Restart => self.void(),
        }
    }

    /// Counts bytes of the answer to the current request.
    fn count(&mut self, bytes: usize) {
        self.is_under_way = true;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn keep_text(&mut self, text: &str) {
        self.is_too_long |= self.raw.len() + text.len() > limits::TURN_BYTES_MAX;
        if !self.is_too_long {
            self.raw.push_str(text);
        }
    }

    /// Keeps reasoning up to the maximum size of a turn. Longer reasoning is cut, because it causes
    /// no action.
    fn keep_reasoning(&mut self, text: &str) {
        if self.is_reasoning_cut {
            return;
        }

        let most = limits::TURN_BYTES_MAX - CUT_MARK.len();
        let mut end = text.len().min(most.saturating_sub(self.thoughts.len()));
        while !text.is_char_boundary(end) {
            end -= 1;
        }

        let (kept, dropped) = text.split_at(end);
        self.thoughts.push_str(kept);
        if !dropped.is_empty() {
            self.thoughts.push_str(CUT_MARK);
            self.is_reasoning_cut = true;
        }
    }

    /// Returns the part of the text that no earlier call of this function has returned. Returns
    /// `None` if this part has fewer than `least` bytes.
    pub fn unread(&mut self, least: usize) -> Option<&str> {
        let unread = self.raw.get(self.read..).filter(|unread| unread.len() >= least)?;
        self.read = self.raw.len();
        Some(unread)
    }

    /// Records that the current request failed. The request is charged in three cases: the provider
    /// had begun to answer, this program aborted the request while the provider may still have
    /// worked on it, or the connection ended without an answer to the complete request.
    pub fn fail(&mut self, error: &Error) {
        let has_stream = self.has_begun || error.has_stream();
        let may_be_worked_on = error.is_broken_off() || error.is_unanswered();
        let is_charged = self.bytes > 0 || has_stream || may_be_worked_on;
        self.lose(error.word(), is_charged);
    }

    /// Records that the model call was cancelled. If a request is running, the cancellation aborts
    /// it, and the request is charged.
    pub fn cancel(&mut self) {
        self.lose(CANCELLED, true);
    }

    fn lose(&mut self, reason: &'static str, is_charged: bool) {
        if !std::mem::take(&mut self.is_under_way) {
            return;
        }
        let Some(route) = self.route.clone() else { return };
        self.has_begun = false;
        let bytes = std::mem::take(&mut self.bytes);
        let name = self.name.clone();
        self.lost.push(LostRequest { route, name, reason, bytes, is_charged });
    }

    /// Drops the text that was received so far, because the next request begins the answer anew.
    fn void(&mut self) {
        if self.bytes > 0 {
            self.lose("restarted", true);
        }

        self.read = 0;
        self.raw.clear();
        self.thoughts.clear();
        self.is_reasoning_cut = false;
        self.is_too_long = false;
    }

    /// Returns all failed requests, in the order in which they were sent.
    pub fn tries(&self) -> Vec<RouteTry> {
        let lost = self.lost.iter();
        lost.map(|lost| RouteTry { route: lost.route.to_string(), reason: lost.reason.to_owned() })
            .collect()
    }

    /// Estimates the usage and the cost of the failed requests that are charged. An estimate is
    /// needed because providers do not report the usage of failed requests. For each charged
    /// request, counts the tokens of the prompt, and one token for every four received bytes.
    /// Returns `None` if no failed request is charged. The cost is `None` if no route of a charged
    /// request has a price.
    pub fn lost(
        &self,
        terms: &ModelTerms,
        request: &ModelRequest,
    ) -> Option<(TokenUsage, Option<Money>)> {
        let charged: Vec<_> = self.lost.iter().filter(|lost| lost.is_charged).collect();
        if charged.is_empty() {
            return None;
        }

        let tokens_in = terms.size(request, None).total();
        let mut sum = (TokenUsage::default(), None);

        for lost in charged {
            let tokens_out = u64::try_from(lost.bytes.div_ceil(4)).unwrap_or(u64::MAX);
            let usage =
                TokenUsage { tokens_in, tokens_out, estimated: true, ..TokenUsage::default() };
            let cost = terms.cost(&lost.route, lost.name.as_deref(), &usage);
            sum = (sum.0.and(Some(usage)), add_costs(sum.1, cost));
        }

        Some(sum)
    }
}

/// Adds the costs of two requests. `None` stands for a request whose route has no price.
pub(super) fn add_costs(first: Option<Money>, second: Option<Money>) -> Option<Money> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.plus(second)),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListenerName, ThreadId};
    use crate::model::RequestOrigin;

    /// Returns the tokens that are charged for a request that fails with `error` before any text of
    /// the answer has arrived.
    fn charged(error: fn(ModelRoute) -> Error) -> u64 {
        charged_after(&[], error)
    }

    /// Returns the tokens that are charged for a request that fails with `error` after `chunks`.
    fn charged_after(chunks: &[AnswerChunk<'_>], error: fn(ModelRoute) -> Error) -> u64 {
        let origin = RequestOrigin {
            agent: ListenerName::parse("helper").unwrap(),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            turn: 1,
            trace: None,
        };
        let request = ModelRequest {
            origin,
            system: "You help.".to_owned(),
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: None,
            one_call: false,
            max_tokens: None,
            default_max_tokens: None,
        };
        let route = ModelRoute { provider: "fake".to_owned(), model: "m".to_owned() };
        let mut buffer = AnswerBuffer::default();
        buffer.begin(route.clone(), route.to_string());
        chunks.iter().for_each(|chunk| buffer.keep(*chunk));
        buffer.fail(&error(route));
        let lost = buffer.lost(&ModelTerms::default(), &request);
        lost.map_or(0, |(usage, _)| usage.tokens_in)
    }

    #[test]
    fn a_request_whose_stream_had_begun_is_charged_as_its_prompt() {
        assert!(charged(|route| Error::Cut { route, bytes: 384 }) > 0);
        assert!(charged(|route| Error::InvalidEvent { route, detail: String::new() }) > 0);
        assert!(charged(|route| Error::NotStreamed { route, detail: String::new() }) > 0);
    }

    #[test]
    fn a_request_that_was_sent_and_not_answered_is_charged_as_its_prompt() {
        fn no_response(route: ModelRoute, is_request_sent: bool) -> Error {
            let detail = "closed the connection without a complete answer".into();
            Error::NoResponse { route, host: "api.example.com".to_owned(), detail, is_request_sent }
        }
        fn no_connection(route: ModelRoute) -> Error {
            let detail = "connection refused".to_owned();
            Error::Connect { route, host: "api.example.com".to_owned(), detail, advice: None }
        }
        assert!(charged(|route| Error::Cut { route, bytes: 0 }) > 0);
        assert!(charged(|route| Error::Empty { route, status: 200 }) > 0);
        assert!(charged(|route| no_response(route, true)) > 0);
        assert_eq!(charged(|route| no_response(route, false)), 0);
        assert_eq!(charged(no_connection), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_latency_is_that_of_the_latest_request() {
        let route = ModelRoute { provider: "fake".to_owned(), model: "m".to_owned() };
        let mut buffer = AnswerBuffer::default();
        assert_eq!(buffer.latency(), Duration::ZERO);

        buffer.begin(route.clone(), route.to_string());
        tokio::time::advance(Duration::from_secs(3)).await;
        buffer.fail(&Error::Empty { route: route.clone(), status: 200 });
        let name = route.to_string();
        buffer.begin(route, name);
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!(buffer.latency(), Duration::from_millis(20));
    }

    #[test]
    fn long_reasoning_is_cut_and_does_not_make_the_answer_too_long() {
        let mut buffer = AnswerBuffer::default();
        let piece = "ä".repeat(limits::TURN_BYTES_MAX / 8);
        for _ in 0..5 {
            buffer.keep(AnswerChunk::Reasoning(&piece));
        }
        buffer.keep(AnswerChunk::Text("Done."));
        assert!(!buffer.is_too_long);
        assert_eq!(buffer.raw, "Done.");
        assert!(buffer.thoughts.ends_with("ä…"));
        let room = limits::TURN_BYTES_MAX - buffer.thoughts.len();
        assert!(room < 2, "{room}");

        buffer.keep(AnswerChunk::Text(&piece.repeat(5)));
        assert!(buffer.is_too_long, "text may hold an action, so it is never cut");
    }

    #[test]
    fn an_error_event_is_charged_if_the_stream_had_begun() {
        let overloaded = |route| Error::Overloaded {
            route,
            status: 200,
            message: String::new(),
            retry_after: None,
        };
        assert_eq!(charged(overloaded), 0);
        assert!(charged_after(&[AnswerChunk::Begun], overloaded) > 0);

        let reported = |route| Error::Stream {
            route,
            kind: "api_error".to_owned(),
            message: String::new(),
            retried: true,
        };
        assert_eq!(charged(reported), 0);
        assert!(charged_after(&[AnswerChunk::Begun], reported) > 0);
    }
}

//! Exchanges frames between a host and one running child, until the child or the host ends the
//! exchange (docs/PROTOCOL.md, sections 2 to 7).

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{Instant, sleep_until, timeout};

use crate::bus::answer::{self, ClaimedMemory, ListenerAnswer, NamedAttempt};
use crate::bus::memory::MemoryMark;
use crate::bus::{Delivery, DeliveryPreview, Outcome};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::mutant::mutant;
use crate::plural::count;

use super::Options;
use super::child::{Child, Pipes, has_read_nothing};
use super::dispatch::{InstanceCommand, InstanceHandle};
use super::frame::{self, ChildFrame, ChildFrameReader, FrameError};

/// Reason why the exchange of frames with the child ended. The child has exited in every case.
#[derive(Debug)]
pub(super) enum ChildExit {
    Drained,
    /// The child ended after its call was cancelled. Either the host killed the child, because the
    /// child still handled the call, or the child exited.
    AfterCancel,
    Fault(String),
}

pub(super) struct ChildIo<'a> {
    options: &'a Options,
    handle: &'a mut InstanceHandle,
    child: Child,
    frames: ChildFrameReader<ChildStdout>,
    /// The child's standard input; `None` once it is closed.
    stdin: Option<ChildStdin>,
    outgoing: String,
    written: usize,
    started: Instant,
    /// Number of bytes that were written to the child's standard input since its start.
    sent_bytes: u64,
    serving: Option<(CallId, Attempt)>,
    /// The attempt that the child answered last; `None` before its first answer.
    answered: Option<(CallId, Attempt)>,
    /// The call's messages that the child will remember after the current delivery, if the child's
    /// answer states that it keeps the messages. `None` if the delivery requests a preview.
    mark: Option<MemoryMark>,
    /// The current delivery with all its messages, if only the new messages were sent to the child.
    /// In this case, the child may still request the earlier messages. `None` if the child got all
    /// messages.
    partial: Option<Box<Delivery>>,
    is_cancelled: bool,
    /// Whether the child has sent a heartbeat since the latest delivery.
    has_sent_heartbeat: bool,
    /// Whether a warning was logged because the answer to the latest delivery is unfinished.
    is_warned_of_frame: bool,
    /// Log span of the latest delivery.
    log_span: tracing::Span,
    draining: bool,
    has_exited: bool,
    /// Number of answers in which the child named an attempt other than the current one.
    strays: u32,
    /// Whether the child has sent an answer to another attempt since it got the current delivery.
    has_strayed: bool,
    /// Number of frames that were read since the latest delivery or the latest check for commands,
    /// whichever is later.
    frames_in_row: u32,
    /// Deadline for the answer to the current call. `None` until the call is cancelled or the host
    /// begins to drain.
    patience: Option<Instant>,
}

/// Beginning of the description of output that a child wrote without a delivery.
pub(super) const UNSOLICITED_OUTPUT: &str = "wrote to its standard output without a delivery";

/// Returns a description of an answer that a child wrote without a delivery.
fn unsolicited_answer(answer: &ListenerAnswer) -> String {
    match &answer.payloads {
        Ok(payloads) => match payloads.first() {
            Some(payload) => answer::unsolicited_description(payload),
            None => answer::UNSOLICITED_ANSWER.to_owned(),
        },
        Err(unreadable) => {
            format!("{unreadable}; write only answers to standard output, one to each delivery")
        }
    }
}

enum ChildEvent {
    Frame(ChildFrame),
    Stopped(FrameError),
    /// The process has exited, although another process may keep its standard output open.
    Exited,
    Wrote(std::io::Result<usize>),
    Ordered(Option<InstanceCommand>),
    OutOfPatience,
}

impl<'a> ChildIo<'a> {
    pub fn new(
        options: &'a Options,
        handle: &'a mut InstanceHandle,
        child: Child,
        (stdin, stdout): Pipes,
    ) -> Self {
        Self {
            options,
            handle,
            child,
            frames: ChildFrameReader::new(stdout),
            stdin: Some(stdin),
            outgoing: String::new(),
            written: 0,
            started: Instant::now(),
            sent_bytes: 0,
            serving: None,
            answered: None,
            mark: None,
            partial: None,
            is_cancelled: false,
            has_sent_heartbeat: false,
            is_warned_of_frame: false,
            log_span: tracing::Span::none(),
            draining: false,
            has_exited: false,
            strays: 0,
            has_strayed: false,
            frames_in_row: 0,
            patience: None,
        }
    }

    pub async fn hold(mut self) -> ChildExit {
        self.begin_next_delivery();

        loop {
            if self.draining && self.serving.is_none() {
                self.stdin = None;
                self.child.end().await;
                return ChildExit::Drained;
            }
            let ended = match self.event().await {
                ChildEvent::Frame(frame) => self.handle_frame(frame).await,
                ChildEvent::Stopped(FrameError::Unsolicited) if self.exits_soon().await => {
                    Some(self.exited().await)
                }
                ChildEvent::Stopped(stopped) => Some(self.stopped(stopped).await),
                ChildEvent::Exited => Some(self.exited().await),
                ChildEvent::Wrote(wrote) => self.wrote(wrote).await,
                ChildEvent::Ordered(order) => self.ordered(order).await,
                ChildEvent::OutOfPatience => Some(self.out_of_patience().await),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Waits for the next event, and returns it. Output of the child comes before commands: a
    /// command could hand over the next delivery, and the output would then count as the answer to
    /// that delivery. After many frames of one delivery, first checks for a command, so that a
    /// child that writes without a pause cannot delay commands forever.
    async fn event(&mut self) -> ChildEvent {
        if self.serving.is_some() && self.frames_in_row >= limits::CHILD_FRAMES_IN_ROW_MAX {
            self.frames_in_row = 0;
            if let Some(event) = self.due_event() {
                return event;
            }
        }

        let unwritten = self.outgoing.as_bytes().get(self.written..).unwrap_or_default();
        let writing = async {
            match &mut self.stdin {
                Some(stdin) if !unwritten.is_empty() => stdin.write(unwritten).await,
                _ => std::future::pending().await,
            }
        };

        let patience = self.patience;
        let patience = async {
            match patience {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };

        let is_idle = self.serving.is_none();

        tokio::select! {
            // In this order: what the child has written counts before its exit, and both before a
            // new command.
            biased;
            frame = self.frames.next_of_child(is_idle) => match frame {
                Ok(frame) => {
                    self.frames_in_row += 1;
                    ChildEvent::Frame(frame::read(frame))
                }
                Err(stopped) => ChildEvent::Stopped(stopped),
            },
            () = self.child.exited(), if !mutant("watch-only-the-pipe") => ChildEvent::Exited,
            wrote = writing => ChildEvent::Wrote(wrote),
            order = self.handle.orders.recv() => ChildEvent::Ordered(order),
            () = patience => ChildEvent::OutOfPatience,
        }
    }

    /// Sends the next delivery that is ready. If a delivery is too large for a frame, reports the
    /// failure of this delivery, and goes on to the delivery after it.
    fn begin_next_delivery(&mut self) {
        while self.serving.is_none()
            && let Some(delivery) = self.handle.ready()
        {
            self.write_delivery(delivery);
        }
    }

    /// Returns an event that is due now and does not depend on the child: the deadline for the
    /// answer has passed, or a command has arrived. Returns `None` if there is no such event. Never
    /// waits. Call this method only while the child handles a delivery, because a command then
    /// cannot hand over another delivery.
    fn due_event(&mut self) -> Option<ChildEvent> {
        if self.patience.is_some_and(|at| at <= Instant::now()) {
            return Some(ChildEvent::OutOfPatience);
        }

        match self.handle.orders.try_recv() {
            Ok(order) => Some(ChildEvent::Ordered(Some(order))),
            Err(TryRecvError::Disconnected) => Some(ChildEvent::Ordered(None)),
            Err(TryRecvError::Empty) => None,
        }
    }

    fn write_delivery(&mut self, delivery: Delivery) {
        let remembered = self.handle.recall(&delivery);
        let written = frame::write_bounded_delivery(&mut self.outgoing, &delivery, remembered);
        self.child.set_log_trace(delivery.trace);

        self.log_span = delivery.log_span();
        self.serving = Some((delivery.call, delivery.attempt));
        // The answer to a request for a preview says nothing about the call's next delivery.
        self.mark = match delivery.preview {
            DeliveryPreview::Requested => None,
            _ => MemoryMark::after(&delivery),
        };
        self.partial = remembered.map(|_| Box::new(delivery));
        self.is_cancelled = false;
        self.has_sent_heartbeat = false;
        self.has_strayed = false;
        self.frames_in_row = 0;
        self.is_warned_of_frame = false;

        if let Err(too_large) = written {
            self.settle(Err(too_large));
        }
    }

    /// Sends the current delivery again, with all its messages. Called if the child was sent only
    /// the new messages and reports that it lacks the earlier messages. The attempt stays the same,
    /// because the child's handler has not begun to work on the delivery.
    fn write_complete_delivery(&mut self) -> Result<(), AttemptFailure> {
        let Some(delivery) = self.partial.take() else {
            let detail = "asks for messages of a delivery that had them all".to_owned();
            return Err(AttemptFailure::Garbage { detail });
        };

        if self.is_cancelled {
            let detail = "its caller was gone before it was handed over".to_owned();
            return Err(AttemptFailure::Refused { detail });
        }

        frame::write_bounded_delivery(&mut self.outgoing, &delivery, None)
    }

    /// Derives the result of the current delivery from `answer`. Returns `None` if the delivery
    /// continues, because the child has requested all messages.
    fn outcome(&mut self, answer: ListenerAnswer) -> Option<Result<Outcome, AttemptFailure>> {
        if answer.memory == ClaimedMemory::Missing {
            return self.write_complete_delivery().err().map(Err);
        }

        let payloads = match answer.payloads {
            Ok(payloads) => payloads,
            Err(detail) => return Some(Err(AttemptFailure::Garbage { detail })),
        };

        if answer.memory == ClaimedMemory::Kept
            && let (Some((call, _)), Some(mark)) = (self.serving, self.mark)
        {
            self.handle.remember(call, mark);
        }

        Some(Ok(Outcome { payloads, turn: None, ..Outcome::default() }))
    }

    /// Handles one frame of the child: a heartbeat, an answer, or unsolicited output. Returns the
    /// reason if the exchange of frames ends, or `None` if the exchange continues.
    async fn handle_frame(&mut self, frame: ChildFrame) -> Option<ChildExit> {
        let answer = match (frame, self.serving) {
            (ChildFrame::Heartbeat, Some((call, attempt))) => {
                self.has_sent_heartbeat = true;
                self.handle.heartbeat(call, attempt);
                return None;
            }
            (ChildFrame::Heartbeat, None) => {
                return Some(self.end_unsolicited(answer::UNSOLICITED_HEARTBEAT).await);
            }
            (ChildFrame::Answer(answer), _) => answer,
        };

        let is_named = answer.named.is_some();
        match &answer.named {
            Some(named) if !self.is_served(named) => return self.stray(answer).await,
            None if self.serving.is_none() => {
                return Some(self.end_unsolicited(&unsolicited_answer(&answer)).await);
            }
            _ => {}
        }

        let result = self.outcome(answer)?;
        self.answered = self.serving;
        self.child.forget_last_line();
        self.settle(result);

        // An answer without a name belongs to the current delivery, so anything else in the pipe
        // now is unsolicited.
        if !is_named {
            self.frames.read_available();
        }

        if let Some(ended) = self.surplus(is_named).await {
            return Some(ended);
        }

        if !self.draining && !self.has_exited {
            self.begin_next_delivery();
        }

        None
    }

    fn is_served(&self, named: &NamedAttempt) -> bool {
        self.serving.is_some_and(|(call, attempt)| named.is(call, attempt))
            || (self.serving.is_some() && mutant("trust-the-order"))
    }

    /// Handles output that the child wrote after an answer and before the next delivery. `is_named`
    /// states whether that answer named its call. Returns the reason if this output ends the
    /// exchange of frames, and `None` if the exchange continues.
    async fn surplus(&mut self, is_named: bool) -> Option<ChildExit> {
        while self.frames.has_more() {
            let next = self.frames.next_buffered().map(|frame| frame.map(frame::read));
            let output = match next {
                Some(Ok(ChildFrame::Answer(answer))) if answer.named.is_some() => {
                    if let Some(ended) = self.stray(answer).await {
                        return Some(ended);
                    }
                    continue;
                }
                // The output is not complete yet, and may name its call.
                None if is_named && self.frames.may_name_attempt() => return None,
                Some(Ok(ChildFrame::Answer(answer))) => unsolicited_answer(&answer),
                Some(Ok(ChildFrame::Heartbeat)) => answer::UNSOLICITED_HEARTBEAT.to_owned(),
                Some(Err(_)) => {
                    format!("a frame of more than {} bytes", limits::FRAME_BYTES_MAX)
                }
                None => answer::unsolicited_description(self.frames.unread()),
            };
            return Some(self.end_unsolicited(&output).await);
        }

        None
    }

    /// Handles an answer that names an attempt other than the current one. The third answer of this
    /// kind ends the exchange of frames. In this case, kills the child, so that a new process
    /// replaces it, and returns the reason. Returns `None` if the exchange continues.
    async fn stray(&mut self, answer: ListenerAnswer) -> Option<ChildExit> {
        let is_named =
            |(call, attempt)| answer.named.as_ref().is_some_and(|named| named.is(call, attempt));
        let is_repeated = self.answered.is_some_and(is_named);
        let reason = match self.serving {
            _ if is_repeated => "the listener has answered it already",
            Some(_) => "the listener has another attempt at hand",
            None => "the listener has no attempt at hand",
        };

        let mut named = answer.named.map(|named| named.to_string()).unwrap_or_default();
        let listener = &self.options.listener;
        let instance = self.handle.instance;
        tracing::warn!(%listener, instance, "refused an answer to {named}, because {reason}");
        if is_repeated {
            named.push_str(answer::ALREADY_ANSWERED);
        }
        self.handle.stray(named.clone(), answer.payloads.unwrap_or_default());

        self.strays += 1;
        self.has_strayed = true;
        if self.strays < limits::STRAY_ANSWERS_MAX {
            return None;
        }

        self.child.kill().await;
        let detail = format!(
            "gave {} answers to attempts that it did not have at hand, the last one to {named}",
            self.strays
        );
        self.settle(Err(AttemptFailure::Crashed { detail: detail.clone() }));
        Some(ChildExit::Fault(detail))
    }

    /// Waits a short time, and returns whether the child exits. Called after output that the child
    /// wrote without a delivery. If the child exits, this output may be an error message, and the
    /// exit is the better explanation of the failure.
    async fn exits_soon(&mut self) -> bool {
        timeout(limits::UNSOLICITED_EXIT_GRACE, self.child.exited()).await.is_ok()
    }

    /// Kills the child because of output that it wrote without a delivery. `output` describes the
    /// output. Returns the reason why the exchange of frames ends.
    async fn end_unsolicited(&mut self, output: &str) -> ChildExit {
        self.child.kill().await;
        ChildExit::Fault(format!("{UNSOLICITED_OUTPUT}: {output}"))
    }

    /// Handles the exit of the process. First handles the output that is still in the pipe, and
    /// then the end of the output. Returns the reason why the exchange of frames ends.
    async fn exited(&mut self) -> ChildExit {
        self.has_exited = true;
        self.frames.read_available();

        while let Some(frame) = self.frames.next_buffered() {
            let ended = match frame.map(frame::read) {
                Ok(frame) => self.handle_frame(frame).await,
                Err(stopped) => Some(self.stopped(stopped).await),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }

        let unfinished = self.frames.unfinished();
        self.stopped(FrameError::Closed { unfinished }).await
    }

    /// Handles the end of the child's output, or output that cannot be parsed. Returns the reason
    /// why the exchange of frames ends.
    async fn stopped(&mut self, stopped: FrameError) -> ChildExit {
        let max = limits::FRAME_BYTES_MAX;
        let (detail, failure): (String, fn(String) -> AttemptFailure) = match stopped {
            FrameError::Closed { unfinished } => {
                let how = self.child.gone(limits::EXIT_GRACE).await;
                return self.crashed(match unfinished {
                    0 => how,
                    bytes => format!("{} into an unfinished frame, {how}", count(bytes, "byte")),
                });
            }
            FrameError::Unsolicited => {
                let output = answer::unsolicited_description(self.frames.unread());
                return self.end_unsolicited(&output).await;
            }
            FrameError::TooLong => {
                self.child.kill().await;
                let detail = format!("a frame of more than {max} bytes");
                (detail, |detail| AttemptFailure::Garbage { detail })
            }
            FrameError::Failed(error) => {
                self.child.kill().await;
                let detail = format!("its standard output cannot be read: {error}");
                (detail, |detail| AttemptFailure::Crashed { detail })
            }
        };

        self.settle(Err(failure(detail.clone())));
        ChildExit::Fault(detail)
    }

    /// Reports that the child exited without an answer. If the call was cancelled, the exit is no
    /// fault of the child: the handler may have failed because of the cancellation.
    fn crashed(&mut self, detail: String) -> ChildExit {
        let is_cancelled = self.is_cancelled && self.serving.is_some();
        self.settle(Err(AttemptFailure::Crashed { detail: detail.clone() }));
        if !is_cancelled {
            return ChildExit::Fault(detail);
        }

        let listener = &self.options.listener;
        let instance = self.handle.instance;
        tracing::info!(
            %listener, instance,
            "{detail}; its call was cancelled before, so the process is started again at once"
        );
        ChildExit::AfterCancel
    }

    async fn wrote(&mut self, wrote: std::io::Result<usize>) -> Option<ChildExit> {
        match wrote {
            Ok(count) => {
                self.written += count;
                self.sent_bytes += count as u64;
                if self.written >= self.outgoing.len() {
                    self.outgoing.clear();
                    self.written = 0;
                }
                None
            }
            // The child will never read the rest. If the child is about to exit, its exit code
            // explains more than the broken pipe.
            Err(_) => {
                self.stdin = None;
                let how = self.child.gone(limits::EXIT_GRACE).await;
                Some(self.crashed(format!("closed its standard input; {how}")))
            }
        }
    }

    async fn ordered(&mut self, order: Option<InstanceCommand>) -> Option<ChildExit> {
        match order {
            Some(InstanceCommand::Deliver) if self.serving.is_none() => {
                self.begin_next_delivery();
            }
            Some(InstanceCommand::Cancel(call, attempt))
                if self.serving == Some((call, attempt)) =>
            {
                frame::write_cancel(&mut self.outgoing, call);
                self.warn_of_unfinished_frame();
                self.is_cancelled = true;
                self.be_patient(self.options.cancel_grace);
            }
            // The call was answered while the command was on its way.
            Some(InstanceCommand::Cancel(..) | InstanceCommand::Deliver) => {}
            Some(InstanceCommand::Drain(patience)) => {
                self.draining = true;
                self.be_patient(patience);
            }
            None => {
                self.child.kill().await;
                let detail = "the listener was stopped".to_owned();
                self.settle(Err(AttemptFailure::Crashed { detail }));
                return Some(ChildExit::Drained);
            }
        }

        None
    }

    /// Warns, once for each delivery, that the child has written only the beginning of an answer.
    /// Without the warning, an operator would see only a time-out.
    fn warn_of_unfinished_frame(&mut self) {
        let bytes = self.frames.bytes_without_end();
        if bytes > 0 && !self.is_warned_of_frame {
            self.is_warned_of_frame = true;
            let listener = &self.options.listener;
            let instance = self.handle.instance;
            tracing::warn!(
                %listener, instance,
                "the listener wrote {} without a NUL before its call ended: end each answer with a \
                 NUL byte, and flush it",
                count(bytes, "byte")
            );
        }
    }

    /// Returns a description of the output that the child wrote instead of an answer.
    fn missing_answer_description(&self) -> String {
        match self.frames.bytes_without_end() {
            0 if self.has_strayed => {
                "it answered attempts that it did not have at hand; `organism search --rule \
                 stray-answer` shows the answers"
                    .to_owned()
            }
            0 if self.has_sent_heartbeat => "it wrote heartbeats but no answer".to_owned(),
            0 if has_read_nothing(self.stdin.as_ref(), self.sent_bytes) => format!(
                "it was started {} s ago and has read nothing since: its start counts towards \
                 `timeout`",
                self.started.elapsed().as_secs()
            ),
            0 => "it wrote nothing: did it flush?".to_owned(),
            bytes => format!("it wrote {} without a NUL", count(bytes, "byte")),
        }
    }

    fn be_patient(&mut self, length: Duration) {
        let at = Instant::now() + length;
        self.patience = Some(self.patience.map_or(at, |earlier| earlier.min(at)));
    }

    async fn out_of_patience(&mut self) -> ChildExit {
        let missing = self.missing_answer_description();
        self.warn_of_unfinished_frame();
        self.child.kill().await;
        let (ended, why) = if self.draining {
            (ChildExit::Drained, "the listener was stopped")
        } else {
            (ChildExit::AfterCancel, "its call was cancelled or timed out")
        };

        let detail = format!("did not answer in time after {why}; {missing}; it was killed");
        // The pump logs the failure of an attempt that it still waits for.
        if self.is_cancelled
            && let Some((call, attempt)) = self.serving
        {
            let listener = &self.options.listener;
            let instance = self.handle.instance;
            tracing::warn!(%listener, instance, %call, %attempt, "{detail}");
        }
        self.settle(Err(AttemptFailure::Crashed { detail }));
        ended
    }

    fn settle(&mut self, result: Result<Outcome, AttemptFailure>) {
        self.patience = None;
        if let Some((call, attempt)) = self.serving.take() {
            self.log_span.in_scope(|| self.handle.ended(call, attempt, result));
        }
    }
}

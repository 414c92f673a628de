//! Checks a program directly on its pipes, without the host that delivers calls in an organism. The
//! conformance kit decides how many bytes the program can read at a time, so that no result depends
//! on the speed of the kit or of the program.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{PayloadJudge, TrialRequest, delivery, delivery_of_call, harness, judge_payloads};
use crate::bus::Delivery;
use crate::bus::answer::{ClaimedMemory, ListenerAnswer};
use crate::bus::process::ChildFrame;
use crate::bus::process::direct::{DirectProcess, cancel_text, delivery_text};
use crate::ids::Attempt;
use crate::limits;
use crate::plural::count;
use crate::xml::element::Element;

/// Number of bytes that the check adds to a request, so that the request is larger than the
/// capacity of a pipe.
const LARGE_BYTES: usize = 256 << 10;
/// Interval at which the conformance kit checks whether the program under test has read a piece of
/// a request.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A program under test that the check reaches over pipes alone, without a host.
pub(super) struct PipedProgram<'t> {
    process: DirectProcess,
    patience: Duration,
    judge: PayloadJudge<'t>,
}

impl<'t> PipedProgram<'t> {
    pub async fn start(
        command: &[String],
        patience: Duration,
        judge: PayloadJudge<'t>,
    ) -> Result<Self, String> {
        let process = DirectProcess::start(harness::options(command)).await?;
        Ok(Self { process, patience, judge })
    }

    /// Kills the program, and returns when it has ended.
    pub async fn kill(mut self) {
        self.process.kill().await;
    }

    /// Sends a request. If the program neither answers in time nor ends, returns a description of
    /// the text that it wrote in place of an answer. If the program answers or ends, returns
    /// `None`.
    pub async fn silence(&mut self, request: &TrialRequest) -> Option<String> {
        self.write(&delivery_text(&self.delivery(request, 1), None)).await.ok()?;
        loop {
            match timeout(self.patience, self.process.next()).await {
                Ok(Ok(ChildFrame::Heartbeat)) => {}
                Ok(_) => return None,
                Err(_) => return Some(self.no_answer()),
            }
        }
    }

    /// Sends a request in two pieces, and checks that the program reads it as one request.
    pub async fn pieces(&mut self, request: &TrialRequest) -> Result<(), String> {
        let large = TrialRequest { payload: padded(&request.payload), ..request.clone() };
        let delivery = self.delivery(&large, 1);
        let text = delivery_text(&delivery, None);
        let (first, rest) = text.split_at(text.len() / 2);
        self.write(first).await?;
        self.until_read().await?;
        self.write(rest).await?;

        let answer = self.answer().await?;
        self.judged(answer, &delivery)?;
        self.ends_without_more().await
    }

    /// Sends a delivery together with the cancel message for it, and checks the program's answers.
    /// The program must answer the delivery exactly once, and must not answer the cancel message.
    pub async fn cancelled(&mut self, request: &TrialRequest) -> Result<(), String> {
        let cancelled = self.delivery(request, 1);
        let both = delivery_text(&cancelled, None) + &cancel_text(cancelled.call);
        self.write(&both).await?;
        let of_cancelled = |why: String| {
            format!("the cancelled call, which is owed one answer, possibly an empty one: {why}")
        };
        let answer = self.answer().await.map_err(of_cancelled)?;
        named(&answer, &cancelled).map_err(of_cancelled)?;
        answer.payloads.map_err(of_cancelled)?;

        let next = self.delivery(request, 2);
        self.write(&delivery_text(&next, None)).await?;
        let of_next = |why: String| format!("the next request: {why}");
        let answer = self.answer().await.map_err(of_next)?;
        let again = answer.named.as_ref();
        if again.is_some_and(|named| named.is(cancelled.call, cancelled.attempt)) {
            return Err("it answered the cancelled call twice; the cancel itself gets no answer, \
                        so answer the delivery alone"
                .to_owned());
        }
        self.judged(answer, &next).map_err(of_next)?;

        // This cancel comes too late, and has no effect.
        self.write(&cancel_text(next.call)).await?;
        self.ends_without_more().await.map_err(|why| {
            format!("{why} after its answers, for a cancel; a cancel itself gets no answer")
        })
    }

    /// Checks a program that claims to remember the messages of a call. The program must use the
    /// messages that it remembers, and must request the messages that it lacks.
    pub async fn remembers(&mut self, request: &TrialRequest) -> Result<(), String> {
        let first = self.delivery(request, 1);
        self.write(&delivery_text(&first, None)).await?;
        let answer = self.answer().await?;
        let claims = answer.memory == ClaimedMemory::Kept;
        self.judged(answer, &first)?;
        if !claims {
            return Ok(());
        }

        let attempt = Attempt { epoch: 1, n: 2 };
        let second = delivery_of_call(first.call, request, attempt, self.patience, 1);
        self.write(&delivery_text(&second, Some(1))).await?;
        let mut answer = self.answer().await?;
        if answer.memory == ClaimedMemory::Missing {
            named(&answer, &second)?;
            self.write(&delivery_text(&second, None)).await?;
            answer = self.answer().await?;
        }
        self.judged(answer, &second)?;

        let mut unknown = self.delivery(request, 3);
        unknown = delivery_of_call(unknown.call, request, unknown.attempt, self.patience, 1);
        self.write(&delivery_text(&unknown, Some(1))).await?;
        let answer = self.answer().await?;
        if answer.memory != ClaimedMemory::Missing {
            return Err("it answers a delivery that builds on a message it never had, and must \
                        answer <missing-memory>"
                .to_owned());
        }
        named(&answer, &unknown)
    }

    fn delivery(&self, request: &TrialRequest, n: u32) -> Delivery {
        delivery(request, Attempt { epoch: 1, n }, self.patience)
    }

    async fn write(&mut self, text: &str) -> Result<(), String> {
        let written = timeout(self.patience, self.process.write(text.as_bytes())).await;
        written.map_err(|_| format!("did not read its input within {:?}", self.patience))
    }

    /// Waits until the program has read all bytes that the check wrote to it.
    async fn until_read(&self) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        while !self.process.has_read_all() {
            if Instant::now() > until {
                return Err(format!("did not read its input within {:?}", self.patience));
            }
            sleep(LOOK_AGAIN).await;
        }

        Ok(())
    }

    /// Waits for the next answer. Each heartbeat extends the wait.
    async fn answer(&mut self) -> Result<ListenerAnswer, String> {
        loop {
            match timeout(self.patience, self.process.next()).await {
                Ok(Ok(ChildFrame::Heartbeat)) => {}
                Ok(Ok(ChildFrame::Answer(answer))) => return Ok(answer),
                Ok(Err(ended)) => return Err(ended),
                Err(_) => return Err(self.no_answer()),
            }
        }
    }

    fn no_answer(&self) -> String {
        let patience = self.patience;
        match self.process.unfinished() {
            0 if self.process.has_read_nothing() => format!(
                "no answer within {patience:?}; it has read nothing since its start: does it start \
                 so slowly?"
            ),
            0 => format!("no answer within {patience:?}; it wrote nothing: did it flush?"),
            bytes => format!(
                "no answer within {patience:?}; it wrote {} without a NUL",
                count(bytes, "byte")
            ),
        }
    }

    fn judged(&self, answer: ListenerAnswer, delivery: &Delivery) -> Result<(), String> {
        named(&answer, delivery)?;
        if answer.memory == ClaimedMemory::Missing {
            return Err("asks for messages of a delivery that had them all".to_owned());
        }
        judge_payloads(answer.payloads?, self.judge)
    }

    /// Closes the input of the program, and checks that the program writes nothing more. Does not
    /// check the exit, because another check does.
    async fn ends_without_more(&mut self) -> Result<(), String> {
        self.process.close_input();
        let more = timeout(limits::EXIT_GRACE, self.process.next()).await;
        match (more, self.process.unfinished()) {
            (Ok(Ok(_)), _) => Err("it wrote a frame more".to_owned()),
            (_, 0) => Ok(()),
            (_, bytes) => Err(format!("it wrote {}", count(bytes, "more byte"))),
        }
    }
}

fn named(answer: &ListenerAnswer, delivery: &Delivery) -> Result<(), String> {
    match &answer.named {
        Some(named) if !named.is(delivery.call, delivery.attempt) => {
            let attempt = delivery.attempt;
            Err(format!("it answers {named}, and not the delivery at hand, attempt {attempt}"))
        }
        _ => Ok(()),
    }
}

/// Adds [`LARGE_BYTES`] spaces to the start tag of the payload, where XML ignores them.
fn padded(payload: &str) -> String {
    let tag = Element::head(payload).and_then(|head| payload.get(head.origin.tag));
    let close = tag.map_or(0, |tag| tag.trim_end_matches('>').trim_end_matches('/').len());
    let start = tag.and_then(|tag| payload.find(tag)).unwrap_or_default();
    let (before, after) = payload.split_at(start + close);
    format!("{before}{}{after}", " ".repeat(LARGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_grows_without_a_change_of_what_it_means() {
        for payload in ["<a/>", "<a x=\"/>\">t</a>", "<p:a xmlns:p=\"urn:x\" ><b/></p:a>"] {
            let large = padded(payload);
            assert_eq!(large.len(), payload.len() + LARGE_BYTES);
            assert_eq!(large.replace(&" ".repeat(LARGE_BYTES), ""), payload);
            let name = |text: &str| Element::head(text).map(|head| head.name);
            assert_eq!(name(&large), name(payload));
        }
    }
}

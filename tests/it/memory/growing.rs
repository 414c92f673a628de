//! Threads in which requests, turns and clearings of the context come in any order.

use organism::agent::history::{self, ThreadFold, Viewpoint};
use organism::agent::{MemoryScope, RendererVersion};
use organism::clock::Time;
use organism::envelope::{Message, MessageKind, Payload};
use organism::ids::{CallId, Digest, MessageId, PayloadName, Position, ThreadId};
use organism::thread::{Closing, Fact, Input, Record};
use uuid::Uuid;

use crate::journal::script::{CORE, NAMESPACE, name, thread};
use crate::organism::kill::torture;

/// A thread of the agent `writer` that grows at random, always in the same way for the same seed.
struct GrowingThread {
    random: u64,
    thread: ThreadId,
    records: Vec<Record>,
    calls: Vec<CallId>,
    messages: Vec<MessageId>,
}

impl GrowingThread {
    fn new(seed: u64) -> Self {
        let thread = thread("sess-abcdefgh");
        let (records, calls, messages) = (Vec::new(), Vec::new(), Vec::new());
        Self { random: seed, thread, records, calls, messages }
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        // A linear congruential generator (Knuth, MMIX).
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % bound
    }

    fn position(&self) -> Position {
        Position(self.records.len() as u64)
    }

    fn record(&mut self, facts: Vec<Fact>) {
        self.records.push(Record {
            position: Position(self.position().0 + 1),
            tree: self.thread.clone(),
            previous: self.position(),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Boot { detail: "a test".to_owned() },
            facts,
        });
    }

    fn message(
        &mut self,
        kind: MessageKind,
        (from, to): (&str, &str),
        call: Option<CallId>,
        (name_, text): (PayloadName, String),
    ) -> (MessageId, Fact) {
        let number = self.messages.len() as u64 + 1;
        let id = MessageId(Uuid::from_u128(number.into()));
        let message = Message {
            id,
            kind,
            from: name(from),
            to: name(to),
            thread: self.thread.clone(),
            seq: number,
            cause: None,
            call,
            time: Time(0),
            name: name_,
            payload: Payload::new(text),
        };
        self.messages.push(id);
        (id, Fact::Accepted { message: message.into(), opening: None, key: None })
    }

    fn say(&self) -> (PayloadName, String) {
        let text = format!("<say xmlns=\"{NAMESPACE}\">{}</say>", self.messages.len());
        (PayloadName::new(NAMESPACE, "say"), text)
    }

    fn request(&mut self) {
        let say = self.say();
        let (id, fact) = self.message(MessageKind::Call, ("boss", "writer"), None, say);
        self.calls.push(CallId(id));
        self.record(vec![fact]);
    }

    fn reply(&mut self, call: CallId) {
        let say = self.say();
        let (_, fact) = self.message(MessageKind::Reply, ("tool", "writer"), Some(call), say);
        self.record(vec![fact]);
    }

    /// Adds the end of a call with an error, as for a call whose delivery failed.
    fn close(&mut self, call: CallId) {
        let say = self.say();
        let (_, fact) = self.message(MessageKind::System, ("core", "boss"), None, say);
        self.record(vec![fact, Fact::CallClosed { call, how: Closing::Failed }]);
    }

    /// Adds a turn that was rendered from the delivery of `call` at `position`. The turn may clear
    /// the window, may leave a message out of later prompts, and may end the call.
    fn turn(&mut self, call: CallId, position: Position) {
        let stub = match self.below(6) {
            0 => {
                let at = self.below(self.messages.len() as u64);
                format!("<left-out message=\"{}\"/>", self.messages[at as usize])
            }
            _ => String::new(),
        };
        let text = format!(
            "<model-turn xmlns=\"{CORE}\" agent=\"writer\" call=\"{call}\" turn=\"1\" \
             position=\"{position}\" provider=\"p\"><raw>turn at {position}</raw>{stub}</model-turn>"
        );
        let note = (PayloadName::new(CORE, "model-turn"), text);
        let (_, fact) = self.message(MessageKind::Note, ("writer", "writer"), Some(call), note);
        let mut facts = vec![fact];
        if self.below(5) == 0 {
            let before = self.below(self.messages.len() as u64 + 1);
            let kept = self.below(3) as u32;
            let (agent, thread) = (name("writer"), self.thread.clone());
            facts.push(Fact::Window { agent, thread, before, kept });
        }
        if self.below(4) == 0 {
            facts.push(Fact::CallClosed { call, how: Closing::Completed });
        }
        self.record(facts);
    }
}

#[test]
fn a_fold_gives_the_same_memory_in_any_order_of_requests_turns_and_clearings() {
    let (agent, scope) = (name("writer"), MemoryScope::Thread);
    for seed in 0..if torture() { 80 } else { 30 } {
        let mut story = GrowingThread::new(seed);
        let version = [RendererVersion::CURRENT, RendererVersion::V3][seed as usize % 2];
        let mut grown = ThreadFold::new(agent.clone(), story.thread.clone(), scope, version);
        let mut deliveries: Vec<(CallId, Position)> = Vec::new();
        story.request();

        for _ in 0..60 {
            // Most often, the turn is that of the last delivery.
            let back = if story.below(5) == 0 { story.below(4) as usize } else { 0 };
            let rendered = deliveries.iter().rev().nth(back).copied();
            match (story.below(8), rendered) {
                (0, _) => story.request(),
                (1..5, Some((call, position))) => story.turn(call, position),
                _ => {
                    let at = story.below(story.calls.len() as u64);
                    let call = story.calls[at as usize];
                    if story.below(3) == 0 { story.close(call) } else { story.reply(call) }
                }
            }

            // The next delivery, most often of the same call.
            let any = story.below(story.calls.len() as u64);
            let call = match deliveries.last() {
                Some((call, _)) if story.below(4) > 0 => *call,
                _ => story.calls[any as usize],
            };
            let position = story.position();
            grown.extend(&story.records, position);
            let view = Viewpoint {
                agent: &agent,
                thread: &story.thread,
                call,
                position,
                memory: scope,
                version,
            };
            let at_once = history::of(&story.records, &view);
            assert_eq!(grown.memory(call, position), at_once, "{seed} at {position}");
            deliveries.push((call, position));
        }
    }
}

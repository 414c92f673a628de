//! Handwritten records, such as a pump would write, from which the memory of one agent is read.

use organism::clock::Time;
use organism::contract::Gather;
use organism::envelope::{Message, MessageKind, Payload, Refusal, RefusalRule};
use organism::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId,
};
use organism::journal;
use organism::memory::ThreadHistory;
use organism::system;
use organism::thread::{Fact, Input, Opener, Opening, Record};
use uuid::Uuid;

pub const ROOT: &str = "sess-abcd1234";

pub fn listener(name: &str) -> ListenerName {
    ListenerName::parse(name).unwrap()
}

pub fn thread(id: &str) -> ThreadId {
    ThreadId::parse(id).unwrap()
}

/// The payload's name, parsed from its first tag.
pub fn name_of(xml: &str) -> PayloadName {
    let local = xml[1..].split([' ', '>', '/']).next().unwrap();
    let namespace = match xml.split_once("xmlns=\"") {
        Some((before, rest)) if !before.contains('>') => rest.split('"').next().unwrap(),
        _ => "",
    };
    PayloadName::new(namespace, local)
}

#[derive(Clone, Default)]
pub struct Story {
    pub records: Vec<Record>,
    seq: std::collections::HashMap<String, u64>,
    messages: u128,
}

/// One message of a story.
pub struct StoryMessage<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub kind: MessageKind,
    pub thread: &'a str,
    pub xml: &'a str,
    pub cause: Option<MessageId>,
    pub group: bool,
}

pub fn story_message<'a>(
    from: &'a str,
    to: &'a str,
    kind: MessageKind,
    xml: &'a str,
) -> StoryMessage<'a> {
    StoryMessage { from, to, kind, thread: ROOT, xml, cause: None, group: false }
}

impl<'a> StoryMessage<'a> {
    pub fn because(mut self, of: MessageId) -> Self {
        self.cause = Some(of);
        self
    }

    pub fn within(mut self, thread: &'a str) -> Self {
        self.thread = thread;
        self
    }

    pub fn of_a_group(mut self) -> Self {
        self.group = true;
        self
    }
}

impl Story {
    pub fn position(&self) -> Position {
        Position(self.records.len() as u64)
    }

    /// Adds one record that accepts these messages, in order. Returns the ids of the messages.
    pub fn step(&mut self, messages: &[StoryMessage<'_>]) -> Vec<MessageId> {
        let facts: Vec<Fact> = messages.iter().map(|said| self.accepted(said)).collect();
        let ids = facts.iter().map(|fact| match fact {
            Fact::Accepted { message, .. } => message.id,
            _ => unreachable!("only acceptances were made"),
        });
        let ids = ids.collect();
        self.record(facts);
        ids
    }

    /// Adds one record with acceptances and refusals, in order. Returns the ids of the record's
    /// messages.
    pub fn step_with(&mut self, fill: impl FnOnce(&mut Step<'_>)) -> Vec<MessageId> {
        let mut step = Step { story: self, facts: Vec::new(), ids: Vec::new() };
        fill(&mut step);
        let Step { facts, ids, .. } = step;
        self.record(facts);
        ids
    }

    /// Returns the note of a turn that `agent` takes after the records so far.
    pub fn turn_note(&self, agent: &str, call: MessageId, raw: &str) -> String {
        let (raw, position) = (raw.replace('&', "&amp;").replace('<', "&lt;"), self.position());
        format!(
            "<model-turn xmlns=\"{}\" agent=\"{agent}\" call=\"{call}\" position=\"{position}\"><raw>{raw}</raw></model-turn>",
            system::NAMESPACE
        )
    }

    pub fn say(&mut self, said: StoryMessage<'_>) -> MessageId {
        self.step(&[said])[0]
    }

    /// Adds a record with a turn of `agent` and these messages. The prompt of the turn was rendered
    /// from the records up to `position`.
    pub fn turn(
        &mut self,
        agent: &str,
        call: MessageId,
        position: Position,
        raw: &str,
        messages: &[StoryMessage<'_>],
    ) -> Vec<MessageId> {
        let thread = messages.first().map_or(ROOT, |said| said.thread);
        self.turn_with(thread, agent, call, position, raw, messages)
    }

    /// Adds a record with a turn of `agent` in the given thread, and nothing else.
    pub fn turn_in(
        &mut self,
        thread: &str,
        agent: &str,
        call: MessageId,
        position: Position,
        raw: &str,
    ) {
        self.turn_with(thread, agent, call, position, raw, &[]);
    }

    fn turn_with(
        &mut self,
        thread: &str,
        agent: &str,
        call: MessageId,
        position: Position,
        raw: &str,
        messages: &[StoryMessage<'_>],
    ) -> Vec<MessageId> {
        let raw = raw.replace('&', "&amp;").replace('<', "&lt;");
        let note = format!(
            "<model-turn xmlns=\"{}\" agent=\"{agent}\" call=\"{call}\" position=\"{position}\"><raw>{raw}</raw></model-turn>",
            system::NAMESPACE
        );
        let mut all = vec![story_message(agent, agent, MessageKind::Note, &note).within(thread)];
        all.extend(messages.iter().map(|m| StoryMessage { ..*m }));
        self.step(&all)[1..].to_vec()
    }

    /// Adds a fact to the last record: the agent clears its context, and a new window of `kept`
    /// messages begins.
    pub fn window(&mut self, agent: &str, kept: u32) {
        let before = self.seq(ROOT);
        let fact = Fact::Window { agent: listener(agent), thread: thread(ROOT), before, kept };
        self.records.last_mut().unwrap().facts.push(fact);
    }

    /// Number of messages in `thread`.
    pub fn seq(&self, thread: &str) -> u64 {
        self.seq.get(thread).copied().unwrap_or(0)
    }

    fn accepted(&mut self, said: &StoryMessage<'_>) -> Fact {
        self.messages += 1;
        let id = MessageId(Uuid::from_u128(self.messages));
        let seq = self.seq.entry(said.thread.to_owned()).or_default();
        *seq += 1;
        let message = Message {
            id,
            kind: said.kind,
            from: listener(said.from),
            to: listener(said.to),
            thread: thread(said.thread),
            seq: *seq,
            cause: said.cause,
            call: None,
            time: Time::parse("2026-11-20T10:00:00Z").unwrap(),
            name: name_of(said.xml),
            payload: Payload::new(said.xml),
        };
        let opening = (said.kind == MessageKind::Call).then(|| Opening {
            opener: Opener::Client { name: listener(said.from) },
            group: said.group.then_some((CallId(id), Gather::All)),
            forward: false,
        });
        Fact::Accepted { message: message.into(), opening, key: None }
    }

    fn record(&mut self, facts: Vec<Fact>) {
        let position = Position(self.records.len() as u64 + 1);
        self.records.push(Record {
            position,
            tree: thread(ROOT),
            previous: Position(position.0 - 1),
            previous_hash: Digest::ZERO,
            time: Time(0),
            input: Input::Deadline {
                call: CallId(MessageId(Uuid::nil())),
                attempt: Attempt { epoch: 1, n: 1 },
            },
            facts,
        });
    }
}

/// A record under construction.
pub struct Step<'s> {
    story: &'s mut Story,
    facts: Vec<Fact>,
    ids: Vec<MessageId>,
}

impl Step<'_> {
    pub fn accept(&mut self, said: &StoryMessage<'_>) {
        let fact = self.story.accepted(said);
        if let Fact::Accepted { message, .. } = &fact {
            self.ids.push(message.id);
        }
        self.facts.push(fact);
    }

    pub fn refuse(&mut self, sender: &str, rule: RefusalRule, text: &str) {
        let refusal = Refusal::new(rule, "refused", text.as_bytes());
        let sender = listener(sender);
        self.facts.push(Fact::Refused { sender, thread: Some(thread(ROOT)), call: None, refusal });
    }
}

impl ThreadHistory for Story {
    fn records(
        &self,
        _: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        Ok(self
            .records
            .iter()
            .filter(|record| record.position > after && record.position <= up_to)
            .cloned()
            .collect())
    }
}

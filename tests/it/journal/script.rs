//! Plausible records, written step by step without a pump.

use std::collections::HashMap;

use organism::clock::Time;
use organism::envelope::{Disposition, Message, MessageKind, Payload, Refusal, RefusalRule, Turn};
use organism::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId,
};
use organism::thread::{
    Closing, Decision, Fact, Input, Opener, Opening, OperatorAction, OperatorIdentity,
    OperatorVerb, Record, Verdict,
};
use organism::xml::findings::{Finding, TextLocation};
use uuid::Uuid;

pub const CORE: &str = "https://xml-pipeline.org/ns/core/v1";
pub const NAMESPACE: &str = "https://example.org/ns/desk/v1";
/// 2026-11-20T10:00:00Z, in microseconds.
const START: i64 = 1_795_168_800_000_000;

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

pub fn thread(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

/// One input for each kind of decision that an operator takes.
pub fn decisions() -> [Input; 3] {
    let action = OperatorAction {
        verb: OperatorVerb::TrustKey,
        by: ListenerName::operator(),
        who: OperatorIdentity::default(),
        note: String::new(),
        details: Vec::new(),
    };
    [
        Input::Decided {
            message: MessageId(Uuid::nil()),
            by: ListenerName::operator(),
            decision: Decision::Refuse { reason: "no".to_owned() },
            origin: None,
        },
        Input::Cancel {
            thread: thread("sess-abcdefgh"),
            by: ListenerName::operator(),
            reason: "no".to_owned(),
            origin: None,
        },
        Input::Operator(action),
    ]
}

/// Writes steps that are consistent with each other, except where a test damages them.
#[derive(Default)]
pub struct Script {
    seqs: HashMap<ThreadId, u64>,
    ids: u64,
    now: i64,
}

/// A step under construction.
pub struct Step<'s> {
    script: &'s mut Script,
    tree: ThreadId,
    thread: ThreadId,
    input: Input,
    facts: Vec<Fact>,
}

impl Script {
    fn id(&mut self) -> MessageId {
        self.ids += 1;
        MessageId(Uuid::new_v5(&Uuid::NAMESPACE_OID, &self.ids.to_le_bytes()))
    }

    pub fn step(&mut self, in_thread: &ThreadId, input: Input) -> Step<'_> {
        self.now += 137_000;
        let (tree, thread) = (in_thread.root(), in_thread.clone());
        Step { script: self, tree, thread, input, facts: Vec::new() }
    }

    pub fn outcome(&mut self, in_thread: &ThreadId, listener: &str, of: MessageId) -> Step<'_> {
        let attempt = Attempt { epoch: 1, n: 1 };
        let call = CallId(of);
        let listener = name(listener);
        let (verdicts, turn, arrived) = (Vec::new(), None, None);
        let input = Input::Outcome { listener, call, attempt, verdicts, turn, arrived };
        let mut step = self.step(in_thread, input);
        step.facts.push(Fact::OutcomeReceived { call, attempt });
        step
    }

    pub fn boot(&mut self, epoch: u32) -> Record {
        self.boot_with(epoch, &[])
    }

    /// The record of a start that lists these blobs.
    pub fn boot_with(&mut self, epoch: u32, blobs: &[Digest]) -> Record {
        let mut step =
            self.step(&ThreadId::organism(), Input::Boot { detail: "started".to_owned() });
        let journal = Uuid::nil();
        step.facts.push(Fact::Booted {
            journal,
            epoch,
            config: blobs.first().copied().unwrap_or_else(|| Digest::of(b"config")),
            core_version: 0,
            blobs: blobs.to_vec(),
        });
        step.end()
    }

    /// A client's question that opens a tree.
    pub fn question(&mut self, tree: &ThreadId, text: &str) -> (MessageId, Record) {
        let id = self.id();
        let submitted = Input::Submitted {
            id,
            client: name("operator"),
            thread: None,
            suggested: None,
            key: None,
            verdict: Verdict::Passed(Digest::ZERO),
        };
        let mut step = self.step(tree, submitted);
        step.facts.push(Fact::ThreadOpened {
            thread: tree.clone(),
            by: name("operator"),
            bound: None,
            allotment: None,
        });
        let body = format!("<question xmlns=\"{NAMESPACE}\">{text}</question>");
        let id = step.say(MessageKind::Call, "operator", "researcher", "question", &body, None);
        (id, step.end())
    }
}

impl Step<'_> {
    pub fn say(
        &mut self,
        kind: MessageKind,
        from: &str,
        to: &str,
        local: &str,
        payload: &str,
        call: Option<MessageId>,
    ) -> MessageId {
        let id = self.script.id();
        let seq = self.script.seqs.entry(self.thread.clone()).or_default();
        *seq += 1;
        let namespace = if payload.contains(CORE) { CORE } else { NAMESPACE };
        let from = name(from);
        let opener = Opener::Client { name: from.clone() };
        let opening =
            (kind == MessageKind::Call).then_some(Opening { opener, group: None, forward: false });
        let message = Message {
            id,
            kind,
            from,
            to: name(to),
            thread: self.thread.clone(),
            seq: *seq,
            cause: call,
            call: Some(CallId(call.unwrap_or(id))),
            time: Time(START + self.script.now),
            name: PayloadName::new(namespace, local),
            payload: Payload::new(payload),
        };
        self.facts.push(Fact::Accepted { message: message.into(), opening, key: None });
        id
    }

    pub fn dispose(&mut self, message: MessageId, how: Disposition) -> &mut Self {
        self.facts.push(Fact::Disposed { message, how });
        self
    }

    pub fn close(&mut self, call: MessageId, how: Closing) -> &mut Self {
        self.facts.push(Fact::CallClosed { call: CallId(call), how });
        self
    }

    pub fn refuse(
        &mut self,
        sender: &str,
        rule: RefusalRule,
        message: &str,
        text: &str,
    ) -> &mut Self {
        self.facts.push(Fact::Refused {
            sender: name(sender),
            thread: Some(self.thread.clone()),
            call: None,
            refusal: Refusal::new(rule, message, text.as_bytes()),
        });
        self
    }

    pub fn found(&mut self, code: &str, message: &str) -> &mut Self {
        let place = TextLocation { line: 3, column: 14, offset: 40, path: None };
        if let Input::Outcome { turn, .. } = &mut self.input {
            let turn = turn.get_or_insert_with(Turn::default);
            turn.findings.push(Finding::new(code, place, message));
        }
        self
    }

    /// Opens a child thread for the following messages.
    pub fn open(&mut self, child: &ThreadId, by: &str) -> &mut Self {
        self.facts.push(Fact::ThreadOpened {
            thread: child.clone(),
            by: name(by),
            bound: None,
            allotment: None,
        });
        self
    }

    pub fn within(&mut self, thread: &ThreadId) -> &mut Self {
        self.thread = thread.clone();
        self
    }

    pub fn end(self) -> Record {
        Record {
            position: Position(0),
            tree: self.tree,
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(START + self.script.now),
            input: self.input,
            facts: self.facts,
        }
    }
}

/// Returns the records of a research: a question, a thought, a search, a refusal with its
/// correction, a subthread, and the answer.
pub fn research(script: &mut Script, root: &str) -> Vec<Record> {
    let tree = thread(root);
    let (asked, first) = script.question(&tree, "How is a login checked, &amp; where?");
    let mut records = vec![first];

    let mut step = script.outcome(&tree, "researcher", asked);
    let thought = format!("<thinking xmlns=\"{CORE}\">I should look for “login” first.</thinking>");
    let thought =
        step.say(MessageKind::Note, "researcher", "researcher", "thinking", &thought, Some(asked));
    step.dispose(thought, Disposition::Recorded).dispose(asked, Disposition::Handled);
    let query =
        format!("<search xmlns=\"{NAMESPACE}\"><query>login</query><path>src</path></search>");
    let search = step.say(MessageKind::Call, "researcher", "code-search", "search", &query, None);
    records.push(step.end());

    let mut step = script.outcome(&tree, "code-search", search);
    let found = format!(
        "<results xmlns=\"{NAMESPACE}\"><hit file=\"src/auth.rs\" line=\"42\">fn login(name: &amp;str) {{</hit></results>"
    );
    let found =
        step.say(MessageKind::Reply, "code-search", "researcher", "results", &found, Some(asked));
    step.dispose(search, Disposition::Handled).close(search, Closing::Completed);
    records.push(step.end());

    let mut step = script.outcome(&tree, "researcher", asked);
    step.dispose(found, Disposition::Handled);
    step.found("unclosed-element", "`<search>` was never closed");
    let wrong = "<calculate><sum>1+</sum></calculate>";
    step.refuse("researcher", RefusalRule::SchemaInvalid, "`sum` is not an expression", wrong);
    let huh =
        format!("<huh xmlns=\"{CORE}\" code=\"schema-invalid\">`sum` is not an expression</huh>");
    let huh = step.say(MessageKind::System, "core", "researcher", "huh", &huh, Some(asked));
    records.push(step.end());

    let child = tree.child("depth");
    let mut step = script.outcome(&tree, "researcher", asked);
    step.dispose(huh, Disposition::Handled).open(&child, "researcher");
    let spawned = format!(
        "<thread-spawned xmlns=\"{CORE}\" assigned_id=\"{child}\" parent_id=\"{tree}\" message=\"Thread spawned successfully.\"/>"
    );
    let spawned = step.say(
        MessageKind::System,
        "core",
        "researcher",
        "thread-spawned",
        &spawned,
        Some(asked),
    );
    step.within(&child);
    let inner = format!("<question xmlns=\"{NAMESPACE}\">What does line 42 call?</question>");
    let inner = step.say(MessageKind::Call, "researcher", "researcher", "question", &inner, None);
    records.push(step.end());

    let mut step = script.outcome(&child, "researcher", inner);
    let answer = format!("<answer xmlns=\"{NAMESPACE}\">It calls verify.</answer>");
    let answer =
        step.say(MessageKind::Reply, "researcher", "researcher", "answer", &answer, Some(inner));
    step.dispose(answer, Disposition::Recorded).dispose(inner, Disposition::Handled);
    step.close(inner, Closing::Completed).within(&tree);
    let result = format!(
        "<thread-result xmlns=\"{CORE}\" thread_id=\"{child}\" status=\"completed\"><answer xmlns=\"{NAMESPACE}\">It calls verify.</answer></thread-result>"
    );
    let result =
        step.say(MessageKind::System, "core", "researcher", "thread-result", &result, Some(asked));
    records.push(step.end());

    let mut step = script.outcome(&tree, "researcher", asked);
    step.dispose(spawned, Disposition::Handled).dispose(result, Disposition::Handled);
    let last = format!("<answer xmlns=\"{NAMESPACE}\">In src/auth.rs:42, by verify.</answer>");
    let last = step.say(MessageKind::Reply, "researcher", "operator", "answer", &last, Some(asked));
    step.dispose(last, Disposition::Recorded).close(asked, Closing::Completed);
    records.push(step.end());
    records
}

//! Writes a test case from a recorded run: its input, every answer by path, and its result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::answer_payloads::answer_payloads;
use super::call_paths::CallPaths;
use super::record::CaseRecord;
use crate::config::{CaseFault, Config};
use crate::contract::{Role, goal_answer};
use crate::envelope::{Disposition, Message, MessageKind};
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, ThreadId};
use crate::organism::{Error, with_core_words};
use crate::system;
use crate::thread::{Closing, Decision, Fact, Input, Record};
use crate::workflow::{
    WorkflowDefinition, called_once, failed_name, fit_children, input_payload, is_undo_report,
    output_name,
};
use crate::xml::element::Element;

/// Why no test case can be written from a thread.
#[derive(Debug, thiserror::Error)]
pub enum CaseWriteError {
    #[error("the thread holds {0} runs, and a case has one: name the thread of another run")]
    Several(usize),
    #[error("the thread holds no run of a workflow of the config")]
    None,
    #[error("the run has not ended; wait for its result, or cancel it")]
    Open,
    #[error("`{0}` called the run: a case is of a run that a client has called")]
    Beneath(ListenerName),
    #[error("the run goes on from an earlier one, whose results a case does not have")]
    Retry,
    #[error("only {0}, the source of this fork, has all answers of the run: name a run there")]
    Fork(ThreadId),
    #[error(
        "the payload of its message {0} was redacted, so the record lacks a part of the case; \
         write a case from a run without redactions"
    )]
    Redacted(MessageId),
    #[error(transparent)]
    Organism(#[from] Error),
}

/// Writes a test case as TOML. The recorded run passes this test case. `thread` is the thread of the
/// run, and `records` are the records of its tree. `config` is the present config.
pub fn write_case(
    config: &Config,
    thread: &ThreadId,
    records: &[Record],
) -> Result<String, CaseWriteError> {
    let config = with_core_words(config.clone())?;
    let record = CaseRecord::of(records.iter(), &config.contracts);
    let request = record.request().ok_or(CaseWriteError::None)?;
    if request.thread != *thread && !thread.is_root() {
        return Err(run_beneath(&config, thread, &record));
    }

    let run = CallId(request.id);
    let runs = record.calls.iter().filter(|call| call.path.is_empty()).count() + 1;
    if runs > 1 {
        return Err(CaseWriteError::Several(runs));
    }

    let is_client =
        |name| config.contracts.get(name).is_some_and(|contract| contract.role == Role::Client);
    if !is_client(&request.from) || !request.thread.is_root() {
        return Err(CaseWriteError::Beneath(request.from.clone()));
    }

    let mut definitions = config.workflows.iter().map(|workflow| &workflow.definition);
    let definition = definitions.find(|definition| definition.name.value == request.to);
    let definition = definition.ok_or(CaseWriteError::None)?;

    if request.name == crate::contract::retry_name(&request.to) {
        return Err(CaseWriteError::Retry);
    }
    if let Some(source) = source_of_answers(records) {
        return Err(CaseWriteError::Fork(source.clone()));
    }

    let reply = replies_of(records, run).ok_or(CaseWriteError::Open)?;
    if let Some(redacted) = redacted_message(records, request) {
        return Err(CaseWriteError::Redacted(redacted));
    }

    let mut out = String::from("[[case]]\n");
    let thread = &request.thread;
    let _ = writeln!(out, "name = {}", text_of(&format!("as in {thread}")));
    let _ = writeln!(out, "workflow = {}", text_of(request.to.as_str()));
    let _ = writeln!(out, "as = {}", text_of(request.from.as_str()));
    let _ = writeln!(out, "input = {}", input_of(&config, definition, request));

    let mut answers = RecordedAnswers::new(&config);
    for record in records {
        answers.take(record);
    }
    if !answers.turns.is_empty() {
        out.push_str("\n[case.answers]\n");
    }
    for (path, turns) in answers.in_order() {
        let turns = match turns {
            [turn] => turn.clone(),
            turns => format!("[\n  {},\n]", turns.join(",\n  ")),
        };
        let _ = writeln!(out, "{} = {turns}", key_of(path));
    }

    out.push_str("\n[case.expect]\n");
    out.push_str(&result_of(definition, &reply));
    let goals = record.repeatable_goals(definition, &called_once(&config.contracts));
    let goals = goals.iter().map(|status| {
        format!("{} = {}", key_of(status.goal.as_str()), text_of(status.phase.as_str()))
    });
    let goals: Vec<_> = goals.collect();
    if !goals.is_empty() {
        let _ = writeln!(out, "goals = {{ {} }}", goals.join(", "));
    }
    Ok(out)
}

/// Returns why no case is written from `thread`, a subthread of the thread of the run in `record`.
fn run_beneath(config: &Config, thread: &ThreadId, record: &CaseRecord) -> CaseWriteError {
    let is_run = |request: &Message| {
        let contract = config.contracts.get(&request.to);
        request.thread == *thread && contract.is_some_and(|called| called.role == Role::Workflow)
    };
    let mut requests = record.calls.iter().map(|call| &call.request);
    match requests.find(|request| is_run(request)) {
        Some(request) => CaseWriteError::Beneath(request.from.clone()),
        None => CaseWriteError::None,
    }
}

/// Returns the first message of the run whose payload was redacted. `request` is the request of the
/// run, the only one in its tree.
fn redacted_message(records: &[Record], request: &Message) -> Option<MessageId> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let messages = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(message),
        _ => None,
    });
    let mut of_run = messages.skip_while(|message| message.id != request.id);
    let found = of_run.find(|message| message.payload.is_redacted());
    found.map(|message| message.id)
}

/// Returns the source thread of a fork if this thread contains further answers of the run. That is
/// so if the fork continues calls that were open in the source, or uses results that the source
/// recorded. `records` are the records of the fork's tree. Returns `None` if `records` contain all
/// answers.
fn source_of_answers(records: &[Record]) -> Option<&ThreadId> {
    let source = records.first()?.fork_source()?;
    let mut facts = records.iter().flat_map(|record| &record.facts);
    let is_of_source = |fact: &Fact| matches!(fact, Fact::Reopened(_) | Fact::Recalled { .. });
    facts.any(is_of_source).then_some(&source.thread)
}

/// Returns the replies of an ended run; `None` if the run is open.
fn replies_of(records: &[Record], run: CallId) -> Option<Vec<Arc<Message>>> {
    let (_, messages) = crate::thread::client_result(records.iter(), run)?;
    Some(messages.into_iter().cloned().map(Arc::new).collect())
}

fn input_of(config: &Config, definition: &WorkflowDefinition, request: &Message) -> String {
    let payload = request.payload.as_str();
    let whole = || text_of(payload);
    let Some(element) = Element::read_document(payload) else { return whole() };
    let values = element.children().map(|child| (child.local_name().to_owned(), child.text()));
    let values: Vec<_> = values.collect();
    let again = input_payload(&config.schemas, definition, &values, false);
    let is_same = again.is_ok_and(|again| {
        Element::read_document(&fit_children(&config.schemas, again).to_xml())
            .is_some_and(|again| again.to_xml() == element.to_xml())
    });
    if !is_same {
        return whole();
    }

    let mut by_name: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, value) in &values {
        match by_name.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(basic_text(value)),
            None => by_name.push((name, vec![basic_text(value)])),
        }
    }
    let written = by_name.iter().map(|(name, values)| match values.as_slice() {
        [value] => format!("{} = {value}", key_of(name)),
        values => format!("{} = [{}]", key_of(name), values.join(", ")),
    });
    format!("{{ {} }}", written.collect::<Vec<_>>().join(", "))
}

fn result_of(definition: &WorkflowDefinition, replies: &[Arc<Message>]) -> String {
    let workflow = &definition.name.value;
    for reply in replies {
        let payload = reply.payload.as_str();
        let Some(element) = Element::read_document(payload) else { continue };
        if reply.name == output_name(workflow) {
            let is_text = element.children().next().is_none();
            let text = if is_text { element.text() } else { payload.to_owned() };
            return format!("output = {}\n", text_of(&text));
        }

        let value = |name: &str| element.child(name).map(Element::text).unwrap_or_default();
        if reply.name == failed_name(workflow) {
            let goal = basic_text(&value("goal"));
            let code = basic_text(&value("code"));
            return format!("failed = {{ goal = {goal}, code = {code} }}\n");
        }
        let code = element.attribute("code").unwrap_or(element.local_name());
        return format!("failed = {}\n", basic_text(code));
    }

    String::new()
}

/// The recorded answers of one run, by call path.
struct RecordedAnswers<'a> {
    config: &'a Config,
    paths: CallPaths<'a>,
    /// Requests of the calls that the run made to agents, listeners and people.
    requests: BTreeMap<CallId, Arc<Message>>,
    /// Calls with an attempt that a listener works on, and calls that wait for a person.
    unanswered: BTreeSet<CallId>,
    /// For each call path, the texts that the case file gets, in order. Each text is the answer or
    /// the fault for one delivery. A call path names a goal or a call of the run.
    turns: BTreeMap<String, Vec<String>>,
    /// Paths of the answers, in the order in which each path got its first answer.
    order: Vec<String>,
    /// For each turn, in the order of the journal: its thread, its call path, and its index among
    /// the turns of this path.
    places: Vec<(ThreadId, String, usize)>,
    /// Results that workflows got from threads: the id of each result message, with the thread that
    /// the result comes from.
    results: BTreeMap<MessageId, ThreadId>,
}

impl<'a> RecordedAnswers<'a> {
    fn new(config: &'a Config) -> Self {
        let paths = CallPaths::new(&config.contracts);
        let requests = BTreeMap::new();
        let unanswered = BTreeSet::new();
        let turns = BTreeMap::new();
        Self {
            config,
            paths,
            requests,
            unanswered,
            turns,
            order: Vec::new(),
            places: Vec::new(),
            results: BTreeMap::new(),
        }
    }

    fn in_order(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.order.iter().filter_map(|path| Some((path.as_str(), self.turns.get(path)?.as_slice())))
    }

    fn take(&mut self, record: &Record) {
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening, .. } => {
                    if opening.is_some() {
                        self.take_request(message);
                    }
                    self.take_thread_end(message);
                }
                Fact::Disposed { message, how: Disposition::Late } => {
                    if let Some(thread) = self.results.get(message).cloned() {
                        self.forget_result(&thread);
                    }
                }
                Fact::HandedOver { call, .. } | Fact::Held { call, .. } => {
                    self.unanswered.insert(*call);
                }
                Fact::Released { call, .. }
                | Fact::NotTaken { call, .. }
                | Fact::OutcomeReceived { call, .. }
                | Fact::AttemptFailed { call, .. } => {
                    self.unanswered.remove(call);
                }
                Fact::CallClosed { call, how } => self.take_failure(record, *call, *how),
                _ => {}
            }
        }

        match &record.input {
            Input::Outcome { listener, call, .. } => self.take_outcome(record, listener, *call),
            Input::Decided { message, decision: Decision::Answer(_), .. } => {
                let call = CallId(*message);
                if let Some(human) = self.requests.get(&call).map(|request| request.to.clone()) {
                    self.take_outcome(record, &human, call);
                }
            }
            _ => {}
        }
    }

    fn take_request(&mut self, message: &Arc<Message>) {
        self.paths.name(message);
        if self.is_answered(&message.to) {
            self.requests.insert(CallId(message.id), Arc::clone(message));
        }
    }

    /// Handles a message about the end of a thread that a workflow opened.
    ///
    /// - If the message gives the workflow the thread's result, notes the result.
    /// - If the message cancels a thread whose result the workflow already has, forgets the result.
    ///   The workflow decided on the cancellation because of an earlier message, and has not used
    ///   the result.
    fn take_thread_end(&mut self, message: &Message) {
        let is_result = message.name == system::name("thread-result");
        let is_cancel = message.name == system::name("cancel-thread");
        let workflow = if is_result { &message.to } else { &message.from };
        let role = self.config.contracts.get(workflow).map(|contract| contract.role);
        if !(is_result || is_cancel) || role != Some(Role::Workflow) {
            return;
        }

        let element = Element::head(message.payload.as_str());
        let thread = element.as_ref().and_then(|element| element.attribute("thread_id"));
        let Some(thread) = thread.and_then(|thread| ThreadId::parse(thread).ok()) else { return };
        if is_result {
            self.results.insert(message.id, thread);
        } else if self.results.values().any(|ended| *ended == thread) {
            self.forget_result(&thread);
        }
    }

    /// Replaces the last turn in `thread` or its subthreads by a time-out, because the run has not
    /// used the result of this thread. In the test case, the call of that turn then gets no answer
    /// before the run cancels the call.
    fn forget_result(&mut self, thread: &ThreadId) {
        let mut places = self.places.iter().rev();
        let found = places.find(|(place, ..)| place.is_within(thread));
        let Some((_, path, number)) = found else { return };
        let turn = self.turns.get_mut(path).and_then(|turns| turns.get_mut(*number));
        if let Some(turn) = turn {
            *turn = fault_text(CaseFault::Timeout);
        }
    }

    fn is_answered(&self, listener: &ListenerName) -> bool {
        let contract = self.config.contracts.get(listener);
        contract.is_some_and(|contract| {
            matches!(contract.role, Role::Agent | Role::Listener | Role::Human)
        })
    }

    fn take_outcome(&mut self, record: &Record, listener: &ListenerName, call: CallId) {
        let Some(request) = self.requests.get(&call).cloned() else { return };
        let messages = record.facts.iter().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.from == *listener => Some(message),
            _ => None,
        });
        let is_note = |message: &&Arc<Message>| message.kind == MessageKind::Note;
        let (notes, payloads): (Vec<_>, Vec<_>) = messages.partition(is_note);
        let payloads = if payloads.is_empty() { notes } else { payloads };
        let role = self.config.contracts.get(listener).map(|contract| contract.role);
        // A turn of an agent or an answer of a person whose payloads were all refused had no effect
        // on the run. The refused reply of a listener has closed the call with a fault.
        let may_repeat = matches!(role, Some(Role::Agent | Role::Human));
        if payloads.is_empty() && (may_repeat || has_failed(record, call)) {
            return;
        }

        let is_waited_for = |fact: &Fact| matches!(fact, Fact::OutcomeReceived { call: received, .. } if *received == call);
        if role != Some(Role::Human) && !record.facts.iter().any(is_waited_for) {
            return;
        }
        let text = match payloads.as_slice() {
            [payload] => self.written_payload(listener, &request, payload),
            payloads => payloads
                .iter()
                .map(|payload| payload.payload.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        };
        self.add(&request, text_of(&text));
    }

    fn add(&mut self, request: &Message, turn: String) {
        let path = self.paths.name(request);
        if !self.order.contains(&path) {
            self.order.push(path.clone());
        }
        let turns = self.turns.entry(path.clone()).or_default();
        self.places.push((request.thread.clone(), path, turns.len()));
        turns.push(turn);
    }

    /// Writes the shortest text that [`answer_payloads`] turns into the payload of `reply`.
    fn written_payload(&self, sender: &ListenerName, request: &Message, reply: &Message) -> String {
        let whole = reply.payload.as_str();
        let stands_for = |text: &str| {
            let payloads = answer_payloads(self.config, sender, request, text);
            let [payload] = payloads.as_deref().unwrap_or_default() else { return false };
            let read = |text: &str| Element::read_document(text).map(|element| element.to_xml());
            std::str::from_utf8(payload).is_ok_and(|payload| read(payload) == read(whole))
        };

        let element = Element::read_document(whole);
        let result = element.as_ref().and_then(|element| element.child("result"));
        if let Some(text) = result.filter(|_| reply.name == goal_answer()).map(Element::text)
            && stands_for(&text)
        {
            return text;
        }
        let short = without_namespace(whole, &reply.name);
        short.filter(|short| stands_for(short)).unwrap_or_else(|| whole.to_owned())
    }

    /// Adds to the answers of the case file the fault with which a call closed. Adds nothing if a
    /// case file cannot state this fault. `record` is the record that closed the call, and `how`
    /// the way in which it closed.
    ///
    /// If the run cancelled the call while its answer was missing, adds a time-out. In the test
    /// case, the call then gets no answer before the run cancels it.
    fn take_failure(&mut self, record: &Record, call: CallId, how: Closing) {
        let Some(request) = self.requests.get(&call).cloned() else { return };
        let is_cancelled = matches!(record.input, Input::Cancel { .. });
        let fault = match how {
            Closing::Completed => return,
            Closing::Cancelled if is_cancelled => Some(CaseFault::Cancelled),
            Closing::Cancelled if self.lacks_answer(call, &request.to) => Some(CaseFault::Timeout),
            Closing::Cancelled => return,
            Closing::Failed => failure_of(record, call),
        };
        // The run does not wait for an answer to its undo report.
        if let Some(fault) = fault.filter(|_| !is_undo_report(&request.name.local)) {
            self.add(&request, fault_text(fault));
        }
    }

    /// Whether an open call waits for an answer of its listener or of a person. Returns `false` for
    /// a call that still waits in a queue, and for a call that waits for the results of other
    /// calls.
    fn lacks_answer(&self, call: CallId, listener: &ListenerName) -> bool {
        let role = self.config.contracts.get(listener).map(|contract| contract.role);
        self.unanswered.contains(&call) || role == Some(Role::Human)
    }
}

/// Writes a turn that is a fault.
fn fault_text(fault: CaseFault) -> String {
    format!("{{ fail = \"{}\" }}", fault.as_str())
}

/// Whether the record closes the call with a failure.
fn has_failed(record: &Record, call: CallId) -> bool {
    record.facts.contains(&Fact::CallClosed { call, how: Closing::Failed })
}

/// Returns the fault with which the call failed. Returns `None` if `record` contains no such fault,
/// or a fault that a test case cannot cause.
fn failure_of(record: &Record, call: CallId) -> Option<CaseFault> {
    let is_about = |message: &Message| {
        message.kind == MessageKind::System
            || message.cause == Some(call.0)
            || message.from == ListenerName::core()
    };
    record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } if is_about(message) => {
            let payload = Element::read_document(message.payload.as_str())?;
            let own = payload.attribute("code").and_then(CaseFault::parse);
            let mut inner = payload.children().filter_map(|child| child.attribute("code"));
            own.or_else(|| inner.find_map(CaseFault::parse))
        }
        _ => None,
    })
}

/// Returns the payload without the declaration of its default namespace. Returns `None` if the
/// first tag does not declare the namespace of `name` as the default namespace.
fn without_namespace(payload: &str, name: &PayloadName) -> Option<String> {
    let declaration = format!(" xmlns=\"{}\"", name.namespace);
    let end = payload.find('>')?;
    let at = payload.find(&declaration).filter(|at| *at < end)?;
    let (before, rest) = payload.split_at(at);
    Some(format!("{before}{}", rest.get(declaration.len()..)?))
}

fn key_of(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { basic_text(name) }
}

/// Writes a text as a TOML string. If the text has line breaks, and if a TOML literal string can
/// contain it, the string has several lines.
fn text_of(text: &str) -> String {
    let is_plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let is_literal = text.contains('\n') && !text.contains("'''") && !text.ends_with('\'');
    if is_literal && text.chars().all(is_plain) {
        format!("'''\n{text}'''")
    } else {
        basic_text(text)
    }
}

/// Writes a text as a TOML string on one line.
fn basic_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

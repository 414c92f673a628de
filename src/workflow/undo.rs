//! Undo: completed calls beneath a failed run are undone, newest first, each at most once.
//!
//! Each undo is a call in a thread of its own. The label of this thread names the undone call, so
//! the journal shows which calls were undone. Therefore, neither later deliveries of this run nor
//! the undo of a run that called this workflow can undo a call a second time.

use std::collections::{HashMap, HashSet};

use crate::contract::{Contracts, Role, UndoRule};
use crate::envelope::Message;
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::mutant::mutant;
use crate::schema::Schemas;
use crate::system::ThreadStatus;
use crate::xml::element::Element;
use crate::xml::shape::QName;

use super::call_fold::is_failure;
use super::calls_beneath::{CallEnd, NestedCall};
use super::definition::GoalId;
use super::input::fit_children;
use super::run_state::GoalFailure;
use super::view::{RunView, ViewEntry, ViewValue};

/// The undo rules of the present config.
#[derive(Clone, Default)]
pub struct UndoRules {
    rules: HashMap<(ListenerName, PayloadName), UndoRule>,
    /// Pairs of a listener and the name of a payload that undoes a call to this listener.
    undoing: HashSet<(ListenerName, PayloadName)>,
    /// Listeners to which a call must not be repeated. A call to such a listener counts as having
    /// effects.
    once: HashSet<ListenerName>,
    schemas: Schemas,
}

impl UndoRules {
    pub fn new(contracts: &Contracts, schemas: &Schemas) -> Self {
        let mut all = Self { schemas: schemas.clone(), ..Self::default() };
        for contract in contracts.iter() {
            let name = &contract.name;
            if contract.role == Role::Listener && contract.attempts == 1 {
                all.once.insert(name.clone());
            }
            for rule in &contract.undo {
                all.undoing.insert((name.clone(), rule.payload.clone()));
                all.rules.insert((name.clone(), rule.request.clone()), rule.clone());
            }
        }

        all
    }

    fn rule(&self, call: &NestedCall) -> Option<&UndoRule> {
        self.rules.get(&(call.listener.clone(), call.request.name.clone()))
    }

    /// Whether the undo has to know if `call` was handed over to its listener.
    pub fn depends_on_hand_over(&self, call: &NestedCall) -> bool {
        let is_judged_by_it = match &call.end {
            CallEnd::Completed { .. } => false,
            CallEnd::Failed { code } => code != UNKNOWN_OUTCOME,
            CallEnd::Open => true,
        };
        is_judged_by_it && self.has_effects(call) && !self.is_undoing(call)
    }

    /// Whether the call may have had effects that an undo must reverse or report to a person.
    fn has_effects(&self, call: &NestedCall) -> bool {
        self.rule(call).is_some() || self.is_once(&call.listener)
    }

    /// Whether a call to `listener` must not be repeated, because the listener has `attempts = 1`.
    pub fn is_once(&self, listener: &ListenerName) -> bool {
        self.once.contains(listener)
    }

    /// Whether an undo has to wait for an open call in or beneath `thread`. Such a call undoes
    /// another call, or can itself be undone after its completion. The undo does not wait for a
    /// call that waits for an approval and was never handed over, because a cancellation of this
    /// call leaves no effect.
    pub fn has_open(&self, calls: &[NestedCall], thread: &ThreadId) -> bool {
        let is_in = |call: &NestedCall| call.thread.is_within(thread);
        let is_open = |call: &NestedCall| matches!(call.end, CallEnd::Open);
        let can_have_effects = |call: &NestedCall| {
            let was_kept_back = call.is_held && !call.was_handed_over;
            self.rule(call).is_some() && !was_kept_back
        };
        let is_waited_for = |call: &NestedCall| self.is_undoing(call) || can_have_effects(call);
        calls.iter().any(|call| is_in(call) && is_open(call) && is_waited_for(call))
    }

    fn is_undoing(&self, call: &NestedCall) -> bool {
        is_of_undo(call)
            || self.undoing.contains(&(call.listener.clone(), call.request.name.clone()))
    }
}

/// Reason code of a completed call that was not undone: an expression of its undo rule selects
/// nothing.
const NOTHING_SELECTED: &str = "nothing-selected";

/// Reason code of a completed call that was not undone: an expression of its undo rule selects
/// several nodes for one value.
const SEVERAL_SELECTED: &str = "several-selected";

/// Reason code of a completed call that was not undone: its undo has failed, or it is unknown
/// whether the call was undone.
const UNDO_FAILED: &str = "undo-failed";

/// Reason code of a completed call whose undo has begun and has not ended. The undo may wait for an
/// approval. Only [`PlannedUndo`](super::PlannedUndo) has this code: an undo of a run waits for an
/// undo that is open, or cancels it.
const UNDO_OPEN: &str = "undo-open";

/// Code of a failed call whose outcome is unknown: the listener may have acted on the call, even if
/// no hand-over is recorded.
const UNKNOWN_OUTCOME: &str = "unknown-outcome";

/// Beginning of the label of each thread that undoes a call. No name of a goal begins with this
/// text.
const LABEL: &str = "undo_";

/// Length of the id of a call in such a label.
const ID_CHARS: usize = 36;

/// Label of the thread that sends a person the list of calls that were not undone.
pub const REPORT_LABEL: &str = "undo-report";

/// Whether a thread with this label undoes a call.
pub fn is_undo_label(label: &str) -> bool {
    label.starts_with(LABEL)
}

/// Whether a workflow made the call in order to undo another one. The label alone does not show
/// this, because an agent may give its thread any label.
fn is_of_undo(call: &NestedCall) -> bool {
    call.is_by_workflow && is_undo_label(call.thread.label())
}

pub fn label_of(call: CallId) -> String {
    format!("{LABEL}{call}")
}

/// Returns the call that is undone in a thread with this label. If several threads were opened to
/// undo one call, the core has appended a number to the label of each but the first. Returns `None`
/// if no call is undone in such a thread.
pub fn undone_call(label: &str) -> Option<CallId> {
    let (id, number) = label.strip_prefix(LABEL)?.split_at_checked(ID_CHARS)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !number.is_empty() && !number.strip_prefix('-').is_some_and(is_number) {
        return None;
    }
    id.parse().ok().map(CallId)
}

/// A completed call that an undo takes back, with the payload that undoes it.
#[derive(Debug, Clone)]
pub struct UndoTarget {
    pub call: LeftCall,
    pub payload: Element,
    position: Position,
}

/// A call beneath a failed run, with the data that the report to a person shows if the call was not
/// undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftCall {
    pub call: CallId,
    pub listener: ListenerName,
    /// Local name of the call's request.
    pub payload: String,
    pub thread: ThreadId,
    /// Code of the reason why the call was not undone. Empty in an `UndoTarget`, because its call
    /// is still to be undone.
    pub reason: String,
}

/// Returns the calls to undo, the newest at the end, and the calls whose effects cannot be undone.
pub(super) fn plan(calls: &[NestedCall], rules: &UndoRules) -> (Vec<UndoTarget>, Vec<LeftCall>) {
    let undone = workflow_undos(calls);
    let mut own = OwnUndos::new(calls, rules);
    let mut targets = Vec::new();
    let mut left = Vec::new();
    for call in calls.iter().filter(|call| !rules.is_undoing(call)) {
        let earlier = undone.get(&call.id).copied();
        let earlier = earlier.filter(|_| !mutant("undo-again"));
        match judge(call, earlier, rules) {
            CallFate::Nothing => {}
            CallFate::Undo(..) if mutant("forget-an-undo") => {}
            CallFate::Undo(payload, position) if own.take(call, &payload, position) => {}
            CallFate::Undo(_, position) if own.may_undo(call, position, rules) => {
                left.push(left_call(call, UNDO_FAILED));
            }
            CallFate::Undo(payload, position) => {
                targets.push(UndoTarget { call: left_call(call, ""), payload, position });
            }
            CallFate::Left(reason) => left.push(left_call(call, &reason)),
        }
    }

    targets.sort_by_key(|target| target.position);
    (targets, left)
}

/// Changes the reason of each call in `left` whose undo is open.
pub(super) fn mark_open_undos(left: &mut [LeftCall], calls: &[NestedCall]) {
    let undos = workflow_undos(calls);
    let is_open = |call: &LeftCall| {
        let undo = undos.get(&call.call);
        call.reason == UNDO_FAILED && undo.is_some_and(|undo| matches!(undo.end, CallEnd::Open))
    };
    for call in left.iter_mut().filter(|call| is_open(call)) {
        call.reason = UNDO_OPEN.to_owned();
    }
}

/// Returns the calls with which workflows have undone other calls, or have tried to, by the ids of
/// these other calls. If a workflow has tried several times to undo a call, the first successful
/// attempt counts, or the last one if none was successful.
fn workflow_undos(calls: &[NestedCall]) -> HashMap<CallId, &NestedCall> {
    let mut undos: HashMap<CallId, &NestedCall> = HashMap::new();
    for call in calls.iter().filter(|call| call.is_by_workflow) {
        let Some(undone) = undone_call(call.thread.label()) else { continue };
        let known = undos.entry(undone).or_insert(call);
        if !is_done(&known.end) {
            *known = call;
        }
    }

    undos
}

/// Completed calls with which an agent or a goal undid other calls before the run failed. Does not
/// include the calls of the undo that follows the failure.
struct OwnUndos<'a> {
    /// The calls, each with its payload and the position at which it completed. The payload is
    /// `None` if it was redacted.
    calls: Vec<(&'a NestedCall, Option<Element>, Position)>,
}

impl<'a> OwnUndos<'a> {
    fn new(calls: &'a [NestedCall], rules: &UndoRules) -> Self {
        let own = calls.iter().filter(|call| rules.is_undoing(call) && !is_of_undo(call));
        let own = own.filter(|call| is_done(&call.end)).filter_map(|call| {
            let CallEnd::Completed { position, .. } = call.end else { return None };
            let payload = &call.request.payload;
            let request = Element::read_document(payload.as_str());
            (request.is_some() || payload.is_redacted()).then_some((call, request, position))
        });
        Self { calls: own.collect() }
    }

    /// Returns whether an agent or a goal has already undone `call`. The undoing call must have the
    /// payload `payload`, and must have completed after `completed`, the position at which `call`
    /// completed. Removes the undoing call from this list, because it can undo only one call.
    fn take(&mut self, call: &NestedCall, payload: &Element, completed: Position) -> bool {
        let at = self.calls.iter().position(|(own, request, position)| {
            let has_payload = request.as_ref().is_some_and(|request| has_same(request, payload));
            own.listener == call.listener && *position > completed && has_payload
        });
        at.map(|at| self.calls.remove(at)).is_some()
    }

    /// Whether a call whose payload was redacted may have undone `call`, which completed at the
    /// position `completed`.
    fn may_undo(&self, call: &NestedCall, completed: Position, rules: &UndoRules) -> bool {
        let Some(rule) = rules.rule(call) else { return false };
        self.calls.iter().any(|(own, request, position)| {
            let is_alike = own.listener == call.listener && own.request.name == rule.payload;
            is_alike && *position > completed && request.is_none()
        })
    }
}

/// Whether two payloads are equal. Ignores the order of attributes, white space at the ends of
/// texts, and text beside child elements.
fn has_same(first: &Element, other: &Element) -> bool {
    let attributes = |element: &Element| {
        let mut attributes = element.attributes.clone();
        attributes.sort();
        attributes
    };
    let is_same_child = |(first, other): (&Element, &Element)| has_same(first, other);
    let count = first.children().count();
    first.name == other.name
        && attributes(first) == attributes(other)
        && count == other.children().count()
        && first.children().zip(other.children()).all(is_same_child)
        && (count > 0 || first.text().trim() == other.text().trim())
}

fn left_call(call: &NestedCall, reason: &str) -> LeftCall {
    LeftCall {
        call: call.id,
        listener: call.listener.clone(),
        payload: call.request.name.local.to_string(),
        thread: call.thread.clone(),
        reason: reason.to_owned(),
    }
}

/// How the undo of a failed run treats a call beneath the run.
enum CallFate {
    /// The undo does nothing, because the call has no known effect, or because its effect is
    /// already undone.
    Nothing,
    Undo(Element, Position),
    Left(String),
}

/// Decides how an undo treats `call`. `earlier` is the call with which a workflow has undone
/// `call`, or has tried to undo it; `None` if there is no such call.
fn judge(call: &NestedCall, earlier: Option<&NestedCall>, rules: &UndoRules) -> CallFate {
    let left = |reason: &str| CallFate::Left(reason.to_owned());
    let rule = rules.rule(call);
    let has_effects = rules.has_effects(call);

    match &call.end {
        CallEnd::Completed { reply: Some(reply), .. } if is_failure(&reply.name.local) => {
            CallFate::Nothing
        }
        CallEnd::Completed { reply, position } => match (rule, earlier) {
            (Some(_), Some(earlier)) if is_done(&earlier.end) => CallFate::Nothing,
            (Some(_), Some(_)) => left(UNDO_FAILED),
            (Some(rule), None) => {
                let reply = reply.as_deref();
                match undo_payload(rule, &call.request, reply, &rules.schemas) {
                    Ok(payload) => CallFate::Undo(payload, *position),
                    Err(reason) => left(reason),
                }
            }
            (None, _) if has_effects => left("no-undo"),
            (None, _) => CallFate::Nothing,
        },
        CallEnd::Failed { code } if code == UNKNOWN_OUTCOME => left(code),
        CallEnd::Failed { code } if call.was_handed_over && has_effects => left(code),
        CallEnd::Open if call.was_handed_over && has_effects => left("open"),
        CallEnd::Failed { .. } | CallEnd::Open => CallFate::Nothing,
    }
}

fn is_done(end: &CallEnd) -> bool {
    match end {
        CallEnd::Completed { reply, .. } => {
            !reply.as_ref().is_some_and(|reply| is_failure(&reply.name.local))
        }
        CallEnd::Open | CallEnd::Failed { .. } => false,
    }
}

/// Builds the payload that undoes a call. If an expression of `rule` selects several nodes, the
/// payload has a child for each of them.
///
/// # Errors
///
/// Returns a reason code in two cases:
/// - An expression selects nothing, or a payload of the call cannot be read.
/// - An expression selects several nodes for a value that may occur only once.
fn undo_payload(
    rule: &UndoRule,
    request: &Message,
    reply: Option<&Message>,
    schemas: &Schemas,
) -> Result<Element, &'static str> {
    let view = undo_view(request, reply).ok_or(NOTHING_SELECTED)?;
    let name = &rule.payload;
    let parameters = schemas.describe(name).parameters;
    let takes_several = |field: &str| {
        let mut children = parameters.iter().filter(|parameter| !parameter.attribute);
        children.any(|child| child.name == field && child.repeated)
    };

    let mut payload = Element::new(QName::new(Some(&name.namespace), &name.local));
    for (field, expression) in &rule.with {
        let values = view.texts(expression).unwrap_or_default();
        if values.is_empty() {
            return Err(NOTHING_SELECTED);
        }
        if values.len() > 1 && !takes_several(field) {
            return Err(SEVERAL_SELECTED);
        }

        for value in values {
            payload = match field.strip_prefix('@') {
                Some(attribute) => payload.with_attribute(attribute, value),
                None => {
                    let child = Element::new(QName::new(Some(&name.namespace), field));
                    payload.with_child(child.with_text(value))
                }
            };
        }
    }

    Ok(fit_children(schemas, payload))
}

/// Builds the view from which the expressions of an undo rule select values. Returns `None` if a
/// payload cannot be read, for example because it was redacted.
///
/// The present rules for expressions apply, also to a run that began before core version 72. The
/// recorded calls of an undo are found by the labels of their threads, not by their payloads.
fn undo_view(request: &Message, reply: Option<&Message>) -> Option<RunView> {
    let read = |message: &Message| Element::read_document(message.payload.as_str()).map(Box::new);
    let mut entries = vec![ViewEntry::new("request", ViewValue::Payload(read(request)?))];
    if let Some(reply) = reply {
        entries.push(ViewEntry::new("reply", ViewValue::Payload(read(reply)?)));
    }
    RunView::new(&entries).ok()
}

/// The undo of a failed run, and its progress.
#[derive(Debug, Clone)]
pub struct RunUndo {
    pub goal: GoalId,
    pub failure: GoalFailure,
    phase: UndoPhase,
    left: Vec<LeftCall>,
}

#[derive(Debug, Clone)]
enum UndoPhase {
    /// The undo has not begun, because some threads of goals are still open.
    Settling,
    Undoing(Box<UndoQueue>),
    /// The run has requested a thread that sends a person the list of calls that were not undone.
    Reporting,
    /// The run has its result. `report` is the request for the thread that sends a person the list
    /// of calls that were not undone; `None` if no such thread was opened.
    Over {
        report: Option<MessageId>,
    },
}

#[derive(Debug, Clone, Default)]
struct UndoQueue {
    /// Calls to undo, the newest at the end. A call stays in this list until its undo has ended.
    pending: Vec<UndoTarget>,
    current: Option<LeftCall>,
    /// Thread of the current undo, and the message that requested the thread. `None` if no thread
    /// of an undo is open.
    thread: Option<(ThreadId, Option<MessageId>)>,
    /// Whether the core has refused a `wait` since the current undo was requested. A refused `wait`
    /// means that no thread is open. The run may have sent the first refused `wait` before it
    /// requested the undo. Therefore, only a second refusal shows that the undo has no open thread.
    was_idle: bool,
}

/// An action that an undo requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoStep {
    /// Open a thread with this label. In this thread, a call to this listener with this payload
    /// undoes another call. The core cancels the thread when the call of the workflow's run closes.
    Undo { label: String, listener: ListenerName, payload: Element },
    /// Send a person the list of calls that were not undone, as a question.
    Report { goal: GoalId, failure: GoalFailure, left: Vec<LeftCall> },
    /// The run has failed. `left` lists the calls that were not undone.
    Failed { goal: GoalId, failure: GoalFailure, left: Vec<LeftCall> },
}

impl RunUndo {
    /// Creates the undo of a failed run. The threads of this run may still be open.
    pub fn new(goal: GoalId, failure: GoalFailure) -> Self {
        Self { goal, failure, phase: UndoPhase::Settling, left: Vec::new() }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, UndoPhase::Over { .. })
    }

    pub fn is_settling(&self) -> bool {
        matches!(self.phase, UndoPhase::Settling)
    }

    /// Returns the thread of the current undo; `None` if no such thread is open.
    pub fn thread(&self) -> Option<&ThreadId> {
        match &self.phase {
            UndoPhase::Undoing(queue) => queue.thread.as_ref().map(|(thread, _)| thread),
            UndoPhase::Settling | UndoPhase::Reporting | UndoPhase::Over { .. } => None,
        }
    }

    /// Plans the undo, and returns its first step. Call this as soon as no thread of the run is
    /// open.
    pub fn begin(
        &mut self,
        calls: &[NestedCall],
        rules: &UndoRules,
        has_reader: bool,
    ) -> Option<UndoStep> {
        let (pending, left) = plan(calls, rules);
        self.left = left;
        let queue = UndoQueue { pending, ..UndoQueue::default() };
        self.phase = UndoPhase::Undoing(Box::new(queue));
        self.next(has_reader)
    }

    /// Applies a message that the core of the pump sent to the run. Returns the next action of the
    /// undo, or `None` if no action follows. Must be called after [`RunUndo::begin`]. `has_reader`
    /// states whether a person receives the list of calls that were not undone.
    pub fn take(&mut self, message: &Message, has_reader: bool) -> Option<UndoStep> {
        let element = Element::read_document(message.payload.as_str())?;
        let is_refusal = matches!(&*message.name.local, "huh" | "system-error");
        let opened = element.attribute("assigned_id").filter(|_| is_spawned(message));
        let opened = opened.and_then(|id| ThreadId::parse(id).ok());
        if let Some(thread) = opened {
            // Recorded threads count, even if the present config would plan another undo.
            if thread.label().starts_with(REPORT_LABEL) {
                let left = self.left.clone();
                return Some(self.over(left, message.cause));
            }
            self.opened(thread, message.cause);
            return None;
        }

        match &self.phase {
            UndoPhase::Settling => None,
            UndoPhase::Reporting if is_refusal && !is_about_wait(&element) => {
                let left = self.left.clone();
                Some(self.over(left, None))
            }
            UndoPhase::Reporting => None,
            // The core refused the list after its thread was opened.
            UndoPhase::Over { report: Some(report) }
                if is_refusal && message.cause == Some(*report) =>
            {
                let left = self.left.clone();
                Some(self.over(left, None))
            }
            UndoPhase::Over { .. } => None,
            UndoPhase::Undoing(_) if is_refusal => {
                let is_current = self.concerns_current(message, &element);
                if !is_current {
                    return None;
                }
                self.ended(false);
                self.next(has_reader)
            }
            UndoPhase::Undoing(_) if self.is_current(&element) => {
                let reply = element.children().next();
                let status = element.attribute("status").and_then(ThreadStatus::parse);
                let is_failed = reply.is_some_and(|reply| is_failure(reply.local_name()));
                self.ended(status == Some(ThreadStatus::Completed) && !is_failed);
                self.next(has_reader)
            }
            UndoPhase::Undoing(_) => None,
        }
    }

    /// Records that the thread of an undo was opened. The label of the thread names the call to
    /// undo.
    fn opened(&mut self, thread: ThreadId, request: Option<MessageId>) {
        let undone = undone_call(thread.label());
        let is_named = |call: &LeftCall| undone == Some(call.call);
        let phase = std::mem::replace(&mut self.phase, UndoPhase::Settling);
        let mut queue = match phase {
            UndoPhase::Undoing(queue) => queue,
            UndoPhase::Settling | UndoPhase::Reporting | UndoPhase::Over { .. } => Box::default(),
        };
        if !queue.current.as_ref().is_some_and(is_named) {
            let mut planned = queue.pending.iter().map(|target| &target.call);
            let named = planned.find(|call| is_named(call)).cloned();
            let listed = self.left.iter().find(|call| is_named(call)).cloned();
            queue.current = named.or(listed);
            self.left.retain(|call| !is_named(call));
        }
        queue.thread = Some((thread, request));
        self.phase = UndoPhase::Undoing(queue);
    }

    fn is_current(&self, element: &Element) -> bool {
        let thread = element.attribute("thread_id");
        self.thread().is_some_and(|current| thread == Some(current.as_str()))
    }

    /// Whether the refusal `message` ends the current undo. True in two cases:
    /// - The core refused to open the thread of the undo, or refused the call in this thread.
    /// - The core refused a `wait`, because no thread is open.
    ///
    /// Before the thread of the undo opens, the first refused `wait` is ignored, because the run
    /// may have sent this `wait` before the undo.
    fn concerns_current(&mut self, message: &Message, element: &Element) -> bool {
        let UndoPhase::Undoing(queue) = &mut self.phase else { return false };
        // A refused wait means that nothing is open, so the current undo is not open either. The
        // first such refusal may concern a wait from before the undo.
        if is_about_wait(element) {
            return queue.thread.is_some() || std::mem::replace(&mut queue.was_idle, true);
        }
        match &queue.thread {
            Some((_, request)) => message.cause.is_some() && message.cause == *request,
            None => message.cause.is_none() || element.attribute("about") == Some("spawn-thread"),
        }
    }

    /// Records that the current undo has ended. If `is_done` is false, adds the call that was not
    /// undone to the list of such calls.
    fn ended(&mut self, is_done: bool) {
        let UndoPhase::Undoing(queue) = &mut self.phase else { return };
        queue.thread = None;
        let Some(call) = queue.current.take() else { return };
        queue.pending.retain(|target| target.call.call != call.call);
        if !is_done {
            self.left.push(LeftCall { reason: UNDO_FAILED.to_owned(), ..call });
        }
    }

    fn next(&mut self, has_reader: bool) -> Option<UndoStep> {
        let UndoPhase::Undoing(queue) = &mut self.phase else { return None };
        if let Some(target) = queue.pending.last() {
            queue.current = Some(target.call.clone());
            queue.was_idle = false;
            let label = label_of(target.call.call);
            let listener = target.call.listener.clone();
            return Some(UndoStep::Undo { label, listener, payload: target.payload.clone() });
        }

        if has_reader && !self.left.is_empty() {
            self.phase = UndoPhase::Reporting;
            let goal = self.goal.clone();
            let failure = self.failure.clone();
            return Some(UndoStep::Report { goal, failure, left: self.left.clone() });
        }
        let left = self.left.clone();
        Some(self.over(left, None))
    }

    /// Ends the run as failed. `left` lists the calls that were not undone. `report` is the message
    /// that requested a thread in which a person gets this list; `None` if no such thread is open.
    fn over(&mut self, left: Vec<LeftCall>, report: Option<MessageId>) -> UndoStep {
        self.phase = UndoPhase::Over { report };
        UndoStep::Failed { goal: self.goal.clone(), failure: self.failure.clone(), left }
    }
}

fn is_spawned(message: &Message) -> bool {
    *message.name.local == *"thread-spawned"
}

fn is_about_wait(refusal: &Element) -> bool {
    refusal.attribute("about") == Some("wait")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::envelope::{MessageKind, Payload};
    use crate::system;

    fn id(number: u128) -> MessageId {
        MessageId(Uuid::from_u128(number))
    }

    fn core(local: &str, attributes: &str, inner: &str) -> Message {
        let namespace = system::NAMESPACE;
        let payload = format!("<{local} xmlns=\"{namespace}\" {attributes}>{inner}</{local}>");
        Message {
            id: id(9),
            kind: MessageKind::System,
            from: ListenerName::core(),
            to: ListenerName::parse("trip").unwrap(),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            seq: 9,
            cause: Some(id(5)),
            call: None,
            time: Time(0),
            name: system::name(local),
            payload: Payload::new(payload),
        }
    }

    fn undo() -> RunUndo {
        let goal = GoalId::parse("pay").unwrap();
        RunUndo::new(goal, GoalFailure::new("charge-failed", "no money"))
    }

    fn call() -> LeftCall {
        LeftCall {
            call: CallId(id(1)),
            listener: ListenerName::parse("hotel").unwrap(),
            payload: "book".to_owned(),
            thread: ThreadId::parse("sess-aaaaaaaa.first").unwrap(),
            reason: "no-undo".to_owned(),
        }
    }

    fn is_failed(step: Option<&UndoStep>) -> bool {
        matches!(step, Some(UndoStep::Failed { left, .. }) if left.is_empty())
    }

    #[test]
    fn an_undo_on_record_is_followed_where_the_config_plans_none_any_more() {
        let mut undo = undo();
        let step = undo.begin(&[], &UndoRules::default(), false);
        assert!(is_failed(step.as_ref()), "{step:?}");

        let thread = format!("sess-aaaaaaaa.{}", label_of(CallId(id(1))));
        let spawned = core("thread-spawned", &format!("assigned_id=\"{thread}\""), "");
        assert_eq!(undo.take(&spawned, false), None);
        assert!(!undo.is_over(), "its thread is open");

        let attributes = format!("thread_id=\"{thread}\" status=\"completed\"");
        let step = undo.take(&core("thread-result", &attributes, "<cancelled/>"), false);
        assert!(is_failed(step.as_ref()), "{step:?}");
        assert!(undo.is_over());
    }

    #[test]
    fn a_list_that_was_sent_ends_the_run_whatever_the_config_plans() {
        let mut undo = undo();
        undo.phase = UndoPhase::Undoing(Box::default());
        let report = core("thread-spawned", "assigned_id=\"sess-aaaaaaaa.undo-report\"", "");
        assert!(is_failed(undo.take(&report, true).as_ref()));

        let call = call();
        undo.left.push(call.clone());
        let refused = core("huh", "code=\"busy\"", "");
        let Some(UndoStep::Failed { left, .. }) = undo.take(&refused, true) else {
            panic!("the list reached no person, and stands nowhere")
        };
        assert_eq!(left, [call]);
    }

    #[test]
    fn an_undo_without_a_thread_ends_with_the_second_refused_wait() {
        let mut undo = undo();
        let call = call();
        let queue = UndoQueue { current: Some(call.clone()), ..UndoQueue::default() };
        undo.phase = UndoPhase::Undoing(Box::new(queue));
        let refused = core("system-error", "code=\"nothing-to-wait-for\" about=\"wait\"", "");
        assert_eq!(undo.take(&refused, false), None, "it is of a wait from before");
        let Some(UndoStep::Failed { left, .. }) = undo.take(&refused, false) else {
            panic!("the run waits for ever")
        };
        assert_eq!(left, [LeftCall { reason: "undo-failed".to_owned(), ..call }]);
    }

    /// A completed call to `hotel`. The number is that of its request, and its end is at the same
    /// position.
    fn completed(number: u128, thread: &str, payload: &str) -> NestedCall {
        let message = core("", "", "");
        let local = if payload.contains("book") { "book" } else { "cancel" };
        let request = Message {
            id: id(number),
            name: PayloadName::new("urn:b", local),
            payload: Payload::new(payload),
            ..message
        };
        NestedCall {
            id: CallId(request.id),
            is_by_workflow: false,
            listener: ListenerName::parse("hotel").unwrap(),
            thread: ThreadId::parse(thread).unwrap(),
            request: Arc::new(request),
            opened: Position(0),
            was_handed_over: true,
            is_held: false,
            end: CallEnd::Completed {
                reply: None,
                position: Position(u64::try_from(number).unwrap()),
            },
        }
    }

    fn rules() -> UndoRules {
        let hotel = ListenerName::parse("hotel").unwrap();
        let rule = UndoRule {
            request: PayloadName::new("urn:b", "book"),
            payload: PayloadName::new("urn:b", "cancel"),
            with: vec![("number".to_owned(), "request/number".to_owned())],
        };
        UndoRules {
            undoing: HashSet::from([(hotel.clone(), rule.payload.clone())]),
            rules: HashMap::from([((hotel, rule.request.clone()), rule)]),
            ..UndoRules::default()
        }
    }

    const BOOK: &str = "<book xmlns=\"urn:b\"><number>1</number></book>";
    const OTHER: &str = "<book xmlns=\"urn:b\"><number>2</number></book>";
    const UNDONE: &str = "<cancel xmlns=\"urn:b\"><number>1</number></cancel>";

    /// Numbers of the calls that are undone, and of those that are left with their reasons.
    fn planned(calls: &[NestedCall]) -> (Vec<u128>, Vec<(u128, String)>) {
        let (targets, left) = plan(calls, &rules());
        let number = |call: &LeftCall| call.call.0.0.as_u128();
        let targets = targets.iter().map(|target| number(&target.call)).collect();
        (targets, left.iter().map(|call| (number(call), call.reason.clone())).collect())
    }

    #[test]
    fn an_undo_of_an_agent_counts_whatever_label_the_agent_gives_its_thread() {
        let booked = completed(1, "sess-aaaaaaaa.trip", BOOK);
        let undone = completed(2, "sess-aaaaaaaa.trip.undo_hotel", UNDONE);
        assert_eq!(planned(&[booked.clone(), undone.clone()]), (vec![], vec![]));

        let by_workflow = NestedCall { is_by_workflow: true, ..undone };
        assert_eq!(planned(&[booked, by_workflow]), (vec![1], vec![]));
    }

    #[test]
    fn an_undo_in_a_thread_with_a_number_counts() {
        let booked = completed(1, "sess-aaaaaaaa.trip", BOOK);
        let label = label_of(booked.id);
        let undo = |number: u128, suffix: &str| NestedCall {
            is_by_workflow: true,
            ..completed(number, &format!("sess-aaaaaaaa.{label}{suffix}"), UNDONE)
        };
        let failed = |call: NestedCall| NestedCall {
            end: CallEnd::Failed { code: "busy".to_owned() },
            ..call
        };
        assert_eq!(planned(&[booked.clone(), undo(2, "-1")]), (vec![], vec![]));

        let calls = [booked.clone(), undo(2, ""), failed(undo(3, "-1"))];
        assert_eq!(planned(&calls), (vec![], vec![]), "the first attempt has undone it");
        let calls = [booked.clone(), failed(undo(2, "")), undo(3, "-12")];
        assert_eq!(planned(&calls), (vec![], vec![]), "the last attempt has undone it");
        let calls = [booked, failed(undo(2, "")), failed(undo(3, "-1"))];
        assert_eq!(planned(&calls), (vec![], vec![(1, "undo-failed".to_owned())]));
    }

    #[test]
    fn an_undo_that_has_not_ended_is_listed_as_open() {
        let booked = completed(1, "sess-aaaaaaaa.trip", BOOK);
        let label = label_of(booked.id);
        let undo = |end: CallEnd| NestedCall {
            is_by_workflow: true,
            end,
            ..completed(2, &format!("sess-aaaaaaaa.{label}"), UNDONE)
        };
        let busy = CallEnd::Failed { code: "busy".to_owned() };
        for (end, reason) in [(CallEnd::Open, "undo-open"), (busy, "undo-failed")] {
            let mut left = [left_call(&booked, UNDO_FAILED)];
            mark_open_undos(&mut left, &[booked.clone(), undo(end)]);
            assert_eq!(left[0].reason, reason);
        }
    }

    #[test]
    fn the_label_of_an_undo_names_the_undone_call_with_or_without_a_number() {
        let call = CallId(id(7));
        let label = label_of(call);
        for undo in [label.clone(), format!("{label}-1"), format!("{label}-12")] {
            assert_eq!(undone_call(&undo), Some(call), "{undo}");
        }
        let other = [format!("{label}-"), format!("{label}1"), format!("{label}-a")];
        for other in other.iter().map(String::as_str).chain(["undo_hotel", "draft", "undo-report"])
        {
            assert_eq!(undone_call(other), None, "{other}");
        }
    }

    #[test]
    fn a_call_that_a_redacted_call_may_have_undone_is_left_to_a_person() {
        let booked = completed(1, "sess-aaaaaaaa.trip", BOOK);
        let other = completed(2, "sess-aaaaaaaa.trip", OTHER);
        let mut redacted = completed(3, "sess-aaaaaaaa.trip", UNDONE);
        let mut request = (*redacted.request).clone();
        assert!(request.payload.restore(&"\0".repeat(request.payload.len())));
        redacted.request = Arc::new(request);
        let later = completed(4, "sess-aaaaaaaa.trip", BOOK);

        let failed = |number: u128| (number, "undo-failed".to_owned());
        let calls = [booked, other, redacted, later];
        assert_eq!(planned(&calls), (vec![4], vec![failed(1), failed(2)]));

        let undone = completed(5, "sess-aaaaaaaa.trip", UNDONE);
        let calls = [&calls[..], &[undone]].concat();
        assert_eq!(planned(&calls), (vec![4], vec![failed(2)]), "the first is undone for certain");
    }

    const CANCEL: &str = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                          targetNamespace=\"urn:b\" elementFormDefault=\"qualified\">\
                          <xs:element name=\"cancel\"><xs:complexType><xs:sequence>\
                          <xs:element name=\"number\" type=\"xs:string\" minOccurs=\"0\" \
                          maxOccurs=\"9\"/>\
                          <xs:element name=\"remark\" type=\"xs:string\" minOccurs=\"0\"/>\
                          </xs:sequence></xs:complexType></xs:element></xs:schema>";

    #[test]
    fn an_undo_has_a_value_for_each_selected_node_where_its_schema_takes_several() {
        let mut schemas = Schemas::default();
        schemas.add_builtin("booking", CANCEL).unwrap();
        let booked = "<booked xmlns=\"urn:b\"><number>r1</number><number>r2</number></booked>";
        let reply = Message { payload: Payload::new(booked), ..core("booked", "", "") };
        let undone = |field: &str, expression: &str| {
            let rule = UndoRule {
                request: PayloadName::new("urn:b", "book"),
                payload: PayloadName::new("urn:b", "cancel"),
                with: vec![(field.to_owned(), expression.to_owned())],
            };
            let payload = undo_payload(&rule, &reply, Some(&reply), &schemas);
            payload.map(|payload| payload.to_xml())
        };

        let both = "<cancel xmlns=\"urn:b\"><number>r1</number><number>r2</number></cancel>";
        assert_eq!(undone("number", "reply/number").as_deref(), Ok(both));
        assert_eq!(undone("remark", "reply/number"), Err(SEVERAL_SELECTED));
        assert_eq!(undone("@number", "reply/number"), Err(SEVERAL_SELECTED));
        assert_eq!(undone("number", "reply/remark"), Err(NOTHING_SELECTED));
    }

    #[test]
    fn two_payloads_are_the_same_whatever_their_prefixes() {
        let read = |text: &str| Element::read(text).unwrap();
        let one = read("<a xmlns=\"urn:x\" p=\"1\"><n>2 </n></a>");
        let same = read("<x:a xmlns:x=\"urn:x\" p=\"1\">\n<x:n>2</x:n></x:a>");
        assert!(has_same(&one, &same));
        for other in ["<a xmlns=\"urn:x\"><n>2</n></a>", "<a xmlns=\"urn:x\" p=\"1\"><n>3</n></a>"]
        {
            assert!(!has_same(&one, &read(other)), "{other}");
        }
    }
}

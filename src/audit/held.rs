//! Held calls, which wait for a person: for an approval, or for the answer to a question.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::index::{self, IndexReader, WaitingMessage, WaitingTree};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::system;
use crate::thread::{Fact, Hold, PauseTarget, Record};
use crate::xml::element::Element;
use crate::xml::scan::attributes;

/// The preview of a held call, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallPreviewView {
    /// The preview was requested, and can still arrive within its time limit.
    #[serde(rename = "requested")]
    Requested,
    /// The preview that the listener of the held call has returned. A preview describes the effects
    /// that the call would have.
    #[serde(rename = "recorded")]
    Recorded {
        /// SHA-256 of the preview's payload.
        #[serde(rename = "sha256")]
        sha256: Digest,
        /// Text of the preview. `None` if it was redacted.
        #[serde(rename = "text")]
        text: Option<String>,
    },
    /// The preview was requested, but did not arrive.
    #[serde(rename = "missing")]
    Missing {
        #[serde(rename = "reason")]
        reason: String,
    },
}

impl CallPreviewView {
    /// Creates the view of a preview from the note that recorded it.
    pub fn recorded(note: &Message) -> Self {
        let payload = &note.payload;
        let text = || Element::read(payload.as_str()).map(|preview| preview.text());
        let text = (!payload.is_redacted()).then(text).flatten();
        Self::Recorded { sha256: payload.digest, text }
    }

    /// Returns the SHA-256 of the recorded preview; `None` if no preview was recorded.
    pub fn sha256(&self) -> Option<Digest> {
        match self {
            Self::Recorded { sha256, .. } => Some(*sha256),
            Self::Requested | Self::Missing { .. } => None,
        }
    }
}

/// A call that waits for a person, and was therefore not delivered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCall {
    #[serde(rename = "message")]
    pub message: MessageId,
    #[serde(rename = "hold")]
    pub hold: Hold,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "to")]
    pub to: ListenerName,
    #[serde(rename = "name")]
    pub name: PayloadName,
    /// SHA-256 of the payload.
    #[serde(rename = "sha256")]
    pub sha256: Digest,
    /// The payload. `None` if it was redacted.
    #[serde(rename = "payload")]
    pub payload: Option<String>,
    /// Why the call needs an approval; `None` if it needs none or if no reason was recorded.
    #[serde(rename = "why", default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Beginning of the wait, in RFC 3339, so that the texts sort by time.
    #[serde(rename = "since")]
    pub since: String,
    /// Deadline at which the wait ends without a decision; `None` if there is no deadline. Also
    /// `None` while a pause covers the call, because its waiting time does not run during the
    /// pause. When a pause ends, the pump moves the deadline.
    ///
    /// If no pump answers, the value comes from the record. It is the deadline from the beginning
    /// of the wait, and does not account for pauses that have ended. It includes the time limit of
    /// the call's own thread, but not those of the threads above.
    #[serde(rename = "until", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The preview of the call; `None` if the listener of the call declares no previews.
    #[serde(rename = "preview", default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<CallPreviewView>,
}

impl HeldCall {
    /// Sets the preview of the call.
    #[must_use]
    pub fn with_preview(self, preview: Option<CallPreviewView>) -> Self {
        Self { preview, ..self }
    }

    /// Returns the SHA-256 of the recorded preview. An approval must name this digest. Returns
    /// `None` if no preview was recorded.
    pub fn preview_sha256(&self) -> Option<Digest> {
        self.preview.as_ref().and_then(CallPreviewView::sha256)
    }

    /// Whether a person can only refuse the call, because its payload or its preview was redacted.
    pub fn can_only_be_refused(&self) -> bool {
        let is_preview_redacted =
            matches!(&self.preview, Some(CallPreviewView::Recorded { text: None, .. }));
        self.payload.is_none() || is_preview_redacted
    }

    /// Creates the view of a call that waits since `since`, and at most until `until`.
    pub fn new(
        request: &Message,
        hold: Hold,
        (since, until): (Time, Option<Time>),
        why: Option<String>,
    ) -> Self {
        let payload = &request.payload;
        Self {
            message: request.id,
            hold,
            sha256: payload.digest,
            payload: (!payload.is_redacted()).then(|| payload.as_str().to_owned()),
            why,
            since: since.to_string(),
            until: until.map(|until| until.to_string()),
            thread: request.thread.clone(),
            from: request.from.clone(),
            to: request.to.clone(),
            name: request.name.clone(),
            preview: None,
        }
    }

    /// Sorts calls by the beginning of their wait, oldest first.
    pub fn sort(calls: &mut [Self]) {
        calls.sort_by(|one, other| (&one.since, one.message).cmp(&(&other.since, other.message)));
    }
}

/// Returns all held calls, oldest first. Reads the whole journal.
pub fn held(reader: &JournalReader) -> Result<Vec<HeldCall>, Error> {
    let mut open = OpenCalls::default();
    let mut from = Position(1);
    let last = reader.last()?;
    while from <= last {
        let to = Position(last.0.min(from.0 + limits::SCAN_RECORDS - 1));
        for sealed in reader.records(from, to)? {
            open.take(&sealed.record);
        }
        from = Position(to.0 + 1);
    }

    Ok(open.held())
}

/// The oldest held calls that wait for one kind of decision, and the number of all calls that wait
/// for a decision of this kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPage {
    /// The held calls, oldest first.
    pub calls: Vec<HeldCall>,
    /// Number of all calls that wait for this kind of decision. `calls` may contain only some of
    /// them.
    pub all: u64,
}

impl HeldPage {
    /// Returns a page with at most `most` calls: the oldest calls in `calls` that wait for a
    /// decision of the kind `hold`.
    pub fn of(mut calls: Vec<HeldCall>, hold: Hold, most: usize) -> Self {
        calls.retain(|call| call.hold == hold);
        let all = calls.len() as u64;
        HeldCall::sort(&mut calls);
        calls.truncate(most);
        Self { calls, all }
    }

    /// Merges two pages that have no call in common. Keeps at most `most` calls, the oldest ones.
    #[must_use]
    pub fn merged(mut self, other: Self, most: usize) -> Self {
        self.calls.extend(other.calls);
        HeldCall::sort(&mut self.calls);
        self.calls.truncate(most);
        Self { all: self.all + other.all, ..self }
    }
}

/// Returns the held calls that wait for a decision of the kind `hold`: all of them, or the `most`
/// oldest ones. Reads only the trees that contain such calls. Reads each of these trees from its
/// first waiting call on.
pub fn held_in(index: &IndexReader, hold: Hold, most: usize) -> Result<HeldPage, index::Error> {
    let (calls, all) = index.waiting_calls(hold, most)?;
    let placed = index.read_in_shares(&calls, limits::SHARE_PATIENCE, IndexReader::trees_of)?;
    // These trees may have younger calls that wait.
    let calls = held_in_all(index, placed.into_iter().flatten())?;
    let HeldPage { calls, .. } = HeldPage::of(calls, hold, most);
    // Calls that have ended since the index was read are not on the page.
    let all = if calls.len() < most { calls.len() as u64 } else { all };
    Ok(HeldPage { calls, all })
}

/// Returns the held calls among `calls`, oldest first. Reads only the trees of these calls.
pub fn held_of(
    index: &IndexReader,
    calls: &[WaitingMessage],
) -> Result<Vec<HeldCall>, index::Error> {
    let tree =
        |call: &WaitingMessage| WaitingTree { root: call.root.clone(), first: call.position };
    let mut held = held_in_all(index, calls.iter().map(tree))?;
    let wanted: HashSet<MessageId> = calls.iter().map(|call| call.message).collect();
    held.retain(|call| wanted.contains(&call.message));
    Ok(held)
}

/// Number of trees that are read in one read transaction of the journal.
const TREES_PER_VIEW: usize = 256;

/// Returns the held calls of the trees in `found`, oldest first. Each entry of `found` names a tree
/// and the position at which the reading begins. If several entries name the same tree, reads the
/// tree once, from the lowest of these positions.
fn held_in_all(
    index: &IndexReader,
    found: impl Iterator<Item = WaitingTree>,
) -> Result<Vec<HeldCall>, index::Error> {
    let mut trees: BTreeMap<ThreadId, Position> = BTreeMap::new();
    for WaitingTree { root, first } in found {
        let lowest = trees.entry(root).or_insert(first);
        *lowest = first.min(*lowest);
    }
    let trees: Vec<_> =
        trees.into_iter().map(|(root, first)| WaitingTree { root, first }).collect();

    let read = |index: &IndexReader, trees: &[_]| held_in_trees(index.journal(), trees);
    let shares = index.read_in_shares(&trees, limits::SHARE_PATIENCE, read)?;
    let mut held: Vec<_> = shares.into_iter().flatten().collect();
    let pauses = index.pauses()?;
    stop_paused_deadlines(&mut held, || pauses.iter().map(|pause| &pause.target));
    HeldCall::sort(&mut held);
    Ok(held)
}

/// Returns the held calls of the given trees.
fn held_in_trees(
    journal: &JournalReader,
    trees: &[WaitingTree],
) -> Result<Vec<HeldCall>, index::Error> {
    let mut open = OpenCalls::default();
    for trees in trees.chunks(TREES_PER_VIEW) {
        // Each view costs locks, but a long one holds back the write-ahead log.
        let _view = journal.view()?;
        for WaitingTree { root, first } in trees {
            let Some(head) = journal.head(root)? else { continue };
            let mut records = Vec::new();
            journal.walk_back(head, |walked| {
                let is_first = walked.record().position <= *first;
                records.push(walked.with_payloads()?);
                Ok(if is_first { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            records.iter().rev().for_each(|sealed| open.take(&sealed.record));
        }
    }
    Ok(open.held())
}

/// Removes the deadline of each call that a pause covers, because the time until a deadline does
/// not run during a pause.
fn stop_paused_deadlines<'p, P>(held: &mut [HeldCall], pauses: impl Fn() -> P)
where
    P: Iterator<Item = &'p PauseTarget>,
{
    for call in held {
        if pauses().any(|target| target.covers(&call.thread, &call.to)) {
            call.until = None;
        }
    }
}

/// The calls that have no result yet, up to the last record that was read.
#[derive(Default)]
struct OpenCalls {
    calls: BTreeMap<CallId, WaitingCall>,
    /// Targets of the pauses that are in force according to the records that were read.
    pauses: Vec<PauseTarget>,
}

struct WaitingCall {
    request: Arc<Message>,
    hold: Option<RecordedHold>,
    why: Option<String>,
    preview: Option<CallPreviewView>,
    /// Time limit of the call's thread. `None` if the thread has none, or was opened before the
    /// call, in another record.
    limit: Option<Time>,
}

/// The hold of a call that waits for a person, as its record has it.
#[derive(Clone, Copy)]
struct RecordedHold {
    hold: Hold,
    since: Time,
    until: Option<Time>,
}

impl OpenCalls {
    /// Returns the calls that wait for a person.
    fn held(self) -> Vec<HeldCall> {
        let mut held: Vec<_> = self.calls.into_values().filter_map(WaitingCall::held).collect();
        stop_paused_deadlines(&mut held, || self.pauses.iter());
        HeldCall::sort(&mut held);
        held
    }

    fn take(&mut self, record: &Record) {
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. } => {
                    let request = Arc::clone(message);
                    let limit = limit_in(record, &message.thread);
                    let waiting =
                        WaitingCall { request, hold: None, why: None, preview: None, limit };
                    self.calls.insert(CallId(message.id), waiting);
                }
                Fact::Accepted { message, .. } => {
                    self.why(message);
                    self.preview(message);
                }
                Fact::PreviewRequested { call, .. } => {
                    self.set_preview(*call, CallPreviewView::Requested);
                }
                Fact::PreviewMissing { call, reason } => {
                    let reason = reason.clone();
                    self.set_preview(*call, CallPreviewView::Missing { reason });
                }
                Fact::Held { call, hold, until } => {
                    if let Some(waiting) = self.calls.get_mut(call) {
                        let since = record.time;
                        waiting.hold = Some(RecordedHold { hold: *hold, since, until: *until });
                        waiting.preview = None;
                    }
                }
                Fact::Released { call, .. } => {
                    if let Some(waiting) = self.calls.get_mut(call) {
                        waiting.hold = None;
                    }
                }
                Fact::CallClosed { call, .. } => {
                    self.calls.remove(call);
                }
                Fact::Paused { target, .. } => self.pauses.push(target.clone()),
                Fact::Resumed { target } => self.pauses.retain(|paused| paused != target),
                _ => {}
            }
        }
    }

    fn preview(&mut self, message: &Message) {
        let is_note = message.kind == MessageKind::Note;
        if let Some(call) = message.call
            && is_note
            && message.name == system::name(system::PREVIEW)
        {
            self.set_preview(call, CallPreviewView::recorded(message));
        }
    }

    fn set_preview(&mut self, call: CallId, preview: CallPreviewView) {
        if let Some(waiting) = self.calls.get_mut(&call) {
            waiting.preview = Some(preview);
        }
    }

    /// If `message` is the core's request for an approval, keeps the reason why the held call needs
    /// this approval. Otherwise, does nothing.
    fn why(&mut self, message: &Message) {
        if !message.from.is_core() || message.name != system::name("approval-requested") {
            return;
        }

        let hold_attributes = attributes(message.payload.as_str());
        let get = |name: &str| hold_attributes.iter().find(|(called, _)| *called == name);
        let Some((_, of)) = get("message_id") else { return };
        let waiting = of.parse().ok().and_then(|id| self.calls.get_mut(&CallId(id)));
        if let (Some(waiting), Some((_, why))) = (waiting, get("why")) {
            waiting.why = Some(why.to_string());
        }
    }
}

/// Returns the time limit of `thread` if `record` opens this thread. Returns `None` if `record`
/// does not open the thread, or if the thread has no time limit.
fn limit_in(record: &Record, thread: &ThreadId) -> Option<Time> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::ThreadOpened { thread: opened, allotment, .. } if opened == thread => {
            allotment.as_ref()?.until
        }
        _ => None,
    })
}

impl WaitingCall {
    fn held(self) -> Option<HeldCall> {
        let Self { request, hold, why, preview, limit } = self;
        let RecordedHold { hold, since, until } = hold?;
        let until = [until, limit].into_iter().flatten().min();
        Some(HeldCall::new(&request, hold, (since, until), why).with_preview(preview))
    }
}

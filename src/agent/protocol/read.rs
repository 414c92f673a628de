//! Reading a model's text: which payloads it holds, which notes, and what is wrong with it.

use std::sync::Arc;

use crate::envelope::Broken;
use crate::ids::PayloadName;
use crate::model::StopReason;
use crate::schema::Schemas;
use crate::system::{self, NOTES};
use crate::xml::element::Element;
use crate::xml::extract::{Code, Extraction, Extractor, Grammar, Item};
use crate::xml::findings::Finding;
use crate::xml::shape::QName;

use super::vocabulary::Lexicon;
use super::{feedback, grammar};

/// An action of a turn, ready for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub name: PayloadName,
    pub payload: Vec<u8>,
}

/// What came of a turn's text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Reasoning, checklists and progress, in order.
    pub notes: Vec<Vec<u8>>,
    /// Complete actions, and complete payloads in a namespace the agent does not know, in order.
    pub actions: Vec<Action>,
    pub broken: Vec<Broken>,
    /// Everything found, for the record.
    pub findings: Vec<Finding>,
    /// The part of it the agent is told; what concerns a broken action is told with that.
    pub told: Vec<Finding>,
}

/// Reads the turns of one agent.
#[derive(Debug, Clone)]
pub struct Reader {
    grammar: Arc<Grammar>,
    tools: Vec<String>,
    finals: Vec<String>,
}

impl Reader {
    pub fn new(lexicon: &Lexicon, schemas: &Schemas) -> Self {
        let local = |word: &super::Word| word.name.local.to_string();
        Self {
            grammar: Arc::new(grammar::of(lexicon, schemas)),
            tools: lexicon.tools().map(local).collect(),
            finals: lexicon.finals().map(local).collect(),
        }
    }

    pub fn start(&self) -> Started<'_> {
        Started { reader: self, extractor: Extractor::new(Arc::clone(&self.grammar)) }
    }
}

/// A turn that is being read.
pub struct Started<'r> {
    reader: &'r Reader,
    extractor: Extractor,
}

impl Started<'_> {
    pub fn push(&mut self, chunk: &str) {
        self.extractor.push(chunk.as_bytes());
    }

    /// `raw` is everything that was pushed.
    pub fn finish(self, raw: &str, stop: StopReason) -> Reading {
        let extraction = self.extractor.finish();
        let mut sorted = Sorted::default();
        for item in &extraction.items {
            sorted.take(item);
        }
        let mut reading = sorted.reading;
        for broken in &mut reading.broken {
            // Notes are handed over first, so that is where counting starts.
            broken.index += reading.notes.len();
        }
        let idle = reading.actions.is_empty() && reading.broken.is_empty();
        if stop == StopReason::Length && reading.actions.is_empty() {
            reading.told.push(feedback::truncated(raw));
        }
        if idle && !sorted.noted && (sorted.spoke || reading.notes.is_empty()) {
            let (tools, finals) = (&self.reader.tools, &self.reader.finals);
            let unknown = &extraction.unknown_roots;
            reading.told.push(feedback::no_action(raw, tools, finals, unknown));
        }
        reading.findings = reading.told.clone();
        reading.findings.extend(everything(&extraction));
        reading.told.extend(extraction.errors.iter().map(named));
        let explains = |notice: &&Finding| idle || notice.code == Code::NearMissTag.as_str();
        reading.told.extend(extraction.notices.iter().filter(explains).map(named));
        reading
    }
}

/// Every finding of a turn's text, those of broken actions first.
fn everything(extraction: &Extraction) -> impl Iterator<Item = Finding> {
    extraction.defects().chain(&extraction.notices).map(named)
}

/// A finding under a code as records and feedback spell them.
fn named(finding: &Finding) -> Finding {
    Finding { code: finding.code.replace('_', "-"), ..finding.clone() }
}

/// The items of a turn, by what becomes of them.
#[derive(Default)]
struct Sorted {
    reading: Reading,
    /// Actions and broken actions so far.
    index: usize,
    /// There is text beside payloads and reasoning.
    spoke: bool,
    /// A note was written on purpose.
    noted: bool,
}

impl Sorted {
    fn take(&mut self, item: &Item) {
        match item {
            Item::Text(text) => self.spoke |= !text.trim().is_empty(),
            Item::Reasoning { text, .. } if text.trim().is_empty() => {}
            Item::Reasoning { text, .. } => {
                let name = QName::new(Some(system::NAMESPACE), "thinking");
                let thinking = Element::new(name).text(text.as_str()).to_xml();
                self.reading.notes.push(thinking.into_bytes());
            }
            Item::Action(action) => {
                let (name, payload) = (payload_name(action.name()), action.payload().into_bytes());
                if NOTES.iter().any(|note| name == system::name(note)) {
                    self.noted = true;
                    self.reading.notes.push(payload);
                } else {
                    self.reading.actions.push(Action { name, payload });
                    self.index += 1;
                }
            }
            Item::Unknown(unknown) => {
                let payload = unknown.attempt.clone().into_bytes();
                self.reading.actions.push(Action { name: payload_name(&unknown.name), payload });
                self.index += 1;
            }
            Item::Broken(broken) => {
                self.reading.broken.push(Broken {
                    index: self.index,
                    attempt: broken.attempt.clone(),
                    finding: named(&broken.finding),
                });
                self.index += 1;
            }
        }
    }
}

fn payload_name(name: &QName) -> PayloadName {
    PayloadName::new(name.namespace.as_deref().unwrap_or_default(), &name.local)
}

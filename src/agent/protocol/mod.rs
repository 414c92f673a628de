//! The protocols between an agent and its model: `xml`, `native`, `xml_final`. Each protocol has
//! its parser and its feedback in one module, so that they stay consistent. The texts of prompts
//! are in `system_prompt`. All protocols produce the same payloads, notes and refusals.

pub mod feedback;
mod finals;
mod grammar;
mod leaked_call;
mod locate;
pub mod native;
pub mod notice;
pub mod parse_turn;
pub mod render;
mod text_answer;
mod turn_excess;
mod vocabulary;
mod xml;
pub mod xml_final;

pub use finals::{AgentFinals, in_format, takes_report};
pub use parse_turn::{ParsedToolCall, ParsedTurn, TurnAction};
pub use vocabulary::{AgentVocabulary, AnsweringPeer, VocabularyEntry};

use std::sync::Arc;

use crate::agent::system_prompt::{PromptInput, native_prompt_sections, prompt_sections};
use crate::agent::{ActionTransport, FinalMode, RendererVersion};
use crate::envelope::{BrokenPayload, RefusalRule, WrittenPayload};
use crate::ids::{Digest, PayloadName};
use crate::model::{ModelTool, StopReason, StreamEnd};
use crate::schema::Schemas;
use crate::xml::extract::{ActionGrammar, ExtractedItem, Extraction, Extractor, near_miss};
use crate::xml::findings::{Finding, TextLocation};
use feedback::AvailableActions;
use native::NativeTools;
use parse_turn::ParsedItems;
use xml_final::TurnSlots;

/// Text about a native call that the server left in the text of an answer.
const LEFT_IN_TEXT: &str =
    "; the server left it in the text, so it may lack a tool parser for this model";

/// The protocol that one agent uses with its model.
#[derive(Debug)]
pub struct AgentProtocol {
    prompt_input: PromptInput,
    words: grammar::GrammarWords,
    /// Grammar for turns without slots. A slot is an element into which a model writes a report.
    grammar: Arc<ActionGrammar>,
    tools: NativeTools,
    choices: AvailableActions,
    schemas: Schemas,
}

impl AgentProtocol {
    pub fn new(mut prompt: PromptInput, schemas: &Schemas) -> Self {
        prompt.vocabulary = prompt.vocabulary.in_version(prompt.version, schemas);
        let words = grammar::of(&prompt.vocabulary, schemas);
        let transport = prompt.transport;
        let with_finals = transport == ActionTransport::Native;

        let none = AgentVocabulary::default();
        let offered = if transport.is_native() { &prompt.vocabulary } else { &none };
        let tools = NativeTools::new(offered, schemas, &prompt.finals, with_finals, prompt.version);

        let local = |word: &VocabularyEntry| word.name.local.to_string();
        let choices = match transport {
            ActionTransport::Xml => AvailableActions {
                tools: prompt.vocabulary.tools().map(local).collect(),
                finals: prompt.vocabulary.finals().map(local).collect(),
                by: prompt.finals.by,
            },
            _ => AvailableActions {
                tools: tools.names(),
                finals: tools.finals(),
                by: prompt.finals.by,
            },
        };

        let grammar = Arc::new(words.grammar());
        Self { prompt_input: prompt, words, grammar, tools, choices, schemas: schemas.clone() }
    }

    pub fn transport(&self) -> ActionTransport {
        self.prompt_input.transport
    }

    pub fn prompt_input(&self) -> &PromptInput {
        &self.prompt_input
    }

    /// Returns the native tools to offer. In the last turn of a call, these are only the tools that
    /// end the call.
    pub fn tools(&self, last: bool) -> Vec<ModelTool> {
        if last { self.tools.ending() } else { self.tools.tools() }
    }

    /// Returns the prompt section that describes the tools.
    pub fn tool_calling(&self) -> String {
        match self.prompt_input.transport {
            ActionTransport::Xml => prompt_sections::tool_calling(&self.prompt_input),
            _ => {
                native_prompt_sections::tool_calling(&self.prompt_input, &self.tools, &self.schemas)
            }
        }
    }

    /// Returns the prompt section that describes the form of answers.
    pub fn response_protocol(&self) -> String {
        match self.prompt_input.transport {
            ActionTransport::Xml => prompt_sections::response_protocol(&self.prompt_input),
            _ => native_prompt_sections::response_protocol(&self.prompt_input, &self.tools),
        }
    }

    /// Returns the notice of a turn. `turn` states how far the agent's call has got. Only the
    /// prompt of this turn contains the notice; later prompts do not.
    pub fn notice(&self, turn: &notice::TurnProgress, slots: &TurnSlots) -> String {
        notice::write(&self.prompt_input, &self.tools, turn, slots)
    }

    /// Makes the parser of a new turn.
    pub fn start(&self, slots: &TurnSlots) -> TurnReader<'_> {
        let grammar = match self.prompt_input.transport {
            ActionTransport::XmlFinal => Arc::new(self.words.with_slots(&slots.names())),
            _ => Arc::clone(&self.grammar),
        };
        let extractor = Extractor::new(Arc::clone(&grammar));
        TurnReader { protocol: self, grammar, slots: slots.clone(), extractor }
    }
}

/// Parser of one turn, which takes the text of the turn while it streams.
pub struct TurnReader<'p> {
    protocol: &'p AgentProtocol,
    grammar: Arc<ActionGrammar>,
    slots: TurnSlots,
    extractor: Extractor,
}

impl TurnReader<'_> {
    pub fn push(&mut self, chunk: &str) {
        self.extractor.push(chunk.as_bytes());
    }

    /// Completes the parse of a turn. `raw` is the model's whole text, as it was pushed to this
    /// parser; `reasoning` is reasoning that the provider sent separately.
    pub fn finish(self, raw: &str, reasoning: &str, end: &StreamEnd) -> ParsedTurn {
        let Self { protocol, grammar, slots, extractor } = self;
        let tools = &protocol.tools;
        let finals = &protocol.prompt_input.finals;
        let extraction = protocol.end_extraction(extractor, end.stop);
        let mut sorted = ParsedItems::default();
        sorted.add_reasoning(reasoning);
        let thoughts = sorted.reading.notes.len();
        let mut warnings = Vec::new();

        let by_text = finals.by == FinalMode::Text;
        let stays_text = |item: &ExtractedItem| {
            by_text
                && !matches!(item, ExtractedItem::Text(_))
                && text_answer::is_text(item, &grammar, &slots)
        };
        // Feedback treats an element that stays text as text, too.
        sorted.has_text = extraction.items.iter().any(stays_text);
        let items: Vec<_> = extraction.items.iter().filter(|item| !stays_text(item)).collect();

        match protocol.prompt_input.transport {
            ActionTransport::Xml => {
                let mut policy = xml::XmlPolicy { raw, finals };
                items.iter().for_each(|item| sorted.take(item, &mut policy));
                xml::refuse(&mut sorted, &end.calls);
            }
            ActionTransport::Native => {
                let mut policy = native::NativePolicy { raw, tools };
                items.iter().for_each(|item| sorted.take(item, &mut policy));
                native::take(&mut sorted, &end.calls, tools, finals);
            }
            ActionTransport::XmlFinal => {
                let slots = &slots;
                let grammar = &grammar;
                let stop = end.stop;
                let mut policy = xml_final::XmlFinalPolicy {
                    raw,
                    slots,
                    grammar,
                    tools,
                    finals,
                    stop,
                    warnings,
                };
                let feedback_findings =
                    xml_final::strangers(slots, &extraction.unknown_roots, finals);
                items.iter().for_each(|item| sorted.take(item, &mut policy));
                warnings = policy.warnings;
                sorted.reading.feedback.extend(feedback_findings);
                native::take(&mut sorted, &end.calls, tools, finals);
            }
        }

        if by_text {
            text_answer::take(&mut sorted, &extraction, (&grammar, &slots), finals, end.stop);
        }

        let silent = sorted.reading.notes.len() == thoughts;
        let unknown = protocol.unexplained_names(&extraction, &grammar);
        protocol.judge_turn(&mut sorted, raw, silent, end.stop, &unknown);
        let mut reading = sorted.finish(&extraction);
        reading.warnings = warnings;
        reading.written = match protocol.prompt_input.transport {
            ActionTransport::Xml => protocol.written_as_xml(raw, &extraction),
            _ => protocol.called(&reading),
        };
        if protocol.prompt_input.transport == ActionTransport::XmlFinal {
            forget_nonce(&mut reading, &slots);
        }

        reading
    }
}

/// Removes the turn's nonce from the feedback on this turn, because the model reads the feedback in
/// its next turn, which has another nonce.
fn forget_nonce(reading: &mut ParsedTurn, slots: &TurnSlots) {
    let broken = reading.broken.iter_mut().map(|broken| &mut broken.finding);
    for finding in reading.feedback.iter_mut().chain(broken) {
        finding.message = slots.without_nonce(&finding.message);
    }
}

impl AgentProtocol {
    /// Whether the agent has a final payload that can contain a plain-text report.
    pub fn has_text_final(&self) -> bool {
        self.prompt_input.finals.of_text().is_some()
    }

    /// Ends the extraction of a turn with the stop reason `stop`.
    fn end_extraction(&self, extractor: Extractor, stop: StopReason) -> Extraction {
        // The slots of the other transports have the turn's nonce, so their close tags are certain.
        let is_xml = self.transport() == ActionTransport::Xml;
        if is_xml && stop.is_cut() { extractor.finish_cut_off() } else { extractor.finish() }
    }

    /// Returns the payloads that the model wrote as XML, each with a location in the model's text.
    /// For a payload that the schema refuses, this is the location of the first mistake. For any
    /// other payload, it is the location of the payload's first character.
    fn written_as_xml(&self, raw: &str, extraction: &Extraction) -> Vec<WrittenPayload> {
        let written = extraction.actions().map(|action| {
            let name = PayloadName::from(action.name());
            let payload = action.payload();
            let mistake = self.schemas.validate(&name, payload.as_bytes()).err();
            let offset = mistake.and_then(|found| Some(found.first()?.place.offset));
            let place = locate::in_text(raw, action, &payload, offset.unwrap_or_default());
            WrittenPayload { payload: Digest::of(payload.as_bytes()), place, expected: None }
        });
        written.collect()
    }

    /// Returns the payloads that were made from native calls. They have no position in the model's
    /// text.
    fn called(&self, reading: &ParsedTurn) -> Vec<WrittenPayload> {
        let actions = reading.actions.iter().filter(|action| {
            reading.calls.iter().any(|made| made.digest == Digest::of(&action.payload))
        });
        let called = actions.map(|action| {
            let is_valid = self.schemas.validate(&action.name, &action.payload).is_ok();
            let expected = || self.tools.example(&action.name);
            WrittenPayload {
                payload: Digest::of(&action.payload),
                place: TextLocation::default(),
                expected: if is_valid { None } else { expected() },
            }
        });
        called.collect()
    }

    /// Whether a native call may be missing from an answer that reached its maximum length. A
    /// native call that was cut off leaves no trace. Always false for an agent without native
    /// calls, and for an answer with a final payload.
    fn may_lack_a_call(&self, sorted: &ParsedItems) -> bool {
        let mut finals = self.prompt_input.vocabulary.finals();
        let ends = finals.any(|word| sorted.reading.actions.iter().any(|a| a.name == word.name));
        self.transport().is_native() && !ends
    }

    /// Whether the text of the turn would end the agent's call if the text were complete. Used if
    /// it is unknown whether the provider cut the text off.
    fn may_be_cut_text(&self, sorted: &ParsedItems) -> bool {
        self.prompt_input.finals.by == FinalMode::Text && sorted.is_idle() && sorted.has_text
    }

    /// Adds feedback about the whole turn in these cases:
    /// - The answer was cut off, or may have been cut off.
    /// - The provider or the model declined to answer.
    /// - The turn contains no action. There is no feedback about this if the turn has a refusal, if
    ///   the model wrote a note as a payload, or if the turn's text contains only reasoning.
    ///
    /// `silent` is true if the model's text and native calls contain neither notes nor reasoning.
    fn judge_turn(
        &self,
        sorted: &mut ParsedItems,
        raw: &str,
        silent: bool,
        stop: StopReason,
        unknown: &[String],
    ) {
        let mut feedback_findings: Vec<Finding> = Vec::new();
        let idle = sorted.reading.actions.is_empty();
        match stop {
            // The refusal of the cut-off action already states that the answer was cut.
            StopReason::Length if sorted.mark_cut_off(raw) => {}
            StopReason::Length if idle || self.may_lack_a_call(sorted) => {
                feedback_findings.push(feedback::truncated(raw));
            }
            StopReason::Refused if idle => feedback_findings.push(feedback::refused(raw)),
            StopReason::Unknown if self.may_be_cut_text(sorted) => {
                feedback_findings.push(feedback::unknown_stop(raw));
            }
            _ => {}
        }

        if sorted.is_idle() && !sorted.noted && (sorted.has_text || silent) {
            feedback_findings.push(self.no_action(raw, unknown));
        }

        self.explain_unknown_actions(sorted, raw);
        feedback_findings.append(&mut sorted.reading.feedback);
        sorted.reading.feedback = feedback_findings;
    }

    /// Creates feedback that the turn contains no action. The feedback shows how to write an action.
    fn no_action(&self, raw: &str, unknown: &[String]) -> Finding {
        match self.prompt_input.transport {
            ActionTransport::Xml => self.choices.no_action(raw, unknown),
            ActionTransport::Native => {
                let finals = prompt_sections::name_of_final(&self.choices.finals);
                self.choices.no_call(raw, &format!("end the task with {finals}"))
            }
            ActionTransport::XmlFinal => {
                let how = xml_final::how(&self.prompt_input.finals);
                self.choices.no_call(raw, &format!("end the task: {how}"))
            }
        }
    }

    /// Returns the names of the turn's unknown elements for feedback. From the twelfth renderer
    /// version on, leaves out each name that resembles the name of an action: a finding of the
    /// extractor, which the model also gets, already states that this name is unknown.
    fn unexplained_names(&self, extraction: &Extraction, grammar: &ActionGrammar) -> Vec<String> {
        let is_explained = |name: &str| {
            self.prompt_input.version >= RendererVersion::V12 && near_miss(name, grammar).is_some()
        };
        let names = extraction.unknown_roots.iter().filter(|name| !is_explained(name));
        names.cloned().collect()
    }

    /// Appends an explanation to the last refusal of the turn: how the model writes an action. Does
    /// this only if the turn contains no actions, and every refusal concerns an unknown name. If
    /// the transport has native calls, does this only if the server left such a call in the text.
    fn explain_unknown_actions(&self, sorted: &mut ParsedItems, raw: &str) {
        let is_unknown = |broken: &BrokenPayload| broken.rule() == RefusalRule::UnknownAction;
        let is_leaked = |broken: &BrokenPayload| leaked_call::marker_in(&broken.attempt).is_some();
        let ParsedTurn { actions, broken, .. } = &mut sorted.reading;
        if !actions.is_empty() || !broken.iter().all(is_unknown) {
            return;
        }

        let cause = match self.transport() {
            ActionTransport::Xml => "",
            _ if broken.iter().any(is_leaked) => LEFT_IN_TEXT,
            _ => return,
        };
        if let Some(last) = broken.last_mut() {
            let how = self.no_action(raw, &[]).message;
            last.finding.message = format!("{}{cause}; {how}", last.finding.message);
        }
    }
}

//! The gate: the rules that a payload must pass before it becomes a message. They apply in a fixed
//! order, and the first broken rule decides.
//!
//! There is one gate for all payloads: those of clients, listeners and models, and the core's own.
//! The cost of a check is bounded. The checked bytes are recorded and delivered unchanged.
//!
//! This module must not know the state of threads. The pump applies the rules that depend on this
//! state.

mod gates_of_earlier_configs;
mod primitive;
mod submission;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::contract::{Contracts, Meaning, Role};
use crate::envelope::{self, Payload, Refusal, RefusalRule};
use crate::ids::{Digest, ListenerName, PayloadName};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::schema::Schemas;
use crate::system::{self, Primitive};
use crate::xml::findings::TextLocation;
use crate::xml::scan::{BrokenRule, NestedElement, scan, scan_within};
pub use gates_of_earlier_configs::EarlierGates;
use submission::SubmittedText;

/// Text of a refusal for a name outside the sender's vocabulary. The text is the same for an
/// unknown name, a forbidden name and an unknown sender, so that a refusal does not reveal which
/// names exist.
pub const NOT_IN_VOCABULARY: &str =
    "not a payload you can send; use only the payload names you were given";

/// The gate of one config: contracts and schemas. Cheap to clone; usable from many OS
/// threads.
#[derive(Clone)]
pub struct Gate {
    pub contracts: Arc<Contracts>,
    pub schemas: Schemas,
    examples: Examples,
    payload_bytes: usize,
}

/// Cache of examples for refusals, by payload name.
type Examples = Arc<Mutex<HashMap<PayloadName, Option<String>>>>;

/// A payload that passed every rule of the gate. Values of this type come only from
/// [`Gate::check`]. The pump turns the payload into a message, unless it refuses the payload by a
/// rule that depends on the state of threads.
#[derive(Debug, Clone)]
pub struct Checked {
    name: PayloadName,
    meaning: Meaning,
    payload: Payload,
    /// The payload as a primitive, which is a payload to the core such as `spawn-thread`. `None`
    /// for any other payload.
    primitive: Option<Primitive>,
    /// The payload inside a `spawn-thread` or `send-to-thread`, checked as a payload of the same
    /// sender. `None` if there is no inner payload.
    inner: Option<Box<Checked>>,
    /// The only listener that the call of the payload, or of the payload inside, may go to. `None`
    /// if the call goes to every peer that accepts the payload.
    callee: Option<ListenerName>,
}

impl Checked {
    pub fn name(&self) -> &PayloadName {
        &self.name
    }

    pub fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    pub fn primitive(&self) -> Option<&Primitive> {
        self.primitive.as_ref()
    }

    pub fn inner(&self) -> Option<&Checked> {
        self.inner.as_deref()
    }

    /// Restricts the call that the payload, or the payload inside, opens to one listener.
    ///
    /// # Errors
    ///
    /// Returns a refusal if `callee` is no peer of the sender that accepts the payload.
    pub fn only_for(mut self, callee: &ListenerName) -> Result<Self, Refusal> {
        let opening = self.inner.as_deref_mut().map(|inner| &mut inner.meaning);
        if opening.unwrap_or(&mut self.meaning).restrict_to(callee) {
            self.callee = Some(callee.clone());
            return Ok(self);
        }

        let text = self.payload.as_str().as_bytes();
        Err(Refusal::new(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, text))
    }
}

/// A payload's element, after its text has passed the rules that concern only the text.
struct ScannedPayload<'a> {
    name: PayloadName,
    text: &'a str,
}

impl Gate {
    pub fn new(contracts: Arc<Contracts>, schemas: Schemas) -> Self {
        let examples = Examples::default();
        let payload_bytes = limits::PAYLOAD_BYTES_MAX;
        Self { contracts, schemas, examples, payload_bytes }
    }

    /// Sets a maximum payload size that is smaller than the default.
    pub fn with_payload_bytes(mut self, most: usize) -> Self {
        self.payload_bytes = most.min(limits::PAYLOAD_BYTES_MAX);
        self
    }

    /// Returns a copy of this gate, with the same schemas, for attempts that began before a reload.
    /// `current` are the contracts of the new config. The copy accepts a call only if `current`
    /// contains the called listener and this listener still accepts the payload.
    fn restricted_to(&self, current: &Contracts) -> Self {
        let contracts = Arc::new(self.contracts.restricted_to(current));
        Self { contracts, ..self.clone() }
    }

    /// Checks at this gate a payload that an earlier gate has accepted.
    ///
    /// # Errors
    ///
    /// Returns a refusal in the same cases as [`Gate::check`].
    pub fn check_again(
        &self,
        sender: &ListenerName,
        checked: &Checked,
    ) -> Result<Checked, Refusal> {
        let text = checked.payload().as_str().as_bytes();
        self.check_for(sender, text, checked.callee.as_ref())
    }

    /// Checks one payload of `sender`, as [`Gate::check`] does. If `callee` is set, the call that
    /// the payload opens goes to this listener only.
    ///
    /// # Errors
    ///
    /// Returns a refusal as [`Gate::check`] does, and if `callee` is no peer of `sender` that
    /// accepts the payload.
    pub fn check_for(
        &self,
        sender: &ListenerName,
        text: &[u8],
        callee: Option<&ListenerName>,
    ) -> Result<Checked, Refusal> {
        let checked = self.check(sender, text)?;
        match callee {
            Some(callee) => checked.only_for(callee),
            None => Ok(checked),
        }
    }

    /// Checks one payload of `sender`. `text` is the payload's element with any text around it.
    ///
    /// # Errors
    ///
    /// Returns the refusal for the first broken rule. The refusal states the location of the defect
    /// in `text`.
    pub fn check(&self, sender: &ListenerName, text: &[u8]) -> Result<Checked, Refusal> {
        let (element, submission) = read(text, self.payload_bytes)?;
        not_reserved(&element, &submission)?;
        // In the order of rules, the rule on threads comes here. The pump applies it, because only
        // the pump knows which threads exist.
        let meaning = self.meaning(sender, &element, &submission)?;
        self.valid(sender, &element, &submission)?;
        let (primitive, inner) = match meaning {
            Meaning::Primitive => self.read_primitive(sender, &element, &submission)?,
            _ => (None, None),
        };

        // In the order of rules, the rule on budgets comes here. The pump applies it, too.
        let payload = Payload::new(element.text);
        Ok(Checked { name: element.name, meaning, payload, primitive, inner, callee: None })
    }

    /// Returns the maximum number of payloads in one outcome of `listener`. An outcome of a workflow
    /// has no maximum: it starts as many items at once as the definition allows, and the limits of
    /// the tree apply to the threads that it opens.
    pub fn outcome_payloads_max(&self, listener: &ListenerName) -> Option<usize> {
        let contract = self.contracts.get(listener);
        let is_workflow = contract.is_some_and(|contract| contract.role == Role::Workflow);
        (!is_workflow).then_some(limits::OUTCOME_PAYLOADS_MAX)
    }

    /// Returns the listeners that may write the result of a call to `listener`. These are
    /// `listener` and the listeners to which the call can be forwarded, directly or through other
    /// listeners.
    pub fn result_senders(&self, listener: &ListenerName) -> Vec<ListenerName> {
        let mut senders = vec![listener.clone()];
        let mut at = 0;
        while let Some(sender) = senders.get(at) {
            let words =
                self.contracts.vocabulary(sender).into_iter().flat_map(|words| words.iter());
            let forwarded = words.filter_map(|(_, meaning)| match meaning {
                Meaning::Call { peers, forward: true, .. } => Some(peers),
                _ => None,
            });
            let mut next: Vec<_> = forwarded.flatten().cloned().collect();
            next.sort();
            next.dedup();
            next.retain(|peer| !senders.contains(peer));
            senders.extend(next);
            at += 1;
        }
        senders
    }

    /// Checks a payload of the core itself against its schema. Returns the name of the payload, and
    /// the payload.
    ///
    /// # Errors
    ///
    /// A refusal here is a bug of the core, not of a sender.
    pub fn check_core(&self, text: &[u8]) -> Result<(PayloadName, Payload), Refusal> {
        let (element, submission) = read(text, limits::CORE_PAYLOAD_BYTES_MAX)?;
        if &*element.name.namespace != system::NAMESPACE {
            let message = "the core writes words of its own namespace only";
            return Err(submission.refuse(RefusalRule::ReservedName, message));
        }

        self.valid(&ListenerName::core(), &element, &submission)?;
        Ok((element.name, Payload::new(element.text)))
    }

    /// Returns the meaning that a payload name has for a sender. The refusal is the same for an
    /// unknown name, a forbidden name and an unknown sender, so that the sender cannot distinguish
    /// these cases.
    fn meaning(
        &self,
        sender: &ListenerName,
        element: &ScannedPayload<'_>,
        submission: &SubmittedText<'_>,
    ) -> Result<Meaning, Refusal> {
        let vocabulary = self.contracts.vocabulary(sender);
        match vocabulary.and_then(|words| words.meaning(&element.name)) {
            Some(meaning) => Ok(meaning.clone()),
            None if mutant("skip-the-vocabulary") => Ok(Meaning::Note),
            None => {
                Err(Refusal::new(RefusalRule::NotInVocabulary, NOT_IN_VOCABULARY, submission.text))
            }
        }
    }

    fn valid(
        &self,
        sender: &ListenerName,
        element: &ScannedPayload<'_>,
        submission: &SubmittedText<'_>,
    ) -> Result<(), Refusal> {
        match self.schemas.validate(&element.name, element.text.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) if mutant("skip-the-xsd") => Ok(()),
            Err(findings) => {
                let refusal = submission.refuse_findings(&findings);
                Err(Refusal { expected: self.expected(sender, &element.name), ..refusal })
            }
        }
    }

    /// Returns an example of the payload `name` for a refusal; `None` if there is no example. If
    /// the example contains another payload, as that of a `spawn-thread` does, the contained
    /// payload is one that `sender` may send.
    fn expected(&self, sender: &ListenerName, name: &PayloadName) -> Option<String> {
        if &*name.namespace != system::NAMESPACE {
            return self.example(name);
        }

        let inner = || {
            let mut words = self.contracts.vocabulary(sender)?.iter();
            let opens_call =
                |meaning: &Meaning| matches!(meaning, Meaning::Own | Meaning::Call { .. });
            let (word, _) = words.find(|(_, meaning)| opens_call(meaning))?;
            self.example(word)
        };

        system::example(&name.local, inner)
    }

    /// Returns an example of a payload with this name, or `None` if there is no short example.
    /// Caches the result, because making an example takes long, and a refusal must be fast.
    fn example(&self, name: &PayloadName) -> Option<String> {
        // The lock is not held while an example is made, which takes long. Two threads may make the
        // same example.
        let known = || locked(&self.examples);
        if let Some(example) = known().get(name) {
            return example.clone();
        }

        let example = self.schemas.example(name);
        let example = example.filter(|e| e.len() <= limits::REFUSAL_EXAMPLE_BYTES_MAX);
        known().insert(name.clone(), example.clone());
        example
    }

    /// Parses a primitive, which is a payload to the core such as `spawn-thread`. Returns it with
    /// the payload inside, if it contains one. Checks the payload inside as if `sender` had sent it
    /// alone.
    fn read_primitive(
        &self,
        sender: &ListenerName,
        element: &ScannedPayload<'_>,
        submission: &SubmittedText<'_>,
    ) -> Result<(Option<Primitive>, Option<Box<Checked>>), Refusal> {
        let invalid = |message: String| Refusal {
            expected: self.expected(sender, &element.name),
            ..submission.refuse(RefusalRule::SchemaInvalid, message)
        };

        let primitive = primitive::read(&element.name.local, element.text).map_err(invalid)?;
        let inner = primitive::inner(&primitive, element.text).map_err(invalid)?;
        let inner = match inner {
            Some(nested) => {
                let nested = self.named(sender, nested);
                let outer = submission.within(&primitive, &nested);
                Some(Box::new(self.check_inner(sender, &nested, &outer)?))
            }
            None => None,
        };

        Ok((Some(primitive), inner))
    }

    /// Returns the payload `nested`, which is inside a primitive such as `spawn-thread`, with a
    /// corrected namespace. A payload without its own `xmlns` inherits the core's namespace, which
    /// the sender never intends. If a name in the sender's vocabulary has the same local part, the
    /// payload gets the namespace of this name.
    fn named(&self, sender: &ListenerName, nested: NestedElement) -> NestedElement {
        let meant = || {
            let name = scan(nested.text.as_bytes()).ok()?.name;
            if &*name.namespace != system::NAMESPACE || self.schemas.contains(&name) {
                return None;
            }
            let mut words = self.contracts.vocabulary(sender)?.iter();
            let (meant, _) = words.find(|(word, meaning)| {
                word.local == name.local && matches!(meaning, Meaning::Own | Meaning::Call { .. })
            })?;
            let plain = !meant.namespace.contains(['<', '&', '"', '\'']);
            if plain { nested.rebind(&meant.namespace) } else { None }
        };

        meant().unwrap_or(nested)
    }

    /// Checks the payload inside a primitive such as `spawn-thread` by the same rules as any other
    /// payload. In addition, the payload must open a call.
    fn check_inner(
        &self,
        sender: &ListenerName,
        nested: &NestedElement,
        submission: &SubmittedText<'_>,
    ) -> Result<Checked, Refusal> {
        let text = nested.text.as_bytes();
        let scanned = scan(text)
            .map_err(|violation| submission.refuse(rule_of(violation.breach), violation.message))?;
        let element = ScannedPayload { name: scanned.name, text: &nested.text };
        not_reserved(&element, submission)?;
        let meaning = self.meaning(sender, &element, submission)?;
        if !matches!(meaning, Meaning::Own | Meaning::Call { .. }) {
            let message =
                "the payload inside opens no call; write one that a peer or you yourself accept";
            return Err(submission.refuse(RefusalRule::SchemaInvalid, message));
        }

        self.valid(sender, &element, submission)?;
        let payload = Payload::new(element.text);
        let name = element.name;
        Ok(Checked { name, meaning, payload, primitive: None, inner: None, callee: None })
    }
}

/// Returns the digest of the payload in `text`, that is, of the root element without any text
/// around it. Returns `None` if `text` breaks one of the rules of form. These rules are the same
/// for every config.
pub fn payload_digest(text: &[u8]) -> Option<Digest> {
    let scanned = scan(text).ok()?;
    text.get(scanned.root).map(Digest::of)
}

/// Applies the rules that concern only the text: its size, its encoding, its form, and its single
/// root.
fn read(text: &[u8], bytes_max: usize) -> Result<(ScannedPayload<'_>, SubmittedText<'_>), Refusal> {
    let scanned = scan_within(text, bytes_max).map_err(|violation| {
        let refusal = Refusal::new(rule_of(violation.breach), violation.message, text);
        refusal.at(TextLocation::at(text, violation.offset))
    })?;
    let base = TextLocation::at(text, scanned.root.start);
    let root = text.get(scanned.root).map(std::str::from_utf8);
    let root = root.and_then(Result::ok).expect("a scanned root lies in the text, on characters");
    Ok((
        ScannedPayload { name: scanned.name, text: root },
        SubmittedText { text, base, added: 0..0 },
    ))
}

fn rule_of(breach: BrokenRule) -> RefusalRule {
    match breach {
        BrokenRule::Size => RefusalRule::TooLarge,
        BrokenRule::Encoding => RefusalRule::NotUtf8,
        BrokenRule::Forbidden => RefusalRule::Forbidden,
        BrokenRule::Complexity => RefusalRule::TooComplex,
        BrokenRule::Form => RefusalRule::NotWellFormed,
        BrokenRule::Roots => RefusalRule::NotOneRoot,
    }
}

/// Refuses an envelope. Also refuses a payload name in the core's namespace, unless it is the name
/// of a primitive, a note or a preview.
fn not_reserved(
    element: &ScannedPayload<'_>,
    submission: &SubmittedText<'_>,
) -> Result<(), Refusal> {
    let PayloadName { namespace, local } = &element.name;
    let previews = [system::PREVIEW, system::STALE_PREVIEW];
    let allowed = Primitive::WORDS.iter().chain(&system::NOTES).chain(&previews);
    let message = match &**namespace {
        envelope::NAMESPACE if &**local == "answer" => {
            "an <answer> that names its delivery needs the attributes `call` and `attempt`; it is \
             no payload itself"
        }
        envelope::NAMESPACE => "an envelope is no payload; send the payload alone",
        system::NAMESPACE
            if !allowed.clone().any(|word| *word == &**local)
                && !mutant("skip-the-reserved-names") =>
        {
            "only the core writes payloads of this name"
        }
        _ => return Ok(()),
    };

    Err(submission.refuse(RefusalRule::ReservedName, message))
}

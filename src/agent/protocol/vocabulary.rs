//! The vocabulary of one agent: its payload names in a fixed order, with their descriptions from
//! the schemas.

use std::fmt;

use crate::agent::RendererVersion;
use crate::contract::{Contract, Contracts, Meaning};
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::{DescriptionForm, PayloadDescription, Schemas, UnsupportedPart};
use crate::system::{self, NOTES, Primitive};

/// A payload name of the vocabulary, with the data that the prompt shows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyEntry {
    pub name: PayloadName,
    pub meaning: Meaning,
    /// The peers that accept the payload name.
    pub peers: Vec<AnsweringPeer>,
    pub description: PayloadDescription,
    /// An example of the payload, valid by the schema of the payload. Contains namespaces only
    /// where necessary. Empty if no short example could be generated.
    pub example: String,
    /// Names of those elements in the payload that may contain any XML, such as text with child
    /// elements. The agent must escape special characters in this content.
    pub markup: Vec<String>,
}

/// A peer that answers a payload, with its name and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweringPeer {
    pub name: String,
    pub description: String,
}

impl fmt::Display for AnsweringPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.description.as_str() {
            "" => f.write_str(&self.name),
            description => write!(f, "{} ({description})", self.name),
        }
    }
}

/// The vocabulary of an agent. First come the payload names that its peers accept, in the order of
/// the config. Then come the agent's own payload names, its final payloads, and the payload names
/// of the core.
#[derive(Debug, Clone, Default)]
pub struct AgentVocabulary {
    words: Vec<VocabularyEntry>,
    /// Whether a model that may be called in a thread of the agent has no price. The attribute
    /// `money` of `spawn-thread` is then refused.
    has_unpriced_models: bool,
}

impl VocabularyEntry {
    /// Returns the names of the peers that accept the payload. In renderer versions before the
    /// eighth, the description of each peer follows its name.
    pub fn answered_by(&self, version: RendererVersion) -> String {
        let peers = self.peers.iter().map(|peer| {
            if version >= RendererVersion::V8 { peer.name.clone() } else { peer.to_string() }
        });
        peers.collect::<Vec<_>>().join(", ")
    }

    /// Whether the payload opens a call to another listener.
    pub fn opens_call(&self) -> bool {
        matches!(self.meaning, Meaning::Call { .. } | Meaning::Delegate { .. })
    }
}

impl AgentVocabulary {
    pub fn new(contract: &Contract, contracts: &Contracts, schemas: &Schemas) -> Self {
        Self::ended_by(&contract.replies, None, contract, contracts, schemas)
    }

    /// Returns the vocabulary for a call with a goal, which is a task from a workflow. Only the
    /// payload `answer` ends this call. If `delegate` is given, the agent can delegate parts of the
    /// goal with the payload `delegate`.
    pub fn for_goals(
        answer: &PayloadName,
        delegate: Option<&PayloadName>,
        contract: &Contract,
        contracts: &Contracts,
        schemas: &Schemas,
    ) -> Self {
        let finals = std::slice::from_ref(answer);
        let mut vocabulary = Self::ended_by(finals, delegate, contract, contracts, schemas);
        for word in &mut vocabulary.words {
            if word.meaning == Meaning::GoalAnswer {
                word.meaning = Meaning::Reply;
            }
        }
        vocabulary
    }

    fn ended_by(
        finals: &[PayloadName],
        delegate: Option<&PayloadName>,
        contract: &Contract,
        contracts: &Contracts,
        schemas: &Schemas,
    ) -> Self {
        let mut names: Vec<PayloadName> = Vec::new();
        let peers = contracts.iter().filter(|peer| contract.peers.contains(&peer.name));
        let core = Primitive::WORDS.into_iter().chain(NOTES).map(system::name);
        let all = peers
            .flat_map(|peer| peer.accepts.iter().cloned())
            .chain(delegate.cloned())
            .chain(contract.accepts.iter().cloned())
            .chain(finals.iter().cloned())
            .chain(core);

        for name in all {
            if !names.contains(&name) {
                names.push(name);
            }
        }

        let vocabulary = contracts.vocabulary(&contract.name);
        let word = |name: PayloadName| {
            let meaning = vocabulary?.meaning(&name)?.clone();
            Some(described(name, meaning, contracts, schemas))
        };

        let has_unpriced_models = contracts.has_unpriced_beneath(&contract.name);
        Self { words: names.into_iter().filter_map(word).collect(), has_unpriced_models }
    }

    /// Returns the vocabulary as the given renderer version shows it: without the payload names
    /// that are newer than this version, and with the descriptions and examples of this version.
    /// From the twelfth version on, a vocabulary without a payload that can be sent to a thread
    /// also lacks `spawn-thread`, `send-to-thread` and `cancel-thread`.
    pub(super) fn in_version(mut self, version: RendererVersion, schemas: &Schemas) -> Self {
        let later = system::name("cancel-thread");
        self.words.retain(|word| version >= RendererVersion::V5 || word.name != later);
        let can_use_threads = self.words.iter().any(|word| self.is_addressable(word));
        if version >= RendererVersion::V12 && !can_use_threads {
            let of_threads = ["spawn-thread", "send-to-thread", "cancel-thread"].map(system::name);
            self.words.retain(|word| !of_threads.contains(&word.name));
        }
        let form = version.description_form();
        if form != DescriptionForm::Current {
            for word in &mut self.words {
                word.description = schemas.description_in(&word.name, form);
            }
        }
        if version < RendererVersion::V8 {
            for word in &mut self.words {
                let example = schemas.example(&word.name).map(|example| bare(&example));
                word.example = example.unwrap_or_else(|| format!("<{}/>", word.name.local));
            }
        }
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = &VocabularyEntry> {
        self.words.iter()
    }

    pub fn get(&self, name: &PayloadName) -> Option<&VocabularyEntry> {
        self.words.iter().find(|word| word.name == *name)
    }

    /// Returns the payload names that open a call: the names that the agent's peers accept, and the
    /// name that delegates tasks of a goal.
    pub fn tools(&self) -> impl Iterator<Item = &VocabularyEntry> {
        self.words.iter().filter(|word| word.opens_call())
    }

    /// Returns the names of the payloads that an agent sends to itself in order to continue its
    /// call.
    pub fn own(&self) -> impl Iterator<Item = &VocabularyEntry> {
        self.words.iter().filter(|word| word.meaning == Meaning::Own)
    }

    /// Returns the payload names that end the agent's call.
    pub fn finals(&self) -> impl Iterator<Item = &VocabularyEntry> {
        self.words.iter().filter(|word| word.meaning == Meaning::Reply)
    }

    /// Whether the receiver of the payload is either a peer or the agent itself. Only a payload for
    /// which this is true can open a thread.
    pub fn is_addressable(&self, word: &VocabularyEntry) -> bool {
        matches!(word.meaning, Meaning::Own | Meaning::Call { .. })
    }

    /// Returns the payload name for the example in prompts that shows how to send a payload to
    /// another thread. This is the first name that has an example and whose receiver is the agent
    /// itself. If no name fits, returns the first name that has an example and whose receiver is a
    /// peer. If no name fits again, returns `None`.
    pub fn addressable(&self) -> Option<&VocabularyEntry> {
        let tools = self.tools().filter(|word| self.is_addressable(word));
        self.own().chain(tools).find(|word| !word.example.is_empty())
    }

    /// Returns the inner payload of the examples that show how to send a payload to another thread.
    /// If no addressable payload has an example, returns an outline from the twelfth renderer
    /// version on, and an empty text in earlier versions.
    pub fn inner_example(&self, version: RendererVersion) -> String {
        if let Some(word) = self.addressable() {
            return word.example.trim().to_owned();
        }

        let word = self.words.iter().find(|word| self.is_addressable(word));
        let word = word.filter(|_| version >= RendererVersion::V12);
        word.map_or_else(String::new, |word| format!("<{0}>...</{0}>", word.name.local))
    }

    /// Whether the prompt of the given renderer version mentions the attribute `money` of
    /// `spawn-thread`.
    pub fn mentions_money(&self, version: RendererVersion) -> bool {
        version >= RendererVersion::V6
            && (version < RendererVersion::V12 || !self.has_unpriced_models)
    }

    /// Returns the peers that accept calls of the agent. No peer occurs twice.
    pub fn peers(&self) -> Vec<&AnsweringPeer> {
        let mut peers: Vec<&AnsweringPeer> = Vec::new();
        for peer in self.tools().flat_map(|word| &word.peers) {
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }

        peers
    }

    pub fn has_core(&self, local: &str) -> bool {
        self.words.iter().any(|word| word.name == system::name(local))
    }
}

fn described(
    name: PayloadName,
    meaning: Meaning,
    contracts: &Contracts,
    schemas: &Schemas,
) -> VocabularyEntry {
    let peers = match &meaning {
        Meaning::Call { peers, .. } => peers
            .iter()
            .map(|peer| {
                let description = contracts.get(peer).map(|contract| contract.description.clone());
                AnsweringPeer {
                    name: peer.to_string(),
                    description: description.unwrap_or_default(),
                }
            })
            .collect(),
        _ => Vec::new(),
    };

    let description = schemas.outline(&name);
    let example = schemas.example(&name).filter(|text| text.len() <= limits::EXAMPLE_BYTES_MAX);
    let example = example.map(|example| bare(&example));
    let example = example.unwrap_or_default();
    let markup = markup_in(&name, schemas);
    VocabularyEntry { name, meaning, peers, description, example, markup }
}

/// Returns the names of those elements in the payload `name` that may contain any XML.
fn markup_in(name: &PayloadName, schemas: &Schemas) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in schemas.gaps(name) {
        let UnsupportedPart::Markup { path } = part else { continue };
        let local = path.rsplit('/').next().unwrap_or_default();
        if !names.iter().any(|known| known == local) {
            names.push(local.to_owned());
        }
    }

    names
}

/// Removes the declaration of the default namespace from the root element of an example. Changes
/// nothing if the root element has no such declaration, or if the example declares other
/// namespaces.
pub(super) fn bare(example: &str) -> String {
    let Some((before, declared)) = example.split_once(" xmlns=\"") else {
        return example.to_owned();
    };

    match declared.split_once('"') {
        Some((_, after)) if !after.contains("xmlns") && !before.contains('>') => {
            format!("{before}{after}")
        }
        _ => example.to_owned(),
    }
}

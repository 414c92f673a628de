//! The grammar of one agent: the names that have a meaning in its text (actions, reasoning,
//! reserved names), and the limits of its turns. The grammar is built once for each agent.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::namespace_scope::WrittenName;
use super::reasoning::REASONING_NAMES;
use crate::limits;
use crate::xml::shape::{ElementShape, QName, ShapeArena, ShapeContent, ShapeId};

/// Size limits of one turn, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractLimits {
    /// Maximum bytes of one decoded text value.
    pub max_leaf_bytes: usize,
    /// Maximum bytes of the whole turn as received.
    pub max_turn_bytes: usize,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self { max_leaf_bytes: limits::LEAF_BYTES_MAX, max_turn_bytes: limits::TURN_BYTES_MAX }
    }
}

/// The names that have a meaning in the text of an agent, with the shapes of actions and the size
/// limits.
#[derive(Debug, Clone, Default)]
pub struct ActionGrammar {
    shapes: ShapeArena,
    reasoning: Vec<String>,
    /// Those [`REASONING_NAMES`] that are no payload names of the agent. The comparison ignores
    /// case.
    known_reasoning: Vec<&'static str>,
    reserved: Vec<String>,
    pub(super) limits: ExtractLimits,
    roots: RootNames,
    sieve: NameFilter,
}

type RootNames = HashMap<String, Vec<ShapeId>, BuildHasherDefault<NameHasher>>;

/// An FNV-1a hasher. The names come from a config, so no attacker can choose names that collide.
#[derive(Debug, Clone)]
struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Filter that rejects most names without a meaning. A name has a meaning if it is that of an
/// action, a reasoning block or a reserved element. Turns contain many tags with other names, so
/// the filter must be fast. It checks only the first byte and the length of a name, without
/// hashing.
#[derive(Debug, Clone, Default)]
struct NameFilter {
    /// For each first byte of a name, a bit mask of the lengths of the names that begin with this
    /// byte.
    lengths: Vec<u64>,
}

impl NameFilter {
    fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut lengths = vec![0; 256];
        for name in names {
            let first = name.bytes().next().unwrap_or_default();
            if let Some(lengths) = lengths.get_mut(usize::from(first)) {
                *lengths |= Self::bit(name.len());
            }
        }

        Self { lengths }
    }

    const fn bit(length: usize) -> u64 {
        1 << if length < 63 { length } else { 63 }
    }

    fn may_hold(&self, name: &[u8]) -> bool {
        let first = name.first().copied().unwrap_or_default();
        let lengths = self.lengths.get(usize::from(first)).copied().unwrap_or_default();
        lengths & Self::bit(name.len()) != 0
    }
}

/// The meaning of the name of a root element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RootMeaning {
    Action(ShapeId),
    Reasoning,
    Reserved,
    Unknown,
}

impl ActionGrammar {
    /// Creates a grammar. `reasoning` and `reserved` are names as written. A reserved name is
    /// reserved in every namespace.
    pub fn new(
        shapes: ShapeArena,
        reasoning: Vec<String>,
        reserved: Vec<String>,
        limits: ExtractLimits,
    ) -> Self {
        let mut roots = RootNames::default();
        for id in &shapes.roots {
            if let Some(shape) = shapes.get(*id) {
                roots.entry(shape.name.local.to_string()).or_default().push(*id);
            }
        }

        let is_payload = |name: &str| roots.keys().any(|root| root.eq_ignore_ascii_case(name));
        let known_reasoning: Vec<_> =
            REASONING_NAMES.into_iter().filter(|name| !is_payload(name)).collect();
        let upper: Vec<_> = known_reasoning.iter().map(|name| name.to_uppercase()).collect();
        let names = roots.keys().chain(&reasoning).chain(&reserved).chain(&upper);
        let names = names.map(String::as_str).chain(known_reasoning.iter().copied());
        let sieve = NameFilter::new(names);
        Self { shapes, reasoning, known_reasoning, reserved, limits, roots, sieve }
    }

    pub fn shapes(&self) -> &ShapeArena {
        &self.shapes
    }

    pub(super) fn shape(&self, id: ShapeId) -> Option<&ElementShape> {
        self.shapes.get(id)
    }

    pub(super) fn is_reasoning(&self, name: &str) -> bool {
        let is_known = |known: &&str| known.eq_ignore_ascii_case(name);
        self.reasoning.iter().any(|known| known == name)
            || self.known_reasoning.iter().any(is_known)
    }

    pub(super) fn is_reserved(&self, local: &str) -> bool {
        self.reserved.iter().any(|known| known == local)
    }

    /// Whether an action in some namespace has the local name `local`.
    pub(super) fn has_root_called(&self, local: &str) -> bool {
        self.roots.contains_key(local)
    }

    /// Whether a root element with the local name `local` may be an action, a reasoning block or a
    /// reserved element.
    pub(super) fn means(&self, local: &str) -> bool {
        self.has_root_called(local) || self.is_reasoning(local) || self.is_reserved(local)
    }

    /// Whether a root element with the local name `local` may be an action, a reasoning block or a
    /// reserved element. Faster than [`Self::means`], but with false positives.
    pub(super) fn may_mean(&self, local: &[u8]) -> bool {
        self.sieve.may_hold(local)
    }

    /// Whether all actions with the local name `local` have a namespace.
    pub(super) fn has_namespaced_root(&self, local: &str) -> bool {
        let qualified = |id: &ShapeId| self.shape(*id).is_some_and(|s| s.name.namespace.is_some());
        self.roots.get(local).is_some_and(|ids| ids.iter().all(qualified))
    }

    /// Whether `start` is the beginning of at least one known name: the name of an action, of a
    /// reasoning block or of a reserved element. False if `start` is empty.
    pub(super) fn may_become(&self, start: &str) -> bool {
        let names = self.roots.keys().chain(&self.reasoning).chain(&self.reserved);
        let names = names.map(String::as_str).chain(self.known_reasoning.iter().copied());
        !start.is_empty() && names.into_iter().any(|name| name.starts_with(start))
    }

    pub(super) fn root(&self, name: &str, written: &WrittenName<'_>) -> RootMeaning {
        if self.is_reasoning(name) {
            return RootMeaning::Reasoning;
        }

        match self.action(written) {
            Some(id) => RootMeaning::Action(id),
            None if self.is_reserved(written.local()) || self.is_reserved(name) => {
                RootMeaning::Reserved
            }
            None => RootMeaning::Unknown,
        }
    }

    pub(super) fn is_action(&self, name: &str, written: &WrittenName<'_>) -> bool {
        matches!(self.root(name, written), RootMeaning::Action(_))
    }

    /// Returns the local names of the children of an element.
    pub(super) fn child_names(&self, parent: ShapeId) -> Vec<&str> {
        let Some(ShapeContent::Elements(children)) = self.shape(parent).map(|s| &s.content) else {
            return Vec::new();
        };
        children.iter().filter_map(|id| self.shape(*id)).map(|s| &*s.name.local).collect()
    }

    /// Returns the action with the name of a root element; `None` if there is none. A name with a
    /// namespace must match exactly. A bare name, which has no prefix and no default namespace,
    /// needs only the same local name. If several actions have this local name, the action without
    /// a namespace is returned.
    fn action(&self, written: &WrittenName<'_>) -> Option<ShapeId> {
        match written {
            WrittenName::Bound(namespace, local) => self.pick(self.roots.get(*local)?, namespace),
            WrittenName::Bare(local) => {
                let candidates = self.roots.get(*local)?;
                match candidates.as_slice() {
                    [only] => Some(*only),
                    several => self.pick(several, ""),
                }
            }
            WrittenName::Unbound(name) => self.pick(self.roots.get(*name)?, ""),
        }
    }

    fn pick(&self, candidates: &[ShapeId], namespace: &str) -> Option<ShapeId> {
        let fits = |id: &&ShapeId| {
            self.shape(**id).is_some_and(|shape| in_namespace(&shape.name, namespace))
        };
        candidates.iter().find(fits).copied()
    }

    /// Returns the child of `parent` with the name `written`; `None` if there is no such child.
    /// With `by_local_name`, a bare name, which has no prefix and no default namespace, also finds
    /// a child that has a namespace.
    pub(super) fn child(
        &self,
        parent: ShapeId,
        written: &WrittenName<'_>,
        by_local_name: bool,
    ) -> Option<ShapeId> {
        let parent = self.shape(parent)?;
        let ShapeContent::Elements(children) = &parent.content else { return None };
        let named = |fits: &dyn Fn(&QName) -> bool| {
            let found = children.iter().find(|id| self.shape(**id).is_some_and(|s| fits(&s.name)));
            found.copied()
        };

        let unqualified = |local: &str| named(&|q| q.namespace.is_none() && &*q.local == local);
        match written {
            WrittenName::Bound(namespace, local) => {
                named(&|q| in_namespace(q, namespace) && &*q.local == *local)
            }
            WrittenName::Unbound(name) => unqualified(name),
            WrittenName::Bare(local) if !by_local_name => unqualified(local),
            WrittenName::Bare(local) => {
                let is_same =
                    |q: &QName| q.namespace == parent.name.namespace && &*q.local == *local;
                named(&is_same)
                    .or_else(|| unqualified(local))
                    .or_else(|| named(&|q| &*q.local == *local))
            }
        }
    }
}

/// Whether `name` is in `namespace`. An empty `namespace` means that the name has no namespace.
fn in_namespace(name: &QName, namespace: &str) -> bool {
    name.namespace.as_deref().unwrap_or_default() == namespace
}

/// Returns the action whose name an unknown root element probably misspells; `None` if there is
/// none. The names may differ in case and punctuation, such as hyphens. Or they may differ in a few
/// characters: one if the name of the root element has 3 to 5 bytes, two if it is longer.
pub fn near_miss<'g>(root: &str, grammar: &'g ActionGrammar) -> Option<&'g str> {
    let local = root.rsplit(':').next().unwrap_or(root);
    let fold = |name: &str| -> String {
        let kept = name.chars().filter(|c| c.is_alphanumeric());
        kept.flat_map(char::to_lowercase).collect()
    };

    let folded = fold(local);
    let allowed = match local.len() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };

    let near = |known: &str| {
        fold(known) == folded
            || (known.len().abs_diff(local.len()) <= allowed
                && strsim::osa_distance(known, local) <= allowed)
    };

    let mut found: Vec<&str> =
        grammar.roots.keys().map(String::as_str).filter(|k| near(k)).collect();
    found.sort_by_key(|known| (strsim::osa_distance(known, local), *known));
    found.first().copied()
}

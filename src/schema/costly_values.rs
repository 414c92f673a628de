//! Finds the patterns of a schema that libxml2 can need many steps to match, and keeps long values
//! that do not match them from libxml2.
//!
//! A pattern that is too costly for a short text is a problem of the schema. The other costly
//! patterns take long only for long values, and in practice only if the value does not match.
//! Whether a long value matches is therefore decided here first, in time that grows with its length.
//! To find the values of a pattern without libxml2, this module follows the types by their local
//! names. So it may also refuse a long value to which the pattern does not apply, but never
//! overlooks a value to which it applies.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::matching_cost::MatchingCost;
use super::pattern_automaton::PatternAutomaton;
use super::pattern_cost;
use super::pattern_term::parse;
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::xsd::{SchemaElement, XSI, is_xsd};
use crate::limits;
use crate::xml::element::Element;
use crate::xml::findings::{Finding, TextLocation};
use crate::xml::shape::QName;

/// Maximum characters of a pattern that a message shows.
const SHOWN_MAX: usize = 120;

/// A pattern that long values must match before libxml2 sees them.
struct CostlyPattern {
    value: String,
    cost: MatchingCost,
    automaton: PatternAutomaton,
}

impl CostlyPattern {
    /// Whether a value may match the pattern: as it is written, without its outer and repeated
    /// white space, or as a list of which every item matches.
    fn can_match(&self, value: &str) -> bool {
        let items: Vec<&str> =
            value.split([' ', '\t', '\n', '\r']).filter(|item| !item.is_empty()).collect();
        self.automaton.can_match(value)
            || self.automaton.can_match(&items.join(" "))
            || items.iter().all(|item| self.automaton.can_match(item))
    }
}

/// A component of a schema that a pattern can belong to, by its local name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ValueOwner {
    Type(String),
    /// An element or attribute.
    Node(String),
}

impl ValueOwner {
    fn kind(&self) -> &'static str {
        match self {
            Self::Type(_) => "type",
            Self::Node(_) => "element or attribute",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Type(name) | Self::Node(name) => name,
        }
    }
}

/// The costly patterns of a schema, and the values that they apply to.
#[derive(Default)]
pub struct CostlyValues {
    patterns: Vec<CostlyPattern>,
    /// For each local name of an element or attribute, the indices of its costly patterns.
    by_name: HashMap<String, BTreeSet<usize>>,
}

impl CostlyValues {
    /// Returns the costly values of a schema, and the problems of its patterns.
    pub fn of(sources: &[SchemaDocument]) -> (Self, Vec<SchemaProblem>) {
        let mut search = PatternSearch {
            work: limits::SCHEMA_PATTERN_WORK_MAX,
            costs: HashMap::new(),
            patterns: Vec::new(),
            owned: BTreeMap::new(),
            depends: Vec::new(),
            problems: Vec::new(),
        };
        for source in sources {
            search.walk(source, &source.root, &None);
        }

        let mut by_name: HashMap<String, BTreeSet<usize>> = HashMap::new();
        for (owner, patterns) in search.spread() {
            if let ValueOwner::Node(name) = owner {
                by_name.entry(name).or_default().extend(patterns);
            }
        }

        (Self { patterns: search.patterns, by_name }, search.problems)
    }

    /// Checks that the values of a payload can be matched within the bound on steps, or match.
    /// Returns a finding about the costliest value that does not match if they cannot.
    pub fn check(&self, payload: &str) -> Option<Finding> {
        // Each value has at least one byte of markup, and each further character of a value costs no
        // less than the one before. So all values together cost no more than one of this length.
        let costs = self.patterns.iter().map(|pattern| pattern.cost.of_length(payload.len()));
        if costs.fold(0, u64::saturating_add) <= limits::PATTERN_STEPS_MAX {
            return None;
        }

        let root = Element::read_document(payload)?;
        let mut sum = CostSum { costly: self, steps: 0, worst: None };
        sum.add(&root);
        if sum.steps <= limits::PATTERN_STEPS_MAX {
            return None;
        }

        let (_, name, start, pattern) = sum.worst?;
        let shown = shown(&self.patterns.get(pattern)?.value);
        let message = format!("the value of `{name}` does not match the pattern `{shown}`");
        let place = TextLocation::at(payload.as_bytes(), start);
        Some(Finding::new("schema-pattern", place, message))
    }
}

/// Adds up the steps that the values of a payload can cost which do not match their patterns.
struct CostSum<'a> {
    costly: &'a CostlyValues,
    steps: u64,
    /// The value that costs most: its steps, the name of its element or attribute, the offset of
    /// the start tag, and the index of the pattern.
    worst: Option<(u64, String, usize, usize)>,
}

impl CostSum<'_> {
    fn add(&mut self, element: &Element) {
        // With `xsi:type`, an element may have any type.
        let is_any = element.attributes.iter().any(|(name, _)| is_xsi_type(name));
        self.add_value(element, element.local_name(), &element.own_text(), is_any);
        for (name, value) in &element.attributes {
            self.add_value(element, &name.local, value, false);
        }

        for child in element.children() {
            self.add(child);
        }
    }

    fn add_value(&mut self, element: &Element, name: &str, value: &str, is_any: bool) {
        let costly = self.costly;
        let named = costly.by_name.get(name);
        if !is_any && named.is_none() {
            return;
        }

        let length = value.chars().count();
        for (index, pattern) in costly.patterns.iter().enumerate() {
            if !is_any && !named.is_some_and(|named| named.contains(&index)) {
                continue;
            }

            if pattern.can_match(value) {
                continue;
            }

            let steps = pattern.cost.of_length(length);
            self.steps = self.steps.saturating_add(steps);
            if self.worst.as_ref().is_none_or(|(most, ..)| steps > *most) {
                self.worst = Some((steps, name.to_owned(), element.origin.tag.start, index));
            }
        }
    }
}

fn is_xsi_type(name: &QName) -> bool {
    name.namespace() == XSI && &*name.local == "type"
}

/// Searches the documents of a schema for costly patterns.
struct PatternSearch {
    /// Work that the analysis of patterns may still do.
    work: usize,
    /// The index of each pattern that has been analysed; `None` for a pattern that is not costly.
    costs: HashMap<String, Option<usize>>,
    patterns: Vec<CostlyPattern>,
    /// The costly patterns of each component.
    owned: BTreeMap<ValueOwner, BTreeSet<usize>>,
    /// Pairs of components. The patterns of the second apply to the values of the first.
    depends: Vec<(ValueOwner, ValueOwner)>,
    problems: Vec<SchemaProblem>,
}

impl PatternSearch {
    /// Visits an element of a schema. `owner` is the innermost named component around it.
    fn walk(&mut self, source: &SchemaDocument, element: &Element, owner: &Option<ValueOwner>) {
        let own = component(element);
        let owner = if own.is_some() { &own } else { owner };
        if let Some(owner) = owner.as_ref().filter(|_| is_xsd(&element.name)) {
            self.note_types(element, owner);
            if element.is("pattern") {
                self.note_pattern(source, element, owner);
            }
        }

        for child in element.children() {
            self.walk(source, child, owner);
        }
    }

    /// Notes the components whose patterns apply to the values of `owner`.
    fn note_types(&mut self, element: &Element, owner: &ValueOwner) {
        let types = ["type", "base", "itemType", "memberTypes"];
        let types = types.iter().filter_map(|attribute| element.attribute(attribute));
        for name in types.flat_map(str::split_whitespace) {
            self.depends.push((owner.clone(), ValueOwner::Type(local(name).to_owned())));
        }

        if let Some(head) = element.attribute("substitutionGroup") {
            let head = ValueOwner::Node(local(head.trim()).to_owned());
            self.depends.push((owner.clone(), head));
        }
    }

    fn note_pattern(&mut self, source: &SchemaDocument, element: &Element, owner: &ValueOwner) {
        let value = element.attribute("value").unwrap_or_default();
        // A pattern that the other check refuses has a problem already.
        if pattern_cost::check(value).is_err() {
            return;
        }

        if let Some(known) = self.costs.get(value) {
            if let Some(index) = known {
                self.owned.entry(owner.clone()).or_default().insert(*index);
            }
            return;
        }

        self.costs.insert(value.to_owned(), None);
        let analysed = MatchingCost::of(value, &mut self.work).zip(parse(value));
        let analysed = analysed.and_then(|(cost, parsed)| {
            let automaton = PatternAutomaton::of(&parsed)?;
            Some(CostlyPattern { value: value.to_owned(), cost, automaton })
        });
        // A pattern that is too large to be analysed is left to the bounds of the other check.
        let Some(pattern) = analysed else { return };
        if pattern.cost.length_max() >= limits::PAYLOAD_BYTES_MAX {
            return;
        }

        if pattern.cost.can_exceed(limits::PATTERN_LENGTH_MIN) {
            let place = format!("of the {} `{}`", owner.kind(), owner.name());
            let message = self.refusal(value, &place);
            self.problems.push(source.problem(element, "schema-pattern", message));
        }

        let index = self.patterns.len();
        self.patterns.push(pattern);
        self.costs.insert(value.to_owned(), Some(index));
        self.owned.entry(owner.clone()).or_default().insert(index);
    }

    /// Returns the message about a pattern that is too costly. Names the smallest repeated group
    /// that is too costly alone, if there is one.
    fn refusal(&mut self, value: &str, place: &str) -> String {
        let groups = parse(value).map(|parsed| parsed.repeated_groups).unwrap_or_default();
        let mut groups = groups.into_iter().filter_map(|range| value.get(range));
        let mut is_too_costly = |group: &&str| {
            let cost = MatchingCost::of(group, &mut self.work);
            cost.is_some_and(|cost| cost.can_exceed(limits::PATTERN_LENGTH_MIN))
        };

        let cause = match groups.find(|group| is_too_costly(group)) {
            Some(group) => format!("`{}` can match the same text in very many ways", shown(group)),
            None => "its repetitions can share the same text in very many ways".to_owned(),
        };
        format!(
            "matching the pattern `{}` {place} can take too long even for {} characters, because \
             {cause}; let each repetition begin with a character that cannot continue the part \
             before it, as in `[a-z]+( [a-z]+)*`",
            shown(value),
            limits::PATTERN_LENGTH_MIN
        )
    }

    /// Returns the costly patterns of each component, with those of its types.
    fn spread(&mut self) -> BTreeMap<ValueOwner, BTreeSet<usize>> {
        let mut owned = std::mem::take(&mut self.owned);
        let mut is_changed = !owned.is_empty();
        while is_changed {
            is_changed = false;
            for (owner, of) in &self.depends {
                let Some(patterns) = owned.get(of).cloned() else { continue };
                let own = owned.entry(owner.clone()).or_default();
                let before = own.len();
                own.extend(patterns);
                is_changed |= own.len() > before;
            }
        }

        owned
    }
}

/// Returns the named component that an element of a schema defines or declares; `None` for any
/// other element.
fn component(element: &Element) -> Option<ValueOwner> {
    let name = element.attribute("name")?.trim().to_owned();
    if element.is("simpleType") || element.is("complexType") {
        return Some(ValueOwner::Type(name));
    }

    (element.is("element") || element.is("attribute")).then_some(ValueOwner::Node(name))
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or_default()
}

/// Returns a pattern as a message shows it.
fn shown(pattern: &str) -> String {
    let mut shown: String = pattern.chars().take(SHOWN_MAX).collect();
    if shown.len() < pattern.len() {
        shown.push('…');
    }

    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(body: &str) -> Vec<SchemaDocument> {
        let text = format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:t' \
             xmlns='urn:t' elementFormDefault='qualified'>{body}</xs:schema>"
        );
        vec![SchemaDocument::parse(text.as_bytes(), "t.xsd", None).unwrap()]
    }

    fn named_type(pattern: &str) -> String {
        format!(
            "<xs:simpleType name='note'><xs:restriction base='xs:string'>\
             <xs:pattern value='{pattern}'/></xs:restriction></xs:simpleType>"
        )
    }

    #[test]
    fn a_pattern_that_is_too_costly_is_named_with_its_type_and_its_group() {
        let documents = documents(&named_type(r"x([a-z]+ ?[a-z]*)+\."));
        let (_, problems) = CostlyValues::of(&documents);
        assert_eq!(problems.len(), 1);
        let problem = &problems[0];
        assert_eq!(problem.code, "schema-pattern");
        assert!(problem.message.contains("of the type `note`"), "{problem}");
        assert!(problem.message.contains("because `([a-z]+ ?[a-z]*)+` can"), "{problem}");

        let documents = self::documents(&named_type("a*a*a*a*a*b"));
        let (_, problems) = CostlyValues::of(&documents);
        assert!(problems[0].message.contains("because its repetitions can"), "{problems:?}");
    }

    #[test]
    fn a_long_value_must_match_a_costly_pattern_wherever_its_type_is_used() {
        let body = named_type(".*a.*")
            + "<xs:simpleType name='short'><xs:restriction base='note'/></xs:simpleType>\
               <xs:simpleType name='all'><xs:list itemType='short'/></xs:simpleType>\
               <xs:element name='head' type='note'/>\
               <xs:element name='other' substitutionGroup='head'/>\
               <xs:element name='p'><xs:complexType><xs:sequence>\
               <xs:element name='i' type='all'/><xs:element name='free' type='xs:string'/>\
               </xs:sequence><xs:attribute name='at' type='short'/></xs:complexType></xs:element>";
        let documents = documents(&body);
        let (costly, problems) = CostlyValues::of(&documents);
        assert!(problems.is_empty(), "{problems:?}");

        let xsi = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'";
        let payloads = |long: &str| {
            [
                format!("<p xmlns='urn:t'><i>{long}</i></p>"),
                format!("<p xmlns='urn:t' at='{long}'/>"),
                format!("<other xmlns='urn:t'>{long}</other>"),
                format!("<p xmlns='urn:t'><free {xsi} xsi:type='note'>{long}</free></p>"),
            ]
        };
        let long = "b".repeat(8_000);
        for refused in payloads(&long) {
            let finding = costly.check(&refused).unwrap();
            assert_eq!(finding.code, "schema-pattern");
            assert!(finding.message.contains("does not match the pattern `.*a.*`"));
        }
        for matching in payloads(&format!("{long}a")) {
            assert_eq!(costly.check(&matching), None);
        }
        assert_eq!(costly.check(&format!("<p xmlns='urn:t'><free>{long}</free></p>")), None);
        assert_eq!(costly.check("<p xmlns='urn:t'><i>bench</i></p>"), None);
    }

    #[test]
    fn white_space_around_a_value_and_lists_do_not_keep_it_from_matching() {
        let body = named_type("[^ ]*a[^ ]*b?[^ ]*") + "<xs:element name='i' type='note'/>";
        let documents = documents(&body);
        let (costly, _) = CostlyValues::of(&documents);
        let value = "a".repeat(9_000);
        for matching in [format!("\n  {value}\n"), format!("{value} {value}\t{value}")] {
            assert_eq!(costly.check(&format!("<i xmlns='urn:t'>{matching}</i>")), None);
        }
        let other = value.replace('a', "c");
        assert!(costly.check(&format!("<i xmlns='urn:t'>{value} {other}</i>")).is_some());
    }

    #[test]
    fn a_schema_may_have_many_costly_patterns() {
        let patterns = (0..200).map(|number| {
            format!(
                "<xs:simpleType name='t{number}'><xs:restriction base='xs:string'>\
                 <xs:pattern value='.*word{number}.*'/></xs:restriction></xs:simpleType>"
            )
        });
        let documents = documents(&patterns.collect::<String>());
        let (_, problems) = CostlyValues::of(&documents);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn many_values_are_bounded_together() {
        let body = named_type(".*a.*") + "<xs:element name='i' type='note'/>";
        let documents = documents(&body);
        let (costly, _) = CostlyValues::of(&documents);
        let values = |count: usize, letter: &str| {
            let value = format!("<i>{}</i>", letter.repeat(3_000));
            format!("<p xmlns='urn:t'>{}</p>", value.repeat(count))
        };
        assert_eq!(costly.check(&values(2, "b")), None);
        assert_eq!(costly.check(&values(4, "a")), None);
        assert!(costly.check(&values(4, "b")).is_some());
    }
}

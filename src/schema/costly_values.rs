//! Finds costly patterns: patterns that libxml2 may need many steps to match. Refuses payloads with
//! values for which libxml2 could need too many steps.
//!
//! If a pattern is too costly even for a short text, this is a problem of the schema. Other costly
//! patterns take long only for some long values. So for each payload, this module computes the most
//! steps that libxml2 can need for its values. The time for this computation grows with the length
//! of the values. To find the patterns of a value without libxml2, the module finds elements and
//! attributes by their local names. If a value may have several types, the costliest type counts.

use std::collections::HashMap;

use super::compared_types::{ComparedTypes, ValueOwner};
use super::matching_cost::MatchingCost;
use super::pattern_automaton::PatternAutomaton;
use super::pattern_cost;
use super::pattern_term::parse;
use super::schema_problem::SchemaProblem;
use super::source::SchemaDocument;
use super::value_comparison::ValueComparison;
use super::xsd::{SchemaElement, is_xsi_type};
use crate::limits;
use crate::shorten::shorten;
use crate::xml::element::Element;
use crate::xml::findings::{Finding, TextLocation};

/// An error text shows at most this number of characters of a pattern.
const SHOWN_MAX: usize = 120;

/// The types and patterns of a schema, for finding the values that are compared with costly
/// patterns.
#[derive(Default)]
pub struct CostlyValues {
    /// The texts of the analysed patterns; empty if no pattern is costly.
    patterns: Vec<String>,
    automata: Vec<PatternAutomaton>,
    types: ComparedTypes,
}

impl CostlyValues {
    /// Analyses the types and patterns of a schema. Also returns a problem for each pattern that is
    /// too costly even for a short text, except the patterns that `pattern_cost::check` refuses. If
    /// several types have the same pattern, only the first of them gets a problem.
    pub fn of(sources: &[SchemaDocument]) -> (Self, Vec<SchemaProblem>) {
        let mut search = PatternSearch {
            work: limits::SCHEMA_PATTERN_WORK_MAX,
            indices: HashMap::new(),
            patterns: Vec::new(),
            problems: Vec::new(),
        };
        for source in sources {
            search.walk(source, &source.root, &None);
        }

        let PatternSearch { indices, patterns, problems, .. } = search;
        if !patterns.iter().any(|pattern| pattern.is_costly) {
            return (Self::default(), problems);
        }

        let pattern_index = |value: &str| indices.get(value).copied().flatten();
        let is_costly = |index: usize| patterns.get(index).is_some_and(|found| found.is_costly);
        let types = ComparedTypes::of(sources, &pattern_index, &is_costly);
        let (patterns, automata) =
            patterns.into_iter().map(|found| (found.value, found.automaton)).unzip();
        (Self { patterns, automata, types }, problems)
    }

    /// Checks that libxml2 can compare all values of a payload with their patterns within the
    /// maximum number of steps. Returns `None` if it can, or if the payload cannot be read as a
    /// document. Otherwise, returns a finding about the costliest value.
    pub fn check(&self, payload: &str) -> Option<Finding> {
        if self.patterns.is_empty() {
            return None;
        }

        let root = Element::read_document(payload)?;
        let comparison = ValueComparison::new(&self.types, &self.automata);
        let mut sum = CostSum { types: &self.types, comparison, steps: 0, worst: None };
        sum.add(&root);
        if sum.steps <= limits::PATTERN_STEPS_MAX {
            return None;
        }

        let worst = sum.worst?;
        let pattern = worst.pattern.and_then(|index| self.patterns.get(index));
        let pattern = pattern.map_or_else(
            || "the patterns of its type".to_owned(),
            |pattern| format!("the pattern `{}`", shorten(pattern, SHOWN_MAX)),
        );
        let name = &worst.name;
        let message = if worst.steps > limits::PATTERN_STEPS_MAX {
            format!("the value of `{name}` cannot be compared with {pattern} in bounded time")
        } else {
            format!(
                "the values of the payload cannot be compared with their patterns in bounded time; \
                 the costliest is this value of `{name}` with {pattern}"
            )
        };
        let place = TextLocation::at(payload.as_bytes(), worst.start);
        Some(Finding::new("schema-pattern-length", place, message))
    }
}

/// Whether matching `pattern` can take too long even for a short text. The analysis reduces `work`,
/// the work that it may do. Returns false if the work does not suffice for the analysis.
pub fn is_too_costly(pattern: &str, work: &mut usize) -> bool {
    let cost = MatchingCost::of(pattern, work);
    cost.is_some_and(|cost| cost.can_exceed(limits::PATTERN_LENGTH_MIN))
}

/// The costliest value of a payload: the one for which libxml2 needs the most steps.
struct CostliestValue {
    steps: u64,
    /// Local name of the element or attribute that has the value.
    name: String,
    /// Byte offset of the start tag of the element that has the value, or whose attribute has it.
    start: usize,
    /// Index of the pattern that costs most for the value; `None` if it is unknown.
    pattern: Option<usize>,
}

/// Sum of the steps that libxml2 can need for the values of a payload. The addition ends when the
/// sum exceeds the bound.
struct CostSum<'a> {
    types: &'a ComparedTypes,
    comparison: ValueComparison<'a>,
    steps: u64,
    worst: Option<CostliestValue>,
}

impl CostSum<'_> {
    fn add(&mut self, element: &Element) {
        let types = self.types;
        let owner = ValueOwner::Element(element.local_name().to_owned());
        let mut candidates = types.costly(&owner).to_vec();
        let xsi_type = element.attributes.iter().find(|(name, _)| is_xsi_type(name));
        if let Some(name) = xsi_type.and_then(|(_, written)| element.resolve(written)) {
            candidates.extend(types.costly_named(&name));
        }
        if !candidates.is_empty() {
            self.add_value(element, element.local_name(), &candidates, &element.own_text());
        }

        for (name, value) in &element.attributes {
            let owner = ValueOwner::Attribute((*name.local).to_owned());
            self.add_value(element, &name.local, types.costly(&owner), value);
        }

        for child in element.children() {
            self.add(child);
        }
    }

    fn add_value(&mut self, element: &Element, name: &str, candidates: &[usize], value: &str) {
        if candidates.is_empty() || self.steps > limits::PATTERN_STEPS_MAX {
            return;
        }

        let (steps, pattern) = self.comparison.steps(candidates, value);
        self.steps = self.steps.saturating_add(steps);
        if self.worst.as_ref().is_none_or(|worst| steps > worst.steps) {
            let start = element.origin.tag.start;
            self.worst = Some(CostliestValue { steps, name: name.to_owned(), start, pattern });
        }
    }
}

/// An analysed pattern of a schema.
struct AnalysedPattern {
    value: String,
    automaton: PatternAutomaton,
    /// Whether libxml2 can exceed the maximum number of steps for a single value that is compared
    /// with this pattern.
    is_costly: bool,
}

/// Searches the documents of a schema for costly patterns.
struct PatternSearch {
    /// Remaining work that the analysis of the patterns may do, out of
    /// [`limits::SCHEMA_PATTERN_WORK_MAX`] for all patterns of the schema.
    work: usize,
    /// The index of each pattern; `None` for a pattern that cannot be analysed.
    indices: HashMap<String, Option<usize>>,
    patterns: Vec<AnalysedPattern>,
    problems: Vec<SchemaProblem>,
}

impl PatternSearch {
    /// Visits an element of a schema document and all elements within it. `owner` is the innermost
    /// named component that contains the element.
    fn walk(&mut self, source: &SchemaDocument, element: &Element, owner: &Option<ValueOwner>) {
        let own = ValueOwner::of(element);
        let owner = if own.is_some() { &own } else { owner };
        if let Some(owner) = owner.as_ref().filter(|_| element.is("pattern")) {
            self.note_pattern(source, element, owner);
        }

        for child in element.children() {
            self.walk(source, child, owner);
        }
    }

    fn note_pattern(&mut self, source: &SchemaDocument, element: &Element, owner: &ValueOwner) {
        let value = element.attribute("value").unwrap_or_default();
        // A pattern that the other check refuses has a problem already.
        if pattern_cost::check(value).is_err() || self.indices.contains_key(value) {
            return;
        }

        let analysed = MatchingCost::of(value, &mut self.work).zip(parse(value));
        let analysed = analysed.and_then(|(cost, parsed)| {
            let automaton = PatternAutomaton::of(&parsed)?;
            Some((cost, automaton))
        });
        // A pattern that is too large to be analysed is left to the bounds of the other check.
        let Some((cost, automaton)) = analysed else {
            self.indices.insert(value.to_owned(), None);
            return;
        };

        if cost.can_exceed(limits::PATTERN_LENGTH_MIN) {
            let place = format!("of the {} `{}`", owner.kind(), owner.name());
            let message = self.refusal(value, &place);
            self.problems.push(source.problem(element, "schema-pattern", message));
        }

        let is_costly = cost.length_max() < limits::PAYLOAD_BYTES_MAX;
        self.indices.insert(value.to_owned(), Some(self.patterns.len()));
        self.patterns.push(AnalysedPattern { value: value.to_owned(), automaton, is_costly });
    }

    /// Returns the message about a pattern that is too costly. If a repeated group of the pattern
    /// is too costly by itself, the message names the smallest such group.
    fn refusal(&mut self, value: &str, place: &str) -> String {
        let groups = parse(value).map(|parsed| parsed.repeated_groups).unwrap_or_default();
        let mut groups = groups.into_iter().filter_map(|range| value.get(range));

        let cause = match groups.find(|group| is_too_costly(group, &mut self.work)) {
            Some(group) => {
                format!("`{}` can match the same text in very many ways", shorten(group, SHOWN_MAX))
            }
            None => "its repetitions can share the same text in very many ways".to_owned(),
        };
        format!(
            "matching the pattern `{}` {place} can take too long even for {} characters, because \
             {cause}; let each repetition begin with a character that cannot continue the part \
             before it, as in `[a-z]+( [a-z]+)*`",
            shorten(value, SHOWN_MAX),
            limits::PATTERN_LENGTH_MIN
        )
    }
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

    /// Returns the finding about `payload` under a schema with the content `body`, if there is one.
    fn check(body: &str, payload: &str) -> Option<Finding> {
        let (costly, problems) = CostlyValues::of(&documents(body));
        assert!(problems.is_empty(), "{problems:?}");
        costly.check(payload)
    }

    /// Returns a schema whose element `i` has a type with the given content.
    fn element_of(content: &str) -> String {
        format!("<xs:element name='i'><xs:simpleType>{content}</xs:simpleType></xs:element>")
    }

    fn restriction(base: &str, facets: &str) -> String {
        format!("<xs:restriction base='{base}'>{facets}</xs:restriction>")
    }

    #[test]
    fn a_costly_value_is_refused_wherever_its_type_is_used() {
        let body = named_type("[^!]*a[^!]*")
            + "<xs:simpleType name='short'><xs:restriction base='note'/></xs:simpleType>\
               <xs:simpleType name='all'><xs:list itemType='short'/></xs:simpleType>\
               <xs:complexType name='text'><xs:simpleContent><xs:extension base='short'/>\
               </xs:simpleContent></xs:complexType>\
               <xs:element name='head' type='note'/>\
               <xs:element name='other' substitutionGroup='head'/>\
               <xs:element name='p'><xs:complexType><xs:sequence>\
               <xs:element name='i' type='all'/><xs:element name='free' type='xs:string'/>\
               <xs:element name='t' type='text'/>\
               </xs:sequence><xs:attribute name='at' type='short'/></xs:complexType></xs:element>";
        let xsi = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'";
        let payloads = |long: &str| {
            [
                format!("<p xmlns='urn:t'><i>b {long}</i></p>"),
                format!("<p xmlns='urn:t'><t>{long}</t></p>"),
                format!("<p xmlns='urn:t' at='{long}'/>"),
                format!("<other xmlns='urn:t'>{long}</other>"),
                format!("<p xmlns='urn:t'><free {xsi} xsi:type='note'>{long}</free></p>"),
            ]
        };
        let long = "a".repeat(8_000);
        for refused in payloads(&format!("{long}!")) {
            let finding = check(&body, &refused).unwrap();
            assert_eq!(finding.code, "schema-pattern-length");
            let reason = "cannot be compared with the pattern `[^!]*a[^!]*` in bounded time";
            assert!(finding.message.contains(reason), "{finding:?}");
        }
        for cheap in payloads(&long).into_iter().chain(payloads("a!")) {
            assert_eq!(check(&body, &cheap), None);
        }
        assert_eq!(check(&body, &format!("<p xmlns='urn:t'><free>{long}!</free></p>")), None);
    }

    #[test]
    fn a_line_end_or_a_double_space_makes_a_value_costly_only_where_white_space_is_kept() {
        let mail = "<xs:pattern value='.+@.+[.].+'/>";
        let words = "<xs:pattern value='( ?x)*( ?x)*( ?x)*'/>";
        let collapse = "<xs:whiteSpace value='collapse'/>";
        let mails = "@.".repeat(1_000);
        let xs = " x".repeat(1_000);
        for (facets, value) in [
            (mail, format!("{mails}&#10;")),
            (mail, format!("{mails}\n")),
            (words, format!("{xs}  x")),
            (words, format!("{xs}\n")),
        ] {
            let payload = format!("<i xmlns='urn:t'>{value}</i>");
            let kept = element_of(&restriction("xs:string", facets));
            assert!(check(&kept, &payload).is_some(), "{facets}");
            let collapsed = element_of(&restriction("xs:token", facets));
            assert_eq!(check(&collapsed, &payload), None, "{facets}");
            let own = element_of(&restriction("xs:string", &format!("{collapse}{facets}")));
            assert_eq!(check(&own, &payload), None, "{facets}");
            let attribute = "<xs:element name='p'><xs:complexType>".to_owned()
                + &element_of(&restriction("xs:string", facets)).replace("element", "attribute")
                + "</xs:complexType></xs:element>";
            let payload = format!("<p xmlns='urn:t' i='{value}'/>").replace('\n', "&#10;");
            assert!(check(&attribute, &payload).is_some(), "{facets}");
        }

        let replaced = element_of(&restriction("xs:normalizedString", mail));
        assert_eq!(check(&replaced, &format!("<i xmlns='urn:t'>{mails}\n</i>")), None);
        let list = named_type(".+@.+[.].+") + &element_of("<xs:list itemType='note'/>");
        assert_eq!(check(&list, &format!("<i xmlns='urn:t'>{mails}\n {mails}</i>")), None);
    }

    #[test]
    fn a_value_costs_only_the_alternatives_that_libxml2_tries() {
        let patterns = |values: [&str; 2]| {
            let facets = values.map(|value| format!("<xs:pattern value='{value}'/>"));
            element_of(&restriction("xs:string", &facets.concat()))
        };
        let union = |members: &str| {
            named_type(".*a.*b")
                + "<xs:simpleType name='as'><xs:restriction base='xs:string'>\
                   <xs:pattern value='a+'/></xs:restriction></xs:simpleType>"
                + &element_of(&format!("<xs:union memberTypes='{members}'/>"))
        };
        let value = format!("<i xmlns='urn:t'>{}</i>", "a".repeat(8_000));
        assert_eq!(check(&patterns(["a+", ".*a.*b"]), &value), None);
        assert!(check(&patterns([".*a.*b", "a+"]), &value).is_some());
        assert_eq!(check(&union("as note"), &value), None);
        assert!(check(&union("note as"), &value).is_some());
        assert!(check(&union("xs:integer note as"), &value).is_some());

        let log = patterns([".*ERROR.*", ".*WARN.*"]);
        for word in ["ERROR", "WARN", "INFO"] {
            let line = format!("{} {word} {}", "a".repeat(5_000), "R".repeat(5_000));
            assert_eq!(check(&log, &format!("<i xmlns='urn:t'>{line}</i>")), None);
        }
        let phones =
            named_type(".+@.+[.].+") + &element_of("<xs:union memberTypes='note xs:string'/>");
        let phones_payload = "<i>+43 660 123 45 67 89 000</i>".repeat(5_000);
        let phones_payload = format!("<p xmlns='urn:t'>{phones_payload}</p>");
        assert_eq!(check(&phones, &phones_payload), None);
    }

    #[test]
    fn xsi_type_adds_only_the_patterns_of_the_type_that_it_names() {
        let body = named_type(".*a.*b")
            + "<xs:complexType name='text'><xs:simpleContent><xs:extension base='xs:string'/>\
               </xs:simpleContent></xs:complexType><xs:element name='i' type='xs:string'/>";
        let typed = |name: &str| {
            let long = "a".repeat(8_000);
            format!(
                "<i xmlns='urn:t' xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' \
                 xsi:type='{name}'>{long}</i>"
            )
        };
        assert_eq!(check(&body, &typed("text")), None);
        assert!(check(&body, &typed("note")).is_some());
    }

    #[test]
    fn elements_of_one_name_and_type_are_compared_once() {
        let declared = "<xs:element name='p'><xs:complexType><xs:sequence>\
            <xs:element name='i' type='note'/></xs:sequence></xs:complexType></xs:element>";
        let body = named_type(".*a.*") + &declared.repeat(300);
        let (costly, _) = CostlyValues::of(&documents(&body));
        assert_eq!(costly.types.costly(&ValueOwner::Element("i".to_owned())).len(), 1);
    }

    #[test]
    fn a_schema_may_have_many_costly_patterns() {
        let patterns = (0..100).map(|number| {
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
        let values = |count: usize, letter: &str, end: &str| {
            let value = format!("<i>{}</i>", letter.repeat(3_000) + end);
            format!("<p xmlns='urn:t'>{}</p>", value.repeat(count))
        };
        assert_eq!(costly.check(&values(2, "a", "\n")), None);
        assert_eq!(costly.check(&values(4, "a", "")), None);
        assert_eq!(costly.check(&values(4, "b", "\n")), None);
        let finding = costly.check(&values(4, "a", "\n")).unwrap();
        let reason = "the values of the payload cannot be compared with their patterns";
        assert!(finding.message.contains(reason), "{finding:?}");
    }
}

//! The view of a run: the XML document from which expressions select values.

use std::collections::HashMap;

use crate::schema::{XPathDocument, XPathError, XPathNode, XPathValue};
use crate::xml::element::Element;
use crate::xml::shape::QName;

/// The document from which expressions select values. It contains the input of a run and the
/// outputs of goals.
pub struct RunView {
    document: XPathDocument,
    /// The entries of the view as elements, in which the payloads keep their namespaces.
    originals: Vec<Element>,
}

/// One output in the view, with the name by which expressions select it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewEntry {
    pub name: String,
    /// Position of an item in its list, counted from 0; `None` if the output belongs to no item.
    pub item: Option<usize>,
    pub value: ViewValue,
}

impl ViewEntry {
    pub fn new(name: &str, value: ViewValue) -> Self {
        Self { name: name.to_owned(), item: None, value }
    }

    pub fn of_item(name: &str, position: usize, value: ViewValue) -> Self {
        Self { item: Some(position), ..Self::new(name, value) }
    }
}

/// The output of a goal, or of a run of a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewValue {
    Text(String),
    /// One payload. The element is boxed to keep the enum small, because most outputs are texts.
    Payload(Box<Element>),
    /// Outputs of several runs of one goal.
    Several(Vec<ViewEntry>),
    /// Copies of several nodes that the expression for a run's output selects. At least one of
    /// these nodes is an element with children.
    Elements(Vec<Element>),
}

impl ViewValue {
    /// Returns the number of bytes of the texts and names in the value.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Payload(payload) => payload.text_bytes(),
            Self::Several(runs) => runs.iter().map(|run| run.name.len() + run.value.bytes()).sum(),
            Self::Elements(copies) => copies.iter().map(Element::text_bytes).sum(),
        }
    }
}

impl RunView {
    /// Creates the view with these entries.
    ///
    /// # Errors
    ///
    /// Fails if an output is beyond the limits of a payload.
    pub fn new(entries: &[ViewEntry]) -> Result<Self, XPathError> {
        let children: Vec<_> =
            entries.iter().map(|entry| (element_of(entry), payload_of(&entry.value))).collect();
        let mut document = XPathDocument::new("run", &children)?;
        for (position, entry) in (0u32..).zip(entries) {
            if let ViewValue::Several(runs) = &entry.value {
                for (inner, run) in (0u32..).zip(runs) {
                    if let Some(name) = payload_of(&run.value) {
                        document.name_payload(vec![position, inner], &name);
                    }
                }
            }
        }

        let originals = entries.iter().map(original_of).collect();
        Ok(Self { document, originals })
    }

    /// Makes `has-word` search its first argument as one text, if `joins_texts` is true. See
    /// [`XPathDocument::joining_texts`].
    #[must_use]
    pub fn joining_texts(mut self, joins_texts: bool) -> Self {
        self.document = self.document.joining_texts(joins_texts);
        self
    }

    /// Makes a number with a plus sign no number in expressions, if `refuses_plus_signs` is true.
    /// See [`XPathDocument::refusing_plus_signs`].
    #[must_use]
    pub fn refusing_plus_signs(mut self, refuses_plus_signs: bool) -> Self {
        self.document = self.document.refusing_plus_signs(refuses_plus_signs);
        self
    }

    /// Returns the value of an expression.
    ///
    /// # Errors
    ///
    /// Fails if the expression is not XPath 1.0, or if its evaluation exceeds a limit.
    pub fn evaluate(&self, expression: &str) -> Result<XPathValue, XPathError> {
        self.document.evaluate(expression)
    }

    /// Returns the text of each node that an expression selects, in order. If the value of the
    /// expression is no set of nodes, returns the text of the value.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`].
    pub fn texts(&self, expression: &str) -> Result<Vec<String>, XPathError> {
        match self.evaluate(expression)? {
            XPathValue::Nodes(nodes) => Ok(nodes.into_iter().map(|node| node.text).collect()),
            value => Ok(vec![value.to_text()]),
        }
    }

    /// Returns the nodes that an expression selects, in order. An element stays an element, with
    /// its namespaces. With `has_text_items`, an element without children and attributes becomes
    /// its text ([`RunRules::TextItems`](super::run_definition::RunRules::TextItems)).
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`], or if the value of the expression is no
    /// set of nodes.
    pub fn items(
        &self,
        expression: &str,
        has_text_items: bool,
    ) -> Result<Vec<ViewValue>, XPathError> {
        let XPathValue::Nodes(nodes) = self.evaluate(expression)? else {
            return Err(XPathError::Invalid(format!("{expression} selects no nodes")));
        };
        let mut elements = self.original_elements();
        let is_kept = |element: &Element| !has_text_items || !is_text(element);
        Ok(nodes.iter().map(|node| value_of(node, &mut elements, is_kept)).collect())
    }

    /// Returns the output that an expression selects; `None` if nothing is selected. If at least
    /// one selected node is an element with children, the output contains a copy of each node.
    /// Otherwise, the output is a text with the text of each node on a line of its own.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`].
    pub fn select(&self, expression: &str) -> Result<Option<ViewValue>, XPathError> {
        let value = self.evaluate(expression)?;
        let XPathValue::Nodes(nodes) = &value else {
            return Ok(Some(ViewValue::Text(value.to_text())));
        };
        let mut elements = self.original_elements();
        let values = nodes.iter().map(|node| value_of(node, &mut elements, is_structured));
        let mut values: Vec<_> = values.collect();
        if values.len() <= 1 {
            return Ok(values.pop());
        }

        let is_text = values.iter().all(|value| matches!(value, ViewValue::Text(_)));
        if is_text {
            let texts: Vec<_> = nodes.iter().map(|node| node.text.as_str()).collect();
            return Ok(Some(ViewValue::Text(texts.join("\n"))));
        }
        let copies = nodes.iter().map(|node| copy_of(node, &mut elements));
        Ok(Some(ViewValue::Elements(copies.collect())))
    }

    /// Returns the element that an expression selects, with its namespaces. Returns `None` if the
    /// expression selects nothing, or a node that is not an element. If `takes_first` is true, only
    /// the first of several nodes counts.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`]. If `takes_first` is false, also fails if
    /// the expression selects several nodes, because a payload is one element.
    pub fn payload(
        &self,
        expression: &str,
        takes_first: bool,
    ) -> Result<Option<Element>, XPathError> {
        let XPathValue::Nodes(nodes) = self.evaluate(expression)? else { return Ok(None) };
        if nodes.len() > 1 && !takes_first {
            let count = nodes.len();
            let message = format!("{expression} selects {count} nodes, and a payload is one");
            return Err(XPathError::Invalid(message));
        }

        let positions = nodes.first().and_then(|node| node.element.as_ref());
        Ok(positions.and_then(|at| self.original_elements().at(at)).cloned())
    }

    /// Whether the condition `expression` is true in this view.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`].
    pub fn is_true(&self, expression: &str) -> Result<bool, XPathError> {
        self.document.evaluate_flag(expression)
    }

    fn original_elements(&self) -> ElementIndex<'_> {
        ElementIndex::new(self.originals.iter().collect())
    }

    /// Returns the text that a placeholder with this expression inserts. Each selected node becomes
    /// one line: an element with children becomes XML, and any other node becomes its text.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`RunView::evaluate`].
    pub fn insert(&self, expression: &str) -> Result<String, XPathError> {
        let value = self.evaluate(expression)?;
        let XPathValue::Nodes(nodes) = &value else { return Ok(value.to_text()) };
        let mut elements = ElementIndex::new(self.document.root().children().collect());
        let texts = nodes.iter().map(|node| {
            let element = node.element.as_ref().and_then(|at| elements.at(at));
            match element.filter(|element| is_structured(element)) {
                Some(element) => element.to_xml(),
                None => node.text.clone(),
            }
        });
        Ok(texts.collect::<Vec<_>>().join("\n"))
    }
}

/// An index that finds elements by their positions. It lists the children of each element only
/// once, even for many searches.
struct ElementIndex<'a> {
    children: HashMap<Vec<u32>, Vec<&'a Element>>,
}

impl<'a> ElementIndex<'a> {
    fn new(top: Vec<&'a Element>) -> Self {
        Self { children: HashMap::from([(Vec::new(), top)]) }
    }

    fn at(&mut self, positions: &[u32]) -> Option<&'a Element> {
        let (last, parent) = positions.split_last()?;
        if !self.children.contains_key(parent) {
            let listed = self.at(parent)?.children().collect();
            self.children.insert(parent.to_vec(), listed);
        }
        self.children.get(parent)?.get(usize::try_from(*last).ok()?).copied()
    }
}

/// Returns the element of a node if `is_kept` is true for this element. Returns the text of any
/// other node.
fn value_of(
    node: &XPathNode,
    elements: &mut ElementIndex<'_>,
    is_kept: impl Fn(&Element) -> bool,
) -> ViewValue {
    let original = node.element.as_ref().and_then(|at| elements.at(at));
    match original.filter(|element| is_kept(element)) {
        Some(element) => ViewValue::Payload(Box::new(element.clone())),
        None => ViewValue::Text(node.text.clone()),
    }
}

/// Name of an element in the output of a run. The element stands for a selected node that is not an
/// element, such as an attribute, and contains the text of this node.
pub(super) const ITEM: &str = "item";

/// Returns a copy of the element of a node. A node that is no element becomes an element `item`
/// with the text of the node.
fn copy_of(node: &XPathNode, elements: &mut ElementIndex<'_>) -> Element {
    let original = node.element.as_ref().and_then(|at| elements.at(at));
    let item = || Element::local(ITEM).with_text(node.text.clone());
    original.cloned().unwrap_or_else(item)
}

fn is_structured(element: &Element) -> bool {
    element.children().next().is_some()
}

/// Whether an element has neither children nor attributes, so that its text is all that it
/// contains.
pub(super) fn is_text(element: &Element) -> bool {
    !is_structured(element) && element.attributes.is_empty()
}

/// Converts an entry of the view to an element. The element has the name of the entry and no
/// namespace.
fn element_of(entry: &ViewEntry) -> Element {
    let mut element = Element::new(QName::new(None, &entry.name));
    match &entry.value {
        ViewValue::Text(text) => element.with_text(text.clone()),
        ViewValue::Payload(payload) => {
            element.attributes.clone_from(&payload.attributes);
            element.content.clone_from(&payload.content);
            element
        }
        ViewValue::Several(runs) => {
            runs.iter().fold(element, |element, run| element.with_child(element_of(run)))
        }
        ViewValue::Elements(copies) => copies.iter().cloned().fold(element, Element::with_child),
    }
}

/// Converts an entry of the view to an element, as [`element_of`] does, but keeps payloads
/// unchanged, with their namespaces. Each child has the same position in both results. So if an
/// expression selects a node in the view, the position of this node also locates the original
/// element.
fn original_of(entry: &ViewEntry) -> Element {
    let element = Element::local(&entry.name);
    match &entry.value {
        ViewValue::Text(text) => element.with_text(text.clone()),
        ViewValue::Payload(payload) => (**payload).clone(),
        ViewValue::Several(runs) => {
            runs.iter().fold(element, |element, run| element.with_child(original_of(run)))
        }
        ViewValue::Elements(copies) => copies.iter().cloned().fold(element, Element::with_child),
    }
}

fn payload_of(value: &ViewValue) -> Option<String> {
    match value {
        ViewValue::Payload(payload) => Some(payload.local_name().to_owned()),
        ViewValue::Text(_) | ViewValue::Several(_) | ViewValue::Elements(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: ViewValue) -> ViewEntry {
        ViewEntry::new(name, value)
    }

    fn payload(text: &str) -> ViewValue {
        ViewValue::Payload(Box::new(Element::read(text).expect("it is one element")))
    }

    fn view() -> RunView {
        RunView::new(&[
            entry("input", payload("<essay xmlns='urn:e'><topic>a &lt; b</topic></essay>")),
            entry("draft", ViewValue::Text("one\n\nPUBLISH".to_owned())),
            entry("plan", payload("<plan xmlns='urn:p'><task><role>r</role></task><task/></plan>")),
            entry(
                "evaluate",
                ViewValue::Several(vec![
                    entry("optimist", ViewValue::Text("yes".to_owned())),
                    entry("critic", payload("<verdict xmlns='urn:v'>no</verdict>")),
                ]),
            ),
        ])
        .expect("it is a view")
    }

    fn inserted(expression: &str) -> String {
        view().insert(expression).expect("the expression has a value")
    }

    #[test]
    fn an_output_stands_under_the_name_of_its_goal() {
        assert_eq!(inserted("input/topic"), "a < b");
        assert_eq!(inserted("last-line(draft)"), "publish");
        assert_eq!(inserted("evaluate/critic"), "no");
        assert_eq!(inserted("payload(evaluate/critic)"), "verdict");
        assert_eq!(inserted("payload(plan)"), "plan");
        assert_eq!(inserted("payload(draft)"), "");
    }

    #[test]
    fn several_nodes_stand_on_one_line_each() {
        assert_eq!(inserted("evaluate/*"), "yes\nno");
    }

    #[test]
    fn an_element_with_children_is_inserted_as_its_xml() {
        assert_eq!(inserted("plan/task[1]"), "<task><role>r</role></task>");
        assert_eq!(inserted("plan/task[1]/role"), "r");
    }

    #[test]
    fn a_selected_payload_keeps_its_namespaces() {
        let selected = view().payload("plan", false).expect("a value").expect("an element");
        assert_eq!(selected.name.namespace(), "urn:p");
        let item = view().items("plan/task", false).expect("nodes").into_iter().next();
        let Some(ViewValue::Payload(item)) = item else { panic!("it is an element") };
        assert_eq!(item.to_xml(), "<task xmlns=\"urn:p\"><role>r</role></task>");
    }

    #[test]
    fn several_nodes_are_no_payload() {
        let refused = view().payload("plan | draft", false);
        let message = "plan | draft selects 2 nodes, and a payload is one".to_owned();
        assert_eq!(refused, Err(XPathError::Invalid(message)));

        let first = view().payload("plan | draft", true).expect("a value").expect("an element");
        assert_eq!(first.local_name(), "draft");
    }

    #[test]
    fn several_elements_of_an_output_are_copied_side_by_side() {
        let selected = view().select("plan/task | draft").expect("a value");
        let Some(ViewValue::Elements(copies)) = selected else { panic!("{selected:?}") };
        let texts: Vec<_> = copies.iter().map(Element::to_xml).collect();
        let expected = [
            "<draft>one\n\nPUBLISH</draft>",
            "<task xmlns=\"urn:p\"><role>r</role></task>",
            "<task xmlns=\"urn:p\"/>",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn an_item_is_the_selected_element_with_its_name_and_its_attributes() {
        let plan = payload("<plan xmlns='urn:p'><task n='1'>a</task><task>b</task></plan>");
        let view = RunView::new(&[entry("plan", plan)]).expect("it is a view");
        let items = view.items("plan/task | plan/task/@n", false).expect("nodes");
        let texts: Vec<_> = items
            .iter()
            .map(|item| match item {
                ViewValue::Payload(element) => element.to_xml(),
                other => format!("{other:?}"),
            })
            .collect();
        let first = "<task xmlns=\"urn:p\" n=\"1\">a</task>";
        let expected = [first, "Text(\"1\")", "<task xmlns=\"urn:p\">b</task>"];
        assert_eq!(texts, expected);

        let items = view.items("plan/task", true).expect("nodes");
        let [ViewValue::Payload(_), ViewValue::Text(second)] = items.as_slice() else {
            panic!("{items:?}")
        };
        assert_eq!(second, "b");
    }

    #[test]
    fn an_item_without_children_is_the_payload_and_its_text_is_inserted() {
        let notes = payload("<notes xmlns='urn:p'><note>a &lt; b</note><ping/></notes>");
        let view = RunView::new(&[entry("notes", notes)]).expect("it is a view");
        let items = view.items("notes/*", false).expect("nodes").into_iter();
        let views = items.map(|item| RunView::new(&[entry("item", item)]).expect("it is a view"));
        let views: Vec<_> = views.collect();
        let element = |view: &RunView| {
            let element = view.payload("item", false).expect("a value").expect("an element");
            element.to_xml()
        };
        let inserted = |view: &RunView| view.insert("item").expect("the expression has a value");
        assert_eq!(element(&views[0]), "<note xmlns=\"urn:p\">a &lt; b</note>");
        assert_eq!(inserted(&views[0]), "a < b");
        assert_eq!(element(&views[1]), "<ping xmlns=\"urn:p\"/>");
        assert_eq!(inserted(&views[1]), "");
    }

    #[test]
    fn an_output_is_an_element_with_children_or_else_text() {
        let selected = |expression: &str| view().select(expression).expect("a value");
        assert_eq!(selected("draft"), Some(ViewValue::Text("one\n\nPUBLISH".to_owned())));
        assert!(matches!(selected("plan"), Some(ViewValue::Payload(_))));
        assert_eq!(selected("plan/nothing"), None);
        assert_eq!(selected("evaluate/*"), Some(ViewValue::Text("yes\nno".to_owned())));
        assert_eq!(selected("count(plan/task)"), Some(ViewValue::Text("2".to_owned())));
    }

    #[test]
    fn nothing_selected_inserts_nothing() {
        assert_eq!(inserted("plan/nothing"), "");
    }
}

//! Evaluation of XPath 1.0 by libxml2.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_ulong};
use std::ptr::NonNull;

use libxml::bindings as c;

use super::super::xpath::{self, XPathError, XPathNode, XPathValue};
use super::super::xpath_numbers;
use super::{CaughtMessages, ParsedDocument, bytes_of, no_memory, ready, take};
use crate::limits;

thread_local! {
    /// The payloads in the document: the local name of each, by the element that contains the
    /// payload. Empty except during an evaluation.
    static PAYLOADS: RefCell<HashMap<*const c::xmlNode, String>> = RefCell::default();

    /// For each node whose text is a number with a plus sign, a text node with the number without
    /// the sign. Empty except during an evaluation, which creates each text node at its first use.
    static NUMBERS: RefCell<HashMap<*const c::xmlNode, NumberNode>> = RefCell::default();
}

/// A text node outside of the document.
struct NumberNode(c::xmlNodePtr);

impl Drop for NumberNode {
    fn drop(&mut self) {
        // SAFETY: the node is ours alone, and belongs to no tree.
        unsafe { c::xmlFreeNode(self.0) }
    }
}

/// Finds the positions of elements among their siblings. Each search continues where the previous
/// search ended. So one pass over a tree is enough to look up all its elements in document order.
#[derive(Default)]
struct ElementPositions {
    /// For each parent, the child that was looked up last, and its position.
    latest: HashMap<*const c::xmlNode, (*const c::xmlNode, u32)>,
}

impl ElementPositions {
    /// Returns the path from the root to `node`: at each level below the root, the position of an
    /// element among its siblings.
    ///
    /// SAFETY: `node` is an element of a live tree, and the tree is the same in all calls.
    unsafe fn of(&mut self, node: *const c::xmlNode) -> Vec<u32> {
        let mut positions = Vec::new();
        let mut next = node;
        // SAFETY: parents of a live node are alive or null.
        unsafe {
            while let Some(parent) = (*next).parent.as_ref() {
                if parent.type_ != c::xmlElementType_XML_ELEMENT_NODE {
                    break;
                }

                let is_it = |other: *const c::xmlNode, _: u32| other == next;
                positions.extend(self.find(parent, is_it).map(|(_, position)| position));
                next = parent;
            }
        }

        positions.reverse();
        positions
    }

    /// Returns the element at the end of the path `positions` from `root`; `None` if there is no
    /// such element. The inverse of [`ElementPositions::of`].
    ///
    /// SAFETY: as for [`ElementPositions::of`].
    unsafe fn at(
        &mut self,
        root: *const c::xmlNode,
        positions: &[u32],
    ) -> Option<*const c::xmlNode> {
        let mut element = root;
        for position in positions {
            // SAFETY: passed on.
            unsafe {
                let is_it = |_: *const c::xmlNode, at: u32| at == *position;
                (element, _) = self.find(element.as_ref()?, is_it)?;
            }
        }
        Some(element)
    }

    /// Returns a child element of `parent` for which `fits` returns true, with its position; `None`
    /// if there is none. The search begins at the child that the previous search in `parent` found.
    /// If it finds nothing up to the last child, it starts again at the first child.
    ///
    /// SAFETY: as for [`ElementPositions::of`].
    unsafe fn find(
        &mut self,
        parent: &c::xmlNode,
        fits: impl Fn(*const c::xmlNode, u32) -> bool,
    ) -> Option<(*const c::xmlNode, u32)> {
        let first: (*const c::xmlNode, u32) = (parent.children, 0);
        let latest = self.latest.get(&std::ptr::from_ref(parent)).copied();
        for (start, at) in latest.into_iter().chain([first]) {
            let mut child = start;
            let mut position = at;
            // SAFETY: siblings of a live node are alive or null.
            unsafe {
                while let Some(element) = child.as_ref() {
                    if element.type_ == c::xmlElementType_XML_ELEMENT_NODE {
                        if fits(child, position) {
                            self.latest.insert(parent, (child, position));
                            return Some((child, position));
                        }
                        position += 1;
                    }
                    child = element.next;
                }
            }
        }
        None
    }
}

/// The libxml2 context in which an expression is evaluated.
struct XPathScope(NonNull<c::xmlXPathContext>);

impl Drop for XPathScope {
    fn drop(&mut self) {
        // SAFETY: the context is ours alone; it owns neither the tree nor compiled expressions.
        unsafe { c::xmlXPathFreeContext(self.0.as_ptr()) }
    }
}

/// A compiled XPath expression.
struct XPathProgram(NonNull<c::xmlXPathCompExpr>);

impl Drop for XPathProgram {
    fn drop(&mut self) {
        // SAFETY: the expression is ours alone.
        unsafe { c::xmlXPathFreeCompExpr(self.0.as_ptr()) }
    }
}

/// Inputs, other than the document, of the functions that organism adds to XPath.
#[derive(Clone, Copy)]
pub struct XPathContext<'a> {
    /// For each element that contains a payload: the path of positions from the root to the
    /// element, and the local name of the payload.
    pub payloads: &'a [(Vec<u32>, String)],
    /// Whether `has-word` searches its first argument as one text.
    pub joins_texts: bool,
}

/// Checks the syntax of an expression.
pub fn check_expression(expression: &CStr) -> Result<(), XPathError> {
    ready();
    let scope = xpath_scope(std::ptr::null_mut(), false)?;
    xpath_program(&scope, expression).map(|_| ())
}

/// Evaluates an expression, with the root of `document` as the context node.
pub fn evaluate(
    document: &ParsedDocument,
    expression: &CStr,
    context: XPathContext<'_>,
) -> Result<XPathValue, XPathError> {
    // SAFETY: the object and the tree are alive while it is read.
    evaluated(document, expression, context, |object| unsafe { xpath_value(object) })
}

/// Evaluates an expression as [`evaluate`] does, and converts the value to a boolean by the rules
/// of XPath's `boolean()`. Copies no node.
pub fn evaluate_flag(
    document: &ParsedDocument,
    expression: &CStr,
    context: XPathContext<'_>,
) -> Result<bool, XPathError> {
    // SAFETY: the object and the tree are alive while it is read.
    evaluated(document, expression, context, |object| unsafe { Ok(xpath_flag(object)) })
}

fn evaluated<T>(
    document: &ParsedDocument,
    expression: &CStr,
    context: XPathContext<'_>,
    read: impl FnOnce(&c::xmlXPathObject) -> Result<T, XPathError>,
) -> Result<T, XPathError> {
    ready();
    let scope = xpath_scope(document.doc.as_ptr(), context.joins_texts)?;
    let program = xpath_program(&scope, expression)?;
    if expression.to_string_lossy().contains("payload") {
        PAYLOADS.with_borrow_mut(|known| *known = payload_elements(document, context.payloads));
    }
    // SAFETY: program, scope and tree are alive; the object is freed once, after its last use.
    let value = unsafe {
        let object = c::xmlXPathCompiledEval(program.0.as_ptr(), scope.0.as_ptr());
        let value = object.as_ref().map(read);
        c::xmlXPathFreeObject(object);
        value
    };
    PAYLOADS.with_borrow_mut(HashMap::clear);
    NUMBERS.with_borrow_mut(HashMap::clear);

    let caught = take();
    // SAFETY: the scope is alive.
    let spent = unsafe { scope.0.as_ref().opCount } >= limits::XPATH_OPERATIONS_MAX;
    match value {
        _ if caught.errors > 0 && spent => Err(XPathError::TooManyOperations),
        Some(value) if caught.errors == 0 => value,
        _ => Err(xpath_error(caught)),
    }
}

/// Numbers the elements of a tree in document order, so that libxml2 compares two elements by
/// number instead of walking over their siblings.
pub fn number_elements(document: &ParsedDocument) {
    // SAFETY: the tree is alive and ours.
    unsafe {
        c::xmlXPathOrderDocElems(document.doc.as_ptr());
    }
}

/// Returns the elements at the positions in `payloads`, each with the local name that `payloads`
/// gives for it.
fn payload_elements(
    document: &ParsedDocument,
    payloads: &[(Vec<u32>, String)],
) -> HashMap<*const c::xmlNode, String> {
    let mut found = HashMap::new();
    let mut elements = ElementPositions::default();
    // SAFETY: the tree is alive.
    unsafe {
        let root = c::xmlDocGetRootElement(document.doc.as_ptr());
        for (positions, name) in payloads {
            if let Some(element) = elements.at(root, positions) {
                found.entry(element).or_insert_with(|| name.clone());
            }
        }
    }
    found
}

fn xpath_scope(doc: c::xmlDocPtr, joins_texts: bool) -> Result<XPathScope, XPathError> {
    // SAFETY: the tree is null or alive and outlives the scope (see `evaluate`); names of
    // functions are C strings.
    unsafe {
        let context = NonNull::new(c::xmlXPathNewContext(doc));
        let Some(mut context) = context else { return Err(xpath_error(CaughtMessages::default())) };
        context.as_mut().opLimit = limits::XPATH_OPERATIONS_MAX;
        if !doc.is_null() {
            context.as_mut().node = c::xmlDocGetRootElement(doc);
        }
        let scope = XPathScope(context);
        let has_word: XPathFunction =
            if joins_texts { xpath_has_word_in_one_text } else { xpath_has_word };
        let functions: [(&CStr, XPathFunction); 4] = [
            (c"last-line", xpath_last_line),
            (c"has-word", has_word),
            (c"payload", xpath_payload),
            (xpath_numbers::WITHOUT_PLUS, xpath_without_plus),
        ];
        for (name, function) in functions {
            c::xmlXPathRegisterFunc(scope.0.as_ptr(), name.as_ptr().cast(), Some(function));
        }
        Ok(scope)
    }
}

fn xpath_program(scope: &XPathScope, expression: &CStr) -> Result<XPathProgram, XPathError> {
    // SAFETY: the scope is alive, the expression a C string that libxml2 copies.
    let compiled = unsafe { c::xmlXPathCtxtCompile(scope.0.as_ptr(), expression.as_ptr().cast()) };
    let program = NonNull::new(compiled).map(XPathProgram);
    let caught = take();
    program.filter(|_| caught.errors == 0).ok_or_else(|| xpath_error(caught))
}

fn xpath_error(caught: CaughtMessages) -> XPathError {
    let first = caught.diagnostics.into_iter().next();
    let message = first.map_or_else(|| no_memory().message, |one| one.message);
    XPathError::Invalid(message.trim().to_owned())
}

/// Copies the value of an XPath object.
///
/// SAFETY: `object` is alive, and so is the tree that its nodes belong to.
unsafe fn xpath_value(object: &c::xmlXPathObject) -> Result<XPathValue, XPathError> {
    // SAFETY: the field that belongs to the type of the object is set; nodes are sorted in place.
    unsafe {
        match object.type_ {
            c::xmlXPathObjectType_XPATH_BOOLEAN => Ok(XPathValue::Flag(object.boolval != 0)),
            c::xmlXPathObjectType_XPATH_NUMBER => Ok(XPathValue::Number(object.floatval)),
            c::xmlXPathObjectType_XPATH_NODESET => {
                if nodes_of(object.nodesetval).len() > limits::XPATH_NODES_MAX {
                    return Err(XPathError::TooManyNodes);
                }

                c::xmlXPathNodeSetSort(object.nodesetval);
                let mut elements = ElementPositions::default();
                let mut room = limits::XPATH_TEXT_BYTES_MAX;
                let nodes = nodes_of(object.nodesetval).iter().map(|node| {
                    let text = taken_text(c::xmlXPathCastNodeToString(*node));
                    room = room.checked_sub(text.len()).ok_or(XPathError::TooMuchText)?;
                    let is_element = (**node).type_ == c::xmlElementType_XML_ELEMENT_NODE;
                    let element = is_element.then(|| elements.of(*node));
                    Ok(XPathNode { element, text })
                });
                nodes.collect::<Result<_, _>>().map(XPathValue::Nodes)
            }
            _ => {
                let text = bytes_of(object.stringval.cast_const().cast()).unwrap_or_default();
                Ok(XPathValue::Text(String::from_utf8_lossy(text).into_owned()))
            }
        }
    }
}

/// Converts a value to a boolean by the rules of XPath's `boolean()`.
///
/// SAFETY: `object` is alive, and so is the tree that its nodes belong to.
unsafe fn xpath_flag(object: &c::xmlXPathObject) -> bool {
    // SAFETY: the field that belongs to the type of the object is set.
    unsafe {
        match object.type_ {
            c::xmlXPathObjectType_XPATH_BOOLEAN => object.boolval != 0,
            c::xmlXPathObjectType_XPATH_NUMBER => {
                object.floatval != 0.0 && !object.floatval.is_nan()
            }
            c::xmlXPathObjectType_XPATH_NODESET => !nodes_of(object.nodesetval).is_empty(),
            _ => {
                bytes_of(object.stringval.cast_const().cast()).is_some_and(|text| !text.is_empty())
            }
        }
    }
}

/// Returns the nodes of a set; empty for a null set.
///
/// SAFETY: `set` is null or alive.
unsafe fn nodes_of<'a>(set: c::xmlNodeSetPtr) -> &'a [c::xmlNodePtr] {
    // SAFETY: the table holds as many nodes as the set says.
    unsafe {
        match set.as_ref() {
            Some(set) if !set.nodeTab.is_null() => {
                let count = usize::try_from(set.nodeNr).unwrap_or_default();
                std::slice::from_raw_parts(set.nodeTab, count)
            }
            _ => &[],
        }
    }
}

/// Copies a text of libxml2 and frees it.
///
/// SAFETY: `text` is null or a C string that the caller owns.
unsafe fn taken_text(text: *mut c::xmlChar) -> String {
    // SAFETY: passed on; the text is not used again.
    unsafe {
        let copy = bytes_of(text.cast_const().cast()).unwrap_or_default();
        let copy = String::from_utf8_lossy(copy).into_owned();
        if let Some(free) = c::xmlFree.filter(|_| !text.is_null()) {
            free(text.cast());
        }
        copy
    }
}

type XPathFunction = unsafe extern "C" fn(c::xmlXPathParserContextPtr, c_int);

/// Returns the arguments of an XPath function as texts, in order. If their number is wrong, raises
/// an error.
///
/// SAFETY: called by libxml2 with its own context.
unsafe fn xpath_arguments<const N: usize>(
    context: c::xmlXPathParserContextPtr,
    count: c_int,
) -> Option<[String; N]> {
    // SAFETY: the stack holds `count` values; a popped text is the caller's.
    unsafe {
        if usize::try_from(count) != Ok(N) {
            let code = c_int::try_from(c::xmlXPathError_XPATH_INVALID_ARITY);
            c::xmlXPathErr(context, code.unwrap_or_default());
            return None;
        }
        let mut texts = [const { String::new() }; N];
        for text in texts.iter_mut().rev() {
            *text = taken_text(c::xmlXPathPopString(context));
        }
        let bytes = texts.iter().map(String::len).sum();
        charge(context, bytes).then_some(texts)
    }
}

/// Adds the cost of reading `bytes` bytes to the number of operations of the evaluation. If this
/// number then reaches its limit, raises an error and returns false. Otherwise, returns true.
///
/// SAFETY: called with libxml2's own context.
unsafe fn charge(context: c::xmlXPathParserContextPtr, bytes: usize) -> bool {
    // SAFETY: the evaluation's context outlives its parser context.
    unsafe {
        let Some(scope) = (*context).context.as_mut() else { return false };
        let operations = c_ulong::try_from(bytes / limits::XPATH_BYTES_PER_OPERATION);
        let spent = scope.opCount.saturating_add(operations.unwrap_or(c_ulong::MAX));
        scope.opCount = spent.min(scope.opLimit);
        if spent < scope.opLimit {
            return true;
        }

        let code = c_int::try_from(c::xmlXPathError_XPATH_OP_LIMIT_EXCEEDED);
        c::xmlXPathErr(context, code.unwrap_or_default());
        false
    }
}

/// Pushes a text as the result of an XPath function.
///
/// SAFETY: called with libxml2's own context.
unsafe fn push_text(context: c::xmlXPathParserContextPtr, text: &str) {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: the value takes the copy over, and the stack the value.
    unsafe {
        let copy = c::xmlStrdup(text.as_ptr().cast());
        c::valuePush(context, c::xmlXPathWrapString(copy));
    }
}

unsafe extern "C" fn xpath_last_line(context: c::xmlXPathParserContextPtr, count: c_int) {
    // SAFETY: passed on.
    unsafe {
        if let Some([text]) = xpath_arguments(context, count) {
            push_text(context, &xpath::last_line(&text));
        }
    }
}

/// Computes `has-word` as core versions before 64 did. The first argument is one text, in which the
/// texts of child elements stand without a separator. Of several nodes, only the first one counts.
unsafe extern "C" fn xpath_has_word_in_one_text(
    context: c::xmlXPathParserContextPtr,
    count: c_int,
) {
    // SAFETY: passed on; the stack takes the value over.
    unsafe {
        if let Some([text, word]) = xpath_arguments(context, count) {
            let found = c_int::from(xpath::has_word(&text, &word));
            c::valuePush(context, c::xmlXPathNewBoolean(found));
        }
    }
}

unsafe extern "C" fn xpath_has_word(context: c::xmlXPathParserContextPtr, count: c_int) {
    // SAFETY: the stack holds `count` values; a popped text or set is the caller's, and the set is
    // freed once. The stack takes the result over.
    unsafe {
        if count != 2 {
            let _ = xpath_arguments::<2>(context, count);
            return;
        }
        let word = taken_text(c::xmlXPathPopString(context));
        if !charge(context, word.len()) {
            return;
        }

        let is_set = |value: &c::xmlXPathObject| value.type_ == c::xmlXPathObjectType_XPATH_NODESET;
        let found = if (*context).value.as_ref().is_some_and(is_set) {
            let set = c::xmlXPathPopNodeSet(context);
            c::xmlXPathNodeSetSort(set);
            let found = any_has_word(context, nodes_of(set), &word);
            c::xmlXPathFreeNodeSet(set);
            found
        } else {
            let text = taken_text(c::xmlXPathPopString(context));
            charge(context, text.len()).then(|| xpath::has_word(&text, &word))
        };
        if let Some(found) = found {
            c::valuePush(context, c::xmlXPathNewBoolean(c_int::from(found)));
        }
    }
}

/// Whether `has-word` finds `word` in one of these nodes. Raises an error and returns `None` if the
/// evaluation reaches its limit.
///
/// SAFETY: called with libxml2's own context; the nodes belong to its tree.
unsafe fn any_has_word(
    context: c::xmlXPathParserContextPtr,
    nodes: &[c::xmlNodePtr],
    word: &str,
) -> Option<bool> {
    for node in nodes {
        // SAFETY: passed on.
        let children = unsafe { separate_texts(*node) };
        let found = if children.is_empty() {
            // SAFETY: the node is alive; the text is the caller's.
            let text = unsafe { taken_text(c::xmlXPathCastNodeToString(*node)) };
            // A node costs something even if its text is empty.
            let cost = text.len() + limits::XPATH_BYTES_PER_OPERATION;
            // SAFETY: passed on.
            unsafe { charge(context, cost) }.then(|| xpath::has_word(&text, word))
        } else {
            // SAFETY: passed on; children of a live node are alive.
            unsafe { any_has_word(context, &children, word) }
        };
        if found? {
            return Some(true);
        }
    }
    Some(false)
}

/// Returns the child elements of an element, if it contains only white space between them. In this
/// case, each child is a separate text, such as the output of one of several agents. A word or a
/// code fence that begins in one of these texts does not continue in the next one. Returns no
/// children for any other node: such a node is a single text.
///
/// SAFETY: `node` is a node of a live tree.
unsafe fn separate_texts(node: c::xmlNodePtr) -> Vec<c::xmlNodePtr> {
    let mut elements = Vec::new();
    // SAFETY: children and siblings of a live node are alive or null. An element and a document
    // have the field `children`.
    unsafe {
        let types = [c::xmlElementType_XML_ELEMENT_NODE, c::xmlElementType_XML_DOCUMENT_NODE];
        if !types.contains(&(*node).type_) {
            return elements;
        }

        let mut next = (*node).children;
        while let Some(child) = next.as_ref() {
            match child.type_ {
                c::xmlElementType_XML_ELEMENT_NODE => elements.push(next),
                c::xmlElementType_XML_TEXT_NODE | c::xmlElementType_XML_CDATA_SECTION_NODE
                    if c::xmlIsBlankNode(next) == 0 =>
                {
                    return Vec::new();
                }
                _ => {}
            }
            next = child.next;
        }
    }
    elements
}

unsafe extern "C" fn xpath_payload(context: c::xmlXPathParserContextPtr, count: c_int) {
    // SAFETY: the stack holds `count` values; the set is the caller's and is freed once. A value
    // that is no set makes libxml2 raise an error and return null.
    unsafe {
        if count != 1 {
            let _ = xpath_arguments::<1>(context, count);
            return;
        }
        let set = c::xmlXPathPopNodeSet(context);
        c::xmlXPathNodeSetSort(set);
        let first = nodes_of(set).first().copied();
        let name = first
            .and_then(|node| PAYLOADS.with_borrow(|known| known.get(&node.cast_const()).cloned()));
        c::xmlXPathFreeNodeSet(set);
        push_text(context, &name.unwrap_or_default());
    }
}

/// Computes [`xpath_numbers::WITHOUT_PLUS`]: replaces each node whose text is a number with a plus
/// sign by a text node without the sign, and a text likewise. Returns any other value unchanged.
unsafe extern "C" fn xpath_without_plus(context: c::xmlXPathParserContextPtr, count: c_int) {
    // SAFETY: the stack holds `count` values, and its top is the result. A node that is no
    // namespace does not belong to the set, so the set can name another node in its place. The new
    // nodes outlive the evaluation. The set keeps its order: libxml2 cannot compare a node outside
    // of the document, so that a later sort leaves such a node where it is.
    unsafe {
        if count != 1 {
            let _ = xpath_arguments::<1>(context, count);
            return;
        }
        let Some(value) = (*context).value.as_ref() else { return };
        if value.type_ == c::xmlXPathObjectType_XPATH_STRING {
            let text = taken_text(c::xmlXPathPopString(context));
            push_text(context, xpath_numbers::without_plus(&text).unwrap_or(&text));
            return;
        }
        if value.type_ != c::xmlXPathObjectType_XPATH_NODESET {
            return;
        }

        c::xmlXPathNodeSetSort(value.nodesetval);
        for index in 0..nodes_of(value.nodesetval).len() {
            let node = (*value.nodesetval).nodeTab.add(index);
            if (**node).type_ == c::xmlElementType_XML_NAMESPACE_DECL {
                continue;
            }
            // A text without the sign costs nothing: libxml2 converts it next, and counts nothing.
            if !begins_with_plus(*node) {
                continue;
            }
            let text = taken_text(c::xmlXPathCastNodeToString(*node));
            let is_long = text.len() > limits::XPATH_BYTES_PER_OPERATION;
            if is_long && !charge(context, text.len()) {
                return;
            }
            if let Some(number) = xpath_numbers::without_plus(&text) {
                *node = number_node(*node, number);
            }
        }
    }
}

/// Whether the text of a node begins with a plus sign, after white space.
///
/// SAFETY: `root` is a node of a live tree, and no namespace.
unsafe fn begins_with_plus(root: c::xmlNodePtr) -> bool {
    let mut node = root;
    // SAFETY: children, siblings and ancestors of a live node are alive or null. Nodes of all types
    // have the fields `children`, `next` and `parent`. The content of a text is null, or ends with
    // a zero byte.
    unsafe {
        loop {
            let texts = [c::xmlElementType_XML_TEXT_NODE, c::xmlElementType_XML_CDATA_SECTION_NODE];
            if texts.contains(&(*node).type_) {
                let mut byte = (*node).content;
                while !byte.is_null() && b" \t\r\n".contains(&*byte) {
                    byte = byte.add(1);
                }
                if !byte.is_null() && *byte != 0 {
                    return *byte == b'+';
                }
            } else if !(*node).children.is_null() {
                node = (*node).children;
                continue;
            }

            while node != root && (*node).next.is_null() {
                node = (*node).parent;
            }
            if node == root {
                return false;
            }
            node = (*node).next;
        }
    }
}

/// Returns the text node for `node`, which contains `number`. Returns `node` if there is no memory.
fn number_node(node: c::xmlNodePtr, number: &str) -> c::xmlNodePtr {
    NUMBERS.with_borrow_mut(|numbers| {
        if let Some(known) = numbers.get(&node.cast_const()) {
            return known.0;
        }
        let text = std::ffi::CString::new(number).unwrap_or_default();
        // SAFETY: libxml2 copies the text.
        let created = unsafe { c::xmlNewText(text.as_ptr().cast()) };
        if created.is_null() {
            return node;
        }
        numbers.insert(node, NumberNode(created));
        created
    })
}

//! The only interface to libxml2, and the only `unsafe` code of the source tree.
//!
//! libxml2 can load only documents that the caller has provided, so it never opens a file or a
//! network address. Its messages are collected in a bounded list for each OS thread. This module
//! must not know payload names, error codes or files.
#![expect(unsafe_code, reason = "libxml2 is C; this module is its only caller")]

mod long_messages;
mod xpath_evaluation;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Once;

use libxml::bindings as c;

pub use long_messages::bounded;
pub use xpath_evaluation::{
    XPathContext, check_expression, evaluate, evaluate_flag, number_elements,
};

use super::libxml2_diagnostic::{Diagnostic, DiagnosticDomain, DiagnosticLevel, LocationStep};
use crate::limits;

#[derive(Default)]
struct CaughtMessages {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
}

thread_local! {
    static REPORTED: RefCell<CaughtMessages> = RefCell::default();
    static SERVED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    static PARSER: RefCell<Option<ParserContext>> = const { RefCell::new(None) };
}

/// A parser context. Each OS thread parses all its texts with one context, because creating a
/// context costs as much as parsing a short text.
struct ParserContext {
    context: NonNull<c::xmlParserCtxt>,
    /// Number of bytes that the context may still parse. A context keeps every name that it has
    /// read, and so needs more and more memory. So if a text is longer than the remaining number of
    /// bytes, a new context replaces this one.
    room: usize,
}

impl ParserContext {
    /// Returns the parser context in `kept`. If `kept` is empty, or if its context may not parse
    /// `length` more bytes, first puts a new context there. Returns `None` if libxml2 cannot create
    /// a context.
    fn with_room(kept: &mut Option<Self>, length: usize) -> Option<&mut Self> {
        if kept.as_ref().is_none_or(|parser| parser.room < length) {
            // SAFETY: takes nothing; the context is freed once, by `Drop`.
            let context = NonNull::new(unsafe { c::xmlNewParserCtxt() })?;
            *kept = Some(Self { context, room: limits::PARSER_BYTES.max(length) });
        }

        let parser = kept.as_mut()?;
        parser.room -= length;
        Some(parser)
    }
}

impl Drop for ParserContext {
    fn drop(&mut self) {
        // SAFETY: the context is ours alone, and what it parsed does not refer to it.
        unsafe { c::xmlFreeParserCtxt(self.context.as_ptr()) }
    }
}

/// Prefix of the addresses of schema documents during compilation. An address is this prefix and
/// the index of the document.
pub const SCHEME: &str = "organism-schema:";

/// An XML document that libxml2 has parsed. It must stay on the OS thread that parsed it.
pub struct ParsedDocument {
    doc: NonNull<c::xmlDoc>,
    /// Marks the type as not `Send`, because a tree of libxml2 must stay on its OS thread.
    here: PhantomData<*mut ()>,
}

impl Drop for ParsedDocument {
    fn drop(&mut self) {
        // SAFETY: the tree is ours alone and is not used again.
        unsafe { c::xmlFreeDoc(self.doc.as_ptr()) }
    }
}

impl ParsedDocument {
    /// Parses a text strictly: libxml2 repairs no errors, loads nothing, replaces no entities, and
    /// applies its own limits. Also refuses a text with a namespace error, which libxml2 would
    /// accept.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Diagnostic>> {
        ready();
        let Ok(length) = c_int::try_from(text.len()) else { return Err(vec![too_long()]) };
        let options = c::xmlParserOption_XML_PARSE_NONET
            | c::xmlParserOption_XML_PARSE_COMPACT
            | c::xmlParserOption_XML_PARSE_BIG_LINES;
        let options = c_int::try_from(options).unwrap_or_default();
        // With the name of an encoding, libxml2 converts the text into another buffer first.
        let encoding = if is_read_unconverted(text) { None } else { Some(c"UTF-8") };
        let doc = PARSER.with_borrow_mut(|parser| {
            let parser = ParserContext::with_room(parser, text.len())?;
            // SAFETY: buffer and length belong together, the encoding is a C string or null; the
            // context is alive, resets itself before it reads, and the tree is the caller's
            // afterwards.
            let doc = unsafe {
                c::xmlCtxtReadMemory(
                    parser.context.as_ptr(),
                    text.as_ptr().cast(),
                    length,
                    std::ptr::null(),
                    encoding.map_or(std::ptr::null(), CStr::as_ptr),
                    options,
                )
            };
            NonNull::new(doc)
        });
        let document = doc.map(|doc| Self { doc, here: PhantomData });

        match (document, take()) {
            (Some(document), reported) if reported.errors == 0 => Ok(document),
            (_, reported) if reported.errors == 0 => Err(vec![no_memory()]),
            (_, reported) => Err(reported.errors_only()),
        }
    }

    /// Whether the document has a document type declaration.
    pub fn has_doctype(&self) -> bool {
        // SAFETY: the tree is alive and ours.
        unsafe { !self.doc.as_ref().intSubset.is_null() }
    }

    /// Whether the root element is `local` in `namespace`. An empty `namespace` stands for no
    /// namespace.
    pub fn root_is(&self, namespace: &str, local: &str) -> bool {
        self.with_root(|ns, name| {
            ns.unwrap_or_default() == namespace.as_bytes() && name == local.as_bytes()
        })
    }

    /// Returns the namespace and local name of the root element.
    pub fn root(&self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.with_root(|ns, name| (text(ns.unwrap_or_default()), text(name)))
    }

    fn with_root<T>(&self, read: impl FnOnce(Option<&[u8]>, &[u8]) -> T) -> T {
        // SAFETY: a parsed document has a root, whose name and namespace are C strings that
        // live as long as the tree; `read` cannot keep them.
        unsafe {
            let root = c::xmlDocGetRootElement(self.doc.as_ptr());
            let Some(root) = root.as_ref() else { return read(None, b"") };
            let ns = root.ns.as_ref().and_then(|ns| bytes_of(ns.href.cast()));
            read(ns, bytes_of(root.name.cast()).unwrap_or_default())
        }
    }
}

/// Whether libxml2 reads a text correctly if the caller does not state the encoding. True only for
/// an ASCII text that begins with the start tag of an element. Such a text has no XML declaration,
/// and libxml2 cannot mistake its first bytes for those of another encoding.
fn is_read_unconverted(text: &[u8]) -> bool {
    let begins_plainly = |first: &u8| first.is_ascii_alphabetic() || *first == b'_';
    let name = text.strip_prefix(b"<");
    name.and_then(<[u8]>::first).is_some_and(begins_plainly) && text.is_ascii()
}

/// A compiled schema with its validation context.
pub struct CompiledSchema {
    schema: NonNull<c::xmlSchema>,
    context: NonNull<c::xmlSchemaValidCtxt>,
    here: PhantomData<*mut ()>,
}

impl Drop for CompiledSchema {
    fn drop(&mut self) {
        // SAFETY: both are ours alone; the context goes before the schema it points to.
        unsafe {
            c::xmlSchemaFreeValidCtxt(self.context.as_ptr());
            c::xmlSchemaFree(self.schema.as_ptr());
        }
    }
}

impl CompiledSchema {
    /// Compiles the first of `documents`. In includes and imports, `organism-schema:1` is the
    /// location of the second document, and so on. Returns the compiled schema, and the warnings of
    /// the compiler.
    pub fn compile(documents: &[Vec<u8>]) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        ready();
        SERVED.with_borrow_mut(|served| *served = documents.to_vec());
        // SAFETY: the address is a C string; the context is freed once. The schema does not
        // refer to the context after parsing.
        let schema = unsafe {
            let context = c::xmlSchemaNewParserCtxt(c"organism-schema:0".as_ptr());
            if context.is_null() {
                return Err(vec![no_memory()]);
            }
            c::xmlSchemaSetParserStructuredErrors(context, Some(handler()), std::ptr::null_mut());
            let schema = c::xmlSchemaParse(context);
            c::xmlSchemaFreeParserCtxt(context);
            NonNull::new(schema)
        };

        SERVED.with_borrow_mut(Vec::clear);
        let reported = take();
        let Some(schema) = schema else {
            let errors = reported.errors_only();
            return Err(if errors.is_empty() { vec![no_memory()] } else { errors });
        };

        let Some(context) = new_context(schema) else {
            // SAFETY: nothing else refers to the schema.
            unsafe { c::xmlSchemaFree(schema.as_ptr()) };
            return Err(vec![no_memory()]);
        };

        let grammar = Self { schema, context, here: PhantomData };
        if reported.errors > 0 {
            return Err(reported.errors_only());
        }

        Ok((grammar, reported.diagnostics))
    }

    /// Validates a whole document. Never follows a schema location in the document.
    pub fn validate(&mut self, document: &ParsedDocument) -> Result<(), Vec<Diagnostic>> {
        // SAFETY: context, schema and tree are alive and of this thread; the context forgets
        // the tree before the call returns.
        let code = unsafe { c::xmlSchemaValidateDoc(self.context.as_ptr(), document.doc.as_ptr()) };
        let reported = take();
        if code == 0 && reported.errors == 0 {
            return Ok(());
        }

        let errors = reported.errors_only();
        Err(if errors.is_empty() { vec![unexplained(code)] } else { errors })
    }

    /// Replaces the validation context of the schema by a new one, because a context may keep parts
    /// of a text that it has validated.
    pub fn forget(&mut self) {
        if let Some(context) = new_context(self.schema) {
            // SAFETY: the old context is ours alone and is replaced immediately.
            unsafe { c::xmlSchemaFreeValidCtxt(self.context.as_ptr()) };
            self.context = context;
        }
    }
}

fn new_context(schema: NonNull<c::xmlSchema>) -> Option<NonNull<c::xmlSchemaValidCtxt>> {
    // SAFETY: the schema is alive and outlives the context (see `CompiledSchema::drop`).
    let context = NonNull::new(unsafe { c::xmlSchemaNewValidCtxt(schema.as_ptr()) })?;
    // SAFETY: the context is alive; the handler needs no data of its own.
    unsafe {
        c::xmlSchemaSetValidStructuredErrors(
            context.as_ptr(),
            Some(handler()),
            std::ptr::null_mut(),
        );
    }

    Some(context)
}

/// Initialises libxml2, once for the process and once for each OS thread.
fn ready() {
    static PROCESS: Once = Once::new();
    PROCESS.call_once(|| {
        libxml::init_parser();
        // SAFETY: called once, before any other use; the types' lazy set-up is not thread-safe,
        // and the loader is set for the whole process.
        unsafe {
            c::xmlSchemaInitTypes();
            c::xmlSetExternalEntityLoader(Some(serve));
        }
    });
    if !LISTENING.replace(true) {
        // SAFETY: sets the handlers of this thread, which need no data of their own.
        unsafe {
            c::xmlSetStructuredErrorFunc(std::ptr::null_mut(), Some(handler()));
            c::xmlSetGenericErrorFunc(std::ptr::null_mut(), Some(ignore_text()));
        }
    }

    let _ = take();
}

fn take() -> CaughtMessages {
    REPORTED.with(RefCell::take)
}

impl CaughtMessages {
    fn errors_only(self) -> Vec<Diagnostic> {
        self.diagnostics.into_iter().filter(|d| d.level == DiagnosticLevel::Error).collect()
    }
}

type ErrorHandler = unsafe extern "C" fn(*mut c_void, c::xmlErrorPtr);

/// Returns the error handler as the function type that the bindings expect. This type has a `mut`
/// pointer as its second argument before libxml2 2.12, and a `const` pointer from then on. Both are
/// passed in the same way, so the same handler fits both.
fn handler<T: Copy>() -> T {
    const { assert!(size_of::<T>() == size_of::<ErrorHandler>()) };
    let ours: ErrorHandler = record_error;
    // SAFETY: the callers request only function pointers that differ from `Handler` in the
    // constness of a pointer's target.
    unsafe { std::mem::transmute_copy(&ours) }
}

type TextHandler = unsafe extern "C" fn(*mut c_void, *const c_char, ...);

/// Returns a handler that ignores the texts of errors, which libxml2 would otherwise print on
/// standard error. No error is lost, because libxml2 also passes each one to [`record_error`].
fn ignore_text() -> TextHandler {
    type FixedHandler = unsafe extern "C" fn(*mut c_void, *const c_char);
    unsafe extern "C" fn ignore(_: *mut c_void, _: *const c_char) {}

    let ours: FixedHandler = ignore;
    // SAFETY: the caller of a C function removes its arguments, so a function may take fewer than
    // it gets.
    unsafe { std::mem::transmute::<FixedHandler, TextHandler>(ours) }
}

unsafe extern "C" fn record_error(_: *mut c_void, error: c::xmlErrorPtr) {
    // SAFETY: libxml2 passes an error that lives through the call, or null.
    let Some(error) = (unsafe { error.cast_const().as_ref() }) else { return };
    let warning = error.level <= c::xmlErrorLevel_XML_ERR_WARNING;

    REPORTED.with(|reported| {
        let Ok(mut reported) = reported.try_borrow_mut() else { return };
        if !warning {
            reported.errors += 1;
        }

        if reported.diagnostics.len() < limits::FINDINGS_MAX {
            // SAFETY: as above.
            let diagnostic = unsafe { read_error(error, warning) };
            reported.diagnostics.push(diagnostic);
        } else if !warning {
            // An error replaces a warning in the full list; a warning never replaces an error.
            if let Some(place) =
                reported.diagnostics.iter().rposition(|d| d.level == DiagnosticLevel::Warning)
            {
                reported.diagnostics.remove(place);
                // SAFETY: as above.
                let diagnostic = unsafe { read_error(error, warning) };
                reported.diagnostics.push(diagnostic);
            }
        }
    });
}

/// Copies an error of libxml2 as a diagnostic.
///
/// SAFETY: libxml2 is reporting `error` right now.
unsafe fn read_error(error: &c::xmlError, warning: bool) -> Diagnostic {
    let number = |n: c_int| u32::try_from(n).unwrap_or_default();
    let domain = match number(error.domain) {
        c::xmlErrorDomain_XML_FROM_PARSER => DiagnosticDomain::Parser,
        c::xmlErrorDomain_XML_FROM_NAMESPACE => DiagnosticDomain::Namespace,
        c::xmlErrorDomain_XML_FROM_SCHEMASP => DiagnosticDomain::Schema,
        c::xmlErrorDomain_XML_FROM_SCHEMASV => DiagnosticDomain::Instance,
        _ => DiagnosticDomain::Other,
    };

    // SAFETY: message, file and quoted texts are C strings or null; the node, where one is given by
    // the schema processor, is a live node of a live tree. The parser's own errors carry none.
    unsafe {
        let text = |text: *const c_char| {
            String::from_utf8_lossy(bytes_of(text).unwrap_or_default()).into_owned()
        };
        let node: *const c::xmlNode = match domain {
            DiagnosticDomain::Schema | DiagnosticDomain::Instance => error.node.cast_const().cast(),
            _ => std::ptr::null(),
        };
        let code = number(error.code);
        let message = text(error.message.cast_const());
        let (message, [value, ..], steps) = if domain == DiagnosticDomain::Instance {
            let quoted = [error.str1, error.str2, error.str3].map(|quoted| text(quoted));
            let message = long_messages::shortened(code, &message, &quoted);
            (message, quoted, steps_to(node))
        } else {
            (bounded(message, limits::FINDING_BYTES_MAX), <[String; 3]>::default(), Vec::new())
        };
        Diagnostic {
            level: if warning { DiagnosticLevel::Warning } else { DiagnosticLevel::Error },
            domain,
            code,
            line: line_of(node).unwrap_or_else(|| number(error.line)),
            column: if node.is_null() { number(error.int2) } else { 0 },
            message,
            value,
            document: document_of(node).or_else(|| index_in(error.file)),
            steps,
        }
    }
}

/// Returns the line of a node; `None` if libxml2 does not know the line.
///
/// SAFETY: `node` is null or alive.
unsafe fn line_of(node: *const c::xmlNode) -> Option<u32> {
    if node.is_null() {
        return None;
    }
    // SAFETY: not null, alive.
    u32::try_from(unsafe { c::xmlGetLineNo(node) }).ok().filter(|line| *line > 0)
}

/// Returns the index of the schema document that contains a node; `None` if the node belongs to no
/// schema document.
///
/// SAFETY: `node` is null or alive.
unsafe fn document_of(node: *const c::xmlNode) -> Option<usize> {
    if node.is_null() {
        return None;
    }
    // SAFETY: a live node's document is alive, its address a C string or null. The node may be an
    // attribute, which is shorter than its declared type, so no reference to the node is made.
    unsafe { index_in((*node).doc.as_ref()?.URL.cast()) }
}

/// Parses the index of a schema document from the document's address; `None` for an address of
/// another form.
///
/// SAFETY: `address` is null or a C string.
unsafe fn index_in(address: *const c_char) -> Option<usize> {
    // SAFETY: passed on.
    let address = unsafe { bytes_of(address) }?;
    std::str::from_utf8(address).ok()?.strip_prefix(SCHEME)?.parse().ok()
}

/// Returns the path from the root to `node`. If the tree is deeper than `XML_DEPTH_MAX`, the path
/// lacks the elements nearest to the root.
///
/// SAFETY: `node` is null or alive.
unsafe fn steps_to(node: *const c::xmlNode) -> Vec<LocationStep> {
    let mut steps = Vec::new();
    let mut next = node;
    while !next.is_null() {
        // SAFETY: parents and siblings of a live node are alive or null. All nodes begin alike,
        // but attributes are shorter: only of an element is a reference made.
        unsafe {
            match (*next).type_ {
                c::xmlElementType_XML_ELEMENT_NODE => steps.push(element_step(&*next)),
                c::xmlElementType_XML_ATTRIBUTE_NODE => {
                    let name = name_of(next);
                    steps.push(LocationStep { name, attribute: true, position: 0, same: 0 });
                }
                _ => {}
            }
            next = (*next).parent;
        }
        if steps.len() > limits::XML_DEPTH_MAX {
            break;
        }
    }

    steps.reverse();
    steps
}

/// Returns the path step that leads to an element: the element's name, its position among all
/// sibling elements, and its number among the siblings with the same name.
///
/// SAFETY: `node` is an element of a live tree.
unsafe fn element_step(node: &c::xmlNode) -> LocationStep {
    // SAFETY: siblings of a live node are alive or null, names are C strings.
    unsafe {
        let name = bytes_of(node.name.cast()).unwrap_or_default();
        let alike = |other: &c::xmlNode| {
            other.type_ == c::xmlElementType_XML_ELEMENT_NODE
                && bytes_of(other.name.cast()) == Some(name)
        };

        let mut position = 0u32;
        let mut same = 1u32;
        let mut sibling = node.prev;
        while let Some(other) = sibling.as_ref() {
            position += u32::from(other.type_ == c::xmlElementType_XML_ELEMENT_NODE);
            same += u32::from(alike(other));
            sibling = other.prev;
        }

        let mut only = same == 1;
        let mut sibling = node.next;
        while let Some(other) = sibling.as_ref().filter(|_| only) {
            only = !alike(other);
            sibling = other.next;
        }

        LocationStep {
            name: name_of(node),
            attribute: false,
            position,
            same: if only { 0 } else { same },
        }
    }
}

/// Returns the name of a node.
///
/// SAFETY: `node` is alive.
unsafe fn name_of(node: *const c::xmlNode) -> String {
    // SAFETY: a node's name is a C string, and stands where it does in every kind of node.
    let name = unsafe { bytes_of((*node).name.cast()) }.unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the bytes of a C string; `None` if it is null.
///
/// SAFETY: `text` is null or a C string that lives for `'a`.
unsafe fn bytes_of<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, a C string.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Gives libxml2 one of the documents that a caller of this module has provided for the
/// compilation. Refuses every other address, so that libxml2 loads nothing else.
unsafe extern "C" fn serve(
    address: *const c_char,
    _: *const c_char,
    context: c::xmlParserCtxtPtr,
) -> c::xmlParserInputPtr {
    // SAFETY: the address is null or a C string.
    let Some(index) = (unsafe { index_in(address) }) else { return std::ptr::null_mut() };

    SERVED.with(|served| {
        let served = served.try_borrow().ok();
        let Some(text) = served.as_ref().and_then(|s| s.get(index)) else {
            return std::ptr::null_mut();
        };
        let Ok(length) = c_int::try_from(text.len()) else { return std::ptr::null_mut() };

        let utf8 = c::xmlCharEncoding_XML_CHAR_ENCODING_UTF8;
        // SAFETY: the buffer copies the text; the stream takes the buffer over, and the
        // context the stream. The name is a copy that the stream frees.
        unsafe {
            let buffer = c::xmlParserInputBufferCreateMem(text.as_ptr().cast(), length, utf8);
            if buffer.is_null() {
                return std::ptr::null_mut();
            }
            let input = c::xmlNewIOInputStream(context, buffer, utf8);
            if let Some(input) = input.as_mut() {
                input.filename = c::xmlStrdup(address.cast()).cast_const().cast();
            }
            input
        }
    })
}

fn plain(code: u32, message: String) -> Diagnostic {
    Diagnostic {
        level: DiagnosticLevel::Error,
        domain: DiagnosticDomain::Other,
        code,
        line: 0,
        column: 0,
        message,
        value: String::new(),
        document: None,
        steps: Vec::new(),
    }
}

fn no_memory() -> Diagnostic {
    plain(0, "libxml2 failed and gave no reason".into())
}

fn too_long() -> Diagnostic {
    plain(0, "the text is too long for libxml2".into())
}

fn unexplained(code: c_int) -> Diagnostic {
    plain(0, format!("libxml2 refused the text with status {code} and gave no reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_says_nothing_of_its_encoding_is_read_unconverted() {
        assert!(is_read_unconverted(b"<a>text</a>"));
        assert!(is_read_unconverted(b"<_a/>"));
        let others: [&[u8]; 6] = [
            b"<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
            b"<!-- c --><a/>",
            " <a/>".as_bytes(),
            "<a>ä</a>".as_bytes(),
            b"<\0a\0/\0>\0",
            b"",
        ];
        for other in others {
            assert!(!is_read_unconverted(other), "{other:?}");
        }
    }
}

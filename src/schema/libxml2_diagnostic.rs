//! Diagnostics of libxml2 about a text or a schema, as plain values.

/// The severity that libxml2 gives a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticLevel {
    Warning,
    Error,
}

/// The component of libxml2 that reports a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticDomain {
    Parser,
    Namespace,
    Schema,
    Instance,
    Other,
}

/// One diagnostic of libxml2.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    pub level: DiagnosticLevel,
    pub domain: DiagnosticDomain,
    pub code: u32,
    /// Line from 1; 0 if unknown.
    pub line: u32,
    /// Column in characters from 1; 0 if unknown.
    pub column: u32,
    pub message: String,
    /// The first text that the message quotes, in full. This is the refused value if the diagnostic
    /// refuses a value. Empty if there is no such text.
    pub value: String,
    /// Index of the schema document that the diagnostic concerns. `None` if it concerns a text that
    /// is validated.
    pub document: Option<usize>,
    /// Path from the root to the node that the diagnostic concerns. Empty if it concerns a schema.
    pub steps: Vec<LocationStep>,
}

/// A step of a path: an element or attribute, and its position among its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationStep {
    pub name: String,
    pub attribute: bool,
    /// Index among the sibling elements, counted from 0.
    pub position: u32,
    /// Number of the node among its siblings with the same name, counted from 1; 0 if no sibling
    /// has the same name.
    pub same: u32,
}

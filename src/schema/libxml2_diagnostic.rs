//! Diagnostics of libxml2 about a text or a schema, as plain values.

/// Severity according to libxml2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticLevel {
    Warning,
    Error,
}

/// The component of libxml2 that reports.
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
    /// Index of the document, for schemas.
    pub document: Option<usize>,
    /// Steps from the root to the node, for instances.
    pub steps: Vec<LocationStep>,
}

/// A step of a path: an element or attribute, and its position among its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationStep {
    pub name: String,
    pub attribute: bool,
    /// Index among the element siblings, from 0.
    pub position: u32,
    /// Number among the siblings of the same name, from 1; 0 if it is the only one.
    pub same: u32,
}

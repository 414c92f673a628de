//! What libxml2 says of a text or a schema, as plain values.

/// How bad libxml2 thinks something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticLevel {
    Warning,
    Error,
}

/// Which part of libxml2 speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticDomain {
    Parser,
    Namespace,
    Schema,
    Instance,
    Other,
}

/// One thing libxml2 said.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    pub level: DiagnosticLevel,
    pub domain: DiagnosticDomain,
    pub code: u32,
    /// From 1; 0 where unknown.
    pub line: u32,
    /// In characters from 1; 0 where unknown.
    pub column: u32,
    pub message: String,
    /// Index of the document it stands in, for schemas.
    pub document: Option<usize>,
    /// The steps from the root to the node, for instances.
    pub steps: Vec<LocationStep>,
}

/// A step of a path: an element or attribute, and where it stands among its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationStep {
    pub name: String,
    pub attribute: bool,
    /// Among the element's element siblings, from 0.
    pub position: u32,
    /// Among those of the same name, from 1; 0 where it is the only one.
    pub same: u32,
}

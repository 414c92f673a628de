//! The JSON form of payloads for native tool calls: the JSON Schema, and the conversions in both
//! directions. All three use the same plan of an element (`element_plan`), so that the advertised
//! form is also the accepted form. The plan has these rules:
//!
//! - Child elements and attributes are properties with their local names.
//! - The text of an element with attributes is the property `content`.
//! - A repeatable element is an array.
//! - Where the order of child elements with different names matters, `content` is an array of
//!   objects with one property each.
//! - A part that JSON cannot express (`unsupported`) is XML in the property `content`.
//!
//! This module must not know callers or listeners.

mod bounded_schema;
mod element_plan;
mod json_schema;
mod pattern;
mod raw_json;
mod to_json;
mod to_xml;
mod unsupported;
mod value;

pub use element_plan::{child_key, content_key};
pub use json_schema::{COMMENT, JsonSchemaForm, payload as schema};
pub use raw_json::{members, repeated_member};
pub use to_json::payload as to_json;
pub use to_xml::payload as to_xml;
pub use unsupported::{UnsupportedPart, gaps};

//! A payload as JSON, for native calls: its JSON Schema, and both ways between the two.
//!
//! One reading of the schema ([`plan`]) serves all three, so that what is advertised is what is
//! understood. Child elements and attributes are properties under their local names; text beside
//! attributes is the property `content`; what may repeat is an array; where the order of several
//! names matters, `content` is an array of objects with one property each. What JSON cannot say
//! ([`gaps`]) is the property `content` with XML in it. Must not know who calls whom.

mod plan;
mod raw;
mod schema;
mod to_json;
mod to_xml;
mod unsupported;
mod value;

pub use raw::members;
pub use schema::payload as schema;
pub use to_json::payload as to_json;
pub use to_xml::payload as to_xml;
pub use unsupported::{UnsupportedPart, gaps};

//! JSON form of payloads for native calls: the JSON Schema, and the conversions in both directions.
//!
//! One plan of the schema ([`plan`]) serves all three, so that the advertised form is the accepted
//! one. Child elements and attributes are properties under their local names; text beside
//! attributes is the property `content`; a repeatable element is an array; where the order of
//! several names matters, `content` is an array of objects with one property each. Parts that JSON
//! cannot express ([`gaps`]) are XML in the property `content`. Must not know who calls whom.

mod element_plan;
mod json_schema;
mod raw_json;
mod to_json;
mod to_xml;
mod unsupported;
mod value;

pub use json_schema::payload as schema;
pub use raw_json::members;
pub use to_json::payload as to_json;
pub use to_xml::payload as to_xml;
pub use unsupported::{UnsupportedPart, gaps};

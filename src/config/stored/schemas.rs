//! Finds the schemas of a stored config that declare a given payload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, PayloadName};
use crate::journal::sqlite::JournalReader;
use crate::xml::element::Element;

use super::{BootConfig, StoredConfigError, effective_of, text_of};

/// A schema document that a past config used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedSchema {
    /// The schema file's portable name, which is valid on every machine.
    #[serde(rename = "file")]
    pub file: String,
    #[serde(rename = "sha256")]
    pub sha256: Digest,
}

/// The part of an effective config that maps the names of schema files to the digests of these
/// files.
#[derive(Deserialize)]
struct EffectiveSchemas {
    #[serde(rename = "schemas", default)]
    schemas: BTreeMap<String, Digest>,
}

/// Returns the schema documents that declare the payload `name` in the config that `boot` put in
/// force. Returns no documents if the schema is built into this program, as the schemas of the
/// core's payloads are. Leaves out documents whose text the journal lacks; this happens in journals
/// of early versions.
///
/// # Errors
///
/// Returns [`StoredConfigError::Damaged`] if the journal lacks the effective config.
pub fn schemas_of(
    reader: &JournalReader,
    boot: &BootConfig,
    name: &PayloadName,
) -> Result<Vec<RecordedSchema>, StoredConfigError> {
    let effective = effective_of(reader, boot)?;
    let EffectiveSchemas { schemas } = serde_json::from_str(&effective)
        .map_err(|error| StoredConfigError::Damaged { detail: error.to_string() })?;

    let mut declaring = Vec::new();
    for (file, sha256) in schemas {
        // Journals from before stored configs list digests of files without their texts.
        if reader.blob(sha256)?.is_some() && declares(&text_of(reader, sha256)?, name) {
            declaring.push(RecordedSchema { file, sha256 });
        }
    }
    Ok(declaring)
}

fn declares(document: &str, name: &PayloadName) -> bool {
    // Most documents are of other namespaces, and need no parsing.
    let is_possible = document.contains(&*name.local) && document.contains(&*name.namespace);
    let Some(schema) = is_possible.then(|| Element::read_document(document)).flatten() else {
        return false;
    };
    let is_namespace = schema.attribute("targetNamespace").unwrap_or_default() == &*name.namespace;
    let is_element = |child: &Element| {
        child.local_name() == "element" && child.attribute("name") == Some(&*name.local)
    };
    is_namespace && schema.children().any(is_element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_declares_its_global_elements_alone() {
        let document = "<?xml version=\"1.0\"?>\n<!-- a -->\n\
            <xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:a\">\
            <xs:element name=\"order\"><xs:complexType><xs:sequence>\
            <xs:element name=\"line\" type=\"xs:string\"/></xs:sequence></xs:complexType>\
            </xs:element></xs:schema>";
        assert!(declares(document, &PayloadName::new("urn:a", "order")));
        assert!(!declares(document, &PayloadName::new("urn:a", "line")));
        assert!(!declares(document, &PayloadName::new("urn:b", "order")));
    }
}

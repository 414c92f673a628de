//! Schemas: their verdicts, the values derived from them, and texts that are refused as schemas.

mod cli;
mod derived;
mod forms;
mod from;
mod json;
mod long_messages;
mod outlines;
mod refused;
mod verdicts;
mod vocabularies;

use std::path::{Path, PathBuf};

use organism::ids::PayloadName;
use organism::schema::{SchemaProblem, Schemas};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Every valid schema, by its path under `tests/data`.
const GOOD: &[&str] = &[
    "bench/task.xsd",
    "xsd/builtins.xsd",
    "xsd/chameleon.xsd",
    "xsd/choice.xsd",
    "xsd/derived.xsd",
    "xsd/gathered.xsd",
    "xsd/keys.xsd",
    "xsd/mixed.xsd",
    "xsd/patterns.xsd",
    "xsd/recursive.xsd",
    "xsd/search.xsd",
    "xsd/shop/order.xsd",
    "xsd/substitution.xsd",
    "xsd/union.xsd",
    "xsd/unqualified.xsd",
];

fn loaded(file: &str) -> Schemas {
    let mut schemas = Schemas::default();
    schemas.add_file(&data(file)).unwrap_or_else(|problems| panic!("{file}: {problems:?}"));
    schemas
}

fn name(schemas: &Schemas, local: &str) -> PayloadName {
    schemas.names().find(|n| &*n.local == local).unwrap().clone()
}

/// Writes a schema into a separate folder and tries to load it.
fn try_text(text: &str) -> Result<Vec<PayloadName>, Vec<SchemaProblem>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    std::fs::write(&file, text).unwrap();
    Schemas::default().add_file(&file)
}

fn schema(body: &str) -> String {
    format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:b\" xmlns=\"urn:b\">{body}</xs:schema>"
    )
}

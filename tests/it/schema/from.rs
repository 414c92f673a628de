//! `organism schema from`: schemas from JSON Schemas and from examples.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};
use organism::schema::{SchemaCompiler, SchemaFile, SchemaOrigin, convert_schema, origin_of};

fn organism(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(arguments).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Converts a file, and returns the exit code, the schema and the losses.
fn converted(name: &str, content: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), content).unwrap();
    let output = organism(directory.path(), &[&["schema", "from", name], more].concat());
    let out = text(&output.stdout).to_owned();
    (output.status.code(), out, text(&output.stderr).to_owned())
}

fn shown(name: &str, content: &str, more: &[&str], expected: &Expect) {
    let (code, out, losses) = converted(name, content, more);
    expected.assert_eq(&format!("{code:?}\n{out}---\n{losses}"));
}

/// Asserts that the schema made from `content` accepts each text of `good`, and none of `bad`.
fn judges(name: &str, content: &str, good: &[&str], bad: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (code, xsd, losses) = converted(name, content, &[]);
    assert_eq!(code, Some(0), "{losses}");
    std::fs::write(directory.path().join("made.xsd"), &xsd).unwrap();
    for (texts, code) in [(good, 0), (bad, 65)] {
        for one in texts {
            std::fs::write(directory.path().join("one.xml"), one).unwrap();
            let output = organism(directory.path(), &["schema", "validate", "made.xsd", "one.xml"]);
            assert_eq!(output.status.code(), Some(code), "{one}\n{xsd}\n{output:?}");
        }
    }
}

/// A JSON Schema as `model_json_schema()` of Pydantic 2 writes it. The model has a nested model, an
/// enumeration, an optional field and bounds.
const PYDANTIC: &str = r##"{
  "$defs": {
    "Line": {
      "properties": {
        "sku": {"pattern": "^[A-Z]{2}\\d{4}$", "title": "Sku", "type": "string"},
        "count": {"exclusiveMinimum": 0, "maximum": 99, "title": "Count", "type": "integer"}
      },
      "required": ["sku", "count"], "title": "Line", "type": "object"
    },
    "Speed": {"enum": ["slow", "fast"], "title": "Speed", "type": "string"}
  },
  "description": "An order.",
  "properties": {
    "customer": {"description": "Who pays.", "maxLength": 80, "title": "Customer", "type": "string"},
    "email": {"format": "email", "title": "Email", "type": "string"},
    "speed": {"$ref": "#/$defs/Speed", "default": "slow"},
    "due": {"anyOf": [{"format": "date", "type": "string"}, {"type": "null"}], "default": null, "title": "Due"},
    "lines": {"items": {"$ref": "#/$defs/Line"}, "minItems": 1, "title": "Lines", "type": "array"}
  },
  "required": ["customer", "email", "lines"], "title": "order", "type": "object"
}"##;

#[test]
fn a_schema_of_pydantic_becomes_xsd_that_names_what_is_lost() {
    shown(
        "order.json",
        PYDANTIC,
        &[],
        &expect![[r#"
        Some(0)
        <xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:example:order" elementFormDefault="qualified">

          <xs:element name="order">
            <xs:annotation><xs:documentation>An order.</xs:documentation></xs:annotation>
            <xs:complexType>
              <xs:sequence>
                <xs:element name="customer">
                  <xs:annotation><xs:documentation>Who pays.</xs:documentation></xs:annotation>
                  <xs:simpleType>
                    <xs:restriction base="xs:string">
                      <xs:maxLength value="80"/>
                    </xs:restriction>
                  </xs:simpleType>
                </xs:element>
                <xs:element name="email" type="xs:string"/>
                <xs:element name="speed" minOccurs="0">
                  <xs:simpleType>
                    <xs:restriction base="xs:string">
                      <xs:enumeration value="slow"/>
                      <xs:enumeration value="fast"/>
                    </xs:restriction>
                  </xs:simpleType>
                </xs:element>
                <xs:element name="due" type="xs:date" minOccurs="0"/>
                <xs:element name="lines" maxOccurs="unbounded">
                  <xs:complexType>
                    <xs:sequence>
                      <xs:element name="sku">
                        <xs:simpleType>
                          <xs:restriction base="xs:string">
                            <xs:pattern value="[A-Z]{2}[0-9]{4}"/>
                          </xs:restriction>
                        </xs:simpleType>
                      </xs:element>
                      <xs:element name="count">
                        <xs:simpleType>
                          <xs:restriction base="xs:integer">
                            <xs:minExclusive value="0"/>
                            <xs:maxInclusive value="99"/>
                          </xs:restriction>
                        </xs:simpleType>
                      </xs:element>
                    </xs:sequence>
                  </xs:complexType>
                </xs:element>
              </xs:sequence>
            </xs:complexType>
          </xs:element>

        </xs:schema>
        ---
        read as a JSON Schema; --example reads it as an example
        not in it:
          /email: the format email
          /speed: default "slow"
          /due: default null
          /due: null becomes an absent element
    "#]],
    );
    let order = |lines: &str| {
        format!(
            "<order xmlns=\"urn:example:order\"><customer>Ada</customer><email>a@b</email>{lines}</order>"
        )
    };
    let line = "<lines><sku>AB1234</sku><count>3</count></lines>";
    judges(
        "order.json",
        PYDANTIC,
        &[&order(line), &order(&format!("<speed>fast</speed><due>2027-01-02</due>{line}{line}"))],
        &[
            &order(""),
            &order(&line.replace("AB1234", "AB123")),
            &order(&line.replace('3', "0")),
            &order(&format!("<speed>soon</speed>{line}")),
        ],
    );
}

#[test]
fn a_schema_of_zod_becomes_xsd() {
    // As `z.toJSONSchema` writes it, without its `$schema`.
    let zod = r#"{"type":"object","properties":{
      "kind":{"anyOf":[{"type":"string","const":"a"},{"type":"string","const":"b"}]},
      "tags":{"type":"array","items":{"type":"string"}},
      "score":{"type":"number","minimum":0,"maximum":1},
      "when":{"type":"string","format":"date-time"}},
      "required":["kind","tags"],"additionalProperties":false}"#;
    let head = "<thing xmlns=\"urn:example:thing\">";
    judges(
        "thing.json",
        zod,
        &[
            &format!("{head}<kind>a</kind></thing>"),
            &format!("{head}<kind>b</kind><tags>x</tags><tags>y</tags><score>0.5</score></thing>"),
        ],
        &[
            &format!("{head}<kind>c</kind></thing>"),
            &format!("{head}<kind>a</kind><score>1.5</score></thing>"),
            &format!("{head}<kind>a</kind><when>noon</when></thing>"),
        ],
    );
}

#[test]
fn the_short_form_is_a_section_of_a_config() {
    shown(
        "order.json",
        PYDANTIC,
        &["--short"],
        &expect![[r#"
        Some(0)
        [payloads.order]
        # Who pays.
        customer = "text"
        email = "text"
        speed = "slow | fast?"
        due = "date?"
        lines = [{ sku = "text", count = "integer" }]
        ---
        read as a JSON Schema; --example reads it as an example
        not in it:
          /email: the format email
          /speed: default "slow"
          /due: default null
          /due: null becomes an absent element
          /customer: maxLength 80
          /lines/sku: pattern [A-Z]{2}[0-9]{4}
          /lines/count: minExclusive 0
          /lines/count: maxInclusive 99
          /lines: at least 1
    "#]],
    );
    let directory = tempfile::tempdir().unwrap();
    let (_, short, _) = converted("order.json", PYDANTIC, &["--short"]);
    let config = format!(
        "organism.name = \"d\"\nclients.desk.peers = [\"shop\"]\n[listeners.shop]\n\
         command = [\"/bin/cat\"]\naccepts = [\"order\"]\n\n{short}"
    );
    std::fs::write(directory.path().join("organism.toml"), config).unwrap();
    let checked = organism(directory.path(), &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}\n{short}", text(&checked.stderr));
}

#[test]
fn the_short_form_names_a_namespace_that_it_does_not_keep() {
    let becomes = |namespace: &str| {
        format!(
            "/: the namespace {namespace:?} becomes \"https://xml-pipeline.org/ns/payloads/v1\""
        )
    };
    let (_, _, losses) = converted("order.xml", "<order xmlns=\"urn:shop\"/>", &["--short"]);
    assert!(losses.contains(&becomes("urn:shop")), "{losses}");
    let (_, _, losses) = converted("order.xml", "<order/>", &["--short"]);
    assert!(losses.contains(&becomes("")), "{losses}");

    let schema = r#"{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}"#;
    let given = ["--short", "--namespace", "urn:mine"];
    let (_, _, losses) = converted("m.json", schema, &given);
    assert!(losses.contains(&becomes("urn:mine")), "{losses}");
    let (_, _, losses) = converted("m.json", schema, &["--short"]);
    assert!(losses.contains("nothing was lost"), "{losses}");

    let own = "https://xml-pipeline.org/ns/payloads/v1";
    let whole = format!("<order xmlns=\"{own}\"><tea>a</tea></order>");
    let (_, _, losses) = converted("order.xml", &whole, &["--short"]);
    assert!(!losses.contains("namespace"), "{losses}");
    let unqualified = format!("<o:order xmlns:o=\"{own}\"><tea>a</tea></o:order>");
    let (_, _, losses) = converted("order.xml", &unqualified, &["--short"]);
    assert!(losses.contains("/: its children without a namespace are in"), "{losses}");
}

#[test]
fn a_json_schema_of_values_without_fields_is_recognised() {
    for schema in [
        r#"{"additionalProperties":{"type":"integer"},"title":"Counts","type":"object"}"#,
        r#"{"additionalProperties":true,"title":"Any","type":"object"}"#,
        r#"{"patternProperties":{"^a":{"type":"integer"}},"title":"P","type":"object"}"#,
        r#"{"enum":["a","b"],"title":"Kind","type":"string"}"#,
        r#"{"const":"a","title":"One","type":"string"}"#,
        r#"{"prefixItems":[{"type":"integer"}],"title":"Pair","type":"array"}"#,
        r#"{"maxLength":9,"minLength":1,"title":"Short","type":"string"}"#,
    ] {
        assert_eq!(origin_of(schema), SchemaOrigin::JsonSchema, "{schema}");
    }
    for example in [
        r#"{"title":"Chair","type":"object"}"#,
        r#"{"enum":"a","type":"string"}"#,
        r#"{"enum":["a","b"],"type":"menu"}"#,
        r#"{"additionalProperties":3,"type":"object"}"#,
    ] {
        assert_eq!(origin_of(example), SchemaOrigin::ExampleJson, "{example}");
    }
}

#[test]
fn an_example_in_xml_is_accepted_by_its_schema() {
    let orders = r#"<?xml version="1.0"?>
<!-- two orders -->
<o:orders xmlns:o="urn:shop" version="2"><o:order id="7" paid="true"><o:total>12.50</o:total>
<o:day>2027-01-02</o:day></o:order><o:order id="x"><o:total>3</o:total><o:note>R&amp;D</o:note></o:order></o:orders>"#;
    shown(
        "orders.xml",
        orders,
        &[],
        &expect![[r#"
        Some(0)
        <xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:shop" elementFormDefault="qualified">

          <xs:element name="orders">
            <xs:complexType>
              <xs:sequence>
                <xs:element name="order" maxOccurs="unbounded">
                  <xs:complexType>
                    <xs:sequence>
                      <xs:element name="total" type="xs:decimal"/>
                      <xs:element name="note" type="xs:string" minOccurs="0"/>
                      <xs:element name="day" type="xs:date" minOccurs="0"/>
                    </xs:sequence>
                    <xs:attribute name="id" type="xs:string" use="required"/>
                    <xs:attribute name="paid" type="xs:boolean"/>
                  </xs:complexType>
                </xs:element>
              </xs:sequence>
              <xs:attribute name="version" type="xs:integer" use="required"/>
            </xs:complexType>
          </xs:element>

        </xs:schema>
        ---
        read as an example in XML
        not in it:
          /: everything that this one example does not show
    "#]],
    );
    judges(
        "orders.xml",
        orders,
        &[orders],
        &["<orders xmlns=\"urn:shop\"/>", "<orders version=\"2\"/>"],
    );
    for odd in [
        "<a/>",
        "<a>1</a>",
        "<a x=\"1\">t</a>",
        "<a xmlns=\"u\"><b/><c/><b>1</b></a>",
        "<a><b c=\"1\"/><b>t</b></a>",
        "<a><b><c/></b><b/></a>",
        "<p:a xmlns:p=\"urn:p\"><b>1</b></p:a>",
        "<a><b>007</b><b>-1.5</b></a>",
        "<a><b>2027-01-02T03:04Z</b><c>2027-01-02T03:04:05.5+02:00</c><d>0000-01-01</d></a>",
        "<a><b>2027-01-02T23:59:60Z</b><c>2027-01-02T03:04:05+20:00</c><d>20270102</d></a>",
        "\u{feff}<größe><maß>1</maß></größe>",
    ] {
        judges("odd.xml", odd, &[odd.trim_start_matches('\u{feff}')], &[]);
    }
}

#[test]
fn an_example_in_json_becomes_xsd() {
    let note = r#"{"to": ["ada@example.org"], "urgent": true, "lines": [{"n": 1}, {"n": 2.5, "x": null}],
      "empty": [], "2nd": "b", "two words": {}}"#;
    shown(
        "note.json",
        note,
        &[],
        &expect![[r#"
        Some(0)
        <xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:example:note" elementFormDefault="qualified">

          <xs:element name="note">
            <xs:complexType>
              <xs:sequence>
                <xs:element name="to" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>
                <xs:element name="urgent" type="xs:boolean"/>
                <xs:element name="lines" minOccurs="0" maxOccurs="unbounded">
                  <xs:complexType>
                    <xs:sequence>
                      <xs:element name="n" type="xs:decimal"/>
                      <xs:element name="x" type="xs:string" minOccurs="0"/>
                    </xs:sequence>
                  </xs:complexType>
                </xs:element>
                <xs:element name="empty" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>
                <xs:element name="_2nd" type="xs:string"/>
                <xs:element name="two_words">
                  <xs:complexType/>
                </xs:element>
              </xs:sequence>
            </xs:complexType>
          </xs:element>

        </xs:schema>
        ---
        read as an example in JSON; --json-schema reads it as a JSON Schema
        not in it:
          /: everything that this one example does not show
          /2nd: the name "2nd" becomes `_2nd`
          /two words: the name "two words" becomes `two_words`
          /lines/x: null: text that may be absent
          /empty[]: an empty list: its items become text
    "#]],
    );
    let (_, book, _) = converted("book.json", r#"{"title": "Dune"}"#, &[]);
    assert!(book.contains("<xs:element name=\"book\">"), "{book}");
    let listed = r#"[{"a": 1}, {"a": 2}]"#;
    judges(
        "list.json",
        listed,
        &["<list xmlns=\"urn:example:list\"><item><a>1</a></item></list>"],
        &["<list xmlns=\"urn:example:list\"><item><a>x</a></item></list>"],
    );
}

#[test]
fn an_example_has_at_most_32_levels() {
    let nested = format!("{}x{}", "<a>".repeat(32), "</a>".repeat(32));
    let (code, _, losses) = converted("nested.xml", &nested, &[]);
    assert_eq!(code, Some(0), "{losses}");
}

#[test]
fn hostile_and_odd_inputs_end_soon_with_a_reason_or_a_schema() {
    // Each definition holds the next one twice: 2^40 elements.
    let mut bomb = String::from("{\"$schema\":\"x\",\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for n in 0..40 {
        let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", n + 1);
        bomb.push_str(&format!("\"d{n}\":{{\"properties\":{{\"a\":{next},\"b\":{next}}}}},"));
    }
    bomb.push_str("\"d40\":{\"type\":\"string\"}}}");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{}x{}", "<a>".repeat(33), "</a>".repeat(33));
    let deeper = format!("{}x{}", "<a>".repeat(200), "</a>".repeat(200));
    let attributes: String = (0..50_000).map(|n| format!(" a{n}=''")).collect();
    let wide = format!("<a{attributes}/>");
    for (name, content, reason) in [
        ("bomb.json", bomb.as_str(), "more than 2000 elements"),
        ("deep.json", deep.as_str(), "recursion"),
        ("nested.xml", nested.as_str(), "more than 32 levels"),
        ("deep.xml", deeper.as_str(), "deeper"),
        ("wide.xml", wide.as_str(), "attributes"),
        ("instruction.xml", "<?a b?><a/>", "processing instruction"),
        ("cut.json", "{\"a\": ", "neither JSON nor XML"),
        ("cut.xml", "<a><b></a>", "neither JSON nor XML"),
        ("empty.json", "", "the text is empty; write JSON or XML"),
        ("mixed.xml", "<a>text <b/> text</a>", "text between elements"),
        ("two.xml", "<a xmlns=\"u\"><b xmlns=\"v\"/><c xmlns=\"u\"/></a>", "another namespace"),
        ("doctype.xml", "<?xml version=\"1.0\"?><!-- a --><!DOCTYPE a><a/>", "has a DOCTYPE"),
        (
            "entity.xml",
            "<!DOCTYPE a [<!ENTITY e SYSTEM \"/etc/passwd\">]><a>&e;</a>",
            "has a DOCTYPE",
        ),
    ] {
        let (code, out, losses) = converted(name, content, &[]);
        assert_eq!((code, out.as_str()), (Some(65), ""), "{name}: {losses}");
        assert!(losses.contains(reason), "{name}: {losses}");
    }
    for (content, loss) in [
        (r##"{"$schema":"x","$ref":"#"}"##, "holds itself"),
        (r##"{"properties":{"a":{"$ref":"https://example.org/x"}}}"##, "not in this document"),
        (
            r#"{"properties":{"a":{"type":"string","pattern":"(?=x)y"}}}"#,
            "the pattern (?=x)y: XSD has no lookahead",
        ),
        (
            r#"{"properties":{"a":{"type":"string","pattern":"(["}}}"#,
            "the pattern ([: it does not close a bracket",
        ),
        (
            r#"{"properties":{"a":{"type":"string","pattern":"x\\B"}}}"#,
            ": XSD has no pattern with the same meaning",
        ),
        (
            r#"{"properties":{"a":{"type":"string","format":"date","pattern":"[0-9]"}}}"#,
            "the pattern [0-9]: only plain strings can have one",
        ),
        (
            r#"{"properties":{"a":{"type":"string","pattern":"[z-a]"}}}"#,
            "which XSD cannot say here",
        ),
        (
            r#"{"properties":{"a":{"type":"integer","minimum":9,"maximum":1}}}"#,
            "the minInclusive 9",
        ),
        (
            r#"{"properties":{"a":{"type":"integer","minimum":1,"exclusiveMinimum":1}}}"#,
            "/a: exclusiveMinimum 1",
        ),
        (r#"{"properties":{"a":{"type":"integer","enum":[1,"b"]}}}"#, "other values than integers"),
        (r#"{"properties":{"a":{"format":"date","maxLength":3,"type":"string"}}}"#, "maxLength 3"),
        (r#"{"properties":{"a":{"type":"array","minItems":99999}}}"#, "minItems 99999"),
        (r#"{"properties":{"a":{"type":"array","minItems":2}}}"#, "at least 2 where any"),
        (r#"{"properties":{"a":{"type":["string","null"]}},"required":["a"]}"#, "null becomes"),
        (r#"{"properties":{},"required":["b"]}"#, "\"b\" is required, but not declared"),
        (r#"{"properties":{"a":{}},"anyOf":[{"required":["a"]},{}]}"#, "anyOf of 2 alternatives"),
        (r#"{"allOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"a":{}}}]}"#, "\"a\""),
        (
            r##"{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}"##,
            "holds itself",
        ),
        (r#"{"properties":{"a b":{"type":"string"},"a_b":{"type":"string"}}}"#, "becomes `a_b_`"),
        (r#"{"properties":{"a":{"oneOf":[{"type":"string"},{"type":"object"}]}}}"#, "oneOf of 2"),
        (r#"{"properties":{"a":true}}"#, "any value"),
        (r#"{"properties":{"a":{"type":["string","integer"]}}}"#, "string or integer"),
        (r#"{"properties":{"a":{"enum":[1,null]}},"required":["a"]}"#, "null becomes an absent"),
        (r#"{"properties":{"a":{"enum":[1,{}]}}}"#, "other values"),
        (
            r##"{"$defs":{"b":{"type":"string","maxLength":9}},"properties":{"a":{"$ref":"#/$defs/b","maxLength":5}}}"##,
            "/a: $ref: maxLength 9",
        ),
        (
            r##"{"$defs":{"b":{"properties":{"c":{"type":"string"}}}},"$ref":"#/$defs/b","properties":{"c":{"type":"integer"}}}"##,
            "$ref: one of its schemas for \"c\"",
        ),
        (
            r#"{"properties":{"a":{"maxLength":5,"anyOf":[{"type":"string","maxLength":9},{"type":"null"}]}}}"#,
            "/a: anyOf: maxLength 9",
        ),
        (
            r#"{"properties":{"a":{"enum":["x"],"anyOf":[{"const":"y"},{"const":"z"}]}}}"#,
            "anyOf: enum",
        ),
        (r#"{"properties":{"a":{"enum":["x","y"],"const":"z"}}}"#, "/a: const \"z\", which enum"),
        (r#"{"properties":{"a":{"enum":["x"],"format":"email"}}}"#, "/a: the format email"),
        (r#"{"properties":{"a":{"type":"string","enum":"x"}}}"#, "/a: enum \"x\""),
        (r#"{"properties":{"a":{"type":"string","format":7}}}"#, "/a: the format 7"),
        (r#"{"properties":{"a":{"type":"string","$ref":7}}}"#, "/a: $ref 7"),
        (r#"{"properties":{"a":{"type":"string","allOf":7}}}"#, "/a: allOf 7"),
        (r#"{"properties":{"a":{"type":"object","properties":7}}}"#, "/a: properties 7"),
        (r#"{"properties":{"a":{"type":"object","required":7}}}"#, "/a: required 7"),
        (r#"{"properties":{"a":{"type":"integer","multipleOf":5}}}"#, "multipleOf 5"),
        (r#"{"properties":{"a":{"type":"string","const":"]]><!--\u0000"}}}"#, "other values"),
        (r#"{"properties":{"a":{"type":"array","items":{"type":"array"},"maxItems":0}}}"#, "inner"),
    ] {
        let (code, xsd, losses) = converted("odd.json", content, &[]);
        assert_eq!(code, Some(0), "{content}: {losses}");
        assert!(losses.contains(loss), "{content}: {losses}\n{xsd}");
    }
}

#[test]
fn an_all_of_has_the_members_of_each_of_its_parts() {
    let both = r##"{"$defs":{
      "Named":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},
      "Dated":{"type":"object","properties":{"day":{"type":"string","format":"date"}},"required":["day"]}},
      "allOf":[{"$ref":"#/$defs/Named"},{"$ref":"#/$defs/Dated"}]}"##;
    let head = "<both xmlns=\"urn:example:both\">";
    judges(
        "both.json",
        both,
        &[&format!("{head}<name>a</name><day>2027-01-02</day></both>")],
        &[&format!("{head}<name>a</name></both>"), &format!("{head}<day>2027-01-02</day></both>")],
    );
}

#[test]
fn a_pattern_matches_the_same_texts_as_in_json_schema() {
    for (pattern, good, bad) in [
        ("ab", "cabd", "ba"),
        ("^ab", "abc", "cab"),
        ("ab$", "cab", "abc"),
        ("^(a|b)-\\\\d{2}$", "a-12", "c-12"),
        ("a|b", "xbx", "xcx"),
        ("^[\\\\w.-]+@x$", "a.b-c@x", "a b@x"),
        ("^[[]$", "[", "a"),
        ("^[\\\\w-z]+$", "a-9z", "a.z"),
        ("^[\\\\w-.]+$", "a-b.c", "a/b"),
        ("^[.-\\\\d]+$", ".-5", "/"),
        ("^[a-c-e]+$", "b-e", "d"),
        ("^[-a]+$", "-a", "b"),
        ("^[a^-]+$", "a^-", "b"),
        ("^[^a-]+$", "bc", "b-"),
        ("^[a-z-[0]+$", "b-[0", "1"),
        ("^]$", "]", "["),
    ] {
        let schema = format!("{{\"$schema\":\"x\",\"type\":\"string\",\"pattern\":\"{pattern}\"}}");
        let one = |text: &str| format!("<p xmlns=\"urn:example:p\">{text}</p>");
        judges("p.json", &schema, &[&one(good)], &[&one(bad)]);
    }
}

#[test]
fn what_the_command_cannot_carry_out_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("latin.xml"), b"<a>\xe9</a>").unwrap();
    std::fs::write(directory.path().join("name.xml"), "<gr\u{f6}\u{df}e/>").unwrap();
    for (arguments, code, reason) in [
        (&["latin.xml"][..], 65, "not UTF-8"),
        (&["name.xml", "--short"], 65, "the short form cannot write the name `gr\u{f6}\u{df}e`"),
        (&["name.xml", "--name", "a"], 2, "leave out --name"),
        (&["absent.json"], 2, "absent.json cannot be read"),
    ] {
        let output = organism(directory.path(), &[&["schema", "from"], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[test]
fn a_text_from_standard_input_has_the_given_name_and_namespace() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(["schema", "from", "-", "--name", "note", "--namespace", "urn:mine&yours"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"a\": 1}").unwrap();
    let output = child.wait_with_output().unwrap();
    let xsd = text(&output.stdout);
    assert!(xsd.contains("targetNamespace=\"urn:mine&amp;yours\""), "{xsd}");
    assert!(xsd.contains("<xs:element name=\"note\">"), "{xsd}");
}

#[test]
fn an_enumeration_may_have_null_beside_its_words() {
    let head = "<p xmlns=\"urn:example:p\">";
    let schema = r#"{"type":"object","properties":{"a":{"enum":["x",null]}},"required":["a"]}"#;
    let good = [format!("{head}</p>"), format!("{head}<a>x</a></p>")];
    let good = good.each_ref().map(String::as_str);
    judges("p.json", schema, &good, &[&format!("{head}<a>y</a></p>")]);
}

#[test]
fn values_of_an_example_are_not_counted_as_elements() {
    let rows: Vec<_> = (0..5_000).map(|n| format!("{{\"n\":{n},\"at\":[{n}]}}")).collect();
    let (code, xsd, losses) = converted("rows.json", &format!("[{}]", rows.join(",")), &[]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(xsd.contains("name=\"n\" type=\"xs:integer\""), "{xsd}");

    let rows: String = (0..5_000).map(|n| format!("<row><n>{n}</n></row>")).collect();
    let (code, xsd, losses) = converted("rows.xml", &format!("<rows>{rows}</rows>"), &[]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(xsd.contains("name=\"row\" maxOccurs=\"unbounded\""), "{xsd}");

    // libxml2 takes too long for so many optional elements in one order.
    let keys: Vec<_> = (0..5_000).map(|n| format!("{{\"k{}\":1}}", n % 1_000)).collect();
    let (code, _, losses) = converted("keys.json", &format!("[{}]", keys.join(",")), &[]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(losses.contains("/item: the order and number of its children, as"), "{losses}");

    // Elements of different names are as many elements.
    let keys: Vec<_> = (0..5_000).map(|n| format!("{{\"k{n}\":1}}")).collect();
    let (code, _, losses) = converted("keys.json", &format!("[{}]", keys.join(",")), &[]);
    assert_eq!(code, Some(65));
    assert!(losses.contains("more than 2000 elements"), "{losses}");
}

#[test]
fn a_list_of_lists_keeps_its_levels() {
    let head = "<grid xmlns=\"urn:example:grid\">";
    let good = format!("{head}<rows><item>1</item><item>2</item></rows><rows/></grid>");
    let bad = format!("{head}<rows>1</rows></grid>");
    judges("grid.json", r#"{"rows":[[1,2],[3]]}"#, &[&good], &[&bad]);
    let (_, _, losses) = converted("grid.json", r#"{"rows":[[1,2],[3]]}"#, &[]);
    assert!(losses.contains("/rows[]: a list of lists"), "{losses}");
}

#[test]
fn a_null_leaves_the_type_that_other_values_show() {
    let head = "<p xmlns=\"urn:example:p\">";
    let example = r#"[{"a":null,"b":[],"c":{"d":1}},{"a":1,"b":[2],"c":null},null]"#;
    let item = |inner: &str| format!("{head}<item>{inner}</item></p>");
    let good = [item("<c><d>1</d></c>"), item("<a>1</a><b>2</b>")];
    let good = good.each_ref().map(String::as_str);
    judges("p.json", example, &good, &[&item("<a>x</a>"), &item("<b>x</b>"), &item("<c>x</c>")]);
}

#[test]
fn the_command_states_how_it_read_its_input() {
    let feature = r#"{"type":"Feature","properties":{"name":"a"},"geometry":{"type":"Point"}}"#;
    let (code, xsd, losses) = converted("place.json", feature, &[]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(xsd.contains("name=\"geometry\""), "{xsd}");
    assert!(losses.starts_with("read as an example in JSON; --json-schema"), "{losses}");

    let (_, xsd, losses) = converted("place.json", feature, &["--json-schema"]);
    assert!(!xsd.contains("name=\"geometry\""), "{xsd}");
    assert!(losses.starts_with("read as a JSON Schema; --example"), "{losses}");
    let (code, _, losses) = converted("a.xml", "<a/>", &["--json-schema"]);
    assert_eq!(code, Some(2), "{losses}");
    let (code, _, _) = converted("place.json", feature, &["--json-schema", "--example"]);
    assert_eq!(code, Some(2));
}

#[test]
fn a_list_that_may_be_null_and_a_value_that_must_be_null_name_what_they_lose() {
    let schema = r#"{"type": "object", "properties": {
        "sizes": {"anyOf": [{"type": "array", "items": {"type": "integer"}, "minItems": 2},
            {"type": "null"}]},
        "nothing": {"const": null}}}"#;
    let (code, _, losses) = converted("order.json", schema, &["--json-schema"]);
    assert_eq!(code, Some(0), "{losses}");
    assert!(losses.contains("at least 2 where any"), "{losses}");
    assert!(losses.contains("const null"), "{losses}");
}

#[test]
fn a_pattern_that_takes_too_long_to_match_is_a_loss() {
    let compiler = &mut SchemaCompiler::default();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made.xsd");

    // Different checks refuse these patterns.
    for slow in ["([a-z]+ ?[a-z]*)+;", "(a*)*b"] {
        let schema = format!(
            r#"{{"properties": {{"slow": {{"type": "string", "pattern": "^{slow}$"}},
                "code": {{"type": "string", "pattern": "^[A-Z]{{3}}$"}}}}}}"#
        );
        let origin = SchemaOrigin::JsonSchema;
        let made = convert_schema(&schema, origin, "r", None, compiler).unwrap();
        std::fs::write(&file, &made.xsd).unwrap();

        let opened = SchemaFile::open(compiler, &file).map(|_| ());
        assert_eq!(opened, Ok(()), "{}", made.xsd);
        assert!(made.xsd.contains("<xs:pattern value=\"[A-Z]{3}\"/>"), "{}", made.xsd);
        let loss = format!("/slow: the pattern {slow}, which is too long or too slow to match");
        assert_eq!(made.losses, [loss]);
    }
}

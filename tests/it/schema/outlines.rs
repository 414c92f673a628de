//! Descriptions and definitions of tools for schemas that are large, deep or unusual. They are
//! bounded, they describe a valid call, and values appear in them only as data.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use expect_test::expect;
use organism::agent::protocol::{AgentFinals, AgentVocabulary};
use organism::agent::{self, FinalFormat, RendererVersion, ReportSchema};
use organism::contract::{Contract, Contracts, Role};
use organism::ids::{ListenerName, PayloadName};
use organism::limits;
use organism::schema::{DescriptionForm, JsonSchemaForm, PartCoverage, Schemas, has_form};
use organism::xml::findings::TextLocation;
use serde_json::{Value, json};

use super::{name, schema};

/// The schemas of a file with these declarations.
fn made(body: &str) -> Schemas {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    std::fs::write(&file, schema(body)).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap_or_else(|problems| panic!("{problems:?}"));
    schemas
}

/// The only payload of these schemas, with its JSON Schema.
fn tool(schemas: &Schemas) -> (PayloadName, Value) {
    let name = schemas.names().next().unwrap().clone();
    let tool = schemas.json(&name);
    (name, tool)
}

/// Declarations of elements `PREFIX0`, `PREFIX1` and so on.
fn elements(prefix: &str, count: usize, kind: &str) -> String {
    let mut out = String::new();
    for index in 0..count {
        write!(out, "<xs:element name=\"{prefix}{index}\" type=\"{kind}\"/>").unwrap();
    }
    out
}

fn root(content: &str) -> String {
    format!("<xs:element name=\"root\"><xs:complexType>{content}</xs:complexType></xs:element>")
}

/// A named group may have the name of one of its elements. Named groups are no levels, either.
#[test]
fn the_children_in_named_groups_are_described() {
    let group = |name: &str, content: &str| {
        format!(
            "<xs:group name=\"{name}\"><xs:sequence><xs:element name=\"{name}\" \
             form=\"qualified\"><xs:complexType><xs:sequence>{content}</xs:sequence></xs:complexType></xs:element>\
             </xs:sequence></xs:group>"
        )
    };
    let groups = group("home", "<xs:group ref=\"street\"/>")
        + &group("street", "<xs:group ref=\"house\"/>")
        + &group("house", "<xs:element name=\"door\" type=\"xs:int\"/>");
    let content = "<xs:sequence><xs:group ref=\"home\"/></xs:sequence>";
    let markup = root(content).replace("<xs:complexType>", "<xs:complexType mixed=\"true\">");
    let of_markup = made(&(groups.clone() + &markup));
    let of_elements = made(&(groups + &root(content)));
    let tool = tool(&of_markup).1;
    let in_tool = tool["properties"]["content"]["description"].as_str().unwrap();
    let outlines = [&of_markup, &of_elements].map(|schemas| {
        let name = schemas.names().next().unwrap();
        assert_eq!(schemas.describe(name), schemas.outline(name));
        schemas.outline(name).to_string()
    });
    for outline in [in_tool, &outlines[0], &outlines[1]] {
        let expected = "  - home: elements, required\n    - street: elements, required\n      \
                        - house: elements, required\n        - door: whole number, required\n";
        assert!(outline.ends_with(expected), "{outline}");
    }
}

/// Prompts of the versions 8 to 14 are rebuilt with this text.
#[test]
fn earlier_descriptions_of_named_groups_stay_the_same() {
    let inner = |name: &str, content: &str| {
        format!(
            "<xs:element name=\"{name}\"><xs:complexType><xs:sequence>{content}</xs:sequence>\
             </xs:complexType></xs:element>"
        )
    };
    let home = inner("home", "<xs:element name=\"door\" type=\"xs:int\"/>")
        .replace("name=\"home\"", "name=\"home\" form=\"qualified\"");
    let leaf = "<xs:element name=\"leaf\"><xs:complexType><xs:attribute name=\"size\"/>\
                </xs:complexType></xs:element>";
    let tree = inner("tree", &inner("branch", leaf));
    let groups = format!(
        "<xs:group name=\"home\"><xs:sequence>{home}</xs:sequence></xs:group>\
         <xs:group name=\"yard\"><xs:sequence>{tree}</xs:sequence></xs:group>"
    );
    let content = "<xs:sequence><xs:group ref=\"home\"/><xs:group ref=\"yard\"/></xs:sequence>";
    let schemas = made(&(groups + &root(content)));
    let name = schemas.names().next().unwrap();
    let description = schemas.description_in(name, DescriptionForm::GroupsAsLevels);
    let expected = [
        "root",
        "  - home: elements, required",
        "  - tree: elements, required",
        "    - branch: elements, required",
        "      - leaf: empty, required, with size (not described here)",
        "  This outline leaves out the parts of 1 elements that are marked as not described. The \
         schema checks them all the same, and a refusal names what it expects. To narrow the \
         outline, let the config accept an element with fewer parts.\n",
    ];
    assert_eq!(description.to_string(), expected.join("\n"));
}

#[test]
fn a_long_chain_of_named_groups_is_cut_off() {
    let mut groups = String::new();
    for index in 0..100 {
        write!(
            groups,
            "<xs:group name=\"g{index}\"><xs:sequence><xs:element name=\"e{index}\" \
             type=\"xs:int\"/><xs:group ref=\"g{}\"/></xs:sequence></xs:group>",
            index + 1
        )
        .unwrap();
    }
    let last = "<xs:group name=\"g100\"><xs:sequence/></xs:group>";
    let outer = "<xs:element name=\"outer\"><xs:complexType><xs:sequence>\
                 <xs:element ref=\"root\"/></xs:sequence></xs:complexType></xs:element>";
    let schemas = made(&(groups + last + &root("<xs:group ref=\"g0\"/>") + outer));
    let description = schemas.describe(&name(&schemas, "root"));
    assert_eq!(description.parameters.len(), limits::OUTLINE_GROUPS_MAX);
    assert_eq!(description.coverage, PartCoverage::Partial);
    assert!(!has_form(&description));

    let description = schemas.describe(&name(&schemas, "outer"));
    assert_eq!(description.coverage, PartCoverage::Complete);
    assert_eq!(description.parameters[0].coverage, PartCoverage::Partial);
}

/// A document may redefine what another document has redefined before.
#[test]
fn each_redefinition_keeps_its_original() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, body: &str| {
        std::fs::write(folder.path().join(name), schema(body)).unwrap();
    };
    let element = |name: &str| format!("<xs:element name=\"{name}\" type=\"xs:int\"/>");
    let groups = |name: &str, [elements, attributes]: [&str; 2]| {
        format!(
            "<xs:group name=\"g\"><xs:sequence>{elements}{}</xs:sequence></xs:group>\
             <xs:attributeGroup name=\"g\">{attributes}<xs:attribute name=\"{name}-at\"/>\
             </xs:attributeGroup>",
            element(name)
        )
    };
    let text = |kind: &str, base: &str, name: &str| {
        format!(
            "<xs:complexType name=\"{kind}\"><xs:simpleContent><xs:extension base=\"{base}\">\
             <xs:attribute name=\"{name}-at\"/></xs:extension></xs:simpleContent></xs:complexType>"
        )
    };
    let again = |name: &str, of: &str| {
        let own = ["<xs:group ref=\"g\"/>", "<xs:attributeGroup ref=\"g\"/>"];
        format!(
            "<xs:redefine schemaLocation=\"{of}\">{}<xs:complexType name=\"t\">\
             <xs:complexContent><xs:extension base=\"t\"><xs:sequence>{}</xs:sequence>\
             </xs:extension></xs:complexContent></xs:complexType>{}\
             <xs:complexType name=\"r\"><xs:simpleContent><xs:restriction base=\"r\">\
             <xs:maxLength value=\"{}\"/></xs:restriction></xs:simpleContent></xs:complexType>\
             </xs:redefine>",
            groups(name, own),
            element(name),
            text("s", "s", name),
            10 - name.len()
        )
    };
    let base = format!(
        "{}<xs:complexType name=\"t\"><xs:sequence>{}</xs:sequence></xs:complexType>{}{}\
         <xs:element name=\"of-type\" type=\"t\"/><xs:element name=\"of-text\" type=\"s\"/>\
         <xs:element name=\"of-short-text\" type=\"r\"/>",
        groups("one", ["", ""]),
        element("one"),
        text("s", "xs:string", "one"),
        text("r", "xs:string", "one")
    );
    let of_groups = root("<xs:group ref=\"g\"/><xs:attributeGroup ref=\"g\"/>");
    write("base.xsd", &(base + &of_groups));
    write("middle.xsd", &again("two", "base.xsd"));
    write("main.xsd", &again("three", "middle.xsd"));

    let mut schemas = Schemas::default();
    schemas.add_file(&folder.path().join("main.xsd")).unwrap();
    for (local, expected) in [
        ("root", "@three-at @two-at @one-at one two three"),
        ("of-type", "one two three"),
        ("of-text", "@one-at @two-at @three-at"),
        ("of-short-text", "@one-at"),
    ] {
        let name = name(&schemas, local);
        let parameters = schemas.describe(&name).parameters;
        let keys: Vec<_> = parameters.iter().map(|parameter| parameter.key()).collect();
        assert_eq!(keys.join(" "), expected);
        let example = schemas.example(&name).unwrap();
        assert_eq!(schemas.validate(&name, example.as_bytes()), Ok(()), "{example}");
    }
    let text = schemas.describe(&name(&schemas, "of-short-text")).text;
    assert_eq!(text.unwrap().range.unwrap(), "at most 5 characters");
}

#[test]
fn an_attribute_named_content_stands_beside_the_content() {
    let markup = "<xs:element name=\"page\"><xs:complexType mixed=\"true\"><xs:sequence>\
                  <xs:element name=\"bold\" form=\"qualified\" type=\"xs:string\" minOccurs=\"0\"/></xs:sequence>\
                  <xs:attribute name=\"content\" type=\"xs:int\"/></xs:complexType></xs:element>";
    let schemas = made(markup);
    let (name, tool) = tool(&schemas);
    assert_eq!(tool["properties"]["content"], json!({"type": "integer"}), "{tool}");
    let outline = tool["properties"]["content.2"]["description"].as_str().unwrap();
    assert!(outline.contains("by this outline:\n  - content:"), "{outline}");

    let arguments = json!({"content": 3, "content.2": "so <bold>it</bold> is"});
    let xml = schemas.to_xml(&name, &arguments.to_string()).unwrap();
    assert_eq!(schemas.validate(&name, xml.as_bytes()), Ok(()), "{xml}");
    assert_eq!(schemas.to_json(&name, &xml).unwrap(), arguments, "{xml}");
}

/// The finals of an agent that ends its call with the only payload of these schemas.
fn finals_of(
    schemas: &mut Schemas,
    format: FinalFormat,
    version: RendererVersion,
) -> (PayloadName, AgentFinals) {
    let done = schemas.names().next().unwrap().clone();
    schemas.add_builtin("agent.xsd", agent::SCHEMA).unwrap();
    let contract = Contract {
        replies: vec![done.clone()],
        ..Contract::new(ListenerName::parse("writer").unwrap(), Role::Agent)
    };
    let contracts = Contracts::new(vec![contract.clone()]).unwrap();
    let vocabulary = AgentVocabulary::new(&contract, &contracts, schemas);
    let finals = AgentFinals::new(&vocabulary, schemas, format, version);
    (done, finals)
}

/// A prompt of an earlier version is rebuilt with the place that a report had in it.
#[test]
fn a_report_has_the_place_of_its_version_of_the_renderer() {
    let child = |name: &str| format!("<xs:element name=\"{name}\" type=\"xs:string\"/>");
    let walk = format!(
        "<xs:sequence>{a}<xs:sequence minOccurs=\"0\" maxOccurs=\"unbounded\">{a}{}\
         </xs:sequence></xs:sequence>",
        child("b"),
        a = child("a")
    );
    let group = "<xs:group name=\"text\"><xs:sequence><xs:element name=\"text\" form=\"qualified\">\
                 <xs:complexType><xs:simpleContent><xs:extension base=\"xs:string\">\
                 <xs:attribute name=\"lang\"/></xs:extension></xs:simpleContent></xs:complexType>\
                 </xs:element></xs:sequence></xs:group>";
    let group = group.to_owned() + &root("<xs:group ref=\"text\"/>");

    for (version, form, has_place) in [
        (RendererVersion::V14, JsonSchemaForm::WithXmlNames, true),
        (RendererVersion::V15, JsonSchemaForm::Current, false),
    ] {
        let (_, finals) = finals_of(&mut made(&group), FinalFormat::Markdown, version);
        assert_eq!(finals.of_text().is_some(), has_place, "{version:?}");

        let own = json!({"type": "object", "required": ["sum"]});
        let format = FinalFormat::Json(Arc::new(ReportSchema::parse(&own.to_string()).unwrap()));
        let mut schemas = made(&root(&walk));
        let (name, finals) = finals_of(&mut schemas, format, version);
        let parameters = finals.parameters(&name, schemas.json_in(&name, form));
        assert_eq!(parameters["properties"]["a"] == own, has_place, "{version:?}: {parameters}");
    }
}

#[test]
fn a_report_is_the_text_of_a_final_and_not_its_attribute_named_content() {
    let mut schemas = made(
        "<xs:element name=\"done\"><xs:complexType><xs:simpleContent>\
         <xs:extension base=\"xs:string\"><xs:attribute name=\"content\" type=\"xs:string\"/>\
         </xs:extension></xs:simpleContent></xs:complexType></xs:element>",
    );
    let (_, finals) = finals_of(&mut schemas, FinalFormat::Markdown, RendererVersion::CURRENT);
    let action = finals.write("the report", TextLocation::default()).unwrap();
    let payload = String::from_utf8(action.payload).unwrap();
    assert!(payload.ends_with(">the report</done>"), "{payload}");
}

#[test]
fn a_wide_tool_is_bounded_and_never_empty() {
    let sequence = |count| format!("<xs:sequence>{}</xs:sequence>", elements("e", count, "xs:int"));
    let choice = format!(
        "<xs:choice maxOccurs=\"unbounded\">{}</xs:choice>",
        elements("e", 2_000, "xs:int")
    );
    let note = "<xs:documentation>".to_owned() + &"A long text. ".repeat(4_000);
    let documented = "<xs:element name=\"root\"><xs:annotation>".to_owned()
        + &note
        + "</xs:documentation></xs:annotation><xs:complexType>"
        + &sequence(3)
        + "</xs:complexType></xs:element>";
    let pattern = format!(
        "<xs:element name=\"root\"><xs:complexType><xs:sequence><xs:element name=\"e0\">\
         <xs:simpleType><xs:restriction base=\"xs:string\"><xs:pattern value=\"{}\"/>\
         </xs:restriction></xs:simpleType></xs:element></xs:sequence></xs:complexType></xs:element>",
        "abcdefghij".repeat(90)
    );
    for body in [root(&sequence(2_000)), root(&choice), documented, pattern] {
        let schemas = made(&body);
        let (name, tool) = tool(&schemas);
        let length = tool.to_string().len();
        assert!(length <= limits::TOOL_SCHEMA_BYTES_MAX + 1_024, "{length}");
        let listed = tool.pointer("/properties/content/items/properties");
        let properties = listed.or(tool.get("properties")).unwrap().as_object().unwrap();
        assert!(properties.contains_key("e0"), "{tool}");
        let is_full = length >= limits::TOOL_SCHEMA_BYTES_MAX - 1_024;
        assert!(is_full || properties.len() <= 3, "{length}");

        let outline = schemas.outline(&name);
        let text = outline.to_string();
        assert!(text.len() <= limits::OUTLINE_BYTES_MAX, "{}", text.len());
        assert!(outline.parameters.iter().any(|parameter| parameter.name == "e0"), "{text}");
    }
}

#[test]
fn required_parameters_have_precedence_in_a_bounded_outline() {
    let optional = |index| format!("<xs:attribute name=\"a{index}\" type=\"xs:string\"/>");
    let many: String = (0..2_000).map(optional).collect();
    let last = "<xs:attribute name=\"last\" type=\"xs:string\" use=\"required\"/>";
    let schemas = made(&root(&format!("{many}{last}")));
    let (name, tool) = tool(&schemas);
    assert!(tool["properties"]["last"].is_object(), "{tool}");
    assert_eq!(tool["required"], json!(["last"]));
    let outline = schemas.outline(&name);
    assert!(outline.parameters.iter().any(|parameter| parameter.name == "last"), "{outline}");
    assert!(outline.left_out.is_some(), "{outline}");
}

/// A root with a chain of elements `e1` to `e8`, the last of which has this type.
fn chain(kind: &str) -> String {
    let mut inner = format!("<xs:element name=\"e8\">{kind}</xs:element>");
    for index in (1..8).rev() {
        inner = format!("<xs:element name=\"e{index}\">{}</xs:element>", {
            format!("<xs:complexType><xs:sequence>{inner}</xs:sequence></xs:complexType>")
        });
    }
    root(&format!("<xs:sequence>{inner}</xs:sequence>"))
}

#[test]
fn an_element_that_is_too_deep_is_taught_in_the_form_that_is_taken() {
    let ordered = "<xs:complexType><xs:choice maxOccurs=\"unbounded\">\
                   <xs:element name=\"a\" type=\"xs:int\"/><xs:element name=\"b\" type=\"xs:int\"/>\
                   </xs:choice></xs:complexType>";
    let repeated = "<xs:complexType><xs:sequence>\
                    <xs:element name=\"note\" type=\"xs:int\" minOccurs=\"0\"/>\
                    <xs:element name=\"item\" type=\"xs:int\" maxOccurs=\"unbounded\"/>\
                    </xs:sequence></xs:complexType>";
    let marked = "<xs:complexType mixed=\"true\"><xs:sequence><xs:any processContents=\"lax\"/>\
                  </xs:sequence><xs:attribute name=\"lang\" type=\"xs:string\"/></xs:complexType>";
    let deep = |kind: &str| {
        let schemas = made(&chain(kind));
        let (name, tool) = tool(&schemas);
        let pointer: String = (1..=8).map(|index| format!("/properties/e{index}")).collect();
        let taught = tool.pointer(&pointer).unwrap().to_string();
        (schemas, name, taught)
    };
    let called = |schemas: &Schemas, name: &PayloadName, value: Value| {
        let arguments =
            (1..=8).rev().fold(value, |inner, index| json!({format!("e{index}"): inner}));
        let xml = schemas.to_xml(name, &arguments.to_string()).unwrap();
        assert_eq!(schemas.validate(name, xml.as_bytes()), Ok(()), "{xml}");
    };

    let (schemas, name, taught) = deep(ordered);
    expect![[r#"{"type":"object","properties":{"content":{"type":"array","description":"in order, each an object with exactly one property, with a, b (not described here)"}}}"#]]
        .assert_eq(&taught);
    called(&schemas, &name, json!({"content": [{"a": 1}, {"b": 2}]}));

    let (schemas, name, taught) = deep(repeated);
    expect![[r#"{"type":"object","description":"with item (a list), note (not described here)"}"#]]
        .assert_eq(&taught);
    called(&schemas, &name, json!({"item": [1, 2], "note": 3}));

    let (schemas, name, taught) = deep(marked);
    expect![[r#"{"type":"object","properties":{"content":{"type":"string","description":"well-formed XML"}},"description":"with lang (not described here)"}"#]]
        .assert_eq(&taught);
    called(&schemas, &name, json!({"content": "<x xmlns=\"urn:x\"/>", "lang": "en"}));
}

#[test]
fn the_work_for_a_wide_schema_grows_with_its_size_alone() {
    let count = 700;
    let shared = format!(
        "<xs:complexType name=\"T\"><xs:sequence>{}</xs:sequence></xs:complexType>",
        elements("inner", count, "xs:string")
    );
    let body = shared + &root(&format!("<xs:sequence>{}</xs:sequence>", elements("e", count, "T")));
    let quickest = |work: &dyn Fn()| {
        let timed = || {
            let started = Instant::now();
            work();
            started.elapsed()
        };
        (0..3).map(|_| timed()).min().unwrap_or(Duration::MAX)
    };

    let loading = quickest(&|| drop(made(&body)));
    let schemas = made(&body);
    let name = name(&schemas, "root");
    let derived = quickest(&|| {
        assert!(!schemas.outline(&name).parameters.is_empty());
        assert!(schemas.json(&name).is_object());
    });
    // With work in the third power of the width, this factor is beyond one hundred.
    assert!(derived < loading * 30, "{derived:?} beside {loading:?} for loading it");
}

#[test]
fn samples_of_dates_are_within_their_bounds() {
    let kinds = [
        ("xs:date", "<xs:minExclusive value=\"2030-05-01\"/>"),
        ("xs:date", "<xs:maxExclusive value=\"2020-01-01\"/>"),
        ("xs:date", "<xs:minInclusive value=\"2030-05-01Z\"/><xs:pattern value=\".*Z\"/>"),
        (
            "xs:date",
            "<xs:minExclusive value=\"2030-05-01\"/><xs:maxExclusive value=\"2030-05-03\"/>",
        ),
        (
            "xs:dateTime",
            "<xs:minExclusive value=\"2030-05-01T00:00:00Z\"/><xs:pattern value=\".*:00Z\"/>",
        ),
        ("xs:time", "<xs:maxExclusive value=\"09:00:00\"/>"),
        ("xs:time", "<xs:maxExclusive value=\"13:00:00+02:00\"/>"),
        ("xs:time", "<xs:minExclusive value=\"12:00:00\"/><xs:pattern value=\"[0-9:]*\\.000\"/>"),
        (
            "xs:dateTime",
            "<xs:minExclusive value=\"2026-01-31T12:00:00\"/><xs:pattern value=\".*Z\"/>",
        ),
        ("xs:gYear", "<xs:minExclusive value=\"2030\"/>"),
        ("xs:duration", "<xs:minExclusive value=\"P30D\"/><xs:pattern value=\"P[0-9]*[MD]\"/>"),
        ("xs:duration", "<xs:minExclusive value=\"P3D\"/>"),
        ("xs:duration", "<xs:maxExclusive value=\"PT10S\"/><xs:pattern value=\"PT.*\"/>"),
    ];
    for (base, facets) in kinds {
        let schemas = made(&format!(
            "<xs:element name=\"root\"><xs:simpleType><xs:restriction base=\"{base}\">{facets}\
             </xs:restriction></xs:simpleType></xs:element>"
        ));
        let (name, _) = tool(&schemas);
        assert!(schemas.example(&name).is_some(), "{base} {facets}");
        let content = schemas.outline(&name).text.unwrap();
        let Some((_, sample)) = content.kind.split_once(" such as ") else { continue };
        let payload = format!("<root xmlns=\"urn:b\">{sample}</root>");
        assert_eq!(schemas.validate(&name, payload.as_bytes()), Ok(()), "{base} {facets} {sample}");
    }
}

#[test]
fn enumerated_values_stand_as_data() {
    let values = |count: usize| -> String {
        (0..count).map(|index| format!("<xs:enumeration value=\"v{index}\"/>")).collect()
    };
    let body = |values: &str| {
        format!(
            "<xs:element name=\"root\"><xs:complexType><xs:sequence>{}<xs:element name=\"c\">\
             <xs:simpleType><xs:restriction base=\"xs:string\"><xs:enumeration value=\"\"/>{values}\
             </xs:restriction></xs:simpleType></xs:element></xs:sequence></xs:complexType>\
             </xs:element>",
            elements("e", 1, "xs:int")
        )
    };
    let choices_of = |schemas: &Schemas| {
        let (name, _) = tool(schemas);
        let outline = schemas.outline(&name);
        let content = outline.parameters[1].content.clone();
        (serde_json::to_value(&content).unwrap(), content.to_string())
    };

    let (data, text) = choices_of(&made(&body("<xs:enumeration value=\"x\"/>")));
    assert_eq!(data["choices"], json!(["", "x"]));
    assert_eq!(text, "one of \"\" (nothing), x");

    let (data, text) = choices_of(&made(&body(&values(5_000))));
    assert_eq!(data["choices"].as_array().unwrap().len(), 12);
    assert_eq!(data["more_choices"], 4_989);
    assert!(text.ends_with("v9, v10, and 4989 more"), "{text}");
}

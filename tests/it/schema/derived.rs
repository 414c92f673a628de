//! Values derived from a schema: names, descriptions, examples, JSON Schemas, shapes.

use std::sync::Arc;

use expect_test::expect;
use organism::ids::PayloadName;
use organism::schema::Schemas;
use organism::xml::extract::{ActionGrammar, Extractor};
use organism::xml::shape::{ShapeArena, ShapeContent};
use organism::xml::write::payload;

use super::{GOOD, data, loaded, name};

// T9
#[test]
fn every_example_is_valid() {
    let mut count = 0;
    for file in GOOD {
        let schemas = loaded(file);
        for name in schemas.names() {
            let example = schemas.example(name).unwrap_or_else(|| panic!("no example of {name}"));
            assert_eq!(schemas.validate(name, example.as_bytes()), Ok(()), "{example}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}

// T9
#[test]
fn every_example_is_extracted_from_the_text_of_a_turn_and_still_valid() {
    for file in GOOD.iter().chain(&["xsd/chosen-types.xsd"]) {
        let schemas = loaded(file);
        for name in schemas.names() {
            let example = schemas.example(name).unwrap();
            let extracted = extracted(&schemas, name, &example);
            assert_eq!(schemas.validate(name, extracted.as_bytes()), Ok(()), "{extracted}");
        }
    }
}

/// The payload that the extractor finds in a turn with this text.
fn extracted(schemas: &Schemas, name: &PayloadName, text: &str) -> String {
    let mut shapes = ShapeArena::default();
    let root = schemas.shape(name, &mut shapes).unwrap();
    shapes.roots.push(root);
    let grammar = ActionGrammar::new(shapes, Vec::new(), Vec::new(), Default::default());
    let mut extractor = Extractor::new(Arc::new(grammar));
    extractor.push(text.as_bytes());
    let extraction = extractor.finish();
    let defects: Vec<_> = extraction.defects().map(ToString::to_string).collect();
    let action = extraction.actions().next().unwrap_or_else(|| panic!("{text}\n{defects:?}"));
    payload(&action.element)
}

/// Children without a namespace are valid. In XSD, local elements have none by default.
#[test]
fn bare_markup_with_children_without_a_namespace_is_extracted_as_valid() {
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:t:prose'><xs:element name='prose'><xs:complexType mixed='true'><xs:sequence><xs:element name='b' type='xs:string' minOccurs='0'/></xs:sequence><xs:attribute name='k'/></xs:complexType></xs:element></xs:schema>";
    let mut schemas = Schemas::default();
    schemas.add_builtin("prose.xsd", text).unwrap();
    let prose = name(&schemas, "prose");
    for (written, expected) in [
        (
            "<prose k=\"1\">so <b>much</b> &amp; more</prose>",
            "<p:prose xmlns:p=\"urn:t:prose\" k=\"1\">so <b>much</b> &amp; more</p:prose>",
        ),
        (
            "<prose xmlns:p=\"urn:x\">so <b>much</b></prose>",
            "<pp:prose xmlns:p=\"urn:x\" xmlns:pp=\"urn:t:prose\">so <b>much</b></pp:prose>",
        ),
        (
            "<prose>so <!-- b --> much</prose>",
            "<prose xmlns=\"urn:t:prose\">so <!-- b --> much</prose>",
        ),
    ] {
        let extracted = extracted(&schemas, &prose, written);
        assert_eq!(extracted, expected);
        assert_eq!(schemas.validate(&prose, extracted.as_bytes()), Ok(()), "{extracted}");
    }
}

// T9
#[test]
fn a_type_that_an_element_chooses_keeps_its_namespace() {
    let schemas = loaded("xsd/chosen-types.xsd");
    let zoo = name(&schemas, "zoo");
    let xsi = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"";
    let text = format!(
        "<n:zoo xmlns:n=\"urn:t:chosen-types\" {xsi}>\
         <animal xsi:type=\"n:dog\" chip=\"1\"><name>a &lt; b</name><breed>pug</breed></animal>\
         </n:zoo>"
    );
    assert_eq!(schemas.validate(&zoo, text.as_bytes()), Ok(()));
    let extracted = extracted(&schemas, &zoo, &text);
    assert_eq!(schemas.validate(&zoo, extracted.as_bytes()), Ok(()), "{extracted}");
    assert!(extracted.contains("<breed>pug</breed>"), "{extracted}");
}

#[test]
fn an_example_shows_optional_parts_and_what_the_author_offers() {
    let schemas = loaded("xsd/search.xsd");
    let example = schemas.example(&name(&schemas, "search")).unwrap();
    expect![[r#"
        <search xmlns="urn:t:search">
          <query>fn main</query>
          <path>path</path>
          <allow_tests>false</allow_tests>
          <limit>5</limit>
        </search>"#]]
    .assert_eq(&example);
}

#[test]
fn unqualified_children_do_not_inherit_a_default_namespace() {
    let schemas = loaded("xsd/unqualified.xsd");
    let example = schemas.example(&name(&schemas, "add")).unwrap();
    expect![[r#"
        <n1:add xmlns:n1="urn:t:unqualified">
          <a>1</a>
          <b>1</b>
          <n1:unit>unit</n1:unit>
        </n1:add>"#]]
    .assert_eq(&example);
}

// T9
#[test]
fn a_description_has_types_needs_and_docs() {
    let shown = |file: &str, local: &str| {
        let schemas = loaded(file);
        schemas.describe(&name(&schemas, local)).to_string()
    };
    expect![[r#"
        search: Searches the code.
          - query: text, required. What to look for.
          - path: text, optional
          - allow_tests: true or false, optional, default false
          - limit: whole number (5 to 50), optional
    "#]]
    .assert_eq(&shown("xsd/search.xsd", "search"));
    expect![[r#"
        payment
          - card: empty, alternative
            - number: text (matching \d{4}(-\d{4}){3}), required, attribute
          - iban: text, alternative
          - bic: text, alternative
          - amount: number (more than 0, at most 2 decimals), required
    "#]]
    .assert_eq(&shown("xsd/choice.xsd", "payment"));
    expect![[r#"
        tree
          - depth: whole number from 0, required, attribute
          - branch: elements, alternative, may repeat
            - depth: whole number from 0, required, attribute
            - branch: elements, alternative, may repeat
            - leaf: whole number, alternative
          - leaf: whole number, alternative
    "#]]
    .assert_eq(&shown("xsd/recursive.xsd", "tree"));
    expect![[r#"
        zoo
          - animal: elements, required
            - age: whole number from 0, optional, attribute
            - name: text, required
          - puppy: elements, required
            - chip: hexadecimal digits, required, attribute
            - name: text, required
            - breed: text, required, exactly pug
          - keeper: text, required, may repeat
    "#]]
    .assert_eq(&shown("xsd/derived.xsd", "zoo"));
    expect![[r#"
        sizes
          content: list, separated by blanks, of whole number (at least 10) or one of small, large (at least 2 items)
          - tags: list, separated by blanks, of NMTOKEN, optional, attribute
          - kind: text, optional, attribute, exactly eu
    "#]]
    .assert_eq(&shown("xsd/union.xsd", "sizes"));
}

#[test]
fn a_json_schema_has_the_same_parameters() {
    let schemas = loaded("xsd/search.xsd");
    let json = schemas.json(&name(&schemas, "search"));
    expect![[r#"{"type":"object","properties":{"query":{"type":"string","description":"What to look for."},"path":{"type":"string"},"allow_tests":{"type":"boolean","default":false},"limit":{"type":"integer","minimum":5,"maximum":50}},"required":["query"],"additionalProperties":false,"description":"Searches the code."}"#]].assert_eq(&serde_json::to_string(&json).unwrap());
    let schemas = loaded("xsd/recursive.xsd");
    let json = schemas.json(&name(&schemas, "tree"));
    expect![[r#"{"type":"object","properties":{"branch":{"type":"array","items":{"type":"object","properties":{"branch":{"type":"array","items":{"type":"object"}},"leaf":{"type":"integer"},"depth":{"type":"integer","minimum":0}},"required":["depth"],"additionalProperties":false}},"leaf":{"type":"integer"},"depth":{"type":"integer","minimum":0}},"required":["depth"],"additionalProperties":false}"#]].assert_eq(&serde_json::to_string(&json).unwrap());
    for file in GOOD {
        let schemas = loaded(file);
        for name in schemas.names() {
            assert_eq!(schemas.json(name)["type"], "object", "{name}");
        }
    }
}

/// Lengths are converted: XSD counts the bytes of a binary value, and JSON Schema counts its
/// characters.
#[test]
fn lengths_of_binary_values_and_patterns_mean_the_same_in_both_forms() {
    let schemas = loaded("xsd/binary.xsd");
    let file = name(&schemas, "file");
    expect![[r#"
        file
          - digest: hexadecimal digits (exactly 4 bytes of two digits), required
          - part: base64 (at most 8 bytes before the encoding), required
          - price: text (matching $[0-9]+), required
    "#]]
    .assert_eq(&schemas.describe(&file).to_string());
    let json = schemas.json(&file);
    let of = |key: &str| serde_json::to_string(&json["properties"][key]).unwrap();
    assert_eq!(of("digest"), r#"{"type":"string","minLength":8,"maxLength":8}"#);
    assert_eq!(of("part"), r#"{"type":"string"}"#);
    assert_eq!(of("price"), r#"{"type":"string","pattern":"^(?:\\$[0-9]+)$"}"#);
}

/// A shape as text, two levels deep.
fn shape(file: &str, local: &str) -> String {
    let schemas = loaded(file);
    let mut shapes = ShapeArena::default();
    let root = schemas.shape(&name(&schemas, local), &mut shapes).unwrap();
    let mut out = String::new();
    for shape in &shapes.nodes {
        let content = match &shape.content {
            ShapeContent::Text => "text".to_owned(),
            ShapeContent::Any { .. } => "any".to_owned(),
            ShapeContent::Elements(ids) => {
                let names = ids.iter().map(|id| shapes.get(*id).unwrap().name.local.to_string());
                names.collect::<Vec<_>>().join(",")
            }
        };
        let namespace = shape.name.namespace.as_deref().unwrap_or("-");
        let attributes: Vec<&str> = shape.attributes.iter().map(|a| &*a.local).collect();
        out += &format!("{namespace} {} [{}] {content}\n", shape.name.local, attributes.join(","));
    }
    assert_eq!(root.0, 0);
    out
}

#[test]
fn a_shape_tells_text_from_elements_and_ends_on_recursion() {
    expect![[r#"
        urn:t:search search [] query,path,allow_tests,limit
        urn:t:search query [] text
        urn:t:search path [] text
        urn:t:search allow_tests [] text
        urn:t:search limit [] text
    "#]]
    .assert_eq(&shape("xsd/search.xsd", "search"));
    expect![[r#"
        urn:t:tree tree [depth] branch,leaf
        urn:t:tree branch [depth] branch,leaf
        urn:t:tree leaf [] text
    "#]]
    .assert_eq(&shape("xsd/recursive.xsd", "tree"));
    expect![[r#"
        urn:t:unqualified add [] a,b,unit
        - a [] text
        - b [] text
        urn:t:unqualified unit [] text
    "#]]
    .assert_eq(&shape("xsd/unqualified.xsd", "add"));
    expect![[r#"
        urn:t:shapes drawing [] circle
        urn:t:shapes circle [id,r] 
    "#]]
    .assert_eq(&shape("xsd/substitution.xsd", "drawing"));
    expect![[r#"
        urn:t:mixed note [lang] any
    "#]]
    .assert_eq(&shape("xsd/mixed.xsd", "note"));
    expect![[r#"
        urn:t:mixed body [path] text
    "#]]
    .assert_eq(&shape("xsd/mixed.xsd", "body"));
    expect![[r#"
        urn:t:mixed open [] any
    "#]]
    .assert_eq(&shape("xsd/mixed.xsd", "open"));
    expect![[r#"
        urn:t:mixed ping [] 
    "#]]
    .assert_eq(&shape("xsd/mixed.xsd", "ping"));
}

#[test]
fn names_are_the_global_elements_that_can_stand_for_themselves() {
    let names = |file: &str| {
        let names: Vec<String> = loaded(file).names().map(ToString::to_string).collect();
        names.join(" ")
    };
    assert_eq!(names("xsd/substitution.xsd"), "{urn:t:shapes}circle {urn:t:shapes}drawing");
    assert_eq!(names("xsd/chameleon.xsd"), "{urn:t:chameleon}basket {urn:t:chameleon}total");
    assert_eq!(names("xsd/shop/order.xsd"), "{urn:t:order}Order");
}

#[test]
fn a_digest_covers_every_document() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |part: &str| {
        for file in ["gathered.xsd", "parts/one.xsd", "parts/two.xsd"] {
            let to = folder.path().join(file);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(data("xsd").join(file), to).unwrap();
        }
        std::fs::write(folder.path().join("parts/two.xsd"), part).unwrap();
        let mut schemas = Schemas::default();
        schemas.add_file(&folder.path().join("gathered.xsd")).unwrap();
        schemas.digest_of(&name(&schemas, "both")).unwrap()
    };
    let two = |kind: &str| {
        format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:t:parts'><xs:element name='two' type='xs:{kind}'/></xs:schema>"
        )
    };
    assert_eq!(digest(&two("int")), digest(&two("int")));
    assert_ne!(digest(&two("int")), digest(&two("string")));
}

#[test]
fn builtin_schemas_work_like_files() {
    const TEXT: &str = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:core'><xs:element name='ack'/></xs:schema>";
    let mut schemas = Schemas::default();
    let names = schemas.add_builtin("core.xsd", TEXT).unwrap();
    assert_eq!(names, [PayloadName::new("urn:core", "ack")]);
    assert!(schemas.contains(&names[0]));
    assert_eq!(schemas.validate(&names[0], b"<ack xmlns='urn:core'/>"), Ok(()));
}

#[test]
fn an_empty_enumeration_and_an_attribute_of_xml_are_described_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    let body = r#"<xs:import namespace="http://www.w3.org/XML/1998/namespace"/><xs:simpleType name="empty"><xs:restriction base="xs:string"><xs:enumeration value=""/></xs:restriction></xs:simpleType><xs:element name="e"><xs:complexType><xs:sequence><xs:element name="gone" type="empty"/></xs:sequence><xs:attribute ref="xml:lang"/></xs:complexType></xs:element>"#;
    std::fs::write(&file, super::schema(body)).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap();
    let outline = schemas.outline(&name(&schemas, "e")).to_string();
    assert!(outline.contains("- gone: empty, required"), "{outline}");
    assert!(outline.contains("- xml:lang: language or empty, optional, attribute"), "{outline}");
}

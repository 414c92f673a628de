//! Payloads of every schema in the repository, converted to JSON and back. Both forms contain the
//! same payload.

mod made;
mod wrong;

use std::path::Path;

use expect_test::expect;
use organism::schema::{Schemas, UnsupportedPart};
use organism::xml::element::{Element, Node};
use organism::{agent, system};
use serde_json::{Value, json};

use super::{GOOD, loaded, name};
use made::{Rng, json as made, schema as made_schema};

/// Every schema of the repository: those of tests, listeners, configs and the program.
fn all() -> Vec<Schemas> {
    let mut all: Vec<Schemas> = GOOD.iter().map(|file| loaded(file)).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in [
        "tests/data/agent/tools.xsd",
        "tests/data/attacks/calc.xsd",
        "config/research-desk/research-desk.xsd",
        "listeners/code-search/schema/code-search.xsd",
        "listeners/calculator/schema/calculator.xsd",
        "listeners/intake/schema/Invoice.xsd",
        "listeners/intake/schema/intake.xsd",
        "schemas/envelope.xsd",
        "schemas/actions.xsd",
        "schemas/judge.xsd",
        "config/coder/coder.xsd",
    ] {
        let mut schemas = Schemas::default();
        schemas.add_file(&root.join(file)).unwrap_or_else(|problems| panic!("{problems:?}"));
        all.push(schemas);
    }
    for (label, text) in [("core.xsd", system::SCHEMA), ("agent.xsd", agent::SCHEMA)] {
        let mut schemas = Schemas::default();
        schemas.add_builtin(label, text).unwrap();
        all.push(schemas);
    }
    all
}

/// Reduces an element to names, attributes and texts, without the white space between elements.
fn bare(element: &Element) -> Element {
    let mut attributes = element.attributes.clone();
    attributes.sort();
    let holds_elements = element.children().next().is_some();
    let content = element.content.iter().filter_map(|node| match node {
        Node::Element(child) => Some(Node::Element(bare(child))),
        Node::Text(text) if holds_elements && text.trim().is_empty() => None,
        Node::Text(text) => Some(Node::Text(text.clone())),
    });
    Element { attributes, content: content.collect(), ..element.clone() }
}

/// Converts XML to JSON and back to XML, and asserts that the element and its verdict are the same.
fn through_json(schemas: &Schemas, name: &organism::ids::PayloadName, xml: &str) {
    let json = schemas.to_json(name, xml).unwrap_or_else(|found| panic!("{xml}\n{found:?}"));
    let again = schemas.to_xml(name, &json.to_string());
    let again = again.unwrap_or_else(|found| panic!("{xml}\n{json}\n{found:?}"));
    let tree = |text: &str| bare(&Element::read(text).unwrap());
    assert_eq!(tree(&again), tree(xml), "{json}");
    assert_eq!(
        schemas.validate(name, again.as_bytes()).is_ok(),
        schemas.validate(name, xml.as_bytes()).is_ok(),
        "{xml}\n{again}"
    );
}

fn is_closed(schemas: &Schemas, name: &organism::ids::PayloadName) -> bool {
    schemas.gaps(name).iter().any(|gap| matches!(gap, UnsupportedPart::Abstract { .. }))
}

#[test]
fn every_example_is_the_same_after_json() {
    let mut count = 0;
    for schemas in all() {
        for name in schemas.names() {
            let example = schemas.example(name).unwrap();
            if is_closed(&schemas, name) {
                assert!(schemas.to_json(name, &example).is_err(), "{example}");
                continue;
            }
            through_json(&schemas, name, &example);
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn json_made_from_a_json_schema_is_the_same_after_xml() {
    let mut valid = 0;
    for (index, schemas) in all().into_iter().enumerate() {
        for name in schemas.names() {
            let schema = schemas.json(name);
            for seed in 0..20 {
                let mut rng = Rng::new(seed * 1_000 + index as u64);
                let Some(json) = made(&mut rng, &schema) else { continue };
                let xml = match schemas.to_xml(name, &json.to_string()) {
                    Ok(xml) => xml,
                    Err(found) => {
                        assert!(is_closed(&schemas, name), "{name} {json}\n{found:?}");
                        continue;
                    }
                };
                let again = schemas.to_json(name, &xml);
                let again = again.unwrap_or_else(|found| panic!("{xml}\n{found:?}"));
                assert_eq!(again, json, "{name}\n{xml}");
                if schemas.validate(name, xml.as_bytes()).is_ok() {
                    through_json(&schemas, name, &xml);
                    valid += 1;
                }
            }
        }
    }
    assert!(valid > 300, "{valid}");
}

#[test]
fn generated_schemas_go_both_ways_too() {
    let mut valid = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let text: &'static str = Box::leak(made_schema(&mut rng).into_boxed_str());
        let mut schemas = Schemas::default();
        schemas.add_builtin("made.xsd", text).unwrap_or_else(|p| panic!("{text}\n{p:?}"));
        let root = name(&schemas, "root");
        if let Some(example) = schemas.example(&root) {
            through_json(&schemas, &root, &example);
        }
        for _ in 0..6 {
            let Some(json) = made(&mut rng, &schemas.json(&root)) else { continue };
            let xml = schemas.to_xml(&root, &json.to_string());
            let xml = xml.unwrap_or_else(|found| panic!("{text}\n{json}\n{found:?}"));
            assert_eq!(schemas.to_json(&root, &xml).as_ref(), Ok(&json), "{text}\n{xml}");
            if schemas.validate(&root, xml.as_bytes()).is_ok() {
                through_json(&schemas, &root, &xml);
                valid += 1;
            }
        }
    }
    assert!(valid > 100, "{valid}");
}

#[test]
fn order_kinds_and_namespaces_are_what_the_schema_asks_for() {
    let schemas = loaded("xsd/choice.xsd");
    let payment = name(&schemas, "payment");
    let args = r#"{"amount": 12.50, "bic": "B", "iban": "I"}"#;
    expect![[
        r#"<payment xmlns="urn:t:choice"><iban>I</iban><bic>B</bic><amount>12.50</amount></payment>"#
    ]]
    .assert_eq(&schemas.to_xml(&payment, args).unwrap());
    let schemas = loaded("xsd/unqualified.xsd");
    let add = name(&schemas, "add");
    expect![[
        r#"<add xmlns="urn:t:unqualified"><a xmlns="">1</a><b xmlns="">-2</b><unit>m</unit></add>"#
    ]]
    .assert_eq(&schemas.to_xml(&add, r#"{"unit":"m","b":-2,"a":1}"#).unwrap());
    let schemas = loaded("xsd/substitution.xsd");
    let drawing = name(&schemas, "drawing");
    let xml = schemas.to_xml(&drawing, r#"{"circle":[{"id":"a","r":1e2},{"r":0.5,"id":"b"}]}"#);
    expect![[r#"<drawing xmlns="urn:t:shapes"><circle id="a" r="1e2"/><circle r="0.5" id="b"/></drawing>"#]]
        .assert_eq(&xml.unwrap());
    let schemas = loaded("xsd/mixed.xsd");
    let note = name(&schemas, "note");
    let xml = schemas.to_xml(&note, r#"{"lang":"en","content":"so <b>much</b> &amp; more"}"#);
    expect![[r#"<note xmlns="urn:t:mixed" xml:lang="en">so <b>much</b> &amp; more</note>"#]]
        .assert_eq(xml.as_ref().unwrap());
    assert_eq!(schemas.validate(&note, xml.unwrap().as_bytes()), Ok(()));
}

/// Children without a namespace are valid. In XSD, local elements have none by default.
#[test]
fn markup_with_children_without_a_namespace_is_accepted() {
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' xmlns:t='urn:t:prose' targetNamespace='urn:t:prose'><xs:element name='prose'><xs:complexType mixed='true'><xs:sequence><xs:element name='b' type='xs:string' minOccurs='0'/></xs:sequence></xs:complexType></xs:element><xs:element name='page'><xs:complexType><xs:sequence><xs:element ref='t:prose'/></xs:sequence></xs:complexType></xs:element></xs:schema>";
    let mut schemas = Schemas::default();
    schemas.add_builtin("prose.xsd", text).unwrap();
    let prose = name(&schemas, "prose");
    let xml = schemas.to_xml(&prose, r#"{"content":"so <b>much</b> more"}"#).unwrap();
    expect![[r#"<p:prose xmlns:p="urn:t:prose">so <b>much</b> more</p:prose>"#]].assert_eq(&xml);
    assert_eq!(schemas.validate(&prose, xml.as_bytes()), Ok(()));
    through_json(&schemas, &prose, &xml);

    let page = name(&schemas, "page");
    let xml = schemas.to_xml(&page, r#"{"prose":"so <b>much</b>"}"#).unwrap();
    expect![[r#"<page xmlns="urn:t:prose"><p:prose xmlns="" xmlns:p="urn:t:prose">so <b>much</b></p:prose></page>"#]]
        .assert_eq(&xml);
    assert_eq!(schemas.validate(&page, xml.as_bytes()), Ok(()));
    through_json(&schemas, &page, &xml);
}

#[test]
fn a_substitute_without_a_type_has_the_type_of_its_head() {
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' xmlns='urn:t:head' targetNamespace='urn:t:head' elementFormDefault='qualified'><xs:element name='disc' substitutionGroup='circle'/><xs:element name='circle' substitutionGroup='shape'/><xs:element name='shape' type='size' abstract='true'/><xs:complexType name='size'><xs:sequence><xs:element name='r' type='xs:int'/></xs:sequence></xs:complexType><xs:element name='draw'><xs:complexType><xs:sequence><xs:element ref='shape'/></xs:sequence></xs:complexType></xs:element></xs:schema>";
    let mut schemas = Schemas::default();
    schemas.add_builtin("head.xsd", text).unwrap();
    let draw = name(&schemas, "draw");
    assert!(schemas.gaps(&draw).is_empty(), "{:?}", schemas.gaps(&draw));
    for local in ["circle", "disc"] {
        let property = &schemas.json(&draw)["properties"][local];
        assert_eq!(property["properties"]["r"]["type"], "integer", "{local}: {property}");
        let xml = schemas.to_xml(&draw, &json!({local: {"r": 1}}).to_string()).unwrap();
        assert_eq!(schemas.validate(&draw, xml.as_bytes()), Ok(()), "{xml}");
    }
}

#[test]
fn a_fixed_list_is_an_array() {
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='lists'><xs:complexType><xs:attribute name='words' fixed='a b'><xs:simpleType><xs:list itemType='xs:string'/></xs:simpleType></xs:attribute><xs:attribute name='numbers' default='1 2'><xs:simpleType><xs:list itemType='xs:int'/></xs:simpleType></xs:attribute></xs:complexType></xs:element></xs:schema>";
    let mut schemas = Schemas::default();
    schemas.add_builtin("lists.xsd", text).unwrap();
    let lists = name(&schemas, "lists");
    let properties = schemas.json(&lists)["properties"].clone();
    assert_eq!(properties["words"]["const"], json!(["a", "b"]));
    assert_eq!(properties["numbers"]["default"], json!([1, 2]));
    let xml = schemas.to_xml(&lists, r#"{"words":["a","b"]}"#).unwrap();
    assert_eq!(schemas.validate(&lists, xml.as_bytes()), Ok(()), "{xml}");
}

/// An element with a fixed value is only valid with the text of the XSD, so a value that JSON
/// writes in another way is a string.
#[test]
fn fixed_and_default_values_have_the_type_of_their_property() {
    let kinds = [
        ("int", "+5", json!("+5"), json!(5)),
        ("int", "007", json!("007"), json!(7)),
        ("int", "5", json!(5), json!(5)),
        ("boolean", "1", json!("1"), json!(true)),
        ("boolean", "0", json!("0"), json!(false)),
        ("boolean", "true", json!(true), json!(true)),
        ("decimal", ".5", json!(".5"), json!(0.5)),
        ("double", "INF", json!("INF"), Value::Null),
        ("string", " x ", json!(" x "), json!(" x ")),
        ("ints", "+1 2", json!(["+1", "2"]), json!([1, 2])),
    ];
    let list = "<xs:simpleType name='ints'><xs:list itemType='xs:int'/></xs:simpleType>";
    for (kind, text, fixed, default) in kinds {
        let kind = if kind == "ints" { kind.to_owned() } else { format!("xs:{kind}") };
        let with_attribute = format!(
            "<xs:complexType><xs:simpleContent><xs:extension base='{kind}'>\
             <xs:attribute name='a' type='xs:int'/></xs:extension></xs:simpleContent>\
             </xs:complexType>"
        );
        let of_elements = format!(
            "<xs:element name='e' type='{kind}' fixed='{text}'/>\
             <xs:element name='t' fixed='{text}'>{with_attribute}</xs:element>"
        );
        let of_attributes = format!(
            "<xs:attribute name='f' type='{kind}' fixed='{text}'/>\
             <xs:attribute name='d' type='{kind}' default='{text}'/>"
        );
        let schema = format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{list}<xs:element name='root'>\
             <xs:complexType><xs:sequence>{of_elements}</xs:sequence>{of_attributes}\
             </xs:complexType></xs:element><xs:element name='own' type='{kind}' fixed='{text}'/>\
             <xs:element name='usual' type='{kind}' default='{text}'/></xs:schema>"
        );
        let mut schemas = Schemas::default();
        schemas.add_builtin("values.xsd", schema.leak()).unwrap();
        let root = name(&schemas, "root");
        let properties = schemas.json(&root)["properties"].clone();
        assert_eq!(properties["e"]["const"], fixed, "{text}: {properties}");
        assert_eq!(properties["f"]["const"], fixed, "{text}: {properties}");
        assert_eq!(properties["d"]["default"], default, "{text}: {properties}");
        let is_string = properties["e"]["type"] == "string";
        assert_eq!(is_string, fixed.is_string(), "{text}: {properties}");
        assert_eq!(properties["t"]["properties"]["content"], properties["e"], "{text}");

        // The text of a payload is a property, too.
        let [own, usual] = ["own", "usual"].map(|local| name(&schemas, local));
        let content = |name| schemas.json(name)["properties"]["content"].clone();
        assert_eq!(content(&own), properties["e"], "{text}");
        assert_eq!(content(&usual), properties["d"], "{text}");

        let of_root = json!({"e": fixed, "t": {"content": fixed}, "f": fixed});
        for (name, arguments) in [(root, of_root), (own, json!({"content": fixed}))] {
            let xml = schemas.to_xml(&name, &arguments.to_string()).unwrap();
            assert_eq!(schemas.validate(&name, xml.as_bytes()), Ok(()), "{xml}");
        }
    }
}

#[test]
fn numbers_keep_the_digits_they_were_written_with() {
    let schemas = loaded("xsd/choice.xsd");
    let payment = name(&schemas, "payment");
    for digits in ["0.10", "12345678901234567890.12", "3", "-0.5"] {
        let xml = schemas.to_xml(&payment, &format!("{{\"iban\":\"I\",\"amount\":{digits}}}"));
        assert!(xml.unwrap().contains(&format!("<amount>{digits}</amount>")), "{digits}");
        let xml = format!(
            "<payment xmlns=\"urn:t:choice\"><iban>I</iban><amount>{digits}</amount></payment>"
        );
        through_json(&schemas, &payment, &xml);
    }
}

#[test]
fn children_of_several_names_in_any_order_are_a_list_of_one_property_each() {
    let mut schemas = Schemas::default();
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='steps'><xs:complexType><xs:choice maxOccurs='unbounded'><xs:element name='go' type='xs:int'/><xs:element name='turn' type='xs:string'/></xs:choice></xs:complexType></xs:element></xs:schema>";
    schemas.add_builtin("steps.xsd", text).unwrap();
    let steps = name(&schemas, "steps");
    let json = json!({"content": [{"go": 1}, {"turn": "left"}, {"go": 2}]});
    let xml = schemas.to_xml(&steps, &json.to_string()).unwrap();
    assert_eq!(xml, "<steps><go>1</go><turn>left</turn><go>2</go></steps>");
    assert_eq!(schemas.to_json(&steps, &xml), Ok(json));
    let schema = schemas.json(&steps);
    assert_eq!(schema["properties"]["content"]["items"]["maxProperties"], 1);
}

#[test]
fn children_before_and_inside_of_a_repeated_group_keep_their_order() {
    let a = "<xs:element name='a' type='xs:int'/>";
    let b = "<xs:element name='b' type='xs:int'/>";
    let group = format!("<xs:group name='ab'><xs:sequence>{a}{b}</xs:sequence></xs:group>");
    let repeated = "minOccurs='0' maxOccurs='unbounded'";
    for inner in [
        format!("<xs:sequence {repeated}>{a}{b}</xs:sequence>"),
        format!("<xs:sequence {repeated}><xs:sequence>{a}</xs:sequence>{b}</xs:sequence>"),
        format!("<xs:group ref='ab' {repeated}/>"),
    ] {
        let text = format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{group}<xs:element \
             name='walk'><xs:complexType><xs:sequence>{a}{inner}</xs:sequence></xs:complexType>\
             </xs:element></xs:schema>"
        );
        let mut schemas = Schemas::default();
        schemas.add_builtin("walk.xsd", text.leak()).unwrap();
        let walk = name(&schemas, "walk");
        let json = json!({"content": [{"a": 1}, {"a": 2}, {"b": 3}, {"a": 4}, {"b": 5}]});
        let xml = schemas.to_xml(&walk, &json.to_string()).unwrap();
        assert_eq!(xml, "<walk><a>1</a><a>2</a><b>3</b><a>4</a><b>5</b></walk>");
        assert_eq!(schemas.validate(&walk, xml.as_bytes()), Ok(()));
        assert_eq!(schemas.to_json(&walk, &xml), Ok(json));
    }
}

#[test]
fn parts_that_json_cannot_express_are_reported_with_their_place() {
    let gaps = |file: &str, local: &str| {
        let schemas = loaded(file);
        let gaps = schemas.gaps(&name(&schemas, local));
        gaps.iter().map(|gap| format!("{gap} ({})\n", gap.is_closed())).collect::<String>()
    };
    let told = ["note", "body", "open", "ping", "anything"].map(|l| gaps("xsd/mixed.xsd", l));
    expect![[r#"
        /note holds markup of any kind: native calls give it as XML text (false)
        /open holds markup of any kind: native calls give it as XML text (false)
        /anything holds markup of any kind: native calls give it as XML text (false)
        /zoo/animal has an abstract type: native calls cannot give it (true)
    "#]]
    .assert_eq(&(told.concat() + &gaps("xsd/derived.xsd", "zoo")));
}

#[test]
fn local_elements_of_one_name_are_checked_each() {
    let text = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:complexType name='open' abstract='true'/><xs:element name='two'><xs:complexType><xs:sequence><xs:element name='first'><xs:complexType><xs:sequence><xs:element name='item' type='xs:string'/></xs:sequence></xs:complexType></xs:element><xs:element name='second'><xs:complexType><xs:sequence><xs:element name='item' type='open'/></xs:sequence></xs:complexType></xs:element></xs:sequence></xs:complexType></xs:element></xs:schema>";
    let mut schemas = Schemas::default();
    schemas.add_builtin("two.xsd", text).unwrap();
    let gaps = schemas.gaps(&name(&schemas, "two"));
    let gaps: Vec<_> = gaps.iter().map(|gap| (gap.to_string(), gap.is_closed())).collect();
    let expected = "/two/second/item has an abstract type: native calls cannot give it".to_owned();
    assert_eq!(gaps, [(expected, true)]);
}

#[test]
fn every_property_of_a_json_schema_has_a_name_that_providers_take() {
    let mut seen = 0;
    for schemas in all() {
        for name in schemas.names() {
            properties(&schemas.json(name), &mut |key| {
                seen += 1;
                let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                assert!(key.chars().all(good) && (1..=64).contains(&key.len()), "{name} {key}");
            });
        }
    }
    assert!(seen > 100, "{seen}");
}

fn properties(schema: &Value, each: &mut impl FnMut(&str)) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        each(key);
        properties(inner, each);
    }
    if schema.get("items").is_some() {
        properties(&schema["items"], each);
    }
}

#[test]
fn a_text_whose_attributes_are_optional_may_be_a_plain_value() {
    let schemas = loaded("xsd/measures.xsd");
    let log = name(&schemas, "log");
    let xml = |arguments: &str| schemas.to_xml(&log, arguments);
    let plain = xml(r#"{"entry": ["first", {"content": "second", "lang": "en"}]}"#).unwrap();
    expect![[
        r#"<log xmlns="urn:t:log"><entry>first</entry><entry lang="en">second</entry></log>"#
    ]]
    .assert_eq(&plain);
    assert_eq!(schemas.validate(&log, plain.as_bytes()), Ok(()));
    let wrong = xml(r#"{"entry": [["first"]]}"#).unwrap_err();
    assert_eq!(wrong[0].code, "json-type");
    let needed = xml(r#"{"entry": ["x"], "length": 5}"#).unwrap_err();
    assert!(
        needed[0].message.contains("an object is expected"),
        "its unit is required: {needed:?}"
    );
}

/// Returns the JSON Schema of an element with 60 documented children in another script, and with a
/// child that is a string of XML.
fn long_schema() -> Value {
    let doc = |text: &str| {
        format!("<xs:annotation><xs:documentation>{text}</xs:documentation></xs:annotation>")
    };
    let children = (0..60).map(|n| {
        let about = doc(&"about it ".repeat(60));
        format!("<xs:element name=\"項目{n}\" type=\"xs:string\">{about}</xs:element>")
    });
    let text = format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:long\" \
         elementFormDefault=\"qualified\"><xs:element name=\"list\"><xs:complexType><xs:sequence>\
         <xs:element name=\"Körper\"><xs:complexType mixed=\"true\"><xs:sequence><xs:element \
         name=\"p\" type=\"xs:string\"/></xs:sequence></xs:complexType></xs:element>{}\
         </xs:sequence></xs:complexType></xs:element></xs:schema>",
        children.collect::<String>()
    );
    let mut schemas = Schemas::default();
    schemas.add_builtin("long.xsd", text.leak()).unwrap();
    schemas.json(&name(&schemas, "list"))
}

#[test]
fn a_shortened_schema_keeps_the_names_in_other_scripts_and_the_forms_of_texts() {
    let schema = long_schema();
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), 61);
    let described = |key: &str| properties[key]["description"].as_str().unwrap_or_default();

    assert!(described("K_rper").starts_with("Körper: well-formed XML"), "{schema}");
    assert_eq!(described("__0"), "項目0", "the documentation was left out");
    assert_eq!(described("__59"), "項目59");
}

/// A property with a long schema is reduced to its type, if the whole schema is too long otherwise.
#[test]
fn a_property_that_is_reduced_to_its_type_keeps_its_name_in_another_script() {
    let attributes = (0..20).map(|n| {
        format!("<xs:attribute name=\"attribute{n}\" type=\"xs:string\" use=\"required\"/>")
    });
    let attributes = attributes.collect::<String>();
    let children = (0..60).map(|n| {
        format!(
            "<xs:element name=\"項目{n}\"><xs:complexType><xs:simpleContent><xs:extension \
             base=\"xs:string\">{attributes}</xs:extension></xs:simpleContent></xs:complexType>\
             </xs:element>"
        )
    });
    let text = format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:long\" \
         elementFormDefault=\"qualified\"><xs:element name=\"list\"><xs:complexType><xs:sequence>{}\
         </xs:sequence></xs:complexType></xs:element></xs:schema>",
        children.collect::<String>()
    );
    let mut schemas = Schemas::default();
    schemas.add_builtin("long.xsd", text.leak()).unwrap();
    let schema = schemas.json(&name(&schemas, "list"));

    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties["__0"], json!({"type": "object", "description": "項目0"}));
    assert_eq!(properties["__59"], json!({"type": "object", "description": "項目59"}));
}

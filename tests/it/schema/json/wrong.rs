//! Arguments that violate a payload's JSON Schema.

use expect_test::expect;

use super::super::{loaded, name};

// T14
#[test]
fn each_mistake_is_named_by_its_json_path() {
    let mut told = String::new();
    let mut check = |file: &str, local: &str, arguments: &str| {
        let schemas = loaded(file);
        let found = schemas.to_xml(&name(&schemas, local), arguments).unwrap_err();
        told += &format!("{arguments}\n");
        for one in found {
            let place = &one.place;
            told += &format!("    {} {}:{} {}\n", one.code, place.line, place.column, one.message);
        }
    };
    let search = |check: &mut dyn FnMut(&str, &str, &str), arguments: &str| {
        check("xsd/search.xsd", "search", arguments);
    };
    for arguments in [
        "",
        "{\"query\": \"x\"",
        "{'query': 'x'}",
        "[1]",
        "\"x\"",
        "{}",
        "{\"qurey\": \"x\"}",
        "{\"query\": \"x\", \"colour\": 1,\n \"limit\": \"many\"}",
        "{\"query\": 5, \"limit\": 5.5, \"allow_tests\": \"maybe\"}",
        "{\"query\": [\"x\"]}",
        "{\"query\": null}",
        "{\"query\": \"x\", \"query\": \"y\"}",
        "{\"query\": \"bell \\u0007\"}",
        "{\"query\": \"half \\ud800\"}",
    ] {
        search(&mut check, arguments);
    }
    check("xsd/recursive.xsd", "tree", "{\"depth\":1,\"branch\":[{\"depth\":2,\"leef\":3},7]}");
    check("xsd/recursive.xsd", "tree", "{\"depth\":1,\"branch\":{\"depth\":2}}");
    check("xsd/union.xsd", "sizes", "{\"content\":[12,\"small\",\"very large\"]}");
    check("xsd/mixed.xsd", "note", "{\"lang\":\"en\",\"content\":\"<b>open\"}");
    check(
        "xsd/derived.xsd",
        "zoo",
        "{\"animal\":{},\"puppy\":{\"name\":\"x\",\"breed\":\"pug\",\"chip\":\"00\"},\"keeper\":[\"k\"]}",
    );
    expect![[r#"

            json-malformed 1:1 the arguments are no JSON: EOF while parsing a value
        {"query": "x"
            json-malformed 1:13 the arguments are no JSON: EOF while parsing an object
        {'query': 'x'}
            json-malformed 1:2 the arguments are no JSON: key must be a string
        [1]
            json-type 1:1 `$` is an array; an object is expected
        "x"
            json-type 1:1 `$` is a string; an object is expected
        {}
            json-missing 1:1 `$.query` is required and not there
        {"qurey": "x"}
            json-unknown 1:11 `$.qurey` is no parameter; did you mean `query`?
            json-missing 1:1 `$.query` is required and not there
        {"query": "x", "colour": 1,
         "limit": "many"}
            json-unknown 1:26 `$.colour` is no parameter; there are query, path, allow_tests, limit
            json-type 2:11 `$.limit` is a string; a whole number is expected
        {"query": 5, "limit": 5.5, "allow_tests": "maybe"}
            json-type 1:11 `$.query` is a number; a string is expected
            json-type 1:23 `$.limit` is no whole number; a whole number is expected
            json-type 1:43 `$.allow_tests` is a string; true or false is expected
        {"query": ["x"]}
            json-type 1:11 `$.query` is an array; a string is expected
        {"query": null}
            json-type 1:11 `$.query` is null; a string is expected
        {"query": "x", "query": "y"}
            json-duplicate 1:25 `$.query` is given twice
        {"query": "bell \u0007"}
            json-type 1:11 `$.query` holds the character U+0007, which XML cannot
        {"query": "half \ud800"}
            json-malformed 1:11 `$.query` cannot be read: unexpected end of hex escape at line 1 column 13
        {"depth":1,"branch":[{"depth":2,"leef":3},7]}
            json-unknown 1:40 `$.branch[0].leef` is no parameter; did you mean `leaf`?
            json-type 1:43 `$.branch[1]` is a number; an object is expected
        {"depth":1,"branch":{"depth":2}}
            json-type 1:21 `$.branch` is an object; an array is expected
        {"content":[12,"small","very large"]}
            json-type 1:12 `$.content[2]` is empty or holds white space, which separates items
        {"lang":"en","content":"<b>open"}
            json-markup 1:24 `$.content` is no well-formed XML: `</content>`, where `</b>` was expected
        {"animal":{},"puppy":{"name":"x","breed":"pug","chip":"00"},"keeper":["k"]}
            json-type 1:11 `$.animal` needs a type chosen with xsi:type; JSON has none
    "#]].assert_eq(&told);
}

#[test]
fn optional_values_may_be_null_and_numbers_may_be_strings() {
    let schemas = loaded("xsd/search.xsd");
    let search = name(&schemas, "search");
    let xml =
        schemas.to_xml(&search, r#"{"query":"5","path":null,"limit":"10","allow_tests":"1"}"#);
    assert_eq!(
        xml.as_deref(),
        Ok(
            "<search xmlns=\"urn:t:search\"><query>5</query><allow_tests>1</allow_tests><limit>10</limit></search>"
        )
    );
}

#[test]
fn nesting_beyond_what_a_payload_may_have_is_refused_and_soon() {
    let schemas = loaded("xsd/recursive.xsd");
    let tree = name(&schemas, "tree");
    let deep = |n: usize| {
        let open = "{\"depth\":1,\"branch\":[".repeat(n);
        format!("{open}{{\"depth\":1,\"leaf\":1}}{}", "]}".repeat(n))
    };
    assert!(schemas.to_xml(&tree, &deep(40)).is_ok());
    let found = schemas.to_xml(&tree, &deep(3_000)).unwrap_err();
    assert!(found[0].message.contains("nested deeper"), "{found:?}");
}

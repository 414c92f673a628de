//! Verdicts of schemas on texts.

use std::time::Duration;

use expect_test::{Expect, expect};
use organism::limits;
use organism::schema::{SchemaCompiler, Schemas};

use super::{data, loaded, name};
use crate::processor::ProcessorTime;

/// All findings of `text`, as `code path line:column message`.
fn verdict(file: &str, local: &str, text: &str) -> String {
    let schemas = loaded(file);
    match schemas.validate(&name(&schemas, local), text.as_bytes()) {
        Ok(()) => "valid\n".to_owned(),
        Err(findings) => findings
            .iter()
            .map(|f| {
                let path = f.place.path.as_deref().unwrap_or("-");
                format!("{} {path} {}:{} {}\n", f.code, f.place.line, f.place.column, f.message)
            })
            .collect(),
    }
}

fn check(file: &str, local: &str, text: &str, expected: Expect) {
    expected.assert_eq(&verdict(file, local, text));
}

fn search(inner: &str) -> String {
    format!("<search xmlns=\"urn:t:search\">{inner}</search>")
}

// T14
#[test]
fn a_finding_names_code_path_place_and_reason() {
    let check = |inner: &str, expected: Expect| {
        check("xsd/search.xsd", "search", &search(inner), expected);
    };
    check(
        "<query>x</query>",
        expect![[r#"
        valid
    "#]],
    );
    check(
        "",
        expect![[r#"
        schema-element /search 1:1 element 'search': missing child element(s); expected is ( query )
    "#]],
    );
    check(
        "<query>x</query><limit>many</limit>",
        expect![[r#"
        schema-datatype /search/limit 1:46 element 'limit': 'many' is not a valid value of the local atomic type
    "#]],
    );
    check(
        "<query>x</query>\n <limit>51</limit>",
        expect![[r#"
        schema-range /search/limit 2:2 element 'limit': the value '51' is greater than the maximum value allowed ('50')
    "#]],
    );
    check(
        "<query>x</query><limit>4</limit>",
        expect![[r#"
        schema-range /search/limit 1:46 element 'limit': the value '4' is less than the minimum value allowed ('5')
    "#]],
    );
    check(
        "<query>x</query><allow_tests>maybe</allow_tests>",
        expect![[r#"
        schema-datatype /search/allow_tests 1:46 element 'allow_tests': 'maybe' is not a valid value of the atomic type 'xs:boolean'
    "#]],
    );
    check(
        "<query>x</query><colour>red</colour>",
        expect![[r#"
        schema-element /search/colour 1:46 element 'colour': this element is not expected; expected is one of ( path, allow_tests, limit )
    "#]],
    );
    check(
        "<query>x</query><query>y</query>",
        expect![[r#"
        schema-element /search/query[2] 1:46 element 'query': this element is not expected; expected is one of ( path, allow_tests, limit )
    "#]],
    );
    check(
        "<query a='1'>x</query>",
        expect![[r#"
        schema-attribute /search/query 1:30 element 'query', attribute 'a': the attribute 'a' is not allowed
    "#]],
    );
    check(
        "<query><b/></query>",
        expect![[r#"
        schema-element /search/query 1:30 element 'query': element content is not allowed, because the type definition is simple
    "#]],
    );
    check(
        "words <query>x</query>",
        expect![[r#"
        schema-text /search 1:1 element 'search': character content other than whitespace is not allowed because the content type is 'element-only'
    "#]],
    );
}

#[test]
fn every_kind_of_fault_has_its_code() {
    let tree = |inner: &str| format!("<tree xmlns=\"urn:t:tree\" depth=\"0\">{inner}</tree>");
    let leaf = "<branch depth='1'><leaf>1</leaf></branch>";
    check(
        "xsd/recursive.xsd",
        "tree",
        &tree(&format!("{leaf}{leaf}")),
        expect![[r#"
        valid
    "#]],
    );
    check(
        "xsd/recursive.xsd",
        "tree",
        &tree(&format!("{leaf}{leaf}{leaf}")),
        expect![[r#"
        schema-element /tree/branch[3] 1:118 element 'branch': this element is not expected
    "#]],
    );
    let second = tree(&format!("{leaf}<branch><leaf>x</leaf></branch>"));
    check(
        "xsd/recursive.xsd",
        "tree",
        &second,
        expect![[r#"
        schema-attribute-missing /tree/branch[2] 1:77 element 'branch': the attribute 'depth' is required but missing
        schema-datatype /tree/branch[2]/leaf 1:85 element 'leaf': 'x' is not a valid value of the atomic type 'xs:int'
    "#]],
    );
    check(
        "xsd/recursive.xsd",
        "tree",
        &tree("<branch depth='300'><leaf>1</leaf></branch>"),
        expect![[r#"
            schema-datatype /tree/branch 1:36 element 'branch', attribute 'depth': '300' is not a valid value of the atomic type 'xs:unsignedByte'
        "#]],
    );
    let pay = |inner: &str| format!("<payment xmlns=\"urn:t:choice\">{inner}</payment>");
    check(
        "xsd/choice.xsd",
        "payment",
        &pay("<card number='12'/><amount>1.234</amount>"),
        expect![[r#"
            schema-pattern /payment/card 1:31 element 'card', attribute 'number': the value '12' is not accepted by the pattern '\d{4}(-\d{4}){3}'
            schema-digits /payment/amount 1:50 element 'amount': the value '1.234' has more fractional digits than are allowed ('2')
        "#]],
    );
    check(
        "xsd/choice.xsd",
        "payment",
        &pay("<iban>a</iban><amount>0</amount>"),
        expect![[r#"
        schema-range /payment/amount 1:45 element 'amount': the value '0' must be greater than '0'
    "#]],
    );
    let links = "<links xmlns='urn:t:keys'><page id='a'/><page id='a'/><link to='c'/></links>";
    check(
        "xsd/keys.xsd",
        "links",
        links,
        expect![[r#"
            schema-key /links/page[2] 1:41 element 'page': duplicate key-sequence ['a'] in key identity-constraint 'pages'
            schema-key - 1:1 element 'link': no match found for key-sequence ['c'] of keyref 'targets'
        "#]],
    );
    let sizes = "<sizes xmlns='urn:t:union' kind='us'>10 tiny</sizes>";
    check(
        "xsd/union.xsd",
        "sizes",
        sizes,
        expect![[r#"
        schema-fixed /sizes 1:1 element 'sizes', attribute 'kind': the value 'us' does not match the fixed value constraint 'eu'
        schema-datatype /sizes 1:1 element 'sizes': 'tiny' is not a valid value of the union type 'size'
        schema-datatype /sizes 1:1 element 'sizes': '10 tiny' is not a valid value of the list type 'sizes'
    "#]],
    );
    check(
        "xsd/unqualified.xsd",
        "add",
        "<add xmlns='urn:t:unqualified'><a>1</a><b>2</b></add>",
        expect![[r#"
            schema-element /add/a 1:32 element '{urn:t:unqualified}a': this element is not expected; expected is ( a )
        "#]],
    );
    check(
        "xsd/mixed.xsd",
        "ping",
        "<ping xmlns='urn:t:mixed'>x</ping>",
        expect![[r#"
        schema-not-empty /ping 1:1 element 'ping': character content is not allowed, because the content type is empty
    "#]],
    );
    check(
        "xsd/substitution.xsd",
        "drawing",
        "<drawing xmlns='urn:t:shapes'><shape id='a'/></drawing>",
        expect![[r#"
            schema-abstract /drawing/shape 1:31 element 'shape': the element declaration is abstract
        "#]],
    );
    check(
        "xsd/derived.xsd",
        "zoo",
        "<zoo xmlns='urn:t:derived'><animal><name/></animal></zoo>",
        expect![[r#"
            schema-abstract /zoo/animal 1:28 element 'animal': the type definition is abstract
            schema-element /zoo 1:1 element 'zoo': missing child element(s); expected is ( puppy )
        "#]],
    );
    check(
        "xsd/chameleon.xsd",
        "total",
        "<total xmlns='urn:t:chameleon'>0.001</total>",
        expect![[r#"
            schema-digits /total 1:1 element 'total': the value '0.001' has more fractional digits than are allowed ('2')
            schema-range /total 1:1 element 'total': the value '0.001' is less than the minimum value allowed ('0.01')
        "#]],
    );
    check(
        "xsd/gathered.xsd",
        "both",
        "<b:both xmlns:b='urn:t:gathered' xmlns='urn:t:parts'><one>1</one><two>b</two></b:both>",
        expect![[r#"
            schema-datatype /both/two 1:66 element 'two': 'b' is not a valid value of the atomic type 'xs:int'
        "#]],
    );
}

/// If this version of libxml2 refuses a number because of its number of digits, the finding states
/// the limit of digits. No other value gets this text.
#[test]
fn the_limit_on_digits_is_stated_for_numbers_alone() {
    let long = "0.3333333333333333333333333";
    let schema = |definition: &str| {
        let head = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>";
        let mut schemas = Schemas::default();
        let text = format!("{head}{definition}</xs:schema>");
        let compiler = &mut SchemaCompiler::default();
        let names = schemas.add_generated(compiler, "digits.xsd", &text).unwrap();
        (schemas, names[0].clone())
    };
    let message = |definition: &str, value: &str| {
        let (schemas, name) = schema(definition);
        let text = format!("<n>{value}</n>");
        let findings = schemas.validate(&name, text.as_bytes()).err().unwrap_or_default();
        findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let limit = "; this build takes numbers of at most 24 digits";
    let plain = "<xs:element name='n' type='xs:decimal'/>";
    if message(plain, long).is_empty() {
        // libxml2 2.13 and later reads numbers of any length.
        return;
    }

    let positive = "<xs:element name='n' type='xs:positiveInteger'/>";
    let typed = |definition: &str| {
        format!("<xs:element name='n'><xs:simpleType>{definition}</xs:simpleType></xs:element>")
    };
    let own =
        typed("<xs:restriction base='xs:decimal'><xs:minInclusive value='0'/></xs:restriction>");
    let union = typed("<xs:union memberTypes='xs:date xs:boolean'/>");
    let own_int =
        typed("<xs:restriction base='xs:int'><xs:minInclusive value='0'/></xs:restriction>");
    let ints = typed("<xs:list itemType='xs:int'/>");
    let decimals = typed("<xs:list itemType='xs:decimal'/>");
    let conditional = format!("{}{}", "; if its type permits more digits:", &limit[1..]);
    let thousands = "1".repeat(4_000);
    let beyond_a_message = "1".repeat(70_000);
    for (definition, value) in [
        (plain, long),
        (plain, " -0.3333333333333333333333333 "),
        (plain, "+0001234567890123456789012345."),
        (plain, &*thousands),
        (positive, "1234567890123456789012345"),
    ] {
        let message = message(definition, value);
        assert!(message.ends_with(limit), "{value}: {message}");
        assert!(!message.contains("if its type"), "{value}: {message}");
    }
    for (definition, value) in [
        (plain, &*beyond_a_message),
        (&own, long),
        (&own_int, "1234567890123456789012345"),
        (&union, "1234567890123456789012345"),
    ] {
        let message = message(definition, value);
        assert!(message.ends_with(&conditional), "{definition}: {message}");
    }
    assert_eq!(message(&decimals, long).matches(limit).count(), 1);

    let int = "<xs:element name='n' type='xs:int'/>";
    for (definition, value) in [
        (plain, "four"),
        (plain, "0.333333333333333333333333.3"),
        (plain, "1234567890123456789012345e3"),
        (plain, ""),
        (positive, long),
        (int, "1234567890123456789012345"),
        (&ints, "1234567890123456789012345"),
    ] {
        let message = message(definition, value);
        assert!(message.contains("not a valid value"), "{value}: {message}");
        assert!(!message.contains("24 digits"), "{value}: {message}");
    }
    for value in ["0.123456789012345678901234", "000123456789012345678901234"] {
        assert_eq!(message(plain, value), "", "{value}");
    }
}

#[test]
fn the_root_must_be_the_payload_that_was_meant() {
    let text = "<unit xmlns='urn:t:unqualified'>m</unit>";
    check(
        "xsd/unqualified.xsd",
        "add",
        text,
        expect![[r#"
        schema-root /unit 1:1 the root is `{urn:t:unqualified}unit`; expected is `{urn:t:unqualified}add`
    "#]],
    );
    check(
        "xsd/unqualified.xsd",
        "unit",
        text,
        expect![[r#"
        valid
    "#]],
    );
    check(
        "xsd/unqualified.xsd",
        "unit",
        "<unit>m</unit>",
        expect![[r#"
        schema-root /unit 1:1 the root is `unit`; expected is `{urn:t:unqualified}unit`
    "#]],
    );
}

// T15
#[test]
fn ill_formed_and_invalid_texts_give_different_findings() {
    let texts: &[(&str, &str)] = &[
        ("<search xmlns='urn:t:search'><query>R&D</query></search>", "not-well-formed"),
        ("<search xmlns='urn:t:search'><query>x</search>", "not-well-formed"),
        ("<search xmlns='urn:t:search'/><search/>", "not-well-formed"),
        ("<search xmlns='urn:t:search' a='1' a='2'/>", "not-well-formed"),
        ("<search xmlns='urn:t:search'>&nope;</search>", "not-well-formed"),
        ("<!DOCTYPE search><search xmlns='urn:t:search'><query/></search>", "not-well-formed"),
        ("", "not-well-formed"),
        ("<t:search/>", "not-namespace-well-formed"),
        ("<a:b:c xmlns:a='u'/>", "not-namespace-well-formed"),
        ("<a xmlns:p='u' xmlns:q='u' p:k='1' q:k='2'/>", "not-namespace-well-formed"),
        ("<a xmlns:xml='urn:evil'/>", "not-namespace-well-formed"),
        ("<a xmlns:p=''/>", "not-namespace-well-formed"),
    ];
    let schemas = loaded("xsd/search.xsd");
    let name = name(&schemas, "search");
    for (text, code) in texts {
        let findings = schemas.validate(&name, text.as_bytes()).unwrap_err();
        assert_eq!(findings[0].code, *code, "{text}: {findings:?}");
        let doctype = text.starts_with("<!");
        assert_eq!(schemas.parse_check(text.as_bytes()).is_err(), !doctype, "{text}");
    }
    assert_eq!(schemas.parse_check(b"<a xmlns='urn:x'>fine</a>"), Ok(()));
}

#[test]
fn a_parse_error_has_its_offset() {
    let schemas = loaded("xsd/search.xsd");
    let text = "<search xmlns='urn:t:search'>\n<query>é &bad; x</query></search>";
    let findings = schemas.validate(&name(&schemas, "search"), text.as_bytes()).unwrap_err();
    let place = &findings[0].place;
    assert_eq!(place.line, 2);
    assert!(text[..place.offset].ends_with("&bad;"), "{place:?}");
}

#[test]
fn at_most_sixteen_findings_are_reported() {
    let schemas = loaded("xsd/keys.xsd");
    let name = name(&schemas, "links");
    let many = format!("<links xmlns='urn:t:keys'>{}</links>", "<page/>".repeat(40_000));
    let started = ProcessorTime::start();
    let findings = schemas.validate(&name, many.as_bytes()).unwrap_err();
    assert_eq!(findings.len(), limits::FINDINGS_MAX);
    assert_eq!(findings[15].place.path.as_deref(), Some("/links/page[8]"));
    let broken = search(&"<p:q r='1' r='2'>&no;".repeat(5_000));
    let findings = schemas.validate(&name, broken.as_bytes()).unwrap_err();
    assert!((1..=limits::FINDINGS_MAX).contains(&findings.len()));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_huge_value_does_not_make_a_huge_message() {
    let schemas = loaded("xsd/search.xsd");
    let text = search(&format!("<query>x</query><limit>{}</limit>", "9".repeat(500_000)));
    let findings = schemas.validate(&name(&schemas, "search"), text.as_bytes()).unwrap_err();
    assert!(
        findings[0].message.len() <= limits::FINDING_BYTES_MAX,
        "{}",
        findings[0].message.len()
    );
}

#[test]
fn braces_in_a_value_are_kept_in_the_message() {
    let found = verdict("xsd/search.xsd", "search", &search("<query/><limit>{urn:x}y</limit>"));
    assert!(found.contains("'{urn:x}y'"), "{found}");
}

#[test]
fn threads_validate_at_once_each_with_its_own_grammar() {
    let schemas = loaded("bench/task.xsd");
    let name = name(&schemas, "task");
    let good = std::fs::read(data("bench/task.xml")).unwrap();
    let bad = String::from_utf8(good.clone()).unwrap().replace("<priority>5", "<priority>77");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut counted = (0, 0);
                    for _ in 0..500 {
                        counted.0 += usize::from(schemas.validate(&name, &good).is_ok());
                        let findings = schemas.validate(&name, bad.as_bytes()).unwrap_err();
                        counted.1 += usize::from(findings[0].code == "schema-range");
                    }
                    counted
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), (500, 500));
        }
    });
}

#[test]
fn validating_costs_little_more_than_libxml2_itself() {
    let schemas = loaded("bench/task.xsd");
    let name = name(&schemas, "task");
    let text = std::fs::read(data("bench/task.xml")).unwrap();
    assert_eq!(schemas.validate(&name, &text), Ok(()));
    let rounds = 5_000;
    let started = ProcessorTime::start();
    for _ in 0..rounds {
        assert!(schemas.validate(&name, &text).is_ok());
    }
    let each = started.elapsed() / rounds;
    println!("parse and validate {} bytes: {each:?}", text.len());
    // A validation takes about 10 µs; the limit has a margin for an unoptimised build.
    assert!(each < Duration::from_millis(1), "{each:?}");
}

#[test]
fn hints_in_an_instance_are_never_followed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let schemas = loaded("xsd/search.xsd");
    let name = name(&schemas, "search");
    let xsi = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'";
    for hint in [
        format!("xsi:schemaLocation='urn:t:search http://{address}/x.xsd'"),
        format!("xsi:schemaLocation='urn:other http://{address}/x.xsd'"),
        format!("xsi:noNamespaceSchemaLocation='http://{address}/x.xsd'"),
        "xsi:noNamespaceSchemaLocation='file:///etc/passwd'".to_owned(),
    ] {
        let text = format!("<search xmlns='urn:t:search' {xsi} {hint}><query>x</query></search>");
        assert_eq!(schemas.validate(&name, text.as_bytes()), Ok(()), "{hint}");
        // No state of the failed attempt remains.
        assert_eq!(schemas.validate(&name, search("<query>x</query>").as_bytes()), Ok(()));
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn hostile_texts_are_validated_in_bounded_time() {
    let timed = |file: &str, text: &str| {
        let schemas = loaded(file);
        let started = ProcessorTime::start();
        let result = schemas.validate(&name(&schemas, "r"), text.as_bytes());
        let took = started.elapsed();
        println!("{file}: {} bytes in {took:?}", text.len());
        assert!(took < Duration::from_secs(30), "{file}: {took:?}");
        result
    };
    let keys: String = (0..40_000).map(|i| format!("<k id=\"{i}\"/>")).collect();
    let keys = format!("<r xmlns=\"urn:b\">{keys}</r>");
    assert_eq!(timed("xsd/hostile/keyref_quadratic.xsd", &keys), Ok(()));
    let absent = "<k/>".repeat(2_000);
    let absent = format!("<r xmlns=\"urn:b\">{absent}<k id=\"1\"/><k id=\"1\"/></r>");
    let findings = timed("xsd/hostile/keyref_quadratic.xsd", &absent).unwrap_err();
    assert_eq!(findings[0].code, "schema-key");
    let deep = "<r xmlns=\"urn:b\">".repeat(100_000) + &"</r>".repeat(100_000);
    let findings = timed("xsd/hostile/recursive_type.xsd", &deep).unwrap_err();
    assert_eq!(findings[0].code, "not-well-formed");
}

#[test]
fn an_unknown_payload_is_never_valid() {
    let name = organism::ids::PayloadName::new("urn:x", "y");
    let findings = Schemas::default().validate(&name, b"<y xmlns='urn:x'/>").unwrap_err();
    assert_eq!(findings[0].code, "schema-root");
}

#[test]
fn a_sender_gets_no_warning_about_libxml2_and_no_message_twice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyed.xsd");
    let text = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:k" xmlns:k="urn:k" elementFormDefault="qualified"><xs:element name="list"><xs:complexType><xs:sequence><xs:element name="item" maxOccurs="unbounded"><xs:complexType><xs:attribute name="id" type="xs:int"/></xs:complexType></xs:element></xs:sequence></xs:complexType><xs:key name="ids"><xs:selector xpath="k:item"/><xs:field xpath="@id"/></xs:key></xs:element></xs:schema>"#;
    std::fs::write(&file, text).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap();
    let payload = br#"<list xmlns="urn:k"><item id="x"/><item id="x"/></list>"#;
    let found = schemas.validate(&name(&schemas, "list"), payload).unwrap_err();
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(all.iter().all(|text| !text.contains("recomputed")), "{all:#?}");
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:#?}");
    assert!(all[0].contains("'x' is not a valid value"), "{all:#?}");
}

#[test]
fn a_value_that_quotes_libxml2_hides_no_finding() {
    for quoted in ["Internal error: x", "a': Warning: No precomputed value available"] {
        let text = format!("<query>{quoted}</query><limit>{quoted}</limit><limit>7</limit>");
        let schemas = loaded("xsd/search.xsd");
        let payload = search(&text);
        let found = schemas.validate(&name(&schemas, "search"), payload.as_bytes()).unwrap_err();
        let quotes = |finding: &&organism::xml::findings::Finding| finding.message.contains(quoted);
        assert!(found.iter().any(|finding| quotes(&finding)), "{found:#?}");
        assert!(found.len() > 1, "{found:#?}");

        let schemas = loaded("xsd/keys.xsd");
        let page = format!("<page id=\"{quoted}\"/>");
        let payload = format!("<links xmlns=\"urn:t:keys\">{page}{page}<link to=\"z\"/></links>");
        let found = schemas.validate(&name(&schemas, "links"), payload.as_bytes()).unwrap_err();
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found.iter().any(|finding| quotes(&finding)), "{found:#?}");
    }
}

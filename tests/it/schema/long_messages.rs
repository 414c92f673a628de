//! Findings about long values, and findings that list many permitted values or children.

use organism::limits;
use organism::schema::{SchemaCompiler, Schemas};

/// Findings of `text`, which has the namespace `urn:b`, for the root element that `body` declares
/// first.
fn messages(body: &str, text: &str) -> Vec<String> {
    let schema = format!(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:b' \
         xmlns='urn:b' elementFormDefault='qualified'>{body}</xs:schema>"
    );
    let mut schemas = Schemas::default();
    let compiler = &mut SchemaCompiler::default();
    let names = schemas.add_generated(compiler, "long.xsd", &schema).unwrap();
    let name = names.iter().find(|name| &*name.local == "r").unwrap();
    let findings = schemas.validate(name, text.as_bytes()).unwrap_err();
    findings.into_iter().map(|finding| finding.message).collect()
}

fn text(value: &str) -> String {
    format!("<r xmlns='urn:b'>{value}</r>")
}

fn restricted(facets: &str) -> String {
    format!(
        "<xs:element name='r'><xs:simpleType><xs:restriction base='xs:string'>{facets}\
         </xs:restriction></xs:simpleType></xs:element>"
    )
}

fn words<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let word = |word: T| format!("<xs:enumeration value=\"{}\"/>", word.as_ref());
    restricted(&words.into_iter().map(word).collect::<String>())
}

/// Element `r` with the given number of optional children and further content.
fn sequence(optional: usize, further: &str) -> String {
    let child = |n| format!("<xs:element name='Opt{n}' type='xs:string' minOccurs='0'/>");
    let optional: String = (0..optional).map(child).collect();
    format!(
        "<xs:element name='r'><xs:complexType><xs:sequence>{optional}{further}\
         </xs:sequence></xs:complexType></xs:element>"
    )
}

#[test]
fn a_long_value_leaves_the_reason_of_its_refusal() {
    let pattern = restricted("<xs:pattern value='[A-Za-z ]+'/>");
    let whole = "<xs:element name='r' type='xs:int'/>";
    let fixed = "<xs:element name='r' type='xs:string' fixed='yes'/>";
    let set = "is not an element of the set {'ship', 'revise'}";
    // libxml2 keeps the first 149 bytes of a message of more than 64,000 bytes.
    for times in [100, 2_500, 20_000] {
        let long = "größe 日本".repeat(times);
        let reasons = [
            (words(["ship", "revise"]), set),
            (pattern.clone(), "is not accepted by the pattern '[A-Za-z ]+'"),
            (whole.to_owned(), "is not a valid value of "),
            (fixed.to_owned(), "does not match the fixed value "),
        ];
        for (body, reason) in reasons {
            let found = messages(&body, &text(&long));
            let (quoted, end) = found[0].rsplit_once("…' ").expect(&found[0]);
            assert!(end.starts_with(reason), "{times}: {found:?}");
            assert!(quoted.starts_with("element 'r': "), "{times}: {found:?}");
            assert!(quoted.ends_with("größe 日本größe 日本"), "{times}: {found:?}");
            assert!(found[0].chars().count() < 200, "{times}: {found:?}");
        }

        let found = messages(whole, &text(&long));
        let kind = if times > 5_000 { "of its type" } else { "type 'xs:int'" };
        assert!(found[0].ends_with(kind), "{times}: {found:?}");
    }
}

#[test]
fn a_long_value_of_an_attribute_leaves_the_reason_of_its_refusal() {
    let of_kind = |kind: &str| {
        format!(
            "<xs:element name='r'><xs:complexType><xs:attribute name='a'>{kind}</xs:attribute>\
             </xs:complexType></xs:element>"
        )
    };
    let short = of_kind(
        "<xs:simpleType><xs:restriction base='xs:string'><xs:maxLength value='5'/>\
         </xs:restriction></xs:simpleType>",
    );
    let whole = of_kind("").replace("name='a'", "name='a' type='xs:int'");
    for (length, limit, kind) in [
        (30_000, "this exceeds the allowed maximum length of '5'", "type 'xs:int'"),
        (65_000, "the limit is '5'", "of its type"),
    ] {
        let payload = format!("<r xmlns='urn:b' a='{}'/>", "x".repeat(length));
        let found = messages(&short, &payload);
        let expected = format!("…' has a length of '{length}'; {limit}");
        assert!(found[0].starts_with("element 'r', attribute 'a': the value 'xx"), "{found:?}");
        assert!(found[0].ends_with(&expected), "{found:?}");

        let found = messages(&whole, &payload);
        assert!(found[0].ends_with(kind), "{found:?}");
    }
}

#[test]
fn a_long_key_leaves_the_reason_of_its_refusal() {
    let keyed = "<xs:element name='r'><xs:complexType><xs:sequence>\
        <xs:element name='k' type='xs:string' maxOccurs='unbounded'/></xs:sequence>\
        </xs:complexType><xs:unique name='ids' xmlns:b='urn:b'><xs:selector xpath='b:k'/>\
        <xs:field xpath='.'/></xs:unique></xs:element>";
    for (times, reason) in
        [(200, "unique identity-constraint 'ids'"), (9_000, "…' is not permitted")]
    {
        let key = format!("<k>{}</k>", "long key ".repeat(times));
        let found = messages(keyed, &text(&format!("{key}{key}")));
        assert!(found[0].to_lowercase().contains(&reason.to_lowercase()), "{found:?}");
        assert!(found[0].len() < 200, "{found:?}");
    }
}

#[test]
fn a_value_cannot_replace_the_reason_of_its_refusal() {
    let body = words(["ship", "revise"]);
    let set = "is not an element of the set {'ship', 'revise'}";
    let forged = "ship' is not an element of the set {'all'}".to_owned();
    let values = [
        forged.clone(),
        forged.repeat(20),
        forged.repeat(2_000),
        format!("{}{forged}", "x".repeat(60)),
        format!("{}{forged}", "x".repeat(2_000)),
        "The value '".repeat(20),
        "] The value '".repeat(20) + "] The value",
        "[facet 'enumeration'] The value '".repeat(20),
        "['x'] is not".repeat(20),
        "': '1' is not a valid value of its type".repeat(20),
        "expected is one of ( a, b )".repeat(20),
        "ship', 'revise".repeat(20),
    ];
    for value in values {
        let found = messages(&body, &text(&value));
        assert_eq!(found.len(), 1, "{value}: {found:?}");
        assert!(found[0].starts_with("element 'r': the value '"), "{value}: {found:?}");
        assert!(found[0].ends_with(set), "{value}: {found:?}");
        let quoted = found[0].len() - "element 'r': the value '' ".len() - set.len();
        assert!(quoted <= 80 + "…".len(), "{value}: {found:?}");
        assert!(value.len() <= 80 || found[0].contains("…' is not an element"), "{found:?}");
    }
}

#[test]
fn a_long_list_of_permitted_values_states_how_many_follow() {
    let few: Vec<String> = (0..40).map(|n| format!("wert-{n}-ü")).collect();
    let found = messages(&words(&few), &text("nope"));
    assert!(found[0].ends_with("'wert-38-ü', 'wert-39-ü'}"), "{found:?}");

    let short = (0..5_000).map(|n| format!("wert-{n}-ü"));
    let found = messages(&words(short), &text("nope"));
    let first = "'nope' is not an element of the set {'wert-0-ü', 'wert-1-ü', ";
    assert!(found[0].contains(first), "{found:?}");
    assert!(found[0].ends_with("'wert-11-ü', and 4988 more}"), "{found:?}");

    let long = (0..100).map(|n| format!("日本語{n}{}", "日本語".repeat(6)));
    let found = messages(&words(long), &text("nope"));
    assert!(found[0].ends_with("日本語日本語', and 91 more}"), "{found:?}");
    assert!(!found[0].contains('\u{fffd}'), "{found:?}");

    let huge = (0..100).map(|n| format!("{n}{}", "日本語".repeat(100)));
    let found = messages(&words(huge), &text("nope"));
    assert!(found[0].ends_with("日本語日本…', and 97 more}"), "{found:?}");

    let one_is_long = ["x".repeat(700), "ship".to_owned(), "revise".to_owned()];
    let found = messages(&words(&one_is_long), &text("nope"));
    assert!(found[0].ends_with("xxx…', 'ship', 'revise'}"), "{found:?}");
    let found = messages(&words(&one_is_long[..1]), &text("nope"));
    assert!(found[0].ends_with("xxx…'}"), "{found:?}");
}

#[test]
fn a_long_pattern_is_cut_with_a_mark() {
    let pattern = format!("<xs:pattern value='{}'/>", "日本語".repeat(400));
    let found = messages(&restricted(&pattern), &text("nope"));
    assert!(found[0].contains("'nope' is not accepted by the pattern '日本語"), "{found:?}");
    assert!(found[0].ends_with('…') || found[0].ends_with("…'"), "{found:?}");
    assert!(found[0].len() <= limits::FINDING_BYTES_MAX, "{found:?}");
}

#[test]
fn a_list_of_ten_expected_children_has_a_mark_because_more_may_follow() {
    let date = "<Date>2026-01-01</Date>";
    let required = "<xs:element name='ID' type='xs:string'/>\
                    <xs:element name='Date' type='xs:date'/>";
    for optional in [10, 12] {
        let found = messages(&sequence(optional, required), &text(date));
        assert!(found[0].ends_with("Opt8, Opt9, … )"), "{found:?}");
        let found = messages(&sequence(optional, required), &text(""));
        assert!(found[0].ends_with("Opt8, Opt9, … )"), "{found:?}");
    }

    let found = messages(&sequence(12, required), &text(&format!("<Opt5>x</Opt5>{date}")));
    assert!(found[0].ends_with("Opt10, Opt11, ID ); `ID` is required"), "{found:?}");
    let found = messages(&sequence(9, required), &text(date));
    assert!(found[0].ends_with("Opt7, Opt8, ID, … ); `ID` is required"), "{found:?}");
    let found = messages(&sequence(9, ""), &text(date));
    assert!(found[0].ends_with("Opt7, Opt8 )"), "{found:?}");

    let choice = sequence(14, "").replace("sequence", "choice");
    let found = messages(&choice, &text("<K1>x</K1>"));
    assert!(found[0].ends_with("Opt8, Opt9, … )"), "{found:?}");
}

#[test]
fn only_a_listed_child_is_named_as_required() {
    let id = "<xs:element name='ID' type='xs:string'/>";
    let one_of = |count| {
        let branch = |n| format!("<xs:element name='K{n}' type='xs:string'/>");
        let branches: String = (0..count).map(branch).collect();
        format!("<xs:choice>{branches}</xs:choice>{id}")
    };
    let repeated = sequence(12, id).replace("<xs:sequence", "<xs:sequence maxOccurs='unbounded'");
    for (body, payload) in [
        (sequence(0, &one_of(14)), "<ID>1</ID>"),
        (sequence(0, &one_of(14)), ""),
        (sequence(0, &one_of(10)), "<ID>1</ID>"),
        (sequence(12, &one_of(2)), "<ID>1</ID>"),
        (repeated, "<ID>1</ID><bad/>"),
    ] {
        let found = messages(&body, &text(payload));
        assert!(found[0].ends_with("9, … )"), "{payload}: {found:?}");
    }
}

#[test]
fn names_in_a_long_namespace_are_not_shortened() {
    let urn = format!("urn:oasis:names:specification:{}", "Aggregate".repeat(10));
    let schema = format!(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='{urn}' \
         xmlns='{urn}' elementFormDefault='qualified' attributeFormDefault='qualified'>\
         <xs:complexType name='Base'><xs:attribute name='unit' use='required'/>\
         <xs:attribute name='currency' use='required'/></xs:complexType>\
         <xs:complexType name='Derived'><xs:complexContent><xs:extension base='Base'/>\
         </xs:complexContent></xs:complexType>\
         <xs:element name='r' type='Base' block='extension'/></xs:schema>"
    );
    let mut schemas = Schemas::default();
    let compiler = &mut SchemaCompiler::default();
    let names = schemas.add_generated(compiler, "names.xsd", &schema).unwrap();
    let messages = |attributes: &str| {
        let payload = format!(
            "<r xmlns='{urn}' xmlns:n='{urn}' \
             xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' {attributes}/>"
        );
        let findings = schemas.validate(&names[0], payload.as_bytes()).unwrap_err();
        findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };

    let found = messages("");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("the attribute 'unit' is required but missing"), "{found:?}");
    assert!(found[1].ends_with("the attribute 'currency' is required but missing"), "{found:?}");
    let found = messages("n:unit='1' n:currency='1' n:other='1'");
    assert_eq!(found, ["element 'r', attribute 'other': the attribute 'other' is not allowed"]);
    let found = messages("n:unit='1' n:currency='1' xsi:type='Derived'");
    assert!(found[0].contains("'Derived'"), "{found:?}");
}

#[test]
fn white_space_at_the_ends_of_a_long_value_is_shown() {
    let body = restricted("<xs:pattern value='[a-z]+'/>");
    let reason = "is not accepted by the pattern '[a-z]+'";
    let blanks = " ".repeat(90);
    let cut = format!("{}… ", "a".repeat(80));
    for (value, shown) in [
        (format!("{} ", "a".repeat(200)), &*cut),
        (format!("{blanks}abc"), " abc"),
        (format!("abc{blanks}"), "abc "),
        (format!("{blanks}abc{blanks}"), " abc "),
        (blanks.clone(), " "),
    ] {
        let found = messages(&body, &text(&value));
        assert_eq!(found, [format!("element 'r': the value '{shown}' {reason}")]);
    }
}

#[test]
fn a_long_value_that_is_no_number_has_no_note_on_digits() {
    let digits = "1".repeat(90);
    for (kind, value) in [
        ("decimal", format!("{digits}abc")),
        ("decimal", format!("{digits}.1.1")),
        ("int", format!("{digits}.5")),
        ("int", "1".repeat(30) + "…"),
    ] {
        let body = format!("<xs:element name='r' type='xs:{kind}'/>");
        let found = messages(&body, &text(&value));
        let end = format!("is not a valid value of the atomic type 'xs:{kind}'");
        assert!(found[0].ends_with(&end), "{found:?}");
    }
}

#[test]
fn expected_children_in_a_long_namespace_are_listed_without_it() {
    let urn = format!("urn:oasis:names:specification:ubl:schema:xsd:{}", "Basic".repeat(20));
    let body = sequence(12, "<xs:element name='ID' type='xs:string'/>");
    let schema = format!(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='{urn}' \
         elementFormDefault='qualified'>{body}</xs:schema>"
    );
    let mut schemas = Schemas::default();
    let compiler = &mut SchemaCompiler::default();
    let names = schemas.add_generated(compiler, "ubl.xsd", &schema).unwrap();
    let payload = format!("<r xmlns='{urn}'><Date/></r>");
    let findings = schemas.validate(&names[0], payload.as_bytes()).unwrap_err();
    let message = &findings[0].message;
    assert!(
        message.ends_with("( Opt0, Opt1, Opt2, Opt3, Opt4, Opt5, Opt6, Opt7, Opt8, Opt9, … )"),
        "{message}"
    );
}

#[test]
fn a_repeated_child_is_named_as_required_only_before_it_occurs() {
    let item = "<xs:element name='item' type='xs:string' maxOccurs='unbounded'/>";
    let total = "<xs:element name='total' type='xs:string'/>";
    let body = sequence(1, &format!("{item}{total}"));
    for (payload, expected) in [
        ("<item>1</item>", "( item, total ); `total` is required"),
        ("<item>1</item><bad/><item>2</item>", "( item, total ); `total` is required"),
        ("<total>1</total>", "( Opt0, item ); `item` is required"),
        ("<total>1</total><item>1</item>", "( Opt0, item ); `item` is required"),
        ("", "( Opt0, item ); `item` is required"),
    ] {
        let found = messages(&body, &text(payload));
        assert!(found[0].ends_with(expected), "{payload}: {found:?}");
    }

    let rows = "<xs:element name='row' maxOccurs='9'><xs:complexType><xs:sequence>ITEM\
         </xs:sequence></xs:complexType></xs:element>";
    let body = sequence(0, &rows.replace("ITEM", &format!("{item}{total}")));
    let good = "<row><item>1</item><total>1</total></row>";
    let found = messages(&body, &text(&format!("{good}<row><item>1</item></row>")));
    assert!(found[0].ends_with("( item, total ); `total` is required"), "{found:?}");
}

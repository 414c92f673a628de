//! The scan alone: each rule on short texts, with the location of the defect.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use organism::ids::PayloadName;
use organism::limits;
use organism::xml::findings::TextLocation;
use organism::xml::scan::{BrokenRule, attributes, nested, scan, split};

/// Compares the results of the scan with `expected`, one line for each text.
fn verdicts(texts: &[&str], expected: Expect) {
    let mut out = String::new();
    for text in texts {
        let verdict = match scan(text.as_bytes()) {
            Ok(scanned) => {
                format!("{} as {}", text[scanned.root].escape_debug(), scanned.name)
            }
            Err(violation) => {
                let place = TextLocation::at(text.as_bytes(), violation.offset);
                let (line, column) = (place.line, place.column);
                format!("{:?} {line}:{column} {}", violation.breach, violation.message)
            }
        };
        writeln!(out, "{:<34} {verdict}", text.escape_debug().to_string()).unwrap();
    }
    expected.assert_eq(&out);
}

fn breach(text: &[u8]) -> Option<BrokenRule> {
    scan(text).err().map(|violation| violation.breach)
}

#[test]
fn text_around_the_root_is_removed() {
    verdicts(
        &[
            "<a/>",
            " \n<a/>\t",
            "\u{FEFF}<a/>",
            "<?xml version='1.0'?><a/>",
            "\u{FEFF}<?xml version=\"1.0\" encoding=\"utf-8\" standalone='yes' ?>\n<a/>",
            "<!-- x --><a>1</a><!-- <b/> -->",
            "<a xmlns='u'><b/></a>",
            "<p:a xmlns:p='u'/>",
            "<a xmlns='u&#58;&amp;v'/>",
            "<a xmlns='u\nv'/>",
            "<a xmlns=''/>",
            "<xml:a/>",
            "<é ü='ß'>漢</é>",
            "<a ><b  x = '1'\n y=\"2\" /></a >",
            "<a>&lt;&#x1F600;&#0065;</a>",
            "<a><![CDATA[<!DOCTYPE x><?p?>&e;]]]]></a>",
            "<a><!--<!DOCTYPE x><?p?>&e;--></a>",
            "<a x='>' y='/>'>]] > ></a>",
            "<a xmlns:p='u' p:x='1' x='2'/>",
            "<a p:x='1' xmlns:p='u'/>",
            "<a xmlns:p='u' xmlns:q='v' p:x='1' q:x='2'/>",
            "<a xmlns:xml='http://www.w3.org/XML/1998/namespace' xml:lang='en'/>",
            "<p:a xmlns:p='u'><p:b xmlns:p='v'/></p:a>",
        ],
        expect![[r#"
            <a/>                               <a/> as a
             \n<a/>\t                          <a/> as a
            \u{feff}<a/>                       <a/> as a
            <?xml version=\'1.0\'?><a/>        <a/> as a
            \u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\'yes\' ?>\n<a/> <a/> as a
            <!-- x --><a>1</a><!-- <b/> -->    <a>1</a> as a
            <a xmlns=\'u\'><b/></a>            <a xmlns=\'u\'><b/></a> as {u}a
            <p:a xmlns:p=\'u\'/>               <p:a xmlns:p=\'u\'/> as {u}a
            <a xmlns=\'u&#58;&amp;v\'/>        <a xmlns=\'u&#58;&amp;v\'/> as {u:&v}a
            <a xmlns=\'u\nv\'/>                <a xmlns=\'u\nv\'/> as {u v}a
            <a xmlns=\'\'/>                    <a xmlns=\'\'/> as a
            <xml:a/>                           <xml:a/> as {http://www.w3.org/XML/1998/namespace}a
            <é ü=\'ß\'>漢</é>                   <é ü=\'ß\'>漢</é> as é
            <a ><b  x = \'1\'\n y=\"2\" /></a > <a ><b  x = \'1\'\n y=\"2\" /></a > as a
            <a>&lt;&#x1F600;&#0065;</a>        <a>&lt;&#x1F600;&#0065;</a> as a
            <a><![CDATA[<!DOCTYPE x><?p?>&e;]]]]></a> <a><![CDATA[<!DOCTYPE x><?p?>&e;]]]]></a> as a
            <a><!--<!DOCTYPE x><?p?>&e;--></a> <a><!--<!DOCTYPE x><?p?>&e;--></a> as a
            <a x=\'>\' y=\'/>\'>]] > ></a>     <a x=\'>\' y=\'/>\'>]] > ></a> as a
            <a xmlns:p=\'u\' p:x=\'1\' x=\'2\'/> <a xmlns:p=\'u\' p:x=\'1\' x=\'2\'/> as a
            <a p:x=\'1\' xmlns:p=\'u\'/>       <a p:x=\'1\' xmlns:p=\'u\'/> as a
            <a xmlns:p=\'u\' xmlns:q=\'v\' p:x=\'1\' q:x=\'2\'/> <a xmlns:p=\'u\' xmlns:q=\'v\' p:x=\'1\' q:x=\'2\'/> as a
            <a xmlns:xml=\'http://www.w3.org/XML/1998/namespace\' xml:lang=\'en\'/> <a xmlns:xml=\'http://www.w3.org/XML/1998/namespace\' xml:lang=\'en\'/> as a
            <p:a xmlns:p=\'u\'><p:b xmlns:p=\'v\'/></p:a> <p:a xmlns:p=\'u\'><p:b xmlns:p=\'v\'/></p:a> as {u}a
        "#]],
    );
}

#[test]
fn forbidden_markup_is_refused_at_every_place() {
    verdicts(
        &[
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>",
            "<a><!DOCTYPE a></a>",
            "<a/><!DOCTYPE a>",
            "<a><!ENTITY e 'x'></a>",
            "<?xml-stylesheet href='x'?><a/>",
            "<a>\n <?p?></a>",
            "<a/><?p?>",
            " <?xml version='1.0'?><a/>",
            "<?xml version='1.0'?><?xml version='1.0'?><a/>",
            "<a><b><!DOCTYPE a>",
            "<a k='1' k='2'/><!DOCTYPE a>",
            "<a><!-- --><?p?><!-- --></a>",
            "<a><![CDATA[]]><?p?></a>",
        ],
        expect![[r#"
            <!DOCTYPE a><a/>                   Forbidden 1:1 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <!DOCTYPE a [<!ENTITY e \'x\'>]><a>&e;</a> Forbidden 1:1 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <a><!DOCTYPE a></a>                Forbidden 1:4 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <a/><!DOCTYPE a>                   Forbidden 1:5 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <a><!ENTITY e \'x\'></a>           Forbidden 1:4 a declaration; payloads have elements, text, comments and CDATA only
            <?xml-stylesheet href=\'x\'?><a/>  Forbidden 1:1 a processing instruction; payloads have elements, text, comments and CDATA only
            <a>\n <?p?></a>                    Forbidden 2:2 a processing instruction; payloads have elements, text, comments and CDATA only
            <a/><?p?>                          Forbidden 1:5 a processing instruction; payloads have elements, text, comments and CDATA only
             <?xml version=\'1.0\'?><a/>       Forbidden 1:2 a processing instruction; payloads have elements, text, comments and CDATA only
            <?xml version=\'1.0\'?><?xml version=\'1.0\'?><a/> Forbidden 1:22 a processing instruction; payloads have elements, text, comments and CDATA only
            <a><b><!DOCTYPE a>                 Forbidden 1:7 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <a k=\'1\' k=\'2\'/><!DOCTYPE a>   Forbidden 1:17 a DOCTYPE; payloads have elements, text, comments and CDATA only
            <a><!-- --><?p?><!-- --></a>       Forbidden 1:12 a processing instruction; payloads have elements, text, comments and CDATA only
            <a><![CDATA[]]><?p?></a>           Forbidden 1:16 a processing instruction; payloads have elements, text, comments and CDATA only
        "#]],
    );
}

#[test]
fn malformed_text_is_refused_with_its_location() {
    verdicts(
        &[
            "<a>",
            "<a><b></a>",
            "<a></b>",
            "</a>",
            "<a/></a>",
            "<a",
            "<a><b",
            "<a></a",
            "<>x</>",
            "< a/>",
            "<1a/>",
            "<-a/>",
            "<a><b/ ></a>",
            "<a x/>",
            "<a x=1/>",
            "<a x='1/>",
            "<a x='1'y='2'/>",
            "<a x='1' x='2'/>",
            "<a xmlns:p='u' xmlns:q='u' p:x='1' q:x='2'/>",
            "<a x='<'/>",
            "<a x='&'/>",
            "<a x='&nope;'/>",
            "<a 1x='2'/>",
            "<a>R&D</a>",
            "<a>x < y</a>",
            "<a>&nope;</a>",
            "<a>&#0;</a>",
            "<a>&#xD800;</a>",
            "<a>&#x110000;</a>",
            "<a>&#99999999999999999999;</a>",
            "<a>&#;</a>",
            "<a>&#x;</a>",
            "<a>&#+1;</a>",
            "<a>&#X41;</a>",
            "<a>]]></a>",
            "<a><!-- -- --></a>",
            "<a><!-- ---></a>",
            "<a><!--></a>",
            "<a><!-- </a>",
            "<a><![CDATA[ </a>",
            "<a><![cdata[x]]></a>",
            "<a><!></a>",
            "<a>\u{0}</a>",
            "<a>\n\u{B}</a>",
            "<a>é\u{FFFE}</a>",
            "<p:a/>",
            "<a p:x='1'/>",
            "<a:b:c xmlns:a='u'/>",
            "<:a/>",
            "<a:/>",
            "<a xmlns:xml='u'/>",
            "<a xmlns:xmlns='u'/>",
            "<a xmlns:p='http://www.w3.org/XML/1998/namespace'/>",
            "<a xmlns='http://www.w3.org/2000/xmlns/'/>",
            "<a xmlns:p=''/>",
            "<xmlns:a/>",
            "<a><p:b xmlns:p='u'/><p:c/></a>",
            "<?xml version='1.1'?><a/>",
            "<?xml encoding='UTF-8'?><a/>",
            "<?xml version='1.0' standalone='no' encoding='UTF-8'?><a/>",
            "<?xml version='1.0'",
        ],
        expect![[r#"
            <a>                                Form 1:1 `<a>` is not closed
            <a><b></a>                         Form 1:7 `</a>`, where `</b>` was expected
            <a></b>                            Form 1:4 `</b>`, where `</a>` was expected
            </a>                               Form 1:1 `</a>` closes nothing
            <a/></a>                           Form 1:5 `</a>` closes nothing
            <a                                 Form 1:1 a start tag that is not closed
            <a><b                              Form 1:4 a start tag that is not closed
            <a></a                             Form 1:4 an end tag that is not closed
            <>x</>                             Form 1:1 `<` begins no tag; write `&lt;` for `<`
            < a/>                              Form 1:1 `<` begins no tag; write `&lt;` for `<`
            <1a/>                              Form 1:1 `<1a` begins no tag; write `&lt;` for `<`
            <-a/>                              Form 1:1 `<-a` begins no tag; write `&lt;` for `<`
            <a><b/ ></a>                       Form 1:4 `b/` is no element name
            <a x/>                             Form 1:4 attribute `x` without a value
            <a x=1/>                           Form 1:4 an attribute value that is not in quotes
            <a x=\'1/>                         Form 1:1 a start tag that is not closed
            <a x=\'1\'y=\'2\'/>                Form 1:9 white space is missing between attributes
            <a x=\'1\' x=\'2\'/>               Form 1:10 attribute `x` is given twice
            <a xmlns:p=\'u\' xmlns:q=\'u\' p:x=\'1\' q:x=\'2\'/> Form 1:36 attribute `x` is given twice
            <a x=\'<\'/>                       Form 1:7 `<` in an attribute value; write `&lt;`
            <a x=\'&\'/>                       Form 1:7 `&` that begins no reference; write `&amp;`
            <a x=\'&nope;\'/>                  Form 1:7 entity `&nope;` is not defined
            <a 1x=\'2\'/>                      Form 1:4 `1x` is no attribute name
            <a>R&D</a>                         Form 1:5 `&` that begins no reference; write `&amp;`
            <a>x < y</a>                       Form 1:6 `<` begins no tag; write `&lt;` for `<`
            <a>&nope;</a>                      Form 1:4 entity `&nope;` is not defined
            <a>&#0;</a>                        Form 1:4 `&#0;` is no character XML allows
            <a>&#xD800;</a>                    Form 1:4 `&#xD800;` is no character XML allows
            <a>&#x110000;</a>                  Form 1:4 `&#x110000;` is no character XML allows
            <a>&#99999999999999999999;</a>     Form 1:4 `&#99999999999999999999;` is no character XML allows
            <a>&#;</a>                         Form 1:4 `&#;` is no character XML allows
            <a>&#x;</a>                        Form 1:4 `&#x;` is no character XML allows
            <a>&#+1;</a>                       Form 1:4 `&#+1;` is no character XML allows
            <a>&#X41;</a>                      Form 1:4 `&#X41;` is no character XML allows
            <a>]]></a>                         Form 1:4 `]]>` in text; write `]]&gt;`
            <a><!-- -- --></a>                 Form 1:9 `--` inside a comment
            <a><!-- ---></a>                   Form 1:9 `--` inside a comment
            <a><!--></a>                       Form 1:4 a comment that is not closed
            <a><!-- </a>                       Form 1:4 a comment that is not closed
            <a><![CDATA[ </a>                  Form 1:4 a CDATA section that is not closed
            <a><![cdata[x]]></a>               Form 1:4 `<!` begins nothing known here
            <a><!></a>                         Form 1:4 `<!` begins nothing known here
            <a>\0</a>                          Form 1:4 U+0000 is no character XML allows
            <a>\n\u{b}</a>                     Form 2:1 U+000B is no character XML allows
            <a>é\u{fffe}</a>                   Form 1:5 U+FFFE is no character XML allows
            <p:a/>                             Form 1:1 prefix `p` is not declared
            <a p:x=\'1\'/>                     Form 1:4 prefix `p` is not declared
            <a:b:c xmlns:a=\'u\'/>             Form 1:1 `a:b:c` is no element name
            <:a/>                              Form 1:1 `<:a` begins no tag; write `&lt;` for `<`
            <a:/>                              Form 1:1 `a:` is no element name
            <a xmlns:xml=\'u\'/>               Form 1:4 prefix `xml` bound to another namespace
            <a xmlns:xmlns=\'u\'/>             Form 1:4 prefix `xmlns` cannot be declared
            <a xmlns:p=\'http://www.w3.org/XML/1998/namespace\'/> Form 1:4 the namespace of `xml` bound to another prefix
            <a xmlns=\'http://www.w3.org/2000/xmlns/\'/> Form 1:4 the namespace of `xmlns` cannot be bound
            <a xmlns:p=\'\'/>                  Form 1:4 a prefix cannot be undeclared
            <xmlns:a/>                         Form 1:1 prefix `xmlns` on an element
            <a><p:b xmlns:p=\'u\'/><p:c/></a>  Form 1:22 prefix `p` is not declared
            <?xml version=\'1.1\'?><a/>        Form 1:1 XML version 1.1, where 1.0 was expected
            <?xml encoding=\'UTF-8\'?><a/>     Form 1:1 a malformed XML declaration
            <?xml version=\'1.0\' standalone=\'no\' encoding=\'UTF-8\'?><a/> Form 1:1 a malformed XML declaration
            <?xml version=\'1.0\'              Forbidden 1:1 a processing instruction; payloads have elements, text, comments and CDATA only
        "#]],
    );
}

#[test]
fn exactly_one_root_is_a_payload() {
    verdicts(
        &[
            "",
            " \n",
            "<!-- -->",
            "text",
            "{\"add\": 1}",
            "<a/><b/>",
            "<a/>\n\n  <b/>",
            "x<a/>",
            "<a/>x",
            "<a/>&amp;",
            "<![CDATA[x]]><a/>",
            "<a/><b>",
        ],
        expect![[r#"
                                               Roots 1:1 no element, where one element was expected
             \n                                Roots 2:1 no element, where one element was expected
            <!-- -->                           Roots 1:9 no element, where one element was expected
            text                               Roots 1:1 text outside of any element, where one element was expected
            {\"add\": 1}                       Roots 1:1 text outside of any element, where one element was expected
            <a/><b/>                           Roots 1:5 a second root element, where one element was expected
            <a/>\n\n  <b/>                     Roots 3:3 a second root element, where one element was expected
            x<a/>                              Roots 1:1 text outside of any element, where one element was expected
            <a/>x                              Roots 1:5 text outside of any element, where one element was expected
            <a/>&amp;                          Roots 1:5 text outside of any element, where one element was expected
            <![CDATA[x]]><a/>                  Roots 1:1 text outside of any element, where one element was expected
            <a/><b>                            Form 1:5 `<b>` is not closed
        "#]],
    );
}

#[test]
fn only_utf_8_is_read() {
    verdicts(
        &[
            "<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
            "<?xml version='1.0' encoding='UTF-7'?><!DOCTYPE a><a/>",
        ],
        expect![[r#"
            <?xml version=\'1.0\' encoding=\'ISO-8859-1\'?><a/> Encoding 1:1 declared encoding ISO-8859-1, where UTF-8 was expected
            <?xml version=\'1.0\' encoding=\'UTF-7\'?><!DOCTYPE a><a/> Encoding 1:1 declared encoding UTF-7, where UTF-8 was expected
        "#]],
    );
    let texts: [&[u8]; 5] = [
        b"<a>\xFF</a>",
        b"<a>\xC0\xBC</a>",
        b"<a>\xED\xA0\x80</a>",
        b"<a>\xE2\x82",
        b"\xFF\xFE<\0a\0/\0>\0",
    ];
    for text in texts {
        assert_eq!(breach(text), Some(BrokenRule::Encoding), "{text:?}");
    }
}

/// Function that writes a text in which a limited item, such as an attribute, occurs a given number
/// of times.
type Maker<'a> = &'a dyn Fn(usize) -> String;

/// Each limit accepts a text with exactly the maximum number of items, and refuses a text with one
/// item more.
#[test]
fn each_limit_is_exact() {
    let nest = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
    let many = |n: usize| format!("<a>{}</a>", "<a/>".repeat(n - 1));
    let numbered =
        |n: usize, one: fn(usize) -> String| format!("<a{}/>", (0..n).map(one).collect::<String>());
    let attributes = |n: usize| numbered(n, |i| format!(" k{i}=''"));
    let namespaces = |n: usize| numbered(n, |i| format!(" xmlns:n{i}='u'"));
    let inherited = |n: usize| {
        let open: String = (0..n).map(|i| format!("<a xmlns:n{i}='u'>")).collect();
        format!("{open}{}", "</a>".repeat(n))
    };
    let element = |n: usize| format!("<{}/>", "n".repeat(n));
    let attribute = |n: usize| format!("<a {}=''/>", "n".repeat(n));
    let tag = |n: usize| format!("<a k='{}'/>", "v".repeat(n - 9));
    let cases: [(&str, usize, Maker<'_>); 8] = [
        ("depth", limits::XML_DEPTH_MAX, &nest),
        ("elements", limits::XML_ELEMENTS_MAX, &many),
        ("attributes", limits::XML_ATTRIBUTES_MAX, &attributes),
        ("namespaces", limits::XML_NAMESPACES_MAX, &namespaces),
        ("namespaces in scope", limits::XML_NAMESPACES_MAX, &inherited),
        ("element name", limits::XML_NAME_BYTES_MAX, &element),
        ("attribute name", limits::XML_NAME_BYTES_MAX, &attribute),
        ("bytes of a start tag", limits::XML_TAG_BYTES_MAX, &tag),
    ];
    for (what, max, text) in cases {
        assert_eq!(breach(text(max).as_bytes()), None, "{what} at {max}");
        let beyond = breach(text(max + 1).as_bytes());
        assert_eq!(beyond, Some(BrokenRule::Complexity), "{what} beyond {max}");
    }
    let sized = |n: usize| format!("<a>{}</a>", "x".repeat(n - 7));
    let max = limits::PAYLOAD_BYTES_MAX;
    assert_eq!(breach(sized(max).as_bytes()), None);
    assert_eq!(breach(format!("\u{FEFF}{}\n", sized(max)).as_bytes()), None);
    assert_eq!(breach(sized(max + 1).as_bytes()), Some(BrokenRule::Size));
    let padded = format!("{}<a/>", " ".repeat(limits::MESSAGE_BYTES_MAX));
    assert_eq!(breach(padded.as_bytes()), Some(BrokenRule::Size));
}

#[test]
fn a_tag_beyond_a_limit_is_refused_with_the_limit() {
    let message = |text: String| scan(text.as_bytes()).unwrap_err().message;
    let max = limits::XML_ATTRIBUTES_MAX;
    let attributes: String = (0..max).map(|i| format!(" k{i}=''")).collect();
    let expected = format!("a tag with more than {max} attributes and namespace declarations");
    assert_eq!(message(format!("<a xmlns='u'{attributes}/>")), expected);

    // The limit applies to all attributes of the tag together.
    let max = limits::XML_TAG_BYTES_MAX;
    let half = "v".repeat(max / 2);
    let long = format!("<a k='{half}' l='{half}'/>");
    let expected = format!("a start tag of {} bytes, where {max} is the most", long.len());
    assert_eq!(message(long), expected);
}

/// An unescaped `<` or a missing quote makes a tag that extends far into the text. The message
/// names the mistake, and not the length of the tag.
#[test]
fn a_long_malformed_tag_is_refused_because_of_its_syntax() {
    let far = "x".repeat(limits::XML_TAG_BYTES_MAX);
    let cases = [
        (format!("<a>{}", "<".repeat(900_000)), "a start tag that is not closed"),
        (format!("<a>{}</a>", "<".repeat(900_000)), "begins no tag; write `&lt;` for `<`"),
        (format!("<a>1 < 2 {far}</a>"), "begins no tag; write `&lt;` for `<`"),
        (format!("<a k='1 {far}><b/>it's</a>"), "`<` in an attribute"),
        (format!("<a k='1 {far}><b k='2'/></a>"), "a start tag that is not closed"),
        (format!("<a k{far} l='1'/>"), "without a value"),
    ];
    for (text, expected) in cases {
        let violation = scan(text.as_bytes()).unwrap_err();
        assert_eq!(violation.breach, BrokenRule::Form, "{}", violation.message);
        assert!(violation.message.contains(expected), "{expected}: {}", violation.message);
    }
}

/// If a text breaks several rules, the violation of the first rule in the gate's order is reported,
/// wherever the violations are in the text.
#[test]
fn the_earlier_rule_decides_wherever_the_later_one_is_broken() {
    let deep = "<a>".repeat(limits::XML_DEPTH_MAX + 1);
    let long = "x".repeat(limits::PAYLOAD_BYTES_MAX);
    let cases: [(Vec<u8>, BrokenRule); 6] = [
        ([long.as_bytes(), b"\xFF"].concat(), BrokenRule::Size),
        (b"<a></b><!DOCTYPE a>\xFF".to_vec(), BrokenRule::Encoding),
        (format!("<x></y>{deep}<!DOCTYPE a>").into_bytes(), BrokenRule::Forbidden),
        (format!("<x></y>{deep}").into_bytes(), BrokenRule::Complexity),
        (b"x<a/><b/><c>".to_vec(), BrokenRule::Form),
        (b"x<a/><b/><c/>".to_vec(), BrokenRule::Roots),
    ];
    for (text, expected) in cases {
        assert_eq!(breach(&text), Some(expected), "{:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn a_frame_is_split_into_its_payloads() {
    let show = |frame: &str| match split(frame.as_bytes()) {
        Ok(ranges) => ranges.into_iter().map(|r| &frame[r]).collect::<Vec<_>>().join(" | "),
        Err(violation) => format!("{} at {}", violation.message, violation.offset),
    };
    let frames = [
        "",
        " \n",
        "<a/>",
        "<?xml version='1.0'?>\n<a>1</a>\n",
        "<a><a/></a><b x='>'/>\n<!-- <c/> --><d><![CDATA[</d>]]></d>",
        "<a><?p?><!-- --></a>",
        "<a/>text<b/>",
        "<a/>text",
        "<a/><?p?>",
        "<a/></b>",
        "<a/><b><c></b>",
        "<a",
        "<![CDATA[x]]>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>",
    ];
    let shown: String = frames.map(|f| format!("{f:?} -> {}\n", show(f))).concat();
    expect![[r#"
        "" -> 
        " \n" -> 
        "<a/>" -> <a/>
        "<?xml version='1.0'?>\n<a>1</a>\n" -> <a>1</a>
        "<a><a/></a><b x='>'/>\n<!-- <c/> --><d><![CDATA[</d>]]></d>" -> <a><a/></a> | <b x='>'/> | <d><![CDATA[</d>]]></d>
        "<a><?p?><!-- --></a>" -> <a><?p?><!-- --></a>
        "<a/>text<b/>" -> text outside of any payload at 4
        "<a/>text" -> text outside of any payload at 4
        "<a/><?p?>" -> markup outside of any payload at 4
        "<a/></b>" -> markup outside of any payload at 4
        "<a/><b><c></b>" -> a payload that is not closed at 4
        "<a" -> a start tag that is not closed at 0
        "<![CDATA[x]]>" -> markup outside of any payload at 0
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>" -> a DOCTYPE; payloads have elements, text, comments and CDATA only at 0
    "#]].assert_eq(&shown);
    let many = "<a/>".repeat(limits::OUTCOME_PAYLOADS_MAX + 1);
    assert_eq!(split(many.as_bytes()).unwrap_err().breach, BrokenRule::Complexity);
    assert_eq!(split(&many.as_bytes()[4..]).unwrap().len(), limits::OUTCOME_PAYLOADS_MAX);
    assert_eq!(split(b"<a>\xFF</a>").unwrap_err().breach, BrokenRule::Encoding);
}

#[test]
fn an_element_cut_out_means_what_it_meant_inside() {
    let cut = |text: &str, levels| {
        nested(text, levels).into_iter().map(|n| n.text).collect::<Vec<_>>().join(" | ")
    };
    let cases = [
        ("<s xmlns='c'><i><a xmlns='u'><b/></a></i></s>", 2),
        ("<s xmlns='c'><i><a><b/></a></i></s>", 2),
        ("<c:s xmlns:c='c' xmlns='d'><c:i xmlns=''><a><b/></a></c:i></c:s>", 2),
        ("<c:s xmlns:c='c' xmlns:p='u'><p:a p:k='1'/></c:s>", 1),
        ("<c:s xmlns:c='c' xmlns:p='u'><i xmlns:p='v'><p:a xmlns:q='w'/></i></c:s>", 2),
        ("<c:s xmlns:c='c' xmlns:aa='u'><a>xaaa aa:t</a></c:s>", 1),
        ("<s xmlns='&quot;\"'><a/></s>", 1),
        ("<s xmlns='c'><!-- <z/> --><i/><i>1<a/>2<b><c/></b></i></s>", 2),
        ("<s/>", 1),
    ];
    let shown: String = cases.map(|(text, levels)| format!("{}\n", cut(text, levels))).concat();
    expect![[r#"
        <a xmlns='u'><b/></a>
        <a xmlns="c"><b/></a>
        <a><b/></a>
        <p:a xmlns:p="u" p:k='1'/>
        <p:a xmlns:p="v" xmlns:q='w'/>
        <a xmlns:aa="u">xaaa aa:t</a>
        <a xmlns='&quot;"'/>
        <a xmlns="c"/> | <b xmlns="c"><c/></b>

    "#]]
    .assert_eq(&shown);
    let text = "<s xmlns='c'><i><a/></i></s>";
    assert_eq!(&text[nested(text, 2)[0].range.clone()], "<a/>");
}

#[test]
fn attributes_of_the_root_are_decoded_once() {
    let text = "<a x='&amp;lt;&#10;' xmlns='u' xmlns:p='v' p:z='0'\n y=\"1\t2\"><b w='3'/></a>";
    let found = attributes(text);
    assert_eq!(found, [("x", "&lt;\n".into()), ("y", "1 2".into())]);
}

#[test]
fn namespaces_compare_by_character() {
    let of = |uri: &str| scan(format!("<a xmlns='{uri}'/>").as_bytes()).unwrap().name;
    let plain = of("urn:org:calc:v1");
    assert_eq!(plain, PayloadName::new("urn:org:calc:v1", "a"));
    assert_eq!(of("urn:org:c&#97;lc:v1"), plain);
    for other in
        ["urn:org:c\u{430}lc:v1", "urn:org:calc:v1 ", "URN:ORG:CALC:V1", "urn:org:c%61lc:v1"]
    {
        assert_ne!(of(other), plain, "{other}");
    }
}

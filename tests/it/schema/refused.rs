//! Texts that are refused as schemas, with the reasons.

use std::path::Path;
use std::time::{Duration, Instant};

use organism::limits;
use organism::schema::{SchemaCompiler, SchemaFile, SchemaProblem, Schemas};

use super::{data, loaded, schema, try_text};

/// Time limit for the verdict on a text, with a margin for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = run();
    let took = started.elapsed();
    println!("{what}: {took:?}");
    assert!(took < LIMIT, "{what} took {took:?}");
    result
}

/// A start does not make these checks on the schemas of the program itself.
#[test]
fn the_schemas_of_the_program_pass_every_check_of_a_file() {
    let mut compiler = SchemaCompiler::default();
    for name in ["agent", "core", "workflow"] {
        let path = format!("schemas/{name}.xsd");
        let opened = SchemaFile::open(&mut compiler, Path::new(&path));
        assert!(opened.is_ok(), "{path}: {:?}", opened.err());
    }
}

#[test]
fn hostile_schemas_are_refused_in_time_with_file_line_and_code() {
    let cases = [
        ("base_cycle", "schema-compile"),
        ("choice_ambiguous", "schema-compile"),
        ("doctype", "schema-doctype"),
        ("group_bomb", "schema-too-complex"),
        ("import_http", "schema-import-outside"),
        ("include_file", "schema-import-outside"),
        ("include_parent", "schema-import-outside"),
        ("maxoccurs_bomb", "schema-too-complex"),
        ("not_schema", "schema-not-a-schema"),
        ("pattern_huge_rep", "schema-pattern"),
        ("pattern_redos", "schema-pattern"),
        ("substitution_cycle", "schema-compile"),
        ("truncated", "schema-not-well-formed"),
    ];
    for (file, code) in cases {
        let path = data(&format!("xsd/hostile/{file}.xsd"));
        let problems = timed(file, || Schemas::default().add_file(&path)).unwrap_err();
        assert_eq!(problems[0].code, code, "{file}: {problems:?}");
        assert_eq!(problems[0].file, path.display().to_string());
        assert_eq!(problems[0].line, 1, "{file}");
    }
}

#[test]
fn odd_but_harmless_schemas_are_taken() {
    for file in ["any_lax_everything", "include_self", "recursive_type", "keyref_quadratic"] {
        let path = data(&format!("xsd/hostile/{file}.xsd"));
        let names = timed(file, || Schemas::default().add_file(&path));
        assert_eq!(names.map(|n| n.len()), Ok(1), "{file}");
    }
    let values: String = (0..40_000).map(|i| format!("<xs:enumeration value=\"v{i}\"/>")).collect();
    let wide = schema(&format!(
        "<xs:element name=\"r\"><xs:simpleType><xs:restriction base=\"xs:string\">{values}</xs:restriction></xs:simpleType></xs:element>"
    ));
    assert!(timed("wide_enum", || try_text(&wide)).is_ok());
}

#[test]
fn a_schema_that_takes_too_long_to_compile_is_stopped() {
    let parts: String =
        (0..3_000).map(|i| format!("<xs:element name=\"a{i}\" minOccurs=\"0\"/>")).collect();
    let slow = schema(&format!(
        "<xs:element name=\"r\"><xs:complexType><xs:sequence>{parts}</xs:sequence></xs:complexType></xs:element>"
    ));
    let started = Instant::now();
    let problems = try_text(&slow).unwrap_err();
    println!("slow: {:?}", started.elapsed());
    assert!(started.elapsed() < limits::SCHEMA_COMPILE_WALL_TIMEOUT + LIMIT);
    assert!(
        ["schema-too-slow", "schema-too-complex"].contains(&&*problems[0].code),
        "{problems:?}"
    );
}

#[test]
fn deep_and_multiplying_patterns_are_refused_before_compilation() {
    let pattern = |value: &str| {
        let body = format!(
            "<xs:element name=\"r\"><xs:simpleType><xs:restriction base=\"xs:string\"><xs:pattern value=\"{value}\"/></xs:restriction></xs:simpleType></xs:element>"
        );
        try_text(&schema(&body)).map_err(|p| p[0].code.clone()).map(drop)
    };
    let deep = "(".repeat(5_000) + "a" + &")".repeat(5_000);
    let refused = Err("schema-pattern".to_owned());
    for bad in [deep.as_str(), "(a+)+", "((a*)|b)*", "(x{1,200}){1,200}", "((a+))*c"] {
        assert_eq!(pattern(bad), refused, "{bad}");
    }
    for good in ["(a+,)*a", "[(+]+", r"(\(+\))*", "a{1,4000}", "([a-z]+\\.)*[a-z]+", "(ab?)+"] {
        assert_eq!(pattern(good), Ok(()), "{good}");
    }
}

#[test]
fn a_pattern_that_takes_too_long_is_refused_in_a_present_config_and_not_in_a_stored_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    let body = "<xs:simpleType name=\"words\"><xs:restriction base=\"xs:string\">\
        <xs:pattern value=\"([a-z]+ ?[a-z]*)+\\.\"/></xs:restriction></xs:simpleType>\
        <xs:element name=\"r\" type=\"words\"/>";
    std::fs::write(&file, schema(body)).unwrap();

    let problems = Schemas::default().add_file(&file).unwrap_err();
    assert_eq!(problems[0].code, "schema-pattern");
    assert!(problems[0].message.contains("of the type `words`"), "{problems:?}");

    let mut schemas = Schemas::default();
    let mut compiler = SchemaCompiler::default().permitting_costly_patterns(true);
    assert_eq!(schemas.add_file_with(&mut compiler, &file).map(|names| names.len()), Ok(1));
    assert!(schemas.warnings().is_empty(), "{:?}", schemas.warnings());
}

#[test]
fn attributes_and_namespaces_beyond_measure_never_reach_libxml2() {
    let flood = |prefix: &str| -> String {
        let all: String = (0..100_000).map(|i| format!(" {prefix}a{i}=\"v{i}\"")).collect();
        schema(&format!("<xs:element name=\"r\"{all}/>"))
    };
    for text in [flood(""), flood("xmlns:")] {
        let problems = timed("flood", || try_text(&text)).unwrap_err();
        assert_eq!(problems[0].code, "schema-too-complex");
    }
}

fn first(problems: Result<impl std::fmt::Debug, Vec<SchemaProblem>>) -> String {
    let problem = problems.unwrap_err().remove(0);
    let file = problem.file.rsplit('/').next().unwrap_or_default().to_owned();
    format!("{file}:{} {}", problem.line, problem.code)
}

#[test]
fn nothing_outside_the_schemas_folder_is_read() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("schemas");
    std::fs::create_dir_all(inner.join("sub")).unwrap();
    let good = schema("<xs:element name=\"r\"/>");
    std::fs::write(outer.path().join("secret.xsd"), &good).unwrap();
    std::fs::write(inner.join("other.xsd"), &good).unwrap();
    std::fs::write(
        inner.join("sub/up.xsd"),
        schema("<xs:include schemaLocation=\"../other.xsd\"/>"),
    )
    .unwrap();
    std::os::unix::fs::symlink(outer.path().join("secret.xsd"), inner.join("link.xsd")).unwrap();
    let secret = outer.path().join("secret.xsd").display().to_string();
    let file = inner.join("schema.xsd");
    let mut cases = vec![
        ("../secret.xsd".to_owned(), "schema-import-outside"),
        (secret.clone(), "schema-import-outside"),
        (format!("file://{secret}"), "schema-import-outside"),
        ("link.xsd".to_owned(), "schema-import-outside"),
        ("sub/../../secret.xsd".to_owned(), "schema-import-outside"),
        ("..\\secret.xsd".to_owned(), "schema-import-outside"),
        ("".to_owned(), "schema-import-outside"),
        ("absent.xsd".to_owned(), "schema-import-missing"),
    ];
    for (location, code) in cases.drain(..) {
        for link in ["include", "redefine"] {
            let body = format!("\n\n<xs:{link} schemaLocation=\"{location}\"/>");
            std::fs::write(&file, schema(&body)).unwrap();
            let told = first(Schemas::default().add_file(&file));
            assert_eq!(told, format!("schema.xsd:3 {code}"), "{link} {location}");
        }
        let body = format!("\n<xs:import namespace=\"urn:c\" schemaLocation=\"{location}\"/>");
        std::fs::write(&file, schema(&body)).unwrap();
        assert_eq!(first(Schemas::default().add_file(&file)), format!("schema.xsd:2 {code}"));
    }
    // A path that leaves and re-enters the folder is valid.
    std::fs::write(&file, schema("<xs:include schemaLocation=\"sub/up.xsd\"/>")).unwrap();
    assert_eq!(Schemas::default().add_file(&file).unwrap().len(), 1);
}

#[test]
fn an_import_without_a_location_is_refused() {
    let located = schema("\n<xs:import namespace=\"urn:c\"/><xs:element name=\"r\"/>");
    assert_eq!(first(try_text(&located)), "schema.xsd:2 schema-import-missing");
    let nameless = schema("<xs:include/><xs:element name=\"r\"/>");
    assert_eq!(first(try_text(&nameless)), "schema.xsd:1 schema-import-missing");

    // An included document is not the one that such an import means.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    let included = folder.path().join("included.xsd");
    std::fs::write(included, schema("<xs:element name=\"i\"/>")).unwrap();
    let body = "<xs:include schemaLocation=\"included.xsd\"/>\n<xs:import/>";
    std::fs::write(&file, schema(body)).unwrap();
    assert_eq!(first(Schemas::default().add_file(&file)), "schema.xsd:2 schema-import-missing");
}

#[test]
fn nothing_is_ever_fetched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    for body in [
        format!("<xs:import namespace=\"urn:c\" schemaLocation=\"http://{at}/c.xsd\"/>"),
        format!("<xs:include schemaLocation=\"http://{at}/c.xsd\"/>"),
        format!("<xs:redefine schemaLocation=\"ftp://{at}/c.xsd\"/>"),
        format!("<xs:include schemaLocation=\"//{at}/c.xsd\"/>"),
    ] {
        assert_eq!(first(try_text(&schema(&body))), "schema.xsd:1 schema-import-outside", "{body}");
    }
    let entity = format!("<!DOCTYPE xs:schema SYSTEM \"http://{at}/e.dtd\">{}", schema(""));
    assert_eq!(first(try_text(&entity)), "schema.xsd:1 schema-doctype");
    let base = schema(
        "<xs:import xml:base=\"http://BASE/\" namespace=\"urn:c\" schemaLocation=\"c.xsd\"/>",
    );
    let base = base.replace("BASE", &at.to_string());
    assert_eq!(first(try_text(&base)), "schema.xsd:1 schema-import-missing");
    let style = format!(
        "<?xml-stylesheet href=\"http://{at}/x.xsl\"?>{}",
        schema("<xs:element name=\"r\"/>")
    );
    assert!(try_text(&style).is_ok());
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn unreadable_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    let text = schema("<xs:element name=\"r\"/>");
    let utf16: Vec<u8> =
        std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    std::fs::write(&file, utf16).unwrap();
    assert_eq!(Schemas::default().add_file(&file).unwrap().len(), 1);
    let cases: [(&[u8], &str); 4] = [
        (b"\xff\xfe\xff", "schema.xsd:1 schema-not-well-formed"),
        (b"<a>\xff</a>", "schema.xsd:1 schema-encoding"),
        (b"", "schema.xsd:1 schema-not-well-formed"),
        (&[b' '; 5 << 20], "schema.xsd:0 schema-too-large"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(first(Schemas::default().add_file(&file)), expected);
    }
    assert_eq!(
        first(Schemas::default().add_file(folder.path())).split(' ').nth(1),
        Some("schema-unreadable")
    );
    assert!(
        first(Schemas::default().add_file(&folder.path().join("no.xsd")))
            .ends_with("schema-unreadable")
    );
}

#[test]
fn too_many_documents_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |i: usize| folder.path().join(format!("s{i}.xsd"));
    for i in 0..70 {
        let next = format!("<xs:include schemaLocation=\"s{}.xsd\"/>", (i + 1) % 70);
        std::fs::write(file(i), schema(&next)).unwrap();
    }
    assert!(first(Schemas::default().add_file(&file(0))).ends_with("schema-too-large"));
}

#[test]
fn a_compile_error_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let part = schema("\n\n<xs:element name=\"r\" type=\"nowhere\"/>");
    std::fs::write(folder.path().join("part.xsd"), part).unwrap();
    let main = folder.path().join("main.xsd");
    std::fs::write(&main, schema("<xs:include schemaLocation=\"part.xsd\"/>")).unwrap();
    let problems = Schemas::default().add_file(&main).unwrap_err();
    assert_eq!(first(Err::<(), _>(problems.clone())), "part.xsd:3 schema-compile");
    assert!(problems[0].message.contains("'nowhere'"), "{}", problems[0].message);
}

#[test]
fn reserved_namespaces_and_names_defined_twice_are_refused() {
    let mut schemas = Schemas::default();
    schemas.reserve(&["urn:org:sys:v1"]);
    let problems = schemas.add_file(&data("xsd/hostile/hijack_namespace.xsd"));
    assert_eq!(first(problems), "hijack_namespace.xsd:1 schema-reserved-namespace");
    schemas.add_file(&data("xsd/hostile/recursive_type.xsd")).unwrap();
    // The same definition again is permitted; another definition of the same name is not.
    schemas.add_file(&data("xsd/hostile/recursive_type.xsd")).unwrap();
    let problems = schemas.add_file(&data("xsd/hostile/keyref_quadratic.xsd"));
    assert_eq!(first(problems), "keyref_quadratic.xsd:1 schema-duplicate-name");
}

#[test]
fn switching_validation_off_is_warned_of() {
    let schemas = loaded("xsd/hostile/any_lax_everything.xsd");
    let codes: Vec<&str> = schemas.warnings().iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["schema-skip", "schema-skip"]);
    assert_eq!(schemas.warnings()[0].line, 1);
    assert!(loaded("xsd/search.xsd").warnings().is_empty());
}

/// Codes of the warnings about a schema with this body.
fn doubts(body: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.xsd");
    std::fs::write(&file, schema(body)).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap();
    schemas.warnings().iter().map(|warning| warning.code.clone()).collect()
}

#[test]
fn each_known_deviation_of_libxml2_is_a_warning_at_registration() {
    let mixed = r#"<xs:complexType name="m" mixed="true"><xs:sequence><xs:element name="c" type="xs:string" minOccurs="0"/></xs:sequence></xs:complexType><xs:element name="e" type="m" fixed="x"/>"#;
    assert_eq!(doubts(mixed), ["schema-fixed-mixed"]);

    let restriction = r#"<xs:complexType name="b"><xs:sequence><xs:element name="c" type="xs:string"/></xs:sequence></xs:complexType><xs:complexType name="r"><xs:complexContent><xs:restriction base="b"><xs:sequence><xs:element name="c" type="xs:string"/></xs:sequence></xs:restriction></xs:complexContent></xs:complexType><xs:element name="e" type="r"/>"#;
    assert_eq!(doubts(restriction), ["schema-restriction-unchecked"]);

    let number = r#"<xs:element name="e"><xs:complexType><xs:simpleContent><xs:extension base="xs:int"><xs:attribute name="a" type="xs:string"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>"#;
    assert_eq!(doubts(number), ["schema-white-space"]);

    let reference = r#"<xs:attribute name="a" type="xs:string"/><xs:element name="e"><xs:complexType><xs:attribute ref="a" fixed="x"/></xs:complexType></xs:element>"#;
    assert_eq!(doubts(reference), ["schema-fixed-ref"]);

    let plain = r#"<xs:element name="e" type="xs:int" fixed="1"/>"#;
    assert_eq!(doubts(plain), [""; 0]);
}

#[test]
fn a_deviation_of_libxml2_is_found_wherever_the_type_comes_from() {
    let base = r#"<xs:complexType name="m" mixed="true"><xs:sequence><xs:element name="c" type="xs:string" minOccurs="0"/></xs:sequence></xs:complexType>"#;
    let mixed = [
        r#"<xs:complexType name="d"><xs:complexContent><xs:extension base="m"><xs:attribute name="a"/></xs:extension></xs:complexContent></xs:complexType><xs:element name="e" type="d" fixed="x"/>"#,
        r#"<xs:element name="e" fixed="x"><xs:complexType><xs:complexContent mixed="true"><xs:extension base="m"><xs:sequence><xs:element name="z" minOccurs="0"/></xs:sequence></xs:extension></xs:complexContent></xs:complexType></xs:element>"#,
        r#"<xs:element name="h" type="m"/><xs:element name="e" substitutionGroup="h" fixed="x"/>"#,
        r#"<xs:element name="e" fixed="x"/>"#,
        r#"<xs:element name="e" type="xs:anyType" fixed="x"/>"#,
    ];
    for body in mixed {
        assert_eq!(doubts(&format!("{base}{body}")), ["schema-fixed-mixed"], "{body}");
    }

    let own = r#"<xs:simpleType name="n"><xs:restriction base="xs:date"/></xs:simpleType>"#;
    let extends = |base: &str| {
        format!(
            r#"<xs:element name="e"><xs:complexType><xs:simpleContent><xs:extension base="{base}"><xs:attribute name="a"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>"#
        )
    };
    for base in ["n", "xs:gYear", "xs:unsignedByte"] {
        assert_eq!(doubts(&format!("{own}{}", extends(base))), ["schema-white-space"], "{base}");
    }
    // libxml2 takes white space around these.
    for base in ["xs:decimal", "xs:integer", "xs:boolean", "xs:string"] {
        assert_eq!(doubts(&extends(base)), [""; 0], "{base}");
    }

    let group = r#"<xs:attribute name="a" type="xs:string"/><xs:attributeGroup name="g"><xs:attribute ref="a" fixed="x"/></xs:attributeGroup><xs:element name="e"><xs:complexType><xs:attributeGroup ref="g"/></xs:complexType></xs:element>"#;
    assert_eq!(doubts(group), ["schema-fixed-ref"]);
}

/// A user's type that has the local name of another type causes no warning. Only a type in the
/// namespace of XML Schema is built in, and two namespaces may use the same name.
#[test]
fn a_type_of_the_users_with_the_name_of_another_type_is_no_deviation() {
    let extends = |base: &str| {
        format!(
            r#"<xs:element name="e"><xs:complexType><xs:simpleContent><xs:extension base="{base}"><xs:attribute name="a"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>"#
        )
    };
    let own = r#"<xs:simpleType name="date"><xs:restriction base="xs:string"/></xs:simpleType>"#;
    assert_eq!(doubts(&format!("{own}{}", extends("date"))), [""; 0]);
    assert_eq!(doubts(&format!("{own}{}", extends("xs:date"))), ["schema-white-space"]);

    let named = r#"<xs:complexType name="anyType"><xs:sequence><xs:element name="c" type="xs:string"/></xs:sequence></xs:complexType><xs:element name="e" type="anyType"/>"#;
    let any = r#"<xs:complexType name="r"><xs:complexContent><xs:restriction base="anyType"><xs:sequence><xs:element name="c" type="xs:string"/></xs:sequence></xs:restriction></xs:complexContent></xs:complexType>"#;
    assert_eq!(doubts(&format!("{named}{any}")), ["schema-restriction-unchecked"]);

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let number = r#"<xs:simpleType name="n"><xs:restriction base="xs:int"/></xs:simpleType>"#;
    let text = r#"<xs:simpleType name="n"><xs:restriction base="xs:string"/></xs:simpleType>"#;
    let codes = |own: &str, other: &str, base: &str| {
        write(
            "other.xsd",
            &format!(
                r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:o">{other}</xs:schema>"#
            ),
        );
        write(
            "main.xsd",
            &format!(
                r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:m" xmlns="urn:m" xmlns:o="urn:o"><xs:import namespace="urn:o" schemaLocation="other.xsd"/>{own}{}</xs:schema>"#,
                extends(base)
            ),
        );
        let mut schemas = Schemas::default();
        schemas.add_file(&folder.path().join("main.xsd")).unwrap();
        schemas.warnings().iter().map(|warning| warning.code.clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes(text, number, "n"), [""; 0]);
    assert_eq!(codes(text, number, "o:n"), ["schema-white-space"]);
    assert_eq!(codes(number, text, "n"), ["schema-white-space"]);
    assert_eq!(codes(number, text, "o:n"), [""; 0]);
}

/// A deviation of libxml2 is found through an included document without a namespace, which takes
/// the namespace of each document that includes it.
#[test]
fn a_deviation_of_libxml2_is_found_through_a_document_without_a_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let part = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:complexType name="c"><xs:simpleContent><xs:extension base="n"><xs:attribute name="a"/></xs:extension></xs:simpleContent></xs:complexType></xs:schema>"#;
    write("part.xsd", part);
    let body = r#"<xs:include schemaLocation="part.xsd"/><xs:simpleType name="n"><xs:restriction base="xs:date"/></xs:simpleType><xs:element name="e" type="c"/>"#;
    write("main.xsd", &schema(body));
    let mut schemas = Schemas::default();
    schemas.add_file(&folder.path().join("main.xsd")).unwrap();
    let codes: Vec<_> =
        schemas.warnings().iter().map(|warning| (&*warning.file, &*warning.code)).collect();
    assert_eq!(codes.len(), 1, "{codes:?}");
    assert!(codes[0].0.ends_with("part.xsd"), "{codes:?}");
    assert_eq!(codes[0].1, "schema-white-space");
}

#[test]
fn a_redefined_group_that_does_not_name_itself_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let inner = |name: &str| format!(r#"<xs:element name="{name}" type="xs:string"/>"#);
    let group = |content: &str| {
        format!(r#"<xs:group name="g"><xs:sequence>{content}</xs:sequence></xs:group>"#)
    };
    std::fs::write(folder.path().join("base.xsd"), schema(&group(&inner("a")))).unwrap();
    let codes = |redefined: &str| {
        let body = format!(
            r#"<xs:redefine schemaLocation="base.xsd">{}</xs:redefine><xs:element name="e"><xs:complexType><xs:group ref="g"/></xs:complexType></xs:element>"#,
            group(redefined)
        );
        let file = folder.path().join("main.xsd");
        std::fs::write(&file, schema(&body)).unwrap();
        let mut schemas = Schemas::default();
        schemas.add_file(&file).unwrap();
        schemas.warnings().iter().map(|warning| warning.code.clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&inner("a")), ["schema-restriction-unchecked"]);
    assert_eq!(codes(&format!(r#"<xs:group ref="g"/>{}"#, inner("b"))), [""; 0]);
}

#[test]
fn a_schema_of_the_user_has_precedence_over_the_built_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let signatures = "http://www.w3.org/2000/09/xmldsig#";
    let main = format!(
        r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:d="{signatures}" targetNamespace="urn:b"><xs:import namespace="{signatures}" schemaLocation="own.xsd"/><xs:element name="e"><xs:complexType><xs:sequence><xs:element ref="d:Signature"/></xs:sequence></xs:complexType></xs:element></xs:schema>"#
    );
    let own = format!(
        r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{signatures}"><xs:element name="Signature" type="xs:int"/></xs:schema>"#
    );
    write("main.xsd", &main);
    let text =
        format!(r#"<e xmlns="urn:b"><s:Signature xmlns:s="{signatures}">7</s:Signature></e>"#);
    let verdict = || {
        let mut schemas = Schemas::default();
        let names = schemas.add_file(&folder.path().join("main.xsd")).unwrap();
        schemas
            .validate(
                &names[0],
                text.replace("<e xmlns", "<b:e xmlns:b").replace("</e>", "</b:e>").as_bytes(),
            )
            .is_ok()
    };

    write("own.xsd", &own);
    assert!(verdict(), "the user's file counts");
    // The published file has a document type declaration, which no schema may have.
    write("own.xsd", &format!("<!DOCTYPE schema []>{own}"));
    assert!(!verdict(), "the built-in file stands in for it");
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_no_schema() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.xsd");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let problems = Schemas::default().add_file(&pipe).unwrap_err();
    assert_eq!(problems[0].message, "the schema is not a regular file");
}

#[test]
fn types_of_one_name_in_many_documents_are_followed_once() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    let head = |own: &str, more: &str, body: &str| {
        format!(
            "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"{own}\" \
             xmlns=\"{own}\"{more}>{body}</xs:schema>"
        )
    };
    let mut imports = String::new();
    for document in 0..4 {
        let derived = |i: usize| {
            let base = if i == 24 { "xs:string".to_owned() } else { format!("t{}", i + 1) };
            format!(
                "<xs:simpleType name=\"t{i}\"><xs:restriction base=\"{base}\"/></xs:simpleType>"
            )
        };
        let types: String = (0..=24).map(derived).collect();
        write(&format!("d{document}.xsd"), head(&format!("urn:d{document}"), "", &types));
        imports += &format!(
            "<xs:import namespace=\"urn:d{document}\" schemaLocation=\"d{document}.xsd\"/>"
        );
    }

    let body = format!(
        "{imports}<xs:element name=\"e\"><xs:complexType><xs:simpleContent><xs:extension base=\"d:t0\">\
         <xs:attribute name=\"a\"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>"
    );
    write("main.xsd", head("urn:main", " xmlns:d=\"urn:d0\"", &body));
    let mut schemas = Schemas::default();
    schemas.add_file(&folder.path().join("main.xsd")).unwrap();
    assert_eq!(schemas.warnings(), []);
}

//! Forms that fill in a payload by its schema, value by value.

use organism::schema::{FormField, PayloadDescription, Schemas, fill, has_form};

use super::{name, schema};

/// The schemas of an element `rep` with this content.
fn with_rep(content: &str) -> Schemas {
    with_body(&format!(
        "<xs:element name='rep'><xs:complexType>{content}</xs:complexType></xs:element>"
    ))
}

/// The schemas of these declarations. `{a}` stands for an element `a` with a text.
fn with_body(body: &str) -> Schemas {
    let body = body.replace("{", "<xs:element name='").replace("}", "' type='xs:string'/>");
    let text = schema(&body);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rep.xsd");
    std::fs::write(&file, text).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap();
    schemas
}

fn described(content: &str) -> PayloadDescription {
    let schemas = with_rep(content);
    schemas.describe(&name(&schemas, "rep"))
}

const TWO_CHOICES: &str = "<xs:sequence><xs:choice>{mail}{phone}</xs:choice>\
     <xs:choice minOccurs='0'>{cash}{card}</xs:choice></xs:sequence>";

/// Fills in the payload with these answers. Returns the questions, the required ones with a `!`,
/// and the payload.
fn filled(schemas: &Schemas, answers: &[&str]) -> (Vec<String>, String) {
    let rep = name(schemas, "rep");
    let mut questions = Vec::new();
    let mut answers = answers.iter();
    let mut ask = |field: FormField<'_>| {
        questions.push(format!("{}{}", field.path, if field.required { "!" } else { "" }));
        answers.next().map(|answer| (*answer).to_owned()).ok_or(())
    };
    let payload = fill(&schemas.describe(&rep), &mut ask).unwrap().to_xml();
    assert_eq!(schemas.validate(&rep, payload.as_bytes()), Ok(()), "{payload}");
    (questions, payload)
}

#[test]
fn each_of_several_choices_has_its_own_question_which_is_as_required_as_the_choice() {
    let schemas = with_rep(TWO_CHOICES);
    let (questions, payload) = filled(&schemas, &["", "mail", "a@b", "card", "7"]);
    let expected =
        ["rep!", "rep!", "rep / mail!", "rep / choice 2", "rep / card!"].map(str::to_owned);
    assert_eq!(questions, expected, "an empty answer to a required choice is refused");
    assert!(payload.contains(">a@b</mail>") && payload.contains(">7</card>"), "{payload}");

    let (_, payload) = filled(&schemas, &["phone", "1", ""]);
    assert!(payload.contains(">1</phone>") && !payload.contains("card"), "{payload}");
}

#[test]
fn a_choice_within_a_choice_is_one_choice() {
    let content = "<xs:choice>{a}<xs:choice>{b}{c}</xs:choice>{d}</xs:choice>";
    let (questions, _) = filled(&with_rep(content), &["c", "1"]);
    assert_eq!(questions, ["rep!", "rep / c!"]);
}

#[test]
fn choices_between_more_than_single_elements_have_no_form() {
    let has_form = |content: &str| has_form(&described(content));
    assert!(has_form(TWO_CHOICES));
    assert!(has_form("<xs:choice>{a}<xs:sequence>{b}</xs:sequence></xs:choice>"));
    assert!(has_form("<xs:sequence>{a}<xs:choice><xs:sequence/>{b}</xs:choice></xs:sequence>"));
    for content in [
        "<xs:choice>{mail}<xs:sequence>{street}{zip}</xs:sequence></xs:choice>",
        "<xs:choice>{a}<xs:sequence>{b}<xs:choice>{c}{d}</xs:choice></xs:sequence></xs:choice>",
        "<xs:choice>{a}<xs:any namespace='##other'/></xs:choice>",
        "<xs:choice maxOccurs='unbounded'>{a}{b}</xs:choice>",
    ] {
        assert!(!has_form(content), "{content}");
    }
}

#[test]
fn repeated_groups_of_several_elements_have_no_form() {
    let has_form = |content: &str| has_form(&described(content));
    for content in [
        "<xs:sequence maxOccurs='unbounded'>{a}</xs:sequence>",
        "<xs:sequence minOccurs='0'>{a}{b}</xs:sequence>",
    ] {
        assert!(has_form(content), "{content}");
    }
    for content in [
        "<xs:sequence maxOccurs='unbounded'>{a}{b}</xs:sequence>",
        "<xs:sequence>{a}<xs:sequence maxOccurs='2'>{b}<xs:sequence>{c}</xs:sequence></xs:sequence>\
         </xs:sequence>",
        "<xs:choice maxOccurs='unbounded'><xs:sequence>{a}{b}</xs:sequence></xs:choice>",
        "<xs:sequence maxOccurs='unbounded'>{a}<xs:any namespace='##other' minOccurs='0'/>\
         </xs:sequence>",
    ] {
        assert!(!has_form(content), "{content}");
    }

    let group = "<xs:group name='pair'><xs:sequence>{a}{b}</xs:sequence></xs:group>\
         <xs:element name='rep'><xs:complexType><xs:group ref='pair' maxOccurs='9'/>\
         </xs:complexType></xs:element>";
    let schemas = with_body(group);
    assert!(!self::has_form(&schemas.describe(&name(&schemas, "rep"))));
}

#[test]
fn elements_with_parts_that_the_description_leaves_out_have_no_form() {
    let has_form = |content: &str| {
        let schemas = with_body(&format!(
            "<xs:complexType name='animal'><xs:sequence>{{name}}</xs:sequence></xs:complexType>\
             <xs:complexType name='dog'><xs:complexContent><xs:extension base='animal'>\
             <xs:sequence>{{breed}}</xs:sequence></xs:extension></xs:complexContent>\
             </xs:complexType><xs:complexType name='plant' abstract='true'/>\
             <xs:element name='rep'><xs:complexType><xs:sequence>{content}</xs:sequence>\
             </xs:complexType></xs:element>"
        ));
        has_form(&schemas.describe(&name(&schemas, "rep")))
    };
    let nested = |names: &[&str], innermost: &str| {
        let wrap = |inner: String, name: &&str| {
            format!(
                "<xs:element name='{name}'><xs:complexType><xs:sequence>{inner}</xs:sequence>\
                 </xs:complexType></xs:element>"
            )
        };
        names.iter().rev().fold(innermost.to_owned(), wrap)
    };
    let with_attribute = "<xs:element name='d'><xs:complexType><xs:simpleContent>\
         <xs:extension base='xs:string'><xs:attribute name='unit' use='required'/>\
         </xs:extension></xs:simpleContent></xs:complexType></xs:element>";

    for content in [
        nested(&["a", "b", "c"], "{d}").as_str(),
        nested(&["a", "b"], with_attribute).as_str(),
        "<xs:element name='pet' type='animal'/>",
        "{a}<xs:any namespace='##other' minOccurs='0'/>",
    ] {
        assert!(has_form(content), "{content}");
    }
    for content in [
        nested(&["a", "b", "c", "d"], "{e}").as_str(),
        nested(&["a", "b", "c"], with_attribute).as_str(),
        "<xs:element ref='rep' minOccurs='0'/>",
        "<xs:element name='plant' type='plant'/>",
        "<xs:element name='anything'/>",
        "{a}<xs:any namespace='##other'/>",
    ] {
        assert!(!has_form(content), "{content}");
    }
}

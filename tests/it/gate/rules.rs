//! The rules of the gate that follow the scan of the text: names, vocabularies, schemas and
//! primitives.

use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use organism::contract::{Contract, Contracts, Meaning, Role};
use organism::envelope::{Refusal, RefusalRule};
use organism::ids::PayloadName;
use organism::pump::gate::{Gate, NOT_IN_VOCABULARY};
use organism::schema::Schemas;

use super::stage::{check, contracts, gate, name};

const CORE: &str = "xmlns='https://xml-pipeline.org/ns/core/v1'";
const ADD: &str = "<add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add>";
const ASK: &str = "<ask xmlns='urn:org:desk:v1'><question>why?</question></ask>";

fn shown(refusal: &Refusal) -> String {
    let place = refusal.place.as_ref().map(|place| format!(" @ {place}"));
    format!("{}{} {}", refusal.rule, place.unwrap_or_default(), refusal.message)
}

/// Compares the verdicts of the gate with `expected`, one for each case.
fn verdicts(cases: &[(&str, String)], expected: Expect) {
    let mut out = String::new();
    for (sender, text) in cases {
        let verdict = match check(sender, text) {
            Err(refusal) => shown(&refusal),
            Ok(checked) => {
                let inner = checked.inner().map(|i| format!(" [{}]", i.payload().as_str()));
                let primitive = checked.primitive().map(|p| format!(" {p:?}"));
                format!(
                    "{:?}{}{}",
                    checked.meaning(),
                    primitive.unwrap_or_default(),
                    inner.unwrap_or_default()
                )
            }
        };
        let text = text.replace(CORE, "CORE").replace('\n', "\\n");
        writeln!(out, "{sender}: {text}\n    {verdict}").unwrap();
    }
    expected.assert_eq(&out);
}

/// The gate refuses a long value if comparing it with its pattern would take minutes. libxml2
/// cannot be interrupted during the comparison.
#[test]
fn a_long_value_is_refused_at_once_only_if_comparing_it_with_its_pattern_takes_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("note.xsd");
    let xsd = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='urn:n'>\
        <xs:element name='note'><xs:simpleType><xs:restriction base='xs:string'>\
        <xs:pattern value='.*a.*'/></xs:restriction></xs:simpleType></xs:element></xs:schema>";
    std::fs::write(&file, xsd).unwrap();
    let mut schemas = Schemas::default();
    schemas.add_file(&file).unwrap();

    let mut listener = Contract::new(name("notes"), Role::Listener);
    listener.accepts = [PayloadName::parse("{urn:n}note").unwrap()].into();
    let mut client = Contract::new(name("client"), Role::Client);
    client.peers = [name("notes")].into();
    let contracts = Contracts::new(vec![listener, client]).unwrap();
    let gate = Gate::new(Arc::new(contracts), schemas);
    let check = |letter: &str, end: &str| {
        let text = format!("<note xmlns='urn:n'>{}{end}</note>", letter.repeat(200_000));
        gate.check(&name("client"), text.as_bytes())
    };

    assert!(check("a", "").is_ok());
    let reason = "cannot be compared with the pattern `.*a.*` in bounded time";
    for (letter, is_costly) in [("a", true), ("b", false)] {
        let refusal = check(letter, "\n").unwrap_err();
        assert_eq!(refusal.rule, RefusalRule::SchemaInvalid);
        assert_eq!(refusal.message.contains(reason), is_costly, "{}", shown(&refusal));
    }
}

// O10: a tool call is an ordinary payload, whose meaning depends on the sender's vocabulary.
#[test]
fn a_payload_means_what_the_senders_vocabulary_says() {
    verdicts(
        &[
            ("client", ADD.into()),
            ("client", ASK.into()),
            ("desk", ADD.into()),
            ("desk", ASK.into()),
            ("desk", "<answer xmlns='urn:org:desk:v1'>because</answer>".into()),
            ("desk", format!("<thinking {CORE}>hm</thinking>")),
            ("calc", "<sum xmlns='urn:org:calc:v1'/>".into()),
        ],
        expect![[r#"
            client: <add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add>
                Call { peers: [ListenerName("calc")], gather: All, forward: false }
            client: <ask xmlns='urn:org:desk:v1'><question>why?</question></ask>
                Call { peers: [ListenerName("desk")], gather: All, forward: false }
            desk: <add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add>
                Call { peers: [ListenerName("calc")], gather: All, forward: false }
            desk: <ask xmlns='urn:org:desk:v1'><question>why?</question></ask>
                Own
            desk: <answer xmlns='urn:org:desk:v1'>because</answer>
                Reply
            desk: <thinking CORE>hm</thinking>
                Note
            calc: <sum xmlns='urn:org:calc:v1'/>
                schema-invalid @ line 1, column 1 (/sum) element 'sum': '' is not a valid value of the atomic type 'xs:integer'
        "#]],
    );
}

#[test]
fn names_only_the_core_writes_are_reserved() {
    let envelope = "xmlns:e='https://xml-pipeline.org/ns/envelope/v1'";
    verdicts(
        &[
            ("client", format!("<e:message {envelope}>{ADD}</e:message>")),
            ("desk", format!("<e:delivery {envelope}/>")),
            ("desk", format!("<e:answer {envelope} call='z'/>")),
            ("desk", format!("<thread-spawned {CORE} assigned_id='z' parent_id='y'/>")),
            ("desk", "<c:ack xmlns:c='https://xml-pipeline.org/ns/c&#111;re/v1'/>".into()),
            ("nobody", format!("<huh {CORE}/>")),
            ("client", format!("<no-such-word {CORE}/>")),
            ("core", format!("<ack {CORE}/>")),
        ],
        expect![[r#"
            client: <e:message xmlns:e='https://xml-pipeline.org/ns/envelope/v1'><add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add></e:message>
                reserved-name @ line 1, column 1 an envelope is no payload; send the payload alone
            desk: <e:delivery xmlns:e='https://xml-pipeline.org/ns/envelope/v1'/>
                reserved-name @ line 1, column 1 an envelope is no payload; send the payload alone
            desk: <e:answer xmlns:e='https://xml-pipeline.org/ns/envelope/v1' call='z'/>
                reserved-name @ line 1, column 1 an <answer> that names its delivery needs the attributes `call` and `attempt`; it is no payload itself
            desk: <thread-spawned CORE assigned_id='z' parent_id='y'/>
                reserved-name @ line 1, column 1 only the core writes payloads of this name
            desk: <c:ack xmlns:c='https://xml-pipeline.org/ns/c&#111;re/v1'/>
                reserved-name @ line 1, column 1 only the core writes payloads of this name
            nobody: <huh CORE/>
                reserved-name @ line 1, column 1 only the core writes payloads of this name
            client: <no-such-word CORE/>
                reserved-name @ line 1, column 1 only the core writes payloads of this name
            core: <ack CORE/>
                reserved-name @ line 1, column 1 only the core writes payloads of this name
        "#]],
    );
}

#[test]
fn unknown_and_forbidden_answer_with_the_same_bytes() {
    let text = b"<open xmlns='urn:org:vault:v1'/>";
    // `vault` exists but is not a peer of the sender; without it, no listener has the name.
    let without: Vec<Contract> =
        contracts().iter().filter(|c| c.name != name("vault")).cloned().collect();
    let without = Gate::new(Arc::new(Contracts::new(without).unwrap()), gate().schemas);
    let forbidden = gate().check(&name("client"), text).unwrap_err();
    let unknown = without.check(&name("client"), text).unwrap_err();
    let stranger = gate().check(&name("stranger"), text).unwrap_err();
    assert_eq!(forbidden.rule, RefusalRule::NotInVocabulary);
    assert_eq!(forbidden.message, NOT_IN_VOCABULARY);
    let bytes = |refusal: &Refusal| serde_json::to_string(refusal).unwrap();
    assert_eq!(bytes(&forbidden), bytes(&unknown));
    assert_eq!(bytes(&forbidden), bytes(&stranger));
    // The vocabulary is checked before the schema.
    let invalid = check("calc", "<ask xmlns='urn:org:desk:v1'><wrong/></ask>").unwrap_err();
    assert_eq!(invalid.message, NOT_IN_VOCABULARY);
    assert_eq!((invalid.place, invalid.expected), (None, None));
}

#[test]
fn only_agents_may_send_primitives() {
    let wait = format!("<wait {CORE}/>");
    assert_eq!(check("desk", &wait).unwrap().meaning(), &Meaning::Primitive);
    for sender in ["calc", "client", "stranger"] {
        let refusal = check(sender, &wait).unwrap_err();
        assert_eq!(refusal.message, NOT_IN_VOCABULARY, "{sender}");
    }
}

// O4, O5, O6, O7: the gate parses the primitives of an agent.
#[test]
fn primitives_are_read() {
    let spawn = |inside: &str| {
        format!("<spawn-thread {CORE} suggested_sub_id='r&amp;d'>{inside}</spawn-thread>")
    };
    let send = |inside: &str| {
        format!("<send-to-thread {CORE} thread_id='sess-a'>{inside}</send-to-thread>")
    };
    let initial = |inside: &str| spawn(&format!("<initial-payload>{inside}</initial-payload>"));
    let prefixed = "<c:spawn-thread xmlns:c='https://xml-pipeline.org/ns/core/v1' \
                    xmlns:k='urn:org:calc:v1'>\n<c:initial-payload><k:add><k:a>1</k:a>\
                    <k:b>2</k:b></k:add></c:initial-payload></c:spawn-thread>";
    verdicts(
        &[
            ("desk", format!("<spawn-thread {CORE}/>")),
            ("desk", initial(ASK)),
            ("desk", initial(ADD)),
            ("desk", prefixed.into()),
            ("desk", send(ADD)),
            // Names without a namespace are resolved among the names that the sender may call.
            ("desk", initial("<ask><question>why?</question></ask>")),
            ("desk", send("<add><a>1</a><b>2</b></add>")),
            ("desk", format!("<wait {CORE}/>")),
            ("desk", format!("<wait {CORE} for='any'/>")),
            ("desk", format!("<clear-context {CORE} keep='10'/>")),
            ("desk", format!("<set-timer {CORE} after='PT30S' label='tea'/>")),
            ("desk", format!("<set-timer {CORE} at='2030-01-01T00:00:00Z'/>")),
            ("desk", format!("<cancel-timer {CORE} timer_id='x'/>")),
        ],
        expect![[r#"
            desk: <spawn-thread CORE/>
                Primitive SpawnThread { suggested_sub_id: None, is_bound: false, allotment: ThreadAllotment { tokens: None, money: None, timeout: None } }
            desk: <spawn-thread CORE suggested_sub_id='r&amp;d'><initial-payload><ask xmlns='urn:org:desk:v1'><question>why?</question></ask></initial-payload></spawn-thread>
                Primitive SpawnThread { suggested_sub_id: Some("r&d"), is_bound: false, allotment: ThreadAllotment { tokens: None, money: None, timeout: None } } [<ask xmlns='urn:org:desk:v1'><question>why?</question></ask>]
            desk: <spawn-thread CORE suggested_sub_id='r&amp;d'><initial-payload><add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add></initial-payload></spawn-thread>
                Primitive SpawnThread { suggested_sub_id: Some("r&d"), is_bound: false, allotment: ThreadAllotment { tokens: None, money: None, timeout: None } } [<add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add>]
            desk: <c:spawn-thread xmlns:c='https://xml-pipeline.org/ns/core/v1' xmlns:k='urn:org:calc:v1'>\n<c:initial-payload><k:add><k:a>1</k:a><k:b>2</k:b></k:add></c:initial-payload></c:spawn-thread>
                Primitive SpawnThread { suggested_sub_id: None, is_bound: false, allotment: ThreadAllotment { tokens: None, money: None, timeout: None } } [<k:add xmlns:k="urn:org:calc:v1"><k:a>1</k:a><k:b>2</k:b></k:add>]
            desk: <send-to-thread CORE thread_id='sess-a'><add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add></send-to-thread>
                Primitive SendToThread { thread_id: "sess-a" } [<add xmlns='urn:org:calc:v1'><a>1</a><b>2</b></add>]
            desk: <spawn-thread CORE suggested_sub_id='r&amp;d'><initial-payload><ask><question>why?</question></ask></initial-payload></spawn-thread>
                Primitive SpawnThread { suggested_sub_id: Some("r&d"), is_bound: false, allotment: ThreadAllotment { tokens: None, money: None, timeout: None } } [<ask xmlns="urn:org:desk:v1"><question>why?</question></ask>]
            desk: <send-to-thread CORE thread_id='sess-a'><add><a>1</a><b>2</b></add></send-to-thread>
                Primitive SendToThread { thread_id: "sess-a" } [<add xmlns="urn:org:calc:v1"><a>1</a><b>2</b></add>]
            desk: <wait CORE/>
                Primitive Wait { until: All }
            desk: <wait CORE for='any'/>
                Primitive Wait { until: Any }
            desk: <clear-context CORE keep='10'/>
                Primitive ClearContext { keep: 10 }
            desk: <set-timer CORE after='PT30S' label='tea'/>
                Primitive SetTimer { when: After(30s), label: Some("tea") }
            desk: <set-timer CORE at='2030-01-01T00:00:00Z'/>
                Primitive SetTimer { when: At(Time(1893456000000000)), label: None }
            desk: <cancel-timer CORE timer_id='x'/>
                Primitive CancelTimer { timer_id: "x" }
        "#]],
    );
}

#[test]
fn a_payload_inside_a_primitive_is_checked_as_the_senders_own() {
    let initial = |inside: &str| {
        format!(
            "<spawn-thread {CORE}>\n <initial-payload>{inside}</initial-payload>\n</spawn-thread>"
        )
    };
    verdicts(
        &[
            ("desk", initial("<open xmlns='urn:org:vault:v1'/>")),
            ("desk", initial("<e:message xmlns:e='https://xml-pipeline.org/ns/envelope/v1'/>")),
            ("desk", initial(&format!("<huh {CORE}/>"))),
            ("desk", initial(&format!("<wait {CORE}/>"))),
            ("desk", initial(&format!("<thinking {CORE}/>"))),
            ("desk", initial("<answer xmlns='urn:org:desk:v1'/>")),
            ("desk", initial("<answer>no</answer>")),
            ("desk", initial("<open/>")),
            ("desk", initial("<ask xmlns=''/>")),
        ],
        expect![[r#"
            desk: <spawn-thread CORE>\n <initial-payload><open xmlns='urn:org:vault:v1'/></initial-payload>\n</spawn-thread>
                not-in-vocabulary not a payload you can send; use only the payload names you were given
            desk: <spawn-thread CORE>\n <initial-payload><e:message xmlns:e='https://xml-pipeline.org/ns/envelope/v1'/></initial-payload>\n</spawn-thread>
                reserved-name @ line 2, column 19 (/spawn-thread/initial-payload) an envelope is no payload; send the payload alone
            desk: <spawn-thread CORE>\n <initial-payload><huh CORE/></initial-payload>\n</spawn-thread>
                schema-invalid @ line 2, column 19 (/spawn-thread/initial-payload/huh) element 'huh': the attribute 'code' is required but missing; element 'huh': missing child element(s); expected is ( reason ) at line 2, column 19 (/spawn-thread/initial-payload/huh)
            desk: <spawn-thread CORE>\n <initial-payload><wait CORE/></initial-payload>\n</spawn-thread>
                schema-invalid @ line 2, column 19 (/spawn-thread/initial-payload) the payload inside opens no call; write one that a peer or you yourself accept
            desk: <spawn-thread CORE>\n <initial-payload><thinking CORE/></initial-payload>\n</spawn-thread>
                schema-invalid @ line 2, column 19 (/spawn-thread/initial-payload) the payload inside opens no call; write one that a peer or you yourself accept
            desk: <spawn-thread CORE>\n <initial-payload><answer xmlns='urn:org:desk:v1'/></initial-payload>\n</spawn-thread>
                schema-invalid @ line 2, column 19 (/spawn-thread/initial-payload) the payload inside opens no call; write one that a peer or you yourself accept
            desk: <spawn-thread CORE>\n <initial-payload><answer>no</answer></initial-payload>\n</spawn-thread>
                reserved-name @ line 2, column 19 (/spawn-thread/initial-payload) only the core writes payloads of this name
            desk: <spawn-thread CORE>\n <initial-payload><open/></initial-payload>\n</spawn-thread>
                reserved-name @ line 2, column 19 (/spawn-thread/initial-payload) only the core writes payloads of this name
            desk: <spawn-thread CORE>\n <initial-payload><ask xmlns=''/></initial-payload>\n</spawn-thread>
                not-in-vocabulary not a payload you can send; use only the payload names you were given
        "#]],
    );
}

#[test]
fn a_primitive_that_cannot_be_read_is_refused() {
    verdicts(
        &[
            ("desk", format!("<clear-context {CORE} keep='0'/>")),
            ("desk", format!("<set-timer {CORE}/>")),
            ("desk", format!("<set-timer {CORE} after='PT1S' at='2030-01-01T00:00:00Z'/>")),
            ("desk", format!("<set-timer {CORE} after='P2Y'/>")),
            ("desk", format!("<set-timer {CORE} after='P1M'/>")),
            ("desk", format!("<set-timer {CORE} after='-PT1S'/>")),
            ("desk", format!("<set-timer {CORE} at='2030-01-01T00:00:00'/>")),
            ("desk", format!("<send-to-thread {CORE} thread_id='sess-a'/>")),
        ],
        expect![[r#"
            desk: <clear-context CORE keep='0'/>
                schema-invalid @ line 1, column 1 (/clear-context) element 'clear-context', attribute 'keep': the value '0' is less than the minimum value allowed ('1')
            desk: <set-timer CORE/>
                schema-invalid @ line 1, column 1 exactly one of `after` and `at` was expected
            desk: <set-timer CORE after='PT1S' at='2030-01-01T00:00:00Z'/>
                schema-invalid @ line 1, column 1 exactly one of `after` and `at` was expected
            desk: <set-timer CORE after='P2Y'/>
                schema-invalid @ line 1, column 1 `after` is not a duration from zero to 366 days, in days, hours, minutes and seconds, such as `PT30S`
            desk: <set-timer CORE after='P1M'/>
                schema-invalid @ line 1, column 1 `after` is not a duration from zero to 366 days, in days, hours, minutes and seconds, such as `PT30S`
            desk: <set-timer CORE after='-PT1S'/>
                schema-invalid @ line 1, column 1 `after` is not a duration from zero to 366 days, in days, hours, minutes and seconds, such as `PT30S`
            desk: <set-timer CORE at='2030-01-01T00:00:00'/>
                schema-invalid @ line 1, column 1 `at` is not a time with its zone, such as `2030-01-01T00:00:00Z`
            desk: <send-to-thread CORE thread_id='sess-a'/>
                schema-invalid @ line 1, column 1 (/send-to-thread) element 'send-to-thread': missing child element(s); expected is one of ( {*}*, * )
        "#]],
    );
}

// T14: a payload that violates its schema is refused before any listener receives it.
#[test]
fn schema_violations_are_refused_with_their_location() {
    let ask = |inside: &str| format!("<ask xmlns='urn:org:desk:v1'>\n  {inside}</ask>");
    verdicts(
        &[
            ("client", ask("")),
            ("client", ask("<question>why?</question><urgency>very</urgency>")),
            ("client", ask("<question k='1'>why?</question>\n<urgency>very</urgency>")),
            ("client", format!("<!-- x -->\n <!-- y -->{}", ask("<query>why?</query>"))),
            (
                "desk",
                format!(
                    "<spawn-thread {CORE}>\n <initial-payload>{}</initial-payload></spawn-thread>",
                    ask("<query>why?</query>")
                ),
            ),
            (
                "desk",
                "<c:spawn-thread xmlns:c='https://xml-pipeline.org/ns/core/v1' \
                 xmlns:d='urn:org:desk:v1'><c:initial-payload><d:ask><d:query/></d:ask>\
                 </c:initial-payload></c:spawn-thread>"
                    .into(),
            ),
            ("desk", format!("<todo-until {CORE}/>")),
            ("desk", format!("<spawn-thread {CORE}><initial-payload/></spawn-thread>")),
        ],
        expect![[r#"
            client: <ask xmlns='urn:org:desk:v1'>\n  </ask>
                schema-invalid @ line 1, column 1 (/ask) element 'ask': missing child element(s); expected is ( question )
            client: <ask xmlns='urn:org:desk:v1'>\n  <question>why?</question><urgency>very</urgency></ask>
                schema-invalid @ line 2, column 28 (/ask/urgency) element 'urgency': 'very' is not a valid value of the atomic type 'xs:integer'
            client: <ask xmlns='urn:org:desk:v1'>\n  <question k='1'>why?</question>\n<urgency>very</urgency></ask>
                schema-invalid @ line 2, column 3 (/ask/question) element 'question', attribute 'k': the attribute 'k' is not allowed; element 'urgency': 'very' is not a valid value of the atomic type 'xs:integer' at line 3, column 1 (/ask/urgency)
            client: <!-- x -->\n <!-- y --><ask xmlns='urn:org:desk:v1'>\n  <query>why?</query></ask>
                schema-invalid @ line 3, column 3 (/ask/query) element 'query': this element is not expected; expected is ( question )
            desk: <spawn-thread CORE>\n <initial-payload><ask xmlns='urn:org:desk:v1'>\n  <query>why?</query></ask></initial-payload></spawn-thread>
                schema-invalid @ line 3, column 3 (/spawn-thread/initial-payload/ask/query) element 'query': this element is not expected; expected is ( question )
            desk: <c:spawn-thread xmlns:c='https://xml-pipeline.org/ns/core/v1' xmlns:d='urn:org:desk:v1'><c:initial-payload><d:ask><d:query/></d:ask></c:initial-payload></c:spawn-thread>
                schema-invalid @ line 1, column 115 (/spawn-thread/initial-payload/ask/query) element 'query': this element is not expected; expected is ( question )
            desk: <todo-until CORE/>
                schema-invalid @ line 1, column 1 (/todo-until) element 'todo-until': the attribute 'condition' is required but missing
            desk: <spawn-thread CORE><initial-payload/></spawn-thread>
                schema-invalid @ line 1, column 59 (/spawn-thread/initial-payload) element 'initial-payload': missing child element(s); expected is one of ( {*}*, * )
        "#]],
    );
}

#[test]
fn a_form_error_is_answered_with_an_example_that_passes() {
    let wrong = "<ask xmlns='urn:org:desk:v1'><query/></ask>";
    let refusal = check("client", wrong).unwrap_err();
    assert_eq!(refusal.rule, RefusalRule::SchemaInvalid);
    let example = refusal.expected.unwrap();
    assert!(check("client", &example).is_ok(), "{example}");
    // For a defect inside a primitive, the example is one of the invalid inner payload.
    let spawn =
        format!("<spawn-thread {CORE}><initial-payload>{wrong}</initial-payload></spawn-thread>");
    assert_eq!(check("desk", &spawn).unwrap_err().expected, Some(example));
}

#[test]
fn schema_location_hints_are_ignored() {
    let text = "<add xmlns='urn:org:calc:v1' \
                xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' \
                xsi:schemaLocation='urn:org:calc:v1 nowhere.xsd'><a>1</a><b>2</b></add>";
    assert_eq!(check("client", text).unwrap().payload().as_str(), text);
}

#[test]
fn a_config_may_want_smaller_payloads() {
    let gate = gate();
    let text = ADD.as_bytes();
    let roomy = gate.clone().with_payload_bytes(text.len());
    assert!(roomy.check(&name("client"), text).is_ok(), "it just fits");
    let tight = gate.with_payload_bytes(text.len() - 1);
    let refused = tight.check(&name("client"), text).unwrap_err();
    assert_eq!(refused.rule, RefusalRule::TooLarge);
}

#[test]
fn the_checked_bytes_are_kept_unchanged() {
    let text = format!("\u{FEFF}<?xml version='1.0'?>\n<!-- x -->{ADD}<!-- y -->\n");
    let checked = check("client", &text).unwrap();
    assert_eq!(checked.payload().as_str(), ADD);
    assert_eq!(checked.payload().digest, organism::ids::Digest::of(ADD.as_bytes()));
    assert_eq!(checked.name().to_string(), "{urn:org:calc:v1}add");
}

#[test]
fn a_refusal_records_what_was_submitted_and_no_more() {
    let text = format!("<a>{}</b>", "é".repeat(5_000));
    let refusal = check("client", &text).unwrap_err();
    assert_eq!(refusal.length, text.len());
    assert_eq!(refusal.digest, organism::ids::Digest::of(text.as_bytes()));
    assert!(refusal.head.starts_with("<a>ééé"));
    assert!(refusal.head.len() <= organism::limits::REFUSAL_HEAD_BYTES + 3);
    assert_eq!(refusal.place.map(|place| place.column), Some(5_004));
}

//! `gate_refuse`: time in which the gate refuses a megabyte of hostile XML, compared with a loop
//! over the same bytes.
//!
//! The measurement covers the complete refusal, as the pump records it: with the location of the
//! defect, and with the digest and the beginning of the text.

use std::process::Command;
use std::sync::Arc;

use organism::contract::{Contract, Contracts, Role};
use organism::ids::{ListenerName, PayloadName};
use organism::limits::PAYLOAD_BYTES_MAX;
use organism::pump::gate::Gate;
use organism::schema::Schemas;

use super::figures::{Bench, Class, median};
use super::{floor, plain};

const ATTACKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/attacks");
const ADD: &str = r#"<add xmlns="urn:org:calc:v1">"#;
/// Minimum size of the generated files that are measured. In a smaller file, the refusal costs
/// little more than writing its message.
const LARGE: usize = 256 << 10;

pub fn run(bench: &mut Bench) {
    let runs = bench.runs;
    let gate = gate();
    let client = ListenerName::parse("client").unwrap();
    let texts = files().into_iter().chain(floods());
    let refused = texts.filter(|(_, text)| gate.check(&client, text).is_err());
    let classes = refused.map(|(name, text)| {
        let refuse = || gate.check(&client, &text).unwrap_err().length;
        Class {
            name,
            value: median(runs, || plain::seconds(refuse)) * 1e6,
            floor: median(runs, || plain::seconds(|| plain::count(&text))) * 1e6,
        }
    });
    let classes: Vec<Class> = classes.collect();
    bench.figures.add_worst("gate_refuse", "us", &classes, |class| class.value / class.floor);
}

fn gate() -> Gate {
    let mut schemas = Schemas::default();
    schemas.add_file(format!("{ATTACKS}/calc.xsd").as_ref()).unwrap();
    let listener = ListenerName::parse("calc").unwrap();
    let mut calc = Contract::new(listener.clone(), Role::Listener);
    calc.accepts = vec![PayloadName::new("urn:org:calc:v1", "add")];
    let mut client = Contract::new(ListenerName::parse("client").unwrap(), Role::Client);
    client.peers = vec![listener];
    Gate::new(Arc::new(Contracts::new(vec![calc, client]).unwrap()), schemas)
}

/// The hostile files that the tests generate.
fn files() -> Vec<(String, Vec<u8>)> {
    let folder = floor::directory("hostile");
    let script = format!("{ATTACKS}/generate.py");
    let made = Command::new("python3").arg(script).arg(&folder).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.jsonl")).unwrap();
    let names = manifest.lines().map(|line| {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        case["file"].as_str().unwrap().to_owned()
    });
    let texts = names.map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap()));
    texts.filter(|(name, text)| name.ends_with(".xml") && text.len() >= LARGE).collect()
}

/// Returns texts of the maximum size of a payload, with their names. Each text repeats one piece of
/// markup and never closes its root element, so the gate refuses it, at the end of the text at the
/// latest.
fn floods() -> Vec<(String, Vec<u8>)> {
    let flood = |name: &str, unit: &str| {
        let text = ADD.to_owned() + &unit.repeat((PAYLOAD_BYTES_MAX - ADD.len()) / unit.len());
        (name.to_owned(), text.into_bytes())
    };
    let attributes: String = (0..200).map(|n| format!(" a{n}='v'")).collect();
    vec![
        flood("children, too many", "<a/>"),
        flood("children, not too many", "<item>1</item>"),
        flood("nested, too deep", "<x>"),
        flood(
            "nested, not too deep",
            &("<x>".repeat(100) + "text here and there" + &"</x>".repeat(100)),
        ),
        flood("attributes, too many", " a='v'"),
        flood("attributes, not too many", &format!("<a{attributes}/>")),
        flood("text", "a wall of text that goes on and on; "),
        flood("text beyond ASCII", "стена текста, 長い文章。"),
        flood("entities", "&amp;"),
        flood("characters by number", "&#120;"),
        flood("entities that are none", "&amp;&lol;"),
        flood("ampersands", "& "),
        flood("comments", "<!---->"),
        flood("comments with dashes", "<!-- - - - - - - -->"),
        flood("CDATA", "<![CDATA[x]]>"),
        flood("CDATA that seems to end", "<![CDATA[]] > ]> ]] > > > > > > ]]>"),
        flood("brackets", "]]"),
        flood("namespaces", "<p:a xmlns:p='urn:x'/>"),
        flood("quotes", "<a b='\"' c=\"'\"/>"),
        flood("instructions", "<?p?>"),
        flood("less-than signs", "<"),
        flood("end tags", "</a>"),
    ]
}

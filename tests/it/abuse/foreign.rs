//! Thread ids of other senders: foreign, unknown and malformed ids get the same answer.

use organism::pump::core::{Receipt, Target};
use organism::thread::Fact;

use super::judge;
use super::stage::{Stage, native};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::pump::world::word;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["finder"]

[clients.shop]
peers = ["finder"]

[listeners.finder]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["look"]
replies = ["found"]
"#;

/// Thread ids of equal length. The first is the id of a thread of another client. The other ids
/// name no thread, and most of them are invalid.
const IDS: [&str; 12] = [
    "sess-foreign0",
    "sess-nothere0",
    "sess-FOREIGN0",
    "SESS-FOREIGN0",
    "sess-foreign.",
    "sess-fore/../",
    "../../../etc/",
    "sess-organism",
    "sess-*.>$SYS0",
    "sess-fore\nPUB",
    "' OR 1=1 -- 0",
    "<a/>&amp;]]>0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_unknown_and_odd_ids_answer_a_client_with_the_same_bytes() {
    let mut campaign = Campaign::new("foreign and unknown threads");
    campaign.note(format!("{} ids", IDS.len()));
    let finder = native("finder", |_| vec![word("found", "f")]);
    let stage = Stage::start(House::with(CONFIG), vec![finder]).await;
    let look = word("look", "x");
    let target = Target::New { suggested: Some("sess-foreign0".to_owned()) };
    let (receipt, mut results) = stage.submit("shop", target, look.as_bytes()).await;
    assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
    while let Some(done) = results.next().await {
        done.unwrap();
    }
    let mut answers = Vec::new();
    for id in IDS {
        let target = Target::Thread { id: id.to_owned() };
        let (receipt, results) = stage.submit("desk", target, look.as_bytes()).await;
        assert!(results.is_empty());
        let Receipt::NoThread { answer } = receipt else { panic!("{id}: {receipt:?}") };
        let escaped = |id: &str| {
            let id = id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            id.replace('\n', "&#10;").replace('\'', "&apos;")
        };
        let plain = id.replace('&', "&amp;").replace('<', "&lt;").replace('\n', "&#10;");
        let without = [escaped(id), plain, id.to_owned()]
            .iter()
            .find_map(|id| answer.contains(&format!("\"{id}\"")).then(|| answer.replace(id, "ID")));
        answers.push(without.unwrap_or_else(|| panic!("{id:?} is not echoed in {answer}")));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert!(answers[0].contains("code=\"unknown_thread\""), "{}", answers[0]);
    // The ids have the same length, so the complete answers must have the same length, too.
    let (house, tally) = stage.end().await;
    let records = judge::records(&house);
    let facts = records.iter().flat_map(|record| &record.facts);
    let refused: Vec<String> = facts
        .filter_map(|fact| match fact {
            Fact::Refused { .. } => Some(format!("{fact:?}")),
            _ => None,
        })
        .collect();
    assert_eq!((refused.len(), tally.refused), (IDS.len(), IDS.len() as u64));
    assert!(refused.iter().all(|fact| *fact == refused[0]), "one branch: {refused:#?}");
    assert!(refused[0].contains("UnknownThread") && refused[0].contains("desk"), "{}", refused[0]);
    let in_foreign = judge::messages(&records).filter(|m| m.thread.as_str() == "sess-foreign0");
    assert_eq!(in_foreign.count(), 2, "nothing reached the foreign thread");
}

/// `organism send` gives the same answer for a thread of another client and for an unknown thread.
/// For a payload that the gate refuses, the command reports the gate's reason.
#[test]
fn the_command_says_the_same_of_foreign_and_unknown_threads() {
    let house = House::with_echo();
    let running = house.run();
    let say = |text: &str, more: &[&str]| {
        house.write("say.xml", format!("<say xmlns=\"urn:example:talk\">{text}</say>"));
        let mut arguments = vec!["send", "say.xml"];
        arguments.extend(more);
        house.organism(&arguments)
    };
    let opened = say("hello", &["--as", "other", "--new", "sess-foreign0"]);
    assert_eq!(opened.code, Some(0), "{opened:?}");
    let told = IDS.map(|id| {
        let told = say("hello", &["--as", "desk", "--thread", id]);
        assert_eq!(told.code, Some(65), "{id:?}: {told:?}");
        told
    });
    let [foreign, unknown] = [&told[0], &told[1]].map(|told| told.out.clone() + &told.err);
    assert_eq!(foreign.replace("sess-foreign0", "ID"), unknown.replace("sess-nothere0", "ID"));
    assert_eq!(running.stop(), Some(0));
    judge::assert_house_kept(&house);
}

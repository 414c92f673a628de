//! Core payloads that the config does not permit to an agent are unknown to this agent, and are not
//! treated as forgeries.

use organism::agent::ActionTransport;
use organism::model::ChatBlock;
use organism::thread::Closing;
use organism::xml::element::Element;

use super::scripted::{Says, Scripted, reply};
use super::stage::{Stage, researcher};

const END: &str = "<attempt_completion><result>done</result></attempt_completion>";

/// Plays the turn `first`. If this turn does not end the call, plays a second turn that ends the
/// call. Returns the number of turns, and the last message of the last prompt.
fn played(first: &str) -> (usize, String) {
    let way = ActionTransport::Xml;
    let turns = vec![Says::Exactly(reply(first)), Says::Exactly(reply(END))];
    let model = Scripted::new(way, turns);
    let mut options = researcher(way);
    options.contract.core = Some(Vec::new());
    options.max_iterations = 2;
    let mut stage = Stage::with(options, model.clone());
    stage.ask();
    let (how, texts) = &stage.results[0];
    assert_eq!(*how, Closing::Completed, "{texts:?}");
    assert_eq!(Element::read(&texts[0]).unwrap().text(), "done");
    let requests = model.requests();
    let last = requests.last().unwrap().messages.last().unwrap().clone();
    let texts = last.blocks.iter().filter_map(|block| match block {
        ChatBlock::Text(text) | ChatBlock::Result { text, .. } => Some(text.clone()),
        _ => None,
    });
    (requests.len(), texts.collect())
}

#[test]
fn an_unclosed_word_that_is_switched_off_does_not_hide_the_completion_behind_it() {
    let (turns, _) = played(&format!("<wait for=\"all\">\n{END}"));
    assert_eq!(turns, 1);
}

#[test]
fn a_word_that_is_switched_off_is_refused_as_an_unknown_action() {
    for word in ["<wait for=\"all\"/>", "<wait for=\"all\"></wait>"] {
        let (turns, shown) = played(word);
        assert_eq!(turns, 2, "{word}");
        assert!(shown.contains("`wait` is no action of yours"), "{word}: {shown}");
        assert!(!shown.contains("only the"), "{word}: {shown}");
    }
}

#[test]
fn a_namespaced_word_that_is_switched_off_gets_the_uniform_refusal() {
    let word = format!("<wait xmlns=\"{}\" for=\"all\"/>", organism::system::NAMESPACE);
    let (turns, shown) = played(&word);
    assert_eq!(turns, 2);
    assert!(shown.contains("use only the payload names you were given"), "{shown}");
}

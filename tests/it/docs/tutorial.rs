//! docs/TUTORIAL.md, carried out by the real command.

use std::path::Path;

use super::page::steps;
use super::session::Session;
use crate::organism::provider::{Provider, ScriptedResponse};

/// Title of the chapter in which a scripted server replaces the provider.
const LIVE: &str = "A real model";

/// Environment variable that sends the model requests of the chapter [`LIVE`] to the scripted
/// server.
const ADDRESS: &str = "ORGANISM_MODELS__VOICE__BASE_URL";

/// Answers of the scripted model, turn after turn.
const ANSWERS: [&str; 4] = [CALL, FINAL, CALL, FINAL];

/// Number of requests to the scripted model: a test call, whose answer states its usage, and then
/// the turns.
const REQUESTS: usize = 1 + ANSWERS.len();

const CALL: &str = "<thinking>The shelf knows.</thinking>\n<stock><tea>black</tea></stock>";
const FINAL: &str =
    "<thinking>There are three boxes.</thinking>\n<answer>Yes, we have 3 boxes of it.</answer>";

#[test]
fn the_tutorial_runs_as_it_is_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/TUTORIAL.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let answers = ANSWERS.iter().map(|text| ScriptedResponse::Text((*text).to_owned()));
    let tried = ScriptedResponse::counted("ok");
    let provider = Provider::start(std::iter::once(tried).chain(answers).collect());
    let mut session = Session::new();

    for step in steps(&page).unwrap() {
        // The last step of the chapter is a recording again.
        if step.chapter == LIVE && provider.requests() < REQUESTS {
            session.set(ADDRESS, &provider.url());
        } else {
            session.unset(ADDRESS);
        }
        if let Err(wrong) = session.carry_out(&step) {
            session.write(&path);
            panic!("docs/TUTORIAL.md, {wrong}");
        }
    }
    session.finish().unwrap();
    session.write(&path);
    assert!(session.commands > 40, "the commands were found: {}", session.commands);
    assert_eq!(provider.requests(), REQUESTS, "requests to the scripted server");
}

//! `clear-context`: the kept items and their count.

use organism::envelope::Turn;
use organism::thread::Fact;

use super::world::{World, agent, client, core, fresh, listener, word};

fn world() -> World {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]);
    world.open("desk", &word("plan", "p"));
    world
}

fn clear(keep: u32) -> String {
    core("clear-context", &format!("keep=\"{keep}\""), "")
}

fn turn() -> Turn {
    Turn { note: core("model-turn", "", ""), ..Turn::default() }
}

/// A world after two rounds of the agent. Five items precede the agent's third turn: the request,
/// and a turn and a result for each round.
fn after_two_rounds() -> World {
    let mut world = world();
    for _ in 0..2 {
        world.turn("thinker", 1, &[word("look", "q")]);
        world.play("finder", &[word("found", "f")]);
    }
    world
}

/// O6: the window keeps the requested number of items, or all items if there are fewer. The
/// `clear-context` request and its confirmation do not count as items.
#[test]
fn the_window_keeps_the_smaller_of_requested_and_present() {
    for (keep, kept) in [(1, 1), (4, 4), (5, 5), (6, 5), (4_000_000_000, 5)] {
        let mut world = after_two_rounds();
        world.turn("thinker", 1, &[clear(keep)]);
        let woken = world.delivery("thinker");
        assert_eq!(fresh(&woken), [format!("context-cleared {kept}")], "asked for {keep}");
    }
}

#[test]
pub fn a_second_clearing_counts_what_the_first_one_left() {
    let mut world = after_two_rounds();
    world.turn("thinker", 1, &[clear(2)]);
    world.turn("thinker", 1, &[clear(100)]);
    // The two kept items, the turn with the request, and the confirmation.
    assert_eq!(fresh(&world.delivery("thinker")), ["context-cleared 4"]);
}

/// A turn keeps first 1 and then 50 items. Both confirmations state 1, because only one item is
/// left. The clearing of a later turn also counts only the items that are left.
#[test]
fn a_second_clearing_in_the_same_turn_counts_what_the_first_one_left() {
    let mut world = after_two_rounds();
    world.turn("thinker", 1, &[clear(1), clear(50)]);
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["context-cleared 1", "context-cleared 1"]);
    world.answer_turn(&woken, &[clear(50)], Some(turn()));
    // The kept item, the turn with the two requests, and the two confirmations.
    assert_eq!(fresh(&world.delivery("thinker")), ["context-cleared 4"]);
    world.check_replay();
}

/// A window keeps only items from before the turn that requested the window.
#[test]
fn the_requesting_turn_is_not_among_the_kept_items() {
    let mut world = after_two_rounds();
    world.turn("thinker", 1, &[clear(1)]);
    let facts = || world.records.iter().flat_map(|record| &record.facts);
    let turns = facts().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "model-turn" => Some(message.seq),
        _ => None,
    });
    let before = facts().find_map(|fact| match fact {
        Fact::Window { before, .. } => Some(*before),
        _ => None,
    });
    assert_eq!(turns.max(), before);
}

#[test]
fn keeping_nothing_is_refused_by_the_gate() {
    let mut world = world();
    world.play(
        "thinker",
        &[clear(0), core("clear-context", "", ""), core("clear-context", "keep=\"-1\"", "")],
    );
    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken, ["huh schema-invalid", "huh schema-invalid", "huh schema-invalid"]);
}

//! Forks: history by reference, recorded results, and no effect that happens twice (issue 18,
//! part 1; design 11.20).

use std::time::Duration;

use ed25519_dalek::SigningKey;
use organism::contract::{Contract, Role, TreeLimits};
use organism::envelope::{MessageKind, Money, RefusalRule, Turn};
use organism::ids::{CallId, Position, ThreadId};
use organism::pump::core::{Event, ForkRuling};
use organism::thread::{
    Allotment, Decision, Fact, OperatorKeys, OperatorPublicKey, PauseTarget, PauseVerb,
};

use super::world::{World, agent, client, core, fresh, listener, name, names, word};

const HOUR: Duration = Duration::from_secs(3600);

/// Contracts of an agent and of two clients. The agent may call a finder and a person. Both clients
/// may call the agent, and the client `desk` may also call the finder.
fn contracts() -> Vec<Contract> {
    let mut boss = Contract::new(name("boss"), Role::Human);
    boss.accepts = names(&["ask"]);
    boss.replies = names(&["report"]);
    vec![
        client("desk", &["thinker", "finder"]),
        client("other", &["thinker"]),
        agent("thinker", &["plan", "vote"], &["answer", "ballot"], &["finder", "boss"]),
        listener("finder", &["look"], &["found"], &[]),
        boss,
    ]
}

fn world() -> World {
    World::new(contracts())
}

fn look(text: &str) -> String {
    word("look", text)
}

/// Returns the thread and the first call of a fork.
fn forked(ruling: ForkRuling) -> (ThreadId, Option<CallId>) {
    match ruling {
        ForkRuling::Forked { thread, calls } => (thread, calls.first().copied()),
        ForkRuling::Refused(refusal) => panic!("not forked: {refusal}"),
    }
}

fn refused(ruling: ForkRuling) -> RefusalRule {
    match ruling {
        ForkRuling::Refused(refusal) => refusal.rule,
        ForkRuling::Forked { thread, .. } => panic!("forked as {thread}"),
    }
}

fn last(world: &World) -> Position {
    Position(world.records.len() as u64)
}

/// Plays a conversation of one request to the end. Returns the thread of the conversation and the
/// position of the last record.
fn conversation(world: &mut World) -> (ThreadId, Position) {
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[look("q")]);
    world.play("finder", &[word("found", "f")]);
    world.play("thinker", &[word("answer", "a")]);
    (thread, last(world))
}

/// Issue 18, 1.6: a call that the source has gets its recorded result, even a fault, and is not
/// delivered to its listener.
#[test]
fn a_fork_gets_the_recorded_results_and_no_listener_is_given_its_calls() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let (fork, call) = forked(ruling);
    world.play("thinker", &[look("q"), look("r")]);
    assert!(world.deliveries.is_empty(), "no effect is repeated");

    let order = world.recall(Some((MessageKind::Reply, &word("found", "f"))));
    assert_eq!((order.fork, order.source, order.after), (fork.clone(), source, Position(0)));
    let fault = core("system-error", "code=\"timeout\" retry_allowed=\"true\"", "late");
    world.recall(Some((MessageKind::System, &fault)));

    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken, ["found(f)", "system-error timeout"]);
    let recalled = world.records.iter().flat_map(|record| &record.facts);
    assert_eq!(recalled.filter(|fact| matches!(fact, Fact::Recalled { .. })).count(), 2);
    assert_eq!(world.result(call.unwrap()), "none");
    world.check_replay();
}

/// Issue 18, 1.6: a call that the source does not have is held for an operator, even after a
/// restart. After the approval, the call goes to its listener.
#[test]
fn a_call_that_the_source_does_not_have_is_held() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let (fork, call) = forked(ruling);
    world.play("thinker", &[look("new")]);

    world.restart();
    assert_eq!(world.recalls.len(), 1, "the source is searched again");
    let order = world.recall(None);
    assert!(world.deliveries.is_empty());
    assert!(world.core.state().call(order.call).unwrap().held.is_some());
    assert!(world.transcript(&fork).contains("approval-requested"));
    world.core.let_rest();
    let reason = world.core.open_call(order.call).unwrap().unwrap().approval_reason;
    assert_eq!(reason.as_deref(), Some("the source of this fork has no result for it"));

    world.restart();
    world.pass(HOUR);
    assert!(world.deliveries.is_empty(), "it waits for the operator");
    let hash = world.core.state().call(order.call).unwrap().request().unwrap().payload.digest;
    world.decide(order.call, Decision::Approve { hash: hash.to_string(), preview: None }).unwrap();
    world.play("finder", &[word("found", "n")]);
    world.play("thinker", &[word("answer", "b")]);
    assert_eq!(world.result(call.unwrap()), "completed: answer(b)");
    world.check_replay();
}

/// Issue 18, 1.6: a listener that `--live` names gets the calls that the source does not have.
/// Calls that the source has are answered from the record.
#[test]
fn a_live_listener_gets_what_the_source_does_not_have() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    let ruling = world.fork(&source, Position(0), ("desk", Some(&look("q"))), &["finder"]);
    let (_, call) = forked(ruling);
    assert!(world.deliveries.is_empty(), "the source is searched first");
    world.recall(None);
    world.play("finder", &[word("found", "n")]);
    assert_eq!(world.result(call.unwrap()), "completed: found(n)");
}

/// Issue 18, 1.6: a question that the source has is answered from the record. A question that the
/// source does not have waits for its person and needs no approval.
#[test]
fn a_question_that_the_source_does_not_have_waits_for_its_person() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    forked(world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]));
    world.play("thinker", &[word("ask", "one"), word("ask", "two")]);
    world.recall(Some((MessageKind::Reply, &word("report", "yes"))));
    let order = world.recall(None);
    let answer = world.gate.check(&name("boss"), word("report", "no").as_bytes());
    let answer = organism::pump::core::GatedAnswer { listener: name("boss"), payload: answer };
    world.decide(order.call, Decision::Answer(answer)).unwrap();
    assert_eq!(fresh(&world.delivery("thinker")), ["report(yes)", "report(no)"]);
}

/// Issue 18, 1.2: a fork has the same threads as its source, with the same numbers and labels. The
/// fork's budgets start unused (1.7), and the source does not change.
#[test]
pub fn a_fork_takes_the_threads_of_its_source_over_and_leaves_it_untouched() {
    let mut world = world();
    let (source, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", look("q"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
    world.play("thinker", &[spawn.clone(), core("wait", "", "")]);
    world.play("finder", &[word("found", "f")]);
    world.play("thinker", &[word("answer", "a")]);
    let history = last(&world);
    let before = world.core.state().tree(&source).unwrap().clone();
    assert!(before.calls.is_empty(), "at rest");

    let (fork, none) = forked(world.fork(&source, history, ("other", None), &[]));
    assert_eq!(none, None);
    let tree = world.core.state().tree(&fork).unwrap().clone();
    assert_eq!(tree.threads.len(), before.threads.len());
    assert_eq!(tree.usage.tokens, 0);
    let root = world.core.state().thread(&fork).unwrap();
    assert_eq!(root.by, name("other"), "the results go to the named client");
    assert!(root.seq >= world.core.state().thread(&source).unwrap().seq);
    assert_eq!(world.core.state().tree(&source).unwrap(), &before);

    let call = world.say("other", &fork, &word("plan", "more"));
    world.play("thinker", &[spawn]);
    assert!(world.transcript(&fork).contains("side-1"), "the label is taken");
    world.restart();
    world.check_replay();
    assert_eq!(world.result(call), "none");
}

/// Issue 18, 1.2, and design 5.34: a thread that ended with the call to which it was bound is
/// unknown in a fork, too.
#[test]
fn a_bound_thread_whose_call_has_ended_is_unknown_in_a_fork() {
    let mut world = world();
    let (source, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", look("q"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\" bound=\"true\"", &inner);
    world.play("thinker", &[spawn]);
    let own = world.delivery_for("thinker");
    world.answer(&own, &[word("answer", "a")]);
    let history = last(&world);

    let more = word("plan", "more");
    let (fork, _) = forked(world.fork(&source, history, ("desk", Some(&more)), &["finder"]));
    let side = format!("thread_id=\"{}\"", fork.child("side"));
    let own = world.delivery_for("thinker");
    world.answer(&own, &[core("send-to-thread", &side, &look("again"))]);
    let shown = fresh(&world.delivery_for("thinker"));
    assert!(shown[0].starts_with("system-thread-error"), "{shown:?}");
    assert!(world.recalls.is_empty(), "no call is opened");
    world.check_replay();
}

/// Issue 18, 1.7, and design 5.25: the threads of the source do not count against the limits of
/// threads and children in a fork.
#[test]
fn a_fork_counts_its_own_threads_alone() {
    let limits = TreeLimits { children: 2, threads: 3, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts(), limits);
    let idle = core("spawn-thread", "", "");
    let (source, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[idle.clone(), idle.clone()]);
    world.play("thinker", &[word("answer", "a")]);
    let history = last(&world);

    forked(world.fork(&source, history, ("desk", Some(&word("plan", "more"))), &[]));
    world.play("thinker", &[idle.clone(), idle.clone(), idle]);
    let shown = fresh(&world.delivery("thinker"));
    assert!(shown[..2].iter().all(|text| text.starts_with("thread-spawned")), "{shown:?}");
    assert_eq!(shown[2], "system-error limit-reached");
    world.check_replay();
}

/// Issue 18, 1.6: as soon as no other work in the fork can go on, the timers of the fork fire in
/// order and without delay.
#[test]
fn timers_of_a_fork_fire_in_order_when_nothing_else_can_go_on() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    forked(world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]));
    let timer = |label: &str, after: &str| {
        core("set-timer", &format!("after=\"{after}\" label=\"{label}\""), "")
    };
    let set = [timer("late", "PT9M"), timer("soon", "PT3M"), look("q"), core("wait", "", "")];
    world.play("thinker", &set);
    world.pass(Duration::from_millis(10));
    assert_eq!(fired(&world), 0, "the search comes first");
    world.recall(Some((MessageKind::Reply, &word("found", "f"))));
    world.pass(Duration::from_millis(10));
    assert_eq!(fired(&world), 2, "{:?}", world.alarms);
    let woken = fresh(&world.delivery("thinker"));
    assert_eq!(woken[woken.len() - 2..], ["timer-fired soon", "timer-fired late"]);
    world.check_replay();
}

/// Number of timers that have ended.
fn fired(world: &World) -> usize {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    facts.filter(|fact| matches!(fact, Fact::TimerEnded { .. })).count()
}

/// Issue 18, 1.6: a timer of the source that is due when the fork begins fires only after all other
/// work in the fork.
#[test]
fn a_timer_of_the_source_does_not_overtake_what_a_fork_can_go_on_with() {
    for restarts in [false, true] {
        let mut world = world();
        let (source, _) = world.open("desk", &word("plan", "p"));
        let timer = core("set-timer", "after=\"PT3M\" label=\"soon\"", "");
        world.play("thinker", &[timer, look("q")]);
        world.play("finder", &[word("found", "f")]);
        let (turn, history) = prompt_of(&world, "thinker");
        world.play("thinker", &[word("answer", "a")]);
        world.pass(HOUR);
        let ended = fired(&world);

        forked(world.fork_at((&source, history, Some(turn)), ("desk", None), &[]));
        if restarts {
            world.restart();
        }
        world.pass(Duration::from_millis(10));
        assert_eq!(fired(&world), ended, "the turn comes first");
        world.play("thinker", &[look("r"), core("wait", "", "")]);
        world.pass(Duration::from_millis(10));
        assert_eq!(fired(&world), ended, "the search comes first");
        world.recall(Some((MessageKind::Reply, &word("found", "g"))));
        world.pass(Duration::from_millis(10));
        assert_eq!(fired(&world), ended + 1, "{:?}", world.alarms);
        world.check_replay();
    }
}

/// Issue 18, 4.2: a paused thread of a fork keeps its timers, and the timers of other threads fire
/// without waiting for the paused thread.
#[test]
fn a_paused_thread_of_a_fork_does_not_hold_up_the_timers_of_the_others() {
    let early = Position(3);
    let late = Position(5);
    let orders = [vec![("late", late), ("soon", early)], vec![("late", early), ("soon", late)]];
    for fired_in_source in orders.into_iter().chain([Vec::new()]) {
        let mut world = world();
        let (source, _) = conversation(&mut world);
        let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
        let (fork, _) = forked(ruling);
        let timer = |label: &str, after: &str| {
            core("set-timer", &format!("after=\"{after}\" label=\"{label}\""), "")
        };
        let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
        let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
        let rest = core("wait", "", "");
        world.fired_in_source = fired_in_source;
        world.play("thinker", &[spawn, timer("late", "PT9M"), rest.clone()]);
        world.play("thinker", &[timer("soon", "PT3M"), rest]);
        let side = PauseTarget::Thread(fork.child("side"));
        world.pause(PauseVerb::Pause, &side);
        world.pass(Duration::from_secs(1200));
        assert!(world.deliveries.is_empty(), "the side is paused, and the root waits for it");
        assert_eq!(fired(&world), 1, "{:?}", world.alarms);
        world.pause(PauseVerb::Resume, &side);
        world.pass(Duration::from_millis(10));
        assert_eq!(fired(&world), 2);
        assert_eq!(world.delivery("thinker").thread, fork.child("side"));
        world.check_replay();
    }
}

/// Issue 18, 1.7, and design 5.23: a spawned thread has the same limits in the fork as in the
/// source, and starts in the fork with none of them used.
#[test]
fn a_spawned_thread_keeps_its_allotment_in_a_fork() {
    let mut contracts = contracts();
    contracts.iter_mut().for_each(|contract| contract.timeout = 100 * HOUR);
    let mut world = World::new(contracts);
    let (source, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    let limits = "suggested_sub_id=\"side\" tokens=\"500\" timeout=\"PT2H\"";
    world.play("thinker", &[core("spawn-thread", limits, &inner), core("wait", "", "")]);
    world.pass(HOUR);
    let side = world.delivery("thinker");
    let place = (&source, side.position, Some(side.call));
    world.pass(HOUR);
    assert!(world.core.state().call(side.call).is_none(), "its time in the source is over");
    assert_eq!(world.delivery("thinker").thread, source);

    let (fork, _) = forked(world.fork_at(place, ("desk", None), &[]));
    let again = world.delivery("thinker");
    assert_eq!(again.thread, fork.child("side"));
    assert!(world.reserve(&again, 501, Money(0)).is_err());
    assert_eq!(world.reserve(&again, 500, Money(0)), Ok(()));
    world.pass(HOUR);
    assert!(world.core.state().call(again.call).is_some(), "the source used none of this time");
    world.pass(HOUR);
    assert!(world.core.state().call(again.call).is_none(), "its time is over");
    world.check_replay();
}

/// The tokens of a fork limit its model calls. A turn whose answer is on record makes no model
/// call, and so takes place although these tokens are used up.
#[test]
fn a_fork_without_tokens_takes_the_turns_that_are_on_record() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    world.fork_limits = Some(Allotment { tokens: Some(0), money: None, until: None });
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let (_, call) = forked(ruling);
    world.play("thinker", &[look("q")]);
    world.recall(Some((MessageKind::Reply, &word("found", "f"))));

    let turn = world.delivery("thinker");
    let refused = world.reserve(&turn, 1, Money(0)).unwrap_err();
    assert!(refused.contains("0 of the 0 of thread"), "{refused}");
    world.answer_turn(&turn, &[word("answer", "a")], None);
    assert_eq!(world.result(call.unwrap()), "completed: answer(a)");
    world.check_replay();
}

/// Payloads of the recorded results that the fork got, in the order of the record.
fn recalled(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for record in &world.records {
        let is_recalled = |fact: &Fact| matches!(fact, Fact::Recalled { .. });
        if record.facts.iter().any(is_recalled) {
            found.extend(record.payloads().map(|payload| payload.as_str().to_owned()));
        }
    }
    found
}

/// Issue 18, 1.6: recorded results arrive in the order of the source. Each result arrives when
/// nothing else in the fork can go on.
#[test]
fn results_on_record_come_in_the_order_of_the_source() {
    for ends in [false, true] {
        let mut world = world();
        let (source, _) = conversation(&mut world);
        forked(world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]));
        world.play("thinker", &[look("q"), look("r"), look("s")]);
        let (late, early) = (word("found", "late"), word("found", "early"));
        world.recall_at(Some(Position(7)), Some((MessageKind::Reply, &late)));
        world.recall_at(Some(Position(5)), Some((MessageKind::Reply, &early)));
        world.pass(Duration::from_millis(10));
        assert_eq!(recalled(&world), [""; 0], "a search is out");
        if ends {
            world.step(Event::Shutdown { reason: "SIGTERM".to_owned() });
        } else {
            world.recall(None);
        }
        world.pass(Duration::from_millis(10));
        assert_eq!(recalled(&world), [early, late]);
        world.check_replay();
    }
}

/// A recorded turn does not time out while it waits for its place in the order of the source.
#[test]
fn a_turn_on_record_that_waits_does_not_time_out() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    let (fork, _) = forked(ruling);
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    world.play("thinker", &[core("spawn-thread", "suggested_sub_id=\"side\"", &inner)]);
    let [root, side] = [world.delivery("thinker"), world.delivery("thinker")];
    let (_root, side) = if root.thread == fork { (root, side) } else { (side, root) };
    let turn = Turn { recorded: Some(Position(4)), ..Turn::default() };
    world.answer_turn(&side, &[word("answer", "a")], Some(turn));
    world.pass(Duration::from_millis(10));
    assert!(world.core.state().call(side.call).is_some(), "the root's turn is under way");
    world.pass(HOUR);
    assert!(world.core.state().call(side.call).is_none());
    let side = world.transcript(&side.thread);
    assert!(side.contains("answer") && !side.contains("timeout"), "{side}");
    world.check_replay();
}

/// A fork that breaks a rule is refused, and leaves no thread.
#[test]
fn a_fork_that_cannot_be_is_refused_and_leaves_no_thread() {
    let mut world = world();
    let (source, _) = conversation(&mut world);
    let trees = world.core.state().trees.len();
    let bad = word("answer", "not mine");
    assert_eq!(
        refused(world.fork(&source, Position(0), ("desk", Some(&bad)), &[])),
        RefusalRule::NotInVocabulary
    );
    for (client, live) in [("thinker", &[][..]), ("nobody", &[]), ("desk", &["thinker"])] {
        let ruling = world.fork(&source, Position(0), (client, None), live);
        assert_eq!(refused(ruling), RefusalRule::NotInVocabulary, "{client} {live:?}");
    }

    let key = SigningKey::from_bytes(&[7; 32]);
    let keys = vec![(name("ana"), OperatorPublicKey::of(&key))];
    world.takes_decisions_of(OperatorKeys::new(keys));
    let ruling = world.fork(&source, Position(0), ("desk", Some(&word("plan", "p"))), &[]);
    assert_eq!(refused(ruling), RefusalRule::NotSigned);
    assert_eq!(world.core.state().trees.len(), trees);
    assert!(world.deliveries.is_empty());
}

/// The call of the next delivery to `who`, and the position up to which the delivery shows the
/// thread.
fn prompt_of(world: &World, who: &str) -> (CallId, Position) {
    let next = world.deliveries.iter().find(|delivery| delivery.listener.as_str() == who).unwrap();
    (next.call, next.position)
}

/// Issue 18, 1.5: a fork at a turn opens the agent's call again with everything that the agent has
/// handled, and the turn runs anew. A restart of the pump does not change this.
#[test]
fn a_fork_at_a_turn_goes_on_from_there() {
    for restarts in [false, true] {
        let mut world = world();
        let (source, _) = world.open("desk", &word("plan", "p"));
        world.play("thinker", &[look("q")]);
        world.play("finder", &[word("found", "f")]);
        let (turn, history) = prompt_of(&world, "thinker");
        let was = world.delivery("thinker");
        world.answer(&was, &[word("answer", "a")]);
        let before = world.core.state().tree(&source).unwrap().clone();

        let ruling = world.fork_at((&source, history, Some(turn)), ("other", None), &[]);
        let (fork, call) = forked(ruling);
        if restarts {
            world.restart();
            world.pass(Duration::from_millis(10));
        }
        let again = world.delivery("thinker");
        assert_ne!(again.call, turn, "the call has an id of its own");
        assert_eq!((again.thread.clone(), again.call), (fork.clone(), call.unwrap()));
        assert_eq!((again.messages.len(), again.fresh), (was.messages.len(), was.fresh));
        for (own, of_source) in again.messages.iter().zip(&was.messages) {
            assert_eq!(own.payload, of_source.payload);
            assert_eq!(own.call, Some(again.call));
        }
        assert!(world.recalls.is_empty() && world.deliveries.is_empty(), "nothing is done again");

        world.answer(&again, &[look("new")]);
        world.recall(None);
        assert!(world.deliveries.is_empty(), "it is held");
        world.cancel(&fork);
        assert!(world.result(call.unwrap()).starts_with("cancelled"));
        assert_eq!(world.core.state().tree(&source).unwrap(), &before, "the source is untouched");
        world.check_replay();
    }
}

/// Issue 18, 1.5 and 1.6: a call that was open at the fork point gets its recorded result, or is
/// held if no result is recorded.
#[test]
fn an_open_call_to_a_listener_gets_its_recorded_result() {
    for is_recorded in [true, false] {
        let mut world = world();
        let (source, _) = world.open("desk", &look("z"));
        world.say("desk", &source, &word("plan", "p"));
        let finder = world.delivery("finder");
        let (turn, history) = prompt_of(&world, "thinker");
        world.play("thinker", &[word("answer", "a")]);
        world.answer(&finder, &[word("found", "f")]);

        let ruling = world.fork_at((&source, history, Some(turn)), ("desk", None), &[]);
        let ForkRuling::Forked { calls, .. } = ruling else { panic!("not forked") };
        let [asked, planned] = calls[..] else { panic!("{calls:?}") };
        world.play("thinker", &[word("answer", "b")]);
        assert_eq!(world.result(planned), "completed: answer(b)");
        let result = word("found", "f");
        let order = world.recall(is_recorded.then_some((MessageKind::Reply, &result)));
        assert_eq!(order.call, asked);
        assert!(world.deliveries.is_empty(), "no listener is given it");
        let ended = if is_recorded { "completed: found(f)" } else { "none" };
        assert_eq!(world.result(asked), ended);
        assert_eq!(world.core.state().call(asked).is_some(), !is_recorded, "it is held");
        world.check_replay();
    }
}

/// Issue 18, 1.5: if a spawned thread was running at the fork point, it ends in the fork, and its
/// opener gets the reason. If the fork begins at a turn of the spawned thread, the thread goes on
/// instead.
#[test]
fn a_spawned_thread_that_still_ran_ends_in_the_fork() {
    let mut world = world();
    let (source, _) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("plan", "side"));
    world.play("thinker", &[core("spawn-thread", "suggested_sub_id=\"side\"", &inner), look("q")]);
    let side = world.delivery("thinker");
    world.play("finder", &[word("found", "f")]);
    let (turn, history) = prompt_of(&world, "thinker");
    let root = world.delivery("thinker");
    assert_eq!(root.thread, source);

    let ruling = world.fork_at((&source, history, Some(turn)), ("desk", None), &[]);
    let (fork, _) = forked(ruling);
    let again = world.delivery("thinker");
    assert_eq!(again.thread, fork);
    let woken = fresh(&again);
    assert!(woken.iter().any(|text| text.contains("found(f)")), "{woken:?}");
    assert!(woken.contains(&"thread-result failed".to_owned()), "{woken:?}");
    let ended = again.messages.iter().any(|own| own.payload.as_str().contains("code=\"forked\""));
    assert!(ended, "{:?}", again.messages);
    assert!(world.deliveries.is_empty(), "nobody goes on with it");

    // An edit of the turn ends it at once: the agent goes on after the result of its new call.
    let place = (&source, history, turn);
    let (fork, _) = forked(world.edit_turn(place, "desk", ("thinker", &look("new"))));
    assert!(world.deliveries.is_empty(), "the new call is open");
    world.recall(Some((MessageKind::Reply, &word("found", "n"))));
    let again = world.delivery("thinker");
    assert_eq!((again.thread.clone(), fresh(&again)), (fork, vec!["found(n)".to_owned()]));
    let ended = again.messages.iter().any(|own| own.payload.as_str().contains("code=\"forked\""));
    assert!(ended, "{:?}", again.messages);

    let place = (&source, side.position, Some(side.call));
    let (fork, _) = forked(world.fork_at(place, ("desk", None), &[]));
    world.recall(None);
    let again = world.delivery("thinker");
    assert_eq!(again.thread, fork.child("side"));
    world.answer(&again, &[word("answer", "s")]);
    assert!(world.transcript(&fork).contains("thread-result"));
    world.check_replay();
}

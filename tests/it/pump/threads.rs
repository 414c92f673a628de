//! Subthreads: spawns, sends, and results.

use expect_test::expect;
use organism::contract::Contract;
use organism::envelope::AttemptFailure;
use organism::ids::ThreadId;
use organism::pump::core::Target;
use organism::thread::Fact;

use super::world::{NS, World, agent, client, core, fresh, listener, word};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker"]),
        client("shop", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

fn world() -> World {
    World::new(contracts())
}

fn spawn(label: &str, inner: &str) -> String {
    let label = match label {
        "" => String::new(),
        label => format!("suggested_sub_id=\"{label}\""),
    };
    let inner = match inner {
        "" => String::new(),
        inner => format!("<initial-payload>{inner}</initial-payload>"),
    };
    core("spawn-thread", &label, &inner)
}

fn send(thread: &str, inner: &str) -> String {
    core("send-to-thread", &format!("thread_id=\"{thread}\""), inner)
}

fn threads(world: &World) -> Vec<String> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let opened = facts.filter_map(|fact| match fact {
        Fact::ThreadOpened { thread, .. } if !thread.is_root() => Some(thread.label().to_owned()),
        _ => None,
    });
    opened.collect()
}

/// O4: a spawned thread has its own history, and its spawner gets the result as a `thread-result`.
#[test]
fn a_spawned_thread_returns_its_result_to_the_spawner() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("research", &word("ask", "w")), core("wait", "", "")]);
    let child = thread.child("research");
    let writer = world.play("writer", &[word("report", "r")]);
    assert_eq!(writer.thread, child);
    let woken = world.play("thinker", &[word("answer", "a")]);
    expect![[r#"
        ["thread-spawned sess-htzzwjll.research", "waiting all", "thread-result completed"]
    "#]]
    .assert_eq(&format!("{:?}\n", fresh(&woken)));
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core spawn-thread [handled]
        3 system core>thinker thread-spawned sess-htzzwjll.research [handled]
        4 call thinker>core wait [handled]
        5 system core>thinker waiting all [handled]
        6 system core>thinker thread-result completed [handled]
        7 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    expect![[r#"
        1 call thinker>writer ask(w) [handled]
        2 reply writer>thinker report(r) [recorded]
    "#]]
    .assert_eq(&world.transcript(&child));
    let payloads = woken.messages.iter().map(|message| message.payload.as_str());
    let spawned = payloads.clone().find(|text| text.contains("thread-spawned")).unwrap();
    let expected = format!(
        "<thread-spawned xmlns=\"https://xml-pipeline.org/ns/core/v1\" assigned_id=\"{child}\" \
         parent_id=\"{thread}\" message=\"Thread spawned successfully.\"/>"
    );
    assert_eq!(spawned, expected);
}

#[test]
fn a_wait_is_answered_with_the_number_of_threads_and_not_of_their_calls() {
    let mut world = World::new(vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "seeker", "writer"]),
        agent("writer", &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &[]),
        listener("seeker", &["look"], &["found"], &[]),
    ]);
    world.open("desk", &word("plan", "p"));
    let threads = [spawn("group", &word("look", "q")), spawn("writer", &word("ask", "w"))];
    world.play("thinker", &[&threads[..], &[core("wait", "", "")]].concat());
    assert_eq!(world.deliveries.len(), 3, "two calls in the thread of the group");
    let payloads = world.records.iter().flat_map(|record| record.payloads());
    let waiting: Vec<_> = payloads.filter(|text| text.as_str().contains("<waiting")).collect();
    assert!(waiting[0].as_str().contains(" threads=\"2\""), "{waiting:?}");
}

#[test]
fn a_thread_without_initial_payload_is_open_and_idle() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("idle", "")]);
    let woken = world.play("thinker", &[send(&format!("{thread}.idle"), &word("look", "q"))]);
    assert_eq!(fresh(&woken), [format!("thread-spawned {thread}.idle")]);
    let finder = world.delivery_for("finder");
    assert_eq!(finder.thread, thread.child("idle"));
    expect![[r#"
        1 call thinker>finder look(q) [in flight]
    "#]]
    .assert_eq(&world.transcript(&thread.child("idle")));
}

#[test]
fn a_taken_label_is_numbered_and_no_label_gives_a_short_one() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let long = "x".repeat(64);
    let spawns =
        [spawn("a", ""), spawn("a", ""), spawn("a", ""), spawn(&long, ""), spawn(&long, "")];
    world.play("thinker", &spawns);
    world.play("thinker", &[spawn("", ""), spawn("a-1", "")]);
    let labels = threads(&world);
    assert_eq!(labels[..3], ["a", "a-1", "a-2"]);
    assert_eq!(labels[3..5], [long.clone(), format!("{}-1", "x".repeat(62))]);
    assert_eq!(labels[5].len(), 6, "{}", labels[5]);
    assert_eq!(labels[6], "a-1-1");
}

#[test]
fn a_bad_label_is_refused_visibly_and_opens_nothing() {
    for label in ["a b", "a.b", "", "ä", "a/b", &"x".repeat(65)] {
        let mut world = world();
        world.open("desk", &word("plan", "p"));
        let attribute = format!("suggested_sub_id=\"{label}\"");
        world.play("thinker", &[core("spawn-thread", &attribute, "")]);
        assert_eq!(fresh(&world.delivery("thinker")), ["huh bad-label"], "{label}");
        assert!(threads(&world).is_empty(), "{label}");
        assert_eq!(world.refusals(), ["thinker bad-label"]);
    }
}

/// The initial payload of a spawned thread opens a call even if the spawner is also the recipient.
#[test]
fn an_agent_may_spawn_itself() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("plan", "smaller")), core("wait", "", "")]);
    let inner = world.play("thinker", &[word("answer", "part")]);
    assert_eq!(
        (inner.thread.clone(), fresh(&inner)),
        (thread.child("sub"), vec!["plan(smaller)".to_owned()])
    );
    let outer = world.delivery("thinker");
    assert_eq!(outer.thread, thread);
    assert!(fresh(&outer).contains(&"thread-result completed".to_owned()));
}

#[test]
fn an_initial_payload_that_the_gate_refuses_creates_no_thread() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let invalid = format!("<look xmlns=\"{NS}\"/>");
    let bad =
        [spawn("a", &invalid), spawn("b", &word("vote", "x")), spawn("c", &word("answer", "x"))];
    world.play("thinker", &bad);
    let woken = world.delivery("thinker");
    assert_eq!(
        fresh(&woken),
        ["huh schema-invalid", "huh not-in-vocabulary", "huh schema-invalid"]
    );
    assert!(threads(&world).is_empty());
}

/// O4: a child thread is not beneath the call of its spawner, so it runs on after that call has
/// closed. The result of the child thread is then late.
#[test]
fn children_run_on_after_their_spawner_has_closed_and_their_result_is_late() {
    let mut world = world();
    let (thread, first) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("ask", "w"))]);
    let writer = world.delivery_for("writer");
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(first), "completed: answer(a)");
    assert!(world.withdrawn.is_empty());
    world.answer(&writer, &[word("report", "r")]);
    assert!(world.deliveries.is_empty());
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>core spawn-thread [handled]
        3 system core>thinker thread-spawned sess-htzzwjll.sub [handled]
        4 reply thinker>desk answer(a) [recorded]
        5 system core>thinker thread-result completed [late]
    "#]]
    .assert_eq(&world.transcript(&thread));
    let second = world.say("desk", &thread, &word("plan", "and now"));
    let woken = world.play("thinker", &[word("answer", "b")]);
    assert_eq!(fresh(&woken), ["plan(and now)"]);
    assert_eq!(world.result(second), "completed: answer(b)");
}

#[test]
fn a_thread_result_says_how_the_work_ended_and_carries_its_payloads_byte_for_byte() {
    // With prefixes, white space, references and CDATA, as a model may write them.
    let report = format!(
        "<n:report xmlns:n=\"{NS}\" >\n  <n:text>&lt;b/&gt; &#65; <![CDATA[c]]></n:text></n:report>"
    );
    let error = |code: &str| {
        let core = organism::system::NAMESPACE;
        format!("<system-error xmlns=\"{core}\" code=\"{code}\"")
    };
    let ends = [
        ("completed", report.clone()),
        ("failed", error("listener-failed")),
        ("cancelled", error("cancelled")),
    ];
    for (status, inside) in ends {
        let mut world = world();
        let (thread, _) = world.open("desk", &word("plan", "p"));
        world.play("thinker", &[spawn("sub", &word("ask", "w")), core("wait", "", "")]);
        let writer = world.delivery("writer");
        match status {
            "completed" => world.answer(&writer, std::slice::from_ref(&report)),
            "failed" => world.fail(&writer, AttemptFailure::Refused { detail: "no".to_owned() }),
            _ => world.cancel(&writer.thread),
        }
        let woken = world.delivery_for("thinker");
        let result = woken.messages.last().unwrap().payload.as_str();
        let head = format!(
            "<c:thread-result xmlns:c=\"https://xml-pipeline.org/ns/core/v1\" \
             thread_id=\"{thread}.sub\" status=\"{status}\">{inside}"
        );
        assert!(result.starts_with(&head), "{result}");
    }
}

/// If the result of a thread does not fit into one message, the result stays in the thread, and the
/// `thread-result` states that.
#[test]
fn a_result_too_large_for_a_thread_result_stays_in_its_thread_with_a_statement() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("ask", "w")), core("wait", "", "")]);
    let most = organism::limits::PAYLOAD_BYTES_MAX - organism::limits::ENVELOPE_BYTES_MAX;
    let child = world.play("writer", &[word("report", &"x".repeat(most))]).thread;
    let woken = world.delivery("thinker");
    let result = woken.messages.last().unwrap().payload.as_str();
    let head: String = result.chars().take(400).collect();
    assert!(head.contains("status=\"completed\"><system-error"), "{head}");
    assert!(head.contains("code=\"too-large\""), "{head}");
    assert_eq!(world.transcript(&child).matches("reply writer>thinker report").count(), 1);
}

/// A result that would be too deeply nested within a `thread-result` stays in its thread, because
/// the gate checks the payloads of the core as well.
#[test]
fn a_result_too_deep_for_a_thread_result_stays_in_its_thread_with_a_statement() {
    let mut all = contracts();
    all[3].replies = vec![organism::ids::PayloadName::new("urn:test:loose", "deep")];
    let mut world = World::new(all);
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("ask", "w")), core("wait", "", "")]);
    let levels = organism::limits::XML_DEPTH_MAX - 1;
    let inner = format!("{}{}", "<x>".repeat(levels), "</x>".repeat(levels));
    let deepest = format!("<l:deep xmlns:l=\"urn:test:loose\">{inner}</l:deep>");
    let child = world.play("writer", &[deepest]).thread;
    let woken = world.delivery("thinker");
    let result = woken.messages.last().unwrap().payload.as_str();
    assert!(result.contains("status=\"completed\"><system-error"), "{result}");
    assert!(result.contains("code=\"too-large\""), "{result}");
    assert_eq!(world.transcript(&child).matches("reply writer>thinker").count(), 1);
}

/// A `thread-result` sets no default namespace, because a default namespace would change the
/// meaning of unqualified names in the payload.
#[test]
fn a_payload_with_unqualified_locals_stays_valid_inside_a_thread_result() {
    let report = "<l:loose xmlns:l=\"urn:test:loose\"><text>x</text></l:loose>";
    let mut all = contracts();
    all[3].replies = vec![organism::ids::PayloadName::new("urn:test:loose", "loose")];
    let mut world = World::new(all);
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("ask", "w")), core("wait", "", "")]);
    world.play("writer", &[report.to_owned()]);
    let woken = world.delivery("thinker");
    let result = woken.messages.last().unwrap().payload.as_str();
    assert!(result.contains(&format!(">{report}</c:thread-result>")), "{result}");
    assert!(!result.contains(" xmlns=\""), "no default namespace in {result}");
}

/// O5: for each foreign, unknown or malformed thread id, the agent gets the same answer, and one
/// refusal is recorded.
#[test]
fn sending_into_any_thread_but_a_descendant_answers_with_the_same_bytes() {
    let mut world = world();
    let (foreign, _) = world.open("shop", &word("plan", "other"));
    world.play("thinker", &[spawn("sub", "")]);
    world.play("thinker", &[word("answer", "x")]);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let foreign_child = format!("{foreign}.sub");
    let ids = [
        foreign.as_str(),
        &foreign_child,
        thread.as_str(),
        "sess-organism",
        "sess-nothere1",
        &format!("{thread}.nope"),
        "",
        "..",
        "sess-",
        "../../etc",
        "SESS-ABCDEFGH",
    ]
    .map(str::to_owned);
    for (count, id) in ids.iter().enumerate() {
        world.play("thinker", &[send(id, &word("ask", "w"))]);
        let woken = world.deliveries.front().unwrap();
        let answer = woken.messages.last().unwrap().payload.as_str().to_owned();
        let expected = format!(
            "<system-thread-error xmlns=\"https://xml-pipeline.org/ns/core/v1\" unknown_id=\"{id}\" \
             code=\"unknown_thread\" \
             message=\"Unknown thread; emit &lt;spawn-thread/&gt; to create.\"/>"
        );
        assert_eq!(answer.replace("&gt;", ">"), expected.replace("&gt;", ">"));
        assert_eq!(world.refusals().len(), count + 1, "one refusal for {id}");
    }
    assert!(world.refusals().iter().all(|refusal| refusal == "thinker unknown-thread"));
    assert_eq!(world.deliveries.len(), 1, "nothing was routed");
}

#[test]
pub fn a_payload_sent_into_a_descendant_opens_a_call_there() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", &word("plan", "deeper")), core("wait", "", "")]);
    world.play("thinker", &[spawn("deep", "")]);
    world.play("thinker", &[word("answer", "child done")]);
    let deep = format!("{thread}.sub.deep");
    let woken = world.play("thinker", &[send(&deep, &word("ask", "w")), core("wait", "", "")]);
    assert_eq!(woken.thread, thread);
    let writer = world.play("writer", &[word("report", "r")]);
    assert_eq!(writer.thread.as_str(), deep);
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["ack", "waiting all", "thread-result completed"]);
    expect![[r#"
        1 call thinker>writer ask(w) [handled]
        2 reply writer>thinker report(r) [recorded]
    "#]]
    .assert_eq(&world.transcript(&ThreadId::parse(&deep).unwrap()));
}

/// Law 5: a client cannot submit into a child thread of its own thread.
#[test]
fn a_client_reaches_no_child_thread() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("sub", "")]);
    let target = Target::Thread { id: format!("{thread}.sub") };
    let receipt = world.submit_to("desk", target, None, &word("plan", "x"));
    assert!(format!("{receipt:?}").starts_with("NoThread"), "{receipt:?}");
}

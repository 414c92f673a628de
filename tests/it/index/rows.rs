//! The rows of the index, compared with the records from which they are made.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use organism::audit;
use organism::clock::Time;
use organism::envelope::{AttemptFailure, Disposition, MessageKind, Money, Spending};
use organism::ids::{Attempt, CallId, MessageId, ThreadId};
use organism::index::WorkKind;
use organism::thread::{Closing, Decision, DecisionOrigin, Fact, Hold, Input, Record};

use super::{contents, rows, with_index};
use crate::fixtures::compared_journals;
use crate::journal::script::{CORE, NAMESPACE, Script, name, research, thread};
use crate::journal::{Place, streamed};

const ROOT: &str = "sess-abcdefgh";

/// The rows of `message`, derived from a walk over the journal.
fn walked_messages(place: &Place) -> Vec<String> {
    let mut messages = Vec::new();
    let mut dispositions: HashMap<MessageId, Disposition> = HashMap::new();
    for sealed in place.records() {
        for fact in &sealed.record.facts {
            match fact {
                Fact::Accepted { message, .. } => {
                    messages.push((sealed.record.position, message.clone()));
                }
                Fact::Disposed { message, how } => drop(dispositions.insert(*message, *how)),
                _ => {}
            }
        }
    }

    let optional = |id: Option<MessageId>| id.map_or("-".to_owned(), |id| id.to_string());
    let line = |(position, message): (_, std::sync::Arc<organism::envelope::Message>)| {
        let disposition = dispositions.get(&message.id).map_or("-", |how| how.as_str());
        format!(
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {position} | {} | {} | {disposition}",
            message.id,
            message.thread,
            message.seq,
            message.kind.as_str(),
            message.from,
            message.to,
            message.name,
            optional(message.cause),
            optional(message.call.map(|call| call.0)),
            message.time.0,
            message.payload.len(),
        )
    };
    let mut lines: Vec<String> = messages.into_iter().map(line).collect();
    lines.sort();
    lines
}

fn indexed_messages(place: &Place) -> Vec<String> {
    let sql = "SELECT id, thread, seq, kind, sender, recipient, payload_name, cause, call, \
               position, time_us, bytes, disposition FROM message";
    let mut lines = rows(&place.data(), sql);
    lines.sort();
    lines
}

/// The rows of `tree`, derived from a walk over the journal.
fn walked_trees(place: &Place) -> Vec<String> {
    let line = |tree: audit::TreeSummary| {
        format!(
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            tree.thread,
            tree.status.as_str(),
            tree.opened.0,
            tree.updated.0,
            tree.subthreads,
            tree.records,
            tree.messages.accepted,
            tree.in_flight,
            tree.messages.refused,
            tree.requested_by.map_or("-".to_owned(), |name| name.to_string()),
        )
    };
    let mut lines: Vec<String> =
        audit::summaries(&place.reader(), None).unwrap().into_iter().map(line).collect();
    lines.sort();
    lines
}

fn indexed_trees(place: &Place) -> Vec<String> {
    let sql = "SELECT thread, status, opened_us, updated_us, subthreads, records, messages, \
               in_flight, refusals, requested_by FROM tree";
    let mut lines = rows(&place.data(), sql);
    lines.sort();
    lines
}

/// Issue 17, 3.2: the messages and trees of the index are those of a walk over the journal. The
/// test covers journals of every generation, with every kind of fact that a pump records today.
#[test]
fn messages_and_trees_are_those_that_a_walk_over_the_journal_gives() {
    let mut messages = 0;
    for (journal, place) in compared_journals() {
        let indexed = indexed_messages(&place);
        assert_eq!(indexed, walked_messages(&place), "{journal}");
        assert_eq!(indexed_trees(&place), walked_trees(&place), "{journal}");
        messages += indexed.len();
    }
    assert!(messages > 300, "{messages}");
}

/// Issue 17, 3.2: for each refusal, call, delivery and the like in the records, the index has one
/// row.
#[test]
fn the_other_rows_are_as_many_as_the_facts_that_they_come_from() {
    for (journal, place) in compared_journals() {
        let mut facts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut count = |view| *facts.entry(view).or_default() += 1;
        for sealed in place.records() {
            match &sealed.record.input {
                Input::Decided { .. }
                | Input::Cancel { .. }
                | Input::Pause(_)
                | Input::Operator(_) => count("action"),
                Input::Busy { .. } => count("busy"),
                Input::Alert(_) => count("alert"),
                _ => {}
            }
            for fact in &sealed.record.facts {
                match fact {
                    Fact::Refused { .. } => count("refusal"),
                    Fact::Booted { .. } => count("config"),
                    Fact::Accepted { opening: Some(_), .. } => count("call"),
                    Fact::HandedOver { .. } => count("delivery"),
                    Fact::Held { .. } => count("hold"),
                    Fact::Paused { .. } => count("pause"),
                    Fact::ThreadOpened { .. } => count("thread"),
                    _ => {}
                }
            }
        }
        let views =
            ["action", "alert", "busy", "refusal", "config", "call", "delivery", "hold", "pause"];
        // One query, because each one opens the index.
        let counts = views.map(|view| format!("SELECT count(*) FROM \"{view}\""));
        let indexed = rows(&place.data(), &counts.join(" UNION ALL "));
        assert_eq!(indexed.len(), views.len());
        for (view, indexed) in views.into_iter().zip(indexed) {
            let expected = facts.get(view).copied().unwrap_or_default().to_string();
            assert_eq!(indexed, expected, "{view} in {journal}");
        }
    }
}

/// Issue 17, 3.1: the index has the same rows whether it grows record by record or is made at once.
#[test]
fn an_index_that_grows_with_the_journal_is_the_one_that_is_made_at_once() {
    let mut records = research(&mut Script::default(), ROOT);
    let place = Place::new();
    let mut journal = place.open().unwrap();
    for record in &mut records {
        organism::journal::Journal::append(&mut journal, std::slice::from_mut(record)).unwrap();
        assert_eq!(indexed_messages(&place), walked_messages(&place));
        assert_eq!(indexed_trees(&place), walked_trees(&place));
    }

    let grown = contents(&place.data());
    std::fs::remove_file(place.data().join(organism::index::INDEX_DATABASE)).unwrap();
    assert_eq!(contents(&place.data()), grown);
    assert_eq!(grown["message"].len(), 10);
}

/// Issue 17, 3.1: a projection and an embedded journal with the same records have the same index.
#[test]
fn a_projection_of_a_stream_has_the_same_index() {
    let embedded = Place::with(&mut research(&mut Script::default(), ROOT));
    let streamed = streamed::Place::with(&mut research(&mut Script::default(), ROOT));
    let without_journal = |data: &std::path::Path| {
        let mut all = contents(data);
        all.remove("about");
        all
    };
    let rows = without_journal(&streamed.data());
    assert_eq!(rows, without_journal(&embedded.data()));
    assert_eq!(rows["message"].len(), 10);
}

/// Writes the records of a call to `code-search`. The call waits for an approval, is handed over
/// twice, and fails. The records state times in whole seconds after the call.
pub fn held_call(script: &mut Script, root: &str) -> (Vec<Record>, MessageId) {
    let tree = thread(root);
    let (asked, first) = script.question(&tree, "Is INV-777 paid?");
    let call = CallId(asked);
    let start = first.time;
    let mut records = vec![first];
    let mut add = |seconds: u64, input: Input, facts: Vec<Fact>| {
        let mut record = script.step(&tree, input).end();
        record.time = start.plus(std::time::Duration::from_secs(seconds));
        record.facts = facts;
        records.push(record);
    };

    let attempt = |n| Attempt { epoch: 1, n };
    let until = Some(Time(start.0 + 90_000_000));
    add(0, Input::Retry { call }, vec![Fact::Held { call, hold: Hold::Approval, until }]);
    let origin = DecisionOrigin { note: "seen".to_owned(), ..DecisionOrigin::default() };
    let decided = Input::Decided {
        message: asked,
        by: name("maria"),
        decision: Decision::Approve { hash: "abcd".to_owned(), preview: None },
        origin: Some(origin),
    };
    add(60, decided, vec![Fact::Released { call, lapsed: false }]);
    add(62, Input::Retry { call }, vec![Fact::HandedOver { call, attempt: attempt(1) }]);
    let failure = AttemptFailure::Crashed { detail: "signal 9".to_owned() };
    let failed = Fact::AttemptFailed { call, attempt: attempt(1), failure };
    add(70, Input::Retry { call }, vec![failed]);
    add(71, Input::Retry { call }, vec![Fact::HandedOver { call, attempt: attempt(2) }]);
    let deadline = Input::Deadline { call, attempt: attempt(2) };
    let closed = Fact::CallClosed { call, how: Closing::Failed };
    add(75, deadline, vec![closed, Fact::Disposed { message: asked, how: Disposition::Expired }]);
    (records, asked)
}

/// Issue 17, 3.2: a delivery states its times in the queue and at work separately. A wait for a
/// person states the decision of the person, and an error states its kind.
#[test]
fn deliveries_waits_decisions_and_errors_have_their_times() {
    let (mut records, _) = held_call(&mut Script::default(), ROOT);
    let place = Place::with(&mut records);
    let data = place.data();

    assert_eq!(
        rows(&data, "SELECT attempt, queue_us, work_us, outcome FROM delivery ORDER BY attempt"),
        ["1.1 | 2000000 | 8000000 | failed", "1.2 | 1000000 | 4000000 | timed-out"]
    );
    assert_eq!(
        rows(&data, "SELECT kind, waited_us, until_us - since_us, outcome FROM hold"),
        ["approval | 60000000 | 90000000 | released"]
    );
    assert_eq!(
        rows(&data, "SELECT action, person, thread, payload_digest, reason, accepted FROM action"),
        ["approve | maria | sess-abcdefgh | abcd | seen | 1"]
    );
    assert_eq!(
        rows(&data, "SELECT kind, thread, listener, detail FROM error"),
        [
            "crashed | sess-abcdefgh | researcher | signal 9",
            "failed | sess-abcdefgh | researcher | the call ended with this fault",
        ]
    );
    assert_eq!(
        rows(&data, "SELECT status, errors, waiting, first_words, payload, listener FROM tree"),
        ["failed | 2 | 0 | Is INV-777 paid? | question | researcher"]
    );
    assert_eq!(
        rows(&data, "SELECT attempts, outcome, duration_us FROM call"),
        ["2 | failed | 75000000"]
    );
}

/// A call with one failed attempt has no retry, and a call with two failed attempts has one. The
/// failure of the last attempt does not count, because no attempt follows it.
#[test]
fn a_retry_is_an_attempt_that_follows_a_failed_one() {
    let (records, _) = held_call(&mut Script::default(), ROOT);
    for (length, retries) in [(records.len() - 2, 0), (records.len(), 1)] {
        let place = Place::with(&mut records[..length].to_vec());
        let root = thread(ROOT);
        let calls = with_index(&place.data(), &mut |index| index.call_work(&root, 0, None));
        let found: Vec<_> = calls.unwrap().iter().map(|call| call.retries).collect();
        assert_eq!(found, [retries], "{length} records");
    }
}

/// A listener may open more calls at once than a page of their thread has messages. The work on a
/// call is then on a later page than the call. Each attempt is on exactly one page.
#[test]
fn each_attempt_is_on_one_page_whichever_page_opened_its_call() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let mut opening = script.outcome(&tree, "researcher", asked);
    let calls = [(); 6]
        .map(|()| opening.say(MessageKind::Call, "researcher", "finder", "question", "<q/>", None));
    let mut records = vec![first, opening.end()];
    for call in calls {
        let handed_over =
            Fact::HandedOver { call: CallId(call), attempt: Attempt { epoch: 1, n: 1 } };
        let mut record = script.step(&tree, Input::Retry { call: CallId(call) }).end();
        record.facts.push(handed_over);
        records.push(record);

        let mut step = script.outcome(&tree, "finder", call);
        step.say(MessageKind::Reply, "finder", "researcher", "answer", "<a/>", Some(call));
        step.close(call, Closing::Completed);
        let mut record = step.end();
        // The reply is delivered in the call that has opened this one.
        for fact in &mut record.facts {
            if let Fact::Accepted { message, .. } = fact {
                Arc::make_mut(message).call = Some(CallId(asked));
            }
        }
        records.push(record);
    }
    let place = Place::with(&mut records);

    let pages = [(1, Some(5)), (5, Some(9)), (9, Some(13)), (13, None)];
    let mut attempts = BTreeMap::<MessageId, usize>::new();
    for (from, end) in pages {
        let work = with_index(&place.data(), &mut |index| index.call_work(&tree, from, end));
        for call in work.unwrap() {
            let spans = call.spans.iter().filter(|span| span.kind == WorkKind::Work).count();
            *attempts.entry(call.call).or_default() += spans;
        }
    }
    attempts.retain(|call, _| *call != asked);
    assert_eq!(attempts, calls.map(|call| (call, 1)).into());
}

/// If a person gave no reason for a refusal or a cancellation, the note of the command is the
/// reason.
#[test]
fn the_note_is_the_reason_of_an_action_without_one() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "May I?");
    let mut records = vec![first];
    for (reason, note) in [("", "not today"), ("too late", "not today"), ("", "")] {
        let reason = reason.to_owned();
        let origin = Some(DecisionOrigin { note: note.to_owned(), ..DecisionOrigin::default() });
        let refused = Input::Decided {
            message: asked,
            by: name("maria"),
            decision: Decision::Refuse { reason: reason.clone() },
            origin: origin.clone(),
        };
        records.push(script.step(&tree, refused).end());
        let cancelled = Input::Cancel { thread: tree.clone(), by: name("maria"), reason, origin };
        records.push(script.step(&tree, cancelled).end());
    }
    let place = Place::with(&mut records);

    assert_eq!(
        rows(&place.data(), "SELECT action, reason FROM action ORDER BY position"),
        [
            "refuse | not today",
            "cancel | not today",
            "refuse | too late",
            "cancel | too late",
            "refuse | -",
            "cancel | -",
        ]
    );
}

/// A call that a person refused is a denial and no failure. A call whose approval expired ends with
/// the same fault, and is a failure.
#[test]
fn an_expired_approval_is_a_failure_and_no_denial() {
    let mut script = Script::default();
    let mut records = Vec::new();
    for (root, is_refused) in [("sess-expired0", false), ("sess-refused0", true)] {
        let tree = thread(root);
        let (asked, first) = script.question(&tree, "May I?");
        let refused = Input::Decided {
            message: asked,
            by: name("maria"),
            decision: Decision::Refuse { reason: "no".to_owned() },
            origin: None,
        };
        let input = if is_refused { refused } else { Input::Retry { call: CallId(asked) } };
        let mut step = script.step(&tree, input);
        step.close(asked, Closing::Failed);
        let fault = format!("<system-error xmlns=\"{CORE}\" code=\"denied\"/>");
        step.say(MessageKind::System, "core", "operator", "system-error", &fault, Some(asked));
        let mut last = step.end();
        for fact in &mut last.facts {
            if let Fact::Accepted { message, .. } = fact {
                std::sync::Arc::make_mut(message).call = None;
            }
        }
        records.extend([first, last]);
    }
    let place = Place::with(&mut records);

    let data = place.data();
    let kinds = rows(&data, "SELECT kind, thread FROM error ORDER BY position");
    assert_eq!(kinds, ["denied | sess-expired0", "denied | sess-refused0"]);
    let failures = with_index(&data, &mut |index| index.error_counts()).unwrap();
    let denials = with_index(&data, &mut |index| index.denial_counts()).unwrap();
    assert_eq!(failures.iter().map(|count| count.errors).collect::<Vec<_>>(), [1]);
    assert_eq!(denials.iter().map(|count| count.errors).collect::<Vec<_>>(), [1]);
    let newest = with_index(&data, &mut |index| index.newest_errors(9)).unwrap();
    let threads: Vec<_> = newest.iter().map(|error| error.thread.as_deref()).collect();
    assert_eq!(threads, [Some("sess-expired0")]);
}

/// A question, and the turn of the agent that answers the question. The turn has a price.
pub fn priced_turn(script: &mut Script, root: &str) -> [Record; 2] {
    let tree = thread(root);
    let (asked, first) = script.question(&tree, "Who?");
    [first, turn_with_cost(script, &tree, asked, "EUR")]
}

/// A tree with turns in two currencies, and a tree whose turn has one of these currencies.
pub fn two_currencies() -> Vec<Record> {
    let mut script = Script::default();
    let mixed = thread(ROOT);
    let (asked, first) = script.question(&mixed, "Who?");
    let mut records = vec![first];
    for currency in ["USD", "EUR", "USD"] {
        records.push(turn_with_cost(&mut script, &mixed, asked, currency));
    }
    records.extend(priced_turn(&mut script, "sess-priced00"));
    records
}

/// A turn that answers `asked`, with a cost of 0.0042.
fn turn_with_cost(
    script: &mut Script,
    tree: &ThreadId,
    asked: MessageId,
    currency: &str,
) -> Record {
    let note = format!(
        "<model-turn xmlns=\"{CORE}\" agent=\"researcher\" call=\"{asked}\" turn=\"3\" \
         iteration=\"1\" position=\"1\" transport=\"xml\" provider=\"anthropic\" \
         model=\"haiku\" renderer=\"1\" stop=\"end\" tokens_in=\"120\" tokens_out=\"7\" \
         latency_ms=\"1500\" prompt=\"{}\" cost=\"0.0042\" currency=\"{currency}\" \
         answered_by=\"haiku-4\"><environment/><raw>&lt;tried route=\"x\"/></raw>\
         <tried route=\"a\" reason=\"timeout\"/><tried route=\"b\" reason=\"busy\"/></model-turn>",
        "ab".repeat(32)
    );
    let mut step = script.outcome(tree, "researcher", asked);
    step.say(MessageKind::Note, "researcher", "researcher", "model-turn", &note, Some(asked));
    let mut turn = step.end();
    turn.facts.push(Fact::Used {
        call: CallId(asked),
        agent: Some(name("researcher")),
        tokens_in: 120,
        tokens_out: 7,
        money: organism::envelope::Money(4_200_000),
        attempt: None,
    });
    turn
}

/// The sums of a tree include the cost of a failed model call, and equal the sums that `organism
/// thread` shows.
#[test]
fn sums_of_trees_are_those_of_their_timelines() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let call = CallId(asked);
    let attempt = Attempt { epoch: 1, n: 1 };
    let failure = AttemptFailure::Model {
        reason: "timeout".to_owned(),
        detail: "no answer".to_owned(),
        spent: Spending { tokens: 340, money: Money(7_000_000) },
        passing: false,
        tries: Vec::new(),
    };
    let mut failed = script.step(&tree, Input::Retry { call }).end();
    failed.facts = vec![Fact::AttemptFailed { call, attempt, failure }];
    let place = Place::with(&mut [first, failed]);
    let sums = "SELECT tokens_charged, cost_nano FROM tree";
    assert_eq!(rows(&place.data(), sums), ["340 | 7000000"]);

    let mut spent = 0;
    for (journal, place) in compared_journals() {
        let reader = organism::journal::sqlite::JournalReader::open(&place.data()).unwrap();
        let sums = "SELECT thread, tokens_in + tokens_out + tokens_charged, cost_nano FROM tree";
        for row in rows(&place.data(), sums) {
            let root = ThreadId::parse(row.split(' ').next().unwrap()).unwrap();
            let timeline = audit::thread_timeline(&reader, &root, None).unwrap().unwrap();
            let Spending { tokens, money } = timeline.spent.nominal();
            assert_eq!(row, format!("{root} | {tokens} | {}", money.0), "{journal}");
            spent += tokens;
        }
    }
    assert!(spent > 0);
}

/// The fault of a call between threads is the failure that ended the call, although the opener gets
/// a `thread-result` instead of this failure. If a deadline passes, only the call with this
/// deadline is `timed-out`; the calls beneath it are cancelled.
#[test]
fn a_fault_is_the_one_that_ended_the_call() {
    let mut script = Script::default();
    let tree = thread(ROOT);
    let (asked, first) = script.question(&tree, "Who?");
    let attempt = Attempt { epoch: 1, n: 1 };
    let mut step = script.outcome(&tree, "researcher", asked);
    let beneath = step.say(MessageKind::Call, "researcher", "code-search", "search", "<s/>", None);
    let mut second = step.end();
    second.facts.extend([
        Fact::HandedOver { call: CallId(beneath), attempt },
        Fact::HandedOver { call: CallId(asked), attempt },
    ]);

    let input = Input::Deadline { call: CallId(asked), attempt };
    let mut step = script.step(&tree, input);
    step.close(beneath, Closing::Cancelled).close(asked, Closing::Failed);
    let fault = format!("<system-error xmlns=\"{CORE}\" code=\"timed-out\"/>");
    let result = format!("<thread-result xmlns=\"{CORE}\" status=\"failed\"/>");
    for (name, payload) in [("system-error", &fault), ("thread-result", &result)] {
        step.say(MessageKind::System, "core", "operator", name, payload, Some(asked));
    }
    let mut third = step.end();
    for fact in &mut third.facts {
        if let Fact::Accepted { message, .. } = fact {
            std::sync::Arc::make_mut(message).call = None;
        }
    }

    let place = Place::with(&mut [first, second, third]);
    let sql = "SELECT listener, outcome, fault FROM call ORDER BY listener";
    assert_eq!(
        rows(&place.data(), sql),
        ["code-search | cancelled | -", "researcher | failed | timed-out"]
    );
    let sql = "SELECT listener, outcome FROM delivery ORDER BY listener";
    assert_eq!(rows(&place.data(), sql), ["code-search | cancelled", "researcher | timed-out"]);
}

/// Issue 17, 3.2: a turn has the model that answered, its tokens, its cost and its failovers.
#[test]
fn a_turn_has_its_model_tokens_cost_and_failovers() {
    let mut records = priced_turn(&mut Script::default(), ROOT);
    let place = Place::with(&mut records);

    let sql = "SELECT agent, turn, provider, model, answered_by, tokens_in, tokens_out, \
               cost_nano, currency, latency_us, failovers, substr(prompt_digest, 1, 6) FROM turn";
    assert_eq!(
        rows(&place.data(), sql),
        ["researcher | 3 | anthropic | haiku | haiku-4 | 120 | 7 | 4200000 | EUR | 1500000 | 2 | \
          ababab"]
    );
    let sums = "SELECT turns, tokens_in, tokens_out, cost_nano FROM thread";
    assert_eq!(rows(&place.data(), sums), ["1 | 120 | 7 | 4200000"]);
}

/// The views cut times to milliseconds, as all commands do, so that a time from a view is never
/// after the time of its row.
#[test]
fn times_of_the_views_are_cut_and_not_rounded() {
    let mut script = Script::default();
    let (_, mut first) = script.question(&thread(ROOT), "Who?");
    first.time = Time(first.time.0 + 999);
    let place = Place::with(&mut [first]);

    let opened = "SELECT opened, opened_us % 1000 FROM tree";
    assert_eq!(rows(&place.data(), opened), ["2026-11-20T10:00:00.137Z | 999"]);
}

/// A payload name is shown without its namespace in one column, and with its namespace in another.
#[test]
fn payload_names_are_shown_with_and_without_their_namespace() {
    let place = Place::with(&mut research(&mut Script::default(), ROOT));
    let sql = "SELECT DISTINCT payload, payload_name FROM message WHERE payload = 'search'";
    assert_eq!(rows(&place.data(), sql), [format!("search | {{{NAMESPACE}}}search")]);
    let depth = ThreadId::parse("sess-abcdefgh.depth").unwrap();
    let sql = format!("SELECT tree, parent, status FROM thread WHERE id = '{depth}'");
    assert_eq!(rows(&place.data(), &sql), ["sess-abcdefgh | sess-abcdefgh | completed"]);
}

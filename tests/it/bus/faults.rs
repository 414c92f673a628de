//! Failures that only processes can cause.

use std::sync::Arc;
use std::time::Duration;

use organism::bus::native_host::InlineHost;
use organism::bus::process::{Options, ProcessHost, find};
use organism::bus::{Host, Outcome, Sink};
use organism::envelope::{AttemptFailure, NAMESPACE};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, attempt, call, done, name, script};
use super::suite::fixture::{self, obedient};
use crate::organism::{PATIENCE, until};

fn hosting(options: Options) -> HostHarness {
    HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

fn running<const N: usize>(command: [&str; N]) -> Options {
    let mut options = Options::new(name("tested"), command.map(str::to_owned).into());
    options.restarts.backoff_first = Duration::from_millis(1);
    options
}

fn rude(how: &str) -> HostHarness {
    hosting(running(["python3", &script("rude.py"), how]))
}

async fn failure(ear: &mut HostHarness) -> AttemptFailure {
    match ear.next().await {
        SinkEvent::Failed(_, failure) => failure,
        other => panic!("expected a failure, heard {other:?}"),
    }
}

#[tokio::test]
async fn every_broken_answer_is_a_failure_with_its_own_kind() {
    let cases = [
        ("half", "crashed", "20 bytes into an unfinished frame"),
        ("exit", "crashed", "exited with code 9; last line on standard error: cannot go on"),
        ("signal", "crashed", "killed by signal 11"),
        ("deaf", "crashed", "closed its standard input"),
        ("not-utf8", "unreadable", "UTF-8"),
        ("not-xml", "unreadable", "text outside of any payload"),
        ("unbalanced", "unreadable", "not closed"),
        ("too-many", "unreadable", "more than 1000 payloads"),
        ("too-long", "unreadable", "a frame of more than 16777216 bytes"),
    ];
    for (how, kind, detail) in cases {
        let mut ear = rude(how);
        // The process takes its first delivery without an answer; the second delivery finds it
        // gone.
        ear.tell("anything");
        if how == "deaf" {
            let heard = ear.next().await;
            assert!(matches!(heard, SinkEvent::Beat(_)), "{how}: {heard:?}");
            ear.cancel(1);
        }
        let failure = failure(&mut ear).await.to_string();
        assert!(failure.starts_with(kind) && failure.contains(detail), "{how}: {failure}");
    }
}

/// Returns the description of the next failure, after the heartbeats that come before it.
async fn failure_after_heartbeats(ear: &mut HostHarness) -> String {
    loop {
        match ear.next().await {
            SinkEvent::Beat(_) => {}
            SinkEvent::Failed(_, failure) => return failure.to_string(),
            other => panic!("expected a failure, heard {other:?}"),
        }
    }
}

/// If a cancel makes a handler fail with an error, this error is no crash. The kit then answers
/// without payloads.
#[tokio::test]
async fn a_handler_of_a_kit_that_fails_after_its_cancel_answers_nothing() {
    type Fixture = fn(u32, Arc<dyn Sink>) -> Arc<dyn Host>;
    let hosts: [(&str, Fixture); 4] = [
        ("process", fixture::process),
        ("process_typescript", fixture::process_typescript),
        ("nats", fixture::nats),
        ("nats_typescript", fixture::nats_typescript),
    ];
    for (kind, make) in hosts {
        let mut ear = HostHarness::hosting(|sink| make(1, sink));
        for request in ["fail-after-cancel", "fail-after-cancel without-text"] {
            let number = ear.tell(request);
            assert_eq!(ear.next().await, SinkEvent::Beat(number), "{kind}");
            ear.cancel(number);
            assert_eq!(ear.next().await, SinkEvent::Answer(number, vec![]), "{kind}");
        }
    }
}

/// Threads of a handler look for a cancel even after the answer. They see each later frame in the
/// pipe, and must leave it to the thread that waits for deliveries.
#[tokio::test]
async fn threads_of_a_python_handler_that_look_for_a_cancel_after_its_answer_take_no_delivery() {
    let mut ear = hosting(obedient());
    assert_eq!(ear.ask("watch 8").await, "watched");
    for _ in 0..50 {
        assert_eq!(ear.ask("echo next").await, "next");
    }
}

#[tokio::test]
async fn a_process_that_exits_after_a_cancel_uses_up_no_restart() {
    let script = "read -rd '' frame; printf '<heartbeat/>\\0'; read -rd '' cancel; exit 3";
    let mut options = running(["bash", "-c", script]);
    options.restarts.max = 0;
    let mut ear = hosting(options);
    for _ in 0..3 {
        let number = ear.tell("anything");
        ear.expect(SinkEvent::Beat(number)).await;
        ear.cancel(number);
        let failure = failure(&mut ear).await.to_string();
        assert!(failure.contains("exited with code 3"), "{failure}");
    }
}

#[tokio::test]
async fn a_listener_that_answers_another_attempt_is_reported_with_this_reason() {
    let answer = format!("<e:answer xmlns:e=\"{NAMESPACE}\" call=\"nobody\" attempt=\"0.0\"/>");
    let script =
        format!("read -rd '' frame; printf '%s\\0' '{answer}'; read -rd '' cancel; sleep 60");
    let mut options = running(["bash", "-c", &script]);
    options.cancel_grace = Duration::from_millis(50);
    let mut ear = hosting(options);
    let number = ear.tell("anything");
    let stray = ear.next().await;
    assert!(matches!(stray, SinkEvent::Stray(..)), "{stray:?}");
    ear.cancel(number);
    let failure = failure(&mut ear).await.to_string();
    assert!(failure.contains("it answered attempts that it did not have at hand"), "{failure}");
}

#[tokio::test]
async fn a_process_that_floods_its_host_with_heartbeats_is_cancelled_and_stopped() {
    let mut options = running(["python3", &script("rude.py"), "floods"]);
    options.cancel_grace = Duration::from_millis(50);
    options.drain_timeout = Duration::from_millis(50);
    let mut ear = hosting(options);

    let cancelled = ear.tell("anything");
    ear.expect(SinkEvent::Beat(cancelled)).await;
    ear.cancel(cancelled);
    let failure = failure_after_heartbeats(&mut ear).await;
    assert!(
        failure.contains("did not answer in time after its call was cancelled or timed out"),
        "{failure}"
    );

    let stopped = ear.tell("anything");
    ear.expect(SinkEvent::Beat(stopped)).await;
    ear.host.drain().await;
    let failure = failure_after_heartbeats(&mut ear).await;
    assert!(failure.contains("did not answer in time after the listener was stopped"), "{failure}");
}

#[tokio::test]
async fn a_stop_ends_a_running_delivery_without_the_time_of_a_drain() {
    let mut options = obedient();
    options.drain_timeout = Duration::from_secs(3600);
    let mut ear = hosting(options);
    let number = ear.tell("stuck");
    ear.expect(SinkEvent::Beat(number)).await;
    let stopped = tokio::time::timeout(PATIENCE, ear.host.stop()).await;
    stopped.expect("the host should have stopped");
    let failure = failure_after_heartbeats(&mut ear).await;
    assert!(failure.contains("after the listener was stopped"), "{failure}");
}

#[tokio::test]
async fn an_answer_that_a_kit_cannot_send_is_garbage_with_its_reason() {
    let mut ear = hosting(obedient());
    ear.tell("control");
    let failure = failure(&mut ear).await.to_string();
    assert!(failure.starts_with("unreadable answer: text outside of any payload"), "{failure}");
    let reason = "`the answer cannot be sent: XML cannot contain the character U+0000`";
    assert!(failure.ends_with(reason), "{failure}");
    assert_eq!(ear.ask("echo still here").await, "still here");
}

#[tokio::test]
async fn a_second_answer_ends_the_process_and_is_not_delivered() {
    let mut ear = rude("twice");
    ear.tell("anything");
    // The next delivery waits in the mailbox during the check of the second answer.
    ear.hand_over_at_each_end(["anything", "anything"], || {});
    for number in 1..=3 {
        ear.expect(SinkEvent::Answer(number, vec![done("once")])).await;
    }
}

#[tokio::test]
async fn a_second_answer_that_comes_while_the_first_is_reported_reaches_no_other_delivery() {
    let folder = tempfile::tempdir().unwrap();
    let is_reported = folder.path().join("is-reported");
    let is_written = folder.path().join("is-written");
    let paths = [&is_reported, &is_written].map(|path| path.to_str().unwrap());
    let script = script("rude.py");
    let mut ear = hosting(running(["python3", script.as_str(), "twice-apart", paths[0], paths[1]]));

    ear.tell("anything");
    ear.hand_over_at_each_end(["anything"], move || {
        std::fs::write(&is_reported, "").unwrap();
        until("the second answer is in the pipe", || is_written.exists().then_some(()));
    });
    for number in 1..=2 {
        ear.expect(SinkEvent::Answer(number, vec![done("once")])).await;
    }
}

#[tokio::test]
async fn a_sink_that_gets_a_delivery_back_may_call_the_host() {
    let mut ear = hosting(running(["no-such-program"]));
    let left = ear.next().await;
    assert!(matches!(left, SinkEvent::Left(_)), "{left:?}");
    let (sender, has_returned) = std::sync::mpsc::channel();
    let host = Arc::downgrade(&ear.host);
    ear.on_ended(move || {
        // On a separate thread, because a call that blocks on the lock would never return here.
        let (called, returned) = std::sync::mpsc::channel();
        let host = host.clone();
        std::thread::spawn(move || {
            if let Some(host) = host.upgrade() {
                host.cancel(call(9), attempt(9));
            }
            called.send(()).ok();
        });
        sender.send(returned.recv_timeout(PATIENCE)).unwrap();
    });

    ear.tell("anything");
    assert_eq!(has_returned.recv().unwrap(), Ok(()), "the sink is called under the host's lock");
}

#[tokio::test]
async fn a_process_that_speaks_first_is_put_to_rest() {
    for (how, output) in [
        ("speaks-first", "without a delivery: `<done`; answer each delivery once"),
        ("greets", "without a delivery: `ready`; write diagnostics to standard error"),
    ] {
        let mut options = running(["python3", &script("rude.py"), how]);
        options.restarts.max = 1;
        let mut ear = hosting(options);
        let left = ear.next().await;
        assert!(matches!(&left, SinkEvent::Left(why) if why.contains(output)), "{left:?}");
    }
}

#[tokio::test]
async fn a_process_that_sends_a_heartbeat_after_its_answer_is_replaced_with_this_reason() {
    let answer = done("once");
    let script = format!(
        "while read -rd '' frame; do printf '%s\\0<heartbeat></heartbeat>\\0' '{answer}'; done"
    );
    let mut options = running(["bash", "-c", &script]);
    options.restarts.max = 0;
    let mut ear = hosting(options);
    let number = ear.tell("anything");
    ear.expect(SinkEvent::Answer(number, vec![done("once")])).await;
    let left = ear.next().await;
    let SinkEvent::Left(why) = &left else { panic!("expected an end, got {left:?}") };
    assert!(why.contains("without a delivery: a heartbeat; stop the heartbeats"), "{why}");
}

#[tokio::test]
async fn a_program_that_prints_an_error_and_exits_is_described_by_its_exit() {
    let mut options = running(["sh", "-c", "echo 'usage: x'; echo 'no file' >&2; exit 2"]);
    options.restarts.max = 0;
    let mut ear = hosting(options);
    let left = ear.next().await;
    let SinkEvent::Left(why) = &left else { panic!("expected an end, got {left:?}") };
    let end = "8 bytes into an unfinished frame, exited with code 2; last line on standard error: \
               no file";
    assert!(why.contains(end), "{why}");
}

/// A process that begins a frame while it has no delivery is put to rest. If the frame ended after
/// the next delivery, it would count as the answer to that delivery, even in another thread.
#[tokio::test]
async fn an_idle_process_that_begins_a_frame_is_put_to_rest() {
    let folder = tempfile::tempdir().unwrap();
    let is_reported = folder.path().join("is-reported");
    let script = script("rude.py");
    let path = is_reported.to_str().unwrap();
    let mut options = running(["python3", script.as_str(), "mutters", path]);
    options.restarts.max = 0;
    let mut ear = hosting(options);

    let number = ear.tell("anything");
    ear.expect(SinkEvent::Answer(number, vec![done("once")])).await;
    std::fs::write(&is_reported, "").unwrap();
    let left = ear.next().await;
    assert!(
        matches!(&left, SinkEvent::Left(why) if why.contains("without a delivery")),
        "{left:?}"
    );
}

#[tokio::test]
async fn greedy_standard_error_holds_up_nothing() {
    let mut ear = rude("greedy");
    for _ in 0..2 {
        let number = ear.tell("anything");
        ear.expect(SinkEvent::Answer(number, vec![done("once")])).await;
    }
}

#[tokio::test]
async fn output_that_a_handler_prints_is_no_answer() {
    let mut ear = hosting(obedient());
    assert_eq!(ear.ask("print &lt;done/&gt;").await, "tested 1.1 sess-k3v9t2m8");
}

#[tokio::test]
async fn restarts_are_used_up_and_then_the_listener_has_left() {
    let mut options = running(["sh", "-c", "exit 7"]);
    options.restarts.max = 3;
    options.instances = 2;
    let mut ear = hosting(options);
    let left = ear.next().await;
    assert!(matches!(&left, SinkEvent::Left(why) if why.contains("code 7")), "{left:?}");
    ear.tell("anything");
    let failure = failure(&mut ear).await;
    assert!(matches!(failure, AttemptFailure::Unreachable { .. }), "{failure:?}");
    assert!(failure.to_string().contains("restarts are used up; exited with code 7"), "{failure}");
    ear.host.drain().await;
    assert!(ear.is_quiet(), "left is said once, whatever the number of instances");
}

#[tokio::test]
async fn a_listener_that_comes_back_has_joined() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let serve =
        "while IFS= read -r -d '' f; do printf '<done xmlns=\"urn:test\">back</done>\\0'; done";
    let program = format!("if [ -e $0 ]; then {serve}; else touch $0; exit 7; fi");
    let mut options = running(["bash", "-c", &program, mark.to_str().unwrap()]);
    options.restarts.max = 0;
    options.restarts.rest = Duration::from_millis(1);
    let mut ear = hosting(options);
    let left = ear.next().await;
    assert!(matches!(left, SinkEvent::Left(_)), "{left:?}");
    ear.expect(SinkEvent::Joined).await;
    assert_eq!(ear.ask("anything").await, "back");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let mut ear = hosting(running(["no-such-program"]));
    let left = ear.next().await;
    assert!(matches!(&left, SinkEvent::Left(why) if why.contains("`no-such-program`")), "{left:?}");
    ear.tell("anything");
    let failure = failure(&mut ear).await;
    assert!(matches!(failure, AttemptFailure::Unreachable { .. }), "{failure:?}");
}

#[test]
fn a_program_is_found_by_path_or_by_name_and_must_be_executable() {
    assert!(find("sh").unwrap().is_absolute());
    assert_eq!(find("/bin/sh").unwrap(), std::path::Path::new("/bin/sh"));
    for (program, why) in [
        ("no-such-program", "found neither beside `organism` nor on PATH"),
        ("./no-such-program", "no such file"),
        ("/tmp", "/tmp is not an executable file"),
        ("/etc/passwd", "/etc/passwd is not an executable file"),
        ("", "found neither beside `organism` nor on PATH"),
    ] {
        let refused = find(program).unwrap_err().to_string();
        assert!(refused.contains(why), "{program}: {refused}");
    }
}

#[test]
fn the_environment_of_a_listener_is_not_shown() {
    let mut options = running(["sh"]);
    options.env = vec![("TOKEN".to_owned(), "hunter2".to_owned())];
    assert_eq!(format!("{options:?}"), "tested: 1 of [\"sh\"]");
}

#[tokio::test]
async fn a_frozen_process_that_resumes_in_time_answers_late() {
    let mut options = obedient();
    options.cancel_grace = Duration::from_secs(20);
    let mut ear = hosting(options);
    let pid = pid(&mut ear).await;
    kill_process(pid, Signal::STOP).unwrap();
    let number = ear.tell("echo late");
    begun().await;
    ear.cancel(number);
    kill_process(pid, Signal::CONT).unwrap();
    ear.expect(SinkEvent::Answer(number, vec![done("late")])).await;
}

#[tokio::test]
async fn a_stopped_process_is_replaced_when_its_grace_is_over() {
    let mut ear = hosting(obedient());
    let stopped = pid(&mut ear).await;
    kill_process(stopped, Signal::STOP).unwrap();
    let number = ear.tell("echo never");
    begun().await;
    ear.cancel(number);
    let failure = failure(&mut ear).await;
    assert!(matches!(failure, AttemptFailure::Crashed { .. }), "{failure:?}");
    assert_ne!(pid(&mut ear).await, stopped);
}

/// Yields to the other tasks, so that the host's task takes the delivery from the mailbox. The
/// runtime of these tests has a single thread, which runs every ready task before the test
/// continues.
async fn begun() {
    tokio::task::yield_now().await;
}

async fn pid(ear: &mut HostHarness) -> Pid {
    Pid::from_raw(ear.ask("pid").await.parse().unwrap()).unwrap()
}

#[tokio::test]
async fn a_delivery_cancelled_before_its_process_runs_ends_too() {
    let mut ear = hosting(obedient());
    // The test has not awaited anything yet, so the task of the instance has not begun.
    let cancelled = ear.tell("echo never");
    ear.cancel(cancelled);
    let failed = ear.next().await;
    assert!(matches!(&failed, SinkEvent::Failed(n, _) if *n == cancelled), "{failed:?}");
    assert_eq!(ear.ask("echo still here").await, "still here");
}

#[tokio::test]
async fn a_delivery_beyond_the_instances_is_no_attempt_and_waits_for_nothing() {
    let mut ear = hosting(obedient());
    let first = ear.tell("wait");
    ear.expect(SinkEvent::Beat(first)).await;
    let beyond = ear.tell("echo never");
    match ear.next().await {
        SinkEvent::Failed(number, AttemptFailure::Unreachable { detail }) => {
            assert_eq!(number, beyond);
            assert_eq!(detail, "more deliveries than the listener has instances for");
        }
        other => panic!("expected it back, heard {other:?}"),
    }
    ear.cancel(first);
    ear.expect(SinkEvent::Answer(first, vec![done("gone")])).await;
}

#[tokio::test]
async fn child_processes_of_a_listener_end_with_it() {
    for drain in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // The grandchild holds the pipe open for writing.
        let program = "exec 3> $0; sleep 1000 <&- >&- 2>&- & exec 3>&-; cat > /dev/null";
        let ear = hosting(running(["sh", "-c", program, pipe.to_str().unwrap()]));
        let held = tokio::task::spawn_blocking({
            let pipe = pipe.clone();
            move || std::fs::File::open(pipe).unwrap()
        });
        let mut held = held.await.unwrap();
        if drain {
            ear.host.drain().await;
        }
        drop(ear);
        // On a separate thread, so that a failing test does not wait for it.
        let (tell, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || tell.send(std::io::copy(&mut held, &mut std::io::sink())));
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        let read = ended.expect("the grandchild should be gone").unwrap();
        assert_eq!(read.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_inline_handler_has_answered_when_deliver_returns() {
    let mut ear = HostHarness::hosting(|sink| {
        let handle = |delivery: &organism::bus::Delivery| {
            let text = delivery.messages[0].payload.as_str();
            assert!(!text.contains("panic"), "told to");
            Ok(Outcome {
                payloads: vec![done("inline").into_bytes()],
                turn: None,
                ..Outcome::default()
            })
        };
        Arc::new(InlineHost::new(name("tested"), handle, sink)) as Arc<dyn Host>
    });
    assert_eq!(ear.ask("echo").await, "inline");
    ear.tell("panic");
    let failure = failure(&mut ear).await;
    assert_eq!(failure.to_string(), "crashed: panicked: told to");
}

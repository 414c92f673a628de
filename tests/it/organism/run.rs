//! `organism run`: only one process runs at a time. A process that stops finishes its deliveries in
//! flight, and the next start continues the calls that wait.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use organism::ids::Position;
use organism::limits;
use organism::thread::Fact;

use super::{CONFIG, CommandOutput, House, numbered, say, talk_reply, until};

#[test]
fn a_second_pump_is_refused_at_once_with_the_holders_name() {
    let house = House::new();
    let running = house.run();
    let begun = Instant::now();
    let second = house.organism(&["run"]);
    let took = begun.elapsed();
    assert_eq!(second.code, Some(75), "{second:?}");
    let holder = format!("in use by process {}", running.child.id());
    assert!(second.err.contains(&holder), "{}", second.err);
    // Within a second on an idle machine.
    assert!(took < Duration::from_secs(10), "{took:?}");
    // The socket of the first organism is unchanged.
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    assert_eq!(running.stop(), Some(0));
}

/// Files with payloads are readable only for their owner. The organism does not change the mode of
/// an existing data directory, so each of these files has a mode of its own.
#[test]
fn files_with_payloads_are_their_owners_alone_also_in_a_directory_that_all_can_read() {
    let house = House::with_echo();
    let open = std::fs::Permissions::from_mode(0o755);
    for directory in [house.data(), house.state()] {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, open.clone()).unwrap();
    }
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    let threads = house.organism(&["threads"]);
    assert_eq!(threads.code, Some(0), "{threads:?}");

    for name in ["journal.db", "journal.db-wal", "index.db"] {
        let mode = std::fs::metadata(house.data().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_submission_to_a_running_organism_uses_its_socket_which_only_its_owner_can_open() {
    let house = House::with_echo();
    let running = house.run();
    let socket = house.data().join("control.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    assert_eq!(running.stop(), Some(0));
    assert!(!socket.exists());
    let exported = house.organism(&["export", "--format", "jsonl"]).out;
    assert_eq!(exported.matches("<boot ").count(), 1, "the sender started nothing of its own");
}

#[test]
fn the_socket_of_an_organism_that_died_is_replaced() {
    let house = House::with_echo();
    let mut running = house.run();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert!(house.data().join("control.sock").exists());
    assert_eq!(house.send_text(&say("alone"), &[]).out, talk_reply("alone"));
    let running = house.run();
    assert_eq!(house.send_text(&say("again"), &[]).out, talk_reply("again"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_stop_finishes_deliveries_in_flight_and_waiting_calls_continue_at_the_next_start() {
    let house = House::new();
    let running = house.run();
    let hold = |number: &str| {
        let sent = house.send_text(&numbered("hold", number), &["--no-wait", "--key", number]);
        assert_eq!(sent.code, Some(0));
    };
    hold("1");
    hold("2");
    running.signal("-TERM");
    until("it says that it stops", || house.log().contains("stopping on SIGTERM").then_some(()));
    house.write("let-go", "");
    let mut running = running;
    let child = &mut running.child;
    assert_eq!(until("it stops", || child.try_wait().unwrap()).code(), Some(0));
    assert!(house.recorded("held") >= 1, "what was handed over has ended");
    house.verified();

    let running = house.run();
    for number in ["1", "2"] {
        let told = house.send_text(&numbered("hold", number), &["--key", number]);
        assert_eq!((told.code, told.out), (Some(0), numbered("held", number) + "\n"));
    }
    assert_eq!(running.stop(), Some(0));
    assert_eq!((house.recorded("hold"), house.recorded("held")), (2, 2));
}

/// A delivery that does not end delays a stop by one time limit. The stop does not wait a second
/// time for the listener of this delivery.
#[test]
fn a_stop_waits_for_a_hanging_delivery_once() {
    let house = House::new();
    let running = house.run();
    assert_eq!(house.send_text(&numbered("hold", "1"), &["--no-wait"]).code, Some(0));
    until("it is handed over", || {
        let reader = house.reader();
        let last = reader.last().unwrap();
        let records = reader.records(Position(1), last).unwrap();
        let mut facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        facts.any(|fact| matches!(fact, Fact::HandedOver { .. })).then_some(())
    });

    let begun = Instant::now();
    assert_eq!(running.stop(), Some(0));
    let took = begun.elapsed();
    assert!(took < 2 * limits::DRAIN_TIMEOUT, "{took:?}");
    assert_eq!(house.recorded("held"), 0);
}

// O9
#[test]
fn a_listener_that_keeps_crashing_leaves_on_record_and_its_callers_get_faults() {
    let config = CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"./dead\"]\ntimeout = \"8s\"");
    let house = House::with(&config);
    house.write("dead", "#!/bin/sh\necho no good >&2\nexit 3\n");
    let dead = house.path("dead");
    std::fs::set_permissions(dead, std::fs::Permissions::from_mode(0o755)).unwrap();
    let running = house.run();
    let told = house.send_text(&say("hello"), &[]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let code = told.out.contains("code=\"undeliverable\"");
    let failed = told.out.contains("code=\"listener-failed\"");
    assert!(code || failed || told.out.contains("code=\"timeout\""), "{told:?}");
    until("it has left", || {
        let told = house.organism(&["thread", "sess-organism"]).out;
        told.contains("listener-left").then_some(())
    });
    let later = house.send_text(&say("hello"), &[]);
    assert!(later.out.contains("code=\"undeliverable\""), "{later:?}");
    // The other processes still run.
    assert_eq!(house.send_text(&numbered("ping", "1"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn senders_at_the_same_moment_share_the_organism_one_of_them_starts() {
    let house = House::with_orders();
    let senders: Vec<_> = (0..4)
        .map(|number| {
            house.write(&format!("{number}.xml"), numbered("order", &number.to_string()));
            let file = format!("{number}.xml");
            let mut command = house.command(&["send", "--as", "desk", &file]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, sender) in senders.into_iter().enumerate() {
        let told: CommandOutput = sender.wait_with_output().unwrap().into();
        let expected = numbered("done", &number.to_string()) + "\n";
        assert_eq!((told.code, told.out), (Some(0), expected), "{}", told.err);
    }
    house.verified();
}

#[test]
fn a_journal_in_a_directory_with_a_long_name_has_its_socket_too() {
    let deep = format!("data = \"{}\"\n", ["deep"; 40].join("/"));
    let house = House::with(&CONFIG.replace("[organism]\n", &format!("[organism]\n{deep}")));
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.send_text(&say("again"), &[]).out, talk_reply("again"));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let house = House::with_echo();
    house.write("data", "a file where a directory should be");
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    let place = house.data().display().to_string();
    let expected = format!("organism: {place}: Not a directory (os error 20)\n");
    assert_eq!(refused.err, expected);
}

/// A start that fails because its socket cannot be opened releases the journal, although its
/// process lives on.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_cannot_be_opened_lets_go_of_the_journal() {
    let house = House::with_echo();
    let config = || {
        let mut surroundings = organism::config::ConfigEnvironment::of_process();
        let substrate = crate::nats::substrate(&house.path("")).into_iter();
        surroundings.variables.extend(substrate.map(|(key, value)| (key.to_owned(), value)));
        // Otherwise it finds the journals of the user who runs the test.
        let data = house.path("data").display().to_string();
        surroundings.variables.insert("XDG_DATA_HOME".to_owned(), data);
        let mut config =
            organism::config::load(&house.path("organism.toml"), &surroundings).unwrap();
        (config.data, config.state) = (house.path("data"), house.path("state"));
        config
    };
    let socket = organism::service::socket_path(&house.path("data"));
    std::fs::create_dir_all(socket.join("in the way")).unwrap();
    let refused = organism::organism::Organism::start(config()).await.err();
    let refused = refused.expect("a directory stands where the socket belongs").to_string();
    assert!(refused.contains("control"), "{refused}");
    std::fs::remove_dir_all(socket).unwrap();
    let second = organism::organism::Organism::start(config()).await;
    second.unwrap_or_else(|error| panic!("{error}")).stop("the test is over").await.unwrap();
}

const UNFINISHED: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo"]

[listeners.echo]
command = ["./unfinished.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
timeout = "5s"
"#;

/// Without `ORGANISM_LOG`, the log shows what a listener writes to standard error, and that the end
/// of the listener's answer is missing.
#[test]
fn the_log_shows_the_standard_error_of_a_listener_and_an_answer_without_its_nul() {
    let house = House::with(UNFINISHED);
    let program = "#!/usr/bin/env -S python3 -S\nimport os, sys\nos.read(0, 65536)\n\
                   print('about to `organism check`', file=sys.stderr, flush=True)\n\
                   os.write(1, b'<said/>')\n\
                   while os.read(0, 65536): pass\n";
    house.write("unfinished.py", program);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("unfinished.py"), mode).unwrap();
    let mut run = house.command(&["run", "--config", "organism.toml"]);
    run.env_remove("ORGANISM_LOG");
    let running = house.run_with(run);
    let sent = house.send_text(&say("x"), &[]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("code=\"timeout\""), "{sent:?}");
    let log = until("both are logged", || {
        let log = house.log();
        log.contains("wrote 7 bytes without a NUL").then_some(log)
    });
    assert!(log.contains("about to `organism check`"), "{log}");
    assert!(!log.contains("`organism check --config"), "its text stays as it is: {log}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The log shows that the answer to a cancelled delivery lacks its end. The bytes arrive after the
/// cancel, while the host waits for the process.
#[test]
fn the_log_shows_an_answer_that_lost_its_nul_after_the_cancel() {
    let house = House::with(UNFINISHED);
    let program = "#!/usr/bin/env -S python3 -S\nimport os\ndata = b''\n\
                   while data.count(b'\\0') < 2: data += os.read(0, 65536)\n\
                   os.write(1, b'<said/>')\nwhile os.read(0, 65536): pass\n";
    house.write("unfinished.py", program);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("unfinished.py"), mode).unwrap();
    let mut run = house.command(&["run"]);
    run.env_remove("ORGANISM_LOG");
    let running = house.run_with(run);
    let sent = house.send_text(&say("x"), &[]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    let missing = "wrote 7 bytes without a NUL before its call ended";
    until("it is logged", || house.log().contains(missing).then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// The caller gets only the kind of a failure, so the log must state the reason.
#[test]
fn an_unreadable_answer_and_a_time_out_are_logged_with_their_reason() {
    let garbage =
        r#"["perl", "-MIO::Handle", "-0ne", 'STDOUT->autoflush(1); print "hello world\0"']"#;
    let config = CONFIG.replacen(r#"["./player.pl", "echo"]"#, garbage, 1);
    assert_ne!(config, CONFIG);
    let silent = "command = [\"sleep\", \"600\"]\ntimeout = \"1s\"";
    let config = config.replacen(r#"command = ["./player.pl", "solo"]"#, silent, 1);
    let house = House::with(&config);
    let running = house.run();

    let unreadable = house.send_text(&say("hello"), &[]);
    assert_eq!(unreadable.code, Some(1), "{unreadable:?}");
    assert!(unreadable.out.contains("it gave no answer that can be read"), "{unreadable:?}");
    let late = house.send_text(&numbered("ping", "1"), &[]);
    assert!(late.out.contains("did not answer within"), "{late:?}");

    assert_eq!(running.stop(), Some(0));
    let log = house.log();
    let line = log.lines().find(|line| line.contains("the attempt failed: unreadable answer"));
    assert!(line.is_some_and(|line| line.contains("listener=echo")), "{log}");
    assert_eq!(log.matches("the attempt failed").count(), 1, "{log}");
    let line = log.lines().find(|line| line.contains("the attempt timed out"));
    assert!(line.is_some_and(|line| line.contains("listener=solo")), "{log}");
}

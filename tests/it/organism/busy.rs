//! Clients that are refused as `busy`. Each client gets an answer. The journal gets one record with
//! the number of these refusals, not one record for each of them.

use std::os::unix::net::UnixStream;
use std::path::Path;

use organism::ids::Position;
use organism::journal::sqlite::JournalReader;
use organism::limits;
use organism::service::socket_path;
use organism::thread::{Input, Verdict};

use super::{House, numbered, until};
use crate::nats::Server;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["holder"]

[listeners.holder]
command = ["./player.pl", "holder", "let-go"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
backlog = 1
"#;

fn inputs(data: &Path) -> Vec<Input> {
    let reader = JournalReader::open(data).unwrap();
    let last = reader.last().unwrap();
    let records = reader.records(Position(1), last).unwrap();
    records.into_iter().map(|sealed| sealed.record.input).collect()
}

/// Counts of `busy` refusals to the client `desk` on record, in order.
fn busy_counts(inputs: &[Input]) -> Vec<u64> {
    let counts = inputs.iter().filter_map(|input| match input {
        Input::Busy { client, count, .. } if client.as_str() == "desk" => Some(*count),
        _ => None,
    });
    counts.collect()
}

#[test]
fn refusals_as_busy_are_one_count_on_record_and_not_a_record_each() {
    const REFUSED: u64 = 5;

    let house = House::with(CONFIG);
    let running = house.run();
    // One submission is at the listener, and one waits for it.
    std::fs::create_dir(house.path("in")).unwrap();
    let send_each = || house.organism(&["send", "--as", "desk", "--no-wait", "--each", "in"]);
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    house.write("in/2.xml", numbered("hold", "2"));
    let sent = send_each();
    assert_eq!(sent.code, Some(0), "{sent:?}");

    house.write("in/4.xml", numbered("hold", "4"));
    let busy = send_each();
    assert_eq!(busy.code, Some(75), "{busy:?}");
    let counts = "2 files: 1 done, 0 refused, 0 failed, 1 to send again: repeat the command";
    assert!(busy.err.contains(counts), "{busy:?}");
    for _ in 1..REFUSED {
        let busy = house.send_text(&numbered("hold", "3"), &["--no-wait", "--key", "third"]);
        assert_eq!(busy.code, Some(75), "{busy:?}");
        assert!(busy.err.contains("busy"), "{busy:?}");
    }
    house.write("let-go", "");
    until("both are answered", || (house.recorded("held") == 2).then_some(()));
    let sent = house.send_text(&numbered("hold", "3"), &["--key", "third"]);
    assert_eq!(sent.code, Some(0), "a key that was refused as busy may be used again: {sent:?}");
    let each = send_each();
    assert_eq!(each.code, Some(0), "{each:?}");
    assert!(each.err.contains("2 files: 2 done, 0 refused, 0 failed\n"), "{each:?}");
    assert_eq!(house.recorded("hold"), 4, "a file that was accepted is not sent a second time");
    assert_eq!(running.stop(), Some(0));

    let inputs = inputs(&house.data());
    let refused =
        |input: &&Input| matches!(input, Input::Submitted { verdict: Verdict::Refused(_), .. });
    assert_eq!(inputs.iter().filter(refused).count(), 0);
    let counts = busy_counts(&inputs);
    assert_eq!(counts.iter().sum::<u64>(), REFUSED, "{counts:?}");

    let shown = house.organism(&["tail", "--no-follow", "--lines", "1000"]);
    assert!(shown.out.contains("desk  busy: refused"), "{}", shown.out);
    let verified = house.organism(&["verify"]);
    assert!(verified.out.contains(&format!("{REFUSED} refused")), "{verified:?}");
    house.verified();
}

/// With several pumps, a refusal at the maximum number of connections is counted once, by one of
/// the pumps.
#[test]
fn a_refusal_at_the_bound_of_connections_is_on_record_with_several_pumps() {
    let server = Server::start();
    let address = server.address();
    let journal = "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\npartitions = 2";
    let config = format!("{CONFIG}\n{journal}\n\n[nats]\nurl = \"{address}\"\n");
    let house = House::settled(&config);
    let running = house.run();
    let connect = |_| UnixStream::connect(socket_path(&house.data())).unwrap();
    let open: Vec<_> = (0..limits::CONTROL_CONNECTIONS_MAX).map(connect).collect();

    let busy = house.send_text(&numbered("hold", "1"), &["--no-wait"]);
    assert_eq!(busy.code, Some(75), "{busy:?}");
    assert!(busy.err.contains("too many commands are connected"), "{busy:?}");
    drop(open);
    assert_eq!(running.stop(), Some(0));
    let counts = ["p0", "p1"].map(|part| busy_counts(&inputs(&house.data().join(part))));
    assert_eq!(counts.concat(), [1]);
}

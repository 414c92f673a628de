//! Repeated keys in an organism whose threads several pumps share.

use organism::ids::ThreadId;

use crate::nats::Server;
use crate::organism::repeated_keys::{CONFIG, first_results, furnish, send_all};
use crate::organism::{CommandOutput, House, numbered, until};

#[test]
fn a_repeated_key_gets_every_kind_of_result_on_every_partition() {
    let server = Server::start();
    let address = server.address();
    let config = format!(
        "{CONFIG}\n[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\npartitions = 4\n\n\
         [nats]\nurl = \"{address}\"\n"
    );
    let house = House::settled(&config);
    furnish(&house);
    let running = super::run(&house, "0,1,2,3");
    let first = first_results(&house);
    assert_eq!(send_all(&house), first);
    assert_eq!(running.stop(), Some(0));
    let running = super::run(&house, "0,1,2,3");
    assert_eq!(send_all(&house), first, "after a restart");
    assert_eq!(running.stop(), Some(0));
}

/// Design 4.10: after the time `keys_for` of the client, a repeated key begins new work, and from
/// then on stands for this work.
#[test]
fn an_expired_key_begins_new_work_in_its_partition() {
    let server = Server::start();
    let config = super::config(&server, super::PARTITIONS);
    let config = config.replace("peers = [\"echo\"", "keys_for = \"1s\"\npeers = [\"echo\"");
    let house = House::settled(&config);
    let running = super::run(&house, "0,1,2,3");
    let send = |payload: &str| {
        house.send_text(&numbered(payload, "1"), &["--key", "daily", "--no-wait", "--json"])
    };
    let thread = |sent: &CommandOutput| {
        let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
        (ThreadId::parse(&thread).unwrap().partition(super::PARTITIONS), thread)
    };

    let first = send("ping");
    assert_eq!(first.code, Some(0), "{first:?}");
    // Until the key has expired, another payload under the key is refused.
    let second = until("the key has expired", || {
        let sent = send("hold");
        let is_early = sent.code == Some(65) && sent.out.contains("key-reused");
        (!is_early).then_some(sent)
    });
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_ne!(thread(&second).1, thread(&first).1);
    assert_eq!(thread(&second).0, thread(&first).0, "the same partition");

    // The key does not expire while its call is open.
    let again = send("hold");
    assert_eq!(thread(&again), thread(&second), "{again:?}");
    assert_eq!(again.json()[0]["again"], true, "{again:?}");
    house.write("let-go", "");
    until("it is done", || (house.recorded("held") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
}

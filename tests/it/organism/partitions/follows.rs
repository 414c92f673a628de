//! `organism tail` on a host that pumps some partitions and stands by for the others.

use super::super::follow::Tail;
use super::{
    House, PARTITIONS, ask_in, command, config, effects, host, numbered, root, run, until,
};
use crate::nats::Server;

#[test]
fn a_tail_shows_what_is_recorded_here_and_what_this_host_follows() {
    let server = Server::start();
    let (one, other) = (host(&server), host(&server));
    let first = run(&one, "0,1");
    let second = run(&other, "0,1,2,3");
    for partition in 0..PARTITIONS {
        assert_eq!(ask_in(&other, partition, 0).code, Some(0));
    }

    let mut tail = Tail::start(&other);
    for partition in 0..PARTITIONS {
        let sent = ask_in(&other, partition, 1);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        tail.find_thread(&root(partition, 1));
    }
    // A standby has the newest records, as a pump has.
    let unknown = root(0, 7);
    let denied = other.organism(&["thread", &unknown]);
    assert!(denied.err.contains(&format!("no thread {unknown} is on record")), "{denied:?}");
    assert_eq!(first.stop(), Some(0));
    assert_eq!(second.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

#[test]
fn a_tail_shows_what_is_recorded_while_the_partitions_stop() {
    let server = Server::start();
    let config = config(&server, PARTITIONS).replace("\"let-go\"", "\"let-go-{n}\"");
    let house = House::settled(&config);
    let running = house.run_with(command(&house, "0,1"));
    let mut tail = Tail::start(&house);
    // The second message is sent after the first read of the journal, so it comes from the organism.
    for (partition, number) in [(0, "1"), (1, "2")] {
        let arguments = ["--new", &root(partition, 0), "--no-wait"];
        let hold = numbered("hold", number);
        assert_eq!(house.send_text(&hold, &arguments).code, Some(0));
        tail.find(&hold);
    }
    until("both handlers have begun", || (effects(&house).len() == 2).then_some(()));

    running.signal("-TERM");
    let socket = house.data().join("control.sock");
    until("the socket is closed", || (!socket.exists()).then_some(()));
    // The second answer is released only after the tail has shown the first.
    for number in ["1", "2"] {
        house.write(&format!("let-go-{number}"), "");
        tail.find(&numbered("held", number));
    }

    assert_eq!(running.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

//! `organism tail` on a host that pumps some partitions and stands by for the others.

use super::super::follow::Tail;
use super::{PARTITIONS, ask_in, host, root, run};
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
    assert_eq!(first.stop(), Some(0));
    assert_eq!(second.stop(), Some(0));
    assert_eq!(tail.end().code, Some(0));
}

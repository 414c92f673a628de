//! Schedules of an organism whose threads are divided among several pumps.

use super::{House, PARTITIONS, all_verified, config, run, say, until};
use crate::nats::Server;
use organism::ids::{ListenerName, ScheduleName, ThreadId};

/// A schedule name that belongs to this partition.
fn name_in(partition: u32) -> ScheduleName {
    let names = (0..).map(|n: u32| ScheduleName(ListenerName::parse(&format!("s{n}")).unwrap()));
    let mut fitting = names.into_iter().filter(|name| name.partition(PARTITIONS) == partition);
    fitting.next().unwrap()
}

#[test]
fn a_schedule_runs_in_the_partition_to_which_its_name_hashes() {
    let server = Server::start();
    let names: Vec<_> = (0..PARTITIONS).map(name_in).collect();
    let schedules = names.iter().map(|name| {
        format!("[schedules.{name}]\nevery = \"1s\"\nsend = \"{name}.xml\"\nas = \"desk\"\n")
    });
    let schedules: String = schedules.collect();
    let text = config(&server, PARTITIONS).replace("approval = \"always\"\n", "");
    let house = House::settled(&format!("{schedules}\n{text}"));
    for name in &names {
        house.write(&format!("{name}.xml"), say(&format!("{name}")));
    }

    let running = run(&house, "0,1,2,3");
    let threads_of = |name: &ScheduleName| -> Vec<ThreadId> {
        let exported = house.organism(&["export", "--format", "jsonl"]).json();
        let answers = exported.iter().filter(|line| {
            let text = line["payload"].as_str().unwrap_or_default();
            text.contains("<said ") && text.contains(&format!(">{name}<"))
        });
        let threads = answers.map(|line| line["thread"].as_str().unwrap());
        threads.map(|thread| ThreadId::parse(thread).unwrap()).collect()
    };
    for (name, partition) in names.iter().zip(0..) {
        let threads = until("a run is answered", || {
            let threads = threads_of(name);
            (!threads.is_empty()).then_some(threads)
        });
        assert!(threads.iter().all(|thread| thread.partition(PARTITIONS) == partition), "{name}");
    }
    assert_eq!(running.stop(), Some(0));
    all_verified(&house);
}

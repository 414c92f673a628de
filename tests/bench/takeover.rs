//! Duration of a standby's takeover of a stream that the standby has followed. A short and a long
//! stream are measured.

use std::time::Instant;

use organism::clock::Time;
use organism::config::{Config, StorageConfig};
use organism::ids::Position;
use organism::journal::jetstream::{LeaseCheck, Standby, StreamJournal, identity};
use organism::journal::{Error, HashedRecord, Journal as _};
use organism::organism::project;
use organism::pump::ResidentCore;
use organism::pump::core::{Core, Event};
use uuid::Uuid;

use super::figures::{Bench, median_of};
use super::floor::directory;
use super::nats::Server;
use super::relay;
use super::remote::Sync;
use super::start;

/// Number of rounds of each call. With this number, a tree has about ten records.
const ROUNDS: usize = 3;
const THREADS: usize = 64;
/// Number of standbys that take a stream over, one after another.
const STANDBYS: usize = 5;

/// Duration of a takeover on a stream of a million records, compared with a stream of a hundred
/// thousand records.
pub fn ready(bench: &mut Bench) {
    let records = if bench.quick { [2_000, 20_000] } else { [100_000, 1_000_000] };
    let [short, long] = records.map(taken_over);
    bench.figures.add("takeover", 1e3 * long, "ms", Some(1e3 * short));
}

/// Median seconds from the release of the lease until a standby has recorded its boot.
fn taken_over(records: usize) -> f64 {
    let server = Sync::Lazy.server();
    let stream = format!("takeover{records}");
    let leader = host("leader", &server, &stream);
    let mut journal = start::fill_stream(leader, records, ROUNDS);

    let standbys = (0..STANDBYS).map(|number| {
        let config = host(&format!("standby{number}"), &server, &stream);
        FollowingHost::begin(config, journal.id())
    });
    let standbys: Vec<_> = standbys.collect();

    let mut times = Vec::new();
    for standby in standbys {
        let (next, took) = standby.take_over(journal);
        journal = next;
        times.push(took);
    }
    journal.close(Time::now()).unwrap();
    median_of(times.into_iter())
}

/// Returns the config of a host that has separate directories, and whose journal is `stream`.
fn host(name: &str, server: &Server, stream: &str) -> Config {
    let journal = format!(
        "[nats]\nurl = \"{}\"\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         durability = \"lazy\"\n",
        server.address(),
    );
    let place = directory(&format!("takeover-{name}"));
    relay::config(&place, &relay::commanded(&["true".to_owned()], THREADS), &journal)
}

/// A standby, and a core whose state results from the records that the standby has followed.
struct FollowingHost {
    core: ResidentCore,
    standby: Standby,
}

impl FollowingHost {
    /// Follows the stream of `config` up to the present end of the stream. `journal` is the id of
    /// the stream's journal.
    fn begin(config: Config, journal: Uuid) -> Self {
        let StorageConfig::JetStream { servers, journal: options } = &config.storage else {
            unreachable!("the journal is a stream");
        };
        project::begin(&config.directories(), false).unwrap();
        std::fs::create_dir_all(&config.state).unwrap();
        identity::note(&config.state, options, journal).unwrap();
        let standby = Standby::begin(servers, options, &config.data, &config.state).unwrap();
        let core = Core::new(config.contracts.clone().into(), config.limits, config.digest);
        let core = ResidentCore::new(core, config.data.clone());
        Self { core, standby }.follow()
    }

    fn follow(self) -> Self {
        let Self { mut core, standby } = self;
        let standby = standby.follow(&mut |sealed| replay(&mut core, &sealed)).unwrap();
        assert!(standby.is_ready());
        Self { core, standby }
    }

    /// Takes the stream over from `before`, and records a boot. Returns the open journal, and the
    /// duration in seconds.
    fn take_over(self, before: StreamJournal) -> (StreamJournal, f64) {
        let Self { mut core, standby } = self.follow();
        before.close(Time::now()).unwrap();

        let began = Instant::now();
        let Ok(LeaseCheck::Ours(holder)) = standby.look() else { panic!("the lease is free") };
        let mut journal = holder.lead(&mut |sealed| replay(&mut core, &sealed)).unwrap();
        let (id, epoch) = (journal.id(), journal.epoch());
        let detail = "the takeover".to_owned();
        let boot = Event::Boot { journal: id, epoch, detail, blobs: Vec::new() };
        let Position(next) = journal.next();
        let step = core.step(Position(next), Time::now(), boot).unwrap();
        journal.append(&mut [step.into_record().unwrap()]).unwrap();
        let took = began.elapsed().as_secs_f64();
        (journal, took)
    }
}

fn replay(core: &mut ResidentCore, sealed: &HashedRecord) -> Result<(), Error> {
    core.replay(&sealed.record)
}

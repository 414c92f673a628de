//! A full disk that gets free space again.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use organism::clock::Time;
use organism::index::{INDEX_DATABASE, IndexReader, IndexReaderPool};
use organism::journal::Journal as _;
use organism::journal::sqlite::DATABASE;

use super::{Mounted, SMALL, skip, succeeds};
use crate::campaign::Campaign;
use crate::index::first_build::researched;
use crate::journal::Place;
use crate::journal::script::{Script, research};
use crate::nats::is_streamed;
use crate::organism::{
    CONFIG, CommandOutput, House, alerts, numbered, say, snapshots, talk_reply, until,
};

/// Maximum time from a submission to its refusal, and from the moment at which the disk has space
/// to the next acceptance. At least one measurement must stay within this time: a standstill of the
/// machine spoils a single measurement, and a slow organism spoils all.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A house whose data is on a small disk.
struct Room {
    house: House,
    _mounted: Mounted,
}

impl Room {
    fn new(test: &str) -> Option<Self> {
        Self::with(SMALL, test)
    }

    fn with(config: &str, test: &str) -> Option<Self> {
        let house = House::with(config);
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &house.path("data"));
        match mounted {
            Ok(mounted) => Some(Self { house, _mounted: mounted }),
            Err(reason) => {
                skip(test, &reason);
                None
            }
        }
    }

    /// Fills the disk. First waits until the index is closed, because the writer of the index would
    /// otherwise release space later.
    fn fill(&self) {
        let log = |suffix: &str| self.house.data().join(format!("index.db-{suffix}"));
        let is_quiet = || !log("wal").exists() && !log("shm").exists();
        until("the index is closed", || is_quiet().then_some(()));
        fill(&self.house.path("data/filler"));
    }

    fn empty(&self) {
        std::fs::remove_file(self.house.path("data/filler")).unwrap();
    }

    fn send(&self, number: &str) -> CommandOutput {
        self.house.send_text(&numbered("ping", number), &["--key", number])
    }

    /// Asserts that commands of operators end with the reason while the disk is full.
    fn refuses_operators(&self) {
        let message = "0192f4a8-7c3d-7a5e-8f21-1d2c3b4a5e6f";
        let commands: [&[&str]; 3] =
            [&["pause", "all"], &["resume", "solo", "--json"], &["refuse", message]];
        for command in commands {
            let refused = self.house.organism(command);
            assert_eq!(refused.code, Some(75), "{command:?}: {refused:?}");
            assert!(refused.err.contains("storage-full"), "{command:?}: {refused:?}");
        }
        let listed = self.house.command(&["approvals"]).output().unwrap();
        let listed = CommandOutput::from(listed);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        assert!(listed.err.contains("the disk is full"), "{listed:?}");
    }

    /// Sends a submission while the disk is full, and waits until the pump reports the full disk. The
    /// index may report it earlier, when the pump still accepts submissions.
    fn send_into(&self, number: &str) -> Child {
        self.house.write(number, numbered("ping", number));
        let mut command = self.house.command(&["send", number, "--as", "desk", "--key", number]);
        let reports = || self.house.log().matches("submissions are refused until").count();
        let before = reports();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("it is found full", || (reports() > before).then_some(()));
        child
    }
}

fn fill(filler: &Path) {
    let mut filler = File::create(filler).unwrap();
    let chunk = [0; 4096];
    while filler.write_all(&chunk).is_ok() {}
}

fn pong(number: &str) -> String {
    numbered("pong", number) + "\n"
}

#[test]
fn a_full_disk_refuses_at_once_and_accepts_again_without_a_restart() {
    let Some(room) = Room::new("a disk that is full") else { return };
    let mut campaign = Campaign::new("full disk, whole organism");
    let running = room.house.run();
    assert_eq!(room.send("before").out, pong("before"));
    let [mut refusal, mut acceptance] = [Duration::MAX; 2];
    for round in 0..2 {
        let usual = format!("usual{round}");
        assert_eq!(room.send(&usual).out, pong(&usual));
        room.fill();
        let first = room.send_into(&format!("first{round}"));
        for number in ["a", "b", "c"] {
            let begun = Instant::now();
            let refused = room.send(&format!("{number}{round}"));
            refusal = refusal.min(begun.elapsed());
            assert_eq!(refused.code, Some(75), "{refused:?}");
            assert!(refused.err.contains("storage-full"), "{refused:?}");
        }
        if round == 0 {
            room.refuses_operators();
        }
        room.empty();
        let begun = Instant::now();
        let number = format!("after{round}");
        until("it accepts again", || (room.send(&number).out == pong(&number)).then_some(()));
        let took = begun.elapsed();
        campaign.note(format!("3 refused, accepted {took:.2?} after there was room"));
        acceptance = acceptance.min(took);
        // Records that were decided before the disk was full keep their positions.
        let first: CommandOutput = first.wait_with_output().unwrap().into();
        assert_eq!((first.code, first.out), (Some(0), pong(&format!("first{round}"))));
        let log = room.house.log();
        assert!(log.contains("the journal accepts records again, after"), "{log}");
    }
    assert!(refusal.max(acceptance) < ANSWER_MAX, "{refusal:?}, {acceptance:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(room.house.recorded("ping"), 7);
    room.house.verified();
}

#[test]
fn a_full_disk_does_not_keep_it_from_being_stopped() {
    let config = format!("{SMALL}\n[alerts]\ncommand = [\"./notify\"]\n");
    let Some(room) = Room::with(&config, "stopping on a full disk") else { return };
    alerts::write_notify(&room.house, alerts::NOTIFY);
    let running = room.house.run();
    assert_eq!(room.send("before").out, pong("before"));
    room.fill();
    let first = room.send_into("first");
    let events = || alerts::events(&room.house, "record", "disk");
    until("its alert is raised", || (!events().is_empty()).then_some(()));
    assert_eq!(running.stop(), Some(75));
    let log = room.house.log();
    assert!(log.contains("organism: the disk is full"), "{log}");
    assert!(log.contains("the journal took no records within"), "{log}");
    assert!(!log.contains("some listeners did not finish"), "nothing is in flight: {log}");
    let first: CommandOutput = first.wait_with_output().unwrap().into();
    assert!(matches!(first.code, Some(69 | 75)) && first.out.is_empty(), "{first:?}");
    room.empty();
    assert_eq!(room.send("first").out, pong("first"));
    assert_eq!(room.house.recorded("ping"), 2);

    let running = room.house.run();
    let recorded = || alerts::recorded_events(&room.house, "disk");
    until("its alert is on record", || (recorded().len() == 4).then_some(()));
    assert_eq!(events(), [alerts::event("raised", 1), alerts::event("ended", 1)]);
    assert_eq!(running.stop(), Some(0));
    room.house.verified();
}

#[test]
fn a_start_on_a_full_disk_says_so_and_the_next_one_is_fine() {
    let Some(room) = Room::new("a start on a full disk") else { return };
    for journal in ["none yet", "one"] {
        room.fill();
        let refused = room.house.organism(&["run"]);
        assert_eq!(refused.code, Some(75), "{journal}: {refused:?}");
        let says = ["disk is full", "No space left on device"];
        assert!(says.iter().any(|full| refused.err.contains(full)), "{journal}: {refused:?}");
        room.empty();
        assert_eq!(room.send(journal).out, pong(journal));
    }
    room.house.verified();
}

/// Where the web view may not write in the directory of the journal, it uses a temporary index.
#[test]
fn a_web_view_answers_from_a_temporary_index_on_a_disk_that_it_may_not_write() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let count = |reader: &mut IndexReader| {
        let sql = "SELECT count(*) FROM message";
        let counted = reader.connection().query_row(sql, [], |row| row.get::<_, u64>(0));
        counted.map_err(|error| reader.failed(error))
    };
    let made = organism::index::read(&place.data(), &mut |_, _| {}, &mut |reader| count(reader));
    assert_eq!(made.unwrap(), 10);
    // With these files, the index could be read where it cannot be written.
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(place.data().join(format!("{INDEX_DATABASE}{suffix}"))).ok();
    }

    let at = place.data().with_file_name("read-only");
    let data = place.data();
    let mounted = Mounted::new(&["--bind", "-o", "ro", data.to_str().unwrap()], &at);
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a disk that may not be written", &reason),
    };
    let pool = IndexReaderPool::default();
    assert_eq!(pool.read_unless_far(&at, &mut |reader| count(reader)).unwrap(), None);
    pool.build(&at).unwrap();
    for _ in 0..2 {
        assert_eq!(pool.read_unless_far(&at, &mut |reader| count(reader)).unwrap(), Some(10));
    }
}

/// A first build that its disk has no room for gives back the space that it took.
#[test]
fn a_build_without_room_leaves_no_files() {
    let place = researched();
    let small = place.data().with_file_name("small");
    let journal = place.data().join(DATABASE);
    let kilobytes = journal.metadata().unwrap().len() / 1024 + 300;
    let size = format!("size={kilobytes}k");
    let mounted = match Mounted::new(&["-t", "tmpfs", "-o", &size, "tmpfs"], &small) {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a disk without room for a first build", &reason),
    };
    std::fs::copy(journal, small.join(DATABASE)).unwrap();
    let failed = organism::index::read(&small, &mut |_, _| {}, &mut |_| Ok(()));
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("index.db-building"), "{error}");
    let left = std::fs::read_dir(&small).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("building")).collect();
    assert!(left.is_empty(), "{left:?}");
    drop(mounted);
}

/// The records of a journal are durable in its write-ahead log. So a close succeeds on a disk
/// without room for their move into the file, and the next close with room moves them.
#[test]
fn a_journal_closes_on_a_full_disk_and_keeps_its_records() {
    let place = Place::new();
    let data = place.data();
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &data);
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a journal that closes on a full disk", &reason),
    };
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let mut records: Vec<_> = (0..1000).map(|_| script.boot(1)).collect();
    journal.append(&mut records).unwrap();
    let size = || data.join(DATABASE).metadata().unwrap().len();
    let before = size();
    let filler = data.join("filler");
    fill(&filler);
    journal.close(Time(0)).unwrap();
    assert_eq!(size(), before, "the disk had room");

    std::fs::remove_file(&filler).unwrap();
    place.open().unwrap().close(Time(0)).unwrap();
    assert!(size() > before);
    assert_eq!(place.records().len(), 1000);
}

/// Issue 17, 3.4: a full disk beneath the index stops only the index. The organism completes the
/// index once there is space again.
#[test]
fn a_full_disk_beneath_the_index_does_not_disturb_the_organism() {
    let house = House::with(SMALL);
    let small = house.path("small");
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &small);
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a disk of the index that is full", &reason),
    };
    std::fs::create_dir_all(house.data()).unwrap();
    std::os::unix::fs::symlink(small.join("index.db"), house.data().join("index.db")).unwrap();
    let sent = |number: &str| {
        let sent = house.send_text(&numbered("ping", number), &["--key", number]);
        assert_eq!(sent.out, pong(number), "{sent:?}");
    };
    let counted = || {
        let counted = house.organism(&["sql", "--csv", "SELECT count(*) FROM thread"]);
        counted.out.lines().nth(1).map(str::to_owned)
    };

    let running = house.run();
    sent("a");
    until("the index is there", || (counted()? == "2").then_some(()));
    assert_eq!(running.stop(), Some(0));

    let filler = small.join("filler");
    fill(&filler);
    let running = house.run();
    let failed = || house.log().contains("the index could not be brought up to date");
    until("the index has no room", || failed().then_some(()));
    sent("b");
    std::fs::remove_file(&filler).unwrap();
    until("it is up to date", || house.log().contains("the index is up to date").then_some(()));
    assert_eq!(counted().as_deref(), Some("3"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Issue 17, 5.1: if the disk is full while a snapshot is made, only this snapshot is lost. The
/// organism keeps working. If it is killed, its next start continues from the previous snapshot.
/// The next snapshot is made once there is space.
#[test]
fn a_full_disk_beneath_a_snapshot_costs_that_snapshot_alone() {
    let house = House::settled(CONFIG);
    std::fs::create_dir_all(house.state()).unwrap();
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &house.state());
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a disk of the snapshots that is full", &reason),
    };
    let before = snapshots::killed_after_a_snapshot(&house);

    let running = snapshots::run(&house, None);
    assert!(house.log().contains(snapshots::CONTINUES), "{}", house.log());
    let filler = house.state().join("filler");
    fill(&filler);
    until("no snapshot can be made", || {
        snapshots::decide(&house);
        house.log().contains("no snapshot could be made").then_some(())
    });
    let warned = house.log();
    let warned = warned.lines().find(|line| line.contains("no snapshot could be made")).unwrap();
    assert!(
        warned.contains(house.state().to_str().unwrap()),
        "the warning names the disk: {warned}"
    );
    assert_eq!(snapshots::snapshot(&house), Some(before), "the snapshot before stays");
    assert_eq!(house.send_text(&say("two"), &["--key", "k-2"]).out, talk_reply("two"));
    drop(running);

    fill(&house.state().join("rest"));
    drop(snapshots::run(&house, None));
    assert!(house.log().contains("every record is read"), "{}", house.log());
    assert_eq!(snapshots::snapshot(&house), Some(before), "a start on a full disk keeps it");

    std::fs::remove_file(&filler).unwrap();
    let running = snapshots::run(&house, None);
    assert!(house.log().contains(snapshots::CONTINUES), "{}", house.log());
    for (text, key) in [("one", "k-1"), ("two", "k-2")] {
        assert_eq!(house.send_text(&say(text), &["--key", key]).out, talk_reply(text));
    }
    assert_eq!(house.recorded("say"), 2, "repeated keys are answered from the record");
    snapshots::decide(&house);
    until("a snapshot is made", || snapshots::snapshot(&house).filter(|at| *at != before));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// SQLite leaves holes in the shared memory of a write-ahead log if the blocks of the file system
/// are smaller than 4 KiB. On a full disk, a write to a hole ends the process with SIGBUS.
#[test]
fn a_full_disk_with_small_blocks_ends_no_command_with_a_signal() {
    if is_streamed() {
        return;
    }
    let house = House::with(SMALL);
    let image = house.path("image");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let image = image.to_str().unwrap();
    let made = succeeds("mkfs.ext4", &["-q", "-F", "-b", "1024", "-m", "0", image]);
    let options = ["-t", "ext4", "-o", "loop", image];
    let mounted = made.and_then(|()| Mounted::new(&options, &house.path("data")));
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return skip("a full disk with small blocks", &reason),
    };
    let sent = house.send_text(&numbered("ping", "1"), &["--key", "1"]);
    assert_eq!(sent.out, pong("1"), "{sent:?}");

    let filler = house.path("data/filler");
    fill(&filler);
    // SQLite needs only 8 of the 32 KiB for its file, and then writes to the holes.
    let full = filler.metadata().unwrap().len();
    let filler = File::options().write(true).open(filler).unwrap();
    filler.set_len(full - (12 << 10)).unwrap();
    filler.sync_all().unwrap();
    house.write("ping.xml", numbered("ping", "2"));
    let send = &["send", "--as", "desk", "--key", "2", "ping.xml"];
    for command in [&["verify"][..], &["threads"], send] {
        let refused = CommandOutput::from(house.command(command).output().unwrap());
        assert_eq!(refused.code, Some(75), "{command:?}: {refused:?}");
        assert!(refused.err.contains("no room to read"), "{command:?}: {refused:?}");
    }
    // Without permission to write, SQLite needs no room.
    let mounted = house.path("data");
    let mounted = mounted.to_str().unwrap();
    drop(filler);
    // A program that another test starts at this moment has the filler open until it is executed.
    until("nothing writes", || succeeds("mount", &["-o", "remount,ro", mounted]).ok());
    let verified = house.organism(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    succeeds("mount", &["-o", "remount,rw", mounted]).unwrap();

    let filler = File::options().write(true).open(house.path("data/filler")).unwrap();
    filler.set_len(0).unwrap();
    filler.sync_all().unwrap();
    let sent = house.send_text(&numbered("ping", "2"), &["--key", "2"]);
    assert_eq!(sent.out, pong("2"), "{sent:?}");
    house.verified();
}

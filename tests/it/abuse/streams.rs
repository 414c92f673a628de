//! A hundred answers that stream in at once. The organism's memory grows with the texts that agents
//! keep, whose size is bounded, and not with the number of streamed bytes.
#![cfg(target_os = "linux")]

mod server;

use organism::limits;

use super::judge;
use crate::campaign::Campaign;
use crate::organism::{House, Running};
use crate::pump::world::word;
use server::{Server, noise, text};

const STREAMS: usize = 100;
const FEW: usize = 8;
/// Bytes of memory that the organism may keep for each byte of a text. The organism keeps the text
/// itself and a copy in the extractor, and both buffers may have spare capacity.
const ROOM: usize = 6;

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["mind"]

[models.slow]
provider = "openai-compatible"
model = "slow"
base_url = "http://127.0.0.1:PORT/v1"
concurrency = 100
attempts = 1

[agents.mind]
schema = "words.xsd"
accepts = ["plan"]
final = "answer"
model = "slow"
concurrency = 100
attempts = 1
timeout = "300s"
"#;

fn house(server: &Server) -> House {
    let house = House::with(&CONFIG.replace("PORT", &server.port.to_string()));
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    std::fs::copy(words, house.path("words.xsd")).unwrap();
    house
}

/// Peak memory of the organism in bytes, after it has read this number of simultaneous streams to
/// their end.
fn most_held(house: &House, running: &Running, server: &Server, streams: usize) -> usize {
    // The server sends each file once.
    let folder = tempfile::tempdir_in(house.path("")).unwrap();
    for number in 0..streams {
        let text = format!("{} {number}", folder.path().display());
        std::fs::write(folder.path().join(format!("{number}.xml")), word("plan", &text)).unwrap();
    }
    let each = folder.path().display().to_string();
    let sent = house.organism(&["send", "--each", &each, "--as", "desk", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    server.wait_for(streams);
    server.release();
    judge::quiet(house);
    let path = format!("/proc/{}/status", running.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_hundred_long_streams_at_once_take_no_more_room_than_short_ones() {
    let mut campaign = Campaign::new("a hundred streams");
    let server = Server::start();
    let house = house(&server);
    let running = house.run();
    let mut held = |event: &str, times: usize, streams: usize| {
        server.says(event, times);
        let bytes = most_held(&house, &running, &server, streams);
        let sent = event.len() * times;
        campaign.note(format!("{} KiB each: {} MiB", sent >> 10, bytes >> 20));
        (bytes, sent)
    };
    // Every thread of the program allocates from a heap of its own, which the first streams fill.
    for _ in 0..2 {
        held(&noise(), 32, STREAMS);
    }
    // Streams without kept content: first short, then long.
    let ((short, some), (long, more)) = (held(&noise(), 32, STREAMS), held(&noise(), 240, STREAMS));
    let grown = long.saturating_sub(short);
    assert!(grown < STREAMS * (more - some) / 4, "{grown} bytes more for longer streams");
    // Streams with much more text than a turn may have; the organism bounds both copies of it.
    let piece = text(&"all work and no play ".repeat(100));
    let (over, _) = held(&piece, limits::TURN_BYTES_MAX * 3 / 2_100, FEW);
    let kept = over.saturating_sub(long) / FEW;
    assert!(kept < ROOM * limits::TURN_BYTES_MAX, "{kept} bytes for each text that is too long");
    assert_eq!(running.stop(), Some(0));
    let tally = judge::assert_house_kept(&house);
    assert_eq!(tally.in_flight(), 0);
}

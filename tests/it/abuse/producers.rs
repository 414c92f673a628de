//! Sixty-four producers on one thread, and a single client on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use organism::envelope::RefusalRule;
use organism::pump::core::{Receipt, Target};

use super::size;
use super::stage::{Stage, name, native};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::pump::world::word;

const PRODUCERS: usize = 64;

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
messages = 100000000

[clients.desk]
peers = ["flooded", "stranger"]

[listeners.flooded]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["look"]
replies = ["found"]
instances = 4
backlog = BACKLOG

[listeners.stranger]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["secret"]
replies = ["ballot"]
"#;

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    busy: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_producers_on_one_thread_get_busy_and_delay_no_other_client() {
    let refused = flood(32).await;
    assert!(refused > 0, "somebody is told to wait");
}

/// Sixty-four producers delay no other client, even if the limit of the backlog is so high that no
/// submission is refused as `busy`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_accepted_producers_on_one_thread_delay_no_other_client() {
    flood(1_000_000).await;
}

/// Runs sixty-four producers that submit again as soon as they have their receipt. Returns the
/// number of refusals.
async fn flood(backlog: u32) -> u64 {
    let mut campaign = Campaign::new("producers on one thread");
    let flooded = native("flooded", |_| vec![word("found", "f")]);
    let stranger = native("stranger", |_| vec![word("ballot", "it")]);
    let stage = Stage::start(
        House::with(&CONFIG.replace("BACKLOG", &backlog.to_string())),
        vec![flooded, stranger],
    )
    .await;
    let secret = word("secret", "unrelated");
    let asks = size(100, 1_000);
    stage.waits("desk", &secret, 20).await;
    let idle = stage.waits("desk", &secret, asks).await;
    let (thread, _) = stage.ask("desk", &word("look", "first")).await;
    let counts = Arc::new(Counts::default());
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let (handle, thread) = (stage.organism.handle(), thread.to_string());
            let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
            tokio::spawn(async move {
                let (desk, look) = (name("desk"), word("look", "x"));
                while !stop.load(Ordering::Relaxed) {
                    let target = Target::Thread { id: thread.clone() };
                    let sent = handle.submit(&desk, target, None, look.as_bytes()).await;
                    match sent.unwrap().0 {
                        Receipt::Accepted { .. } => counts.accepted.fetch_add(1, Ordering::Relaxed),
                        Receipt::Refused { refusal, retry_after } => {
                            assert_eq!(refusal.rule, RefusalRule::Busy);
                            assert!(retry_after.is_some());
                            counts.busy.fetch_add(1, Ordering::Relaxed)
                        }
                        other => panic!("{other:?}"),
                    };
                }
            })
        })
        .collect();
    let busy = stage.waits("desk", &secret, asks).await;
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.unwrap();
    }
    let ratio = busy.part(99).as_secs_f64() / idle.part(99).as_secs_f64();
    let median = busy.part(50).as_secs_f64() / idle.part(50).as_secs_f64();
    let accepted = counts.accepted.load(Ordering::Relaxed);
    let refused = counts.busy.load(Ordering::Relaxed);
    let [busy, idle] = [busy, idle].map(|waits| format!("{:.1?}", waits.part(99)));
    campaign.note(format!(
        "{PRODUCERS} producers, room for {backlog}: {accepted} accepted, {refused} busy; another's \
         p99 {busy} against {idle} idle: {ratio:.1} ×, p50 {median:.1} ×"
    ));
    let (_, tally) = stage.end().await;
    assert_eq!(tally.refused, refused, "each on record");
    // Each submission has a call and a reply, and the run has boot and shutdown notes.
    let calls = accepted + 1 + 2 * asks as u64 + 20;
    assert!(tally.accepted >= 2 * calls && tally.accepted <= 2 * calls + 4, "{tally:?}, {calls}");
    // Each request of the other client asserts its own success. The rate is only printed, because
    // it depends on the machine.
    refused
}

//! A stopping organism reports its open calls, and the processes that it ends by force.

use super::{CONFIG, House, numbered, say, talk_reply};

/// F17: open calls, including held ones, are reported when a run stops or when a command with its
/// own organism ends. The command reports only those of threads that it has changed.
#[test]
fn open_work_at_the_end_is_logged() {
    let held = CONFIG.replace("[\"ping\"]", "[\"ping\"]\napproval = \"always\"");
    let house = House::with(&held);
    let sent = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    let told = |text: &str| text.contains("open work: 1 call (sess-") && text.contains(": solo)");
    assert!(told(&sent.err), "{sent:?}");
    assert!(sent.err.contains("1 held; this work continues at the next start"), "{sent:?}");
    let other = house.send_text(&say("hello"), &[]);
    assert_eq!(other.out, talk_reply("hello"));
    assert!(!other.err.contains("open work"), "it is the work of another thread: {other:?}");
    let running = house.run();
    assert_eq!(running.stop(), Some(0));
    assert!(told(&house.log()), "{}", house.log());
}

#[test]
fn an_end_without_open_work_logs_nothing() {
    let house = House::with_echo();
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.out, talk_reply("hello"));
    assert_eq!(sent.err.lines().count(), 1, "the thread's id and nothing else: {}", sent.err);
}

/// F17: processes that a listener leaves behind are killed and reported.
#[test]
fn processes_left_behind_are_reported() {
    let house = House::new();
    house.write("clingy.sh", "sleep 600 >/dev/null 2>&1 &\necho $! > pid\nexec ./player.pl echo\n");
    let clingy = CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"sh\", \"clingy.sh\"]");
    house.write("organism.toml", clingy);
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.out, talk_reply("hello"), "{sent:?}");
    assert!(sent.err.contains("left processes in its group, which are killed"), "{sent:?}");
    let pid = std::fs::read_to_string(house.path("pid")).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
    let gone = status.map_or(true, |status| status.contains("State:\tZ"));
    assert!(gone, "{pid} still runs");
}

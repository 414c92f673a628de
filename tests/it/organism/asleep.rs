//! The time in which a pump does not run, because its process is stopped or the machine is
//! suspended.

use std::time::{Duration, Instant};

use super::{CONFIG, House, numbered, until};

#[test]
fn time_in_which_the_pump_stood_still_is_not_its_listeners() {
    let short =
        CONFIG.replacen("accepts = [\"hold\"]", "accepts = [\"hold\"]\ntimeout = \"2s\"", 1);
    let house = House::with(&short);
    let running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--new", "sess-hold0000"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    running.signal("-STOP");
    house.write("let-go", "");
    let due = Instant::now() + Duration::from_secs(4);
    until("its time was over long ago", || (Instant::now() >= due).then_some(()));
    running.signal("-CONT");
    until("it is answered", || (house.recorded("held") == 1).then_some(()));
    let shown = house.organism(&["thread", "sess-hold0000"]);
    assert!(shown.out.starts_with("sess-hold0000  completed"), "{}", shown.out);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

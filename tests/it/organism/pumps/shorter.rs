//! The servers lose the end of the stream: an older copy of their store is put back.

use super::{House, Server, ask, host, stream};

/// Runs an organism that answers these, and stops it.
fn answer(house: &House, numbers: std::ops::Range<u32>) {
    let running = house.run();
    for number in numbers {
        ask(house, &number.to_string());
    }
    assert_eq!(running.stop(), Some(0));
}

/// The server goes back to what it had before numbers 3 and 4 were answered on `house`.
fn goes_back(server: &Server, house: &House) {
    answer(house, 1..3);
    server.kill();
    let before = server.copy_store();
    server.restart();
    answer(house, 3..5);
    server.kill();
    server.put_back(&before);
    server.restart();
}

#[test]
fn a_store_that_went_back_gets_no_pump_and_every_command_names_what_shows_more() {
    let server = Server::start();
    let house = host(&server, &stream("back"));
    goes_back(&server, &house);
    for command in [&["run"][..], &["send", "organism.toml", "--as", "desk"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("but more was acknowledged"), "{refused:?}");
        assert!(refused.err.contains("the projection in"), "{refused:?}");
        assert!(refused.err.contains("the watermark in"), "{refused:?}");
        assert!(refused.err.contains("organism repair"), "{refused:?}");
        assert!(refused.err.contains("docs/errors/stream-shorter.md"), "{refused:?}");
    }
    assert_eq!(house.recorded("pong"), 4, "the projection keeps what the servers lost");
}

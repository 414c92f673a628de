//! Commands, organisms and pumps of different versions refuse each other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use organism::service::encoding::VERSION;
use organism::service::socket_path;

use super::{House, say, talk_reply};

/// Sends one line to the control socket. Returns the whole response.
fn exchange(house: &House, line: impl AsRef<[u8]>) -> String {
    let mut socket = UnixStream::connect(socket_path(&house.data())).unwrap();
    socket.write_all(&[line.as_ref(), b"\n"].concat()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_of_another_version_is_refused_with_both_versions() {
    let house = House::new();
    let running = house.run();
    let ours = format!("this organism speaks version {VERSION}");

    // Commands from before service versions read plain JSON.
    let first = exchange(&house, "{\"do\":\"status\"}");
    assert!(first.starts_with("{\"failed\":\""), "{first}");
    assert!(first.contains("of version 1 of the service protocol"), "{first}");
    assert!(first.contains(&ours), "{first}");

    let later = VERSION + 1;
    let newer = exchange(&house, format!("organism/{later} {{\"do\":\"unheard-of\"}}"));
    assert!(newer.starts_with(&format!("organism/{VERSION} ")), "{newer}");
    assert!(newer.contains(&format!("of version {later} of the service protocol")), "{newer}");
    assert!(newer.contains(&ours), "{newer}");

    assert_eq!(house.send_text(&say("same"), &[]).out, talk_reply("same"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn bytes_that_are_not_utf8_get_a_response_that_says_so() {
    let house = House::new();
    let running = house.run();

    for garbage in [&b"\xff\xfe"[..], b"{\"do\":\"\xc3\"}"] {
        let ours = [format!("organism/{VERSION} ").as_bytes(), garbage].concat();
        let answer = exchange(&house, &ours);
        assert!(answer.starts_with(&format!("organism/{VERSION} ")), "{answer}");
        assert!(answer.contains("not a request"), "{answer}");

        let unnamed = exchange(&house, garbage);
        assert!(unnamed.starts_with("{\"failed\":\""), "{unnamed}");
    }

    assert_eq!(house.send_text(&say("after"), &[]).out, talk_reply("after"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_command_refuses_an_organism_of_another_version_and_names_both() {
    let answers = [("{\"failed\":\"not a request\"}", 1), ("organism/9 {}", 9)];
    for (answer, version) in answers {
        let house = House::settled(super::CONFIG);
        assert_eq!(house.send_text(&say("first"), &[]).out, talk_reply("first"));
        // This test holds the journal, as an organism of another version would.
        let _lock = organism::journal::sqlite::hold(&house.data(), &house.state()).unwrap();
        let socket = UnixListener::bind(socket_path(&house.data())).unwrap();
        let serving = std::thread::spawn(move || {
            let mut requests = Vec::new();
            while requests.is_empty() {
                let (stream, _) = socket.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                // A command first checks whether any process answers at the socket.
                if !line.is_empty() {
                    writeln!(&stream, "{answer}").unwrap();
                    requests.push(line);
                }
            }
            requests
        });

        let refused = house.send_text(&say("second"), &[]);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        let both = format!("speaks version {version} of the service protocol");
        assert!(refused.err.contains(&both), "{refused:?}");
        assert!(refused.err.contains(&format!("this command version {VERSION}")), "{refused:?}");
        let requests = serving.join().unwrap();
        assert!(requests[0].starts_with(&format!("organism/{VERSION} ")), "{requests:?}");
    }
}

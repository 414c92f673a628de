//! Commands, organisms and pumps of different versions refuse each other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use organism::bus::nats::AGENT_PROTOCOL_VERSION;
use organism::pump::core::CORE_VERSION;
use organism::service::encoding::VERSION;
use organism::service::socket_path;

use super::{CommandOutput, House, say, talk_reply};

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
    let house = House::with_echo();
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

/// `--version` states the version of each format and protocol, because two programs of one version
/// may differ in these.
#[test]
fn the_long_version_of_the_program_states_its_formats() {
    let house = House::new();
    let long = house.organism(&["--version"]);
    let short = house.organism(&["-V"]);
    assert_eq!((long.code, short.code), (Some(0), Some(0)), "{long:?} {short:?}");
    let formats = format!(
        "journal format {}, stream format {}, core version {CORE_VERSION}, service protocol \
         {VERSION}, agent protocol {AGENT_PROTOCOL_VERSION}\n",
        organism::journal::FORMAT,
        organism::journal::jetstream::STREAM_FORMAT
    );
    assert_eq!(long.out, format!("{}{formats}", short.out));
}

#[test]
fn bytes_that_are_not_utf8_get_a_response_that_says_so() {
    let house = House::with_echo();
    let running = house.run();

    for garbage in [&b"\xff\xfe"[..], b"{\"do\":\"\xc3\"}"] {
        let ours = [format!("organism/{VERSION} ").as_bytes(), garbage].concat();
        let answer = exchange(&house, &ours);
        assert!(answer.starts_with(&format!("organism/{VERSION} ")), "{answer}");
        assert!(answer.contains(&format!("not a request of version {VERSION}")), "{answer}");

        let unnamed = exchange(&house, garbage);
        assert!(unnamed.starts_with("{\"failed\":\""), "{unnamed}");
    }

    assert_eq!(house.send_text(&say("after"), &[]).out, talk_reply("after"));
    assert_eq!(running.stop(), Some(0));
}

/// Sends a payload to an organism of another program. Returns the output of the command and the
/// requests.
fn sent_to_other_program(answer: &str) -> (CommandOutput, Vec<String>) {
    let house = House::settled(super::CONFIG);
    assert_eq!(house.send_text(&say("first"), &[]).out, talk_reply("first"));
    beside_other_program(&house, answer, || house.send_text(&say("second"), &[]))
}

/// Runs `command` while a process of another program holds the journal and gives `answer` to
/// every request. Returns the output of the command and the requests.
fn beside_other_program(
    house: &House,
    answer: &str,
    command: impl FnOnce() -> CommandOutput,
) -> (CommandOutput, Vec<String>) {
    // This test holds the journal, as an organism of another program would.
    let _lock = organism::journal::sqlite::hold(&house.data(), &house.state()).unwrap();
    let socket = UnixListener::bind(socket_path(&house.data())).unwrap();
    let answer = answer.to_owned();
    let serving = std::thread::spawn(move || {
        let mut requests = Vec::new();
        loop {
            let (stream, _) = socket.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line == "end\n" {
                return requests;
            }
            // A command first checks whether any process answers at the socket.
            if !line.is_empty() {
                writeln!(&stream, "{answer}").unwrap();
                requests.push(line);
            }
        }
    });

    let output = command();
    UnixStream::connect(socket_path(&house.data())).unwrap().write_all(b"end\n").unwrap();
    (output, serving.join().unwrap())
}

#[test]
fn a_command_refuses_an_organism_of_another_version_and_names_both() {
    let answers = [("{\"failed\":\"not a request\"}", 1), ("organism/9 {}", 9)];
    for (answer, version) in answers {
        let (refused, requests) = sent_to_other_program(answer);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        let both = format!("speaks version {version} of the service protocol");
        assert!(refused.err.contains(&both), "{refused:?}");
        assert!(refused.err.contains(&format!("this command version {VERSION}")), "{refused:?}");
        assert!(requests[0].starts_with(&format!("organism/{VERSION} ")), "{requests:?}");
    }
}

#[test]
fn an_unknown_response_of_the_same_version_is_no_refusal_and_names_the_version() {
    let (unread, _) = sent_to_other_program(&format!("organism/{VERSION} {{\"unheard-of\":1}}"));
    assert_eq!(unread.code, Some(69), "{unread:?}");
    let both = format!("both speak version {VERSION} of the service protocol");
    for part in ["cannot read", &both, "may have been carried out"] {
        assert!(unread.err.contains(part), "{part}: {unread:?}");
    }
}

#[test]
fn retries_end_at_an_organism_of_another_program_as_other_commands_do() {
    let unknown = format!("organism/{VERSION} {{\"unheard-of\":1}}");
    for (answer, reason) in [("organism/9 {}", "speaks version 9"), (&*unknown, "both speak")] {
        let house = House::settled(super::CONFIG);
        for _ in 0..2 {
            assert_eq!(house.send_text("<nonsense/>", &[]).code, Some(65));
        }
        let listed = house.organism(&["retry", "--json"]);
        assert_eq!(listed.json().len(), 2, "{listed:?}");

        let retry = || house.run_once(&["retry", "--all"]);
        let (refused, _) = beside_other_program(&house, answer, retry);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        assert!(refused.err.contains(reason), "{refused:?}");
        // The second message is not sent.
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
    }
}

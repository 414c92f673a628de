//! A repeated key returns the result of the first request, byte for byte, and has no further
//! effect.

use super::{House, TALK, numbered, say};

/// A config with an agent, a group, a chain, a listener that crashes, and a listener whose answer
/// is empty.
pub const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer", "solo", "twin", "front", "broken", "mute"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
peers = ["solo", "twin"]

[models.recorded]
provider = "playback"
recording = "turns.toml"

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[listeners.twin]
command = ["./player.pl", "twin"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[listeners.front]
command = ["./player.pl", "front"]
schema = "talk.xsd"
accepts = ["order"]
replies = ["done"]
peers = ["back"]

[listeners.back]
command = ["./player.pl", "back"]
schema = "talk.xsd"
accepts = ["work"]
replies = ["worked"]

[listeners.broken]
command = ["./player.pl", "broken"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
attempts = 1

[listeners.mute]
command = ["perl", "mute.pl"]
schema = "talk.xsd"
accepts = ["held"]
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '''<thinking>Both of them know.</thinking>
<ping xmlns="urn:example:talk"><n>1</n></ping>'''

[[turn]]
agent = "writer"
turn = 2
text = '''<thinking>That is enough.</thinking><clear-context keep="1"/>'''

[[turn]]
agent = "writer"
turn = 3
text = '''<thinking>Now the answer.</thinking>
<said xmlns="urn:example:talk">the “answer” &amp; no more</said>'''

[[turn]]
agent = "writer"
turn = 4
text = '''<thinking>Once more.</thinking><said xmlns="urn:example:talk">again</said>'''
"#;

const MUTE: &str = r#"
while (sysread(STDIN, my $data, 65536)) {
    syswrite(STDOUT, "\0" x ($data =~ tr/\0//));
}
"#;

pub fn furnish(house: &House) {
    house.write("turns.toml", TURNS);
    house.write("mute.pl", MUTE);
}

/// A request of each kind, with its key and the exit code of its `send`.
fn requests() -> [(&'static str, String, i32); 5] {
    let held = format!("<held xmlns=\"{TALK}\"><n>1</n></held>");
    [
        ("agent", say("write"), 0),
        ("group", numbered("ping", "7"), 0),
        ("chain", numbered("order", "8"), 0),
        ("fault", numbered("hold", "9"), 1),
        ("nothing", held, 0),
    ]
}

/// For each request: its key, the output of `send`, and the lines of `send --json`.
type Results = Vec<(String, String, Vec<String>)>;

/// Sends every request twice with its key: once with `send`, and once with `send --json`.
pub fn send_all(house: &House) -> Results {
    let of = |(key, text, code): &(&str, String, i32)| {
        let sent = house.send_text(text, &["--key", key]);
        assert_eq!(sent.code, Some(*code), "{key}: {sent:?}");
        let json = house.send_text(text, &["--key", key, "--json"]);
        assert_eq!(json.code, Some(*code), "{key}: {json:?}");
        let lines = json.out.lines().skip(1).map(str::to_owned).collect();
        ((*key).to_owned(), sent.out, lines)
    };
    requests().iter().map(of).collect()
}

/// Sends every request once, with `send --json`. Returns the results in the form of [`send_all`].
pub fn first_results(house: &House) -> Results {
    let of = |(key, text, code): &(&str, String, i32)| {
        let json = house.send_text(text, &["--key", key, "--json"]);
        assert_eq!(json.code, Some(*code), "{key}: {json:?}");
        let lines: Vec<_> = json.out.lines().skip(1).map(str::to_owned).collect();
        let payloads = json.json().into_iter().skip(1).flat_map(|result| {
            let replies = result["replies"].as_array().unwrap().clone();
            replies.into_iter().map(|reply| format!("{}\n", reply["payload"].as_str().unwrap()))
        });
        ((*key).to_owned(), payloads.collect(), lines)
    };
    requests().iter().map(of).collect()
}

#[test]
fn a_repeated_key_gets_every_kind_of_result_byte_for_byte() {
    let house = House::with(CONFIG);
    furnish(&house);
    let first = first_results(&house);
    assert_eq!(first[0].1, format!("<said xmlns=\"{TALK}\">the “answer” &amp; no more</said>\n"));
    let names = ["say", "ping", "order", "work", "hold", "held"];
    let messages = || names.map(|name| house.recorded(name));
    assert_eq!(send_all(&house), first, "a command that starts an organism of its own");
    let running = house.run();
    let before = messages();
    assert_eq!(send_all(&house), first, "a running organism");
    assert_eq!(messages(), before, "nothing is done twice");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_repeated_key_in_a_thread_gets_the_result_of_its_own_request() {
    let house = House::with(CONFIG);
    furnish(&house);
    let send = |key: &str, more: &[&str]| {
        let mut arguments = vec!["--key", key, "--json"];
        arguments.extend(more);
        let sent = house.send_text(&say("write"), &arguments);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
        let result: Vec<_> = sent.out.lines().skip(1).map(str::to_owned).collect();
        (thread, result)
    };
    let (thread, first) = send("one", &[]);
    let (_, second) = send("two", &["--thread", &thread]);
    assert_ne!(first, second);
    assert_eq!(send("one", &[]), (thread.clone(), first.clone()));
    assert_eq!(send("two", &["--thread", &thread]), (thread.clone(), second));
    // The key alone identifies the request.
    assert_eq!(send("one", &["--thread", &thread]), (thread, first));
}

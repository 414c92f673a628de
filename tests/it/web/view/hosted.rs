//! A process that the organism hosts asks the web view for a page.

use super::ViewServer;
use crate::organism::{House, TALK, say};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["commander"]

[listeners.commander]
command = ["./commander.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
"#;

/// Requests a page with a cookie, and prints the status of the response. With `hidden`, the process
/// first hides its open files from other processes of its user.
const ASK: &str = r#"#!/usr/bin/env -S python3 -S
import ctypes, http.client, sys
address, cookie, *hidden = sys.argv[1:]
if hidden:
    PR_SET_DUMPABLE = 4
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
connection = http.client.HTTPConnection(address)
connection.request("GET", "/threads", headers={"Cookie": cookie})
print("status", connection.getresponse().status, file=sys.stderr)
"#;

#[test]
fn a_hosted_process_gets_no_page_even_with_the_cookie() {
    let house = House::with(CONFIG);
    house.copy("commander.py");
    house.write("payload.xml", "");
    house.write("ask.py", ASK);
    let made = std::process::Command::new("chmod").arg("+x").arg(house.path("ask.py")).status();
    assert!(made.unwrap().success());
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_UNDER_TEST", house.path("ask.py"));
    let running = house.run_with(command);

    let view = ViewServer::start(&house, &[]);
    let request = format!("{} {}", view.at, view.cookie);
    let own = std::process::Command::new(house.path("ask.py")).args(request.split(' ')).output();
    assert_eq!(String::from_utf8(own.unwrap().stderr).unwrap(), "status 200\n");

    for mode in ["plain", "unmarked", "detached"] {
        for hidden in ["", " hidden"] {
            let sent = house.send_text(&say(&format!("{mode} {request}{hidden}")), &[]);
            let expected = format!("<said xmlns=\"{TALK}\">0 status 403</said>\n");
            assert_eq!(sent.out, expected, "{mode}{hidden}: {sent:?}");
        }
    }
    assert_eq!(view.get("/threads").status, 200);
    assert_eq!(running.stop(), Some(0));
}

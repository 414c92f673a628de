//! A process that the organism hosts asks the web view for a page.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ViewServer;
use crate::organism::kill::torture;
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

/// Program that requests a page with a cookie, and prints the status of the response. `hidden`
/// names the way in which the program first hides the socket of the connection. With `files`, other
/// processes of the user cannot see the program's open files. With `transit`, the program sends the
/// socket to itself and leaves it in transit. With `thread`, a thread with open files of its own
/// opens the socket. With `live`, the program hides nothing, and requests the events of a live
/// page.
const ASK: &str = r#"#!/usr/bin/env -S python3 -S
import array, ctypes, select, socket, sys, threading
address, cookie, *hidden = sys.argv[1:]
PR_SET_DUMPABLE, CLONE_FILES = 4, 0x400
libc = ctypes.CDLL(None)
path = "/live/threads" if hidden == ["live"] else "/threads"
request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n".encode()

def ask():
    if hidden == ["files"]:
        assert libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    if hidden == ["thread"]:
        assert libc.unshare(CLONE_FILES) == 0
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)))
    if hidden == ["transit"]:
        connection = send_from_transit(connection)
    else:
        connection.sendall(request)
    print("status", connection.recv(4096).split()[1].decode(), file=sys.stderr)

def send_from_transit(connection):
    # A corked socket sends its last part after some time: it is on its way by then.
    answered = select.epoll()
    answered.register(connection, select.EPOLLIN)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    connection.sendall(request)
    here, there = socket.socketpair()
    rights = array.array("i", [connection.fileno()])
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    connection.close()
    assert answered.poll(30)
    _, files, _, _ = there.recvmsg(1, socket.CMSG_SPACE(4))
    return socket.socket(fileno=array.array("i", files[0][2][:4])[0])

asking = threading.Thread(target=ask)
asking.start()
asking.join()
"#;

#[test]
fn a_hosted_process_gets_no_page_even_with_the_cookie() {
    let house = House::with(CONFIG);
    house.copy("commander.py");
    house.write("payload.xml", "");
    house.write("ask.py", ASK);
    let made = Command::new("chmod").arg("+x").arg(house.path("ask.py")).status();
    assert!(made.unwrap().success());
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_UNDER_TEST", house.path("ask.py"));
    let running = house.run_with(command);

    let view = ViewServer::start(&house, &[]);
    let request = format!("{} {}", view.at, view.cookie);
    for hidden in ["", " files", " thread", " live"] {
        let arguments = format!("{request}{hidden}");
        let own = Command::new(house.path("ask.py")).args(arguments.split(' ')).output();
        assert_eq!(String::from_utf8(own.unwrap().stderr).unwrap(), "status 200\n", "{hidden}");
    }

    for mode in ["plain", "unmarked", "detached"] {
        for hidden in ["", " files", " thread", " transit", " live"] {
            let sent = house.send_text(&say(&format!("{mode} {request}{hidden}")), &[]);
            let expected = format!("<said xmlns=\"{TALK}\">0 status 403</said>\n");
            assert_eq!(sent.out, expected, "{mode}{hidden}: {sent:?}");
        }
    }
    assert_eq!(view.get("/threads").status, 200);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_client_gets_its_pages_while_it_starts_processes_that_end_at_once() {
    let house = House::with_echo();
    let running = house.run();
    let view = ViewServer::start(&house, &[]);
    let is_done = AtomicBool::new(false);
    // A new process has all open files of its parent until it runs its program, so it counts among
    // the owners of the client's socket, and may be gone by the time its parents are looked up.
    let start_processes = || {
        while !is_done.load(Ordering::Relaxed) {
            assert!(Command::new("true").status().unwrap().success());
        }
    };

    let requests = if torture() { 100 } else { 6 };
    let refused = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(start_processes);
        }
        let refused = (0..requests).filter(|_| view.get("/threads").status != 200).count();
        is_done.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, 0, "of {requests} requests");
    assert_eq!(running.stop(), Some(0));
}

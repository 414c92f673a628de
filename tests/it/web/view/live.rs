//! Live pages: the events that the server sends, the requests that it refuses, and the pages in a
//! real Chromium.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use organism::index::INDEX_LOCK;
use organism::limits;
use serde_json::{Value as Json, json};

use super::browser::{PYTHON, chromium, repository};
use super::{ViewServer, header, on_terminal};
use crate::organism::model_calls::{CONFIG, THREAD, end, house, sending};
use crate::organism::provider::{Provider, ScriptedResponse};
use crate::organism::{House, PATIENCE, TALK, say, until};

/// An open stream of server-sent events.
pub struct EventStream(BufReader<TcpStream>);

impl EventStream {
    pub fn open(view: &ViewServer, path: &str) -> Self {
        Self::try_open(view, path).unwrap_or_else(|status| panic!("{path}: {status}"))
    }

    /// Opens a stream. Returns the status line of the response if the view refuses it.
    fn try_open(view: &ViewServer, path: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(view.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (at, cookie) = (view.at, &view.cookie);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nCookie: {cookie}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Self(BufReader::new(stream));
        let status = events.line();
        if status.starts_with("HTTP/1.1 200") { Ok(events) } else { Err(status) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ends");
        line.trim_end().to_owned()
    }

    /// The next event, with its data.
    fn next(&mut self) -> (String, Json) {
        let until = Instant::now() + PATIENCE;
        loop {
            // A quiet stream has keep-alive lines.
            assert!(Instant::now() < until, "no event comes");
            let line = self.line();
            let Some(name) = line.strip_prefix("event: ") else { continue };
            let data = self.line();
            let data = data.strip_prefix("data: ").unwrap();
            return (name.to_owned(), serde_json::from_str(data).unwrap());
        }
    }

    /// Reads events up to the first event that has the name `wanted` and for whose data `fits`
    /// returns true. Returns the data of this event.
    pub fn find(&mut self, wanted: &str, fits: impl Fn(&Json) -> bool) -> Json {
        loop {
            let (name, data) = self.next();
            if name == wanted && fits(&data) {
                return data;
            }
        }
    }
}

/// The position in the version of an event `grown`; 0 if the version is empty.
fn last_shown(grown: &Json) -> u64 {
    let version = grown["version"].as_str().unwrap();
    version.strip_prefix("0:").map_or(0, |position| position.parse().unwrap())
}

/// The time of the organism's last start, from the page of a thread.
fn last_start(page: &str) -> String {
    let rest = page.split("data-start=\"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_list_is_informed_of_each_growth_and_of_the_end_of_its_organism() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let mut events = EventStream::open(&view, "/live/threads");
    assert_eq!(events.next(), ("state".to_owned(), json!({"running": false})));
    let running = house.run();
    events.find("state", |state| state["running"] == true);
    let before = events.find("grown", |_| true);
    assert!(last_shown(&before) > 0, "a page is not loaded without a version");
    assert_eq!(house.send_text(&say("second"), &[]).code, Some(0));
    events.find("grown", |grown| last_shown(grown) > last_shown(&before));
    // The first page of a view states at once that the organism runs.
    let other = ViewServer::start(&house, &[]);
    let first = EventStream::open(&other, "/live/threads").next();
    assert_eq!(first, ("state".to_owned(), json!({"running": true})));
    assert_eq!(running.stop(), Some(0));
    events.find("state", |state| state["running"] == false);
}

/// A pause of everything is recorded in the reserved thread. The page of any thread still gets an
/// event about the pause, and one about the resume.
#[test]
fn a_thread_page_is_informed_of_a_pause_and_of_a_resume_of_everything() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &["--new", THREAD]).code, Some(0));
    let view = ViewServer::start(&house, &[]);
    let mut events = EventStream::open(&view, &format!("/live/threads/{THREAD}"));
    for action in ["pause", "resume"] {
        assert_eq!(house.organism(&[action, "all"]).code, Some(0));
        let sql = format!("SELECT position FROM action WHERE action = '{action}'");
        let recorded = house.organism(&["sql", "--json", &sql]).json();
        let position = recorded[0]["position"].as_u64().unwrap();
        events.find("grown", |grown| last_shown(grown) >= position);
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_thread_page_gets_the_text_of_its_model_call_and_that_of_a_client_gets_states() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(3)]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let view = ViewServer::start(&house, &[]);
    let of_client = ViewServer::start(&house, &["--as", "desk"]);
    let path = format!("/live/threads/{THREAD}");
    let mut texts = EventStream::open(&view, &path);
    let mut states = EventStream::open(&of_client, &path);
    texts.find("live", |event| event["live"] == "opened" && event["text"] == true);
    states.find("live", |event| event["live"] == "opened" && event["text"] == false);

    let sent = sending(&house);
    let mut written = String::new();
    while !written.contains("word word word ") {
        let event = texts.find("live", |event| event["live"] == "text");
        assert_eq!(event["thread"], THREAD);
        written += event["text"].as_str().unwrap();
    }
    assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
    texts.find("live", |event| event["state"] == "ended");
    loop {
        let (_, event) = states.next();
        assert_ne!(event["live"], "text", "{event}");
        if event["state"] == "ended" {
            break;
        }
    }
    assert_eq!(end(sent).code, Some(1));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_live_page_needs_a_session_an_own_origin_and_a_free_place() {
    let house = House::with_echo();
    let running = house.run();
    let sent = house.send_text(&say("secret"), &["--new", THREAD]);
    assert_eq!(sent.code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let mut view = ViewServer::start(&house, &[]);
    let thread = format!("/live/threads/{THREAD}");
    for path in ["/live/threads", &*thread] {
        let refused: [(&[(&str, &str)], u16); 5] = [
            (&[("Cookie", "")], 401),
            (&[("Origin", "http://rebound.example")], 403),
            (&[("Origin", "null")], 403),
            (&[("Sec-Fetch-Site", "cross-site")], 403),
            (&[("Host", "rebound.example")], 403),
        ];
        for (headers, status) in refused {
            assert_eq!(view.get_with(path, headers).status, status, "{path} {headers:?}");
        }
    }
    assert_eq!(view.get("/live/threads/%20").status, 404);

    let mut all = Vec::new();
    for number in 0..limits::WEB_LIVE_PAGES_MAX {
        if number % limits::WEB_LIVE_PAGES_OF_BROWSER_MAX == 0 {
            view.open();
        }
        all.push(EventStream::open(&view, "/live/threads"));
    }
    view.open();
    let refused = view.get("/live/threads");
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("64 pages of this view are live already"), "{}", refused.body);
    // Other pages are served meanwhile, and a closed page frees its place.
    view.page("/threads");
    all.pop();
    until("a place is free", || EventStream::try_open(&view, "/live/threads").ok());
}

/// A browser gets at most four live pages, each of which keeps a connection. Without HTTP/2, a
/// browser opens only six connections to a host.
#[test]
fn a_browser_has_few_live_pages_and_keeps_connections_for_loads() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    let mut view = ViewServer::start(&house, &[]);
    let open = |_| EventStream::open(&view, "/live/threads");
    let mut all: Vec<_> = (0..4).map(open).collect();
    let refused = view.get("/live/threads");
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("4 pages of this browser are live already"), "{}", refused.body);

    // Another browser has live pages of its own. A browser that opens the address with the token
    // once more remains the same browser.
    let first = view.cookie.clone();
    view.open();
    assert_ne!(view.cookie, first);
    all.push(EventStream::open(&view, "/live/threads"));
    view.cookie = first;
    let host = view.at.to_string();
    let headers = [("Host", &*host), ("Origin", "null"), ("Sec-Fetch-Site", "same-origin")];
    let headers = [&headers[..], &[("Cookie", &*view.cookie)]].concat();
    let again = view.request("POST", "/session", &headers, &format!("token={}", view.token));
    assert_eq!(again.status, 303);
    let cookie = header(&again, "set-cookie").unwrap();
    assert!(cookie.starts_with(&format!("{};", view.cookie)), "{cookie}");

    all.remove(0);
    until("a place is free", || EventStream::try_open(&view, "/live/threads").ok());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_refreshed_page_is_the_same_for_all_and_only_pages_are_shared() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &[]).code, Some(0));
    let view = ViewServer::start(&house, &[]);
    let get = |path: &str, version: &str| {
        let headers = [("Sec-Fetch-Site", "same-origin"), ("X-Live-Version", version)];
        view.get_with(path, &headers)
    };

    let rows = |page: &str| page.matches("data-entry").count();
    until("the index has the first thread", || (rows(&view.page("/threads")) == 1).then_some(()));
    assert_eq!(rows(&get("/threads", "0:1").body), 1);
    assert_eq!(house.send_text(&say("second"), &[]).code, Some(0));
    until("the index has the second thread", || (rows(&view.page("/threads")) == 2).then_some(()));
    assert_eq!(rows(&get("/threads", "0:2").body), 2, "another version is drawn anew");
    assert_eq!(rows(&get("/threads?limit=1", "0:2").body), 1, "so is another address");
    for wrong in ["", "x", "-1"] {
        assert_eq!(rows(&get("/threads", wrong).body), 2, "{wrong}");
    }
    assert_eq!(running.stop(), Some(0));
}

/// A live page that took the old content for the new one would not load it again. While the journal
/// grows, the index may always lack records, but not always those of one version.
#[test]
fn a_live_page_gets_an_error_while_the_index_lacks_records_of_its_version() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("first"), &["--new", THREAD]).code, Some(0));
    let view = ViewServer::start(&house, &[]);
    view.page("/threads");
    assert_eq!(running.stop(), Some(0));
    until("the index is complete", || {
        (!view.page("/threads").contains("later records are missing")).then_some(())
    });
    let thread = format!("/threads/{THREAD}");
    let first_start = last_start(&view.page(&thread));

    let mut events = EventStream::open(&view, "/live/threads");
    let indexed = events.find("grown", |grown| last_shown(grown) > 0);

    let lock = File::options().append(true).open(house.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    let running = house.run();
    assert_eq!(house.send_text(&say("second"), &[]).code, Some(0));
    let newest = events.find("grown", |grown| last_shown(grown) > last_shown(&indexed));
    let get = |path: &str, grown: &Json| {
        let version = grown["version"].as_str().unwrap();
        let headers = [("Sec-Fetch-Site", "same-origin"), ("X-Live-Version", version)];
        view.get_with(path, &headers)
    };
    for path in ["/threads", "/waiting", &thread] {
        let old = get(path, &newest);
        assert_eq!(old.status, 503, "{path}: {}", old.body);
        assert!(old.body.contains("The index lacks the latest records"), "{path}: {}", old.body);
        let old = get(path, &indexed);
        assert_eq!(old.status, 200, "{path}: {}", old.body);
    }
    // A page that was opened anew is not the answer to an event, and states what it lacks.
    for path in ["/threads", "/waiting"] {
        assert!(view.page(path).contains("later records are missing here"), "{path}");
    }
    let call = format!("/waiting?call={}", uuid::Uuid::now_v7());
    assert_eq!(view.get(&call).status, 503);

    drop(lock);
    for path in ["/threads", "/waiting", &thread] {
        until("the page is loaded", || (get(path, &newest).status == 200).then_some(()));
    }
    assert!(view.page(&call).contains("This call does not wait"));
    // An open page renews all its entries when this value changes.
    until("the page has the newest start", || {
        (last_start(&view.page(&thread)) != first_start).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
}

/// Starts `organism run --web` on a terminal. The command is killed at the end of the test.
fn run_with_view(house: &House) -> ViewServer {
    let command = house.command(&["run", "--web", "127.0.0.1:0"]);
    let view = ViewServer::start_on_terminal(&command, &house.path("."));
    until("the organism is ready", || {
        let log = std::fs::read_to_string(house.path("view.log")).unwrap();
        log.contains("is ready").then_some(())
    });
    view
}

#[test]
fn a_running_organism_shows_its_own_record_on_a_terminal_alone() {
    let house = House::with_echo();
    let view = run_with_view(&house);
    let mut events = EventStream::open(&view, "/live/threads");
    assert_eq!(house.send_text(&say("heliotrope"), &[]).code, Some(0));
    events.find("grown", |_| true);
    assert!(view.page("/threads").contains("heliotrope"));
    assert_eq!(view.open_session("wrong").status, 403);
    drop(view);

    for (arguments, expected) in [
        (&["run", "--web", "127.0.0.1:0"][..], "standard output is no terminal"),
        (&["run", "--as", "desk"], "add --web"),
        (&["run", "--web", "0.0.0.0:0"], "standard output is no terminal"),
    ] {
        let refused = house.organism(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn the_secret_of_a_client_is_its_token_where_there_is_no_terminal() {
    let secret = "[clients.desk]\nsecret_env = \"DESK_SECRET\"\n";
    let house = House::with(&crate::organism::CONFIG.replace("[clients.desk]\n", secret));
    // White space at its ends belongs to the secret.
    let value = " kbW3mXr0rCk5vB4y1sWc9AqZ2dLx7TnE ";
    let mut command = house.command(&["run", "--web", "127.0.0.1:0", "--as", "desk"]);
    command.env("DESK_SECRET", value);
    let running = house.run_with(command);
    let log = house.log();
    assert!(!log.contains(value), "{log}");
    let (_, rest) = log.split_once("the web view is at http://").unwrap();
    let at = rest.split('/').next().unwrap().parse().unwrap();
    let mut view = ViewServer::unopened(at, &value.replace(' ', "%20"));
    assert_eq!(view.open_session("wrong").status, 403);
    view.open();
    assert!(view.page("/threads").contains("desk (client)"));
    assert_eq!(running.stop(), Some(0));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = house.command(&["run", "--web", &address, "--as", "desk"]);
    let refused = command.env("DESK_SECRET", value).output().unwrap();
    let reason = String::from_utf8_lossy(&refused.stderr);
    assert!(reason.contains("; --web names another address"), "{reason}");
}

/// Starts a web view over TLS on a terminal. Returns the command and the first line of the
/// terminal.
fn served_securely(house: &House, arguments: &[&str]) -> (Child, String) {
    let mut command = house.command(&["serve"]);
    command.args(arguments);
    let mut terminal = on_terminal(&command, &house.path("."), "secure.pid");
    let mut line = String::new();
    BufReader::new(terminal.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (terminal, line.trim().to_owned())
}

/// Program that requests pages over TLS, like a browser that trusts the certificate.
const SECURE_CLIENT: &str = r#"
import http.client, json, ssl, sys
certificate, port, token = sys.argv[1:]
context = ssl.create_default_context(cafile=certificate)
def ask(method, path, host, body=None, **headers):
    server = http.client.HTTPSConnection("localhost", int(port), context=context)
    headers = {"Host": f"{host}:{port}", **headers}
    server.request(method, path, body, headers)
    answer = server.getresponse()
    return answer.status, answer.getheader("Set-Cookie"), answer.read().decode()
origin = {"Origin": f"https://view.example:{port}"}
opened = ask("POST", "/session", "view.example", f"token={token}", **origin)
cookie = opened[1].split(";")[0]
plain = {"Origin": f"http://view.example:{port}"}
print(json.dumps([
    opened[:2],
    ask("GET", "/threads", "view.example", Cookie=cookie)[0],
    ask("GET", "/threads", "other.example", Cookie=cookie)[0],
    ask("GET", "/threads", "view.example")[0],
    ask("POST", "/session", "view.example", f"token={token}", **plain)[0],
]))
"#;

#[test]
fn beyond_loopback_the_view_needs_tls_and_a_name_and_then_answers_a_real_client() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("heliotrope"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let data = repository().join("tests/data/web");
    let file = |name: &str| {
        std::fs::copy(data.join(name), house.path(name)).unwrap();
        let chmod = Command::new("chmod").arg("600").arg(house.path(name)).status();
        assert!(chmod.unwrap().success());
    };
    ["view-cert.pem", "view-key.pem", "view-other-key.pem"].into_iter().for_each(file);
    house.write("open-key.pem", std::fs::read(data.join("view-other-key.pem")).unwrap());
    let chmod = Command::new("chmod").arg("644").arg(house.path("open-key.pem")).status();
    assert!(chmod.unwrap().success());

    let tls = |key| ["--tls-cert", "view-cert.pem", "--tls-key", key];
    let anywhere = ["--listen", "0.0.0.0:0"];
    let named = ["--host", "view.example"];
    let refused: [(Vec<&str>, &str); 8] = [
        (vec!["--host", "https://view.example"], "is no host name"),
        (anywhere.to_vec(), "needs TLS there"),
        ([anywhere, named].concat(), "needs TLS there"),
        ([&anywhere[..], &tls("view-key.pem")].concat(), "pass each name of its certificate"),
        (tls("view-other-key.pem").to_vec(), "is not that of the certificate"),
        (tls("open-key.pem").to_vec(), "may be read by other users (mode 644)"),
        (tls("missing.pem").to_vec(), "cannot read missing.pem"),
        (tls("view-cert.pem").to_vec(), "has no private key in PEM"),
    ];
    for (arguments, expected) in refused {
        let mut arguments = arguments;
        if !arguments.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        let (shown, code) = super::refused_start(&house, &arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {shown}");
        assert!(shown.contains(expected), "{arguments:?}: {shown}");
    }

    let arguments = [&anywhere[..], &named, &tls("view-key.pem")].concat();
    let (mut terminal, line) = served_securely(&house, &arguments);
    let address = line.strip_prefix("https://view.example:").unwrap_or_else(|| panic!("{line}"));
    let (port, token) = address.split_once("/#token=").unwrap();
    let mut client = Command::new("python3");
    client.args(["-c", SECURE_CLIENT]).arg(house.path("view-cert.pem")).args([port, token]);
    let client = client_output(&mut client);
    let answers: Json = serde_json::from_str(&client).unwrap();
    let cookie = answers[0][1].as_str().unwrap();
    assert_eq!(answers[0][0], 303);
    assert!(cookie.starts_with("__Host-organism-view-"), "{cookie}");
    assert!(cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
    assert_eq!(answers[1], 200);
    assert_eq!(answers[2], 403, "another name is refused");
    assert_eq!(answers[3], 401, "a session is needed");
    assert_eq!(answers[4], 403, "a page without TLS is of another origin");

    // A request without TLS gets nothing.
    let mut plain = TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET /threads HTTP/1.1\r\nHost: view.example\r\n\r\n").unwrap();
    let mut text = Vec::new();
    // The server may reset the connection.
    plain.read_to_end(&mut text).ok();
    assert!(!String::from_utf8_lossy(&text).contains("HTTP/1.1"), "{text:?}");
    // A process that ignores SIGHUP does not end with its terminal.
    let pid = std::fs::read_to_string(house.path("secure.pid")).unwrap();
    assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success());
    terminal.wait().unwrap();
}

fn client_output(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// Issue 18: a browser shows new threads in the list, and text as it streams. The list reports new
/// threads as "N new", and a person can pause the updates of the list.
#[test]
fn a_browser_shows_new_threads_and_text_as_it_streams() {
    if std::env::var_os("ORGANISM_TEST_NATS").is_some() {
        return;
    }
    let Some(chromium) = chromium() else { return };
    let answer = format!("<said xmlns=\"{TALK}\">finished</said>");
    let provider = Provider::start(vec![
        ScriptedResponse::text("one"),
        ScriptedResponse::text("two"),
        ScriptedResponse::text("three"),
        ScriptedResponse::Slowly(300, answer),
    ]);
    let house = House::with(&format!("{CONFIG}\n{}", provider.model("live", "")));
    let view = run_with_view(&house);
    assert_eq!(house.send_text(&say("begin"), &[]).code, Some(0));

    let mut walk = Command::new(repository().join(PYTHON));
    walk.arg(repository().join("tests/data/web/live.py")).stdin(Stdio::piped());
    let mut walk = walk.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut orders = walk.stdin.take().unwrap();
    let order = json!({"chromium": chromium, "address": view.address(), "thread": THREAD});
    writeln!(orders, "{order}").unwrap();

    // The script names what is to happen, and continues when it has.
    let mut sent = None;
    let mut steps = Vec::new();
    for line in BufReader::new(walk.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match &*line {
            "send" => assert_eq!(house.send_text(&say("next"), &[]).code, Some(0)),
            "write" => sent = Some(sending(&house)),
            "wait" => {
                let ended = end(sent.take().unwrap());
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
            _ => {}
        }
        steps.push(line);
        // The script may have ended with a fault.
        writeln!(orders, "done").ok();
    }
    let mut errors = String::new();
    walk.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(walk.wait().unwrap().success(), "{steps:#?}\n{errors}");
    assert_eq!(steps.iter().filter(|step| *step == "send").count(), 2, "{steps:?}");
}

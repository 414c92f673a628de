//! Liveness, readiness, and the callers that may query them.

use std::net::{SocketAddr, TcpListener, TcpStream};

use super::{HttpResponse, address, ask, ask_as, house, listening};
use crate::organism::{CONFIG, House, numbered, until};

fn status_and_json(answer: &HttpResponse) -> (u16, serde_json::Value) {
    let json = answer.head.to_lowercase().contains("content-type: application/json");
    assert!(json, "{}", answer.head);
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[test]
fn a_running_organism_is_alive_and_ready_and_its_server_ends_with_it() {
    let (_house, running, at) = house();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            status_and_json(&ask(at, path)),
            (200, serde_json::json!({ "ok": true })),
            "{path}"
        );
    }
    assert_eq!(ask(at, "/").status, 404);
    assert_eq!(running.stop(), Some(0));
    assert!(TcpStream::connect(at).is_err());
}

#[test]
fn one_that_drains_is_alive_and_not_ready_and_says_why() {
    let (house, running, at) = house();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is handed over", || {
        let under_way = "organism_deliveries_under_way{listener=\"holder\"} 1";
        ask(at, "/metrics").body.contains(under_way).then_some(())
    });
    running.signal("-TERM");
    let (status, said) = until("it is not ready", || {
        let said = status_and_json(&ask(at, "/readyz"));
        (said.0 != 200).then_some(said)
    });
    assert_eq!((status, &said["ok"]), (503, &false.into()));
    assert_eq!(said["not_ready"][0]["what"], "draining", "{said}");
    assert_eq!(ask(at, "/healthz").status, 200);
    assert!(ask(at, "/metrics").body.contains("organism_draining 1\n"));
    house.write("let-go", "");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_request_with_another_agents_name_gets_no_response() {
    let (_house, running, at) = house();
    for host in ["example.com", "rebound.example:9464", "192.0.2.1"] {
        for path in ["/healthz", "/metrics", "/elsewhere"] {
            let answer = ask_as(host, at, path);
            assert_eq!(answer.status, 403, "{host}{path}");
            assert!(!answer.body.contains("organism_"), "{}", answer.body);
        }
    }
    assert_eq!(ask_as(&format!("localhost:{}", at.port()), at, "/healthz").status, 200);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn nothing_listens_unless_the_config_says_so() {
    let house = House::with_echo();
    let running = house.run();
    let listens = std::fs::read_to_string(format!("/proc/{}/net/tcp", running.child.id()));
    let own = std::fs::read_dir(format!("/proc/{}/fd", running.child.id()));
    if let (Ok(table), Ok(open)) = (listens, own) {
        let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let open: Vec<_> = open.map(|link| link.display().to_string()).collect();
        assert!(open.iter().any(|link| link.starts_with("socket:")), "the control socket is seen");
        let listening = table.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            (fields.get(3) == Some(&"0A")).then(|| format!("socket:[{}]", fields[9]))
        });
        let own: Vec<_> = listening.filter(|socket| open.contains(socket)).collect();
        assert!(own.is_empty(), "{own:?}");
    }
    assert!(!house.log().contains("http://"), "{}", house.log());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_named_unless_another_pump_has_the_journal() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = listening(CONFIG).replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let house = House::with(&config);
    let refused = house.organism(&["run"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains(&format!("listening on 127.0.0.1:{port}")), "{refused:?}");
    drop(taken);
    let running = house.run();
    assert_eq!(address(&house), SocketAddr::from(([127, 0, 0, 1], port)));
    let second = house.organism(&["run"]);
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.err.contains("in use by process"), "{second:?}");
    assert_eq!(running.stop(), Some(0));
}

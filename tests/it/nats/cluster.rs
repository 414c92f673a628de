//! A cluster of three real local servers, which keep every stream three times.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use organism::nats::{NatsCredentials, Options};
use serde_json::{Value, json};

use super::{Admin, PATIENCE, Server, Settings};

const NODES: usize = 3;

pub struct Cluster {
    pub nodes: Vec<Server>,
}

/// Returns free ports. Each port is held until all ports are known, so that no port is returned
/// twice.
fn ports<const COUNT: usize>() -> [u16; COUNT] {
    let held = [(); COUNT].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    held.map(|port| port.local_addr().unwrap().port())
}

impl Cluster {
    pub fn start() -> Self {
        let all: [u16; 2 * NODES] = ports();
        let (clients, routes) = all.split_at(NODES);
        let node = |at: usize| {
            let others = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\""));
            let others: Vec<_> = others.collect();
            let more = format!(
                "server_name: n{at}\nport: {}\ncluster {{ name: test, host: 127.0.0.1, port: {}, \
                 routes: [{}] }}\n\
                 lame_duck_duration: 30s\nlame_duck_grace_period: 1s",
                clients[at],
                routes[at],
                others.join(", ")
            );
            Server::start_with(Settings { jetstream: Some(""), more: more.leak() })
        };
        let cluster = Self { nodes: (0..NODES).map(node).collect() };
        cluster.wait("it has a leader", |admin| admin.try_ask("INFO", &json!({})).is_some());
        cluster
    }

    pub fn options(&self) -> Options {
        let servers = self.nodes.iter().map(Server::address).collect();
        Options { servers, credentials: NatsCredentials::Anonymous, ca: None }
    }

    /// The addresses of all nodes, as a config lists them.
    pub fn urls(&self) -> String {
        json!(self.options().servers).to_string()
    }

    /// The node that leads this stream, as another node reports it.
    pub fn leader(&self, stream: &str) -> usize {
        let mut leader = None;
        self.wait("the stream has a leader", |admin| {
            let info = admin.try_ask(&format!("STREAM.INFO.{stream}"), &json!({}));
            let name = info.and_then(|info| info["cluster"]["leader"].as_str().map(str::to_owned));
            leader = name.and_then(|name| name.strip_prefix('n')?.parse().ok());
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Waits until every node has caught up with all of these streams. Only then may a test make
    /// another node fail.
    pub fn wait_until_whole(&self, streams: &[&str]) {
        for node in &self.nodes {
            node.admin();
        }
        for stream in streams {
            self.wait("every replica has caught up", |admin| {
                let info = admin.try_ask(&format!("STREAM.INFO.{stream}"), &json!({}));
                info.is_some_and(|info| is_whole(&info))
            });
        }
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut(&Admin) -> bool) {
        let admin = Admin::of(&self.options());
        let until = Instant::now() + 3 * PATIENCE;
        while !is_so(&admin) {
            assert!(Instant::now() < until, "waited in vain: {what}");
            // Each check is work for all servers.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_whole(info: &Value) -> bool {
    let replicas = info["cluster"]["replicas"].as_array();
    replicas.is_some_and(|replicas| {
        let is_there = |replica: &&Value| replica["current"] == true && replica["offline"] != true;
        replicas.iter().filter(is_there).count() + 1 == NODES
    })
}

//! Writes the configs of NATS servers.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use super::rights::SubjectRights;
use super::{Options, SYSTEM};
use crate::limits;

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNode {
    /// Name of the server. The name must be one token of a NATS subject.
    pub name: String,
    /// Address on which the server listens, and at which the other servers reach it.
    pub host: String,
}

/// Paths of a server's TLS files, on the server's own machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificate authority that signed the certificates of the other servers; `None` if the
    /// cluster does not use TLS.
    pub ca: Option<PathBuf>,
}

impl ServerNode {
    /// Whether the address is reachable from this machine only.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>().map(|address| address.is_loopback());
        self.host == "localhost" || address == Ok(true)
    }

    /// Returns the name of this server's config file in a cluster of `servers` servers.
    pub fn file(&self, servers: usize) -> String {
        match servers {
            1 => "server.conf".to_owned(),
            _ => format!("server-{}.conf", self.name),
        }
    }
}

/// Writes the accounts and users, which are the same in the config of every server.
pub fn accounts(organism: &str, users: &[(String, Vec<String>, SubjectRights)]) -> String {
    let mut out = String::from(
        "# Written by `organism nats-config`, which writes it anew: change the organism's config.\n\
         accounts {\n",
    );
    let (system, own): (Vec<_>, Vec<_>) = users.iter().partition(|(user, ..)| user == SYSTEM);
    let _ = writeln!(out, "  {} {{\n    jetstream: enabled", quoted(organism));
    account(&mut out, &own);
    if !system.is_empty() {
        out.push_str("  $SYS {\n");
        account(&mut out, &system);
    }

    out.push_str("}\n");
    out
}

fn account(out: &mut String, users: &[&(String, Vec<String>, SubjectRights)]) {
    out.push_str("    users: [\n");
    for (user, keys, rights) in users {
        for key in keys {
            let _ = writeln!(out, "      # {user}\n      {{ nkey: {key}, permissions: {{");
            let _ = writeln!(out, "        publish: {{ allow: {} }}", list(&rights.publish));
            let _ = writeln!(out, "        subscribe: {{ allow: {} }}", list(&rights.subscribe));
            out.push_str("      } }\n");
        }
    }

    out.push_str("    ]\n  }\n");
}

/// Writes the config of the server at `index` in the cluster.
pub fn config(organism: &str, options: &Options, index: usize, secret: &str) -> String {
    let mut out = String::from(
        "# Written by `organism nats-config`, which writes it anew. After a change:\n\
         # nats-server --signal reload\n",
    );
    let Some(node) = options.nodes.get(index) else { return out };
    let _ = writeln!(out, "server_name: {}", quoted(&node.name));
    let _ = writeln!(out, "listen: {}", quoted(&at(&node.host, options.client_port)));
    let _ = writeln!(out, "max_payload: {}", limits::NATS_PAYLOAD_BYTES);
    // A frozen replica gets deliveries until its server disconnects it.
    out.push_str("# Disconnects programs that stand still or are cut off.\n");
    let seconds = limits::NATS_SERVER_PING_INTERVAL.as_secs();
    let _ = writeln!(out, "ping_interval: \"{seconds}s\"");
    let _ = writeln!(out, "ping_max: {}", limits::NATS_SERVER_PINGS_MAX);
    out.push_str("include \"accounts.conf\"\n");
    let store = quoted(&options.store.display().to_string());
    let _ = writeln!(out, "jetstream {{\n  store_dir: {store}");
    if options.synced {
        out.push_str(
            "  # On disk before it is acknowledged; `durability = \"synced\"` relies on it. Servers\n  \
             # before 2.10 refuse this line: `organism nats-config --lazy` leaves it out.\n",
        );
        out.push_str("  sync_interval: always\n");
    }

    out.push_str("}\n");
    if let Some(tls) = &options.tls {
        let _ = writeln!(out, "tls {{\n{}}}", files(tls));
    }

    if options.nodes.len() > 1 {
        cluster(&mut out, organism, options, node, secret);
    }

    out
}

fn cluster(out: &mut String, organism: &str, options: &Options, node: &ServerNode, secret: &str) {
    let _ = writeln!(out, "cluster {{\n  name: {}", quoted(organism));
    let _ = writeln!(out, "  listen: {}", quoted(&at(&node.host, options.cluster_port)));
    let _ = writeln!(out, "  authorization {{ user: cluster, password: {} }}", quoted(secret));
    if let Some(tls) = &options.tls {
        let _ = writeln!(out, "  tls {{\n{}  verify: true\n  }}", files(tls));
    }

    out.push_str("  routes: [\n");
    for other in options.nodes.iter().filter(|other| *other != node) {
        let address = at(&other.host, options.cluster_port);
        let _ = writeln!(out, "    {}", quoted(&format!("nats://cluster:{secret}@{address}")));
    }

    out.push_str("  ]\n}\n");
}

fn files(tls: &ServerTls) -> String {
    let mut out = String::new();
    let all = [("cert_file", Some(&tls.certificate)), ("key_file", Some(&tls.key))];
    for (key, path) in all.into_iter().chain([("ca_file", tls.ca.as_ref())]) {
        if let Some(path) = path {
            let _ = writeln!(out, "  {key}: {}", quoted(&path.display().to_string()));
        }
    }

    out
}

/// Returns the address as `host:port`, with brackets around an IPv6 address.
fn at(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn list(subjects: &[String]) -> String {
    let all: Vec<_> = subjects.iter().map(|subject| quoted(subject)).collect();
    format!("[{}]", all.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

//! `organism nats-config`: writes the configs of NATS servers for this organism, and the keys of
//! their users.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::organism::nats_config::{self, Error, KeyRotation, Options, ServerNode, ServerTls};

use super::exit::{CommandExit, CommandFailure};
use super::render::put;
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to which the keys and configs are written. Keep it as secret as passwords.
    #[arg(long, value_name = "DIR", default_value = "nats")]
    out: PathBuf,
    #[command(flatten)]
    config: ConfigArg,
    /// A server, as `NAME=HOST`. May be repeated: several servers form a cluster.
    #[arg(long = "node", value_name = "NAME=HOST", default_value = "organism=127.0.0.1")]
    nodes: Vec<String>,
    /// Port on which servers listen for clients.
    #[arg(long, value_name = "PORT", default_value_t = 4222)]
    port: u16,
    /// Port on which servers of a cluster connect to each other.
    #[arg(long, value_name = "PORT", default_value_t = 6222)]
    cluster_port: u16,
    /// Directory in which a server keeps its streams, on its own host.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nats")]
    store: PathBuf,
    /// Path of the server's certificate, on the server's own host. Required if other machines can
    /// reach the server.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Path of the private key of the server's certificate, on the server's own host.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificate authority that signed the servers' certificates.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Let the servers acknowledge messages before they are on disk. This is faster, but a crash of
    /// all servers at once may lose acknowledged messages. Servers before version 2.10 need this
    /// option, because they refuse the setting `sync_interval: always`, which the configs otherwise
    /// contain.
    #[arg(long)]
    lazy: bool,
    /// Give this user a new key. The old key stays valid until it is retired.
    #[arg(long, value_name = "USER")]
    renew: Vec<String>,
    /// Invalidate the old key of this user.
    #[arg(long, value_name = "USER")]
    retire: Vec<String>,
    /// Give this user a new key and invalidate the old one at once.
    #[arg(long, value_name = "USER")]
    revoke: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_for_servers()?;
    let nodes = args.nodes.iter().map(|text| node(text)).collect::<anyhow::Result<_>>()?;
    let changes = |users: &[String], rotation: KeyRotation| {
        users.iter().map(move |user| (user.clone(), rotation)).collect::<Vec<_>>()
    };

    let rotate = [
        changes(&args.renew, KeyRotation::Renew),
        changes(&args.retire, KeyRotation::Retire),
        changes(&args.revoke, KeyRotation::Revoke),
    ];
    let tls = match (args.tls_cert, args.tls_key) {
        (Some(certificate), Some(key)) => Some(ServerTls { certificate, key, ca: args.tls_ca }),
        _ => None,
    };

    let options = Options {
        directory: args.out,
        nodes,
        client_port: args.port,
        cluster_port: args.cluster_port,
        store: args.store,
        tls,
        synced: !args.lazy,
        rotate: rotate.concat(),
    };

    let written = nats_config::write(&config, &options).map_err(explained)?;
    for path in &written.servers {
        put(&format!("{}\n", path.display()))?;
    }

    for (user, path) in &written.seeds {
        put(&format!("{}  {user}\n", path.display()))?;
    }

    if !written.dropped.is_empty() {
        let directory = options.directory.display();
        note!(
            "accounts.conf was written anew, without these users, which were added by hand, or \
             whose seeds are not in {directory}: {}; the servers refuse them after the reload",
            written.dropped.join(", ")
        );
    }

    if !written.without_old_key.is_empty() {
        note!(
            "no key was retired of {}: no old key is in {}; `--renew` keeps one, and `--revoke` \
             replaces the current key at once",
            written.without_old_key.join(", "),
            options.directory.display()
        );
    }

    if let Some((_, seed)) = written.seeds.first() {
        let path = seed.canonicalize().unwrap_or_else(|_| seed.clone());
        let system_setting =
            written.seeds.iter().find(|(user, _)| user == "system").map(|(_, seed)| {
                let system_path = seed.canonicalize().unwrap_or_else(|_| seed.clone());
                format!("\n  system_nkey_file = \"{}\"", system_path.display())
            });
        note!(
            "each user gets the file of its own seed, and no other; the organism's [nats] gets\n  \
             nkey_file = \"{}\"{}\nrunning servers load the new config after `nats-server --signal \
             reload`",
            path.display(),
            system_setting.unwrap_or_default()
        );
    }

    Ok(CommandExit::Done.into())
}

fn node(text: &str) -> anyhow::Result<ServerNode> {
    let token = |name: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !name.is_empty() && name.chars().all(good)
    };

    match text.split_once('=') {
        Some((name, host)) if token(name) && is_host(host) => {
            Ok(ServerNode { name: name.to_owned(), host: host.to_owned() })
        }
        _ => {
            let message = format!("`{text}` is not a server; write for example --node a=10.0.0.1");
            Err(CommandFailure::usage(message).into())
        }
    }
}

/// Whether a text is a host name or an address without a port. The port has an option of its own.
fn is_host(host: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    host.parse::<std::net::IpAddr>().is_ok() || (!host.is_empty() && host.chars().all(good))
}

fn explained(error: Error) -> anyhow::Error {
    let (exit, help) = match &error {
        Error::Open { .. } => (CommandExit::Usage, "; add --tls-cert and --tls-key"),
        Error::NoUser { .. } | Error::NodeTwice { .. } => (CommandExit::Usage, ""),
        Error::NothingOnNats => (
            CommandExit::Config,
            "; give a listener or an agent nats = true, or write [journal] store = \"jetstream\"",
        ),
        Error::Io { .. } | Error::Key(_) => (CommandExit::Unavailable, ""),
    };

    CommandFailure::new(exit, format!("{error}{help}")).into()
}

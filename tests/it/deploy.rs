//! The example files for a deployment, as far as a test can check them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::nats::Server;
use crate::organism::{CONFIG, House};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(folder().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_servers_configs_are_good() {
    for (name, variables) in [
        ("nats.conf", vec![]),
        (
            "nats-cluster.conf",
            vec![
                ("NODE", "a"),
                ("ROUTE_PASSWORD", "secret"),
                ("ROUTE_A", "nats://route:secret@a:6222"),
                ("ROUTE_B", "nats://route:secret@b:6222"),
                ("ROUTE_C", "nats://route:secret@c:6222"),
            ],
        ),
    ] {
        let path = folder().join("systemd").join(name);
        let mut server = Command::new(crate::nats::program());
        server.arg("-t").arg("--config").arg(&path).envs(variables);
        let judged = server.output().unwrap();
        assert!(judged.status.success(), "{name}: {}", String::from_utf8_lossy(&judged.stderr));
        let text = read(&format!("systemd/{name}"));
        assert!(text.contains("sync_interval: always"), "{name} keeps what it acknowledges");
        let client = "\nlisten: \"127.0.0.1:4222\"\n";
        assert!(text.contains(client), "{name}: clients reach it on loopback alone");
    }
}

#[test]
fn the_lines_for_a_config_are_good_beside_any_other() {
    for replicas in ["replicas = 1", "replicas = 3"] {
        let lines = read("journal.toml").replace("replicas = 1", replicas);
        let house = House::settled(&format!("{CONFIG}\n{lines}"));
        let checked = house.organism(&["check"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
}

/// Returns the keys and the values in the sections of a systemd unit.
fn settings(unit: &str) -> Vec<(String, String)> {
    let lines = unit.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    let pair = |line: &str| {
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no setting: {line}"));
        (key.to_owned(), value.to_owned())
    };
    lines.map(pair).collect()
}

#[test]
fn the_units_start_commands_that_there_are_and_systemd_takes_them() {
    let places = tempfile::tempdir().unwrap();
    for name in ["organism@.service", "organism-host@.service", "nats-server.service"] {
        let unit = read(&format!("systemd/{name}"));
        let all = settings(&unit);
        let get = |key: &str| all.iter().find(|(own, _)| own == key).map(|(_, value)| value);
        for key in ["User", "ExecStart", "Restart", "TimeoutStopSec", "WantedBy"] {
            assert!(get(key).is_some(), "{name} has no {key}");
        }
        // A host of agents stores no state.
        assert_eq!(get("StateDirectory").is_none(), name == "organism-host@.service", "{name}");
        // systemd checks that the program exists, and here it does not.
        let started = get("ExecStart").unwrap().split(' ').next().unwrap();
        let path = places.path().join(name);
        std::fs::write(&path, unit.replace(started, "/bin/true")).unwrap();
        if let Ok(judged) = Command::new("systemd-analyze").arg("verify").arg(&path).output() {
            let said = String::from_utf8_lossy(&judged.stderr).into_owned();
            let about =
                said.lines().filter(|line| line.contains(name.trim_end_matches(".service")));
            assert_eq!(about.collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }
    let house = House::with(CONFIG);
    let help = house.organism(&["run", "--help"]);
    assert!(help.out.contains("--config"), "{help:?}");
}

/// The files that the compose files mount exist, and the compose files publish no port.
#[test]
fn the_compose_files_name_what_there_is_and_publish_nothing() {
    for name in ["one", "three"] {
        let text = read(&format!("{name}/compose.yaml"));
        assert!(!text.contains('\t') && !text.contains("ports:"), "{name}");
        let here = folder().join(name);
        let mounted = text.lines().filter_map(|line| line.trim().strip_prefix("- ../"));
        let mounted: BTreeSet<_> = mounted.map(|line| line.split(':').next().unwrap()).collect();
        assert!(!mounted.is_empty(), "{name} mounts a server's config");
        for path in mounted {
            assert!(here.join("..").join(path).is_file(), "{name}: {path}");
        }
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_else(|| panic!("{name} has no {key}")).trim().to_owned()
        };
        let context = here.join(value("context:"));
        assert!(context.join(value("dockerfile:")).is_file(), "{name}: its image can be built");
        assert!(value("test:").contains("/readyz"), "{name}");
        let listen = read("journal.toml");
        assert!(listen.contains("listen = \"127.0.0.1:9464\""), "where the check asks");
        // Each server, because any server may fail; on a network, because a shared loopback
        // interface is lost when its owner restarts.
        let named = value("ORGANISM_NATS__URL:");
        let named: Vec<_> = named
            .split(',')
            .map(|url| url.strip_prefix("nats://").unwrap().strip_suffix(":4222").unwrap())
            .collect();
        let services =
            text.split("\nservices:\n").nth(1).unwrap().split("\nvolumes:").next().unwrap();
        let services =
            services.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
        let servers = services.filter(|own| !own.starts_with(' ') && *own != "organism");
        let servers: Vec<_> = servers.collect();
        assert_eq!(named, servers, "{name}");
        assert!(value("command:").ends_with("\"--addr\", \"0.0.0.0\"]"), "{name}");
        assert!(!text.contains("network_mode"), "{name}");
    }
}

/// Another machine is refused with an exit code after which systemd does not restart it. With the
/// note that the README names, the machine waits for the lease instead.
#[test]
fn another_machine_joins_with_the_note_that_the_readme_names() {
    const STREAM: &str = "ORGANISM-talk";

    let readme = read("README.md");
    assert!(readme.contains("`state/STREAM.organism`"), "what has to be copied");
    let unit = read("systemd/organism@.service");
    // No restart helps these exits of `organism run`.
    let prevented = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    let prevented: Vec<_> = prevented.unwrap_or_default().split(' ').collect();
    assert_eq!(prevented, ["78", "2", "4", "5", "65"], "{unit}");

    let server = Server::start();
    let address = server.address();
    let journal = "[journal]\nstore = \"jetstream\"\ndurability = \"synced\"";
    let config = format!("{CONFIG}\n{journal}\n\n[nats]\nurl = \"{address}\"\n");
    let [first, second] = [(); 2].map(|()| {
        let house = House::settled(&config);
        std::fs::remove_file(house.stream_note(STREAM)).unwrap();
        house
    });
    let running = first.run();
    // A host without a copy of the journal does not know which threads are on record.
    for command in [&["run"][..], &["cancel", "sess-absent00"]] {
        let refused = second.organism(command);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.err.contains("of another project"), "{refused:?}");
    }

    std::fs::copy(first.stream_note(STREAM), second.stream_note(STREAM)).unwrap();
    let waits = second.organism(&["run"]);
    assert_eq!(waits.code, Some(75), "{waits:?}");
    assert_eq!(running.stop(), Some(0));
}

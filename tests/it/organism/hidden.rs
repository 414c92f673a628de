//! The memory of a process that may contain keys is closed to other processes of the same user.
//!
//! Root may inspect every process. If the tests run as root, these tests switch to another user.
#![cfg(target_os = "linux")]

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{CommandOutput, House, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "live"
schema = "talk.xsd"
accepts = ["ping"]

[models.live]
provider = "openai"
model = "m"
api_key_env = "LIVE_KEY"
"#;

const KEY: &str = "sk-of-nobody-0000000000000000";
/// Id of a user without any permissions. The user need not have an account.
const SOMEBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Creates a command that runs as the user without permissions.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}")];
    command.args(user).args(["--clear-groups", "--"]).arg(program);
    command
}

/// Returns a house that belongs to the user without permissions, and the path of a copy of the
/// program. The copy is readable, because the system itself closes the memory of a process whose
/// program is unreadable, and the tests would then prove nothing.
fn house() -> (House, PathBuf) {
    let house = House::with(CONFIG);
    let program = house.path("organism");
    std::fs::copy(env!("CARGO_BIN_EXE_organism"), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for place in ["data", "state"] {
        std::fs::create_dir(house.path(place)).unwrap();
    }
    if is_root() {
        for place in [".", "data", "state", "organism"] {
            chown(house.path(place), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
    }
    (house, program)
}

fn organism(house: &House, program: &Path, arguments: &[&str]) -> Command {
    let plain = house.command(arguments);
    let mut command = as_user(program);
    command.args(arguments).current_dir(house.path(".")).env("LIVE_KEY", KEY);
    plain.get_envs().filter_map(|(name, value)| Some((name, value?))).for_each(|(name, value)| {
        command.env(name, value);
    });
    command
}

/// Reads a process's file under /proc, in another process of the same user.
fn seen(process: &Child, file: &str) -> CommandOutput {
    let path = format!("/proc/{}/{file}", process.id());
    let mut command = as_user(Path::new("head"));
    command.args(["-c", "100000", &path]).output().unwrap().into()
}

#[test]
fn no_other_process_of_the_user_looks_into_one_that_may_hold_keys() {
    let (house, program) = house();
    let running = house.run_with(organism(&house, &program, &["run"]));
    // A process without keys is open, so the refusals below have no other cause.
    let mut tail = organism(&house, &program, &["tail"]);
    let mut open = tail.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it can be looked into", || seen(&open, "environ").out.contains(KEY).then_some(()));
    open.kill().unwrap();
    open.wait().unwrap();

    assert!(seen(&running.child, "cmdline").out.contains("run"), "it is there");
    for file in ["environ", "maps", "mem"] {
        let closed = seen(&running.child, file);
        assert_eq!((closed.code, &*closed.out), (Some(1), ""), "{file}: {closed:?}");
        assert!(closed.err.contains("Permission denied"), "{file}: {closed:?}");
    }
    assert_eq!(running.stop(), Some(0));

    let mut key = organism(&house, &program, &["operator", "key", "me.key"]);
    let key = key.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut waiting = key.spawn().unwrap();
    until("it waits for the passphrase of a key and is closed", || {
        let is_begun = seen(&waiting, "comm").out == "organism\n";
        (is_begun && seen(&waiting, "environ").err.contains("Permission denied")).then_some(())
    });
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

//! Processes that a killed pump leaves behind. The listeners of the pump end with the pump, and all
//! processes that the listeners started end before the next pump delivers.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};

use super::{ECHO_CONFIG, House, say, talk_reply, until};

/// Program of a listener that answers and has three child processes, two of them in separate
/// sessions. If there is a file `again`, it starts a fourth one, with an empty environment, and a
/// chain of processes.
const KEEPER: &str = "sleep 1000 >/dev/null 2>&1 &
echo $! > child
setsid sh -c 'echo $$ > detached; exec sleep 1000' >/dev/null 2>&1 &
setsid python3 threaded.py >/dev/null 2>&1 &
if [ -e again ]; then
    setsid sh chain.sh 8 >/dev/null 2>&1 &
    env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > emptied; exec sleep 1000' >/dev/null 2>&1 &
fi
echo $$ > listener
exec ./player.pl echo
";

/// Program of a process whose main thread exits while another thread goes on.
const THREADED: &str = "import ctypes, os, threading

def run():
    while ') Z ' not in open(f'/proc/{os.getpid()}/stat').read():
        pass
    with open('threaded', 'w') as file:
        file.write(str(os.getpid()))
    threading.Event().wait()

threading.Thread(target=run).start()
ctypes.CDLL(None).pthread_exit(None)
";

/// Program of a chain of processes: each one starts the next, as many as its argument states.
const CHAIN: &str = "if [ $1 -gt 0 ]; then
    setsid sh chain.sh $(($1 - 1)) &
else
    echo $$ > deepest
fi
exec sleep 1000
";

/// Script that executes its arguments while it has a child that goes on.
const RUNNING_CHILD: &str = "sleep 1000 >/dev/null 2>&1 & echo $! > earlier; exec \"$0\" \"$@\"";

/// Perl script that executes its arguments while it has a child that has ended, and whose exit code
/// is not collected.
const ENDED_CHILD: &str = "my $pid = fork // die;
exit if !$pid;
do { open my $stat, '<', \"/proc/$pid/stat\" or die; $_ = <$stat> } until /\\) Z /;
exec @ARGV";

const MARK: &str = "ORGANISM_PUMP";

fn house() -> House {
    let config = ECHO_CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"sh\", \"keeper.sh\"]");
    let house = House::with(&config);
    house.write("keeper.sh", KEEPER);
    house.write("threaded.py", THREADED);
    house.write("chain.sh", CHAIN);
    house
}

/// Returns the command of a script that becomes the organism. `interpreter` is the program with the
/// option that executes a script.
fn run_after(house: &House, interpreter: [&str; 2], script: &str) -> Command {
    let organism = house.command(&["run"]);
    let [program, option] = interpreter;
    let mut command = Command::new(program);
    command.args([option, script]).arg(organism.get_program()).arg("run");
    command.current_dir(house.path(".")).stdin(Stdio::null());
    for (name, value) in organism.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The process id in a file of this name.
fn pid(house: &House, file: &str) -> u32 {
    until(file, || std::fs::read_to_string(house.path(file)).ok()?.trim().parse().ok())
}

/// Whether any thread of the process runs.
fn is_running(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut statuses = threads.map(|thread| std::fs::read_to_string(thread.path().join("status")));
    statuses.any(|status| {
        status.is_ok_and(|status| !status.contains("State:\tZ") && !status.contains("State:\tX"))
    })
}

fn ended(pid: u32) {
    until("a process has ended", || (!is_running(pid)).then_some(()));
}

/// Returns the value of [`MARK`] in the environment of a process. Waits until the mark is there,
/// because the environment is empty for a moment while the process replaces its program by another
/// one.
fn mark_of(pid: u32) -> String {
    until("a mark", || {
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
        let mark = environment.split('\0').find_map(|entry| entry.strip_prefix("ORGANISM_PUMP="));
        mark.map(str::to_owned)
    })
}

/// A process of another user, which is killed at the end of the test.
struct Stranger(Child);

impl Stranger {
    fn start(mark: &str) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env(MARK, mark).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn processes_of_listeners_end_at_a_stop_and_at_the_start_after_a_kill() {
    let house = house();
    let running = house.run();
    let all = ["listener", "child", "detached", "threaded"].map(|file| pid(&house, file));
    let [listener, child, detached, threaded] = all;
    let mark = mark_of(listener);
    assert_eq!(mark_of(detached), mark, "what a listener starts inherits its mark");

    running.signal("-KILL");
    drop(running);
    ended(listener);
    for pid in [detached, threaded] {
        assert!(is_running(pid), "the death signal reaches no process that a listener started");
    }

    for file in ["listener", "child", "detached", "threaded"] {
        std::fs::remove_file(house.path(file)).unwrap();
    }
    house.write("again", "");
    let running = house.run_with(run_after(&house, ["perl", "-e"], ENDED_CHILD));
    let survivors = all.iter().filter(|pid| is_running(**pid)).count();
    assert_eq!(survivors, 0, "{child}, {detached} and {threaded} should be gone");
    assert!(
        house.log().contains("that an earlier run on this journal had left"),
        "{}",
        house.log()
    );
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));

    let again = ["listener", "detached", "emptied", "threaded", "deepest"];
    let again = again.map(|file| pid(&house, file));
    assert_ne!(mark_of(again[0]), mark, "a new epoch");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(again.map(is_running), [false; 5], "a stop ends what its listeners detached");
    let reported = "ended processes that had detached themselves from their listener: ";
    let log = house.log();
    let (_, reported) = log.split_once(reported).unwrap_or_else(|| panic!("{log}"));
    for pid in &again[1..] {
        assert!(reported.contains(&format!("{pid} (")), "{log}");
    }
}

/// A shell that starts a process and then becomes the organism leaves this process to it. Such a
/// process does not come from a listener.
#[test]
fn a_stop_ends_no_process_that_the_organism_had_before_its_start() {
    let house = house();
    let running = house.run_with(run_after(&house, ["sh", "-c"], RUNNING_CHILD));
    let all = ["earlier", "detached", "threaded"].map(|file| pid(&house, file));
    assert_eq!(running.stop(), Some(0));
    let still_run = all.map(is_running);
    for pid in all {
        Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
    assert_eq!(still_run, [true; 3]);

    let log = house.log();
    let (_, reported) = log.split_once("did not end processes").unwrap_or_else(|| panic!("{log}"));
    let is_reported = all.map(|pid| reported.contains(&format!(" {pid} (")));
    assert_eq!(is_reported, [false, true, true], "{log}");
    assert!(!reported.contains("did not end processes"), "reported once: {log}");
}

#[test]
fn a_start_ends_nothing_that_does_not_name_this_journal_and_an_earlier_epoch() {
    let house = house();
    let running = house.run();
    let mark = mark_of(pid(&house, "listener"));
    running.signal("-KILL");
    drop(running);

    let parts: Vec<_> = mark.split('/').collect();
    let [journal, epoch, namespace, pump, started] = parts[..] else { panic!("{mark}") };
    let other_journal = "00000000-0000-7000-8000-000000000000";
    let own = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
    let own_start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let spared = [
        format!("{other_journal}/{epoch}/{namespace}/{pump}/{started}"),
        format!("{journal}/4000000000/{namespace}/{pump}/{started}"),
        format!("{journal}/{epoch}/1/{pump}/{started}"),
        format!("{journal}/{epoch}/{namespace}/{own}/{own_start}"),
        format!("{mark}/"),
        format!("0{mark}"),
        journal.to_owned(),
        String::new(),
    ];
    let spared: Vec<_> = spared.iter().map(|mark| Stranger::start(mark)).collect();
    let mut leftover = Stranger::start(&mark);

    let running = house.run();
    until("what names an earlier run has ended", || leftover.0.try_wait().unwrap());
    for stranger in &spared {
        assert!(is_running(stranger.0.id()), "{}", mark_of(stranger.0.id()));
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_launcher_whose_parent_is_not_the_pump_starts_nothing() {
    let house = House::with_echo();
    let launched = house.organism(&["launch-listener", "1", "touch", "started"]);
    assert_eq!(launched.code, Some(69), "{launched:?}");
    assert!(!house.path("started").exists());

    let own = std::process::id().to_string();
    let launched = house.organism(&["launch-listener", &own, "touch", "--", "started"]);
    assert_eq!(launched.code, Some(0), "{launched:?}");
    assert!(house.path("started").exists());
}

/// A launched listener has a session of its own. In the session of its parent, it could type into
/// the operator's shell.
#[test]
fn a_launched_listener_has_a_session_of_its_own() {
    let house = House::with_echo();
    let own = std::process::id().to_string();
    let script = "[ $(cut -d ' ' -f 6 /proc/$$/stat) -eq $$ ] && touch apart";
    let launched = house.organism(&["launch-listener", &own, "sh", "-c", script]);
    assert_eq!(launched.code, Some(0), "{launched:?}");
    assert!(house.path("apart").exists());
}

#[test]
fn a_listener_that_cannot_be_executed_is_described() {
    let config = ECHO_CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"./echo.bin\"]");
    let house = House::with(&config);
    house.write("echo.bin", "#!/etc/passwd\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(house.path("echo.bin"), executable).unwrap();
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.err.contains("cannot start `"), "{sent:?}");
    assert!(sent.err.contains("Permission denied"), "{sent:?}");
}

/// An organism uses as many files as the hard limit allows. Its listeners get the soft limit that
/// the command had, because not every program works with descriptors above 1,023.
#[test]
fn listeners_get_the_soft_limit_of_open_files_that_the_command_had() {
    let config = ECHO_CONFIG.replace("[\"./player.pl\", \"echo\"]", "[\"sh\", \"limited.sh\"]");
    let house = House::with(&config);
    let limited = "ulimit -n > limit
env > variables
grep 'open files' /proc/$PPID/limits > parent
exec ./player.pl echo
";
    house.write("limited.sh", limited);
    house.write("hello.xml", say("hello"));
    let script = "ulimit -Sn 300; ulimit -Hn 500; exec \"$0\" \"$@\"";
    let mut command = house.script(script, &["send", "--as", "desk", "hello.xml"]);
    let sent = super::CommandOutput::from(command.output().unwrap());
    assert_eq!(sent.out, talk_reply("hello"), "{sent:?}");
    assert!(!sent.err.contains("file descriptors"), "{sent:?}");

    let written = |name: &str| std::fs::read_to_string(house.path(name)).unwrap();
    assert_eq!(written("limit").trim(), "300");
    assert!(!written("variables").contains("SOFT_FILE_LIMIT"));
    let parent = written("parent");
    let limits: Vec<&str> = parent.split_whitespace().skip(3).take(2).collect();
    assert_eq!(limits, ["500", "500"], "{parent}");
}

#[test]
fn a_start_warns_of_more_processes_than_the_limit_of_open_files_allows() {
    let house = House::with(&format!("{ECHO_CONFIG}instances = 4\n"));
    house.write("hello.xml", say("hello"));
    let script = "ulimit -n 75; exec \"$0\" \"$@\"";
    let mut command = house.script(script, &["send", "--as", "desk", "hello.xml"]);
    let sent = super::CommandOutput::from(command.output().unwrap());
    assert_eq!(sent.out, talk_reply("hello"), "{sent:?}");
    let warning = "4 processes of listeners need about 80 file descriptors, and this process may \
                   have 75 open";
    assert!(sent.err.contains(warning), "{sent:?}");
}

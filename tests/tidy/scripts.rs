//! The scripts in `.ci` end with the tests, also after a failure, and report failures. The tests run
//! the scripts with other programs in place of cargo, npm and the like.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::tree::{read, root};

/// A process that a failed test leaves behind holds the standard output of the tests.
/// `.ci/record-output` does not wait for this process.
#[test]
fn a_recorded_command_ends_although_a_process_that_it_left_holds_its_output() {
    let recorded = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(root().join(".ci/record-output"));
    command.arg(recorded.path()).args(["sh", "-c", "sleep 600 & echo \"  left $!\"; exit 3"]);
    command.stdout(Stdio::piped());
    let recording = command.spawn().unwrap();

    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || sender.send(recording.wait_with_output()));
    let output = output.recv_timeout(Duration::from_secs(60));
    let text = std::fs::read_to_string(recorded.path()).unwrap();
    let left = text.trim().strip_prefix("left ").unwrap();
    assert!(Command::new("kill").arg(left).status().unwrap().success(), "it has ended: {text}");

    let output = output.expect("it waits for the process that is left").unwrap();
    assert_eq!((output.status.code(), &*text), (Some(3), &*format!("  left {left}\n\n")));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
}

/// A copy of scripts in a directory of its own.
struct ScriptCopy {
    directory: tempfile::TempDir,
}

impl ScriptCopy {
    fn of(scripts: &[&str]) -> Self {
        let copy = Self { directory: tempfile::tempdir().expect("a directory") };
        for script in scripts {
            copy.program(script, &read(script));
        }
        copy
    }

    fn at(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.at().join(path);
        fs::create_dir_all(path.parent().expect("its directory")).expect("a directory");
        fs::write(path, text).expect("it is written");
    }

    /// Writes a program. Another process writes the file: a process that another test starts would
    /// inherit this file for a moment if it were open here, and the program cannot start meanwhile.
    fn program(&self, path: &str, text: &str) {
        let mut write = Command::new("sh");
        write
            .args(["-c", "mkdir -p \"${0%/*}\" && cat >\"$0\" && chmod +x \"$0\""])
            .arg(self.at().join(path));
        let mut writer = write.stdin(Stdio::piped()).spawn().expect("a shell");
        let mut input = writer.stdin.take().expect("its input");
        input.write_all(text.as_bytes()).expect("it is written");
        drop(input);
        assert!(writer.wait().expect("it ends").success(), "{path}");
    }

    /// A script with arguments. It finds the programs in `bin` first.
    fn command(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.at().join(script));
        let path = std::env::var("PATH").expect("a path");
        command.args(arguments).env("PATH", format!("{}/bin:{path}", self.at().display()));
        command
    }
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.code(), texts.concat())
}

const CONFORMANCE: [&str; 2] = [".ci/conformance", ".ci/record-output"];

#[test]
fn a_failed_build_of_the_conformance_tests_is_shown() {
    let copy = ScriptCopy::of(&CONFORMANCE);
    copy.program("bin/cargo", "#!/bin/sh\necho broken >&2\nexit 101\n");
    let output = copy.command(".ci/conformance", &[]).env_remove("CARGO").output().unwrap();
    let (code, text) = outcome(&output);
    assert_ne!(code, Some(0));
    assert_eq!(text, "broken\n");
}

#[test]
fn a_server_gets_no_more_kills_of_a_long_campaign_than_it_can_stand() {
    let copy = ScriptCopy::of(&CONFORMANCE);
    copy.program(
        "bin/cargo",
        "#!/bin/sh\ncase \"$*\" in *--list*) echo 'a: test' ;; *) echo \"kills ${KILLS:-own}\"\n\
         echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;; esac\n",
    );
    for (torture, given, expected) in [
        (true, Some("5000"), "20"),
        (true, None, "20"),
        (true, Some("7"), "7"),
        (false, None, "own"),
    ] {
        let mut command = copy.command(".ci/conformance", &[]);
        command.env_remove("CARGO").env_remove("ORGANISM_TORTURE").env_remove("KILLS");
        command.envs(given.map(|given| ("KILLS", given)));
        if torture {
            command.env("ORGANISM_TORTURE", "1");
        }
        let (code, text) = outcome(&command.output().unwrap());
        assert!(text.contains(&format!("kills {expected}\n")), "{given:?}: {text}");
        assert_eq!(code, Some(0), "{text}");
    }
}

/// A copy of `.ci/old-servers`, in which the installation of the server 2.9.10 exits with `code`.
fn old_servers(code: u8) -> ScriptCopy {
    let copy = ScriptCopy::of(&[".ci/old-servers"]);
    let install = format!("#!/bin/sh\ncase $1 in 2.9.10) exit {code} ;; esac\n");
    copy.program(".ci/nats", &install);
    copy.program(".ci/conformance", "#!/bin/sh\necho \"conformance on $NATS_SERVER\"\n");
    copy.program(
        "bin/cargo",
        "#!/bin/sh\necho \"suite with ${KILLS:-own} kills on $NATS_SERVER\"\n",
    );
    copy
}

#[test]
fn older_servers_are_tried_although_this_machine_cannot_have_one_of_them() {
    let copy = old_servers(3);
    let report = copy.at().join("report.txt");
    let mut command = copy.command(".ci/old-servers", &["2.9.10", "2.12.8"]);
    command.env("ORGANISM_CAMPAIGNS", &report).env_remove("CARGO");
    command.env("ORGANISM_TORTURE", "1").env("KILLS", "5000");
    let (code, text) = outcome(&command.output().unwrap());

    let skipped = "skipped 2.9.10: needs Debian 12 on amd64\n";
    assert!(text.starts_with(&format!("{skipped}on NATS 2.12.8\nconformance on ")), "{text}");
    assert!(text.ends_with("/target/nats-2.12.8/bin/nats-server\n"), "{text}");
    assert!(text.contains("\nsuite with 20 kills on "), "{text}");
    assert_eq!(code, Some(0));
    assert_eq!(fs::read_to_string(report).unwrap(), skipped);
}

#[test]
fn an_older_server_that_could_not_be_installed_stops_no_other_and_fails_the_run() {
    let copy = old_servers(1);
    let mut command = copy.command(".ci/old-servers", &["2.9.10", "2.12.8"]);
    command.env_remove("CARGO").env_remove("ORGANISM_CAMPAIGNS");
    let (code, text) = outcome(&command.output().unwrap());
    assert!(text.starts_with("FAILED 2.9.10: could not be installed\non NATS 2.12.8\n"), "{text}");
    assert_eq!(code, Some(1));
}

const KIT_FILES: [&str; 8] = [
    "listeners/typescript/src/index.ts",
    "listeners/typescript/package.json",
    "listeners/typescript/package-lock.json",
    "listeners/typescript/tsconfig.json",
    "listeners/typescript/README.md",
    "listeners/typescript/.npmrc",
    "tests/data/listeners/listener.mts",
    "tests/data/listeners/tsconfig.json",
];

const NPM: &str = r#"#!/bin/sh
case $1 in
ci)
    mkdir -p node_modules/.bin
    printf '#!/bin/sh\n' >node_modules/.bin/tsc
    chmod +x node_modules/.bin/tsc
    ;;
pack) tar -czf organism-listener-2.0.0.tgz package.json src ;;
esac
"#;

#[test]
fn the_package_of_an_earlier_version_of_the_typescript_kit_is_removed() {
    let copy = ScriptCopy::of(&[".ci/typescript"]);
    KIT_FILES.iter().for_each(|path| copy.file(path, "{}"));
    copy.file("target/typescript/organism-listener-1.0.0.tgz", "an earlier version");
    copy.program("bin/node", "#!/bin/sh\necho v18\n");
    copy.program("bin/npm", NPM);

    let (code, text) = outcome(&copy.command(".ci/typescript", &[]).output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    let unpacked = "target/typescript/try/node_modules/organism-listener";
    assert!(copy.at().join(unpacked).join("index.ts").is_file());
}

#[test]
fn an_environment_of_another_python_or_of_none_is_not_taken_for_an_installed_one() {
    let copy = ScriptCopy::of(&[".ci/pip-installed"]);
    copy.file("wanted.txt", "a package");
    let is_installed = || {
        let checked = copy.command(".ci/pip-installed", &["wanted.txt", "home"]).output().unwrap();
        checked.status.success()
    };
    assert!(!is_installed());

    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--without-pip", "home"]).current_dir(copy.at());
    let (code, text) = outcome(&make.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    copy.file("home/installed.txt", "another package");
    assert!(!is_installed());
    copy.file("home/installed.txt", "a package");
    assert!(is_installed());

    let home = copy.at().join("home");
    fs::rename(home.join("lib"), home.join("earlier")).unwrap();
    assert!(!is_installed(), "its packages are those of another version");
    fs::rename(home.join("earlier"), home.join("lib")).unwrap();
    assert!(is_installed());
    fs::remove_file(home.join("bin/python3")).unwrap();
    std::os::unix::fs::symlink(home.join("missing"), home.join("bin/python3")).unwrap();
    assert!(!is_installed());

    for script in [".ci/sdks", ".ci/natspy", ".ci/browser"] {
        let is_checked = read(script).contains(".ci/pip-installed \"$wanted\" \"$home\" && ");
        assert!(is_checked, "{script}");
    }
}

#[test]
fn long_campaigns_report_on_every_server() {
    let makefile = read("Makefile");
    let (_, torture) = makefile.split_once("\ntorture: ").expect("a target");
    let (first, _) = torture.split_once("$(MAKE)").expect("a make within it");
    let report = "export ORGANISM_TORTURE=1 ORGANISM_CAMPAIGNS=\"$(CURDIR)/target/torture.txt\";";
    assert!(first.contains(report), "{first}");
}

#[test]
fn make_without_a_target_lists_all_targets() {
    let mut command = Command::new("make");
    // These tests may themselves run in a make.
    command.arg("--no-print-directory").env_remove("MAKEFLAGS").current_dir(root());
    let (code, text) = outcome(&command.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    let makefile = read("Makefile");
    let documented = makefile.lines().filter(|line| line.contains("## "));
    let names = documented.filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let expected: Vec<_> = names.filter(|name| !name.starts_with('\t')).collect();
    assert!(expected.contains(&"bench-large"));
    let names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, expected);
}

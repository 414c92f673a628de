//! Tests of installations, which are proposed before they run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{Room, WORKSPACE, action, escaped, own, value_in, verdict};

fn propose(language: &str, packages: &str) -> String {
    action(
        "proposed_package_install",
        &format!("language=\"{language}\" package_list=\"{packages}\""),
        "",
    )
}

// A5
#[test]
fn a_proposal_shows_the_exact_command_of_its_language() {
    let room = Room::new();
    let cases = [
        ("typescript", "zod,drizzle-orm", "npm install --no-fund --no-audit zod drizzle-orm"),
        (
            "JavaScript",
            " @scope/name@^1.2 ,, x ",
            "npm install --no-fund --no-audit '@scope/name@^1.2' x",
        ),
        ("python", "requests>=2,<3", "(none)"),
        (
            "python",
            "requests==2.31.0, uvicorn[standard]",
            "python3 -m pip install --no-input requests==2.31.0 'uvicorn[standard]'",
        ),
        (
            "python",
            "uvicorn[standard]==0.30, x~=1.4.*",
            "python3 -m pip install --no-input 'uvicorn[standard]==0.30' 'x~=1.4.*'",
        ),
        ("node", "a@*, b@latest", "npm install --no-fund --no-audit 'a@*' b@latest"),
        ("rust", "serde", "cargo add serde"),
        ("go", "example.org/x/text@v0.3.0", "go get example.org/x/text@v0.3.0"),
        ("php", "vendor/name", "composer require --no-interaction vendor/name"),
    ];

    for (language, packages, command) in cases {
        let packages = packages.replace('<', "&lt;");
        let answer = room.ask(&propose(language, &packages));
        assert_eq!(value_in(&answer, "command"), command, "{answer}");
    }

    assert!(room.files().is_empty());
}

#[test]
fn what_is_no_name_of_a_package_is_refused() {
    let room = Room::new();
    let names = [
        "",
        " , ",
        "-e .",
        "--index-url=x",
        ".",
        "..",
        "./x",
        "../x",
        "/x",
        "a b",
        "a;b",
        "$(x)",
        "a&amp;b",
        "git+ssh://x/y",
        "https://example.com/x.tgz",
        "file:x",
        "x.whl",
        "x.TGZ",
        "a|b",
        "owner/repository",
        "@/x",
        "@a/b/c",
        "a\\b",
        "a&#10;b",
        "ä",
        "'",
        "evil.tar",
        "foo@.evil",
        "foo@..",
        "@s/foo@.evil",
        "foo@1.tar",
        "foo@",
        "foo[x]",
    ];

    for name in names {
        let answer = room.ask(&propose("typescript", name));
        assert_eq!(verdict(&answer), "bad-package", "{name}: {answer}");
    }

    let archives = [
        "evil.tar",
        "evil-1.0-py3-none-any.whl[x]",
        "evil.zip[x]==1",
        "evil==1.tar.gz",
        "evil.tbz",
        "evil.txz",
        "evil.tlz",
        "evil.tar.lz",
        "evil.TAR.lzma",
        "evil[x].whl",
        "evil[x",
    ];
    for name in archives {
        let answer = room.ask(&propose("python", name));
        assert_eq!(verdict(&answer), "bad-package", "{name}: {answer}");
    }

    assert_eq!(verdict(&room.ask(&propose("rust", "a/b"))), "bad-package");
    assert_eq!(verdict(&room.ask(&propose("cobol", "x"))), "unknown-language");
    let many = vec!["x"; 51].join(",");
    assert_eq!(verdict(&room.ask(&propose("rust", &many))), "bad-package");
}

/// Writes a `cargo` program that records its arguments.
fn with_cargo(room: &Room) {
    room.write("bin/cargo", "#!/bin/sh\necho \"$@\" >> asked\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(room.path("bin/cargo"), executable).unwrap();
}

/// Creates a workspace in which commands find the program of [`with_cargo`], and modules of Python
/// in the directory `modules` beside the workspace.
fn room_with_cargo(installs: bool) -> Room {
    // Commands search for programs in the `PATH` of the listener.
    let room = Room::with(|options| {
        options.installs = installs;
        options.supervisor = options.state.with_file_name("supervisor");
        let program = env!("CARGO_BIN_EXE_workspace");
        let work = options.state.with_file_name("desk");
        let modules = options.state.with_file_name("modules");
        let script = format!(
            "#!/bin/sh\nPATH=\"{}/bin:$PATH\" PYTHONPATH=\"{}\" exec \"{program}\" \"$@\"\n",
            work.display(),
            modules.display()
        );
        fs::write(&options.supervisor, script).unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&options.supervisor, executable).unwrap();
    });
    with_cargo(&room);
    room
}

// A5
#[test]
fn a_proposal_runs_only_on_request_and_only_once() {
    let room = room_with_cargo(false);
    let proposed = room.ask(&propose("rust", "serde, toml"));
    assert!(!room.path("asked").exists());
    let name = value_in(&proposed, "@proposal");
    let install = own("install-packages", &format!("proposal='{name}'"));
    let ran = room.deliver("run", &install);
    assert_eq!(value_in(&ran, "@exit_code"), "0", "{ran}");
    assert_eq!(value_in(&ran, "command"), "cargo add serde toml");
    assert_eq!(room.read("asked"), "add serde toml\n");
    assert_eq!(room.deliver("run", &install), ran);
    assert_eq!(verdict(&room.ask(&install)), "unknown-proposal");
    for name in ["", "../root", "x/y", "root"] {
        let install = format!("<install-packages xmlns=\"{WORKSPACE}\" proposal=\"{name}\"/>");
        assert_eq!(verdict(&room.ask(&install)), "unknown-proposal");
    }
    assert_eq!(room.read("asked"), "add serde toml\n");
}

/// Python takes modules from the working directory with `-m` and `-c`. There, an agent may have
/// written a `pip.py`, or a module that `pip` or Python itself takes.
#[test]
fn pip_runs_in_the_workspace_without_its_modules() {
    for installs in [true, false] {
        let room = room_with_cargo(installs);
        let pip = room.directory.path().join("modules/pip");
        fs::create_dir_all(&pip).unwrap();
        fs::write(pip.join("__init__.py"), "").unwrap();
        let source = "import json, os, sys\nprint(os.getcwd(), json.dumps(sys.argv[1:]))\n";
        fs::write(pip.join("__main__.py"), source).unwrap();
        for module in ["pip", "json", "runpy", "linecache", "sitecustomize"] {
            room.write(&format!("{module}.py"), format!("print('ran {module}')\n"));
        }

        let mut answer = room.ask(&propose("python", "six"));
        if !installs {
            let name = value_in(&answer, "@proposal");
            answer = room.ask(&own("install-packages", &format!("proposal='{name}'")));
        }
        let expected =
            format!("{} [\"install\", \"--no-input\", \"six\"]\n", room.work().display());
        assert!(answer.contains(&escaped(&expected)), "{answer}");
        assert!(answer.contains("python3 -m pip install --no-input six"), "{answer}");
        assert!(!answer.contains("ran "), "{answer}");
    }
}

#[test]
fn where_every_call_is_approved_a_proposal_is_run_at_once() {
    let room = room_with_cargo(true);
    let answer = room.ask(&propose("rust", "serde"));
    assert_eq!(verdict(&answer), "install-proposed");
    assert!(answer.contains("<command-result") && answer.contains("exit_code=\"0\""), "{answer}");
    assert_eq!(room.read("asked"), "add serde\n");
}

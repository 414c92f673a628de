//! `organism listener list` and `install`: shipped listeners without the source tree.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use organism::shipped::LISTENERS;

use super::{CommandOutput, Projects, listed};

#[test]
fn each_listener_is_listed_and_installed_with_lines_for_a_config_that_passes_check() {
    let projects = Projects::new();
    let shown = projects.organism("", &["listener", "list"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let json = projects.organism("", &["listener", "list", "--json"]).json();
    assert_eq!(json.len(), LISTENERS.len());
    for listener in LISTENERS {
        assert!(shown.out.contains(listener.name), "{shown:?}");
        let made = projects.organism("", &["listener", "install", listener.name]);
        assert_eq!(made.code, Some(0), "{made:?}");
        if listener.config.is_empty() {
            continue;
        }
        if listener.name == "intake" {
            // The README of the listener names this variable.
            assert!(made.out.contains("${INTAKE_DATA:-intake-data}/ledger.jsonl"), "{made:?}");
        }

        let name = made.out.lines().next().unwrap();
        let name = name.trim_start_matches("[listeners.").trim_end_matches(']');
        let config = format!("organism.name = \"new\"\nclients.desk.peers = [\"{name}\"]\n\n");
        std::fs::write(projects.path("organism.toml"), config + &made.out).unwrap();
        let checked = projects.organism("", &["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{name}: {checked:?}");
    }
}

#[test]
fn an_installed_listener_in_python_runs_without_the_source_tree() {
    let projects = Projects::new();
    let made = projects.organism("", &["listener", "install", "calculator", "tools/sums"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let head = "organism.name = \"new\"\nclients.desk.peers = [\"calculator\"]\n\n";
    std::fs::write(projects.path("organism.toml"), format!("{head}{}", made.out)).unwrap();
    let payload = "<calculate xmlns=\"https://xml-pipeline.org/ns/calculator/v1\">\
                   <expression>0.1 + 0.2</expression></calculate>";
    std::fs::write(projects.path("sum.xml"), payload).unwrap();
    let sent = projects.organism("", &["send", "sum.xml"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains("<value>0.3</value>"), "{sent:?}");
}

#[test]
fn each_value_of_the_installed_calculator_passes_the_gate() {
    let projects = Projects::new();
    let made = projects.organism("", &["listener", "install", "calculator"]);
    let head = "organism.name = \"new\"\nclients.desk.peers = [\"calculator\"]\n\n";
    std::fs::write(projects.path("organism.toml"), format!("{head}{}", made.out)).unwrap();
    let power = format!("1{}", "0".repeat(3_500));
    for (expression, exact, value) in [
        ("1 / 3", false, "0.333333333333333333333333333333"),
        ("-sqrt(2)", false, "-1.41421356237309504880168872421"),
        ("2 ** 80", true, "1208925819614629174706176"),
        ("10 ** 3500", true, &power),
    ] {
        let payload = format!(
            "<calculate xmlns=\"https://xml-pipeline.org/ns/calculator/v1\">\
             <expression>{expression}</expression></calculate>"
        );
        std::fs::write(projects.path("sum.xml"), payload).unwrap();
        let sent = projects.organism("", &["send", "sum.xml"]);
        assert_eq!(sent.code, Some(0), "{expression}: {sent:?}");
        let expected = format!("exact=\"{exact}\"><value>{value}</value>");
        assert!(sent.out.contains(&expected), "{expression}: {sent:?}");
    }
}

#[test]
fn an_installed_listener_loads_no_kit_from_outside_its_directory() {
    let projects = Projects::new();
    std::fs::create_dir_all(projects.path("tools/python")).unwrap();
    let decoy = "raise SystemExit('the decoy was loaded')\n";
    std::fs::write(projects.path("tools/python/organism_listener.py"), decoy).unwrap();
    for (listener, program) in
        [("calculator", "calculator.py"), ("intake", "ledger.py"), ("travel", "travel.py")]
    {
        let directory = format!("tools/{listener}");
        let made = projects.organism("", &["listener", "install", listener, &directory]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let mut python = Command::new("python3");
        python.arg(projects.path(&directory).join(program)).arg(projects.path("ledger.jsonl"));
        let ran: CommandOutput = python.stdin(Stdio::null()).output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{listener}: {ran:?}");
    }
}

#[test]
fn check_compares_each_listener_whose_files_a_config_names() {
    let projects = Projects::new();
    for listener in LISTENERS.iter().filter(|listener| listener.config.contains("DIR")) {
        let name = listener.name;
        let made = projects.organism("", &["listener", "install", name]);
        let member = made.out.lines().next().unwrap();
        let member = member.trim_start_matches("[listeners.").trim_end_matches(']');
        let head = format!("organism.name = \"new\"\nclients.desk.peers = [\"{member}\"]\n\n");
        std::fs::write(projects.path("organism.toml"), head + &made.out).unwrap();
        let file = format!("listeners/{name}/listener.toml");
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        let manifest = projects.read(&file);

        let old = manifest.replace(&version, "version = \"0.0.9\"");
        std::fs::write(projects.path(&file), old).unwrap();
        let checked = projects.organism("", &["check"]);
        assert!(checked.err.contains(&format!("{name} 0.0.9")), "{checked:?}");

        // A name or version is printed to the terminal, so its characters are few.
        let hostile = manifest.replace(&version, "version = \"1\\u001b[2J\"");
        std::fs::write(projects.path(&file), hostile).unwrap();
        let checked = projects.organism("", &["check"]);
        assert!(checked.err.contains("`version` has other characters"), "{checked:?}");

        std::fs::write(projects.path(&file), "title = \"of another program\"\n").unwrap();
        assert_eq!(projects.organism("", &["check"]).err, "", "{name}");
    }
}

#[test]
fn check_compares_the_python_kit_that_a_config_names_in_pythonpath() {
    let projects = Projects::new();
    let listener = projects.organism("", &["listener", "install", "shell-echo"]).out;
    let kit = projects.organism("", &["listener", "install", "python"]).out;
    let head = "organism.name = \"new\"\nclients.desk.peers = [\"shell-echo\"]\n\n";
    let config = format!("{head}{listener}{kit}");
    let manifest = projects.read("listeners/python/listener.toml");
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let old = manifest.replace(&version, "version = \"0.0.9\"");

    for paths in ["listeners/python", "/nowhere:listeners/python/"] {
        let named = config.replace("\"listeners/python\"", &format!("\"{paths}\""));
        std::fs::write(projects.path("organism.toml"), named).unwrap();
        std::fs::write(projects.path("listeners/python/listener.toml"), &manifest).unwrap();
        assert_eq!(projects.organism("", &["check"]).err, "", "{paths}");

        std::fs::write(projects.path("listeners/python/listener.toml"), &old).unwrap();
        let checked = projects.organism("", &["check"]);
        let note = "listeners/python is the listener python 0.0.9";
        assert!(checked.err.contains(note), "{paths}: {checked:?}");
        let advice = "install python listeners/python --update";
        assert!(checked.err.contains(advice), "{paths}: {checked:?}");
    }
}

#[test]
fn the_lines_for_a_config_name_any_directory() {
    let projects = Projects::new();
    for directory in ["two words", "a\"quote", "back\\slash", "of ${HOME}", "it's"] {
        let made = projects.organism("", &["listener", "install", "calculator", directory]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let head = "organism.name = \"new\"\nclients.desk.peers = [\"calculator\"]\n\n";
        std::fs::write(projects.path("organism.toml"), format!("{head}{}", made.out)).unwrap();
        let checked = projects.organism("", &["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");

        let again = projects.organism("", &["listener", "install", "calculator", directory]);
        let advice = again.err.split('`').nth(1).unwrap();
        let organism = format!("\"{}\"", env!("CARGO_BIN_EXE_organism"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &advice.replacen("organism", &organism, 1)]);
        shell.current_dir(projects.place.path());
        let updated: CommandOutput = shell.output().unwrap().into();
        assert!(updated.err.contains("nothing differs"), "{advice}: {updated:?}");
    }
    for directory in ["line\nbreak", "$${x"] {
        let made = projects.organism("", &["listener", "install", "calculator", directory]);
        assert_eq!(made.code, Some(2), "{made:?}");
        assert!(made.err.contains("a config cannot name"), "{made:?}");
        assert!(!projects.path(directory).exists());
    }
}

#[test]
fn an_update_restores_a_program_and_names_what_is_left_over() {
    let projects = Projects::new();
    assert_eq!(projects.organism("", &["listener", "install", "shell-echo", "t"]).code, Some(0));
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(projects.path("t/shell-echo"), readable).unwrap();
    let manifest = projects.read("t/listener.toml");
    let old = manifest.replace("[files]\n", "[files]\n\"old.sh\" = \"00\"\n");
    std::fs::write(projects.path("t/listener.toml"), old).unwrap();
    std::fs::write(projects.path("t/old.sh"), "").unwrap();
    std::fs::write(projects.path("t/README.md"), "a\u{1b}[2Jb\n").unwrap();

    let update = ["listener", "install", "shell-echo", "t", "--update", "--yes"];
    let updated = projects.organism("", &update);
    assert_eq!(updated.code, Some(0), "{updated:?}");
    for part in [
        "shell-echo: cannot be executed any more",
        "old.sh: no longer comes with shell-echo",
        "-a\\u{1b}[2Jb",
    ] {
        assert!(updated.out.contains(part), "{part}: {updated:?}");
    }
    let program = std::fs::metadata(projects.path("t/shell-echo")).unwrap();
    assert_eq!(program.permissions().mode() & 0o111, 0o111);
    assert!(projects.path("t/old.sh").exists());

    std::fs::remove_file(projects.path("t/README.md")).unwrap();
    let pipe = Command::new("mkfifo").arg(projects.path("t/README.md")).status().unwrap();
    assert!(pipe.success());
    let refused = projects.organism("", &update);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains("t/README.md: it is no file"), "{refused:?}");
}

#[test]
fn check_notes_an_installed_listener_of_another_version_and_an_update_shows_what_differs() {
    let projects = Projects::new();
    let made = projects.organism("", &["listener", "install", "calculator"]);
    let head = "organism.name = \"new\"\nclients.desk.peers = [\"calculator\"]\n\n";
    std::fs::write(projects.path("organism.toml"), format!("{head}{}", made.out)).unwrap();
    let manifest = projects.read("listeners/calculator/listener.toml");
    let program = projects.read("listeners/calculator/calculator.py");
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&version), "{manifest}");

    // An own change of the program is nothing that `check` notes.
    let own = program.replace("listener.serve()", "listener.serve()  # mine");
    std::fs::write(projects.path("listeners/calculator/calculator.py"), &own).unwrap();
    assert_eq!(projects.organism("", &["check"]).err, "");

    let old = manifest.replace(&version, "version = \"0.0.9\"");
    std::fs::write(projects.path("listeners/calculator/listener.toml"), &old).unwrap();
    let checked = projects.organism("", &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for part in ["calculator 0.0.9", "install calculator listeners/calculator --update"] {
        assert!(checked.err.contains(part), "{part}: {checked:?}");
    }

    let update = ["listener", "install", "calculator", "listeners/calculator", "--update"];
    let shown = projects.organism("", &update);
    assert_eq!(shown.code, Some(2), "{shown:?}");
    for part in
        ["-    listener.serve()  # mine", "+    listener.serve()", "was changed here", "0.0.9"]
    {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    assert!(shown.err.contains("nothing was changed"), "{shown:?}");
    assert_eq!(projects.read("listeners/calculator/calculator.py"), own);
    assert_eq!(projects.read("listeners/calculator/listener.toml"), old);

    let updated = projects.organism("", &[&update[..], &["--yes"]].concat());
    assert_eq!(updated.code, Some(0), "{updated:?}");
    assert_eq!(projects.read("listeners/calculator/calculator.py"), program);
    assert_eq!(projects.read("listeners/calculator/listener.toml"), manifest);
    assert_eq!(projects.organism("", &["check"]).err, "");
    let again = projects.organism("", &update);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("nothing differs"), "{again:?}");
}

#[test]
fn a_wrong_installation_changes_nothing() {
    let projects = Projects::new();
    let made = projects.organism("", &["listener", "install", "calculater"]);
    assert_eq!(made.code, Some(2), "{made:?}");
    assert!(made.err.contains("did you mean `calculator`?"), "{made:?}");

    assert_eq!(projects.organism("", &["listener", "install", "travel", "t"]).code, Some(0));
    let before = listed(&projects.path("t"));
    for (arguments, reason) in [
        (vec!["travel", "t"], "already has README.md"),
        (vec!["calculator", "t", "--update"], "is the listener travel, not calculator"),
        (vec!["calculator", "nowhere", "--update"], "no listener was installed there"),
        (vec!["calculator", "t", "--yes"], "--update"),
    ] {
        let made = projects.organism("", &[&["listener", "install"], &arguments[..]].concat());
        assert_eq!(made.code, Some(2), "{made:?}");
        assert!(made.err.contains(reason), "{reason}: {made:?}");
    }
    assert_eq!(listed(&projects.path("t")), before);
    assert!(!projects.path("nowhere").exists());

    std::fs::write(projects.path("t/listener.toml"), "version = 3").unwrap();
    let broken = projects.organism("", &["listener", "install", "travel", "t", "--update"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.contains("not a manifest"), "{broken:?}");
    assert!(broken.err.contains("or remove these files: README.md, travel.py"), "{broken:?}");

    // An interrupted installation, which has no manifest yet.
    std::fs::remove_file(projects.path("t/listener.toml")).unwrap();
    let again = projects.organism("", &["listener", "install", "travel", "t"]);
    assert!(
        again.err.contains("choose another directory: `organism listener install"),
        "{again:?}"
    );
    assert!(!again.err.contains("--update"), "{again:?}");
    let update = projects.organism("", &["listener", "install", "travel", "t", "--update"]);
    assert_eq!(update.code, Some(2), "{update:?}");
    assert!(update.err.contains("or remove these files: README.md, travel.py"), "{update:?}");
}

#[test]
fn the_programs_of_listeners_state_their_version() {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
    for name in LISTENERS.iter().filter_map(|listener| listener.program) {
        let ran = Command::new(folder.join(name)).arg("--version").output().unwrap();
        let ran: CommandOutput = ran.into();
        let version = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((ran.code, ran.out), (Some(0), version), "{}", ran.err);
    }
}

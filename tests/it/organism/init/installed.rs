//! `organism listener list` and `install`: shipped listeners without the source tree.

use organism::shipped::LISTENERS;

use super::{Projects, listed};

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
}

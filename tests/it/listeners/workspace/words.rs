//! The payloads that the schemas of the workspace permit. Every answer of the workspace is valid
//! against its schema.

use organism::ids::PayloadName;
use organism::schema::Schemas;

use super::{ACTIONS, WORKSPACE, action, ask, direct, house, project, read};

fn schemas() -> Schemas {
    let mut schemas = Schemas::default();
    for file in ["schemas/actions.xsd", "listeners/workspace/schema/workspace.xsd"] {
        schemas.add_file(&project().join(file)).unwrap();
    }
    schemas
}

fn findings(schemas: &Schemas, name: &str, attributes: &str, content: &str) -> Vec<String> {
    let text = action(name, attributes, content);
    let name = PayloadName::new(ACTIONS, name);
    let findings = schemas.validate(&name, text.as_bytes()).err().unwrap_or_default();
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn both_vocabularies_and_their_answers_are_declared_and_their_examples_valid() {
    let schemas = schemas();
    assert_eq!(schemas.warnings(), []);
    let names: Vec<_> = schemas.names().cloned().collect();
    let locals: Vec<_> = names.iter().map(|name| &*name.local).collect();
    let expected = "action-failed changes-applied command-result create_file install-proposed \
         proposed_actions proposed_file_insert proposed_file_replace \
         proposed_file_replace_substring proposed_package_install proposed_shell_command shell \
         str_replace install-packages replace-dangerous-file show-changes undo-changes workspace-changes";
    assert_eq!(locals.join(" "), expected);
    for name in &names {
        let example = schemas.example(name).unwrap_or_else(|| panic!("{name} has no example"));
        assert_eq!(schemas.validate(name, example.as_bytes()), Ok(()), "{example}");
        assert_ne!(schemas.describe(name).doc, "", "{name}");
    }
}

// A1 A2 A3 A4 A5 A6 A7 A8 A9
#[test]
fn each_action_takes_its_own_attributes_and_body_and_no_others() {
    let schemas = schemas();
    let strings = "<old_str>a</old_str><new_str/>";
    let valid = [
        ("proposed_file_replace_substring", "file_path='a' change_summary='b'", strings),
        (
            "proposed_file_replace_substring",
            "file_path='a'",
            "<new_str>b</new_str><old_str> </old_str>",
        ),
        ("proposed_file_replace", "file_path='a' change_summary='b'", "{ }"),
        ("proposed_file_insert", "file_path='a' change_summary='b' line_number='0'", "x"),
        ("proposed_shell_command", "working_directory='a' is_dangerous='false'", "x"),
        ("proposed_shell_command", "is_dangerous='perhaps'", "x"),
        ("proposed_shell_command", "", "x"),
        ("proposed_package_install", "language='a' package_list='b, c'", ""),
        ("proposed_actions", "summary='a'", ""),
        ("shell", "id='a' exec_dir='b'", "x"),
        ("str_replace", "path='a'", strings),
        ("create_file", "path='a'", ""),
        ("changes-applied", "set='1' files='100'", "<diff/>"),
    ];
    for (name, attributes, content) in valid {
        assert_eq!(findings(&schemas, name, attributes, content), [""; 0], "{name} {attributes}");
    }
    let invalid = [
        ("proposed_file_replace_substring", "", strings, "file_path"),
        ("proposed_file_replace_substring", "file_path=''", strings, "file_path"),
        ("proposed_file_replace_substring", "file_path='a'", "<old_str>a</old_str>", "new_str"),
        ("proposed_file_replace_substring", "file_path='a'", "<old_str/><new_str/>", "old_str"),
        ("proposed_file_replace", "path='a'", "x", "file_path"),
        ("proposed_file_replace", "file_path='a'", "<b/>", "b"),
        ("proposed_file_insert", "file_path='a'", "x", "line_number"),
        ("proposed_file_insert", "file_path='a' line_number='-1'", "x", "line_number"),
        ("proposed_file_insert", "file_path='a' line_number='one'", "x", "line_number"),
        ("proposed_shell_command", "is_dangerous='false'", "", "proposed_shell_command"),
        ("proposed_package_install", "language='a'", "", "package_list"),
        ("proposed_package_install", "package_list='a'", "", "language"),
        ("proposed_actions", "", "", "summary"),
        ("proposed_actions", "summary=''", "", "summary"),
        ("shell", "dir='a'", "x", "dir"),
        ("str_replace", "path='a'", "<new_str/>", "old_str"),
        ("create_file", "", "x", "path"),
    ];
    for (name, attributes, content, wrong) in invalid {
        let findings = findings(&schemas, name, attributes, content);
        assert!(findings.iter().any(|f| f.contains(wrong)), "{name} {attributes}: {findings:?}");
    }
}

// A6
#[test]
fn a_summary_has_at_most_58_characters_however_many_bytes_those_are() {
    let schemas = schemas();
    for letter in ["s", "ß", "字", "🦀"] {
        let of = |count: usize| {
            let summary = format!("summary=\"{}\"", letter.repeat(count));
            findings(&schemas, "proposed_actions", &summary, "")
        };
        assert_eq!(of(58), [""; 0], "{letter}");
        assert!(of(59).iter().any(|finding| finding.contains("58")), "{:?}", of(59));
    }
    let house = house(direct());
    let long = action("proposed_actions", &format!("summary='{}'", "ß".repeat(59)), "");
    let refused = house.send_text(&long, &[]);
    assert_eq!(refused.code, Some(65));
    assert!(refused.err.contains("schema-invalid") && refused.err.contains("58"), "{refused:?}");
}

// A6
#[test]
fn files_come_before_commands_in_a_set() {
    let schemas = schemas();
    let replace = "<proposed_file_replace file_path='a'>x</proposed_file_replace>";
    let command = "<proposed_shell_command>x</proposed_shell_command>";
    let set = |content: String| findings(&schemas, "proposed_actions", "summary='a'", &content);
    assert_eq!(set(format!("{replace}{replace}{command}{command}")), [""; 0]);
    assert!(!set(format!("{command}{replace}")).is_empty());
}

/// Requests each kind of answer from the workspace. The gate refuses an answer that violates its
/// schema, so each answer that arrives is valid.
#[test]
fn every_kind_of_answer_passes_the_gate() {
    let house = house(direct());
    let _running = house.run();
    let own = |name: &str| format!("<{name} xmlns=\"{WORKSPACE}\"/>");
    let asked = [
        (action("create_file", "path='a'", "one\n"), "<changes-applied "),
        (action("str_replace", "path='a'", "<old_str>x</old_str><new_str/>"), "<action-failed "),
        (action("shell", "", "printf '\\001\\377' ; exit 7"), "<command-result "),
        (
            action("proposed_package_install", "language='rust' package_list='serde'", ""),
            "<install-proposed ",
        ),
        (action("proposed_actions", "summary='all'", ""), "<changes-applied "),
        (own("show-changes"), "<workspace-changes "),
        (own("undo-changes"), "<changes-applied "),
        (own("undo-changes"), "<action-failed "),
    ];
    for (payload, answer) in asked {
        let said = ask(&house, &payload);
        assert!(said.out.starts_with(answer), "{payload}: {said:?}");
    }
    assert!(!super::file(&house, "a").exists());
    house.verified();
}

// A4 A7
#[test]
fn a_secret_of_the_organism_is_in_no_commands_environment() {
    let house = house(direct());
    let mut command = house.command(&["run"]);
    command.env("OPENAI_API_KEY", "sk-canary").env("ORGANISM_TOKEN", "canary");
    let _running = house.run_with(command);
    ask(&house, &action("shell", "", "env > env; tr '\\0' '\\n' &lt; /proc/$PPID/environ >> env"));
    let environment = read(&house, "env");
    assert!(environment.contains("PATH=") && !environment.contains("canary"), "{environment}");
    assert!(!environment.contains("ORGANISM"), "{environment}");
}

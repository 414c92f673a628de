//! Good configs and their effects.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use organism::config::{
    Config, FinalFormat, MemoryScope, ProviderConfig, ReloadComparison, SecretValue, StorageConfig,
    TelemetryConfig, directory_name, load, load_for_servers,
};
use organism::contract::{Approval, Role, TreeLimits};
use organism::ids::{ListenerName, PayloadName};
use organism::journal::jetstream::StreamDurability;
use organism::nats::NatsCredentials;

use super::{data, good_with, load_text, said, surroundings};

fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

/// A stated `timeout` is a change even if it equals the default. Without `timeout`, only the
/// time-outs of the model bound the wait for an agent's model.
#[test]
fn a_timeout_of_an_agent_that_equals_the_default_is_a_setting_of_its_own() {
    let accepts = "accepts = [\"research\"]";
    let load_with = |timeout: &str| {
        load_text(good_with(accepts, &format!("{accepts}\n{timeout}")), &[]).unwrap()
    };
    let changed_timeouts = |before: &Config, after: &Config| -> Vec<String> {
        let changes = ReloadComparison::between(before, after).changes.into_iter();
        changes.map(|change| change.path).filter(|path| path.ends_with(".timeout")).collect()
    };

    let absent = load_with("");
    let stated = load_with("timeout = \"60s\"");
    assert!(!absent.agents[0].has_timeout);
    assert!(stated.agents[0].has_timeout);
    assert_eq!(changed_timeouts(&absent, &stated), ["agents.researcher.timeout"]);
    assert!(changed_timeouts(&absent, &load_with("")).is_empty());
}

/// Returns the keys of the config file whose changes need a restart. Leaves out the keys of the
/// directories for data and state, because these differ between the two test configs.
fn restart_keys(before: &Config, after: &Config) -> Vec<String> {
    let restart = ReloadComparison::between(before, after).restart.into_iter();
    restart.filter(|key| !["organism.data", "organism.state"].contains(&key.as_str())).collect()
}

/// A person who reads a change must find its key in the config file.
#[test]
fn changes_are_named_by_the_keys_of_the_file() {
    let file = std::fs::read_to_string(data().join("good-schedules.toml")).unwrap();
    let load_with = |from: &str, to: &str| {
        assert!(file.contains(from), "{from}");
        load_text(file.replacen(from, to, 1), &[]).unwrap()
    };
    let before = load_with("", "");
    let often = load_with("every = \"1h30m\"", "every = \"2h\"");
    assert_eq!(restart_keys(&before, &often), ["schedules.often.every"]);
    let named =
        load_with("[schedules.often]\nevery = \"1h30m\"", "[schedules.times]\nevery = \"1h\"");
    let slower =
        load_with("[schedules.often]\nevery = \"1h30m\"", "[schedules.times]\nevery = \"2h\"");
    assert_eq!(restart_keys(&named, &slower), ["schedules.times.every"]);
    let changes = ReloadComparison::between(&named, &slower).changes;
    let every = changes.iter().find(|change| change.path == "schedules.times.every").unwrap();
    let values = (every.before.as_deref(), every.after.as_deref());
    assert_eq!(values, (Some("1h"), Some("2h")));
    let weekly = load_with("on = [\"fri\", \"mon\"]", "on = [\"tue\"]");
    assert_eq!(restart_keys(&before, &weekly), ["schedules.weekly.on"]);
    let daily = load_with("every = \"1h30m\"", "at = \"07:00\"\nzone = \"UTC\"");
    let keys = ["at", "every", "zone"].map(|key| format!("schedules.often.{key}"));
    assert_eq!(restart_keys(&before, &daily), keys);
}

#[test]
fn a_changed_setting_of_a_member_is_named_by_its_key_in_the_file() {
    let before = load_text(good_with("", ""), &[]).unwrap();
    let check = |line: &str, added: &str, expected: &[&str], expected_restart: &[&str]| {
        let after = load_text(good_with(line, &format!("{line}\n{added}")), &[]).unwrap();
        let changes = ReloadComparison::between(&before, &after).changes.into_iter();
        let changes: Vec<_> = changes.map(|change| change.path).collect();
        assert_eq!(changes, expected, "{added}");
        assert_eq!(restart_keys(&before, &after), expected_restart, "{added}");
    };

    let agent = "tokens = 9000\nmax_actions_per_turn = 7\nfinal_format = \"markdown\"";
    let keys = ["final_format", "max_actions_per_turn", "tokens"];
    let keys = keys.map(|key| format!("agents.researcher.{key}"));
    check("peers = [\"search\"]", agent, &keys.each_ref().map(String::as_str), &[]);
    let listener = "timeout = \"5m\"\nserial_per_thread = true\napproval = \"always\"\napproval_timeout = \"5m\"";
    let keys = ["approval", "approval_timeout", "serial_per_thread", "timeout"];
    let keys = keys.map(|key| format!("listeners.search.{key}"));
    let keys = keys.each_ref().map(String::as_str);
    check("command = [\"./run\"]", listener, &keys, &keys[2..3]);
    let client = "keys_for = \"1h\"\nsteps = true\n[limits]\npayload_bytes = 4096";
    let keys = ["clients.user.keys_for", "clients.user.steps", "limits.payload_bytes"];
    check("peers = [\"researcher\"]", client, &keys, &[]);
}

/// A listener that becomes a human moves to another section of the file. Every change is named by a
/// key of the file.
#[test]
fn another_kind_of_a_member_is_named_by_its_section() {
    let before = load_text(good_with("", ""), &[]).unwrap();
    let text = good_with("[listeners.search]\ncommand = [\"./run\"]", "[humans.search]");
    let after = load_text(text, &[]).unwrap();
    let changes = ReloadComparison::between(&before, &after).changes;
    assert_eq!(restart_keys(&before, &after), ["humans.search"]);
    let keys: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
    assert!(keys.contains(&"listeners.search.command"), "{keys:?}");
    let is_of_file = |key: &&str| {
        let section = key.split('.').next().unwrap_or_default();
        ["humans", "listeners", "organism"].contains(&section)
    };
    assert!(keys.iter().all(is_of_file), "{keys:?}");
    let back = ReloadComparison::between(&after, &before).changes;
    let back: Vec<_> = back.iter().map(|change| change.path.as_str()).collect();
    assert!(back.iter().all(is_of_file), "{back:?}");
}

/// A rotated key must not look like an unchanged config, although no record has its text.
#[test]
fn a_changed_secret_is_a_change_whether_its_text_or_its_file_changed() {
    let keys = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let load_with = |file: &str| {
        let user = format!("[clients.user]\nsecret_file = \"{file}\"");
        let remote = "[models.far]\nprovider = \"openai-compatible\"\nmodel = \"m\"";
        let base_url = "base_url = \"http://127.0.0.1:1/v1\"";
        let text = good_with("[clients.user]", &user);
        let text = format!("{text}\n{remote}\n{base_url}\napi_key_file = \"{file}\"\n");
        load_text(text, &[]).unwrap()
    };
    let first = load_with(&file("k1", "sk-0123456789-0123456789"));
    let changes = |after: &Config| -> Vec<String> {
        let changes = ReloadComparison::between(&first, after).changes.into_iter();
        changes.map(|change| change.path).collect()
    };

    let names = ["clients.user.secret_file", "models.far.api_key_file"];
    let same = file("k2", "sk-0123456789-0123456789");
    assert_eq!(changes(&load_with(&same)), names);
    let texts = ["clients.user.secret", "models.far.api_key"];
    let path = file("k1", "sk-9876543210-9876543210");
    assert_eq!(changes(&load_with(&path)), texts);
    let other = file("k3", "sk-9876543210-9876543210");
    assert_eq!(changes(&load_with(&other)), [texts[0], names[0], texts[1], names[1]]);
}

/// If a setting is changed to refer to another variable, its reference changes, and usually its
/// value, too. The comparison lists the key of the setting once.
#[test]
fn a_reference_to_another_variable_is_one_change() {
    let command = "command = [\"./run\"]";
    let load_with = |name: &str| {
        let env = format!("{command}\nenv = {{ PASSWORD = \"${{{name}}}\" }}");
        load_text(good_with(command, &env), &[("OLD", "one"), ("NEW", "two")]).unwrap()
    };
    let changes = ReloadComparison::between(&load_with("OLD"), &load_with("NEW")).changes;
    let paths: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["listeners.search.env.PASSWORD"]);
}

#[test]
fn a_budget_of_no_money_is_noted() {
    let recording = "recording = \"turns.recording.xml\"";
    let free = format!(
        "{recording}\nprice_in = 0\nprice_out = 0\ncurrency = \"EUR\"\n[limits]\nmoney = 0"
    );
    let config = load_text(good_with(recording, &free), &[]).unwrap();
    let expected = "[limits]: `money` is 0, so only models whose prices are 0 can be called";
    assert_eq!(config.notes, [expected]);
    assert!(!config.contracts.has_unpriced_beneath(&name("user")));
}

/// A budget may come from an override, which is no line of the file.
#[test]
fn a_budget_that_cannot_be_kept_is_named_by_its_place() {
    let money = [("ORGANISM_LIMITS__MONEY", "5")];
    let Err(problems) = load(Path::new("good.toml"), &surroundings(&data(), &money)) else {
        panic!("the model of the researcher has no price");
    };
    let text = problems.to_string();
    assert!(
        text.contains("the budget of money in `ORGANISM_LIMITS__MONEY` cannot be kept"),
        "{text}"
    );
}

#[test]
fn settings_of_models_that_may_surprise_are_noted() {
    let mut text = good_with("command = [\"./run\"]", "command = [\"./run\"]");
    let model = |name: &str, rest: &str| {
        format!(
            "[models.{name}]\nprovider = \"openai-compatible\"\nmodel = \"m\"\n\
             base_url = \"http://127.0.0.1:1/v1{rest}\n"
        )
    };
    text += "\n";
    text += &model("free", "/chat/completions/\"");
    text += &model("paid", "\"\nprice_in = 1\nprice_out = 2\ncurrency = \"USD\"");
    text += "[models.either]\nroutes = [\"free\", \"paid\"]\n";
    let config = load_text(text, &[]).unwrap();
    let expected = [
        "either: its route `free` has no price, and others have one, so the costs of its calls are \
         not complete; what costs nothing has price_in = 0, say",
        "free: `base_url` ends with `/chat/completions`, which is appended to it again; write the \
         part before it",
    ];
    assert_eq!(config.notes, expected);
}

#[test]
fn a_contract_states_whether_the_agent_s_model_has_no_price() {
    let config = load(Path::new("good.toml"), &surroundings(&data(), &[])).unwrap();
    let unpriced =
        |name: &&str| config.contracts.get(&self::name(name)).unwrap().has_unpriced_model;
    let members: Vec<_> = ["user", "search", "researcher"].into_iter().filter(unpriced).collect();
    assert_eq!(members, ["researcher"]);
    assert!(config.contracts.has_unpriced_beneath(&name("user")), "user calls researcher");
    assert!(!config.contracts.has_unpriced_beneath(&name("search")));
}

#[test]
fn a_good_config_becomes_contracts_processes_agents_and_models() {
    let config = load(Path::new("good.toml"), &surroundings(&data(), &[])).unwrap();
    assert_eq!(config.name, "desk");
    let roles: Vec<_> = config.contracts.iter().map(|c| (c.name.as_str(), c.role)).collect();
    let expected =
        [("user", Role::Client), ("search", Role::Listener), ("researcher", Role::Agent)];
    assert_eq!(roles, expected);
    let search = PayloadName::new("urn:example:search", "search");
    assert_eq!(
        config.contracts.get(&name("search")).unwrap().accepts[..],
        *std::slice::from_ref(&search)
    );
    assert!(config.schemas.contains(&search));
    let process = &config.processes[0];
    assert!(Path::new(&process.command[0]).is_absolute());
    assert!(process.command[0].ends_with("/run"), "{:?}", process.command);
    let agent = &config.agents[0];
    assert_eq!(
        (agent.memory, agent.final_format.clone()),
        (MemoryScope::Thread, FinalFormat::Text)
    );
    assert_eq!(&*agent.final_name.local, "attempt_completion");
    let vocabulary = config.contracts.vocabulary(&name("researcher")).unwrap();
    assert!(vocabulary.meaning(&agent.final_name).is_some());
    let ProviderConfig::Playback { recording, .. } = &config.models[0].provider else {
        panic!("it plays")
    };
    assert!(recording.is_file() && recording.is_absolute());
    assert_eq!(config.limits, TreeLimits::default());
}

#[test]
fn payloads_in_the_short_form_need_no_schema_file() {
    let config = load(Path::new("good-payloads.toml"), &surroundings(&data(), &[]))
        .map_err(|problems| problems.to_string())
        .unwrap();
    let payload = |local: &str| PayloadName::new("https://xml-pipeline.org/ns/payloads/v1", local);

    let reviewer = config.contracts.get(&name("reviewer")).unwrap();
    assert_eq!(reviewer.accepts[..], [payload("review")]);
    assert_eq!(config.agents[0].final_name, payload("findings"));
    let notes = config.contracts.get(&name("notes")).unwrap();
    assert_eq!(notes.accepts[..], [payload("note")]);

    let review = |content: &str| {
        let text = format!(
            "<review xmlns=\"https://xml-pipeline.org/ns/payloads/v1\"><file>a.rs</file>{content}\
             </review>"
        );
        config.schemas.validate(&payload("review"), text.as_bytes()).is_ok()
    };
    assert!(review("<risk>low</risk>"));
    assert!(review("<risk>high</risk><line>7</line>"));
    assert!(!review("<risk>medium</risk>"));
    assert!(!review("<risk>low</risk><line>seven</line>"));
}

/// A change of the generated schema changes the digest of the config. The recorded config contains
/// this schema, so the journal alone is enough to render the prompts again.
#[test]
fn the_generated_schema_is_recorded_with_the_config() {
    let load_with = |from: &str, to: &str| {
        let text = std::fs::read_to_string(data().join("good-payloads.toml")).unwrap();
        load_text(text.replacen(from, to, 1), &[]).map_err(|p| p.to_string()).unwrap()
    };
    let config = load_with("low | high", "low | high");
    let kept = config.texts().into_iter().filter(|text| text.contains("<xs:enumeration"));
    assert_eq!(kept.count(), 1);

    let other = load_with("low | high", "low | medium | high");
    assert_ne!(config.digest, other.digest);
    let optional = load_with("low | high", "low | high?");
    let risk = "<xs:element name=\"risk\" minOccurs=\"0\"";
    assert!(optional.texts().iter().any(|text| text.contains(risk)));
}

#[test]
fn every_key_can_be_set() {
    let full = include_str!("../../data/config/good-full.toml");
    let variables = [("GREETING", "hello"), ("HOME", "/home/me")];
    let config = load_text(full, &variables).map_err(|p| p.to_string()).unwrap();
    let search = config.contracts.get(&name("search")).unwrap();
    assert_eq!((search.timeout, search.attempts), (Duration::from_millis(90_500), 2));
    assert_eq!((search.concurrency, search.backlog), (3, 50));
    assert!(search.forward && search.serial_per_thread);
    let days = |days: u64| Some(Duration::from_secs(days * 24 * 3600));
    assert_eq!((search.approval, search.patience), (Approval::Dangerous, days(1)));
    let boss = config.contracts.get(&name("boss")).unwrap();
    assert_eq!((boss.role, boss.patience), (Role::Human, days(90)));
    let process = config.processes.iter().find(|p| p.name == name("search")).unwrap();
    assert_eq!(process.command[1..], ["--say", "hello", "--root", ".", "${LITERAL}"]);
    let env: Vec<_> = process.env.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(env, [("LEVEL", "info"), ("TOKEN", "hunter2")]);
    let agent = &config.agents[0];
    assert_eq!((agent.memory, agent.max_iterations), (MemoryScope::Own, 5));
    assert_eq!(agent.final_name, PayloadName::new("urn:example:researcher", "answer"));
    let prompt: Vec<_> = agent.prompt.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let expected = [("identity", "You are hello."), ("rules", "Answer in one sentence.\n")];
    assert_eq!(prompt, expected);
    assert_eq!(config.limits.depth, 3);
    assert_eq!(config.limits.wall_time, Duration::from_secs(5400));
    assert_eq!(config.payload_bytes, 65536);
    assert_eq!(config.http, Some(([127, 0, 0, 1], 9464).into()));
    let told = config.telemetry.unwrap();
    assert_eq!(told.endpoint.to_string(), "http://collector.example:4318/otlp");
    let headers: Vec<_> = told.headers.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(headers, [("authorization", "Bearer hello"), ("x-token", "hunter2")]);
    assert_eq!((told.service.as_str(), told.sample), ("desk-hello", 0.25));
    for variable in ["GREETING", "OTEL_EXPORTER_OTLP_HEADERS"] {
        assert!(config.withheld.contains(&variable.to_owned()), "{:?}", config.withheld);
    }
    assert_eq!(config.data, config.directory.join("journal"));
    let state = Path::new("/home/me/.local/state/organism");
    assert_eq!(config.state, state.join(config.project.directory_name()));
}

/// Listeners cannot see the keys of a telemetry collector, wherever the keys are set, even if the
/// config exports no telemetry.
#[test]
fn collector_keys_are_hidden_from_listeners_even_without_export() {
    let full = include_str!("../../data/config/good-full.toml");
    let variables = [
        ("GREETING", "hello"),
        ("HOME", "/home/me"),
        ("OTEL_SDK_DISABLED", "true"),
        ("ORGANISM_TELEMETRY__HEADERS__X_OTHER", "secret"),
    ];
    let config = load_text(full, &variables).map_err(|p| p.to_string()).unwrap();
    assert_eq!(config.telemetry, None);
    for variable in
        ["GREETING", "OTEL_EXPORTER_OTLP_HEADERS", "ORGANISM_TELEMETRY__HEADERS__X_OTHER"]
    {
        assert!(config.withheld.contains(&variable.to_owned()), "{:?}", config.withheld);
    }
}

/// An override of one listener's `env` is no variable of the other listeners.
#[test]
fn an_override_of_a_listeners_env_is_hidden_from_listeners() {
    let text = std::fs::read_to_string(data().join("good.toml")).unwrap();
    let variables = [
        ("ORGANISM_LISTENERS__SEARCH__ENV__TOKEN", "hunter2"),
        ("ORGANISM_LISTENERS__SEARCH__TIMEOUT", "5s"),
    ];
    let config = load_text(text, &variables).map_err(|p| p.to_string()).unwrap();
    let is_withheld = |variable: &str| config.withheld.contains(&variable.to_owned());
    assert!(is_withheld("ORGANISM_LISTENERS__SEARCH__ENV__TOKEN"), "{:?}", config.withheld);
    assert!(!is_withheld("ORGANISM_LISTENERS__SEARCH__TIMEOUT"), "{:?}", config.withheld);
}

/// A reload replaces the processes of listeners if this list changes.
#[test]
fn the_hidden_variables_do_not_depend_on_the_order_and_number_of_models() {
    let hidden_with = |models: &[(&str, &str)]| {
        let mut text = std::fs::read_to_string(data().join("good.toml")).unwrap();
        for (name, key) in models {
            text.push_str(&format!(
                "\n[models.{name}]\nprovider = \"openai-compatible\"\nmodel = \"m\"\n\
                 base_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"{key}\"\n"
            ));
        }
        let variables = [("FIRST_KEY", "sk-0123456789"), ("OTHER_KEY", "sk-9876543210")];
        load_text(text, &variables).map_err(|p| p.to_string()).unwrap().withheld
    };

    let two = hidden_with(&[("a", "FIRST_KEY"), ("b", "OTHER_KEY")]);
    assert!(two.contains(&"FIRST_KEY".to_owned()), "{two:?}");
    assert_eq!(hidden_with(&[("a", "OTHER_KEY"), ("b", "FIRST_KEY")]), two);
    let three = [("a", "FIRST_KEY"), ("b", "OTHER_KEY"), ("c", "FIRST_KEY")];
    assert_eq!(hidden_with(&three), two);
}

/// The password of NATS is kept from listeners even if the journal is embedded.
#[test]
fn the_password_of_nats_stays_here_wherever_the_journal_is() {
    let text = std::fs::read_to_string(data().join("good.toml")).unwrap();
    let nats = "[nats]\nurl = \"nats://h\"\nuser = \"pump\"\npassword_env = \"WORD\"\n";
    let config = load_text(format!("{text}\n{nats}"), &[("WORD", "hunter2")]).unwrap();
    assert_eq!(config.storage, StorageConfig::Embedded);
    assert!(config.withheld.contains(&"WORD".to_owned()), "{:?}", config.withheld);
}

#[test]
fn a_header_from_the_environment_is_not_shown_when_it_cannot_be_one() {
    let full = include_str!("../../data/config/good-full.toml");
    let variables = [
        ("GREETING", "hello"),
        ("HOME", "/home/me"),
        ("ORGANISM_TELEMETRY__HEADERS__X_OTHER", "hunter3\nhunter4"),
    ];
    let problems = load_text(full, &variables).map(drop).unwrap_err().to_string();
    assert!(problems.contains("X_OTHER") && !problems.contains("hunter3"), "{problems}");
}

#[test]
fn the_store_setting_names_jetstream_and_the_error_explains_the_move() {
    let config = load(Path::new("good-jetstream.toml"), &surroundings(&data(), &[])).unwrap();
    let StorageConfig::JetStream { servers, journal } = &config.storage else {
        panic!("it streams")
    };
    assert_eq!(servers.servers, ["nats://one:4222", "tls://two"]);
    let NatsCredentials::Password { user, password, .. } = &servers.credentials else {
        panic!("a user")
    };
    assert_eq!((user.as_str(), password.0.as_str()), ("pump", "hunter2"));
    assert_eq!(servers.ca, Some(config.directory.join("ca.pem")));
    assert_eq!((journal.stream().as_str(), journal.replicas), ("desk_2-0", 3));
    let third = config.of_partition(3);
    let StorageConfig::JetStream { journal, .. } = &third.storage else { panic!("it streams") };
    assert_eq!((config.partitions(), journal.stream().as_str()), (4, "desk_2-3"));
    assert_eq!((third.data, &third.state), (config.data.join("p3"), &config.state));
    assert_eq!(journal.durability, StreamDurability::Synced);
    let variables = [
        ("ORGANISM_JOURNAL__STORE", "jetstream"),
        ("ORGANISM_JOURNAL__DURABILITY", "lazy"),
        ("ORGANISM_NATS__URL", "nats://h"),
    ];
    let config = load(Path::new("good.toml"), &surroundings(&data(), &variables)).unwrap();
    let StorageConfig::JetStream { servers, journal } = &config.storage else {
        panic!("it streams")
    };
    assert_eq!((servers.servers.len(), &servers.credentials), (1, &NatsCredentials::Anonymous));
    assert_eq!((journal.stream().as_str(), journal.replicas), ("ORGANISM-desk-0", 1));
    assert_eq!((config.partitions(), config.of_partition(0).data), (1, config.data));
    let embedded = load(Path::new("good.toml"), &surroundings(&data(), &[])).unwrap();
    assert_eq!((&embedded.storage, embedded.partitions()), (&StorageConfig::Embedded, 1));
    assert_eq!(embedded.digest, config.digest, "where a record is kept changes nothing in it");
}

#[test]
fn a_journal_on_three_servers_needs_no_named_durability() {
    let text = std::fs::read_to_string(data().join("good-jetstream.toml")).unwrap();
    let unnamed = text.replace("durability = \"synced\"\n", "");

    let StorageConfig::JetStream { journal, .. } = load_text(unnamed, &[]).unwrap().storage else {
        panic!("it streams")
    };
    assert_eq!(journal.durability, StreamDurability::Lazy);

    let alone = text.replace("durability = \"synced\"\n", "").replace("replicas = 3\n", "");
    let problems = load_text(alone, &[]).map(drop).unwrap_err().to_string();
    assert!(problems.contains("needs `durability`"), "{problems}");
}

#[test]
fn a_concurrency_of_one_is_noted_where_several_partitions_each_have_it() {
    let text = std::fs::read_to_string(data().join("good-jetstream.toml")).unwrap();
    let remote = text.replace("command = [\"./run\"]", "nats = true\nconcurrency = 1");
    let notes = load_text(&remote, &[]).unwrap().notes.join("\n");
    assert!(notes.starts_with("search: `concurrency = 1` holds in each of the 4"), "{notes}");

    let single = remote.replace("partitions = 4", "partitions = 1");
    assert_eq!(load_text(single, &[]).unwrap().notes, [""; 0]);
    let two = remote.replace("concurrency = 1", "concurrency = 2");
    assert_eq!(load_text(two, &[]).unwrap().notes, [""; 0]);
}

/// Loads a config without a section for telemetry, in an environment with these variables. Returns
/// the resulting telemetry settings, and the notes about them.
fn told(variables: &[(&str, &str)]) -> (Option<TelemetryConfig>, String) {
    let config = load(Path::new("good.toml"), &surroundings(&data(), variables)).unwrap();
    let plain = load(Path::new("good.toml"), &surroundings(&data(), &[])).unwrap();
    assert_eq!(config.digest, plain.digest, "who is told changes nothing in the record");
    (config.telemetry, config.notes.join("\n"))
}

#[test]
fn the_collector_comes_from_the_config_or_opentelemetrys_variables() {
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    assert_eq!(told(&[]), (None, String::new()));
    let (by_variable, notes) = told(&[
        (ENDPOINT, "https://collector.example:4318/"),
        (HEADERS, "api-key=k%3D1"),
        ("OTEL_SERVICE_NAME", "desks"),
    ]);
    let by_variable = by_variable.unwrap();
    assert_eq!(by_variable.endpoint.to_string(), "https://collector.example:4318");
    assert_eq!((by_variable.headers[0].1.expose(), by_variable.sample), ("k=1", 1.0));
    assert_eq!((by_variable.service.as_str(), notes.as_str()), ("desks", ""));
    assert!(!format!("{by_variable:?}").contains("k=1"));
    // Without a key, a local host name is a valid address.
    assert!(told(&[(ENDPOINT, "http://collector:4318")]).0.is_some());
    for (variables, noted) in [
        (&[(ENDPOINT, "http://collector:4318"), (HEADERS, "k=hunter2")][..], "plain http"),
        (&[(ENDPOINT, "collector:4318")], "is not an address"),
        (&[(ENDPOINT, "https://h"), ("OTEL_SDK_DISABLED", "TRUE")], "OTEL_SDK_DISABLED is true"),
        (&[("ORGANISM_TELEMETRY__SERVICE", "desks")], "has no `endpoint`"),
    ] {
        let (nobody, notes) = told(variables);
        assert!(nobody.is_none() && notes.contains(noted), "{variables:?}: {notes}");
        assert!(!notes.contains("hunter2"));
    }
    let (bad, notes) = told(&[(ENDPOINT, "https://h"), (HEADERS, "hunter2")]);
    assert_eq!(bad.unwrap().headers, []);
    assert!(notes.contains("is ignored") && !notes.contains("hunter2"), "{notes}");
    let own = [
        ("ORGANISM_TELEMETRY__ENDPOINT", "http://localhost:4318"),
        ("OTEL_SERVICE_NAME", "of-the-host"),
        (ENDPOINT, "https://elsewhere.example"),
    ];
    let own = told(&own).0.unwrap();
    assert_eq!(own.endpoint.to_string(), "http://localhost:4318");
    assert_eq!(own.service, "of-the-host");
}

#[test]
fn paths_follow_the_xdg_directories() {
    let of = |variables: &[(&str, &str)]| {
        let config = load(Path::new("good.toml"), &surroundings(&data(), variables)).unwrap();
        (config.data.display().to_string(), config.state.display().to_string())
    };
    let (data, state) = of(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("XDG_STATE_HOME", "/s")]);
    let own = directory_name("desk", &self::data().join("good.toml"));
    assert_eq!(data, format!("/d/organism/{own}"));
    assert_eq!(state, format!("/s/organism/{own}"));
    let (data, _) = of(&[("HOME", "/h"), ("XDG_DATA_HOME", "relative")]);
    assert_eq!(data, format!("/h/.local/share/organism/{own}"));
}

#[test]
fn variables_override_any_key_the_file_could_have() {
    let variables = [
        ("ORGANISM_LISTENERS__SEARCH__TIMEOUT", "5s"),
        ("ORGANISM_LISTENERS__SEARCH__INSTANCES", "4"),
        ("ORGANISM_LISTENERS__SEARCH__SERIAL_PER_THREAD", "true"),
        ("ORGANISM_LISTENERS__SEARCH__COMMAND", "./run,--fast"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__LEVEL", "debug"),
        ("ORGANISM_AGENTS__RESEARCHER__PROMPT__IDENTITY", "You are brief."),
        ("ORGANISM_LIMITS__DEPTH", "2"),
        ("ORGANISM_ORGANISM__DATA", "/srv/desk"),
        ("ORGANISM_LOG", "debug"),
        ("ORGANISM_BIN", "/usr/bin/organism"),
    ];
    let around = surroundings(&data(), &variables);
    let config = load(Path::new("good.toml"), &around).map_err(|p| p.to_string()).unwrap();
    let search = config.contracts.get(&name("search")).unwrap();
    assert_eq!(search.timeout, Duration::from_secs(5));
    assert!(search.serial_per_thread);
    assert_eq!(config.processes[0].instances, 4);
    assert_eq!(config.processes[0].command[1..], ["--fast"]);
    assert_eq!(config.processes[0].env[0].1.expose(), "debug");
    assert_eq!(config.agents[0].prompt, [("identity".to_owned(), "You are brief.".to_owned())]);
    assert_eq!(config.limits.depth, 2);
    assert_eq!(config.data, Path::new("/srv/desk"));
}

#[test]
fn a_type_of_a_payload_that_is_a_text_can_be_replaced() {
    let overrides = [
        ("ORGANISM_PAYLOADS__NOTE", "integer"),
        ("ORGANISM_PAYLOADS__REVIEW__RISK", "low | medium"),
        ("ORGANISM_PAYLOADS__FINDINGS__VERDICT__SHIP", "text"),
    ];
    let around = surroundings(&data(), &overrides);
    let config = load(Path::new("good-payloads.toml"), &around)
        .map_err(|problems| problems.to_string())
        .unwrap();
    let accepts = |local: &str, content: &str| {
        let name = PayloadName::new("https://xml-pipeline.org/ns/payloads/v1", local);
        let text = format!("<{local} xmlns=\"{}\">{content}</{local}>", name.namespace);
        config.schemas.validate(&name, text.as_bytes()).is_ok()
    };

    assert!(accepts("note", "7"));
    assert!(!accepts("note", "seven"));
    assert!(accepts("review", "<file>a.rs</file><risk>medium</risk>"));
    assert!(accepts("findings", "<verdict><ship>perhaps</ship><weight>1</weight></verdict>"));
}

#[test]
fn an_override_of_a_payload_that_the_file_does_not_have_is_a_problem() {
    for (variable, near) in [
        ("ORGANISM_PAYLOADS__REVIEW__RISKS", "did you mean ORGANISM_PAYLOADS__REVIEW__RISK?"),
        ("ORGANISM_PAYLOADS__REVIEW", "an override is ORGANISM_"),
        ("ORGANISM_PAYLOADS__REVIEW__RISK__LOW", "an override is ORGANISM_"),
        ("ORGANISM_PAYLOADS__FINDINGS__FINDING__LINE", "an override is ORGANISM_"),
    ] {
        let around = surroundings(&data(), &[(variable, "text")]);
        let problems = said(&load(Path::new("good-payloads.toml"), &around));
        assert_eq!(problems.len(), 1, "{variable}: {problems:?}");
        assert!(problems[0].starts_with("unknown-override"), "{problems:?}");
        assert!(problems[0].contains(near), "{variable}: {problems:?}");
    }
}

#[test]
fn a_value_within_a_workflow_or_an_undo_can_be_replaced() {
    let overrides = [
        ("ORGANISM_WORKFLOWS__ESSAY__GOALS__IMPROVE__MAX", "5"),
        ("ORGANISM_WORKFLOWS__ESSAY__GOALS__REVIEW__PROMPT", "Review it twice."),
    ];
    let around = surroundings(&data(), &overrides);
    let config = load(Path::new("good-workflow.toml"), &around).map_err(|p| p.to_string()).unwrap();
    let stored: toml::Table = config.stored.toml.parse().unwrap();
    let goals = &stored["workflows"]["essay"]["goals"];
    assert_eq!(goals["improve"]["max"].as_integer(), Some(5));
    assert_eq!(goals["review"]["prompt"].as_str(), Some("Review it twice."));

    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let variable = "ORGANISM_LISTENERS__FLIGHTS__UNDO__RESERVE_SEAT__WITH__NUMBER";
    let around = surroundings(&examples, &[(variable, "request/name")]);
    let config = load_for_servers(Path::new("booking.toml"), &around);
    let config = config.map_err(|problems| problems.to_string()).unwrap();
    let with = &config.contracts.get(&name("flights")).unwrap().undo[0].with;
    assert_eq!(*with, [("number".to_owned(), "request/name".to_owned())]);
}

/// `retry = 0` is accepted, and gives the same goal as the absence of `retry`.
#[test]
fn a_retry_of_zero_is_no_retry() {
    let good = include_str!("../../data/config/good-workflow.toml");
    let review = "review = { agent = \"writer\"";
    assert!(good.contains(review));
    let with = |retry: &str| load_text(good.replace(review, &format!("{review}{retry}")), &[]);
    let zero = with(", retry = 0").map_err(|problems| problems.to_string()).unwrap();
    let none = with("").map_err(|problems| problems.to_string()).unwrap();
    assert_eq!(zero.workflows[0].definition.goals, none.workflows[0].definition.goals);

    let problems = said(&with(", retry = -1"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("from 0 to 100"), "{problems:?}");
}

#[test]
fn an_override_within_a_workflow_that_the_file_does_not_have_is_a_problem() {
    for (variable, near) in [
        (
            "ORGANISM_WORKFLOWS__ESSAY__GOALS__REVIEW__AGNET",
            "did you mean ORGANISM_WORKFLOWS__ESSAY__GOALS__REVIEW__AGENT?",
        ),
        ("ORGANISM_WORKFLOWS__ESSAY__GOALS__REVIEW", "an override is ORGANISM_"),
        ("ORGANISM_WORKFLOWS__ESSAY__GOALS__POLISH__AGENT", "an override is ORGANISM_"),
    ] {
        let around = surroundings(&data(), &[(variable, "writer")]);
        let problems = said(&load(Path::new("good-workflow.toml"), &around));
        assert_eq!(problems.len(), 1, "{variable}: {problems:?}");
        assert!(problems[0].starts_with("unknown-override"), "{problems:?}");
        assert!(problems[0].contains(near), "{variable}: {problems:?}");
    }
}

#[test]
fn an_override_by_value_replaces_a_file_and_the_other_way_round() {
    let full = include_str!("../../data/config/good-full.toml");
    let rules = ("ORGANISM_AGENTS__RESEARCHER__PROMPT__RULES", "none");
    let identity = ("ORGANISM_AGENTS__RESEARCHER__PROMPT__IDENTITY_FILE", "rules.md");
    let config = load_text(full, &[("GREETING", "x"), rules, identity]).unwrap();
    let mut prompt = config.agents[0].prompt.clone();
    prompt.sort();
    assert_eq!(prompt[0], ("identity".to_owned(), "Answer in one sentence.\n".to_owned()));
    assert_eq!(prompt[1], ("rules".to_owned(), "none".to_owned()));
}

/// Loads `good-full.toml` with these overrides, and with `env` as the table `env` of `[alerts]`.
fn load_with_overrides(
    env: &str,
    overrides: &[(&str, &str)],
) -> Result<Config, organism::config::ConfigProblems> {
    let full = include_str!("../../data/config/good-full.toml");
    let alerts = format!("[alerts]\ncommand = \"./run\"\nenv = {{ {env} }}\n\n[http]");
    let variables: Vec<_> = [("GREETING", "x")].iter().chain(overrides).copied().collect();
    load_text(full.replacen("[http]", &alerts, 1), &variables)
}

/// Returns the headers, the variables of the listener `search`, and the variables of the alerts.
fn overridden(env: &str, overrides: &[(&str, &str)]) -> [String; 3] {
    let shown = |all: &[(String, SecretValue)]| {
        let mut all: Vec<_> =
            all.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
        all.sort();
        all.join(" ")
    };

    let loaded = load_with_overrides(env, overrides);
    let config = loaded.map_err(|found| found.to_string()).unwrap();
    let headers = config.telemetry.unwrap().headers;
    [shown(&headers), shown(&config.processes[0].env), shown(&config.alerts.unwrap().env)]
}

/// The variable names an entry of the file in any spelling. Otherwise, a new header has `-` for
/// `_`, and a new variable has the name that is written.
#[test]
fn an_override_replaces_a_header_or_a_variable_of_the_file_and_its_twin() {
    let env = "PLAIN = \"old\", lower = \"old\", PLAIN_FILE = \"old\"";
    let overrides = [
        ("ORGANISM_TELEMETRY__HEADERS__AUTHORIZATION_FILE", "token.txt"),
        ("ORGANISM_TELEMETRY__HEADERS__X_TOKEN", "new"),
        ("ORGANISM_TELEMETRY__HEADERS__X_API_KEY", "k"),
        ("ORGANISM_TELEMETRY__HEADERS__X_OTHER_FILE", "token.txt"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__LEVEL_FILE", "token.txt"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__TOKEN", "new"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__Own_Name", "new"),
        ("ORGANISM_ALERTS__ENV__LOWER", "new"),
        ("ORGANISM_ALERTS__ENV__PLAIN_FILE", "token.txt"),
    ];
    let [headers, listener, alerts] = overridden(env, &overrides);
    let expected = "authorization=hunter2 x-api-key=k x-other=hunter2 x-token=new";
    assert_eq!(headers, expected);
    assert_eq!(listener, "LEVEL=info LEVEL_FILE=token.txt Own_Name=new TOKEN=new");
    assert_eq!(alerts, "PLAIN=old PLAIN_FILE=token.txt lower=new");

    let overrides = [
        ("ORGANISM_TELEMETRY__HEADERS__AUTHORIZATION", "new"),
        ("ORGANISM_TELEMETRY__HEADERS__X_TOKEN_FILE", "rules.md"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__LEVEL_file", "token.txt"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__TOKEN_FILE", "rules.md"),
        ("ORGANISM_LISTENERS__SEARCH__ENV__NEW_FILE", "rules.md"),
    ];
    let [headers, listener, _] = overridden(env, &overrides);
    assert_eq!(headers, "authorization=new x-token=Answer in one sentence.");
    let expected = "LEVEL=hunter2 NEW_FILE=rules.md TOKEN=Answer in one sentence.";
    assert_eq!(listener, expected);
}

#[test]
fn an_override_of_env_takes_the_entry_with_its_exact_name() {
    let env = "http_proxy = \"old\", token = \"old\", TOKEN_file = \"rules.md\"";
    let both = [
        ("ORGANISM_ALERTS__ENV__HTTP_PROXY", "upper"),
        ("ORGANISM_ALERTS__ENV__http_proxy", "lower"),
        ("ORGANISM_ALERTS__ENV__TOKEN", "new"),
    ];
    let [_, _, alerts] = overridden(env, &both);
    assert_eq!(alerts, "HTTP_PROXY=upper TOKEN=new http_proxy=lower token=old");
    let file = [("ORGANISM_ALERTS__ENV__TOKEN_FILE", "token.txt")];
    let [_, _, alerts] = overridden(env, &file);
    assert_eq!(alerts, "TOKEN=hunter2 http_proxy=old token=old");
}

/// The key of the file is right by itself, so the problem names the variable.
#[test]
fn an_override_that_gives_a_schedule_its_times_twice_is_named() {
    let file = include_str!("../../data/config/good-schedules.toml");
    for (schedule, key, value) in [("WEEKLY", "EVERY", "3s"), ("OFTEN", "AT", "03:00")] {
        let variable = format!("ORGANISM_SCHEDULES__{schedule}__{key}");
        let problems = said(&load_text(file, &[(variable.as_str(), value)]));
        assert_eq!(problems, [format!("written-twice {variable}:1:1 keep one of every and at")]);
    }
}

#[test]
fn no_override_undoes_another_override() {
    let both = [
        ("ORGANISM_ALERTS__ENV__LOG", "debug"),
        ("ORGANISM_ALERTS__ENV__LOG_FILE", "/var/log/x"),
        ("ORGANISM_ALERTS__ENV__TOKEN", "new"),
        ("ORGANISM_ALERTS__ENV__TOKEN_FILE", "/var/token"),
    ];
    let [_, _, alerts] = overridden("TOKEN_file = \"token.txt\"", &both);
    assert_eq!(alerts, "LOG=debug LOG_FILE=/var/log/x TOKEN=new TOKEN_FILE=/var/token");

    for (value, file) in [
        ("ORGANISM_TELEMETRY__HEADERS__X_NEW", "ORGANISM_TELEMETRY__HEADERS__X_NEW_FILE"),
        ("ORGANISM_TELEMETRY__HEADERS__X_TOKEN", "ORGANISM_TELEMETRY__HEADERS__X_TOKEN_FILE"),
        ("ORGANISM_TELEMETRY__HEADERS__X_NEW", "ORGANISM_TELEMETRY__HEADERS__x_new"),
        (
            "ORGANISM_AGENTS__RESEARCHER__PROMPT__RULES",
            "ORGANISM_AGENTS__RESEARCHER__PROMPT__RULES_FILE",
        ),
        ("ORGANISM_ALERTS__ENV__LOG", "ORGANISM_ALERTS__ENV__LOG_file"),
    ] {
        let problems = said(&load_with_overrides("", &[(value, "new"), (file, "token.txt")]));
        assert_eq!(problems.len(), 1, "{value}: {problems:?}");
        assert!(problems[0].starts_with("written-twice"), "{value}: {problems:?}");
    }
}

#[test]
fn the_digest_follows_what_prompts_depend_on_and_not_the_machine() {
    let full = include_str!("../../data/config/good-full.toml");
    let variables = [("GREETING", "hello")];
    let first = load_text(full, &variables).unwrap();
    let elsewhere = load_text(full, &[("GREETING", "hello"), ("HOME", "/elsewhere")]).unwrap();
    assert_ne!(first.directory, elsewhere.directory);
    assert_eq!((first.digest, &first.text), (elsewhere.digest, &elsewhere.text));
    assert!(!first.text.contains("hunter2"), "{}", first.text);
    let prompt = load_text(full, &[("GREETING", "good day")]).unwrap();
    assert_ne!(first.digest, prompt.digest);
    let longer = load_text(full.replace("attempts = 2", "attempts = 3"), &variables).unwrap();
    assert_ne!(first.digest, longer.digest);
    let comment = load_text(format!("# comment\n{full}"), &variables).unwrap();
    assert_eq!(first.digest, comment.digest);
}

#[test]
fn an_agent_may_be_its_own_peer() {
    let good = good_with("peers = [\"search\"]", "peers = [\"search\", \"researcher\"]");
    assert_eq!(said(&load_text(good, &[])), [""; 0]);
}

#[test]
fn a_chain_of_forwards_without_a_circle_is_good() {
    let chain = "[listeners.search]\nforward = true\nreplies = [\"invoice\"]\npeers = [\"books\"]";
    let good = good_with("[listeners.search]", chain)
        .replace("replies = [\"search-results\"]\n", "")
        .replace("accepts = [\"search\"]", "accepts = [\"search\", \"invoice\"]");
    let books = "\n[listeners.books]\ncommand = \"./run\"\nschema = \"search.xsd\"\n\
                 accepts = [\"invoice\"]\nreplies = [\"invoice\"]\nforward = true\n";
    assert_eq!(said(&load_text(good + books, &[])), [""; 0]);
}

#[test]
fn a_listener_on_nats_has_no_program_and_is_found_on_the_servers() {
    let config = load(Path::new("good-nats.toml"), &surroundings(&data(), &[])).unwrap();
    assert_eq!((config.processes.len(), &config.remotes[..]), (0, &[name("search")][..]));
    assert_eq!(config.nats.unwrap().servers, ["nats://127.0.0.1:4222"]);
    assert_eq!(config.contracts.get(&name("search")).unwrap().concurrency, 16);
}

/// Returns the approval of a listener whose config section states none. The listener accepts the
/// payload `run`, and its schema consists of `components`.
fn default_approval(components: &str) -> Approval {
    let directory = tempfile::tempdir().unwrap();
    let schema = format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" targetNamespace=\"urn:t\" \
         xmlns=\"urn:t\" elementFormDefault=\"qualified\">{components}</xs:schema>"
    );
    std::fs::write(directory.path().join("run.xsd"), schema).unwrap();
    let config = "[organism]\nname = \"d\"\n[clients.desk]\npeers = [\"hands\"]\n\
                  [listeners.hands]\ncommand = [\"/bin/cat\"]\nschema = \"run.xsd\"\n\
                  accepts = [\"run\"]\n";
    std::fs::write(directory.path().join("organism.toml"), config).unwrap();
    let around = surroundings(directory.path(), &[]);
    let config = load(Path::new("organism.toml"), &around).map_err(|p| p.to_string()).unwrap();
    config.contracts.get(&name("hands")).unwrap().approval
}

// Requirement A13.
#[test]
fn an_attribute_is_dangerous_anywhere_in_a_payload_makes_dangerous_the_default() {
    let flag = "<xs:attribute name=\"is_dangerous\" type=\"xs:string\" use=\"required\"/>";
    let within = |name: &str, content: &str| {
        let content = format!("<xs:complexType>{content}</xs:complexType>");
        format!("<xs:element name=\"{name}\">{content}</xs:element>")
    };
    let sequence = |content: &str| format!("<xs:sequence>{content}</xs:sequence>");

    // The description of a payload ends after four levels.
    let mut deep = within("leaf", flag);
    for wrapper in ["d", "c", "b", "a"] {
        deep = within(wrapper, &sequence(&deep));
    }
    let deep = within("run", &sequence(&deep));
    assert_eq!(default_approval(&deep), Approval::Dangerous);

    // A child has the name of its parent.
    let same_name = within("run", &sequence(&within("run", flag)));
    assert_eq!(default_approval(&same_name), Approval::Dangerous);

    // An instance chooses the type with the attribute by `xsi:type`.
    let typed = within("run", &sequence("<xs:element name=\"cmd\" type=\"Base\"/>"));
    let types = format!(
        "<xs:complexType name=\"Base\"/><xs:complexType name=\"Danger\"><xs:complexContent>\
         <xs:extension base=\"Base\">{flag}</xs:extension></xs:complexContent></xs:complexType>"
    );
    assert_eq!(default_approval(&format!("{typed}{types}")), Approval::Dangerous);

    // The attribute of another payload in the same file changes nothing.
    let plain = within("run", &sequence("<xs:element name=\"cmd\" type=\"xs:string\"/>"));
    let other = within("other", flag);
    assert_eq!(default_approval(&format!("{plain}{other}")), Approval::Never);
}

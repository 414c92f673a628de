//! Required settings of streams and servers. Settings are read back, because old servers silently
//! ignore unknown settings.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::journal::Error;
use crate::limits;
use crate::locks::locked;

use super::{Options, StreamDurability};

/// Oldest server version that supports the fencing of pumps.
const OLDEST: (u32, u32, u32) = (2, 9, 0);
/// Oldest server version that supports `sync_interval`.
const SYNCING: (u32, u32, u32) = (2, 10, 0);
/// Oldest server version that keeps all acknowledged messages in a crash. Older versions may lose
/// some of these messages, with any settings.
const SOUND: (u32, u32, u32) = (2, 10, 23);

/// Key of the setting that states how many servers store the stream.
const REPLICAS: &str = "num_replicas";

/// Returns the settings that decide whether a stream can lose messages, each with its only safe
/// value. For [`REPLICAS`], higher values are also safe. A setting that a server does not report
/// counts as null, false, zero or empty.
fn required(options: &Options) -> Vec<(&'static str, Value)> {
    vec![
        ("name", json!(options.stream())),
        ("subjects", json!([options.subject()])),
        ("storage", json!("file")),
        ("retention", json!("limits")),
        ("discard", json!("new")),
        ("max_msgs", json!(-1)),
        ("max_bytes", json!(-1)),
        ("max_age", json!(0)),
        ("max_msgs_per_subject", json!(-1)),
        ("max_msg_size", json!(-1)),
        (REPLICAS, json!(options.replicas)),
        ("deny_delete", json!(true)),
        ("deny_purge", json!(true)),
        ("no_ack", json!(false)),
        ("sealed", json!(false)),
        ("allow_rollup_hdrs", json!(false)),
    ]
}

/// Keys of a stream's settings that do not affect what the stream stores.
const HARMLESS: [&str; 11] = [
    "description",
    "metadata",
    "placement",
    "compression",
    "max_consumers",
    "consumer_limits",
    "duplicate_window",
    "allow_direct",
    "mirror_direct",
    "discard_new_per_subject",
    "allow_atomic",
];

/// Values with which a setting of a stream has no effect. A setting that this module does not know
/// must have one of these values. Any other value could make messages appear, vanish or change.
const NOTHING: [&str; 5] = ["null", "false", "0", "\"\"", "\"default\""];

/// Returns the settings with which a journal's stream is created.
pub fn of(options: &Options) -> Value {
    let mut config: serde_json::Map<String, Value> =
        required(options).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    config.insert("description".to_owned(), json!("the journal of an organism"));
    config.into()
}

/// Returns the reason why a stream with the settings `config` may lose records, with advice for the
/// operator. Returns `None` if no setting endangers records. If the stream has more replicas than
/// `options` states, logs a warning.
pub fn fault(options: &Options, config: &Value) -> Option<String> {
    let stream = options.stream();
    let replicas = config.get(REPLICAS).and_then(Value::as_u64).unwrap_or_default();
    let configured = u64::from(options.replicas);
    if replicas > configured {
        warn_once(format!(
            "the stream {stream} has {replicas} replicas, and the config says {configured}: write \
             `replicas = {replicas}` under [journal], or lower the number of the stream \
             (docs/OPERATIONS.md, Change `replicas`)"
        ));
    }

    let differences = differences(options, config);
    if differences.is_empty() {
        return None;
    }

    let advice = if replicas < configured {
        format!(
            "Raise the number of the stream's replicas, or start with `replicas = {replicas}` \
             under [journal] (docs/OPERATIONS.md, Change `replicas`)"
        )
    } else {
        "Put the settings of the stream right".to_owned()
    };

    let differences = differences.join("; ");
    Some(format!(
        "the stream {stream} may lose records: {differences}. {advice}; a pump that waits then \
         continues by itself, and one that has ended must be started again"
    ))
}

/// Returns the settings of a stream that differ from the settings that a journal needs.
fn differences(options: &Options, config: &Value) -> Vec<String> {
    let required = required(options);
    let found = |key: &str| config.get(key).cloned().unwrap_or(Value::Null);
    let is_nothing = |value: &Value| NOTHING.contains(&value.to_string().as_str());
    let wrong = required.iter().filter_map(|(key, wanted)| {
        let found = found(key);
        let same = found == *wanted || (is_nothing(&found) && is_nothing(wanted));
        let has_more = *key == REPLICAS && found.as_u64() > wanted.as_u64();
        (!same && !has_more).then(|| format!("`{key}` is {found}, not {wanted}"))
    });
    let known = |key: &str| HARMLESS.contains(&key) || required.iter().any(|(k, _)| *k == key);
    let all = config.as_object().into_iter().flatten();
    let strange = all.filter(|(key, value)| !known(key) && !is_nothing(value));
    let strange = strange.map(|(key, value)| {
        format!("`{key}` is {value}, of which it is not known that nothing is lost by it")
    });
    wrong.chain(strange).collect()
}

/// Refuses a server that cannot keep a journal. Warns if a server may lose acknowledged messages.
pub fn judge_server(
    server: &str,
    version: &str,
    max_payload: usize,
    options: &Options,
) -> Result<(), Error> {
    let unfit = |detail: String| Error::UnsafeServer { server: server.to_owned(), detail };
    let Some(number) = parse(version) else {
        return Err(unfit(format!("its version `{version}` is none that is known")));
    };

    if number < OLDEST {
        let (major, minor, _) = OLDEST;
        return Err(unfit(format!("its version is {version}; {major}.{minor} or later is needed")));
    }

    if max_payload < limits::MESSAGE_BYTES_MAX {
        let most = limits::MESSAGE_BYTES_MAX;
        return Err(unfit(format!(
            "its `max_payload` is {max_payload} bytes; messages here have up to {most}: raise it"
        )));
    }

    if number < SOUND {
        let (major, minor, patch) = SOUND;
        warn_once(format!(
            "NATS {version} is older than {major}.{minor}.{patch}: if a server of it crashes, \
             records that were acknowledged may be lost or the stream may not come back"
        ));
    }

    if options.durability == StreamDurability::Synced && number < SYNCING {
        let (major, minor, _) = SYNCING;
        warn_once(format!(
            "`durability` is \"synced\", but NATS {version} cannot sync before it acknowledges: \
             upgrade the servers to {major}.{minor} or later"
        ));
    }

    if options.durability == StreamDurability::Lazy || number < SYNCING {
        warn_once(lazily(options.replicas));
    }

    Ok(())
}

/// Logs a warning once per process, because a pump judges its server at each attempt to start, and
/// an outage leads to many attempts.
fn warn_once(warning: String) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // The lock is released before the warning is logged, so that a slow log holds up no other pump.
    let mut logged = locked(&LOGGED);
    let is_new = logged.insert(warning.clone());
    drop(logged);
    if is_new {
        tracing::warn!("{warning}");
    }
}

/// Returns a description of the possible loss of acknowledged messages under the default sync
/// interval: its causes and its extent.
fn lazily(replicas: u32) -> String {
    let when = match replicas {
        1 => "if the machine of the server loses its power or its system crashes",
        _ => {
            "if most of the servers' machines lose their power or crash at the same time, or one \
             does while the network is divided"
        }
    };

    format!(
        "the journal is durable as the server syncs it, by default every two minutes: {when}, up \
         to that much of what was acknowledged is lost (it shows at the next start). With \
         `sync_interval: always` on every server, write durability = \"synced\" under [journal]"
    )
}

/// Parses the major, minor and patch number of a server version. Ignores everything after them.
/// Returns `None` if `version` does not begin with such numbers.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let plain = version.split(['-', '+']).next()?;
    let mut parts = plain.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            organism: "desk".to_owned(),
            stream: "ORGANISM-desk".to_owned(),
            partition: 0,
            partitions: 1,
            replicas: 1,
            durability: StreamDurability::Synced,
            system: None,
            known_keys: Vec::new(),
            checkpoints: None,
        }
    }

    #[test]
    fn a_server_too_old_or_too_small_is_refused_by_name() {
        let judge = |version: &str, most: usize| {
            judge_server("here:4222", version, most, &options()).map_err(|e| e.to_string())
        };

        let most = limits::MESSAGE_BYTES_MAX;
        for good in ["2.9.0", "2.9.10", "2.10.23", "2.15.1", "v2.12.8-RC.1", "3.0.0"] {
            judge(good, most).unwrap();
        }

        for bad in ["2.8.4", "1.4.1", "", "two"] {
            let refused = judge(bad, most).unwrap_err();
            assert!(refused.contains("here:4222") && refused.contains(bad), "{refused}");
        }

        assert!(judge("2.15.1", most - 1).unwrap_err().contains("max_payload"));
    }

    #[test]
    fn every_setting_that_loses_something_is_named() {
        assert!(differences(&options(), &of(&options())).is_empty());
        let lossy = [
            ("storage", json!("memory")),
            ("retention", json!("workqueue")),
            ("discard", json!("old")),
            ("max_msgs", json!(1000)),
            ("max_bytes", json!(1 << 20)),
            ("max_age", json!(60)),
            ("max_msgs_per_subject", json!(1)),
            ("subjects", json!(["other"])),
            ("deny_delete", json!(false)),
            ("deny_purge", json!(false)),
            ("no_ack", json!(true)),
            ("sealed", json!(true)),
            ("allow_rollup_hdrs", json!(true)),
            ("mirror", json!({ "name": "other" })),
            ("sources", json!([{ "name": "other" }])),
            ("allow_msg_ttl", json!(true)),
            ("persist_mode", json!("async")),
            ("subject_transform", json!({ "src": ">" })),
        ];
        for (key, value) in lossy {
            let mut config = of(&options());
            config[key] = value;
            let messages = differences(&options(), &config);
            assert!(
                matches!(messages.as_slice(), [message] if message.contains(key)),
                "{key}: {messages:?}"
            );
        }
    }

    #[test]
    fn more_replicas_than_configured_are_accepted_and_fewer_are_refused_with_advice() {
        let of_replicas = |replicas: u32| Options { replicas, ..options() };
        let fault_of = |stream: u32| fault(&of_replicas(3), &of(&of_replicas(stream)));
        assert_eq!(fault_of(3), None);
        assert_eq!(fault_of(5), None);

        let fault = fault_of(1).unwrap();
        for part in ["`num_replicas` is 1, not 3", "`replicas = 1`", "must be started again"] {
            assert!(fault.contains(part), "{part}: {fault}");
        }
    }

    #[test]
    fn what_an_older_server_leaves_out_and_what_is_harmless_is_no_difference() {
        let mut config = of(&options());
        let all = config.as_object_mut().unwrap();
        all.remove("allow_rollup_hdrs");
        all.remove("sealed");
        all.insert("duplicate_window".to_owned(), json!(120_000_000_000_u64));
        all.insert("metadata".to_owned(), json!({ "_nats.ver": "2.15.1" }));
        all.insert("persist_mode".to_owned(), json!("default"));
        assert_eq!(differences(&options(), &config), Vec::<String>::new());
    }

    #[test]
    fn possible_losses_are_stated_for_one_server_and_for_several() {
        assert!(lazily(1).contains("the machine of the server"));
        assert!(lazily(3).contains("most of the servers' machines"));
    }
}

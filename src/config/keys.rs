//! All known config keys, in one table for each section. The tables serve to find unknown keys, to
//! apply overrides, and to check the docs.

/// Type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    Text,
    /// A string such as `30s`.
    Duration,
    Integer,
    /// An integer or a decimal number.
    Number,
    Flag,
    /// A list of strings.
    List,
    /// Either a string or a list of strings.
    OneOrMore,
    /// A table whose keys the author chooses and whose values are strings.
    Free,
    /// A table or a list that has a structure of its own. An override cannot replace the whole
    /// table or list. It can replace a single value inside, but only if the config file already
    /// contains this value.
    Nested,
}

/// A section of the config. It is one table `[name]` or, if `member` is set, one table
/// `[name.MEMBER]` for each member, such as each listener.
pub(super) struct KnownSection {
    pub name: &'static str,
    /// Noun for one member of the section in error messages, such as `listener`. `None` if the
    /// section has no members.
    pub member: Option<&'static str>,
    pub keys: &'static [(&'static str, KeyKind)],
}

use KeyKind::{Duration, Flag, Free, Integer, List, Nested, Number, OneOrMore, Text};

pub(super) const ORGANISM: KnownSection = KnownSection {
    name: "organism",
    member: None,
    keys: &[("name", Text), ("data", Text), ("state", Text), ("catalogue", List)],
};

pub(super) const LIMITS: KnownSection = KnownSection {
    name: "limits",
    member: None,
    keys: &[
        ("depth", Integer),
        ("children", Integer),
        ("threads", Integer),
        ("messages", Integer),
        ("rounds_failed", Integer),
        ("model_calls", Integer),
        ("tokens", Integer),
        ("money", Number),
        ("per_request_tokens", Integer),
        ("per_request_money", Number),
        ("wall_time", Duration),
        ("payload_bytes", Integer),
    ],
};

pub(super) const CLIENTS: KnownSection = KnownSection {
    name: "clients",
    member: Some("client"),
    keys: &[
        ("description", Text),
        ("peers", List),
        ("gather", Text),
        ("secret_env", Text),
        ("secret_file", Text),
        ("keys_for", Duration),
        ("steps", Flag),
    ],
};

pub(super) const OPERATORS: KnownSection = KnownSection {
    name: "operators",
    member: Some("operator"),
    keys: &[("key", Text), ("browser_key", Text)],
};

pub(super) const LISTENERS: KnownSection = KnownSection {
    name: "listeners",
    member: Some("listener"),
    keys: &[
        ("description", Text),
        ("command", OneOrMore),
        ("nats", Flag),
        ("schema", OneOrMore),
        ("accepts", List),
        ("replies", List),
        ("peers", List),
        ("instances", Integer),
        ("concurrency", Integer),
        ("timeout", Duration),
        ("attempts", Integer),
        ("forward", Flag),
        ("gather", Text),
        ("serial_per_thread", Flag),
        ("backlog", Integer),
        ("approval", Text),
        ("approval_timeout", Duration),
        ("previews", Flag),
        ("preview_timeout", Duration),
        ("client", Text),
        ("core", List),
        ("env", Free),
        ("undo", Nested),
    ],
};

/// Keys of a listener's table `undo`, which states how calls with one payload are undone.
pub(super) const UNDO: KnownSection =
    KnownSection { name: "undo", member: None, keys: &[("payload", Text), ("with", Free)] };

pub(super) const HUMANS: KnownSection = KnownSection {
    name: "humans",
    member: Some("human"),
    keys: &[
        ("description", Text),
        ("schema", OneOrMore),
        ("accepts", List),
        ("replies", List),
        ("timeout", Duration),
        ("backlog", Integer),
    ],
};

pub(super) const AGENTS: KnownSection = KnownSection {
    name: "agents",
    member: Some("agent"),
    keys: &[
        ("description", Text),
        ("nats", Flag),
        ("model", Text),
        ("transport", Text),
        ("schema", OneOrMore),
        ("accepts", List),
        ("final", Text),
        ("final_format", Text),
        ("final_by", Text),
        ("final_schema", Text),
        ("tool_choice", Text),
        ("notice", Flag),
        ("replies", List),
        ("peers", List),
        ("gather", Text),
        ("memory", Text),
        ("max_iterations", Integer),
        ("max_actions_per_turn", Integer),
        ("tokens", Integer),
        ("money", Number),
        ("timeout", Duration),
        ("attempts", Integer),
        ("concurrency", Integer),
        ("backlog", Integer),
        ("core", List),
        ("prompt", Free),
    ],
};

pub(super) const MODELS: KnownSection = KnownSection {
    name: "models",
    member: Some("model"),
    keys: &[
        ("provider", Text),
        ("recording", Text),
        ("chunk_delay", Duration),
        ("model", Text),
        ("base_url", Text),
        ("insecure", Flag),
        ("api_key_env", Text),
        ("api_key_file", Text),
        ("max_tokens", Integer),
        ("temperature", Number),
        ("top_p", Number),
        ("reasoning_effort", Text),
        ("thinking_tokens", Integer),
        ("connect_timeout", Duration),
        ("first_byte_timeout", Duration),
        ("stall_timeout", Duration),
        ("total_timeout", Duration),
        ("context_window", Integer),
        ("price_in", Number),
        ("price_out", Number),
        ("price_cached", Number),
        ("price_cache_written", Number),
        ("currency", Text),
        ("tokens_per_minute", Integer),
        ("concurrency", Integer),
        ("attempts", Integer),
        ("routes", List),
        ("strategy", Text),
    ],
};

/// The section `[payloads.NAME]`, which declares payloads without a schema file. Its keys are the
/// fields of the payload, so the author chooses them.
pub(super) const PAYLOADS: KnownSection =
    KnownSection { name: "payloads", member: Some("payload"), keys: &[] };

pub(super) const WORKFLOWS: KnownSection = KnownSection {
    name: "workflows",
    member: Some("workflow"),
    keys: &[
        ("file", Text),
        ("description", Text),
        ("input", Nested),
        ("output", Nested),
        ("schema", OneOrMore),
        ("peers", List),
        ("timeout", Duration),
        ("tokens", Integer),
        ("money", Number),
        ("on_failure", Text),
        ("report_to", Text),
        ("goals", Nested),
    ],
};

/// Keys of a workflow that is defined in a file of its own: the keys of a workflow in the config,
/// except `file`.
pub(super) const WORKFLOW_FILE: KnownSection = KnownSection {
    keys: match WORKFLOWS.keys {
        [(key, _), definition @ ..] if matches!(key.as_bytes(), b"file") => definition,
        _ => panic!("the first key is not `file`"),
    },
    ..WORKFLOWS
};

/// Keys of one goal of a workflow.
pub(super) const GOALS: KnownSection = KnownSection {
    name: "goals",
    member: Some("goal"),
    keys: &[
        ("agent", Text),
        ("prompt", Text),
        ("prompt_file", Text),
        ("listener", Text),
        ("payload", Text),
        ("with", Nested),
        ("workflow", Text),
        ("all", List),
        ("first", List),
        ("vote", Nested),
        ("each", Text),
        ("max_items", Integer),
        ("concurrency", Integer),
        ("on_item_failure", Text),
        ("verify", Text),
        ("accept", Text),
        ("role", Text),
        ("loop", List),
        ("until", Nested),
        ("max", Integer),
        ("at_max", Text),
        ("choose", Nested),
        ("ask", Text),
        ("form", Nested),
        ("about", Text),
        ("needs", List),
        ("context", List),
        ("output", Nested),
        ("retry", Integer),
        ("on_failure", Text),
        ("timeout", Duration),
        ("tokens", Integer),
        ("money", Number),
        ("supervisor", Text),
        ("supervise", Text),
        ("corrections", Integer),
        ("roles", Nested),
    ],
};

/// Keys of the table `vote` of a goal.
pub(super) const VOTE: KnownSection =
    KnownSection { name: "vote", member: None, keys: &[("by", Text), ("keep", Text)] };

/// Keys of one branch in the list `choose` of a goal.
pub(super) const BRANCH: KnownSection =
    KnownSection { name: "choose", member: None, keys: &[("when", Nested), ("run", List)] };

/// Keys of a condition that an agent judges.
pub(super) const JUDGE: KnownSection = KnownSection {
    name: "judge",
    member: None,
    keys: &[("judge", Text), ("prompt", Text), ("prompt_file", Text)],
};

/// Keys of a goal's table `roles`. Each role describes how the goal's agent may give tasks to
/// another agent.
pub(super) const ROLES: KnownSection = KnownSection {
    name: "roles",
    member: None,
    keys: &[("agent", Text), ("max", Integer), ("depth", Integer), ("names", List)],
};

pub(super) const SCHEDULES: KnownSection = KnownSection {
    name: "schedules",
    member: Some("schedule"),
    keys: &[
        ("every", Duration),
        ("at", Text),
        ("on", List),
        ("zone", Text),
        ("send", Text),
        ("as", Text),
        ("missed", Text),
        ("concurrency", Integer),
    ],
};

pub(super) const JOURNAL: KnownSection = KnownSection {
    name: "journal",
    member: None,
    keys: &[
        ("store", Text),
        ("stream", Text),
        ("partitions", Integer),
        ("replicas", Integer),
        ("durability", Text),
        ("known_keys", List),
        ("checkpoints", Text),
        ("snapshot_records", Integer),
    ],
};

pub(super) const NATS: KnownSection = KnownSection {
    name: "nats",
    member: None,
    keys: &[
        ("url", OneOrMore),
        ("credentials_file", Text),
        ("nkey_file", Text),
        ("user", Text),
        ("password_env", Text),
        ("password_file", Text),
        ("ca_file", Text),
        ("system_nkey_file", Text),
    ],
};

pub(super) const HTTP: KnownSection =
    KnownSection { name: "http", member: None, keys: &[("listen", Text)] };

pub(super) const TELEMETRY: KnownSection = KnownSection {
    name: "telemetry",
    member: None,
    keys: &[
        ("endpoint", Text),
        ("insecure", Flag),
        ("headers", Free),
        ("service", Text),
        ("sample", Number),
    ],
};

pub(super) const ALERTS: KnownSection = KnownSection {
    name: "alerts",
    member: None,
    keys: &[
        ("command", OneOrMore),
        ("on", List),
        ("refusals", Integer),
        ("failures", Integer),
        ("window", Duration),
        ("waiting", Duration),
        ("timeout", Duration),
        ("env", Free),
    ],
};

pub(super) const SECTIONS: [&KnownSection; 16] = [
    &ORGANISM, &JOURNAL, &NATS, &HTTP, &TELEMETRY, &ALERTS, &LIMITS, &OPERATORS, &CLIENTS,
    &LISTENERS, &HUMANS, &AGENTS, &MODELS, &PAYLOADS, &WORKFLOWS, &SCHEDULES,
];

impl KnownSection {
    pub fn kind(&self, key: &str) -> Option<KeyKind> {
        self.keys.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
    }

    pub fn key_names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|(name, _)| *name)
    }
}

/// Whether the value of the config key `key` is private. Returns `None` if the name of the key does
/// not decide this. The value is then private only if the key is in a private table, such as `env`.
pub(super) fn is_private(key: &str) -> Option<bool> {
    let key = key.trim_matches('"').to_ascii_lowercase();
    if key.ends_with("_file") {
        return Some(false);
    }

    let secret = ["key", "secret", "token", "password"].iter().any(|end| key.ends_with(end));
    // A key or password that was written in the wrong place, such as in an address, must not be
    // quoted.
    let misplaced = ["api_key_env", "password_env", "secret_env", "base_url", "url", "endpoint"]
        .contains(&key.as_str());
    let table = ["env", "headers"].contains(&key.as_str());
    (secret || misplaced || table).then_some(true)
}

/// Returns the advice for an unknown name: the question whether the author meant the most similar
/// name in `known`. If no known name is similar enough, returns the result of `otherwise`.
pub(super) fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    nearest(name, known).map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
}

/// Returns the advice for an unknown value as [`did_you_mean`] does, but quotes the similar value
/// as the config writes it.
pub(super) fn did_you_mean_value<'a>(
    value: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    nearest(value, known).map_or_else(otherwise, |near| format!("did you mean \"{near}\"?"))
}

/// Returns the known name that is most similar to `name`; `None` if no known name is similar
/// enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().filter(|other| *other != name).map(|other| {
        let distance = strsim::damerau_levenshtein(name, other);
        (distance, other)
    });
    let (distance, other) = scored.min_by_key(|(distance, _)| *distance)?;
    let allowed = (name.chars().count().max(other.chars().count()) / 3).clamp(1, 4);
    (distance <= allowed).then_some(other)
}

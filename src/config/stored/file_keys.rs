//! Maps keys of the effective config to the keys of the config file that set the same values.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::envelope::Money;

use super::super::duration;
use super::super::keys::{self, KnownSection};

/// Replaces some values of an effective config by the values that the file sets: the times of a
/// schedule, the list of clients with steps, and amounts of money. Removes empty lists of members,
/// which no file sets.
pub(super) fn split_values(values: &mut BTreeMap<String, String>) {
    values.retain(|key, value| {
        !(value == "[]" && ["agents", "models", "processes"].contains(&key.as_str()))
    });
    for (_, amount) in values.iter_mut().filter(|(key, _)| key.ends_with("money")) {
        if let Ok(billionths) = amount.parse() {
            *amount = Money(billionths).to_string();
        }
    }

    let is_times = |key: &&String| key.starts_with("schedules.") && key.ends_with(".times");
    let keys: Vec<String> = values.keys().filter(is_times).cloned().collect();
    for key in keys {
        let times = values.remove(&key).unwrap_or_default();
        let schedule = key.strip_suffix(".times").unwrap_or(&key);
        let parts = times_by_key(&times).into_iter();
        values.extend(parts.map(|(key, value)| (format!("{schedule}.{key}"), value)));
    }

    if let Some(clients) = values.remove("clients_with_steps") {
        let clients: Vec<String> = serde_json::from_str(&clients).unwrap_or_default();
        let steps = clients.into_iter();
        values.extend(steps.map(|name| (format!("clients.{name}.steps"), "true".to_owned())));
    }
}

/// Splits the times of a schedule, such as `at 07:00 on mon, fri in UTC` or `every 60 s`, into the
/// values of the schedule's keys.
fn times_by_key(times: &str) -> Vec<(&'static str, String)> {
    let Some(daily) = times.strip_prefix("at ") else {
        let interval = times.strip_prefix("every ").unwrap_or(times);
        let seconds = interval.strip_suffix(" s").and_then(|seconds| seconds.parse().ok());
        let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        return vec![("every", length.map_or_else(|| interval.to_owned(), duration::show))];
    };

    let (time, zone) = daily.rsplit_once(" in ").unwrap_or((daily, ""));
    let (time, days) = time.split_once(" on ").unwrap_or((time, ""));
    let parts = [("at", time), ("on", days), ("zone", zone)];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    parts.map(|(key, value)| (key, value.to_owned())).collect()
}

/// Returns the key of the config file that sets the value at the key `path` of the effective
/// config. Returns `path` itself if the file has no such key.
///
/// `roles_of` returns the roles that a member has in the two compared configs, as the effective
/// config writes them. Each role has a section in the file. For a contract setting, tries these
/// sections in the order of the roles, and returns the key of the first section that has one.
/// `is_set_anew` states whether only one of the two configs has the value.
pub(super) fn file_key(
    path: &str,
    roles_of: impl Fn(&str) -> Vec<String>,
    is_set_anew: bool,
) -> String {
    let words: Vec<_> = path.splitn(3, '.').collect();
    match words.as_slice() {
        ["name"] => "organism.name".to_owned(),
        ["catalogue"] => "organism.catalogue".to_owned(),
        ["payload_bytes"] => "limits.payload_bytes".to_owned(),
        ["operators", name] => format!("operators.{name}.key"),
        ["operators_in_browsers", name] => format!("operators.{name}.browser_key"),
        ["processes", name, "name"] => format!("listeners.{name}"),
        ["processes", name, setting] => format!("listeners.{name}.{setting}"),
        [section @ ("agents" | "models" | "schedules"), name, "name"] => {
            format!("{section}.{name}")
        }
        ["agents", name, "final_name"] => format!("agents.{name}.final"),
        ["contracts", name, setting] => roles_of(name)
            .iter()
            .find_map(|role| member_key(role, name, setting, is_set_anew))
            .unwrap_or_else(|| path.to_owned()),
        _ => path.to_owned(),
    }
}

/// Returns the key of the config file that sets the contract setting `setting` of the member
/// `name`. The section of the file depends on `role`, the role of the member. Returns `None` if
/// this section has no such key.
fn member_key(role: &str, name: &str, setting: &str, is_set_anew: bool) -> Option<String> {
    let section = section_of(role)?;
    let KnownSection { name: section_name, .. } = section;
    let key = match (role, setting) {
        (_, "name" | "role") => return Some(format!("{section_name}.{name}")),
        (_, "actions_per_turn") => "max_actions_per_turn",
        (_, "budget.tokens") => "tokens",
        (_, "budget.money") => "money",
        ("human", "patience") => "timeout",
        (_, "patience") => "approval_timeout",
        (_, "previews") if !is_set_anew => "preview_timeout",
        (_, setting) => setting,
    };
    section.kind(key)?;
    Some(format!("{section_name}.{name}.{key}"))
}

/// Returns the section that declares members with this role.
fn section_of(role: &str) -> Option<&'static KnownSection> {
    match role {
        "client" => Some(&keys::CLIENTS),
        "listener" => Some(&keys::LISTENERS),
        "human" => Some(&keys::HUMANS),
        "agent" => Some(&keys::AGENTS),
        "workflow" => Some(&keys::WORKFLOWS),
        _ => None,
    }
}

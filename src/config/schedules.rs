//! `[schedules.NAME]`: payloads that the organism sends by itself.

use std::path::Path;
use std::sync::Arc;

use jiff::civil;
use jiff::tz::{self, TimeZone};

use crate::contract::{
    Contracts, DailyTime, MissedPolicy, Role, Schedule, ScheduleTimes, WEEKDAYS,
};
use crate::envelope::RefusalRule;
use crate::ids::{ListenerName, ScheduleName};
use crate::limits;
use crate::pump::gate::Gate;
use crate::schema::Schemas;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::{did_you_mean, did_you_mean_value};
use super::members::member_name;
use super::read::TableReader;
use super::sections::DeclaredSections;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located};
use super::{duration, file};

/// A schedule as the config declares it. If the value of a field has a problem, the field is
/// `None`, and the problem is already reported. The other fields are still checked, so that all
/// problems are reported at once.
pub(super) struct DeclaredSchedule {
    name: Option<Located<ListenerName>>,
    times: Option<ScheduleTimes>,
    /// Path of the file with the payload.
    send: Option<Located<ExpandedText>>,
    client: Option<Located<ExpandedText>>,
    missed: MissedPolicy,
    concurrency: u32,
}

const KEYS_OF_EVERY: [&str; 5] = ["every", "send", "as", "missed", "concurrency"];

/// Reads one schedule, and reports every problem.
pub(super) fn read(name: &Located<String>, read: &mut TableReader<'_>) -> DeclaredSchedule {
    let name = member_name(name, read);
    let times = times(read);
    let send = read.required_text("send", "\"the file of the payload\"");
    let client = read.required_text("as", "\"the client that sends it\"");
    let policies = [MissedPolicy::Once, MissedPolicy::Skip].map(|policy| (policy.as_str(), policy));
    let missed = read.choice("missed", &policies).unwrap_or_default();
    let concurrency = read.count32("concurrency", limits::SCHEDULE_RUNS_CEILING).unwrap_or(1);
    DeclaredSchedule { name, times, send, client, missed, concurrency }
}

fn times(read: &mut TableReader<'_>) -> Option<ScheduleTimes> {
    if read.has("every") && read.has("at") {
        // If a variable adds one of the keys to those of the file, the variable is the cause.
        let places = ["every", "at"].map(|key| read.place_of(key));
        let is_override = |place: &SourceRange| !Arc::ptr_eq(&place.source, &read.place.source);
        let place = places.into_iter().find(is_override).unwrap_or_else(|| read.place_of("at"));
        let message = "the times are given twice, by `every` and by `at`";
        let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &place, message);
        read.problem(problem.help("keep one of every and at"));
        return None;
    }

    if read.has("at") {
        return daily(read);
    }

    let help = "add every = \"1h\", or at = \"03:00\"";
    if !read.required_with("every", help) {
        return None;
    }

    read.only(&KEYS_OF_EVERY, "a schedule with `every`");
    let interval = read.duration("every", limits::SCHEDULE_INTERVAL_CEILING)?;
    if interval < limits::SCHEDULE_INTERVAL_MIN {
        let place = read.node("every").map_or_else(|| read.place_of("every"), |n| n.place.clone());
        let message = format!("`every` is {}, which is too short", duration::show(interval));
        let help = format!("at least \"{}\"", duration::show(limits::SCHEDULE_INTERVAL_MIN));
        read.problem(ConfigProblem::new(ProblemCode::OutOfRange, &place, message).help(help));
        return None;
    }

    Some(ScheduleTimes::Every(interval))
}

fn daily(read: &mut TableReader<'_>) -> Option<ScheduleTimes> {
    let names = WEEKDAYS.map(|(name, _)| name);
    if read.is_empty_list("on") {
        let place = read.place_of("on");
        read.empty("on", &place);
    }

    let chosen = read.choices("on", &names).unwrap_or_default();
    let days = WEEKDAYS.iter().filter(|(name, _)| chosen.iter().any(|own| own == name));
    let days = days.map(|(_, day)| *day).collect();
    let zone = zone(read);
    let text = read.text("at")?;
    let Some(at) = time_of_day(&text.value.value) else {
        let message = format!("`{}` is not a time of day", text.value.written);
        let help = "write hours and minutes from \"00:00\" to \"23:59\"; days go into `on`";
        read.problem(ConfigProblem::new(ProblemCode::BadTime, &text.place, message).help(help));
        return None;
    };

    let (zone, zone_name) = zone?;
    Some(ScheduleTimes::Daily(DailyTime { at, days, zone, zone_name }))
}

/// Parses a time of day in the form `HH:MM` or `HH:MM:SS`; returns `None` for any other text.
fn time_of_day(text: &str) -> Option<civil::Time> {
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i8>().ok().filter(|_| is_number)
    };

    let mut parts = text.split(':').map(number);
    let hour = parts.next()??;
    let minute = parts.next()??;
    let second = match parts.next() {
        Some(second) => second?,
        None => 0,
    };

    let is_whole = parts.next().is_none();
    civil::Time::new(hour, minute, second, 0).ok().filter(|_| is_whole && second < 60)
}

/// Reads the time zone, which is UTC by default. Returns the zone, and its name as the time-zone
/// database spells it. If the zone is unknown, reports this and returns `None`.
fn zone(read: &mut TableReader<'_>) -> Option<(TimeZone, String)> {
    if !read.has("zone") {
        return Some((TimeZone::UTC, "UTC".to_owned()));
    }

    let text = read.text("zone")?;
    if let Ok(zone) = TimeZone::get(&text.value.value)
        && let Some(name) = zone.iana_name().map(str::to_owned)
        && is_zone(&name)
    {
        return Some((zone, name));
    }

    let known = tz::db().available().map(|name| name.to_string());
    let known: Vec<_> = known.filter(|name| is_zone(name)).collect();
    let message = format!("there is no time zone `{}`", text.value.written);
    let help = did_you_mean_value(&text.value.value, known.iter().map(String::as_str), || {
        "write a name of the IANA database, such as \"Europe/Berlin\"".to_owned()
    });
    read.problem(ConfigProblem::new(ProblemCode::UnknownZone, &text.place, message).help(help));
    None
}

/// Whether a file of the time-zone directory is a time zone. A copy of the zone of the machine, and
/// the placeholder of a machine without a zone, are none.
fn is_zone(name: &str) -> bool {
    !["Factory", "localtime", "posixrules"].iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Resolves the schedules, and reports their problems. The client of each schedule must exist, and
/// must be permitted to send the schedule's payload. If `contracts` is `None`, returns no
/// schedules, because problems of the contracts are already reported.
pub(super) fn schedules(
    sections: &DeclaredSections,
    contracts: Option<&Contracts>,
    schemas: &Schemas,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Vec<Schedule> {
    if sections.schedules.is_empty() {
        return Vec::new();
    }

    let gate = contracts.map(|contracts| {
        let gate = Gate::new(Arc::new(contracts.clone()), schemas.clone());
        gate.with_payload_bytes(sections.payload_bytes)
    });
    let declared = sections.schedules.iter();
    let found = declared.filter_map(|declared| {
        let client = declared.client.as_ref().and_then(|name| client(name, sections, problems));
        let send = declared.send.as_ref();
        let code = ProblemCode::SendMissing;
        let payload =
            send.and_then(|send| file::named_text(send, directory, "payload", code, problems));
        let send = send?;
        let client = client?;
        let payload = payload?;
        let gate = gate.as_ref()?;
        check_payload(send, (&client, &payload), gate, problems)?;
        let name = declared.name.as_ref()?;
        let times = declared.times.clone()?;
        Some(Schedule {
            name: ScheduleName(name.value.clone()),
            times,
            client,
            payload,
            missed: declared.missed,
            concurrency: declared.concurrency,
        })
    });
    found.collect()
}

fn client(
    declared: &Located<ExpandedText>,
    sections: &DeclaredSections,
    problems: &mut ConfigProblems,
) -> Option<ListenerName> {
    let name = declared.value.value.as_str();
    let written = &declared.value.written;
    let members = &sections.members;
    let found = members.iter().find(|member| member.name.value.as_str() == name);
    if let Some(found) = found.filter(|member| member.role == Role::Client) {
        return Some(found.name.value.clone());
    }

    if sections.unread.contains(name) {
        return None;
    }

    let clients = members.iter().filter(|member| member.role == Role::Client);
    let names: Vec<_> = clients.map(|member| member.name.value.as_str()).collect();
    let message = match found {
        Some(_) => format!("`{written}` is no client, and only clients send requests"),
        None => format!("there is no client `{written}`"),
    };
    let help = did_you_mean(name, names.iter().copied(), || {
        "add [clients.some-name] with the peers it may send to".to_owned()
    });
    let place = &declared.place;
    problems.push(ConfigProblem::new(ProblemCode::UnknownClient, place, message).help(help));
    None
}

/// Checks that the client of a schedule may send the schedule's payload. If not, reports a problem
/// and returns `None`. If the reason may be an earlier problem that has made a contract unknown,
/// returns `None` without a report. `send` is the key that names the file of the payload.
fn check_payload(
    send: &Located<ExpandedText>,
    (client, payload): (&ListenerName, &str),
    gate: &Gate,
    problems: &mut ConfigProblems,
) -> Option<()> {
    let refusal = match gate.check(client, payload.as_bytes()) {
        Ok(_) => return Some(()),
        Err(refusal) => refusal,
    };

    let is_of_names = refusal.rule == RefusalRule::NotInVocabulary;
    if is_of_names && has_unknown_contract(client, &gate.contracts) {
        return None;
    }

    let written = &send.value.written;
    let (line, _) = send.place.line_and_column();
    let problem = match refusal.place {
        _ if is_of_names => {
            let message = format!("no peer of `{client}` accepts the payload of `{written}`");
            ConfigProblem::new(ProblemCode::SendRefused, &send.place, message)
                .help(sendable(client, gate))
        }
        Some(place) => {
            let source = ConfigSource::new(written, payload);
            let place = SourceRange::of_line(&source, place.line, place.column);
            let message = format!("the payload is refused: {}", refusal.message);
            let named = format!("it is named at {}:{line}", send.place.source.name());
            ConfigProblem::new(ProblemCode::SendRefused, &place, message).help(named)
        }
        None => {
            let message = format!("the payload `{written}` is refused: {}", refusal.message);
            let help = "`organism schema show PAYLOAD` prints its form";
            ConfigProblem::new(ProblemCode::SendRefused, &send.place, message).help(help)
        }
    };

    problems.push(problem);
    None
}

/// Whether the contract of the client or of one of its peers is unknown, because a declaration has
/// a problem. If true, the payloads that the client may send are unknown, too.
fn has_unknown_contract(client: &ListenerName, contracts: &Contracts) -> bool {
    let Some(contract) = contracts.get(client) else { return true };
    contract.peers.iter().any(|peer| contracts.get(peer).is_none())
}

/// Returns a help text that lists the payloads which the peers of a client accept.
fn sendable(client: &ListenerName, gate: &Gate) -> String {
    let peers = gate.contracts.get(client).map(|contract| contract.peers.as_slice());
    let peers = peers.unwrap_or_default().iter().filter_map(|peer| gate.contracts.get(peer));
    let mut names: Vec<_> =
        peers.flat_map(|peer| &peer.accepts).map(|name| name.to_string()).collect();
    names.sort();
    names.dedup();
    format!("add a peer that accepts it; {client} may send {}", names.join(", "))
}

//! The page with the configs that were in force: one whole config, or the differences between two
//! configs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::ViewState;
use super::layout::{inline, moment, shown, table};
use super::payload_text::{Excerpt, PageRoom};
use super::url_query::UrlQuery;
use crate::config::{
    BootConfig, ComparedConfig, ConfigChange, ConfigHistory, StoredConfig, config_changes,
};
use crate::ids::{Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::limits;

const PATH: &str = "/config";

/// Fields of the form with which a person selects the configs to show, each with its label.
const FIELDS: [(&str, &str); 3] =
    [("at", "Config at"), ("before", "Compare: before"), ("after", "Compare: after")];

/// Name of the URL parameter with the number of a partition. If the parameter is set, the page
/// looks for the moments in the URL only in the journal of this partition. A moment is the number
/// of a record or the id of a thread. Each journal numbers its own records, so several journals may
/// contain the same moment.
pub(super) const PARTITION: &str = "partition";

/// Returns the path of the page with the whole config that was in force at `moment`: at the record
/// with this number, or when the thread with this id was opened.
pub(super) fn path(moment: &str) -> String {
    UrlQuery::default().with("at", Some(moment)).link(PATH)
}

/// The configs that one journal contributes to the page.
struct FoundConfigs {
    partition: u32,
    /// Whether the URL selects this partition, or none.
    is_selected: bool,
    /// The newest starts and reloads of the pump, newest first.
    boots: Vec<BootConfig>,
    /// The config at the moment in the URL, if this journal contains that moment.
    whole: Option<Result<WholeConfig, String>>,
    /// The first config of the comparison, if this journal contains its moment.
    before: Option<Result<ComparedConfig, String>>,
    /// The second config of the comparison, if this journal contains its moment.
    after: Option<Result<ComparedConfig, String>>,
}

struct WholeConfig {
    boot: BootConfig,
    stored: StoredConfig,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    let asked = query.clone();
    let find = move |partition, index: &mut IndexReader| find(partition, index, &asked);
    view.respond(find, move |view, answers| {
        let found: Vec<_> = answers.into_iter().map(|found| found.answer).collect();
        if let Some(selected) = query.get(PARTITION)
            && found.iter().all(|found| found.partition.to_string() != selected)
        {
            return no_partition(view, selected);
        }
        let compared = compare(&found);
        let missing = missing(&query, &found, &compared);
        let page = view.page("Config", PATH, &content(&query, &found, &compared, missing));
        match missing {
            Some(MissingConfigs::SecondMoment) => (StatusCode::BAD_REQUEST, page).into_response(),
            Some(MissingConfigs::Moments) => (StatusCode::NOT_FOUND, page).into_response(),
            None => page,
        }
    })
    .await
}

/// Draws the page for a partition of which this host has no journal.
pub(super) fn no_partition(view: &ViewState, selected: &str) -> Response {
    let missing = &view.present.copies().missing;
    if missing.iter().any(|partition| partition.to_string() == selected) {
        let text = format!(
            "This host has no copy of partition {selected}: a host that pumps it, or stands by for \
             it, has one."
        );
        return view.failed(StatusCode::SERVICE_UNAVAILABLE, "No copy of this partition", &text);
    }
    let text = format!("There is no partition `{selected}` here.");
    view.failed(StatusCode::NOT_FOUND, "No such partition", &text)
}

fn find(
    partition: u32,
    index: &IndexReader,
    query: &UrlQuery,
) -> Result<FoundConfigs, index::Error> {
    let history = ConfigHistory::read(index.journal())?;
    let is_selected =
        query.get(PARTITION).is_none_or(|selected| selected == partition.to_string().as_str());
    let boot = |name: &str| match query.get(name).filter(|_| is_selected) {
        Some(moment) => boot_at(index, &history, moment),
        None => Ok(None),
    };
    let whole = boot("at")?.map(|boot| {
        let stored = StoredConfig::read(index.journal(), &boot);
        stored.map(|stored| WholeConfig { boot, stored }).map_err(|error| error.to_string())
    });
    let compared = |boot: BootConfig| {
        ComparedConfig::of_boot(index.journal(), &boot).map_err(|error| error.to_string())
    };
    let before = boot("before")?.map(compared);
    let after = boot("after")?.map(compared);
    let boots = history.boots.iter().rev().take(limits::WEB_PAGE_ROWS).cloned().collect();
    Ok(FoundConfigs { partition, is_selected, boots, whole, before, after })
}

/// Why the page lacks configs that its URL selects.
#[derive(Debug, Clone, Copy)]
enum MissingConfigs {
    /// The URL names only one of the two moments of a comparison.
    SecondMoment,
    /// No journal contains the moments that the URL names.
    Moments,
}

impl MissingConfigs {
    const fn describe(self) -> &'static str {
        match self {
            Self::SecondMoment => {
                "A comparison needs two moments: fill in both `before` and `after`."
            }
            Self::Moments => {
                "No journal has these moments: write the number of a record, or the id of a thread."
            }
        }
    }
}

/// Returns why the page lacks configs that its URL selects; `None` if the page lacks none of them.
fn missing(
    query: &UrlQuery,
    found: &[FoundConfigs],
    compared: &[ConfigComparison],
) -> Option<MissingConfigs> {
    let is_given = |name: &str| query.get(name).is_some();
    if is_given("before") != is_given("after") {
        return Some(MissingConfigs::SecondMoment);
    }
    let lacks_whole = is_given("at") && found.iter().all(|found| found.whole.is_none());
    let lacks_comparison = is_given("before") && compared.is_empty();
    (lacks_whole || lacks_comparison).then_some(MissingConfigs::Moments)
}

/// The differences between two configs, or why they cannot be compared.
struct ConfigComparison {
    /// Partitions of the journals that contain the first and the second moment.
    partitions: [u32; 2],
    changes: Result<ConfigDifferences, String>,
}

struct ConfigDifferences {
    changes: Vec<ConfigChange>,
    /// Whether only the settings on which decisions depend were compared, because an early version
    /// of the program recorded one of the configs without the other settings.
    is_effective_only: bool,
}

/// Compares the two configs in each journal that contains both moments. If no journal contains
/// both, compares the configs of two journals, but only if each moment is in exactly one journal. A
/// moment that is in several journals is ambiguous, because records of different journals can have
/// the same number.
fn compare(found: &[FoundConfigs]) -> Vec<ConfigComparison> {
    let in_journal = |found: &FoundConfigs| {
        let (before, after) = found.before.as_ref().zip(found.after.as_ref())?;
        let changes = changes_between(before, after);
        Some(ConfigComparison { partitions: [found.partition; 2], changes })
    };
    let pairs: Vec<_> = found.iter().filter_map(in_journal).collect();
    if !pairs.is_empty() {
        return pairs;
    }

    let before = only(found.iter().filter(|found| found.before.is_some()));
    let after = only(found.iter().filter(|found| found.after.is_some()));
    let pair = before.zip(after).and_then(|(first, second)| {
        let changes = changes_between(first.before.as_ref()?, second.after.as_ref()?);
        Some(ConfigComparison { partitions: [first.partition, second.partition], changes })
    });
    pair.into_iter().collect()
}

/// Returns the item of an iterator with exactly one item; `None` for any other number of items.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let item = items.next()?;
    items.next().is_none().then_some(item)
}

fn changes_between(
    before: &Result<ComparedConfig, String>,
    after: &Result<ComparedConfig, String>,
) -> Result<ConfigDifferences, String> {
    match (before, after) {
        (Ok(before), Ok(after)) => Ok(ConfigDifferences {
            changes: config_changes(before, after),
            is_effective_only: before.is_effective_only(after),
        }),
        (Err(error), _) | (_, Err(error)) => Err(error.clone()),
    }
}

/// Returns the start or the reload whose config was in force at `moment`. `moment` is the position
/// of a record, or the id of a thread. The id stands for the time when the thread was opened.
/// Returns `None` if the journal has no such record or thread.
fn boot_at(
    index: &IndexReader,
    history: &ConfigHistory,
    moment: &str,
) -> Result<Option<BootConfig>, index::Error> {
    let position = match (moment.parse(), ThreadId::parse(moment)) {
        (Ok(position), _) => Some(Position(position)).filter(|at| *at <= index.last()),
        (_, Ok(thread)) => index.opened_at(&thread)?,
        _ => None,
    };
    Ok(position.and_then(|position| history.at(position)).cloned())
}

fn content(
    query: &UrlQuery,
    found: &[FoundConfigs],
    compared: &[ConfigComparison],
    missing: Option<MissingConfigs>,
) -> Markup {
    let room = PageRoom::new();
    let is_partitioned = found.len() > 1;
    let named = |partition: u32| is_partitioned.then_some(partition);
    html! {
        h1 { "Config" }
        (form(query, is_partitioned))
        @if let Some(missing) = missing { p.problem role="alert" { (missing.describe()) } }
        @for pair in compared {
            (differences(query, pair, is_partitioned, &room))
        }
        @for found in found {
            @if let Some(config) = &found.whole {
                (whole(config, named(found.partition), &room))
            }
        }
        @if room.omitted() > 0 {
            p.problem { "The page is full; " code { "organism config" } " shows all of it." }
        }
        @for found in found.iter().filter(|found| found.is_selected) {
            (boots(found, named(found.partition)))
        }
    }
}

/// Draws the end of a heading about the journal of one partition. Draws nothing if `partition` is
/// `None`.
fn in_partition(partition: Option<u32>) -> Markup {
    html! { @if let Some(partition) = partition { ", partition " (partition) } }
}

fn form(query: &UrlQuery, is_partitioned: bool) -> Markup {
    let selected = query.get(PARTITION).unwrap_or_default();
    html! {
        form.filters method="get" action=(PATH) role="search" aria-label="Configs" {
            @for (name, label) in FIELDS {
                div {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(query.get(name).unwrap_or_default())
                        placeholder="record or thread" autocomplete="off";
                }
            }
            @if is_partitioned {
                div {
                    label for=(PARTITION) { "Partition" }
                    input id=(PARTITION) name=(PARTITION) value=(selected) placeholder="all"
                        autocomplete="off";
                }
            }
            button type="submit" { "Show" }
            a href=(PATH) { "Clear" }
        }
    }
}

/// Draws the starts and reloads of one journal. `partition` is `None` if the organism has only one
/// journal.
fn boots(found: &FoundConfigs, partition: Option<u32>) -> Markup {
    let number = partition.map(|partition| partition.to_string());
    let own = UrlQuery::default().with(PARTITION, number.as_deref());
    let before = found.boots.iter().skip(1).map(Some).chain([None]);
    let rows = found.boots.iter().zip(before).map(|(boot, before)| {
        let position = boot.position.0.to_string();
        let config = own.with("at", Some(&position)).link(PATH);
        let changes = before.map(|before| {
            let query = own.with("before", Some(&before.position.0.to_string()));
            query.with("after", Some(&position)).link(PATH)
        });
        vec![
            html! { (boot.position.0) },
            html! { (if boot.is_reload { "reload" } else { "start" }) },
            moment(boot.time),
            html! { (boot.epoch) },
            html! { a.digest data-entry href=(config) { (boot.config) } },
            html! { @if let Some(path) = changes { a href=(path) { "changes" } } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    let title = format!("Configs in force, newest first, partition {}", found.partition);
    html! {
        h2 { "Configs over time" (in_partition(partition)) }
        @if rows.is_empty() {
            p.empty { "The organism has not run yet." }
        } @else {
            (table(&title, &["Record", "By", "Time", ">Epoch", "Config", "Since before"], &rows))
        }
    }
}

fn whole(config: &Result<WholeConfig, String>, partition: Option<u32>, room: &PageRoom) -> Markup {
    let WholeConfig { boot, stored } = match config {
        Ok(config) => config,
        Err(error) => return html! { p.problem { (shown(error)) } },
    };
    let files = stored.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let selected = partition_option(partition);
    let command = format!("organism config --at {}{selected} --out DIR", boot.position.0);
    let all = html! { code { (inline(&command)) } " writes all of it" };
    html! {
        h2 { "From record " (boot.position.0) (in_partition(partition)) }
        p { "sha256 " code.digest { (boot.config) } }
        @for (name, text) in [("The config", stored.toml.as_str())].into_iter().chain(files) {
            (written(&inline(name), text, &all, room))
        }
    }
}

/// Draws a text of a config, or a difference between two texts. If the text is too long for the
/// page, also draws `all`, a clause that names the command for the whole text.
fn written(title: &Markup, text: &str, all: &Markup, room: &PageRoom) -> Markup {
    if !room.claim_room() {
        return html! {};
    }

    let excerpt = Excerpt::as_written(text);
    html! {
        h3 { (title) }
        pre.body.written { (room.take(excerpt.text())) }
        @if excerpt.is_cut() {
            p.problem { "This text is longer than the page shows; " (all) "." }
        }
    }
}

/// Returns the option of a command that selects the journal of one partition, with a space before
/// it; an empty text if the organism has only one journal.
fn partition_option(partition: Option<u32>) -> String {
    partition.map(|partition| format!(" --partition {partition}")).unwrap_or_default()
}

fn differences(
    query: &UrlQuery,
    comparison: &ConfigComparison,
    is_partitioned: bool,
    room: &PageRoom,
) -> Markup {
    let ConfigDifferences { changes, is_effective_only } = match &comparison.changes {
        Ok(differences) => differences,
        Err(error) => return html! { p.problem { (shown(error)) } },
    };
    let [before, after] = ["before", "after"].map(|name| query.get(name).unwrap_or_default());
    let [first, second] = comparison.partitions;
    let partition = (is_partitioned && first == second).then_some(first);
    let all = if first == second {
        let selected = partition_option(partition);
        let command = format!("organism config diff {before} {after}{selected}");
        html! { code { (inline(&command)) } " shows all of it" }
    } else {
        // `config diff` has one option for the partition of both moments.
        let command = |moment: &str, partition: u32, directory: &str| {
            let command = format!("organism config --at {moment} --partition {partition}");
            html! { code { (inline(&format!("{command} --out {directory}"))) } }
        };
        html! {
            (command(before, first, "BEFORE")) " and " (command(after, second, "AFTER"))
            " write both configs"
        }
    };
    html! {
        h2 { "Differences" (in_partition(partition)) }
        @if *is_effective_only {
            p {
                "Only the settings on which decisions depend are compared: a start of an early \
                 version stored no others."
            }
        }
        @if changes.is_empty() { p.empty { "The configs are equal." } }
        @for change in changes {
            (written(&html! { code { (inline(&change.path)) } }, &lines(change), &all, room))
        }
    }
}

/// Returns the lines that a change removes and adds.
fn lines(change: &ConfigChange) -> String {
    if let Some(diff) = &change.diff {
        return diff.clone();
    }
    let mut text = String::new();
    for (sign, value) in [('-', &change.before), ('+', &change.after)] {
        for line in value.iter().flat_map(|value| value.lines()) {
            text.push_str(&format!("{sign}{line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::Digest;

    /// Returns the part of the page about a value that was added to the second config. `partitions`
    /// contains the partitions of both configs.
    fn added(value: String, partitions: [u32; 2]) -> String {
        let query = UrlQuery::default().with("before", Some("1")).with("after", Some("2"));
        let path = "schemas.talk".to_owned();
        let change = ConfigChange { path, before: None, after: Some(value), diff: None };
        let changes = Ok(ConfigDifferences { changes: vec![change], is_effective_only: false });
        let comparison = ConfigComparison { partitions, changes };
        differences(&query, &comparison, true, &PageRoom::new()).into_string()
    }

    /// Text that begins the note about a text that was cut.
    const CUT: &str = "This text is longer than the page shows; ";

    #[test]
    fn a_difference_that_is_cut_names_the_commands_for_all_of_it() {
        let long = "x".repeat(limits::WEB_RAW_CHARS + 1);
        let command = "<code><bdi>organism config diff 1 2 --partition 3</bdi></code>";
        let page = added(long.clone(), [3, 3]);
        assert!(page.contains(&format!("{CUT}{command} shows all of it.")), "{page}");
        let page = added("x".repeat(limits::WEB_RAW_CHARS / 2), [3, 3]);
        assert!(!page.contains(CUT), "{page}");

        // `config diff` finds no moments of two partitions by their positions.
        let page = added(long, [0, 3]);
        assert!(!page.contains("config diff"), "{page}");
        for command in ["--at 1 --partition 0 --out BEFORE", "--at 2 --partition 3 --out AFTER"] {
            assert!(page.contains(&format!("organism config {command}</bdi>")), "{page}");
        }
    }

    #[test]
    fn a_config_with_a_text_that_is_cut_names_the_command_for_all_of_it() {
        let boot = BootConfig {
            position: Position(5),
            time: Time(0),
            epoch: 1,
            core_version: 1,
            config: Digest::default(),
            blobs: Vec::new(),
            is_reload: false,
        };
        let long = "x".repeat(limits::WEB_RAW_CHARS + 1);
        let files = [("long.xsd".to_owned(), long), ("short.xsd".to_owned(), "x".to_owned())];
        let stored = StoredConfig::of_texts("short = true".to_owned(), files.into());
        let config = Ok(WholeConfig { boot, stored });
        for (partition, selected) in [(None, ""), (Some(3), " --partition 3")] {
            let page = whole(&config, partition, &PageRoom::new()).into_string();
            assert_eq!(page.matches(CUT).count(), 1, "{page}");
            let command = format!("organism config --at 5{selected} --out DIR</bdi>");
            assert!(page.contains(&command), "{page}");
        }
    }
}

//! The frame of every page, such as the navigation, and the functions that write recorded texts
//! into a page.
//!
//! **Invariant:** a text from the journal becomes part of a page only through [`shown`] or
//! [`inline`].

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

use crate::audit::PartitionCopies;
use crate::audit::amounts::{duration, micros};
use crate::clock::Time;
use crate::limits;
use crate::plural::count;
use crate::xml::invisible_characters::visible;

use super::ViewPerson;
use super::pauses;
use super::present_facts::{PauseOfAll, PresentFacts};

const WAITING: &str = "/waiting";

/// Pages of the navigation, with their paths.
const SECTIONS: [(&str, &str); 10] = [
    ("Threads", "/threads"),
    ("Waiting", WAITING),
    ("Search", "/search"),
    ("Refused and failed", "/refused"),
    ("Costs", "/costs"),
    ("Listeners", "/listeners"),
    ("Actions", "/actions"),
    ("Config", "/config"),
    ("Record", "/record"),
    ("Compare", "/compare"),
];

/// Keys of the keyboard that the page's script handles, with their effects.
const KEYS: [(&str, &str); 7] = [
    ("1 …", "open the first page at the top, and so on"),
    ("/", "go to the first field"),
    ("j", "go to the next entry"),
    ("k", "go to the previous entry"),
    ("n", "go to the next page"),
    ("p", "stop updating a live page, or update it again"),
    ("?", "show these keys"),
];

/// Data for the frame of a page. The frame is everything around the page's content, such as the
/// title, the navigation and a notice of a pause.
pub(super) struct PageFrame<'p> {
    pub title: &'p str,
    /// Path of the section to which the page belongs.
    pub section: &'p str,
    /// Name of the organism; `None` if its config is not known.
    pub organism: Option<&'p str>,
    /// The person to whom the session belongs; `None` on a page without a session.
    pub person: Option<&'p ViewPerson>,
    /// Whether the person of the session may act in this view, not only read.
    pub may_act: bool,
    /// Facts about the organism at present; `None` on a page without a session.
    pub present: Option<&'p PresentFacts>,
    /// A warning that the key with which this browser signs decisions is not in the config. Empty
    /// if decisions need no signature.
    pub key_warning: Markup,
}

/// Draws a whole page.
pub(super) fn page(frame: &PageFrame<'_>, content: &Markup) -> Markup {
    let organism = frame.organism.unwrap_or("organism");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) " · " (organism) }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/view.css";
                script src="/view.js" defer {}
            }
            body {
                a.skip href="#content" { "To the content" }
                header {
                    p.name { (organism) }
                    @if let Some(person) = frame.person {
                        nav aria-label="Pages" {
                            @for (name, path) in SECTIONS {
                                a href=(path) aria-current=[(path == frame.section).then_some("page")] {
                                    (name)
                                    @if path == WAITING { (waiting_count(frame.present)) }
                                }
                            }
                        }
                        p.person {
                            (person.describe())
                            @if frame.may_act {
                                " · " a href="/operate"
                                    aria-current=[(frame.section == "/operate").then_some("page")] {
                                    "Operate"
                                }
                            }
                        }
                    }
                }
                @if let Some(present) = frame.present {
                    (stopped_strip(present.is_stopped(), &present.copies()))
                    (gap_strip(present.is_stopped(), &present.copies()))
                    (pause_strip(present.pause().as_ref(), frame.may_act))
                }
                (frame.key_warning)
                main #content tabindex="-1" { (content) }
                @if frame.person.is_some() { (footer()) }
            }
        }
    }
}

/// Draws the strip which states that no organism runs on this host. On a live page, the page's
/// script shows or hides this strip. If the pages show copies of streams, organisms on other hosts
/// may still write to the copied streams, and the strip states so.
fn stopped_strip(is_stopped: bool, copies: &PartitionCopies) -> Markup {
    html! {
        p.strip #stopped role="status" hidden[!is_stopped] {
            @if copies.is_streamed {
                "No organism runs on this host: the pages show what this host has received"
                @if let Some(newest) = copies.newest_unfollowed().filter(|_| is_stopped) {
                    " up to " (moment(newest))
                }
                ". Organisms on other hosts may go on. " code { "organism approvals" }
                " asks them which calls wait."
            } @else {
                "No organism runs on this host: nothing moves, and decisions wait, until one starts."
            }
        }
    }
}

/// Draws the strip that names the partitions whose records the pages lack, wholly or in part. While
/// no organism runs on this host, another strip states that its copies are not kept up to date. On a
/// live page, the page's script replaces this strip.
fn gap_strip(is_stopped: bool, copies: &PartitionCopies) -> Markup {
    let old: &[_] = if is_stopped { &[] } else { &copies.unfollowed };
    let is_complete = copies.missing.is_empty() && old.is_empty();
    html! {
        p.strip #gaps role="status" hidden[is_complete] {
            @if !copies.missing.is_empty() {
                "This host has no copy of " (partition_list(copies.missing.iter().copied()))
                ": the pages lack its records. "
            }
            @if !old.is_empty() {
                "No organism on this host follows "
                (partition_list(old.iter().filter_map(|end| end.partition)))
                ": the pages show its records"
                @if let Some(newest) = copies.newest_unfollowed() { " up to " (moment(newest)) }
                " at most. "
            }
            @if !is_complete {
                code { "organism approvals" } " asks the pumps of all partitions which calls wait."
            }
        }
    }
}

/// Names partitions, such as `partition 3` or `each of the partitions 0, 1, 3`.
fn partition_list(partitions: impl Iterator<Item = u32>) -> String {
    let numbers: Vec<_> = partitions.map(|partition| partition.to_string()).collect();
    match &numbers[..] {
        [] => "the stream of its record".to_owned(),
        [only] => format!("partition {only}"),
        several => format!("each of the partitions {}", several.join(", ")),
    }
}

/// Draws the strip that announces a pause of everything and states how to resume. On a live page,
/// the page's script replaces this strip.
fn pause_strip(paused: Option<&PauseOfAll>, may_act: bool) -> Markup {
    html! {
        p.strip #paused role="status" hidden[paused.is_none()] {
            @if let Some(PauseOfAll { pause, partitions: (reached, all) }) = paused {
                "Everything is paused"
                @if reached < all { " in " (reached) " of " (all) " partitions" }
                " since " (moment(pause.since)) " by " (pauses::person(pause).draw())
                @if !pause.note.is_empty() { " (" (inline(&pause.note)) ")" }
                ": nothing more is handed over. "
                @if may_act {
                    a href=(pauses::RESUME_ALL_PATH) { "Resume" }
                } @else {
                    code { "organism resume all" } " ends it."
                }
            }
        }
    }
}

/// Draws the number of calls that wait for a person. On a live page, the page's script replaces
/// this number.
fn waiting_count(present: Option<&PresentFacts>) -> Markup {
    let waiting = present.map_or(0, PresentFacts::waiting);
    html! {
        " "
        span.count #waiting-count hidden[waiting == 0] {
            @match waiting {
                0 => {}
                limits::WEB_WAITING_COUNTED => { (waiting - 1) "+" }
                _ => { (waiting) }
            }
        }
    }
}

fn footer() -> Markup {
    html! {
        footer {
            details #keys {
                summary { "Keys" }
                dl {
                    @for (key, what) in KEYS {
                        div { dt { kbd { (key) } } dd { (what) } }
                    }
                }
            }
            p { "Times are in UTC." }
        }
    }
}

/// Draws a table inside an area that scrolls by itself, because the table may be wider than the
/// page. A header that begins with `>` marks a column of numbers. The first column names the row.
pub(super) fn table(caption: &str, headers: &[&str], rows: &[Vec<Markup>]) -> Markup {
    let class = |header: &str| if header.starts_with('>') { "number" } else { "" };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table.cards {
                caption.unseen { (caption) }
                thead {
                    tr {
                        @for header in headers {
                            th.(class(header)) scope="col" { (header.trim_start_matches('>')) }
                        }
                    }
                }
                tbody {
                    @for cells in rows {
                        tr {
                            @for (at, (cell, header)) in cells.iter().zip(headers).enumerate() {
                                @if at == 0 {
                                    th scope="row" { (cell) }
                                } @else {
                                    td.(class(header)) data-label=(header.trim_start_matches('>')) { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a hint beneath a table that leaves out `left` rows. `whole` is a clause that names where
/// all rows are shown. Draws nothing if `left` is 0.
pub(super) fn rows_left(left: usize, whole: &Markup) -> Markup {
    html! {
        @if left > 0 { p.hint { (count(left as u64, "more row")) "; " (whole) "." } }
    }
}

/// Draws a text with each hidden character shown as its code point.
pub(super) fn shown(text: &str) -> Markup {
    html! { (visible(text)) }
}

/// Draws a text on one line, so that its direction, such as right to left, does not affect the
/// texts around it. Draws nothing for an empty text, so that a table cell stays empty.
pub(super) fn inline(text: &str) -> Markup {
    if text.is_empty() {
        return html! {};
    }
    html! { bdi { (visible(text).replace(['\n', '\t'], " ")) } }
}

/// Draws a long text in a cell of a table, on several lines if needed.
pub(super) fn wrapped(text: &str) -> Markup {
    html! { @if !text.is_empty() { span.wraps { (inline(text)) } } }
}

/// Returns the first `most` characters of a text, and a mark: `…` if the text is longer, and empty
/// if it is not.
pub(super) fn cut(text: &str, most: usize) -> (&str, &'static str) {
    let end = text.char_indices().nth(most).map(|(at, _)| at);
    match end.and_then(|end| text.get(..end)) {
        Some(beginning) => (beginning, "…"),
        None => (text, ""),
    }
}

/// Writes a name as a label in a drawing, and cuts a long name.
pub(super) fn label(name: &str) -> Markup {
    let (name, more) = cut(name, limits::WEB_LABEL_CHARS);
    shown(&format!("{name}{more}").replace(['\n', '\t'], " "))
}

/// Draws a date and time in whole seconds, in UTC. A person can enter the drawn text as a time in
/// the filters of a page.
pub(super) fn moment(time: Time) -> Markup {
    let text = time.to_string();
    let day = text.get(..10).unwrap_or(&text);
    let clock = text.get(11..19).unwrap_or_default();
    html! { time datetime=(text) { (day) " " (clock) "Z" } }
}

/// Returns the time that a thread took or, if the thread has open work, the age of the thread.
pub(super) fn took(opened: Time, updated: Time, is_open: bool) -> String {
    if is_open {
        return format!("open {}", length(Time::now().since(opened)));
    }
    length(updated.since(opened))
}

/// Writes a short duration in digits, and a long duration in words.
pub(super) fn length(time: Duration) -> String {
    if time < Duration::from_secs(10) { micros(time.as_micros()) } else { duration(time) }
}

/// Writes a number as [`grouped`] does, but nothing for 0, because most values in a table are 0.
pub(super) fn unless_zero(number: u64) -> String {
    if number == 0 { String::new() } else { grouped(number) }
}

/// Writes a number with narrow spaces between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::CopyEnd;
    use crate::ids::Position;

    #[test]
    fn a_text_of_others_is_only_text() {
        let hostile = "<script>alert(1)</script>\u{202e}&\n\"'\u{1b}";
        let written = inline(hostile).into_string();
        assert_eq!(
            written,
            "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}&amp; &quot;'\\u{1b}</bdi>"
        );
        assert!(!shown(hostile).into_string().contains('<'));
    }

    #[test]
    fn a_host_with_a_copy_of_a_stream_states_that_other_hosts_may_go_on() {
        let own = stopped_strip(true, &PartitionCopies::default()).into_string();
        assert!(own.contains("nothing moves"), "{own}");
        let copies = copies_of(&[], &[Some(0)]);
        let copy = stopped_strip(true, &copies).into_string();
        assert!(copy.contains("2026-11-28 18:41:45Z") && copy.contains("other hosts may go on"));
        // The script may show the strip long after it was drawn.
        let hidden = stopped_strip(false, &copies).into_string();
        assert!(hidden.contains(" hidden") && !hidden.contains("18:41"), "{hidden}");
        for strip in [copy, hidden] {
            assert!(!strip.contains("nothing moves"), "{strip}");
        }
    }

    fn copies_of(missing: &[u32], unfollowed: &[Option<u32>]) -> PartitionCopies {
        let time = Time::parse("2026-11-28T18:41:45Z").unwrap();
        let end = |partition: &Option<u32>| CopyEnd {
            partition: *partition,
            last: Some((Position(7), time)),
        };
        let mut copies = PartitionCopies::default();
        copies.missing = missing.to_vec();
        copies.unfollowed = unfollowed.iter().map(end).collect();
        copies.is_streamed = true;
        copies
    }

    #[test]
    fn the_partitions_whose_records_the_pages_lack_are_named() {
        let strip = |is_stopped, missing: &[u32], unfollowed: &[Option<u32>]| {
            gap_strip(is_stopped, &copies_of(missing, unfollowed)).into_string()
        };
        assert!(strip(false, &[], &[]).contains(" hidden"));
        assert!(strip(true, &[], &[Some(3)]).contains(" hidden"), "the other strip states it");
        let missing = strip(true, &[0, 1], &[Some(2)]);
        assert!(missing.contains("no copy of each of the partitions 0, 1: "), "{missing}");
        assert!(!missing.contains(" hidden") && !missing.contains("follows"), "{missing}");
        let old = strip(false, &[], &[Some(3)]);
        assert!(old.contains("follows partition 3: ") && old.contains("18:41:45Z"), "{old}");
        assert!(!old.contains("no copy"), "{old}");
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        let cases = [(1, "1"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")];
        for (number, expected) in cases {
            assert_eq!(grouped(number).replace('\u{202f}', " "), expected);
        }
        assert_eq!(unless_zero(0), "");
    }

    #[test]
    fn a_name_in_a_drawing_is_text_and_short() {
        assert_eq!(label("<b>\u{202e}\n").into_string(), "&lt;b&gt;\\u{202e} ");
        let long = label(&"漢".repeat(1_000)).into_string();
        assert_eq!(long.chars().count(), limits::WEB_LABEL_CHARS + 1);
    }
}

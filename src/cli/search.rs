//! `organism search`: finds messages and refusals.

use std::process::ExitCode;

use crate::audit::{self, SearchRequest, SearchResult, SearchedItem, check_xpath};
use crate::envelope::{Disposition, MessageKind, RefusalRule};
use crate::index::{HitCount, SearchFilter, check_words};
use crate::limits;

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget, known};
use super::render::{self, RenderOutput, count, put, put_json};
use super::startup;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "WORDS stand for the words of payloads, senders and receivers, ignoring case: all \
                  must occur. A word that ends with * stands for every word that begins so; quoted \
                  words follow each other, but not those of scripts without spaces, such as \
                  Chinese."
)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Words to find; or the id of a message or a thread.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Search only this thread and its subthreads.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Find only messages whose payload has this name, given with or without its {namespace}.
    #[arg(long, value_name = "NAME")]
    payload: Option<String>,
    /// Find only messages from this sender.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Find only messages to this receiver.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Find only entries of this kind: call, reply, self, note, system or refusal.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Find only messages with this disposition: handled, recorded, failed, expired, cancelled or
    /// late.
    #[arg(long, value_name = "NAME")]
    disposition: Option<String>,
    /// Find only refusals by this rule, such as schema-invalid.
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Find only what was recorded from this moment on, such as 2026-11-20 or 2026-11-20T10:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Find only what was recorded before this moment.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Find only payloads that contain this text anywhere, even inside words and markup. Needs
    /// --thread, --since or --until.
    #[arg(long, value_name = "TEXT")]
    substring: Option<String>,
    /// Find only payloads for which this XPath expression is true. In the expression, elements have
    /// names without a namespace, as in "total > 100".
    #[arg(long, value_name = "EXPRESSION")]
    xpath: Option<String>,
    /// Maximum number of results; the newest are shown.
    #[arg(
        long,
        default_value_t = 50,
        value_name = "N",
        value_parser = startup::at_least_one,
        allow_negative_numbers = true
    )]
    limit: usize,
    /// Show only the number of results. Counts all results, even if there are more than 10,000.
    #[arg(long)]
    count: bool,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one line of JSON for each result.
    #[arg(long)]
    json: bool,
}

/// Runs the search. If the search finds nothing, the command exits with 1, as `grep` does. This
/// also applies to a search that has read only the newest payloads.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let request = request(&args)?;
    let results = indexed::read_all(&args.place, &mut |reader| audit::search(reader, &request))?;
    let partitions = results.len();
    let result = merged(results, args.limit);
    if let (HitCount::Exact(0), Some(thread)) = (result.total, &request.filter.within) {
        journal_target::require_thread(&args.place, thread)?;
    }
    if args.count {
        put(&format!("{}\n", result.total.number()))?;
    } else {
        show(&args, &result)?;
    }

    if result.unevaluated > 0 {
        note!(
            "{} not compared: the XPath expression takes too long for so large a payload",
            count(result.unevaluated, "payload")
        );
    }
    note_end(result.total, partitions, !request.filter.words.is_empty());
    match result.total.number() {
        0 => Ok(CommandExit::WorkflowFailed.into()),
        _ => Ok(CommandExit::Done.into()),
    }
}

/// Prints a note if nothing matches, or if the search has read only the newest payloads. The note
/// goes to standard error, so that it does not disturb `--json`. `has_words` states whether the
/// search was for words.
fn note_end(total: HitCount, partitions: usize, has_words: bool) {
    let place = if partitions > 1 { " of each partition" } else { "" };
    let read = format!(
        "the newest {} messages and refusals{place} that the other options leave",
        digits_in_groups(limits::SEARCH_PAYLOADS_MAX as u64)
    );
    let next = "to find older matches, pass --until, --since or --thread; `--count` reads all, and \
                prints their number";
    match total {
        HitCount::Exact(0) if !has_words => note!("nothing matches"),
        HitCount::Exact(0) => {
            note!("nothing matches; a part of a word is found with `*` at its end, or --substring");
        }
        HitCount::AtLeast(0) => {
            note!("nothing matches among {read}, and no others were read; {next}")
        }
        HitCount::AtLeast(_) => note!("only {read} were read; {next}"),
        HitCount::Exact(_) | HitCount::MoreThan(_) => {}
    }
}

fn request(args: &Args) -> anyhow::Result<SearchRequest> {
    let kinds = MessageKind::ALL.map(MessageKind::as_str);
    one_of("--kind", args.kind.as_deref(), &[&kinds[..], &["refusal"]].concat())?;
    let dispositions = Disposition::ALL.map(Disposition::as_str);
    one_of("--disposition", args.disposition.as_deref(), &dispositions)?;
    let rules = RefusalRule::ALL.map(RefusalRule::as_str);
    one_of("--rule", args.rule.as_deref(), &rules)?;
    let is_bounded = args.thread.is_some() || args.since.is_some() || args.until.is_some();
    if args.substring.is_some() && !is_bounded {
        let text = "--substring reads every payload: pass --thread, --since or --until as well, or \
                    search for words";
        return Err(CommandFailure::usage(text).into());
    }
    if let Some(expression) = &args.xpath {
        let wrong = |error| {
            let text =
                format!("--xpath {expression}: {error}; elements have names without a prefix");
            CommandFailure::usage(text)
        };
        check_xpath(expression).map_err(wrong)?;
    }

    let moment = |text: &Option<String>| text.as_deref().map(indexed::moment).transpose();
    let filter = SearchFilter {
        words: args.words.join(" "),
        payload: args.payload.clone(),
        from: args.from.clone(),
        to: args.to.clone(),
        kind: args.kind.clone(),
        disposition: args.disposition.clone(),
        rule: args.rule.clone(),
        since: moment(&args.since)?,
        until: moment(&args.until)?,
        within: args.thread.as_deref().map(known).transpose()?,
        id: None,
    };
    check_words(&filter.words).map_err(|error| {
        let text = format!("{error}; --substring finds other texts");
        CommandFailure::usage(text)
    })?;
    Ok(SearchRequest {
        filter,
        substring: args.substring.clone(),
        xpath: args.xpath.clone(),
        limit: args.limit,
        is_full_count: args.count,
    })
}

fn one_of(option: &str, value: Option<&str>, known: &[&str]) -> anyhow::Result<()> {
    match value {
        Some(value) if !known.contains(&value) => {
            let text = format!("{option} {value}: write one of {}", known.join(", "));
            Err(CommandFailure::usage(text).into())
        }
        _ => Ok(()),
    }
}

/// Merges the search results of the partitions. If there are several partitions, keeps only the
/// newest `limit` results.
fn merged(results: Vec<SearchResult>, limit: usize) -> SearchResult {
    let is_one = results.len() == 1;
    let mut items = Vec::new();
    let mut total = HitCount::Exact(0);
    let mut unevaluated = 0;
    for result in results {
        items.extend(result.items);
        total = total.plus(result.total);
        unevaluated += result.unevaluated;
    }
    if !is_one {
        items.sort_by_key(SearchedItem::time);
        items.drain(..items.len().saturating_sub(limit));
    }
    SearchResult { items, total, unevaluated }
}

fn show(args: &Args, result: &SearchResult) -> anyhow::Result<()> {
    let output = RenderOutput::stdout(args.full);
    for item in &result.items {
        match item {
            item if args.json => put_json(item)?,
            SearchedItem::Message(message) => put(&render::draw_message(&output, message))?,
            SearchedItem::Refusal(refusal) => put(&render::refused(&output, refusal))?,
        }
    }
    if !args.json && !result.items.is_empty() {
        let shown = u64::try_from(result.items.len()).unwrap_or(u64::MAX);
        let total = total_of(shown, args.limit, result.total);
        put(&format!("{} of {}\n", digits_in_groups(shown), grouped(total)))?;
    }
    Ok(())
}

/// Returns the number of results as the search has counted it, or as the `shown` results prove it:
/// the search stops counting at a number that a large `limit` exceeds.
fn total_of(shown: u64, limit: usize, counted: HitCount) -> HitCount {
    match counted {
        HitCount::MoreThan(_) if usize::try_from(shown).is_ok_and(|shown| shown < limit) => {
            HitCount::Exact(shown)
        }
        HitCount::MoreThan(number) if shown > number => HitCount::AtLeast(shown),
        counted => counted,
    }
}

/// Formats a number of results, such as `7,112` or `more than 10,000`.
fn grouped(total: HitCount) -> String {
    let text = digits_in_groups(total.number());
    match total {
        HitCount::Exact(_) => text,
        HitCount::MoreThan(_) => format!("more than {text}"),
        HitCount::AtLeast(_) => format!("{text} or more"),
    }
}

/// Formats a number with commas between groups of three digits.
fn digits_in_groups(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

//! The pages for pauses, the kill switch, and cancellations.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::super::layout::{grouped, inline, moment, table};
use super::super::present_facts::PauseOfAll;
use super::super::url_query::UrlQuery;
use super::super::{ViewState, pauses, thread};
use super::action_context::ActionContext;
use super::pending::PreparedAction;
use super::{OperateFailure, respond};
use crate::contract::Role;
use crate::ids::{ListenerName, ThreadId};
use crate::index::{IndexReader, IndexedPause, OpenWorkCounts, WorkFilter};
use crate::limits;
use crate::plural::{count, form};
use crate::service::ServiceRequest;
use crate::thread::{PauseTarget, PauseVerb};

const PATH: &str = "/operate/pause";

/// Returns the path of the page that pauses or resumes a target.
pub(super) fn pause_path(verb: PauseVerb, target: &str) -> String {
    UrlQuery::default().with("verb", Some(verb.as_str())).with("target", Some(target)).link(PATH)
}

pub(super) fn cancel_path(thread: &str) -> String {
    UrlQuery::default().with("thread", Some(thread)).link("/operate/cancel")
}

/// Facts from the indexes for the pages about pauses: the pauses in force, and the open work that
/// an action concerns.
#[derive(Default)]
struct PauseFacts {
    partitions: Vec<u32>,
    /// The pauses in force, each with its partition.
    in_force: Vec<(u32, IndexedPause)>,
    work: OpenWorkCounts,
    of_all: Option<PauseOfAll>,
    /// Whether this host lacks records, so that an action may concern more work than `work`.
    lacks_records: bool,
}

impl PauseFacts {
    /// Reads the pauses in force, and counts the open calls that `filter` selects. Returns `None`
    /// if an index cannot be read at present.
    async fn read(view: &ViewState, filter: WorkFilter) -> Option<Self> {
        let find = move |_, index: &mut IndexReader| {
            let work = index.open_work(&filter, limits::WEB_OPEN_CALLS_COUNTED)?;
            Ok((index.pauses()?, work))
        };
        let found = view.journals.query(find, |answers| {
            let mut facts = Self::default();
            let of_all: Vec<_> = answers.iter().map(|found| found.answer.0.clone()).collect();
            facts.of_all = PauseOfAll::find(&of_all);
            for found in answers {
                let (pauses, work) = found.answer;
                let pauses = pauses.into_iter().map(|pause| (found.partition, pause));
                facts.partitions.push(found.partition);
                facts.in_force.extend(pauses);
                facts.work.add(work);
            }
            facts
        });
        let mut facts = found.await.ok()?;
        facts.lacks_records = !view.present.copies().is_complete();
        view.present.set_pause(facts.of_all.clone());
        Some(facts)
    }

    /// Whether certainly no listener is at work on a call that the action concerns.
    fn has_no_work(&self) -> bool {
        !self.lacks_records && self.work.at_work == 0
    }

    /// Draws the counts of the open work. Counts of only a part of the records would be too low, and
    /// are not drawn.
    fn work(&self) -> Markup {
        if self.lacks_records {
            return html! {
                p.work { "How much work is open is not known: this host lacks records." }
            };
        }
        work(&self.work)
    }

    /// Describes the effect of a pause with cancellation, as the function [`kill_effect`] does. If
    /// this host lacks records, names no numbers.
    fn kill_effect(&self, auxiliary: &str) -> String {
        if self.lacks_records {
            return format!("All calls at which a listener is at work {auxiliary} cancelled.");
        }
        kill_effect(&self.work, auxiliary)
    }

    fn pause_of(&self, target: &PauseTarget) -> Option<&IndexedPause> {
        self.in_force.iter().map(|(_, pause)| pause).find(|pause| pause.target == *target)
    }

    /// Returns the partitions in which no pause of `target` is in force. A pause of everything, or
    /// of a listener, concerns all partitions.
    fn without_pause(&self, target: &PauseTarget) -> Vec<u32> {
        let has_pause = |partition: u32| {
            self.in_force.iter().any(|(of, pause)| *of == partition && pause.target == *target)
        };
        self.partitions.iter().copied().filter(|partition| !has_pause(*partition)).collect()
    }

    /// Whether a pause is in force in some of the partitions that it concerns, but not in all of
    /// them. A pause of a thread concerns only one partition.
    fn is_partial(&self, pause: &IndexedPause) -> bool {
        !matches!(pause.target, PauseTarget::Thread(_))
            && !self.without_pause(&pause.target).is_empty()
    }
}

/// Shows the targets that can be paused, and the pauses in force.
pub(super) async fn overview(context: ActionContext) -> Response {
    let view = &context.view;
    let contracts = context.config.contracts.iter();
    let listeners = contracts.filter(|contract| contract.role != Role::Client);
    let listeners: Vec<_> = listeners.map(|contract| contract.name.clone()).collect();
    let problem = context.client().await.err().map(|failure| failure.text);
    let facts = PauseFacts::read(view, WorkFilter::All).await;
    let overview = PauseOverview { listeners, facts, must_sign: context.must_sign(), problem };
    view.page("Operate", "/operate", &overview.content())
}

/// The page with everything that can be paused or resumed.
struct PauseOverview {
    listeners: Vec<ListenerName>,
    /// The pauses in force and the open work; `None` if an index cannot be read at present.
    facts: Option<PauseFacts>,
    must_sign: bool,
    /// Reason why no action is possible at present; `None` if actions are possible.
    problem: Option<String>,
}

impl PauseOverview {
    fn content(&self) -> Markup {
        let in_force = self.facts.iter().flat_map(|facts| &facts.in_force);
        let in_force = pauses::distinct(in_force.map(|(_, pause)| pause));
        let all = in_force.iter().find(|pause| pause.target == PauseTarget::All);
        let is_all_paused = all.is_some_and(|pause| !self.is_partial(pause));
        html! {
            h1 { "Operate" }
            @if let Some(problem) = &self.problem { p.problem role="alert" { (problem) } }
            @if self.must_sign {
                p.hint {
                    "This organism accepts only signed decisions: "
                    a href="/operate/key" { "the key of this browser" } "."
                }
            }
            h2 { "Paused" }
            @if self.facts.is_none() {
                p.problem { "The pauses in force are not known at present: load this page again." }
            } @else if in_force.is_empty() {
                p.empty { "Nothing is paused." }
            } @else {
                (self.list(&in_force))
            }
            h2 { "Everything" }
            @if let Some(facts) = &self.facts { (facts.work()) }
            p.buttons {
                @if !is_all_paused {
                    a.button data-entry href=(pause_path(PauseVerb::Pause, "all")) { "Pause all" }
                }
                a.button.danger data-entry href=(pause_path(PauseVerb::PauseAndCancel, "all")) {
                    "Pause and cancel all"
                }
            }
            p.hint {
                "A pause lets work in flight end. With a cancellation, this is the kill switch. "
                @if let Some(facts) = &self.facts { (facts.kill_effect("would be")) " " }
                "To pause or cancel one thread, use the buttons on its page."
            }
            h2 { "One agent or listener" }
            (self.listener_table(&in_force))
        }
    }

    fn is_partial(&self, pause: &IndexedPause) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.is_partial(pause))
    }

    fn list(&self, in_force: &[&IndexedPause]) -> Markup {
        html! {
            ul.pauses {
                @for pause in in_force {
                    @let target = pause.target.name();
                    li {
                        (line(pause)) (self.gap(pause)) " "
                        a.button data-entry href=(pause_path(PauseVerb::Resume, target)) { "Resume" }
                    }
                }
            }
        }
    }

    /// Draws a list of the partitions in which a pause is not in force, although it concerns them.
    fn gap(&self, pause: &IndexedPause) -> Markup {
        html! {
            @if let Some(facts) = self.facts.as_ref().filter(|facts| facts.is_partial(pause)) {
                " " span.problem { (gap_text(&facts.without_pause(&pause.target))) }
            }
        }
    }

    fn listener_table(&self, in_force: &[&IndexedPause]) -> Markup {
        let all = in_force.iter().find(|pause| pause.target == PauseTarget::All);
        let row = |name: &ListenerName| {
            let target = PauseTarget::Listener(name.clone());
            let pause = in_force.iter().find(|pause| pause.target == target);
            let path = |verb| pause_path(verb, name.as_str());
            vec![
                inline(name.as_str()),
                html! {
                    @if let Some(all) = all {
                        span.paused { "paused (all)" } (self.gap(all))
                        @if pause.is_some() { ", and by itself: " }
                    }
                    @if let Some(pause) = pause {
                        "paused since " (moment(pause.since)) (self.gap(pause))
                    }
                },
                html! {
                    span.buttons {
                        @if pause.is_some() {
                            a.button href=(path(PauseVerb::Resume)) { "Resume" }
                        }
                        @if pause.is_none_or(|pause| self.is_partial(pause)) {
                            a.button href=(path(PauseVerb::Pause)) { "Pause" }
                        }
                        a.button.danger href=(path(PauseVerb::PauseAndCancel)) { "Pause and cancel" }
                    }
                },
            ]
        };
        let rows: Vec<_> = self.listeners.iter().map(row).collect();
        table("Agents and listeners", &["Name", "State", "Actions"], &rows)
    }
}

/// Draws a pause: its target, its beginning, its note, and the person who requested it.
fn line(pause: &IndexedPause) -> Markup {
    html! {
        b { (inline(&pause.target.to_string())) } " since " (moment(pause.since)) " by "
        (pauses::person(pause).draw())
        @if !pause.note.is_empty() { ": " (inline(&pause.note)) }
    }
}

/// Writes a sentence that lists `partitions`, in which a pause is not in force.
fn gap_text(partitions: &[u32]) -> String {
    let names: Vec<_> = partitions.iter().map(u32::to_string).collect();
    let noun = form(names.len(), "partition", "partitions");
    format!("Not paused: {noun} {}.", names.join(", "))
}

/// Draws the open work that an action concerns.
fn work(work: &OpenWorkCounts) -> Markup {
    let states = [
        (work.at_work, "in flight"),
        (work.queued, "queued"),
        (work.waiting, "waiting for calls of their own"),
        (work.held, "waiting for a person"),
    ];
    html! {
        p.work {
            @if work.calls() == 0 { "At present, no call is open there." } @else {
                "At present" @if work.is_more { ", at least" } ": "
                (count(work.calls(), "open call")) " in "
                (count(work.roots.len() as u64, "thread")) ". Of these calls: "
                @for (at, (calls, state)) in
                    states.iter().filter(|(calls, _)| *calls > 0).enumerate() {
                    @if at > 0 { "; " }
                    (grouped(*calls)) " " (state)
                }
                "."
            }
        }
    }
}

/// Describes the effect of a pause with cancellation. States how many open calls are cancelled, and
/// how many stay open. A call is cancelled if a listener is at work on it. `auxiliary` is the verb
/// before "cancelled", such as "will be".
fn kill_effect(work: &OpenWorkCounts, auxiliary: &str) -> String {
    let stay = [
        (work.queued, "queued", "queued"),
        (work.waiting, "waits for calls of its own", "wait for calls of their own"),
        (work.held, "waits for a person", "wait for a person"),
    ];
    let stay: Vec<_> = stay.into_iter().filter(|(calls, ..)| *calls > 0).collect();
    let all: u64 = stay.iter().map(|(calls, ..)| calls).sum();
    let verb = |(calls, one, more): &(u64, &'static str, &'static str)| match (*calls, *one) {
        (1, "queued") => "is queued",
        (_, "queued") => "are queued",
        (1, one) => one,
        _ => more,
    };
    let at_least = if work.is_more { "At least " } else { "" };
    let cancelled = format!("{at_least}{} {auxiliary} cancelled", count(work.at_work, "call"));
    let stays = form(all, "stays", "stay");
    match &stay[..] {
        [] => format!("{cancelled}; no other call is open."),
        [only] => format!("{cancelled}; {all} {stays}, which {}.", verb(only)),
        several => {
            let kinds = several.iter().map(|kind| format!("{} {}", kind.0, verb(kind)));
            format!("{cancelled}; {all} {stays}: {}.", kinds.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Shows a page on which a person confirms a pause or a resume.
pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, pause(context, &query).await)
}

async fn pause(context: ActionContext, query: &UrlQuery) -> Result<Response, OperateFailure> {
    let verb = verb_of(query.get("verb").unwrap_or_default())?;
    let target = target_of(&context, query.get("target").unwrap_or_default())?;
    if let PauseTarget::Thread(thread) = &target {
        context.require_thread(thread).await?;
    }
    let client = context.client().await?;
    let requests = client.pause_requests(verb, &target, &context.origin());

    let back = match &target {
        PauseTarget::Thread(id) => thread::path(id.as_str()),
        _ => "/operate".to_owned(),
    };
    let title = match (verb, &target) {
        (PauseVerb::Pause, PauseTarget::All) => "Pause everything?",
        (PauseVerb::Pause, _) => "Pause this?",
        (PauseVerb::PauseAndCancel, PauseTarget::All) => "Pause everything and cancel its work?",
        (PauseVerb::PauseAndCancel, _) => "Pause this and cancel its work?",
        (PauseVerb::Resume, PauseTarget::All) => "Resume everything?",
        (PauseVerb::Resume, _) => "Resume this?",
    };
    let facts = PauseFacts::read(&context.view, filter_of(&target)).await;
    let details = details(verb, &target, requests.len(), facts.as_ref());
    let requests = requests.into_iter().map(ServiceRequest::Pause);
    context.confirm(PreparedAction::new(title, back, requests), &details).await
}

fn filter_of(target: &PauseTarget) -> WorkFilter {
    match target {
        PauseTarget::All => WorkFilter::All,
        PauseTarget::Listener(listener) => WorkFilter::Listener(listener.to_string()),
        PauseTarget::Thread(thread) => WorkFilter::Thread(thread.clone()),
    }
}

fn details(
    verb: PauseVerb,
    target: &PauseTarget,
    partitions: usize,
    facts: Option<&PauseFacts>,
) -> Markup {
    let what = match target {
        PauseTarget::All => "all calls of this organism".to_owned(),
        PauseTarget::Listener(listener) => format!("all calls to {listener}"),
        PauseTarget::Thread(thread) => format!("the thread {thread} and everything beneath it"),
    };
    let effect = match verb {
        PauseVerb::Pause => {
            "Work in flight ends by itself. Nothing more is handed over until it is resumed. Meanwhile \
             no time counts against calls that wait, and timers that fall due fire at the resume. \
             Submissions are accepted and wait."
        }
        PauseVerb::PauseAndCancel if facts.is_some_and(|facts| facts.has_no_work()) => {
            "Nothing more will be handed over until it is resumed."
        }
        PauseVerb::PauseAndCancel => {
            "What a listener has not finished will be lost, its caller will get a fault, and a resume \
             will not bring it back. Nothing more will be handed over until it is resumed."
        }
        PauseVerb::Resume => {
            "What is queued is handed over; calls that wait for a person keep waiting. Timers that \
             fell due during the pause fire in order."
        }
    };
    html! {
        p {
            "This concerns " b { (inline(&what)) }
            @if partitions > 1 { ", in " (partitions) " partitions, each of which answers for itself" }
            "."
        }
        @match facts {
            Some(facts) => {
                (present_pause(verb, facts.pause_of(target), facts))
                (facts.work())
                @if verb == PauseVerb::PauseAndCancel {
                    p.problem { (facts.kill_effect("will be")) }
                }
            },
            None => p.hint { "How much work this concerns is not known at present." },
        }
        p.(if verb == PauseVerb::PauseAndCancel { "problem" } else { "effect" }) { (effect) }
    }
}

/// Draws the present pause of the target, and states whether the action changes this pause.
fn present_pause(verb: PauseVerb, pause: Option<&IndexedPause>, facts: &PauseFacts) -> Markup {
    html! {
        @match (verb, pause) {
            (PauseVerb::Resume, None) => p.note {
                "The index knows of no pause of this name, so that a resume changes nothing."
            },
            (_, None) => {},
            (PauseVerb::Pause, Some(pause)) if facts.is_partial(pause) => p.note {
                "Paused in part: " (line(pause)) ". " (gap_text(&facts.without_pause(&pause.target)))
            },
            (PauseVerb::Pause, Some(pause)) => p.note {
                "Paused already: " (line(pause)) ". A second pause changes nothing."
            },
            (_, Some(pause)) => p { "Paused: " (line(pause)) "." },
        }
    }
}

fn verb_of(text: &str) -> Result<PauseVerb, OperateFailure> {
    PauseVerb::parse(text)
        .ok_or_else(|| OperateFailure::unusable(format!("`{text}` is no action of this page")))
}

fn target_of(context: &ActionContext, text: &str) -> Result<PauseTarget, OperateFailure> {
    if text == "all" {
        return Ok(PauseTarget::All);
    }
    if let Ok(thread) = ThreadId::parse(text) {
        return Ok(PauseTarget::Thread(thread));
    }
    let mut contracts = context.config.contracts.iter();
    let listener =
        contracts.find(|known| known.role != Role::Client && known.name.as_str() == text);
    listener.map(|known| PauseTarget::Listener(known.name.clone())).ok_or_else(|| {
        OperateFailure::missing(format!("`{text}` is neither a thread nor an agent or listener"))
    })
}

/// Requests the confirmation of a cancellation.
pub(super) async fn cancel(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    respond(&view, cancellation(context, &query).await)
}

async fn cancellation(
    context: ActionContext,
    query: &UrlQuery,
) -> Result<Response, OperateFailure> {
    let text = query.get("thread").unwrap_or_default();
    let thread = ThreadId::parse(text);
    let thread =
        thread.map_err(|_| OperateFailure::unusable(format!("`{text}` is no id of a thread")))?;
    context.require_thread(&thread).await?;
    context.client().await?;

    let facts = PauseFacts::read(&context.view, WorkFilter::Thread(thread.clone())).await;
    let details = html! {
        p { "This concerns " b { (inline(thread.as_str())) } " and everything beneath it." }
        p.problem {
            @match facts.as_ref().filter(|facts| !facts.lacks_records).map(|facts| &facts.work) {
                Some(work) => {
                    @if work.is_more { "At least " }
                    (count(work.calls(), "open call")) " will be cancelled"
                }
                None => "All its open calls will be cancelled",
            }
            ", also those that wait for a person, and their callers will get that result. What a \
             listener has not finished will be lost."
        }
        @if let Some(facts) = &facts { (facts.work()) }
        p.hint {
            "The thread itself is not paused: a client may send it further requests. To stop these, \
             too, pause and cancel it."
        }
    };
    let back = thread::path(thread.as_str());
    let by = ListenerName::operator();
    let origin = Some(context.origin());
    let request = ServiceRequest::Cancel { thread, by, reason: String::new(), origin };
    let action = PreparedAction::new("Cancel the calls of this thread?", back, [request]);
    context.confirm(action, &details).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_the_kill_switch_is_one_sentence_with_its_numbers() {
        let work = |at_work, queued, waiting, held| OpenWorkCounts {
            at_work,
            queued,
            waiting,
            held,
            ..OpenWorkCounts::default()
        };
        let cases = [
            (work(0, 0, 0, 5), "0 calls will be cancelled; 5 stay, which wait for a person."),
            (work(1, 1, 0, 0), "1 call will be cancelled; 1 stays, which is queued."),
            (work(2, 0, 0, 0), "2 calls will be cancelled; no other call is open."),
            (
                work(1, 2, 1, 3),
                "1 call will be cancelled; 6 stay: 2 are queued, 1 waits for calls of its own, 3 \
                 wait for a person.",
            ),
        ];
        for (work, text) in cases {
            assert_eq!(kill_effect(&work, "will be"), text);
        }
    }
}

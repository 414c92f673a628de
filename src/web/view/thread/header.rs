//! The header of every page about one thread: the state of the thread, the reason for this state,
//! the totals, and the thread's calls that wait for a person.

use maud::{Markup, html};

use super::super::layout::{grouped, inline, length, moment};
use super::super::operate::{self, ThreadActions};
use super::super::{ViewState, fork_history, pauses, thread_status, waiting as waiting_page};
use super::path;
use crate::audit::{
    ForkOrigin, HeldCall, ThreadPage, ThreadTimeline, held_of, is_open_phase, thread_page,
};
use crate::clock::Time;
use crate::contract::run_definition_name;
use crate::envelope::SpendingTotals;
use crate::ids::ThreadId;
use crate::index::{self, IndexReader, IndexedPause, WaitingMessage};
use crate::limits;
use crate::thread::PauseTarget;

/// The state and the totals of a thread, its calls that wait for people, and the pauses that apply
/// to the thread.
pub(in super::super) struct ThreadHeader {
    /// The timeline of the thread, with an empty list of events.
    timeline: ThreadTimeline,
    fork: Option<ForkOrigin>,
    /// Name and details of the fault that makes the thread count as failed. The fault belongs to
    /// the last failed call that a client or another thread opened in this thread. `None` if the
    /// thread has not failed, or if the page shows an earlier state.
    failure: Option<String>,
    /// The first calls that wait for a person now, in the thread or in a thread beneath it, at most
    /// [`limits::WEB_NEEDS_YOU_MAX`].
    waiting: Vec<WaitingMessage>,
    /// The calls in `waiting`, with the data for the decisions about them. Empty if the earliest of
    /// these calls is more than [`limits::WEB_HELD_RECORDS`] records before the journal's end.
    held: Vec<HeldCall>,
    /// Pauses in force that stop the hand-over of the thread's calls.
    pauses: Vec<IndexedPause>,
    /// The properties that decide which actions a person can take on the thread now. `None` if the
    /// page shows an earlier state of the thread.
    actions: Option<ThreadActions>,
    /// Time of the pump's last start. `None` if the page shows an earlier state. Another pump may
    /// have another record: the journal may have been deleted, restored or redacted between them.
    last_start: Option<Time>,
    /// Whether the thread contains a workflow run.
    pub has_run: bool,
}

impl ThreadHeader {
    /// Returns the header of a thread; `None` if there is no such thread.
    pub fn find(index: &IndexReader, thread: &ThreadId) -> Result<Option<Self>, index::Error> {
        // The page with one message has all totals of the thread.
        let page = thread_page(index, thread, Some(0), 1)?;
        page.map(|page| Self::of(index, &page)).transpose()
    }

    /// Returns the header of a thread as it is now.
    pub fn of(index: &IndexReader, page: &ThreadPage) -> Result<Self, index::Error> {
        let header = Self::of_past(index, page)?;
        let timeline = &header.timeline;
        let thread = &timeline.thread;

        let waiting = index.waiting_beneath(thread, limits::WEB_NEEDS_YOU_MAX)?;
        let first = waiting.iter().map(|call| call.position).min();
        let last = index.journal().last().unwrap_or_default();
        let is_near =
            first.is_some_and(|first| last.0 - first.0.min(last.0) <= limits::WEB_HELD_RECORDS);
        let held = if is_near { held_of(index, &waiting)? } else { Vec::new() };

        let mut pauses = index.pauses()?;
        pauses.retain(|pause| pauses::holds(pause, thread));
        let actions = ThreadActions {
            has_open_calls: index.has_open_calls(thread)?,
            may_continue: thread.parent().is_none() && thread.as_str() != ThreadId::ORGANISM,
            is_paused: pauses.iter().any(|pause| pauses::is_of(pause, thread)),
        };

        let failure = match timeline.status.as_str() {
            "failed" => index.last_failure(thread)?,
            _ => None,
        };
        let actions = Some(actions);
        let last_start = index.last_start()?;
        Ok(Self { waiting, held, pauses, actions, last_start, failure, ..header })
    }

    /// Returns the header of a thread in the state that `page` contains. This state may be an
    /// earlier one, so the header contains neither waiting calls nor pauses.
    pub fn of_past(index: &IndexReader, page: &ThreadPage) -> Result<Self, index::Error> {
        let has_run = index.has_payload(&page.timeline.thread, &run_definition_name())?;
        Ok(Self {
            timeline: ThreadTimeline { items: Vec::new(), ..page.timeline.clone() },
            fork: page.fork.clone(),
            failure: None,
            waiting: Vec::new(),
            held: Vec::new(),
            pauses: Vec::new(),
            actions: None,
            last_start: None,
            has_run,
        })
    }

    pub fn opened_by(&self) -> &str {
        self.timeline.opened_by.as_str()
    }

    /// Returns the number of waiting calls that are not in `waiting`; 0 if the page shows an
    /// earlier state.
    fn left_waiting(&self) -> u64 {
        let listed = self.waiting.len() as u64;
        if listed == 0 { 0 } else { self.timeline.waits.calls.saturating_sub(listed) }
    }

    pub fn draw(&self, view: &ViewState) -> Markup {
        let id = self.timeline.thread.as_str();
        let parent = self.timeline.thread.parent();
        let may_act = view.operate.is_some();
        html! {
            div.thread-head {
                h1 { code { (inline(id)) } }
                @if let Some(actions) = self.actions {
                    (operate::thread_bar(view, id, actions))
                    div #pauses {
                        // The frame of the page states the pause of everything.
                        @for pause in self.pauses.iter().filter(|pause| pause.target != PauseTarget::All) {
                            p.note role="status" { (inline(&pauses::describe(pause))) }
                        }
                    }
                }
                (waiting_page::needs_you(&self.waiting, &self.held, self.left_waiting(), may_act))
            }
            (self.facts())
            @if let Some(parent) = parent {
                p { "A subthread of " a href=(path(parent.as_str())) { (inline(parent.as_str())) } }
            }
        }
    }

    fn facts(&self) -> Markup {
        let timeline = &self.timeline;
        let spent = &timeline.spent;
        let is_open = is_open_phase(timeline.status.as_str()) && self.actions.is_some();
        let id = timeline.thread.as_str();
        html! {
            dl.facts {
                div {
                    dt { "Status" }
                    dd {
                        (thread_status::of_thread(timeline))
                        @if let Some(failure) = &self.failure { ": " (inline(failure)) }
                    }
                }
                div { dt { "Opened" } dd { (moment(timeline.opened)) } }
                div { dt { "By" } dd { (inline(self.opened_by())) } }
                @if is_open {
                    div { dt { "Open for" } dd { (length(Time::now().since(timeline.opened))) } }
                } @else {
                    div { dt { "Took" } dd { (length(timeline.updated.since(timeline.opened))) } }
                }
                // The page's script compares the number to find new messages, and the start to find
                // out whether the earlier entries of the page may have changed.
                div {
                    dt { "Messages" }
                    dd data-messages=(timeline.messages)
                        data-start=[self.last_start.map(|start| start.0)] {
                        (grouped(timeline.messages))
                    }
                }
                @if spent.tokens > 0 { div { dt { "Tokens" } dd { (grouped(spent.tokens)) } } }
                @if spent.tokens > 0 || !spent.money.is_zero() {
                    div { dt { "Cost" } dd { (cost(spent)) } }
                }
                div {
                    dt { "Config" }
                    dd { a href=(super::super::config::path(id)) { "at its beginning" } }
                }
                div {
                    dt { "Compare" }
                    dd { a href=(super::super::compare::path(id)) { "with another thread" } }
                }
                @if let Some(fork) = &self.fork {
                    div { dt { "Fork of" } dd { (fork_history::source_link(fork)) } }
                }
            }
        }
    }
}

/// Draws the cost of model calls. If the calls used tokens, but have no cost because the config has
/// no price for their models, draws `no price`. If the calls used no tokens, draws nothing.
pub(in super::super) fn cost(spent: &SpendingTotals) -> Markup {
    match (spent.money.is_zero(), spent.tokens) {
        (true, 0) => html! {},
        (true, _) => html! { "no price" },
        (false, _) => inline(&spent.money.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{CurrencyTotals, Money};

    #[test]
    fn tokens_without_a_cost_have_no_price() {
        let mut money = CurrencyTotals::default();
        let mut spent = |tokens, currency, amount| {
            money.add(Some(currency), Money(amount));
            cost(&SpendingTotals { tokens, money: money.clone() }).into_string()
        };
        assert_eq!(spent(0, "EUR", 0), "");
        assert_eq!(spent(948, "EUR", 0), "no price");
        assert_eq!(spent(948, "EUR", 22_000_000), "<bdi>0.022 EUR</bdi>");
        assert_eq!(spent(948, "USD", 40_000_000), "<bdi>0.022 EUR + 0.04 USD</bdi>");
    }
}

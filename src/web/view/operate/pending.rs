//! Actions that a page has shown and that wait for confirmation.
//!
//! Each action has a token of its own, which confirms this action once. A token belongs to the
//! browser to which the page was sent.

use std::sync::Mutex;
use std::time::Instant;

use super::super::access::{BrowserId, ViewToken};
use super::super::url_query::UrlQuery;
use crate::ids::Digest;
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::service::ServiceRequest;
use crate::service::signing::SignaturePlace;

/// A request for an action of a person. `place` contains the journal and the thread that the
/// person's signature must name, if decisions must be signed.
#[derive(Debug, Clone)]
pub(super) struct PreparedRequest {
    pub request: ServiceRequest,
    pub place: Option<SignaturePlace>,
}

/// An action that a page has shown to the person.
#[derive(Debug, Clone)]
pub(super) struct PreparedAction {
    /// Title of the action's page, such as `Approve this call?`.
    pub title: &'static str,
    /// Requests of the action: one for each partition or message that the action concerns.
    pub requests: Vec<PreparedRequest>,
    /// Path of the page that led to the action.
    pub back: String,
    /// Path of the HTML form in which the person entered the action, and the entered values; `None`
    /// for an action without a form. If the organism refuses the action, the form is shown again
    /// with these values.
    pub typed: Option<(&'static str, UrlQuery)>,
}

impl PreparedAction {
    pub fn new(
        title: &'static str,
        back: String,
        requests: impl IntoIterator<Item = ServiceRequest>,
    ) -> Self {
        let requests = requests.into_iter();
        let requests = requests.map(|request| PreparedRequest { request, place: None }).collect();
        Self { title, requests, back, typed: None }
    }

    /// Returns the first request of the action; `None` if the action has no requests.
    pub fn first_request(&self) -> Option<&ServiceRequest> {
        self.requests.first().map(|prepared| &prepared.request)
    }

    /// Adds to the action the path of its form and the values that the person entered there.
    pub fn of_form(self, path: &'static str, typed: UrlQuery) -> Self {
        Self { typed: Some((path, typed)), ..self }
    }
}

/// An action that waits for its confirmation.
#[derive(Debug, Clone)]
pub(super) struct PendingAction {
    token: Digest,
    browser: BrowserId,
    made: Instant,
    pub action: PreparedAction,
}

/// The unconfirmed actions of one view, oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingActions(Mutex<Vec<PendingAction>>);

impl PendingActions {
    /// Stores an action, and returns the token that confirms it. Drops an older action if there are
    /// too many, as [`Self::put_back`] does.
    pub fn add(&self, browser: &BrowserId, action: PreparedAction) -> ViewToken {
        let token = ViewToken::generate();
        let digest = Digest::of(token.reveal().as_bytes());
        let browser = browser.clone();
        let made = Instant::now();
        self.put_back(PendingAction { token: digest, browser, made, action });
        token
    }

    /// Stores an action that was taken, for example after a confirmation that did not reach the
    /// organism. The time until which it can be confirmed does not change. If there are too many
    /// actions, drops the oldest one of the browser that has the most. The stored action counts as
    /// one of its browser.
    pub fn put_back(&self, taken: PendingAction) {
        let mut pending = locked(&self.0);
        pending.retain(|known| known.made.elapsed() <= limits::WEB_CONFIRMATION_VALIDITY);
        while pending.len() >= limits::WEB_PENDING_ACTIONS_MAX {
            // The pages of one browser must not push out the action that a person reads in another.
            let actions = |of: &BrowserId| {
                let stored = pending.iter().filter(|known| known.browser == *of).count();
                stored + usize::from(*of == taken.browser)
            };
            // Of several maxima, `max_by_key` returns the last one.
            let from_newest = pending.iter().enumerate().rev();
            let dropped = from_newest.max_by_key(|(_, known)| actions(&known.browser));
            let at = dropped.map_or(0, |(at, _)| at);
            pending.remove(at);
        }
        pending.push(taken);
    }

    /// Removes and returns the action that a token of this browser confirms. Returns `None` if the
    /// browser has no such action, or if the action was already taken or has waited too long.
    pub fn take(&self, browser: &BrowserId, token: &str) -> Option<PendingAction> {
        let token = Digest::of(token.as_bytes());
        let mut pending = locked(&self.0);
        pending.retain(|known| known.made.elapsed() <= limits::WEB_CONFIRMATION_VALIDITY);
        if mutant("act-without-a-confirmation") {
            return pending.pop();
        }
        let is_it = |known: &PendingAction| known.token == token && known.browser == *browser;
        let at = pending.iter().position(is_it)?;
        if mutant("act-twice") {
            return pending.get(at).cloned();
        }
        Some(pending.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(title: &'static str) -> PreparedAction {
        PreparedAction::new(title, String::new(), [ServiceRequest::Status])
    }

    #[test]
    fn a_token_confirms_its_own_action_once_and_in_its_own_browser() {
        let pending = PendingActions::default();
        let [browser, other] = [BrowserId::random(), BrowserId::random()];
        let first = pending.add(&browser, action("first"));
        let second = pending.add(&browser, action("second"));
        let title =
            |token: &str, browser: &_| pending.take(browser, token).map(|found| found.action.title);

        assert_eq!(title("", &browser), None);
        assert_eq!(title(first.reveal(), &other), None);
        assert_eq!(title(first.reveal(), &browser), Some("first"));
        assert_eq!(title(first.reveal(), &browser), None);
        assert_eq!(title(second.reveal(), &browser), Some("second"));
    }

    #[test]
    fn an_action_that_is_put_back_can_be_confirmed_until_the_same_time() {
        let pending = PendingActions::default();
        let browser = BrowserId::random();
        let token = pending.add(&browser, action("first"));
        let taken = pending.take(&browser, token.reveal()).unwrap();
        let made = taken.made;
        pending.put_back(taken);
        let again = pending.take(&browser, token.reveal()).unwrap();
        assert_eq!(again.action.title, "first");
        assert_eq!(again.made, made);
    }

    #[test]
    fn many_pages_push_out_the_oldest_alone() {
        let pending = PendingActions::default();
        let browser = BrowserId::random();
        let add = |_| pending.add(&browser, action("one"));
        let tokens: Vec<_> = (0..=limits::WEB_PENDING_ACTIONS_MAX).map(add).collect();
        let mut taken = tokens.iter().map(|token| pending.take(&browser, token.reveal()).is_some());
        assert_eq!(taken.next(), Some(false));
        assert!(taken.all(|is_taken| is_taken));
    }

    #[test]
    fn many_pages_of_another_browser_push_out_their_own_oldest_action() {
        let pending = PendingActions::default();
        let [browser, other] = [BrowserId::random(), BrowserId::random()];
        let read = pending.add(&browser, action("read"));
        let add = |_| pending.add(&other, action("one"));
        let tokens: Vec<_> = (0..limits::WEB_PENDING_ACTIONS_MAX).map(add).collect();
        assert!(pending.take(&browser, read.reveal()).is_some());
        let mut taken = tokens.iter().map(|token| pending.take(&other, token.reveal()).is_some());
        assert_eq!(taken.next(), Some(false));
        assert!(taken.all(|is_taken| is_taken));

        // A browser without an action of its own gets a place, too.
        let full: Vec<_> = (0..limits::WEB_PENDING_ACTIONS_MAX).map(add).collect();
        let late = pending.add(&browser, action("late"));
        assert!(pending.take(&browser, late.reveal()).is_some());
        assert!(pending.take(&other, full[0].reveal()).is_none());

        // So does a second action of a browser that has fewer than the other.
        let own = [(), ()].map(|()| pending.add(&browser, action("own")));
        assert!(own.iter().all(|token| pending.take(&browser, token.reveal()).is_some()));
        let dropped = full[1..].iter().map(|token| pending.take(&other, token.reveal()).is_none());
        assert_eq!(dropped.filter(|is_dropped| *is_dropped).count(), 1);
    }
}

//! The context of an action: the person, the config, and the running organism.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::super::ViewState;
use super::super::access::BrowserId;
use super::super::waiting::{CallToDecide, writing_turn};
use super::{OperateAccess, OperateFailure, respond};
use crate::audit::{HeldCall, starting_request};
use crate::config::{self, Config, ConfigEnvironment};
use crate::ids::{ListenerName, MessageId, ThreadId};
use crate::index::IndexReader;
use crate::organism::operator;
use crate::service::handshake::Handshake;
use crate::service::{self, ServiceClient, ServiceTransport, SocketTransport};
use crate::thread::{DecisionOrigin, Hold, OperatorKeys};

/// The view, the config, the person and the browser of one action.
pub(super) struct ActionContext {
    pub view: Arc<ViewState>,
    pub config: Config,
    pub person: ListenerName,
    pub browser: BrowserId,
}

impl ActionContext {
    /// Creates the context of a request. Reads the config file again, because a reload may have
    /// changed the operators.
    pub async fn open(view: &Arc<ViewState>, headers: &HeaderMap) -> Result<Self, OperateFailure> {
        let forbidden =
            |text: String| OperateFailure::new(StatusCode::FORBIDDEN, "A read-only view", text);
        let access = view.operate.as_ref();
        let access = access.ok_or_else(|| forbidden("This view is read-only.".to_owned()))?;
        let browser = view.guard.browser_of(headers);
        let browser = browser.ok_or_else(|| forbidden("The session has ended.".to_owned()))?;

        // The frame of the page has the script that signs if these facts are known.
        access.config_facts().await;
        let path = access.config.clone();
        let load = move || config::load_without_keys(&path, &ConfigEnvironment::of_process()).ok();
        let loaded = tokio::task::spawn_blocking(load).await.ok().flatten();
        let config = loaded.ok_or_else(|| {
            let text = "The config cannot be loaded: `organism check` says why. Mend it, then load \
                        this page again; the commands at the terminal work meanwhile.";
            OperateFailure::new(StatusCode::SERVICE_UNAVAILABLE, "No config", text)
        })?;

        let person = access.person.clone();
        if let Some(text) = why_no_operator(access, &config.operators) {
            return Err(forbidden(text));
        }
        Ok(Self { view: Arc::clone(view), config, person, browser })
    }

    pub fn access(&self) -> Result<&OperateAccess, OperateFailure> {
        let text = "This view is read-only.";
        let failure = || OperateFailure::new(StatusCode::FORBIDDEN, "A read-only view", text);
        self.view.operate.as_ref().ok_or_else(failure)
    }

    /// Whether the organism accepts only signed decisions.
    pub fn must_sign(&self) -> bool {
        !self.config.operators.is_empty()
    }

    /// Returns the origin of an action, with the user who runs this process. The note is empty,
    /// because the person writes it only when confirming the action.
    pub fn origin(&self) -> DecisionOrigin {
        DecisionOrigin { who: operator::this_user(), note: String::new(), signature: None }
    }

    /// Returns a service client, which sends the person's actions to the running organism. Does not
    /// start an organism if none runs.
    pub async fn client(&self) -> Result<ServiceClient, OperateFailure> {
        let data = self.view.journals.data();
        let handshake = Handshake::of(&self.config);
        let socket = SocketTransport::new(&data, handshake);
        if self.config.partitions() > 1 {
            return Ok(ServiceClient::of_partitions(self.config.clone(), socket));
        }
        if socket.locate().await.map_err(|error| unreachable_organism(&error))? {
            return Ok(ServiceClient::new(&data, ServiceTransport::Socket(socket)));
        }
        let text = format!(
            "No organism runs on {}, so nothing can be decided or changed. Start it with `organism \
             run`, then load this page again; what waits goes on waiting.",
            data.display()
        );
        Err(OperateFailure::new(StatusCode::SERVICE_UNAVAILABLE, "No organism runs", text))
    }

    /// Fails if the journal certainly does not contain the thread. Does not fail in two cases:
    /// - The index cannot be read or lacks records, so only the organism can know whether the
    ///   thread exists.
    /// - There are several partitions, so the journal of the thread may be on another host.
    pub async fn require_thread(&self, thread: &ThreadId) -> Result<(), OperateFailure> {
        if self.config.partitions() > 1 || !self.view.present.copies().is_complete() {
            return Ok(());
        }
        let wanted = thread.clone();
        let find = move |index: &mut IndexReader| index.opened_at(&wanted);
        match self.view.journals.find(find).await {
            Ok(Err(is_behind)) if !is_behind => Err(OperateFailure::no_thread(thread)),
            _ => Ok(()),
        }
    }

    /// Returns the held call that `message` opened. If `hold` is given, the call must wait for this
    /// kind of decision. Queries the pumps of all partitions at once, and does not wait for all
    /// responses if one contains the call. Fails if no response contains such a call. The failure
    /// states whether some pump did not respond, and so may have the call.
    pub async fn held_call(
        &self,
        message: MessageId,
        hold: Option<Hold>,
    ) -> Result<HeldCall, OperateFailure> {
        let client = self.client().await?;
        let partitions = 0..self.config.partitions();
        let requests = partitions.map(|partition| client.held_call(partition, message));
        let mut responses = requests.collect::<FuturesUnordered<_>>();
        let mut failed = None;
        while let Some(response) = responses.next().await {
            match response {
                Ok(held) => {
                    let found = held.filter(|call| hold.is_none_or(|hold| call.hold == hold));
                    if let Some(call) = found {
                        return Ok(call);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }

        // A partition that did not respond may have the call.
        if let Some(error) = failed {
            return Err(unreachable_organism(&error));
        }
        let text = format!(
            "{message} waits for no decision any more: a decision was made, or its call ended. The \
             page Actions has the decision."
        );
        Err(OperateFailure::new(StatusCode::CONFLICT, "Nothing waits here", text))
    }
}

/// Opens the context of the request. If this fails, responds with the page of the failure.
impl FromRequestParts<Arc<ViewState>> for ActionContext {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        view: &Arc<ViewState>,
    ) -> Result<Self, Response> {
        let context = Self::open(view, &parts.headers).await;
        context.map_err(|failure| respond(view, Err(failure)))
    }
}

/// Combines a held call with the client's request that led to this call. If the request cannot be
/// read, adds the reason in place of the request.
pub(super) async fn with_request(view: &ViewState, call: HeldCall) -> CallToDecide {
    let message = call.message;
    let held = call.clone();
    let found = view.journals.query(
        move |_, index| {
            let request = starting_request(index, message, &mut HashMap::new())?;
            Ok((request, writing_turn(index, &held)?))
        },
        |answers| {
            let mut request = None;
            let mut turn = None;
            for found in answers {
                let (own_request, own_turn) = found.answer;
                request = request.or(own_request);
                turn = turn.or(own_turn);
            }
            (request, turn)
        },
    );
    match found.await {
        Ok((request, turn)) => CallToDecide { call, request: Ok(request), turn },
        Err(error) => {
            let request = Err(error.to_string());
            CallToDecide { call, request, turn: None }
        }
    }
}

/// Returns why the person of a view is no operator in the present config; `None` if the person is
/// an operator.
fn why_no_operator(access: &OperateAccess, operators: &OperatorKeys) -> Option<String> {
    let person = &access.person;
    if operators.iter().any(|(name, _)| name == person) {
        return None;
    }
    if !operators.is_empty() {
        let names = operators.names();
        return Some(format!(
            "`{person}` is no operator of the config any more; the operators are: {names}"
        ));
    }

    // If the config names no operators, the person is the user of the command, whose name the
    // operating system proves.
    let user = operator::this_user().login;
    if user.as_deref() == Some(person.as_str()) {
        return None;
    }
    let user = user.as_deref().unwrap_or("NAME");
    Some(format!(
        "This view was opened for the operator `{person}`, and the config has no section \
         [operators] any more. Without operators, the user of `organism serve` acts: end this view, \
         and start one with `organism serve --operate --as {user}`."
    ))
}

/// Creates the failure for a request that the organism did not carry out, or to which it did not
/// respond.
pub(super) fn unreachable_organism(error: &service::Error) -> OperateFailure {
    let text = match error {
        service::Error::NoThread { thread } => return OperateFailure::no_thread(thread),
        service::Error::Lost => {
            "The organism ended before it answered. Whether the action was carried out stands on \
             the page Actions, as soon as the organism runs again."
                .to_owned()
        }
        service::Error::Unanswered { partition, detail } => format!(
            "No pump of partition {partition} gave a result ({detail}). Whether the action was \
             carried out stands on the page Actions, as soon as a pump runs again."
        ),
        service::Error::Undecided { detail, .. } => format!(
            "The organism gave no result ({detail}). Whether the action was carried out \
             stands on the page Actions, as soon as the organism responds again."
        ),
        other => other.to_string(),
    };
    let is_nothing_done = is_nothing_done(error);
    let is_refused = is_nothing_done || matches!(error, service::Error::Failed { .. });
    let title = if is_refused { "Not carried out" } else { "No answer from the organism" };
    let failure = OperateFailure::new(StatusCode::SERVICE_UNAVAILABLE, title, text);
    OperateFailure { is_nothing_done, ..failure }
}

/// Whether a request with this error certainly changed nothing.
fn is_nothing_done(error: &service::Error) -> bool {
    matches!(
        error,
        service::Error::NotReady { .. }
            | service::Error::NoPump { .. }
            | service::Error::ConfigChanged { .. }
            | service::Error::OtherVersion { .. }
            | service::Error::OtherProject(_)
            | service::Error::OtherPartitions { .. }
            | service::Error::ForeignSocket { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_refuses_a_request_is_no_missing_answer() {
        let failure = |error| {
            let failure = unreachable_organism(&error);
            (failure.status.as_u16(), failure.title)
        };
        let thread = ThreadId::parse("sess-nope0000").unwrap();
        let cases = [
            (service::Error::NoThread { thread }, (404, "Nothing to do")),
            (service::Error::failed("full"), (503, "Not carried out")),
            (service::Error::Lost, (503, "No answer from the organism")),
        ];
        for (error, expected) in cases {
            assert_eq!(failure(error), expected);
        }
    }

    #[test]
    fn a_request_that_no_pump_accepted_can_be_sent_again_and_a_lost_one_cannot() {
        let no_pump = service::Error::NoPump { partition: 0, detail: "no lease".to_owned() };
        assert!(unreachable_organism(&no_pump).is_nothing_done);
        assert!(!unreachable_organism(&service::Error::Lost).is_nothing_done);
    }
}

//! The pages that fork a thread: a new thread continues a recorded thread from one of its messages
//! on.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::super::layout::{inline, shown};
use super::super::url_query::UrlQuery;
use super::super::{ViewState, message as message_page, thread};
use super::action_context::ActionContext;
use super::confirmation::refusal_text;
use super::held_call::message;
use super::pending::PreparedAction;
use super::{OperateFailure, read_form, respond};
use crate::audit::{
    ForkPoint, FoundMessage, answered_listeners, is_answered_from_record, message_report,
};
use crate::contract::Role;
use crate::envelope::{Money, Refusal};
use crate::ids::{ListenerName, MessageId, Position};
use crate::index::{IndexReader, MessageSelector};
use crate::journal::partitions_in;
use crate::journal::sqlite::JournalReader;
use crate::organism::unpriced_model;
use crate::service::{ForkRequest, ServiceRequest};
use crate::thread::Allotment;

pub(super) const PATH: &str = "/operate/fork";

/// Returns the path of the page that forks at a message.
pub(super) fn fork_path(message: MessageId) -> String {
    UrlQuery::default().with("message", Some(&message.to_string())).link(PATH)
}

/// A fork that a person prepares: its fork point, and the data for the HTML form in which the
/// person enters the details.
struct ForkDraft {
    context: ActionContext,
    /// The message that the person chose. The fork may begin at an earlier message.
    named: MessageId,
    point: ForkPoint,
    /// Local name of the payload in the message at the fork point.
    payload: String,
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    let draft = ForkDraft::open(context, &query).await;
    respond(&view, draft.map(|draft| draft.form(&query, None)))
}

/// Shows the fork that results from the entered values, and requests its confirmation. If the
/// values contain a mistake, shows the form again, with the mistake.
pub(super) async fn prepare(
    State(view): State<Arc<ViewState>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let page = async {
        let typed = read_form(body).await?;
        let page = prepared(&view, &headers, &typed).await;
        page.map_err(|failure| failure.with_typed(&typed))
    };
    respond(&view, page.await)
}

async fn prepared(
    view: &Arc<ViewState>,
    headers: &HeaderMap,
    typed: &UrlQuery,
) -> Result<Response, OperateFailure> {
    let context = ActionContext::open(view, headers).await?;
    let draft = ForkDraft::open(context, typed).await?;
    match draft.request(typed).await? {
        Ok(request) => draft.confirm(request, typed.clone()).await,
        Err(problem) => {
            let problem = html! { p.problem role="alert" { (shown(&problem)) } };
            let page = draft.form(typed, Some(&problem));
            Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
        }
    }
}

/// Shows the form with its entered values again, and states why the organism refused the fork.
pub(super) async fn again(
    context: ActionContext,
    typed: &UrlQuery,
    refusal: &Refusal,
) -> Result<Response, OperateFailure> {
    let draft = ForkDraft::open(context, typed).await;
    let draft = draft.map_err(|failure| failure.with_typed(typed))?;
    let page = draft.form(typed, Some(&refusal_text(refusal)));
    Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
}

impl ForkDraft {
    async fn open(context: ActionContext, query: &UrlQuery) -> Result<Self, OperateFailure> {
        let named = message(query)?;
        let point = fork_point(&context, named).await?;
        let payload = record_of(&context, point.source.message).await?.payload;
        Ok(Self { context, named, point, payload })
    }

    /// Returns the recorded payload with which the fork begins if the person enters no other
    /// payload. Returns `None` if the fork does not begin at a request, or if the payload was
    /// redacted.
    fn recorded(&self) -> Option<&str> {
        let request = self.point.request.as_ref()?;
        request.payload.as_ref().map(|payload| payload.as_str())
    }

    fn form(&self, typed: &UrlQuery, problem: Option<&Markup>) -> Response {
        let edited = typed.written("payload");
        let written = if edited.is_empty() { self.recorded().unwrap_or_default() } else { &edited };
        let content = html! {
            h1 { "Fork here" }
            (self.place(RequestState::Open))
            @if let Some(problem) = problem { (problem) }
            form.confirm method="post" action=(PATH) {
                input name="message" type="hidden" value=(self.named);
                @if self.point.request.is_some() {
                    label for="payload" { "The request with which the fork begins" }
                    textarea #payload name="payload" rows="10" spellcheck="false" { "\n" (written) }
                } @else if self.point.turn.is_some() {
                    p.hint {
                        "The agent takes this turn again. " code { "organism fork --edit" } " puts \
                        another message in its place."
                    }
                } @else {
                    p.hint {
                        "The fork begins after this result. Continue it with "
                        code { "organism send --thread" } "."
                    }
                }
                (self.options(typed))
                p.buttons {
                    button type="submit" { "Check the fork" }
                    a href=(message_page::path(self.named)) { "Do nothing" }
                }
            }
        };
        self.context.view.page("Fork", "/threads", &content)
    }

    /// Describes the recipient of the fork's request: the role of the recipient, and the effect of
    /// the request on the recipient.
    fn recipient_effect(&self, recipient: &ListenerName, state: RequestState) -> String {
        let mut contracts = self.context.config.contracts.iter();
        match contracts.find(|known| known.name == *recipient).map(|known| known.role) {
            None => format!("The config has no {recipient}, so the fork will be refused."),
            Some(Role::Agent) => {
                format!("{recipient} is an agent: it will run anew with this request.")
            }
            Some(Role::Workflow) => {
                format!("{recipient} is a workflow: it will run anew with this request.")
            }
            Some(Role::Client) => format!("{recipient} is a client, and gets no request."),
            Some(Role::Human) => format!("{recipient} is a person: {}", state.effect()),
            Some(Role::Listener) => format!("{recipient} is a listener: {}", state.effect()),
        }
    }

    fn place(&self, state: RequestState) -> Markup {
        let source = &self.point.source;
        html! {
            p {
                "A new thread takes over the history of "
                a href=(thread::path(source.thread.as_str())) { (inline(source.thread.as_str())) }
                " up to its message "
                a href=(message_page::path(source.message)) { (inline(&self.payload)) }
                ". The source stays as it is. A call \
                that the source has gets the recorded result; any other waits for an approval. \
                Agents and workflows run anew, with budgets of the fork's own."
            }
            @if let Some(request) = &self.point.request {
                p {
                    "The fork begins with the request of " (inline(request.sender.as_str()))
                    " to " b { (inline(request.recipient.as_str())) } ". "
                    (inline(&self.recipient_effect(&request.recipient, state)))
                }
            }
            @if source.message != self.named {
                p.note {
                    "No fork can begin at the message that you chose"
                    @if let Some(obstacle) = &self.point.obstacle {
                        ", which " (inline(&obstacle.to_string()))
                    }
                    ": this is the last place before it."
                }
            }
        }
    }

    fn options(&self, typed: &UrlQuery) -> Markup {
        let client = typed.get("client").unwrap_or(self.point.client.as_str());
        let live: Vec<&str> = typed.all("live").collect();
        let contracts = || self.context.config.contracts.iter();
        html! {
            label for="client" { "Client that gets the results" }
            select #client name="client" {
                @for known in contracts().filter(|known| known.role == Role::Client) {
                    @let name = known.name.as_str();
                    option value=(name) selected[name == client] { (shown(name)) }
                }
            }
            fieldset {
                legend { "Called for real, without an approval" }
                p.hint {
                    "A ticked listener gets the calls that the source does not have, and does real \
                     work. Such a call to any other listener waits for an approval."
                }
                @for (at, name) in answered_listeners(&self.context.config.contracts).enumerate() {
                    @let id = format!("live-{at}");
                    div.check {
                        input id=(id) name="live" type="checkbox" value=(name)
                            checked[live.contains(&name.as_str())];
                        label for=(id) { (shown(name.as_str())) }
                    }
                }
            }
            label for="tokens" { "Maximum tokens (may be left out)" }
            input #tokens name="tokens" inputmode="numeric" autocomplete="off"
                value=(typed.get("tokens").unwrap_or_default());
            label for="money" {
                "Maximum money"
                @if let Some(currency) = self.currency() { " in " (inline(currency)) }
                " (may be left out)"
            }
            input #money name="money" inputmode="decimal" autocomplete="off"
                value=(typed.get("money").unwrap_or_default());
        }
    }

    /// Builds the request for the fork from the entered values. If the values contain a mistake,
    /// returns a description of the mistake.
    async fn request(
        &self,
        typed: &UrlQuery,
    ) -> Result<Result<ForkRequest, String>, OperateFailure> {
        let client = self.context.client().await?;
        let source = &self.point.source;
        let read = || {
            Ok(ForkRequest {
                client: self.client(typed)?,
                payload: self.payload(typed)?,
                live: self.live(typed)?,
                allotment: self.allotment(typed)?,
                origin: Some(self.context.origin()),
                ..ForkRequest::at(&self.point, client.fork_id(&source.thread))
            })
        };
        Ok(read())
    }

    /// Returns the currency of the prices in the config; `None` if the config has no prices. All
    /// prices of a config have the same currency.
    fn currency(&self) -> Option<&str> {
        let mut models = self.context.config.models.iter();
        models.find_map(|model| Some(model.price.as_ref()?.currency.as_str()))
    }

    fn client(&self, typed: &UrlQuery) -> Result<ListenerName, String> {
        let Some(text) = typed.get("client") else { return Ok(self.point.client.clone()) };
        let mut contracts = self.context.config.contracts.iter();
        let found =
            contracts.find(|known| known.role == Role::Client && known.name.as_str() == text);
        found.map(|known| known.name.clone()).ok_or_else(|| format!("`{text}` is no client"))
    }

    fn payload(&self, typed: &UrlQuery) -> Result<Option<String>, String> {
        if self.point.request.is_none() {
            return Ok(None);
        }
        let written = typed.written("payload");
        let recorded = self.recorded();
        let is_unchanged = recorded.is_some_and(|recorded| !is_edited(recorded, &written));
        let is_recorded = is_unchanged || written.trim().is_empty();
        let payload = if is_recorded { recorded } else { Some(&*written) };
        let payload = payload.ok_or_else(|| {
            "the recorded payload is redacted; write the one with which the fork begins".to_owned()
        })?;
        Ok(Some(payload.to_owned()))
    }

    fn live(&self, typed: &UrlQuery) -> Result<Vec<ListenerName>, String> {
        let named = typed.all("live").map(|text| {
            let mut known = answered_listeners(&self.context.config.contracts);
            let found = known.find(|name| name.as_str() == text);
            found.cloned().ok_or_else(|| format!("`{text}` is no listener of this config"))
        });
        named.collect()
    }

    async fn confirm(
        self,
        request: ForkRequest,
        typed: UrlQuery,
    ) -> Result<Response, OperateFailure> {
        let live: Vec<_> = request.live.iter().map(ListenerName::as_str).collect();
        let is_edited = request.payload.as_deref() != self.recorded();
        let recipient = self.point.request.as_ref().map(|request| &request.recipient);
        let is_live = recipient.is_some_and(|recipient| request.live.contains(recipient));
        let state = match (is_edited, is_live) {
            (false, _) => RequestState::Recorded,
            (true, true) => RequestState::ChangedAndLive,
            (true, false) => RequestState::Changed,
        };
        let currency = self.currency();
        let details = html! {
            (self.place(state))
            dl.facts.long {
                div { dt { "Results go to" } dd { (inline(request.client.as_str())) } }
                div {
                    dt { "Called for real, without an approval" }
                    dd {
                        @if live.is_empty() { "none: every call that the source does not have waits" }
                        @else { (inline(&live.join(", "))) }
                    }
                }
                div {
                    dt { "Maximum tokens" }
                    dd {
                        @match request.allotment.tokens {
                            Some(tokens) => (tokens),
                            None => "none, beside the budgets of the config",
                        }
                    }
                }
                div {
                    dt { "Maximum money" }
                    dd {
                        @match request.allotment.money {
                            Some(money) => { (money) " " (inline(currency.unwrap_or_default())) }
                            None => "none, beside the budgets of the config",
                        }
                    }
                }
            }
            @if let Some(payload) = &request.payload {
                @if is_edited {
                    h2 { "The request of the source" }
                    @match self.recorded() {
                        Some(recorded) => pre.body.written { (shown(recorded)) },
                        None => p.empty { "The payload was redacted." },
                    }
                    h2 { "It begins with this, which is changed" }
                } @else {
                    h2 { "It begins with this, as in the source" }
                }
                pre.body.written { (shown(payload)) }
            }
        };
        let back = message_page::path(self.named);
        let request = ServiceRequest::Fork(Box::new(request));
        let action = PreparedAction::new("Fork this thread?", back, [request]).of_form(PATH, typed);
        self.context.confirm(action, &details).await
    }

    /// Returns the limits of tokens and money that the person entered for the fork. Refuses a limit
    /// of money if an agent may call a model that is reached over the network and has no price.
    fn allotment(&self, typed: &UrlQuery) -> Result<Allotment, String> {
        let allotment = amounts(typed)?;
        let config = &self.context.config;
        let models = config.agents.iter().map(|agent| agent.model.as_str());
        match allotment.money.and_then(|_| unpriced_model(models, &config.models)) {
            Some(model) => Err(format!(
                "an amount of money cannot be kept, because the model `{model}` has no price; set \
                 tokens instead"
            )),
            None => Ok(allotment),
        }
    }
}

/// A person's choice about the request at the beginning of a fork.
#[derive(Debug, Clone, Copy)]
enum RequestState {
    /// The person has not chosen yet.
    Open,
    /// The fork begins with the unchanged request of the source thread.
    Recorded,
    /// The person has changed the request, and has not permitted the recipient to get the changed
    /// request without an approval. The call therefore waits for an approval.
    Changed,
    ChangedAndLive,
}

impl RequestState {
    /// Describes the effect of this choice on a recipient that is a person or a listener.
    const fn effect(self) -> &'static str {
        match self {
            Self::Open => {
                "it will answer the unchanged request from the record; a changed request will wait for \
                 an approval, unless it is ticked below to be called for real."
            }
            Self::Recorded => {
                "the request is unchanged, so the source's result will be its result."
            }
            Self::Changed => "this changed request will wait for an approval.",
            Self::ChangedAndLive => {
                "it is called for real, so it will get this changed request without an approval."
            }
        }
    }
}

/// Whether a person has changed a recorded payload in a form field. `written` is the content of the
/// field. Ignores differences in line ends, because the browser replaces each line end in the field
/// with a line feed.
fn is_edited(recorded: &str, written: &str) -> bool {
    recorded.replace("\r\n", "\n").replace('\r', "\n") != written
}

/// Reads the amounts from the form, without checking them against the config.
fn amounts(typed: &UrlQuery) -> Result<Allotment, String> {
    let tokens = typed.get("tokens").map(|text| {
        text.parse().map_err(|_| format!("`{text}` is no number of tokens, such as 20000"))
    });
    let money = typed.get("money").map(|text| {
        let amount: Option<f64> = text.parse().ok();
        let amount = amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
        amount.map(Money::of_units).ok_or_else(|| format!("`{text}` is no amount, such as 0.50"))
    });
    Ok(Allotment { tokens: tokens.transpose()?, money: money.transpose()?, until: None })
}

/// Returns the fork point at `message` or, if no fork can begin there, the last fork point before
/// `message`. Fails if the thread has no such fork point.
async fn fork_point(
    context: &ActionContext,
    message: MessageId,
) -> Result<ForkPoint, OperateFailure> {
    let LocatedRecord { partition, position, .. } = record_of(context, message).await?;
    let data = context.view.journals.data();
    let contracts = context.config.contracts.clone();
    let find = move || {
        let mut journals = partitions_in(&data).into_iter();
        let journal = journals.find(|(number, _)| number.unwrap_or_default() == partition);
        let reader = JournalReader::open(&journal?.1).ok()?;
        let is_answered = |name: &ListenerName| is_answered_from_record(&contracts, name);
        ForkPoint::find(&reader, position, message, is_answered).ok().flatten()
    };
    let found = tokio::task::spawn_blocking(find).await.ok().flatten();
    found.ok_or_else(|| {
        let text = format!(
            "No fork can begin at {message}: its thread has no request of a client up to there."
        );
        OperateFailure::missing(text)
    })
}

/// The record of a message, with the local name of the message's payload.
struct LocatedRecord {
    partition: u32,
    position: Position,
    payload: String,
}

/// Finds the record that contains a message.
async fn record_of(
    context: &ActionContext,
    message: MessageId,
) -> Result<LocatedRecord, OperateFailure> {
    let unknown = |is_behind| OperateFailure::no_message(&context.view, message, is_behind);
    let selector = MessageSelector::parse(&message.to_string()).ok_or_else(|| unknown(false))?;
    let find = move |index: &mut IndexReader| {
        Ok(match message_report(index, &selector, 0)? {
            FoundMessage::One(report) => Some(report),
            _ => None,
        })
    };
    let found = context.view.journals.find(find);
    let failed = |error: crate::index::Error| {
        OperateFailure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "No answer from the record",
            error.to_string(),
        )
    };
    let (partition, report) = found.await.map_err(failed)?.map_err(unknown)?;
    let payload = report.message.name.local.to_string();
    Ok(LocatedRecord { partition, position: report.record.position, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_with_carriage_returns_is_unchanged_unless_a_person_changes_it() {
        let recorded = "<any>a\r\nb\rc\n\rd</any>";
        assert!(!is_edited(recorded, "<any>a\nb\nc\n\nd</any>"));
        assert!(is_edited(recorded, "<any>a\nb\nc\nd</any>"));
        assert!(!is_edited("<any/>", "<any/>"));
    }
}

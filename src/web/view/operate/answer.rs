//! The pages with which a person answers a question, in a form made from the schema of the reply.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::super::layout::{inline, shown, table};
use super::super::url_query::UrlQuery;
use super::super::{ViewState, waiting};
use super::action_context::{ActionContext, with_request};
use super::confirmation::refusal_text;
use super::held_call::{decision, message, require_unredacted};
use super::pending::PreparedAction;
use super::{OperateFailure, answer_fields, read_form, respond};
use crate::audit::HeldCall;
use crate::config::Config;
use crate::envelope::Refusal;
use crate::ids::{MessageId, PayloadName};
use crate::service::SubmittedAnswer;
use crate::thread::{Decision, Hold};

pub(super) const PATH: &str = "/operate/answer";

/// Name of the form parameter with which a person goes from the page with the finished answer back
/// to the form, to change the answer.
pub(super) const CHANGE: &str = "change";

/// Returns the path of the form for an answer.
pub(in super::super) fn answer_path(message: MessageId) -> String {
    UrlQuery::default().with("message", Some(&message.to_string())).link(PATH)
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    context: ActionContext,
    query: UrlQuery,
) -> Response {
    let page = async {
        let call = question(&context, &query).await?;
        form_page(&context, &call, &query, None).await
    };
    respond(&view, page.await)
}

/// Shows the answer that results from the entered values, and requests its confirmation. Shows the
/// form again if the values contain a mistake, or if the person wants to change the values.
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
    let call = question(&context, typed).await?;
    if typed.get(CHANGE).is_some() {
        return form_page(&context, &call, typed, None).await;
    }
    match payload(&context.config, &call, typed) {
        Ok(payload) => confirm(context, &call, typed.clone(), payload).await,
        Err(problem) => {
            let page = form_page(&context, &call, typed, Some(&problem)).await?;
            Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
        }
    }
}

/// Shows the form again with the entered answer, and states why the organism refused the answer. If
/// the form cannot be shown, the failure has the entered answer.
pub(super) async fn again(
    context: ActionContext,
    typed: &UrlQuery,
    refusal: &Refusal,
) -> Result<Response, OperateFailure> {
    let page = async {
        let call = question(&context, typed).await?;
        form_page(&context, &call, typed, Some(&refusal_text(refusal))).await
    };
    let page = page.await.map_err(|failure| failure.with_typed(typed))?;
    Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response())
}

/// Finds the held question that the query of a URL names. Fails if the question was redacted.
async fn question(context: &ActionContext, query: &UrlQuery) -> Result<HeldCall, OperateFailure> {
    let call = context.held_call(message(query)?, Some(Hold::Answer)).await?;
    require_unredacted(&call)?;
    Ok(call)
}

async fn confirm(
    context: ActionContext,
    call: &HeldCall,
    typed: UrlQuery,
    payload: String,
) -> Result<Response, OperateFailure> {
    let question = with_request(&context.view, call.clone()).await;
    let details = html! {
        h2 { "Your answer" }
        (entered_fields(&context.config, call, &typed))
        h3 { "The exact text" }
        pre.body.written { (shown(&payload)) }
        (change_form(&typed))
        h2 { "The question" }
        (waiting::whole_call(&question))
    };
    let listener = call.to.clone();
    let answer = SubmittedAnswer { listener, payload: payload.into_bytes() };
    let request = decision(&context, call.message, Decision::Answer(answer));
    let back = waiting::PATH.to_owned();
    let action = PreparedAction::new("Send this answer?", back, [request]).of_form(PATH, typed);
    context.confirm(action, &details).await
}

/// Draws each field with its value. Draws no fields if the person wrote the XML instead of filling
/// in the fields.
fn entered_fields(config: &Config, call: &HeldCall, typed: &UrlQuery) -> Markup {
    if !typed.written("xml").trim().is_empty() {
        return html! { p.hint { "You wrote the XML: no field counts." } };
    }
    let names = replies(config, call);
    let Some(name) = chosen(&names, typed) else { return html! {} };
    let description = config.schemas.describe(name);
    let fields = answer_fields::entered(&description, typed);
    let rows: Vec<_> = fields
        .iter()
        .map(|field| vec![inline(&field.path), html! { span.wraps { (shown(&field.value)) } }])
        .collect();
    table("The fields of the answer", &["Field", "Value"], &rows)
}

/// Draws the button that leads back to the form, with everything that was entered.
fn change_form(typed: &UrlQuery) -> Markup {
    html! {
        form method="post" action=(PATH) {
            @for (name, value) in typed.pairs() {
                input name=(name) type="hidden" value=(value);
            }
            input name=(CHANGE) type="hidden" value="yes";
            p.buttons { button type="submit" { "Change the answer" } }
        }
    }
}

/// Returns the names of the replies that answer a question.
fn replies(config: &Config, call: &HeldCall) -> Vec<PayloadName> {
    config.contracts.answers_to(&call.to, &call.name)
}

/// Returns the name of the reply for which the form is drawn. This is the name that the person
/// chose if `names` contains it, and otherwise the first of `names`. Returns `None` if `names` is
/// empty.
fn chosen<'n>(names: &'n [PayloadName], typed: &UrlQuery) -> Option<&'n PayloadName> {
    let chosen = typed.get("reply");
    let found = names.iter().find(|name| chosen == Some(&*name.to_string()));
    found.or_else(|| names.first())
}

/// Builds the payload from the form. XML that the person wrote is not checked here. A payload that
/// is built from the fields is checked against its schema, but not by the gate. If the payload
/// cannot be built, returns a description of the mistake.
fn payload(config: &Config, call: &HeldCall, typed: &UrlQuery) -> Result<String, Markup> {
    let problem = |text: &str| html! { p.problem role="alert" { (shown(text)) } };
    let names = replies(config, call);
    let name = chosen(&names, typed);
    let name = name.ok_or_else(|| problem("The config allows no answer to this question."))?;
    let written = typed.written("xml");
    if !written.trim().is_empty() {
        return Ok(written);
    }

    let description = config.schemas.describe(name);
    let filled = answer_fields::fill(&description, typed);
    let text = filled.map_err(|missing| problem(&missing))?;
    match config.schemas.validate(name, text.as_bytes()) {
        Ok(()) => Ok(text),
        Err(findings) => Err(html! {
            div.problem role="alert" {
                p { "The schema does not accept this answer:" }
                ul { @for finding in &findings { li { (shown(&finding.to_string())) } } }
            }
        }),
    }
}

async fn form_page(
    context: &ActionContext,
    call: &HeldCall,
    typed: &UrlQuery,
    problem: Option<&Markup>,
) -> Result<Response, OperateFailure> {
    let names = replies(&context.config, call);
    let name = chosen(&names, typed).ok_or_else(|| {
        OperateFailure::missing("The config allows no answer to this question; it can be refused.")
    })?;
    let description = context.config.schemas.describe(name);
    let fields = answer_fields::draw(&description, typed);
    let xml = typed.written("xml");
    let example = context.config.schemas.example(name);
    let question = with_request(&context.view, call.clone()).await;
    let content = html! {
        h1 { "Answer a question" }
        (waiting::whole_call(&question))
        @if names.len() > 1 { (other_replies(call, &names, name)) }
        h2 { "Your answer" }
        @if let Some(problem) = problem { (problem) }
        @if !description.doc.is_empty() { p.hint { (shown(&description.doc)) } }
        form.confirm method="post" action=(PATH) {
            input name="message" type="hidden" value=(call.message);
            input name="reply" type="hidden" value=(name);
            @if let Some(fields) = &fields { (fields) }
            details open[fields.is_none() || !xml.is_empty()] {
                summary { "Write the XML instead" }
                label for="xml" { "The whole payload; the fields above do not count then" }
                textarea #xml name="xml" rows="8" spellcheck="false" { "\n" (xml) }
                @if let Some(example) = &example {
                    p.hint { "For example:" }
                    pre.body.written { (shown(example)) }
                }
            }
            p.buttons {
                button type="submit" { "Check the answer" }
                a href=(waiting::PATH) { "Do nothing" }
            }
        }
    };
    Ok(context.view.page("Answer", waiting::PATH, &content))
}

fn other_replies(call: &HeldCall, names: &[PayloadName], now: &PayloadName) -> Markup {
    html! {
        p.pages {
            "Answer with:"
            @for name in names {
                @let path = UrlQuery::default()
                    .with("message", Some(&call.message.to_string()))
                    .with("reply", Some(&name.to_string()))
                    .link(PATH);
                a href=(path) aria-current=[(name == now).then_some("true")] { (shown(&name.local)) }
            }
        }
    }
}

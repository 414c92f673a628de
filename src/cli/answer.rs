//! `organism answer`: lists open questions to people, and answers them.

mod form;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::audit::HeldCall;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{ListenerName, MessageId, PayloadName};
use crate::service::SubmittedAnswer;
use crate::thread::{Decision, Hold};

use super::decision::{self, DecisionArgs, DecisionOutput, SoughtCalls, WaitingCalls};
use super::exit::{CommandExit, CommandFailure};
use super::held_page::{HeldPageArgs, note_page};
use super::named_config;
use super::organism_reach::OrganismReach;
use super::permitted_names::refused_payload;
use super::render::{RenderOutput, held, put, put_visible_json};
use super::startup::{self, ConfigArg};
use super::waiting_message;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// Id of the question to answer, or its first 8 digits at least. Without an id, the command
    /// lists the open questions.
    #[arg(conflicts_with_all = ["limit", "all"])]
    message: Option<String>,
    /// File with the answer, or `-` for standard input. Default: a form, if standard input is a
    /// terminal, and standard input otherwise.
    #[arg(requires = "message")]
    payload: Option<PathBuf>,
    /// Ask for the answer field by field, even without a terminal.
    #[arg(long, requires = "message", conflicts_with = "payload")]
    form: bool,
    /// Write one line of JSON for each listed question, or for the answer that is sent.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: HeldPageArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(message) = &args.message else {
        let data = match &args.decision.data {
            Some(data) => data.clone(),
            None => startup::directories(args.config.config.as_deref())?.data,
        };
        let most = args.page.most();
        let waiting = decision::waiting_on_record(&data, Hold::Answer, most)?;
        return list(&waiting, args.decision.data.as_deref(), args.json);
    };

    let reach = args.config.reach(&args.decision)?;
    let message = waiting_message::find(reach.data(), message, &[Hold::Answer])?;
    let waiting = decision::waiting(reach.data(), Hold::Answer, SoughtCalls::One(message))?;
    let question = waiting.page.calls.iter().find(|call| call.message == message);
    let has_form = args.form || (args.payload.is_none() && std::io::stdin().is_terminal());
    let named = match question {
        Some(question) => Some(NamedCall { to: question.to.clone(), name: question.name.clone() }),
        None if has_form || !waiting.unknown.is_empty() => None,
        None => NamedCall::on_record(reach.data(), message)?,
    };
    let Some(named) = named else {
        let text = format!("{message} is not an open question; `organism answer --all` lists all");
        return Err(waiting.not_found(text));
    };

    // Reads the passphrase, which may be the first line of standard input, before the answer.
    let signer = args.decision.signer()?;
    let payload = match (&args.payload, question) {
        (Some(path), _) => startup::bytes(path)?,
        (None, Some(question)) if has_form => by_form(&reach, question)?,
        (None, _) => startup::bytes(Path::new("-"))?,
    };

    let permitted = permitted_answers(&reach, &named);
    let example = example(&reach, &permitted);
    let answer = Decision::Answer(SubmittedAnswer { listener: named.to, payload });
    let mut refusal = None;
    let decisions = vec![(message, answer)];
    decision::decide_all(reach, decisions, &args.decision, signer.as_ref(), &mut |_, ruled| {
        refusal = ruled;
    })?;
    let refusal = refusal.map(|refusal| with_example(refusal, example));
    if args.json {
        DecisionOutput::of_message(message, refusal.as_ref()).print();
    }
    if let Some(refusal) = refusal.as_ref().filter(|_| !args.json) {
        return Err(refused_payload(refusal, &permitted));
    }
    decision::ruled(refusal)?;
    note!("{message}: answered");
    Ok(CommandExit::Done.into())
}

/// The listener and the payload name of the call that the command line names.
struct NamedCall {
    to: ListenerName,
    name: PayloadName,
}

impl NamedCall {
    /// Finds a call that is no open question. The answer is sent nevertheless, so that the organism
    /// refuses and records it. Returns `None` if this host has no record of the call. Fails if the
    /// call waits for an approval, or if the record cannot be read.
    fn on_record(data: &Path, message: MessageId) -> anyhow::Result<Option<Self>> {
        waiting_message::refuse_other_hold(data, &message.to_string(), &[Hold::Answer])?;
        let request = waiting_message::recorded_request(data, message)?;
        Ok(request.map(|request| Self { to: request.to, name: request.name }))
    }
}

/// Returns the names of the payloads that answer a question. The list is empty if the command has
/// no valid config.
fn permitted_answers(reach: &OrganismReach, question: &NamedCall) -> Vec<PayloadName> {
    match reach {
        OrganismReach::Config { config, .. } => {
            config.contracts.answers_to(&question.to, &question.name)
        }
        OrganismReach::Running { .. } => Vec::new(),
    }
}

/// Makes an example of a valid answer from the schemas of the config. The example has one of the
/// names `permitted`. Returns `None` if the command has no valid config, or if no schema yields an
/// example.
fn example(reach: &OrganismReach, permitted: &[PayloadName]) -> Option<String> {
    let OrganismReach::Config { config, .. } = reach else { return None };
    permitted.iter().find_map(|name| config.schemas.example(name))
}

/// Adds `example`, a valid answer, to `refusal` if the refused text is clearly no answer:
///
/// - The text is not well-formed XML.
/// - The text is not exactly one element.
/// - The element does not have the name of an answer.
fn with_example(mut refusal: Refusal, example: Option<String>) -> Refusal {
    let is_other_text = matches!(
        refusal.rule,
        RefusalRule::NotInVocabulary | RefusalRule::NotOneRoot | RefusalRule::NotWellFormed
    );
    if is_other_text && refusal.expected.is_none() {
        refusal.expected = example;
    }
    refusal
}

fn list(waiting: &WaitingCalls, data: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let questions = &waiting.page.calls;
    if json {
        questions.iter().try_for_each(put_visible_json)?;
    } else if questions.is_empty() {
        if waiting.unknown.is_empty() {
            note!("no open questions");
        }
    } else {
        let place = named_config::option_or_data(data);
        for question in questions {
            let shown = held(&RenderOutput::stdout(true), question);
            let message = question.message;
            let command = if question.can_only_be_refused() {
                format!("organism refuse {message}{place}")
            } else {
                format!("organism answer {message} [FILE | --form]{place}")
            };
            put(&format!("{shown}  {command}\n\n"))?;
        }
    }

    note_page(&waiting.page, "open questions");
    Ok(waiting.exit().into())
}

fn by_form(reach: &OrganismReach, question: &HeldCall) -> anyhow::Result<Vec<u8>> {
    let OrganismReach::Config { config, .. } = reach else {
        let text = "the form needs a config that loads; name a file with the answer instead";
        return Err(CommandFailure::new(CommandExit::Config, text).into());
    };

    note_part!("{}", held(&RenderOutput::stderr(true), question));
    let replies = config.contracts.answers_to(&question.to, &question.name);
    let descriptions = replies.iter().map(|name| config.schemas.describe(name)).collect::<Vec<_>>();
    form::fill(&descriptions)
}

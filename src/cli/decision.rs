//! Code that several commands share to decide on held calls. The code lists the waiting calls,
//! parses the options of a decision, signs a decision for the operator, and reports a refused
//! decision.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::time::timeout;

use crate::audit::{self, CallPreviewView, HeldCall, HeldPage};
use crate::config::Config;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{ListenerName, MessageId, Position, ThreadId};
use crate::index;
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, may_have_journals, partition_in, partitions_in};
use crate::limits;
use crate::locks::locked;
use crate::organism::operator;
use crate::service::signing::{self, OperatorSigner};
use crate::service::{self, DecisionRequest, ServiceClient, SocketTransport, SubmittedAnswer};
use crate::thread::{Decision, DecisionOrigin, Hold};

use super::action_text::ActionText;
use super::exit::{self, CommandFailure};
use super::organism_reach::{
    self, OrganismReach, handshake_in, note_journals_read, note_once, socket_in,
};
use super::output::put_json_line;
use super::startup::{hide_memory, runtime};
use super::{CommandExit, journal_target, passphrase};

/// Timeout of the further queries to a pump that has not responded to an earlier one.
const SILENT_PUMP_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls that wait for a person, in all partitions that could be queried or read.
#[derive(Debug)]
pub(super) struct WaitingCalls {
    pub page: HeldPage,
    /// Partitions whose calls are unknown, because their pumps did not answer and this host has no
    /// copy of their journals.
    pub unknown: Vec<u32>,
    /// Whether any pump answered. If false, all calls of the list were read from journals on this
    /// host.
    pub is_answered: bool,
    /// Whether some calls of the list were read from journals on this host, because the pumps of
    /// their partitions did not answer.
    pub has_read: bool,
}

impl WaitingCalls {
    /// Returns the exit code of a command that lists the waiting calls.
    pub fn exit(&self) -> CommandExit {
        if self.unknown.is_empty() { CommandExit::Done } else { CommandExit::Unavailable }
    }

    /// Makes the error of a command whose call is not among the waiting calls. If the calls of all
    /// partitions are known, the exit code reports invalid data. Otherwise, it reports that an
    /// organism is unavailable.
    pub fn not_found(&self, text: String) -> anyhow::Error {
        not_found(&self.unknown, text)
    }
}

/// Makes the error of [`WaitingCalls::not_found`]. `unknown` contains the partitions whose calls
/// are unknown.
pub(super) fn not_found(unknown: &[u32], text: String) -> anyhow::Error {
    if unknown.is_empty() {
        return CommandFailure::new(CommandExit::InvalidData, text).into();
    }

    let unknown: Vec<_> = unknown.iter().map(ToString::to_string).collect();
    let text = format!(
        "{text}; the calls of these partitions are unknown: {}; start their pumps, and try again",
        unknown.join(", ")
    );
    CommandFailure::new(CommandExit::Unavailable, text).into()
}

/// The waiting calls that a command looks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum SoughtCalls {
    /// The oldest calls of all partitions, at most this number of them.
    Oldest(usize),
    /// The call that this message opened. The search ends as soon as a pump lists this call, without
    /// the calls of the pumps that have not answered yet.
    One(MessageId),
}

impl SoughtCalls {
    pub const ALL: Self = Self::Oldest(usize::MAX);

    const fn most(self) -> usize {
        match self {
            Self::Oldest(most) => most,
            Self::One(_) => usize::MAX,
        }
    }

    fn has_found(self, response: &PumpResponse) -> bool {
        match (self, response) {
            (Self::One(message), Ok(Ok(held))) => held.iter().any(|call| call.message == message),
            _ => false,
        }
    }
}

/// Returns the calls that wait for a person. `hold` states whether the calls wait for an approval or
/// for an answer.
///
/// If this command's config has several partitions, queries the pumps of all partitions, over NATS
/// if necessary. Otherwise, queries the pumps of the organism that runs on this machine. If a pump
/// does not respond, or if no organism runs, reads the journal of the partition instead.
pub(super) fn waiting(
    data: &Path,
    hold: Hold,
    sought: SoughtCalls,
) -> anyhow::Result<WaitingCalls> {
    let most = sought.most();
    let runtime = runtime()?;
    let socket = socket_in(data, handshake_in(data)?);
    let config = organism_reach::partitioned_config(data);
    let configured = config.as_ref().map(Config::partitions);

    let (client, mut refused) = match runtime.block_on(querying_client(data, socket, config)) {
        Ok(client) => (client, None),
        Err(error) => (None, Some(error)),
    };
    let partitions = configured.or_else(|| client.as_ref()?.partitions());
    let journals = partitions.map_or_else(|| partitions_in(data), |all| journals_of(data, all));
    let unqueried = refused.as_ref().map_or_else(
        || "no organism runs on this host, and no pump was queried".to_owned(),
        service::Error::to_string,
    );
    let queried = client.as_ref().ok_or(unqueried.as_str());
    let numbers = journals.iter().map(|(partition, _)| partition.unwrap_or_default());
    let mut responses = runtime.block_on(held_by_pumps(queried, numbers, sought));

    let mut page = HeldPage { calls: Vec::new(), all: 0 };
    let mut read = Vec::new();
    let mut unknown = Vec::new();
    let mut is_answered = false;
    let mut silent = None;
    for (partition, journal) in journals {
        // The search has found the call, and did not wait for this pump.
        let Some(response) = responses.remove(&partition.unwrap_or_default()) else { continue };
        let reason = match response {
            Ok(Ok(held)) => {
                page = page.merged(HeldPage::of(held, hold, most), most);
                is_answered = true;
                continue;
            }
            Ok(Err(reason)) => {
                silent.get_or_insert_with(|| reason.clone());
                reason
            }
            Err(error) => {
                let reason = error.to_string();
                refused = Some(error);
                reason
            }
        };

        match (held_on_record(&journal, hold, most), partition) {
            (Err(Error::Missing { .. }), Some(partition)) => {
                // With such an error, such as a config of another project, no pump can be reached.
                if let Some(error) = refused.take_if(|error| is_config_error(error)) {
                    return Err(error.into());
                }
                unknown.push(partition);
                note_once(format!(
                    "note: the calls that wait in partition {partition} are not listed, because \
                     this host has no copy of its journal, and no pump answered: {reason}"
                ));
            }
            // There are no held calls in a journal that does not exist.
            (Err(Error::Missing { .. }), None) => {}
            (held, _) => {
                page = page.merged(held.map_err(journal_target::failed)?, most);
                read.push((partition, journal));
            }
        }
    }

    if !read.is_empty() {
        let silent = silent.filter(|_| client.is_some());
        let silent = silent.map(|reason| explain_silence(reason, is_answered));
        note_journals_read(data, &read, refused.as_ref(), silent.as_deref());
    }

    let has_read = !read.is_empty();
    Ok(WaitingCalls { page, unknown, is_answered, has_read })
}

/// Explains why journals are read: `reason` is why a pump did not respond, and `is_answered` states
/// whether another pump did.
fn explain_silence(reason: String, is_answered: bool) -> String {
    if is_answered { reason } else { format!("no pump responds to this command: {reason}") }
}

/// Returns each partition with its journal's directory, even if the directory contains no journal
/// yet.
fn journals_of(data: &Path, partitions: u32) -> Vec<(Option<u32>, PathBuf)> {
    (0..partitions).map(|partition| (Some(partition), partition_in(data, partition))).collect()
}

/// Makes the client that queries the pumps. If `config` is given, the client queries the pumps of
/// all partitions of `config`. Otherwise, it queries the pumps of the organism that runs on this
/// machine. Returns `None` if no config is given and no organism runs.
async fn querying_client(
    data: &Path,
    socket: SocketTransport,
    config: Option<Config>,
) -> Result<Option<ServiceClient>, service::Error> {
    let is_found = socket.locate().await?;
    match config {
        Some(config) => Ok(Some(ServiceClient::of_partitions(config, socket))),
        None if is_found => ServiceClient::of_running(data, socket).await.map(Some),
        None => Ok(None),
    }
}

/// Whether a request failed because of the command's config, so that no retry can succeed.
fn is_config_error(error: &service::Error) -> bool {
    exit::of_service(error) == CommandExit::Config
}

/// Result of a query for the held calls of a partition:
///
/// - `Ok(Ok(…))`: the held calls.
/// - `Ok(Err(…))`: the reason why no pump responded.
/// - `Err(…)`: any other failure of the request.
type PumpResponse = Result<Result<Vec<HeldCall>, String>, service::Error>;

/// Queries the pumps of `partitions` for their held calls. Returns the response of each partition,
/// or only the first responses if these suffice for `sought`.
async fn held_by_pumps(
    client: Result<&ServiceClient, &str>,
    partitions: impl Iterator<Item = u32>,
    sought: SoughtCalls,
) -> BTreeMap<u32, PumpResponse> {
    // The queries run concurrently, so that the time-outs of several missing pumps do not add up.
    let queries =
        partitions.map(async |partition| (partition, held_by_pump(client, partition).await));
    let mut queries: FuturesUnordered<_> = queries.collect();
    let mut responses = BTreeMap::new();
    while let Some((partition, response)) = queries.next().await {
        let is_found = sought.has_found(&response);
        responses.insert(partition, response);
        if is_found {
            break;
        }
    }
    responses
}

/// Queries the pump of a partition for its held calls. If `client` is an error, this error is the
/// reason why no pump responded. Waits only briefly for a pump that did not respond to an earlier
/// query of this command; the reason is then the earlier one.
async fn held_by_pump(client: Result<&ServiceClient, &str>, partition: u32) -> PumpResponse {
    // Locked briefly: the reasons why pumps did not respond to earlier queries of this command.
    static SILENT: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());

    let client = match client {
        Ok(client) => client,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    let earlier = locked(&SILENT).get(&partition).cloned();
    let patience = match earlier {
        Some(_) => SILENT_PUMP_TIMEOUT,
        None => limits::HELD_CALLS_TIMEOUT,
    };
    let response = timeout(patience, client.held_calls(partition)).await;
    let response = response.map_or_else(|_| Ok(Err(time_out(patience))), pump_response);

    let mut silent = locked(&SILENT);
    match response {
        Ok(Err(reason)) => Ok(Err(silent.entry(partition).or_insert(reason).clone())),
        response => {
            silent.remove(&partition);
            response
        }
    }
}

fn pump_response(response: Result<Vec<HeldCall>, service::Error>) -> PumpResponse {
    use service::Error::{Lost, NoPump, Stopped, Unanswered};

    match response {
        Ok(held) => Ok(Ok(held)),
        Err(Lost) => Ok(Err("the organism ended before its answer".to_owned())),
        Err(error @ (Stopped | NoPump { .. } | Unanswered { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn time_out(patience: Duration) -> String {
    format!(
        "no response within {} s; is `organism run` up on its host, and does this host reach the \
         servers of NATS?",
        patience.as_secs()
    )
}

/// Reads the oldest held calls of one journal, at most `most` of them. If the journal has an
/// up-to-date index, reads only the thread trees that contain these calls. Otherwise, reads the
/// whole journal.
fn held_on_record(journal: &Path, hold: Hold, most: usize) -> Result<HeldPage, Error> {
    match index::read_if_current(journal, &mut |index| audit::held_in(index, hold, most)) {
        Some(page) => Ok(page),
        None => {
            let held = JournalReader::open(journal).and_then(|reader| audit::held(&reader))?;
            Ok(HeldPage::of(held, hold, most))
        }
    }
}

/// Fails as [`require_journal`] does. Otherwise returns the waiting calls as [`waiting`] does.
pub(super) fn waiting_on_record(
    data: &Path,
    hold: Hold,
    most: usize,
) -> anyhow::Result<WaitingCalls> {
    require_journal(data)?;
    waiting(data, hold, SoughtCalls::Oldest(most))
}

/// Fails if there is no journal in the data directory. A config with several partitions needs no
/// journal on this host, because the pumps of its partitions can be queried over NATS.
pub(super) fn require_journal(data: &Path) -> anyhow::Result<()> {
    if may_have_journals(data) || organism_reach::partitioned_config(data).is_some() {
        return Ok(());
    }

    let path = data.display().to_string();
    Err(journal_target::failed(Error::Missing { path }))
}

/// Returns the calls that wait for an approval. While an organism
/// runs, first waits for previews that were requested but have not arrived: those of the calls for
/// which `is_wanted` returns true. A preview describes the effects of a call.
pub(super) fn waiting_with_previews(
    data: &Path,
    sought: SoughtCalls,
    is_wanted: impl Fn(&HeldCall) -> bool,
) -> anyhow::Result<WaitingCalls> {
    let is_to_come = |call: &HeldCall| call.preview == Some(CallPreviewView::Requested);
    let mut positions = BTreeMap::new();
    let mut found = waiting(data, Hold::Approval, sought)?;
    // Calls that become held during the wait are ignored, so the wait ends with the last of these.
    let awaited = found.page.calls.iter();
    let awaited = awaited.filter(|call| is_to_come(call) && is_wanted(call));
    let awaited: HashSet<MessageId> = awaited.map(|call| call.message).collect();

    // Without a running organism, no preview comes. Nor does one come from a pump on another
    // machine that does not answer.
    let is_awaited = |call: &HeldCall| is_to_come(call) && awaited.contains(&call.message);
    while found.page.calls.iter().any(is_awaited)
        && wait_for_records(data, &mut positions, found.is_answered && !found.has_read)?
    {
        found = waiting(data, Hold::Approval, sought)?;
    }
    Ok(found)
}

/// Waits until the journal of any partition has a new record. Returns false if no organism runs any
/// more. Updates `positions`, which contains for each journal the position of the last known
/// record.
///
/// With several partitions, returns true after [`limits::PARTITIONED_WAIT_MAX`] at the latest,
/// because this machine may not see all new records. `is_answered` states whether a pump answered
/// the last query. If true, pumps on other machines count as a running organism.
pub(super) fn wait_for_records(
    data: &Path,
    positions: &mut BTreeMap<u32, Position>,
    is_answered: bool,
) -> anyhow::Result<bool> {
    let mut has_grown = false;
    let on_recorded = |partition: u32, position: Position| {
        // The first reported position may belong to a record that was written after the list was
        // read.
        has_grown = positions.insert(partition, position) != Some(position);
        if has_grown { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };

    let is_divided = partitions_in(data).iter().any(|(partition, _)| partition.is_some());
    let is_partitioned = organism_reach::partitioned_config(data).is_some();
    if !is_divided && !is_partitioned {
        organism_reach::follow(data, on_recorded)?;
        return Ok(has_grown);
    }

    let client = organism_reach::client_at(data)?;
    let followed = runtime()?.block_on(async {
        let following = organism_reach::following(&client, on_recorded);
        timeout(limits::PARTITIONED_WAIT_MAX, following).await
    });
    match followed {
        // No organism runs on this machine, so only queries over NATS show what changes.
        Ok(Ok(())) if !has_grown && is_partitioned && is_answered => {
            std::thread::sleep(limits::PARTITIONED_WAIT_MAX);
            Ok(true)
        }
        Ok(followed) => followed.map(|()| has_grown),
        Err(_) => Ok(true),
    }
}

/// Returns a decision that approves exactly the payload of `call`. If the call has a preview, the
/// decision approves exactly this preview, too.
pub(super) fn approval_of(call: &HeldCall) -> Decision<SubmittedAnswer> {
    Decision::Approve {
        hash: call.sha256.to_string(),
        preview: call.preview_sha256().map(|sha256| sha256.to_string()),
    }
}

/// Sends a decision to the organism. Starts an organism if none runs. If `json` is true, writes the
/// result as a line of JSON.
pub(super) fn decide(
    reach: OrganismReach,
    message: MessageId,
    what: Decision<SubmittedAnswer>,
    args: &DecisionArgs,
    json: bool,
) -> anyhow::Result<()> {
    let signer = args.signer()?;
    let mut refused = None;
    decide_all(reach, vec![(message, what)], args, signer.as_ref(), &mut |_, ruled| {
        refused = ruled;
    })?;
    if json {
        DecisionOutput::of_message(message, refused.as_ref()).print();
    }
    let is_other_payload = refused.as_ref().is_some_and(|r| r.rule == RefusalRule::WrongHash);
    let shown = if is_other_payload { "; `organism approvals --all` shows it" } else { "" };
    ruled_on(&format!("{message}: "), refused, shown)
}

/// The result of an operator's request as JSON. The request concerns either a held call or a
/// thread.
#[derive(Serialize)]
pub(super) struct DecisionOutput<'a> {
    #[serde(rename = "message", skip_serializing_if = "Option::is_none")]
    message: Option<MessageId>,
    #[serde(rename = "thread", skip_serializing_if = "Option::is_none")]
    thread: Option<&'a ThreadId>,
    #[serde(rename = "result")]
    result: &'static str,
    #[serde(rename = "refusal", skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a Refusal>,
}

impl<'a> DecisionOutput<'a> {
    pub fn of_message(message: MessageId, refusal: Option<&'a Refusal>) -> Self {
        Self { message: Some(message), ..Self::of_refusal(refusal) }
    }

    pub fn of_thread(thread: &'a ThreadId, refusal: Option<&'a Refusal>) -> Self {
        Self { thread: Some(thread), ..Self::of_refusal(refusal) }
    }

    fn of_refusal(refusal: Option<&'a Refusal>) -> Self {
        let result = if refusal.is_some() { "refused" } else { "done" };
        Self { message: None, thread: None, result, refusal }
    }

    /// Writes the result as one line. An error in writing is reported at the end of the command,
    /// because the decision is already on record.
    pub fn print(&self) {
        put_json_line(&serde_json::json!(self).to_string());
    }
}

/// Sends several decisions to the organism, one after another. Passes the result of each decision
/// to `report`: the refusal, or `None` if the decision was accepted. Starts an organism if none
/// runs.
pub(super) fn decide_all(
    reach: OrganismReach,
    decisions: Vec<(MessageId, Decision<SubmittedAnswer>)>,
    args: &DecisionArgs,
    signer: Option<&OperatorSigner>,
    report: &mut dyn FnMut(MessageId, Option<Refusal>),
) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let organism = reach.client().await?;
        let sending = async {
            for (message, what) in decisions {
                let by = ListenerName::operator();
                let origin = Some(args.origin());
                let decision = DecisionRequest { message, partition: None, by, what, origin };
                let ruled = organism.decide(decision, signer).await?;
                report(message, ruled);
            }
            Ok::<(), service::Error>(())
        };
        let sent = organism.until_stopped(sending).await;

        let remains = "a decision that is on record counts, and its work goes on at the next \
                       start; `organism approvals --all` and `organism answer --all` list what \
                       still waits";
        organism.close(remains).await?;
        anyhow::Ok(sent??)
    })
}

/// Succeeds if `ruled` is `None`. Otherwise, returns `ruled`, the refusal of a decision, as an
/// error. If the refusal contains an example of a valid payload, the example follows the reason.
pub(super) fn ruled(ruled: Option<Refusal>) -> anyhow::Result<()> {
    ruled_on("", ruled, "")
}

/// Makes the error of [`ruled`]. `subject` precedes the reason of the refusal, and `advice` follows
/// it.
fn ruled_on(subject: &str, ruled: Option<Refusal>, advice: &str) -> anyhow::Result<()> {
    let Some(refusal) = ruled else { return Ok(()) };
    let mut text = format!("{subject}{refusal}{advice}");
    if let Some(expected) = &refusal.expected {
        text.push_str("\nexpected, for example:");
        expected.lines().for_each(|line| text.push_str(&format!("\n  {line}")));
    }
    Err(CommandFailure::new(exit_of_refusal(&refusal), text).into())
}

/// Returns the exit code of a command whose request was refused. A refusal because the organism is
/// busy, drains, or has no storage left counts as temporary.
pub(super) fn exit_of_refusal(refusal: &Refusal) -> CommandExit {
    match refusal.rule {
        RefusalRule::Busy | RefusalRule::Draining | RefusalRule::StorageFull => {
            CommandExit::TryAgain
        }
        _ => CommandExit::InvalidData,
    }
}

/// Loads an operator's key from a file, and asks the person for its passphrase.
pub(super) fn signer_of(path: &Path) -> anyhow::Result<OperatorSigner> {
    hide_memory();
    OperatorSigner::load(path, || passphrase::of_key(path)).map_err(|error| {
        match error.downcast::<signing::Error>() {
            Ok(error) => CommandFailure::usage(error.to_string()).into(),
            Err(error) => error,
        }
    })
}

/// Options that all commands with an operator's action share.
#[derive(Debug, clap::Args)]
pub(super) struct DecisionArgs {
    /// Note on the action, which goes on record. The note is not sent to the caller.
    #[arg(long, default_value = "")]
    pub note: ActionText,
    /// Sign the action with this operator's key, made by `organism operator key`.
    #[arg(long, value_name = "FILE")]
    pub sign: Option<PathBuf>,
    /// Send the action to the organism that runs on the journal in this directory, whatever its
    /// config is.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub data: Option<PathBuf>,
}

impl DecisionArgs {
    /// Returns who decides, and why: the user of this process, and the note of the command line.
    /// Both are recorded with the decision.
    pub fn origin(&self) -> DecisionOrigin {
        let who = operator::this_user();
        let note = self.note.as_str().to_owned();
        DecisionOrigin { who, note, signature: None }
    }

    /// Returns the signer of the decision; `None` if no key was given.
    pub fn signer(&self) -> anyhow::Result<Option<OperatorSigner>> {
        self.sign.as_deref().map(signer_of).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_call_is_unavailable_while_the_calls_of_a_partition_are_unknown() {
        for (unknown, listed, missing) in [
            (vec![], CommandExit::Done, CommandExit::InvalidData),
            (vec![1, 3], CommandExit::Unavailable, CommandExit::Unavailable),
        ] {
            let is_whole = unknown.is_empty();
            let page = HeldPage { calls: Vec::new(), all: 0 };
            let calls = WaitingCalls { page, unknown, is_answered: is_whole, has_read: false };
            assert_eq!(calls.exit(), listed);
            let error = calls.not_found("no such call".to_owned());
            assert_eq!(error.downcast_ref::<CommandFailure>().unwrap().exit, missing);
            assert_eq!(error.to_string().contains("unknown: 1, 3"), !is_whole, "{error}");
        }
    }

    #[test]
    fn a_config_that_no_pump_accepts_is_no_missing_pump() {
        let path = "data".to_owned();
        assert!(!is_config_error(&service::Error::Journal(Error::Missing { path })));
        let [data, stored, ours] = ["data", "one", "two"].map(PathBuf::from);
        let other = service::OtherProject { data, stored, ours };
        assert!(is_config_error(&service::Error::OtherProject(other)));
        let detail = "no pump holds its lease".to_owned();
        assert!(!is_config_error(&service::Error::NoPump { partition: 0, detail }));
    }
}

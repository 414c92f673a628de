//! Access rules of the control socket. The rules rely on what the operating system reports about
//! the caller, and never on claims in a request.
//!
//! - A request of a hosted process is refused. A hosted process is one that this organism has
//!   started, directly or through other processes. This includes the processes of a trial, of a
//!   test case, and of another process that shares the partitions.
//! - Exception: the processes of a listener to which the config assigns a client may send requests
//!   as this client, and watch the client's threads. A client is a name for a sender of requests.
//! - A caller of unknown ancestry needs a client's secret or an operator's signature.

mod ancestry;
mod host_presence;
mod hosted_connections;
mod loopback_peer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;
use uuid::Uuid;

use super::Error;
use super::operator;
use crate::bus::process::{PUMP_VARIABLE, PumpMark};
use crate::clock::Time;
use crate::config::{ClientSecret, Config, StorageConfig};
use crate::contract::Role;
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::ListenerName;
use crate::journal::checkpoint::CheckpointKey;
use crate::journal::{HostSignature, partition_in, partitions_in};
use crate::mutant::mutant;
use crate::service::signing::holding_signature;
use crate::service::{
    BearerSecret, LiveGrant, LiveRequest, ServiceRequest, SubmitRequest, journal_in,
};
use crate::thread::OperatorKeys;
use ancestry::ProcessAncestry;
pub use host_presence::HostPresence;
use host_presence::{names_of_data, shared_names};
pub use hosted_connections::HostedConnections;
pub use loopback_peer::is_hosted_peer;

/// Environment variable that contains a listener's name. Every hosted process has this variable.
const LISTENER_VARIABLE: &str = "ORGANISM_LISTENER";

/// Recorded as the sender of a request from a hosted process whose listener is unknown.
const UNKNOWN_LISTENER: &str = "hosted-process";

/// The process at the other end of a connection to the control socket, as the operating system
/// identifies the process.
#[derive(Debug, Clone)]
pub struct SocketCaller {
    ancestry: ProcessAncestry,
    /// User id of the process on this machine; `None` if the operating system does not report it.
    uid: Option<u32>,
}

impl SocketCaller {
    /// Whether this program could look at the process of the caller and at its parents.
    pub fn is_examined(&self) -> bool {
        self.ancestry != ProcessAncestry::NotExamined
    }
}

/// The refusal of a request. `sender` is recorded as the sender of the refused request.
#[derive(Debug)]
pub struct DeniedCaller {
    pub sender: ListenerName,
    pub refusal: Refusal,
}

/// Access rules of the control socket under one config.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    /// Name of the organism, which is the same on all of its machines.
    organism: String,
    /// For each listener of the config, the client that the config assigns to the listener; `None`
    /// if the config assigns no client.
    listeners: HashMap<ListenerName, Option<ListenerName>>,
    secrets: Vec<ClientSecret>,
    /// Clients that may see the texts of models. Each of these clients sees only the texts in its
    /// own threads.
    with_steps: Vec<ListenerName>,
    operators: OperatorKeys,
    /// Data directory of this organism. Pumps with journals in this directory mark every process
    /// that they start.
    data: PathBuf,
    /// Directory with the signing key of this machine.
    state: PathBuf,
    /// Public keys of the other machines on which the organism runs.
    known_hosts: Vec<String>,
    /// Names by which other processes of this machine show that they host listeners of the
    /// organism.
    shared_names: Vec<String>,
}

impl AccessRules {
    pub fn of(config: &Config) -> Self {
        let listeners = config.contracts.iter();
        let listeners = listeners.filter(|contract| contract.role == Role::Listener);
        let listeners = listeners.map(|c| (c.name.clone(), c.client.clone())).collect();

        let secrets = config.client_secrets.clone();
        let operators = config.operators.clone();
        let with_steps = config.clients_with_steps.clone();

        let known_hosts = match &config.storage {
            StorageConfig::JetStream { journal, .. } => journal.known_keys.clone(),
            StorageConfig::Embedded => Vec::new(),
        };

        Self {
            organism: config.name.clone(),
            listeners,
            secrets,
            with_steps,
            operators,
            data: config.data.clone(),
            state: config.state.clone(),
            known_hosts,
            shared_names: shared_names(config),
        }
    }

    /// Identifies the process at the other end of a connection. Must be called directly after the
    /// connection is accepted, while that process still exists.
    pub fn caller(&self, stream: &UnixStream) -> SocketCaller {
        let peer = stream.peer_cred().ok();
        let pid = peer.as_ref().and_then(tokio::net::unix::UCred::pid);
        let uid = peer.as_ref().map(tokio::net::unix::UCred::uid);
        let is_own = |journal| has_journal(&self.data, journal);
        let names = || [self.shared_names.clone(), names_of_data(&self.data)].concat();
        SocketCaller { ancestry: ancestry::of(pid, is_own, names), uid }
    }

    /// Checks whether this caller may send this request. A refusal with the rule
    /// [`RefusalRule::Busy`] states nothing about the rights of the caller: this program could not
    /// examine the caller's process.
    pub fn judge(
        &self,
        caller: &SocketCaller,
        request: &ServiceRequest,
    ) -> Result<(), Box<DeniedCaller>> {
        if mutant("trust-the-process") {
            return Ok(());
        }

        let listener = match &caller.ancestry {
            ProcessAncestry::Foreign => return Ok(()),
            ProcessAncestry::Unknown => return self.judge_unknown(request),
            ProcessAncestry::NotExamined => return Err(Box::new(deny_not_examined(request))),
            // No proof helps: the process may have been a hosted one, which decides nothing.
            ProcessAncestry::Exited => return Err(Box::new(deny_exited(request))),
            ProcessAncestry::Hosted(listener) => listener.as_ref(),
        };

        let client = listener.and_then(|listener| self.listeners.get(listener)?.as_ref());
        let named = match request {
            ServiceRequest::Submit(submission) => Some(&submission.client),
            ServiceRequest::FollowLive(live) => live.client.as_ref(),
            // The pump checks that the client opened the thread.
            ServiceRequest::AwaitResults(results) => results.client.as_ref(),
            _ => None,
        };
        if client.is_some() && client == named {
            return Ok(());
        }

        Err(Box::new(denied(listener, client, request)))
    }
}

/// Recorded as the sender of a request if the caller proves no identity.
const UNKNOWN_CALLER: &str = "unknown-caller";

impl AccessRules {
    /// Checks a request from a caller whose ancestry is unknown.
    fn judge_unknown(&self, request: &ServiceRequest) -> Result<(), Box<DeniedCaller>> {
        let message = match request {
            ServiceRequest::Submit(submission) if self.is_proved(submission) => return Ok(()),
            ServiceRequest::Submit(submission) => format!(
                "this host does not show which process this is (it may run in another container), so \
                 the client has to prove itself: set secret_env or secret_file of \
                 [clients.{}], for the organism and for this command",
                submission.client
            ),
            ServiceRequest::AwaitResults(results)
                if self.is_named_client(results.client.as_ref(), results.secret.as_ref()) =>
            {
                return Ok(());
            }
            // These queries reveal only the ids that the signature of a decision must name, and the
            // number of partitions, one of which the decision must reach.
            ServiceRequest::JournalId { .. }
            | ServiceRequest::HeldThread { .. }
            | ServiceRequest::Status => return Ok(()),
            ServiceRequest::FollowLive(_) if self.is_watch_proved(request) => return Ok(()),
            ServiceRequest::FollowLive(live) if self.is_client_proved(live) => return Ok(()),
            ServiceRequest::FollowLive(live) => self.unknown_watcher(live),
            // The pump checks the journal, the time and the nonce, as in every decision.
            _ if self.is_signed(request) => return Ok(()),
            ServiceRequest::Decide(_)
            | ServiceRequest::Cancel { .. }
            | ServiceRequest::Pause(_)
            | ServiceRequest::Fork(_)
            | ServiceRequest::Retry(_) => self.unknown_operator(),
            _ => {
                "this host does not show which process this is (it may run in another container): \
                  run this command where the organism runs"
                    .to_owned()
            }
        };

        Err(Box::new(deny_unknown(message, request)))
    }

    /// Returns the error message for a request that is refused because only an operator may send
    /// it. The operating system does not identify the caller, and no operator has signed the
    /// request.
    fn unknown_operator(&self) -> String {
        let unknown = "this host does not show which process this is (it may run in another container), \
                       so the operator has to prove themselves";
        if self.operators.is_empty() {
            format!(
                "{unknown}: set [operators.NAME] key in the config and sign with --sign FILE, or \
                 run this command where the organism runs"
            )
        } else {
            format!(
                "{unknown}: sign with --sign FILE, the key of one of [operators] ({})",
                self.operators.names()
            )
        }
    }

    /// Whether an operator of this config signed the request.
    fn is_signed(&self, request: &ServiceRequest) -> bool {
        let signature = holding_signature(request);
        let is_owned = |key| self.operators.owner(key).is_some();
        signature.is_some_and(|signature| is_owned(&signature.key))
            || mutant("let-unknown-callers-decide")
    }

    /// Whether an operator of this config has recently signed this subscription to live events. The
    /// signature must be for a journal on this machine. The same signature can prove several
    /// subscriptions, because its nonce is not recorded. These repetitions are harmless, because a
    /// subscription changes nothing.
    fn is_watch_proved(&self, request: &ServiceRequest) -> bool {
        if mutant("show-text-to-anybody") {
            return true;
        }

        let signature = holding_signature(request).filter(|_| self.is_signed(request));
        signature.is_some_and(|signature| {
            signature.is_current(Time::now()) && has_journal(&self.data, signature.journal)
        })
    }

    /// Whether a subscription to live events that names a client also contains the secret of this
    /// client.
    fn is_client_proved(&self, live: &LiveRequest) -> bool {
        self.is_named_client(live.client.as_ref(), live.secret.as_ref())
    }

    /// Whether a request names a client and contains the secret of this client.
    fn is_named_client(
        &self,
        client: Option<&ListenerName>,
        secret: Option<&BearerSecret>,
    ) -> bool {
        client.is_some_and(|client| self.is_secret_of(client, secret))
    }

    /// Sets what the sender of an accepted subscription to live events may see. An operator sees
    /// all threads, with the texts of models. A client sees its own threads, and the texts of
    /// models in these threads only if the config permits this.
    fn grant(&self, live: &mut LiveRequest, is_operator: bool) {
        if is_operator {
            live.client = None;
        }

        let is_text_shown = match &live.client {
            Some(client) => self.with_steps.contains(client) || mutant("show-text-to-clients"),
            None => is_operator,
        };
        live.secret = None;
        live.granted = Some(if is_text_shown { LiveGrant::Text } else { LiveGrant::States });
    }

    /// Signs the rights that the sender of a subscription to live events has, because pumps on
    /// other machines accept only signed rights. If this machine has no readable key, the rights
    /// stay unsigned. The other pumps then judge the subscription themselves
    /// ([`Self::judge_remote`]), and usually refuse it.
    pub fn sign_grant(&self, live: &mut LiveRequest) {
        let signed = HostSignature::new(&self.state, &live.judgement(&self.organism));
        let fault = match &signed {
            Ok(Some(_)) => None,
            Ok(None) => Some(format!("there is no signing key in {}", self.state.display())),
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = fault {
            tracing::warn!("live events of other hosts are refused: {fault}");
        }
        live.host = signed.ok().flatten();
    }

    /// Whether a known machine of this organism has signed the rights that the subscription `live`
    /// contains.
    fn is_vouched(&self, live: &LiveRequest) -> bool {
        if mutant("take-any-grant") {
            return live.granted.is_some();
        }

        let Some(signature) = live.host.as_ref().filter(|_| live.granted.is_some()) else {
            return false;
        };
        let judgement = live.judgement(&self.organism);
        self.is_host_known(signature) && signature.holds(&judgement, Time::now())
    }

    /// Whether the key that a signature names is the key of this machine, or the key of another
    /// machine that the config names.
    fn is_host_known(&self, signature: &HostSignature) -> bool {
        let is_own = || {
            let own = CheckpointKey::read(&self.state).ok().flatten();
            own.is_some_and(|own| own.public() == signature.key)
        };
        self.known_hosts.contains(&signature.key) || is_own()
    }

    /// Sets the rights of an accepted subscription to live events that came over NATS:
    ///
    /// - If a machine of the organism has signed the rights, they stay unchanged.
    /// - If the sender has proved that it is an operator or the named client, the subscription gets
    ///   the rights of this operator or client.
    /// - Any other sender sees only the states of model calls, and no texts.
    pub fn grant_remote(&self, request: &mut ServiceRequest) {
        let is_operator = self.is_watch_proved(request);
        let ServiceRequest::FollowLive(live) = request else { return };
        if self.is_vouched(live) {
            return;
        }

        let is_known = is_operator || self.is_client_proved(live);
        self.grant(live, is_operator);
        if !is_known {
            live.granted = Some(LiveGrant::States);
        }
    }

    /// Returns the error message for a subscription to live events that is refused, because its
    /// sender has not proved the right to watch.
    fn unknown_watcher(&self, live: &LiveRequest) -> String {
        if let Some(host) = live.host.as_ref().filter(|_| live.granted.is_some()) {
            let id = host.key_id();
            return if self.is_host_known(host) {
                format!(
                    "the host with the key {id} vouches for its reader with a signature that is \
                     wrong or too old; compare the clocks of both hosts, and their versions"
                )
            } else {
                format!(
                    "the host with the key {id} vouches for its reader, and this host does not \
                     know that key: add it to known_keys under [journal] here, as `organism key \
                     show` prints it there, and restart"
                )
            };
        }

        let is_signed = live.origin.as_ref().is_some_and(|origin| origin.signature.is_some());
        if let Some(client) = live.client.as_ref().filter(|_| !is_signed) {
            return format!(
                "nothing proves here that the client `{client}` watches: set secret_env or \
                 secret_file of [clients.{client}], for the organism and for this command"
            );
        }

        let fault = if is_signed {
            "its signature is of no operator of this config, too old, or of something else"
        } else {
            "only operators may see what models write, and nothing proves one here"
        };
        if self.operators.is_empty() {
            format!(
                "{fault}: set [operators.NAME] key in the config and sign with --sign FILE, or run \
                 this command where the organism runs"
            )
        } else {
            format!(
                "{fault}: sign with --sign FILE, the key of one of [operators] ({})",
                self.operators.names()
            )
        }
    }

    /// Checks a request that came over NATS. The permissions of the NATS servers decide who may
    /// send requests at all, so this method checks only payloads, requests for results and
    /// subscriptions to live events. A payload of a client with a secret must contain the secret,
    /// and so must the client's request for results. If any client has a secret, a request for
    /// results that names no client is refused. A subscription is accepted in these cases:
    ///
    /// - Another machine of the organism has checked and signed the subscription.
    /// - The subscription names a client that has no secret.
    /// - The subscription contains the secret of the client that it names.
    /// - An operator has signed the subscription.
    pub fn judge_remote(&self, request: &ServiceRequest) -> Result<(), Box<DeniedCaller>> {
        if let ServiceRequest::FollowLive(live) = request {
            let client = live.client.as_ref();
            let is_trusted = client.is_some_and(|client| !self.has_secret(client));
            let is_accepted = self.is_vouched(live)
                || is_trusted
                || self.is_client_proved(live)
                || self.is_watch_proved(request);
            return if is_accepted {
                Ok(())
            } else {
                Err(Box::new(deny_unknown(self.unknown_watcher(live), request)))
            };
        }

        let (client, secret) = match request {
            ServiceRequest::Submit(submission) => {
                (Some(&submission.client), submission.secret.as_ref())
            }
            ServiceRequest::AwaitResults(results) => {
                (results.client.as_ref(), results.secret.as_ref())
            }
            _ => return Ok(()),
        };
        let needs_secret = match client {
            Some(client) => self.has_secret(client),
            // The results may belong to any client.
            None => !self.secrets.is_empty(),
        };
        let is_proved = self.is_named_client(client, secret);
        if !needs_secret || is_proved || mutant("take-any-sender-over-nats") {
            return Ok(());
        }

        let message = match client {
            Some(client) => format!(
                "over NATS this client has to prove itself: set secret_env or secret_file of \
                 [clients.{client}] for this command, too"
            ),
            None => {
                "over NATS a request for results has to name the client that gets them, and to \
                 prove it with the client's secret; use a command of the present version"
                    .to_owned()
            }
        };
        Err(Box::new(deny_unknown(message, request)))
    }

    /// Adds proof to an accepted request before it goes to a pump in another process. A submission
    /// gets the secret of its client, and so does a request for results. A subscription gets the
    /// rights of its sender. In an operator's request, the user at the other end of the socket
    /// becomes the acting person, even if the request names another person.
    pub fn vouch_for(&self, caller: &SocketCaller, request: &mut ServiceRequest) {
        let is_operator = match caller.ancestry {
            ProcessAncestry::Foreign => true,
            ProcessAncestry::Unknown => self.is_watch_proved(request),
            ProcessAncestry::Hosted(_) | ProcessAncestry::Exited | ProcessAncestry::NotExamined => {
                false
            }
        };
        match request {
            ServiceRequest::Submit(submission) => {
                submission.secret = self.secret_of(&submission.client);
                return;
            }
            ServiceRequest::FollowLive(live) => return self.grant(live, is_operator),
            ServiceRequest::AwaitResults(results) => {
                let client = results.client.as_ref();
                results.secret = client.and_then(|client| self.secret_of(client));
                return;
            }
            _ => {}
        }

        let Some(origin) = request.origin_mut() else { return };
        if mutant("trust-the-name") && origin.is_some() {
            return;
        }

        let who = caller.uid.map(operator::identity).unwrap_or_default();
        origin.get_or_insert_default().who = who;
    }

    /// Whether the request contains the secret of the client in whose name it was sent.
    fn is_proved(&self, submission: &SubmitRequest) -> bool {
        self.is_secret_of(&submission.client, submission.secret.as_ref())
    }

    fn secret_of(&self, client: &ListenerName) -> Option<BearerSecret> {
        let known = self.secrets.iter().find(|known| known.client == *client);
        known.and_then(ClientSecret::secret).map(BearerSecret::of)
    }

    fn has_secret(&self, client: &ListenerName) -> bool {
        self.secrets.iter().any(|known| known.client == *client)
    }

    /// Whether `secret` is the secret of this client. Compares digests, so that the duration of the
    /// comparison reveals nothing about the secret.
    fn is_secret_of(&self, client: &ListenerName, secret: Option<&BearerSecret>) -> bool {
        let known = self.secrets.iter().find(|known| known.client == *client);
        let expected = known.and_then(ClientSecret::digest);
        let presented = secret.map(BearerSecret::digest);
        expected.is_some() && (expected == presented || mutant("take-any-secret"))
    }
}

fn deny_unknown(message: String, request: &ServiceRequest) -> DeniedCaller {
    let sender = ListenerName::parse(UNKNOWN_CALLER).unwrap_or_else(|_| ListenerName::core());
    let refusal = Refusal::new(RefusalRule::UnknownCaller, message, &description(request));
    DeniedCaller { sender, refusal }
}

/// Makes the refusal of a request whose sending process has already ended.
fn deny_exited(request: &ServiceRequest) -> DeniedCaller {
    let message = "the process that sent this request had ended before the organism looked at it, \
                   so nothing tells which process it was; nothing was done";
    deny_unknown(message.to_owned(), request)
}

/// Makes the refusal of a request whose sender this program could not look at, because this program
/// has no free file descriptor or memory.
fn deny_not_examined(request: &ServiceRequest) -> DeniedCaller {
    let message = "this organism has no free file descriptor or memory to look at the process that \
                   sent this; try again in a moment, or raise its limits (`ulimit -n`)";
    let denied = deny_unknown(message.to_owned(), request);
    DeniedCaller { refusal: Refusal { rule: RefusalRule::Busy, ..denied.refusal }, ..denied }
}

/// Whether the data directory `data` contains the journal with this id. The directory contains
/// either a single journal, or one journal for each partition.
fn has_journal(data: &Path, id: Uuid) -> bool {
    let mut journals = partitions_in(data).into_iter();
    journals.any(|(_, journal)| journal_in(&journal).is_ok_and(|found| found == id))
}

/// Refuses to start a pump in a hosted process, which is a process that a pump of this organism has
/// started. The check relies on two facts. The environment shows whether any pump has started the
/// process. The journal of that pump, or a parent of the process, shows whether the pump belongs to
/// this organism.
///
/// A hosted process can evade the check by changing its environment. This is accepted, because such
/// a process can change the journal even without a pump, by writing to the journal's files.
pub(super) fn refuse_hosted_start(config: &Config) -> Result<(), Error> {
    let mark = std::env::var(PUMP_VARIABLE).ok();
    let Some(mark) = mark.and_then(|mark| mark.parse::<PumpMark>().ok()) else { return Ok(()) };
    let named = std::env::var(LISTENER_VARIABLE).ok();
    let named = named.and_then(|name| ListenerName::parse(&name).ok());

    let contract = named.as_ref().and_then(|name| config.contracts.get(name));
    let is_named = contract.is_some_and(|contract| contract.role == Role::Listener);
    let is_hosted = has_journal(&config.data, mark.journal())
        || has_host_above(config)
        || is_named && is_name_evidence(config);
    if !is_hosted || mutant("trust-the-process") {
        return Ok(());
    }

    let unknown = || ListenerName::parse(UNKNOWN_LISTENER).unwrap_or_else(|_| ListenerName::core());
    Err(Error::HostedProcess { listener: named.unwrap_or_else(unknown) })
}

/// Whether this process descends from a process that hosts listeners of this organism. That process
/// may use another journal, because it may run a trial, a test case, or other partitions.
fn has_host_above(config: &Config) -> bool {
    let Ok(own) = i32::try_from(std::process::id()) else { return false };
    let is_own = |journal| has_journal(&config.data, journal);
    let names = || [shared_names(config), names_of_data(&config.data)].concat();
    ancestry::is_hosted(own, &[], is_own, names) == Some(true)
}

/// Whether a listener's name in the environment counts as evidence that this process is hosted. A
/// listener of another organism may have the same name, so the name counts only if better evidence
/// is missing. This is so in two cases:
///
/// - The journal of a partition is on JetStream, and has no projection on this machine.
/// - The system does not show this process or its parents.
fn is_name_evidence(config: &Config) -> bool {
    let is_readable = |journal: &Path| journal_in(journal).is_ok();
    let has_all = match config.storage {
        StorageConfig::Embedded => true,
        StorageConfig::JetStream { .. } => match config.partitions() {
            1 => is_readable(&config.data),
            partitions => (0..partitions).all(|n| is_readable(&partition_in(&config.data, n))),
        },
    };
    let own = i32::try_from(std::process::id()).ok();
    let is_hidden = || {
        let own = ancestry::of(own, |_| false, Vec::new);
        matches!(own, ProcessAncestry::Unknown | ProcessAncestry::NotExamined)
    };
    !has_all || !cfg!(target_os = "linux") || is_hidden()
}

fn denied(
    listener: Option<&ListenerName>,
    client: Option<&ListenerName>,
    request: &ServiceRequest,
) -> DeniedCaller {
    let message = match (listener, client) {
        (Some(listener), Some(client)) => format!(
            "this process runs in the listener `{listener}`, which sends as the client \
             `{client}` and does nothing else here"
        ),
        (Some(listener), None) => format!(
            "this process runs in the listener `{listener}`, and a hosted process sends and \
             decides nothing; to let it send, give it a client of its own: \
             [listeners.{listener}] client = \"NAME\""
        ),
        (None, _) => "a listener of this organism started this process, perhaps in a trial or a \
                      test case, and a hosted process that detached itself sends and decides \
                      nothing, nor does one that another process of the organism hosts"
            .to_owned(),
    };

    let unknown = || ListenerName::parse(UNKNOWN_LISTENER).unwrap_or_else(|_| ListenerName::core());
    DeniedCaller {
        sender: listener.cloned().unwrap_or_else(unknown),
        refusal: Refusal::new(RefusalRule::HostedProcess, message, &description(request)),
    }
}

/// Returns a description of a refused request, which the record of the refusal contains.
fn description(request: &ServiceRequest) -> Vec<u8> {
    let text = match request {
        ServiceRequest::Submit(submission) => return submission.payload.clone(),
        ServiceRequest::Cancel { thread, .. } => format!("cancel {thread}"),
        ServiceRequest::Fork(fork) => format!("fork {} at {}", fork.source, fork.message),
        ServiceRequest::Retry(retry) => format!("retry {}", retry.message),
        ServiceRequest::Pause(pause) => format!("{} {}", pause.verb.as_str(), pause.target),
        ServiceRequest::Decide(decision) => {
            format!("{} {}", decision.what.verb(), decision.message)
        }
        ServiceRequest::AwaitResults(results) => format!("results of {}", results.thread),
        ServiceRequest::HeldThread { message, .. } => format!("where {message}"),
        ServiceRequest::HeldCalls { partition, .. } => {
            format!("held calls of partition {partition}")
        }
        ServiceRequest::JournalId { partition } => format!("journal of partition {partition}"),
        ServiceRequest::FollowJournals => "follow the journals".to_owned(),
        ServiceRequest::FollowLive(live) => format!("watch {}", live.signed_thread()),
        ServiceRequest::Reload { .. } => "reload".to_owned(),
        ServiceRequest::Status => "status".to_owned(),
    };

    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;
    use crate::service::ResultsRequest;

    fn name(name: &str) -> ListenerName {
        ListenerName::parse(name).unwrap()
    }

    fn watch(client: Option<&str>) -> ServiceRequest {
        ServiceRequest::FollowLive(LiveRequest {
            thread: Some(ThreadId::parse("sess-aaaaaaaa").unwrap()),
            client: client.map(name),
            granted: Some(LiveGrant::Text),
            ..LiveRequest::default()
        })
    }

    fn granted(request: &ServiceRequest) -> (Option<LiveGrant>, Option<&str>) {
        let ServiceRequest::FollowLive(live) = request else { panic!("{request:?}") };
        (live.granted, live.client.as_ref().map(ListenerName::as_str))
    }

    #[test]
    fn a_hosted_process_watches_as_its_own_client_alone_and_an_operator_as_none() {
        let listeners = HashMap::from([(name("bot"), Some(name("desk"))), (name("echo"), None)]);
        let caller = |ancestry| SocketCaller { ancestry, uid: None };
        let hosted = |listener| caller(ProcessAncestry::Hosted(Some(name(listener))));
        for (with_steps, grant) in
            [(Vec::new(), LiveGrant::States), (vec![name("desk")], LiveGrant::Text)]
        {
            let listeners = listeners.clone();
            let rules = AccessRules { listeners, with_steps, ..AccessRules::default() };
            for (listener, client) in
                [("bot", None), ("bot", Some("other")), ("echo", Some("desk"))]
            {
                assert!(rules.judge(&hosted(listener), &watch(client)).is_err(), "{client:?}");
            }

            let mut own = watch(Some("desk"));
            assert!(rules.judge(&hosted("bot"), &own).is_ok());
            rules.vouch_for(&hosted("bot"), &mut own);
            assert_eq!(granted(&own), (Some(grant), Some("desk")));

            let operator = caller(ProcessAncestry::Foreign);
            let mut any = watch(Some("desk"));
            assert!(rules.judge(&operator, &any).is_ok());
            rules.vouch_for(&operator, &mut any);
            assert_eq!(granted(&any), (Some(LiveGrant::Text), None));
        }
    }

    /// Checks the request of a process that has exited. The refusal must name no listener, because
    /// the request may come from a command that a person interrupted with Ctrl-C.
    #[test]
    fn the_request_of_a_process_that_has_ended_is_refused_and_blames_no_listener() {
        let rules = AccessRules::default();
        let ended = SocketCaller { ancestry: ProcessAncestry::Exited, uid: None };
        let refused = rules.judge(&ended, &watch(Some("desk"))).unwrap_err();
        assert_eq!(refused.sender.as_str(), "unknown-caller");
        assert_eq!(refused.refusal.rule, RefusalRule::UnknownCaller);
        let message = &refused.refusal.message;
        assert!(message.contains("had ended") && !message.contains("listener"), "{message}");
    }

    #[test]
    fn a_caller_that_could_not_be_examined_may_try_again() {
        let caller = SocketCaller { ancestry: ProcessAncestry::NotExamined, uid: None };
        let refused = AccessRules::default().judge(&caller, &watch(None)).unwrap_err();
        assert_eq!(refused.refusal.rule, RefusalRule::Busy);
        assert!(refused.refusal.message.contains("try again"), "{:?}", refused.refusal);
    }

    #[test]
    fn a_hosted_process_waits_for_the_results_of_its_own_client_alone() {
        let listeners = HashMap::from([(name("bot"), Some(name("desk")))]);
        let rules = AccessRules { listeners, ..AccessRules::default() };
        let ancestry = ProcessAncestry::Hosted(Some(name("bot")));
        let hosted = SocketCaller { ancestry, uid: None };
        for (client, is_allowed) in [(Some("desk"), true), (Some("other"), false), (None, false)] {
            let request = ServiceRequest::AwaitResults(ResultsRequest {
                thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
                calls: Vec::new(),
                client: client.map(name),
                secret: None,
            });
            assert_eq!(rules.judge(&hosted, &request).is_ok(), is_allowed, "{client:?}");
        }
    }

    #[test]
    fn a_host_vouches_within_its_organism_alone_and_only_with_a_known_key() {
        let state = tempfile::tempdir().unwrap();
        let own = CheckpointKey::open(state.path()).unwrap();
        let rules = |organism: &str, known_hosts| AccessRules {
            organism: organism.to_owned(),
            state: state.path().to_owned(),
            known_hosts,
            ..AccessRules::default()
        };
        let ServiceRequest::FollowLive(mut live) = watch(None) else { unreachable!() };
        let signer = rules("first", Vec::new());
        signer.sign_grant(&mut live);
        assert!(live.host.is_some());
        assert!(signer.is_vouched(&live));
        assert!(!rules("second", vec![own.public()]).is_vouched(&live), "another organism");

        let elsewhere = tempfile::tempdir().unwrap();
        let pump = |known_hosts| AccessRules {
            state: elsewhere.path().to_owned(),
            ..rules("first", known_hosts)
        };
        assert!(pump(vec![own.public()]).is_vouched(&live));
        assert!(!pump(Vec::new()).is_vouched(&live), "a key that was removed");
        live.partition += 1;
        assert!(!signer.is_vouched(&live), "another partition");

        pump(Vec::new()).sign_grant(&mut live);
        assert_eq!(live.host, None, "no key, no signature");
        assert!(CheckpointKey::read(elsewhere.path()).unwrap().is_none());
    }
}

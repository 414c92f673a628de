//! The sections `[journal]` and `[nats]`: where the journal is stored, and how to reach the NATS
//! servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::journal::jetstream::{self, StreamDurability};
use crate::limits;
use crate::nats::{self, NatsCredentials, NatsPassword};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::file;
use super::keys;
use super::proof::{self, DeclaredProof};
use super::read::TableReader;
use super::sections::in_section;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located, TomlTable};
use super::{Config, StorageConfig};

/// Keys of the section `[journal]` that an embedded journal may set.
const EMBEDDED_KEYS: [&str; 4] = ["store", "known_keys", "checkpoints", "snapshot_records"];
/// Keys of the section `[journal]` that a journal on JetStream may set.
const STREAM_KEYS: [&str; 8] = [
    "store",
    "stream",
    "partitions",
    "replicas",
    "durability",
    "known_keys",
    "checkpoints",
    "snapshot_records",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    Embedded,
    JetStream,
}

const STORES: [(&str, StoreKind); 2] =
    [("embedded", StoreKind::Embedded), ("jetstream", StoreKind::JetStream)];
const DURABILITIES: [(&str, StreamDurability); 2] =
    [("lazy", StreamDurability::Lazy), ("synced", StreamDurability::Synced)];

/// Help text for a config that keeps the journal on a single server, but does not set the key
/// `durability`. The text names both values of this key: `synced` and `lazy`.
const NAME_DURABILITY: &str = "one server keeps this journal, and its machine may crash: add \
     durability = \"synced\" where that server has `sync_interval: always` (nothing acknowledged is \
     lost), or durability = \"lazy\" where it syncs later, by default every two minutes (a power cut \
     loses up to that much of what was acknowledged)";

/// The journal's storage as the config declares it. The files that the settings name are not
/// checked yet.
pub(super) struct DeclaredStorage {
    store: StoreKind,
    journal: SourceRange,
    stream: Option<Located<ExpandedText>>,
    pub partitions: u32,
    replicas: u32,
    durability: StreamDurability,
    nats: Option<DeclaredNats>,
    pub proof: DeclaredProof,
}

struct DeclaredNats {
    servers: Vec<Located<ExpandedText>>,
    place: SourceRange,
    credentials_file: Option<Located<ExpandedText>>,
    nkey_file: Option<Located<ExpandedText>>,
    user: Option<Located<ExpandedText>>,
    password_env: Option<Located<ExpandedText>>,
    password_file: Option<Located<ExpandedText>>,
    ca_file: Option<Located<ExpandedText>>,
    system_nkey_file: Option<Located<ExpandedText>>,
}

pub(super) fn read(
    root: &TomlTable,
    source: &Arc<ConfigSource>,
    problems: &mut ConfigProblems,
) -> DeclaredStorage {
    let nats = root.get(keys::NATS.name).is_some();
    let nats = nats.then(|| in_section(root, &keys::NATS, source, problems, read_nats));
    let journal = |read: &mut TableReader<'_>| read_journal(read, nats);
    in_section(root, &keys::JOURNAL, source, problems, journal)
}

fn read_journal(read: &mut TableReader<'_>, nats: Option<DeclaredNats>) -> DeclaredStorage {
    let store = read.choice("store", &STORES).unwrap_or(StoreKind::Embedded);
    if store == StoreKind::Embedded {
        read.only(&EMBEDDED_KEYS, "a journal that is embedded");
    } else {
        read.only(&STREAM_KEYS, "a journal on JetStream");
    }

    let stream = read.text("stream").and_then(|text| {
        let name = &text.value.value;
        let fits = name.len() <= limits::STREAM_NAME_BYTES_MAX
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !fits {
            let message = format!("`{}` is no name for a stream", text.value.written);
            let help =
                "letters, digits, `-` and `_`; without the key it is named after the organism";
            read.problem(ConfigProblem::new(ProblemCode::BadName, &text.place, message).help(help));
        }
        fits.then_some(text)
    });
    let partitions = read.count32("partitions", limits::PARTITIONS_MAX).unwrap_or(1);
    let replicas = if read.has("replicas") {
        read.count32("replicas", limits::STREAM_REPLICAS_CEILING)
    } else {
        Some(1)
    };

    if store == StoreKind::JetStream && replicas == Some(1) {
        read.required_with("durability", NAME_DURABILITY);
    }

    let durability = read.choice("durability", &DURABILITIES).unwrap_or_default();
    let journal = read.place_of("store");
    let replicas = replicas.unwrap_or(1);
    let proof = proof::read(read);
    DeclaredStorage { store, journal, stream, partitions, replicas, durability, nats, proof }
}

fn read_nats(read: &mut TableReader<'_>) -> DeclaredNats {
    let given = read.required("url", "\"nats://127.0.0.1:4222\"");
    DeclaredNats {
        servers: if given { read.one_or_more("url") } else { Vec::new() },
        place: read.place_of("url"),
        credentials_file: read.text("credentials_file"),
        nkey_file: read.text("nkey_file"),
        user: read.text("user"),
        password_env: read.text("password_env"),
        password_file: read.text("password_file"),
        ca_file: read.text("ca_file"),
        system_nkey_file: read.text("system_nkey_file"),
    }
}

impl DeclaredStorage {
    /// Returns the settings of those NATS connections that do not serve the journal. Returns `None`
    /// if the config names no NATS servers, or if the settings are invalid. Does not report invalid
    /// settings, because [`Self::storage`] reports them.
    pub fn servers(&self, directory: &Path, around: &ConfigEnvironment) -> Option<nats::Options> {
        self.nats.as_ref()?.options(directory, around, &mut ConfigProblems::default())
    }

    /// Drops the NATS credentials that the config names, for a program that connects with its own
    /// credentials.
    pub fn forget_whom(&mut self) {
        if let Some(nats) = &mut self.nats {
            nats.credentials_file = None;
            nats.nkey_file = None;
            nats.user = None;
            nats.password_env = None;
            nats.password_file = None;
        }
    }

    /// Drops the certificate authority of the NATS servers. This is needed for a stored config,
    /// which does not contain the file of the authority.
    pub fn forget_authority(&mut self) {
        if let Some(nats) = &mut self.nats {
            nats.ca_file = None;
        }
    }

    /// Drops the credentials of the system account. The program needs these credentials only to
    /// check that the NATS servers sync each message to disk before they acknowledge the message.
    pub fn forget_who_asks(&mut self) {
        if let Some(nats) = &mut self.nats {
            nats.system_nkey_file = None;
        }
    }

    pub fn names_servers(&self) -> bool {
        self.nats.is_some()
    }

    /// Reports a stream whose subjects would be those of requests to the pumps of an organism of
    /// the name `journal`: the requests would become messages of the stream. Not for stored configs,
    /// because earlier versions of the program accepted such a stream.
    pub fn check_stream(&self, problems: &mut ConfigProblems) {
        let Some(stream) = self.stream.as_ref().filter(|stream| stream.value.value == "pump")
        else {
            return;
        };

        let message = "a stream named `pump` has the subjects of requests to an organism named \
                       `journal`";
        let problem = ConfigProblem::new(ProblemCode::ReservedName, &stream.place, message);
        problems.push(problem.help("choose another name"));
    }

    /// Resolves the storage of the organism `organism`, and reports every problem. Returns `None`
    /// only if the journal is on JetStream, and its settings are incomplete or have a problem.
    pub fn storage(
        &self,
        organism: &str,
        directory: &Path,
        around: &ConfigEnvironment,
        problems: &mut ConfigProblems,
    ) -> Option<StorageConfig> {
        let servers = self.nats.as_ref().map(|nats| nats.options(directory, around, problems));

        match (self.store, servers) {
            (StoreKind::Embedded, _) => Some(StorageConfig::Embedded),
            (StoreKind::JetStream, None) => {
                let message = "a journal on JetStream needs the section `nats`";
                let problem = ConfigProblem::new(ProblemCode::MissingKey, &self.journal, message);
                problems.push(problem.help("add [nats] and url = \"nats://127.0.0.1:4222\""));
                None
            }
            (StoreKind::JetStream, Some(servers)) => {
                let system = self.nats.as_ref().and_then(|nats| nats.system_nkey_file.as_ref());
                let system = system.map(|named| found(named, directory, problems));
                let stream = self.stream.as_ref().map(|text| text.value.value.clone());
                let stream = stream.unwrap_or_else(|| format!("ORGANISM-{organism}"));
                let journal = jetstream::Options {
                    organism: organism.to_owned(),
                    stream,
                    partition: 0,
                    partitions: self.partitions,
                    replicas: self.replicas,
                    durability: self.durability,
                    system: match system {
                        Some(path) => Some(Box::new(NatsCredentials::Nkey(path?))),
                        None => None,
                    },
                    known_keys: self.proof.known_keys.clone(),
                    checkpoints: self.proof.checkpoints(directory),
                };

                Some(StorageConfig::JetStream { servers: Box::new(servers?), journal })
            }
        }
    }
}

impl Config {
    /// Returns a text that identifies the journal in error messages: the data directory or, for a
    /// journal on JetStream, the stream and the directory of its projection.
    pub fn journal_name(&self) -> String {
        match &self.storage {
            StorageConfig::Embedded => self.data.display().to_string(),
            StorageConfig::JetStream { journal, .. } => {
                format!("{} with its projection in {}", journal.stream(), self.data.display())
            }
        }
    }
}

impl DeclaredNats {
    fn options(
        &self,
        directory: &Path,
        around: &ConfigEnvironment,
        problems: &mut ConfigProblems,
    ) -> Option<nats::Options> {
        let servers = self.servers.iter().filter_map(|text| address(text, problems)).collect();
        let credentials = self.credentials(directory, around, problems);
        let ca = self.ca_file.as_ref().map(|named| authority(named, directory, problems));
        let ca = match ca {
            Some(found) => Some(found?),
            None => None,
        };

        Some(nats::Options { servers, credentials: credentials?, ca })
    }

    fn credentials(
        &self,
        directory: &Path,
        around: &ConfigEnvironment,
        problems: &mut ConfigProblems,
    ) -> Option<NatsCredentials> {
        let ways = [&self.credentials_file, &self.nkey_file, &self.user];
        let password = self.password_env.is_some() || self.password_file.is_some();
        let other = self.credentials_file.is_some() || self.nkey_file.is_some();
        if ways.iter().filter(|way| way.is_some()).count() > 1 || (password && other) {
            let message = "`nats` says in several ways as whom to connect";
            let help = "keep one of `credentials_file`, `nkey_file` and `user`";
            problems.push(
                ConfigProblem::new(ProblemCode::WrittenTwice, &self.place, message).help(help),
            );
            return None;
        }

        if let Some(named) = &self.credentials_file {
            return found(named, directory, problems).map(NatsCredentials::File);
        }

        if let Some(named) = &self.nkey_file {
            return found(named, directory, problems).map(NatsCredentials::Nkey);
        }

        let password = self.password_env.as_ref().or(self.password_file.as_ref());
        let Some(user) = &self.user else {
            let Some(password) = password else { return Some(NatsCredentials::Anonymous) };
            let message = "`nats` has a password and no user";
            let problem = ConfigProblem::new(ProblemCode::MissingKey, &password.place, message);
            problems.push(problem.help("add user = \"name\", or take the password out"));
            return None;
        };

        let password = match (&self.password_env, &self.password_file) {
            (Some(named), None) => variable(named, around, problems)?,
            (None, Some(named)) => {
                let path = found(named, directory, problems)?;
                file::text(&path).unwrap_or_default().trim().to_owned()
            }
            _ => {
                let message = "`user` of the section `nats` needs one password";
                let help = "add password_file = \"path\" or password_env = \"NAME\"";
                problems.push(
                    ConfigProblem::new(ProblemCode::MissingKey, &user.place, message).help(help),
                );
                return None;
            }
        };

        let user = user.value.value.clone();
        let variable = self.password_env.as_ref().map(|named| named.value.value.clone());
        Some(NatsCredentials::Password { user, password: NatsPassword(password), variable })
    }
}

fn address(text: &Located<ExpandedText>, problems: &mut ConfigProblems) -> Option<String> {
    let address = text.value.value.as_str();
    let (message, help) = if address.contains('@') {
        let help = "write `user` and `password_file`, or `credentials_file`";
        ("`url` holds credentials, which belong elsewhere", help)
    } else if nats::is_address(address) {
        return Some(address.to_owned());
    } else {
        (
            "`url` is no address of a NATS server",
            "write \"nats://host:4222\" or \"tls://host:4222\"",
        )
    };

    problems.push(ConfigProblem::new(ProblemCode::BadAddress, &text.place, message).help(help));
    None
}

/// Returns the full path of the file that `named` names. If the file cannot be read, reports this
/// and returns `None`.
fn found(
    named: &Located<ExpandedText>,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Option<PathBuf> {
    let text = file::named_text(named, directory, "file", ProblemCode::SecretMissing, problems);
    text.map(|_| directory.join(&named.value.value))
}

/// Returns the full path of the file with the certificates of the NATS servers' authority. If the
/// file cannot be read or contains no certificate, reports this and returns `None`.
fn authority(
    named: &Located<ExpandedText>,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> Option<PathBuf> {
    let text = file::named_text(named, directory, "file", ProblemCode::SecretMissing, problems)?;
    let Err(detail) = nats::check_certificates(text.as_bytes()) else {
        return Some(directory.join(&named.value.value));
    };

    let message = format!("the file `{}` {detail}", named.value.written);
    let help = "name a PEM file with the certificate of the authority that signed the certificates \
                of the servers";
    let problem = ConfigProblem::new(ProblemCode::CertificateMissing, &named.place, message);
    problems.push(problem.help(help));
    None
}

fn variable(
    named: &Located<ExpandedText>,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<String> {
    let name = named.value.value.as_str();
    let value = around.variable(name).filter(|value| !value.trim().is_empty());
    if value.is_none() {
        let message = "the variable of `password_env` is not set or empty";
        let help = "set it in the environment, or name a file in `password_file`";
        problems
            .push(ConfigProblem::new(ProblemCode::SecretMissing, &named.place, message).help(help));
    }

    value.map(|value| value.trim().to_owned())
}

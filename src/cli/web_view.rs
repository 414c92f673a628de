//! The web view of `organism serve` and of `organism run --web`: its options, its token, and its
//! OS threads.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::runtime::{Builder, Runtime};

use crate::audit::VerifyOptions;
use crate::config::Config;
use crate::ids::ListenerName;
use crate::limits;
use crate::organism::operator;
use crate::thread_priority;
use crate::web::{
    OperateOptions, TlsFiles, ViewError, ViewOptions, ViewPerson, ViewToken, WebView,
};

use super::exit::CommandFailure;
use super::render::put;
use super::startup;

/// Default address of the web view.
pub(super) const LISTEN: &str = "127.0.0.1:7717";

/// Options of a web view that all commands with a web view share.
#[derive(Debug, clap::Args)]
pub(super) struct ViewArgs {
    /// Person who opens the view: an operator or a client of the config. If the config has no
    /// operators, the user of this command counts as an operator, with the login name as NAME.
    /// Default: a viewer without a name.
    #[arg(long = "as", value_name = "NAME")]
    pub person: Option<String>,
    /// Certificate chain in PEM, which an address beyond loopback needs.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM, which no other user may read.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name under which browsers reach the view, besides the names of this machine. May be
    /// repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

/// Content of a web view: the journals that it shows, and the options for their verification.
pub(super) struct ViewContent {
    pub data: PathBuf,
    pub organism: Option<String>,
    /// Options of the pages on which an operator can act; `None` for a read-only view.
    pub operate: Option<OperateOptions>,
    pub proof: VerifyOptions,
}

/// A web view with the OS threads on which it runs.
pub(super) struct OpenView {
    view: Option<WebView>,
    runtime: Option<Runtime>,
}

impl Drop for OpenView {
    fn drop(&mut self) {
        drop(self.view.take());
        // A query that still runs must not hold up the end of the command.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ViewArgs {
    /// Whether the command line contains any of these options.
    pub fn is_given(&self) -> bool {
        let is_tls_given = self.tls_cert.is_some() || self.tls_key.is_some();
        self.person.is_some() || is_tls_given || !self.hosts.is_empty()
    }

    /// Returns the person that `--as` names, and the token of the view. If the person is a client
    /// that has a secret in the config, the token is this secret.
    ///
    /// For any other person, the token is `None`. The caller must then generate a token and show it
    /// on the terminal. Therefore, returns an error if there is no secret and standard output is no
    /// terminal.
    pub fn person(
        &self,
        config: Option<&Config>,
    ) -> anyhow::Result<(ViewPerson, Option<ViewToken>)> {
        let person = match (&self.person, config) {
            (Some(name), Some(config)) => named(config, name)?,
            _ => ViewPerson::Viewer,
        };
        let secret = match (&person, config) {
            (ViewPerson::Client(client), Some(config)) => config.secret_of(client),
            _ => None,
        };

        let token = secret.as_ref().map(ViewToken::of_secret);
        if token.is_none() && !std::io::stdout().is_terminal() {
            let text = "standard output is no terminal, and the token of the web view is shown on a \
                        terminal alone, so that no file keeps it; start the command in a terminal, \
                        or name a client with a secret (secret_env, secret_file) with --as: the \
                        secret is then the token";
            return Err(CommandFailure::usage(text).into());
        }
        Ok((person, token))
    }

    /// Opens the view and prints its address. The address contains the token if the token was
    /// generated. `option` is the name of the command's option for the address, such as `--listen`,
    /// for error messages.
    pub fn open(
        &self,
        listen: SocketAddr,
        option: &str,
        content: ViewContent,
        (person, token): (ViewPerson, Option<ViewToken>),
    ) -> anyhow::Result<OpenView> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let tls = files.map(|(certificate, key)| TlsFiles { certificate, key });
        if let Some(problem) = host_problem(&self.hosts) {
            return Err(CommandFailure::usage(problem).into());
        }

        let described = person.describe();
        let is_generated = token.is_none();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ViewContent { data, organism, operate, proof } = content;
        let hosts = self.hosts.clone();
        let options =
            ViewOptions { listen, tls, hosts, token, data, organism, person, operate, proof };

        let runtime = runtime()?;
        // Opened on a thread of the runtime, so that new threads inherit the low priority.
        let opened = runtime.block_on(runtime.spawn(WebView::open(options)))?;
        let view = opened.map_err(|error| {
            let advice = match &error {
                ViewError::Listen { .. } => format!("; {option} names another address"),
                _ => String::new(),
            };
            CommandFailure::usage(format!("{error}{advice}"))
        })?;

        let place = self.hosts.first().map_or_else(
            || view.address().to_string(),
            |host| format!("{host}:{}", view.address().port()),
        );
        if is_generated {
            put(&format!("{scheme}://{place}/#token={}\n", view.token().reveal()))?;
            note!("open this address in a browser ({described})");
        } else {
            note!("the web view is at {scheme}://{place}/ ({described}); the token is its secret");
        }
        Ok(OpenView { view: Some(view), runtime: Some(runtime) })
    }
}

/// Returns the reason why the names of `--host` are invalid; `None` if they are valid.
fn host_problem(hosts: &[String]) -> Option<String> {
    if hosts.len() > limits::WEB_HOSTS_MAX {
        return Some(format!("--host may be repeated {} times", limits::WEB_HOSTS_MAX));
    }
    let is_name = |host: &&String| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let wrong = hosts.iter().find(|host| !is_name(host))?;
    Some(format!("`{wrong}` is no host name; --host takes one without scheme, port and path"))
}

/// Makes the runtime of a web view. The runtime's OS threads have a low priority. The
/// pump never waits for one of these threads.
fn runtime() -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(limits::WEB_THREADS).thread_name("web-view").enable_all();
    builder.on_thread_start(|| thread_priority::lower(limits::WEB_NICENESS, "the web view"));
    Ok(startup::build_runtime(&mut builder)?)
}

/// Finds the person with this name in a config.
fn named(config: &Config, name: &str) -> anyhow::Result<ViewPerson> {
    let is_named = |known: &ListenerName| known.as_str() == name;
    if let Some((operator, _)) = config.operators.iter().find(|(known, _)| is_named(known)) {
        return Ok(ViewPerson::Operator(operator.clone()));
    }
    if let Ok(client) = startup::client(config, Some(name)) {
        return Ok(ViewPerson::Client(client));
    }

    let own = own_name().filter(|_| config.operators.is_empty());
    match own {
        Some(own) if is_named(&own) => Ok(ViewPerson::Operator(own)),
        own => {
            let hint = own.map(|own| {
                format!(
                    "; the config names no [operators], so the operator is the user of this \
                     command, `{own}`"
                )
            });
            let hint = hint.unwrap_or_default();
            let text = format!("`{name}` is neither an operator nor a client of this config{hint}");
            Err(CommandFailure::usage(text).into())
        }
    }
}

/// Returns the login name of the user of this process, which the organism also uses for this user's
/// requests. Returns `None` if the name is unknown or cannot be a name in a config.
fn own_name() -> Option<ListenerName> {
    let login = operator::this_user().login?;
    ListenerName::parse(&login).ok()
}

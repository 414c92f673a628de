//! `organism listener`: lists and installs the listeners that come with organism, and tests
//! programs of listener authors.

mod install;
mod list;
mod update;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};

use super::exit::{CommandExit, CommandFailure};
use crate::config;
use crate::envelope;
use crate::ids::PayloadName;
use crate::listener::conformance::{
    self, ChecklistLine, ConformanceOptions, HarnessTransport, TrialRequest,
};
use crate::nats;
use crate::plural::count;
use crate::schema::Schemas;
use crate::xml::scan::scan;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: ListenerVerb,
}

#[derive(Debug, Subcommand)]
enum ListenerVerb {
    /// List the listeners that come with organism.
    List(list::Args),
    /// Write a listener that comes with organism to a directory, or update one there.
    Install(install::Args),
    /// Test a program against the listener protocol.
    Test(TestArgs),
}

/// Starts the program as an organism would, and checks that it follows docs/PROTOCOL.md.
#[derive(Debug, clap::Args)]
struct TestArgs {
    /// File with a payload to send. May be given several times.
    #[arg(long, value_name = "FILE")]
    payload: Vec<PathBuf>,
    /// File of a schema with which the command validates the payloads that it sends and the
    /// listener's answers. May be given several times.
    #[arg(long, value_name = "XSD")]
    schema: Vec<PathBuf>,
    /// Payload name that the listener accepts, as `{namespace}local`, or as `local` if the schemas
    /// declare it only once. An example of the payload is sent. May be given several times.
    #[arg(long, value_name = "NAME", requires = "schema")]
    accepts: Vec<String>,
    /// Payload name that the listener may answer with. If this option is given, an answer with any
    /// other name is an error, and so is a listener that only acknowledges. May be given several
    /// times.
    #[arg(long, value_name = "NAME")]
    replies: Vec<String>,
    /// Maximum time until the listener sends its answer or its next heartbeat, such as 500ms or
    /// 10s.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    timeout: Duration,
    /// Address of a NATS server. The program is then tested as a listener on NATS. The server must
    /// demand no credentials. For TLS, the system's certificate authorities are trusted.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Also check previews, for a listener with `previews = true` in its config.
    #[arg(long)]
    previews: bool,
    /// Write the result of each check as one line of JSON.
    #[arg(long)]
    json: bool,
    /// The program and its arguments. Options of this command stand before the program.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        ListenerVerb::List(args) => list::run(&args),
        ListenerVerb::Install(args) => install::run(&args),
        ListenerVerb::Test(test) => test.run(),
    }
}

/// Parses a duration in the notation of the config. A number without a unit is in seconds, because
/// earlier versions of this option accepted only seconds.
fn patience(text: &str) -> Result<Duration, String> {
    let seconds = || text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let time = config::parse_duration(text).or_else(seconds).filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        "write a time with its unit, such as 500ms, 10s or 2m, and not zero".to_owned()
    })
}

impl TestArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let schemas = self.schemas()?;
        let requests = self.requests(&schemas)?;
        let replies = names(&self.replies, &schemas)?;
        let judge = |text: &str| judged(text, &schemas, &replies);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut done = 0;
        let mut good = 0;
        let mut report = |check: &ChecklistLine| {
            done += 1;
            good += usize::from(check.verdict.is_ok());
            self.show(check);
        };

        let options = ConformanceOptions {
            previews: self.previews,
            requests: &requests,
            patience: self.timeout,
            judge: &judge,
            must_reply: !replies.is_empty(),
        };
        let command = self.command.clone();
        let trial = conformance::run(command, self.transport(), options, &mut report);

        // The program has a process group of its own, so an interrupt of this command does not
        // reach it. The end of the trial kills it.
        let passed = runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut hangup = signal(SignalKind::hangup())?;
            tokio::select! {
                passed = trial => std::io::Result::Ok(Some(passed)),
                _ = interrupt.recv() => Ok(None),
                _ = terminate.recv() => Ok(None),
                _ = hangup.recv() => Ok(None),
            }
        })?;

        // A connection attempt under way must not keep an interrupted command alive.
        runtime.shutdown_background();
        let checks = count(done, "check");
        let Some(passed) = passed else {
            let text = format!("the test was interrupted: {good} of {checks} passed before");
            return Err(CommandFailure::new(CommandExit::TryAgain, text).into());
        };

        if !self.json {
            note!(
                "{good} of {checks} passed; the numbers are sections of PROTOCOL in the \
                 documentation"
            );
        }

        Ok(if passed { CommandExit::Done } else { CommandExit::WorkflowFailed }.into())
    }

    fn transport(&self) -> HarnessTransport {
        let servers = self.nats.clone().map(|url| nats::Options {
            servers: vec![url],
            credentials: nats::NatsCredentials::Anonymous,
            ca: None,
        });
        servers.map_or(HarnessTransport::Process, HarnessTransport::Nats)
    }

    fn show(&self, check: &ChecklistLine) {
        let claim = &check.claim;
        let why = check.verdict.as_ref().err();
        if self.json {
            let line = serde_json::json!({ "check": claim, "ok": why.is_none(), "found": why });
            put_line!("{line}");
        } else if let Some(why) = why {
            put_line!("  FAIL  {claim}\n        {why}");
        } else {
            put_line!("  ok    {claim}");
        }
    }

    fn schemas(&self) -> anyhow::Result<Schemas> {
        let mut schemas = Schemas::default();
        for path in &self.schema {
            schemas.add_file(path).map_err(|problems| {
                let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
                CommandFailure::new(CommandExit::Config, lines.join("\n"))
            })?;
        }

        Ok(schemas)
    }

    /// Makes the requests to send: first the payload of each given file, then an example of each
    /// payload that the listener accepts.
    fn requests(&self, schemas: &Schemas) -> anyhow::Result<Vec<TrialRequest>> {
        let mut requests = Vec::new();
        for path in &self.payload {
            let text = std::fs::read(path).map_err(|e| {
                CommandFailure::usage(format!("cannot read {}: {e}", path.display()))
            })?;
            let request = request(&text, schemas).map_err(|why| {
                CommandFailure::new(CommandExit::InvalidData, format!("{}: {why}", path.display()))
            })?;
            requests.push(request);
        }

        for name in names(&self.accepts, schemas)? {
            let payload = example(&name, schemas)?;
            requests.push(TrialRequest { name, payload });
        }

        if requests.is_empty() {
            return Err(CommandFailure::usage(self.nothing_to_send()).into());
        }

        Ok(requests)
    }

    /// Returns the message for a command line without a payload to send. If an option of this
    /// command stands after the program, the message explains that such an option belongs to the
    /// program.
    fn nothing_to_send(&self) -> String {
        let is_own = |word: &&String| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            ["--payload", "--schema", "--accepts"].contains(&name)
        };
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        match self.command.iter().find(is_own) {
            Some(option) => format!(
                "no payload to send: {option} stands after the program, and so belongs to it; write \
                 the options first: organism listener test --payload FILE {program}"
            ),
            None => "no payload to send: give --payload FILE, or --schema XSD and --accepts NAME"
                .to_owned(),
        }
    }
}

fn request(text: &[u8], schemas: &Schemas) -> Result<TrialRequest, String> {
    let scanned = scan(text).map_err(|violation| violation.to_string())?;
    let root = text.get(scanned.root).unwrap_or_default();
    valid(&scanned.name, root, schemas)?;
    Ok(TrialRequest { name: scanned.name, payload: String::from_utf8_lossy(root).into_owned() })
}

fn example(name: &PayloadName, schemas: &Schemas) -> Result<String, CommandFailure> {
    schemas.example(name).ok_or_else(|| {
        let message = format!(
            "no example of {name} can be generated from the schema; give one with --payload FILE"
        );
        CommandFailure::usage(message)
    })
}

/// Checks one payload of an answer against the schemas and the permitted replies. Returns the
/// reason if the payload does not pass.
fn judged(text: &str, schemas: &Schemas, replies: &[PayloadName]) -> Result<(), String> {
    let scanned = scan(text.as_bytes()).map_err(|violation| violation.to_string())?;
    let name = scanned.name;
    if *name.namespace == *envelope::NAMESPACE && &*name.local == "answer" {
        let advice =
            "<e:answer> needs the attributes `call` and `attempt`, as the delivery has them";
        return Err(advice.to_owned());
    }
    if *name.namespace == *envelope::NAMESPACE {
        return Err("the envelope is not a listener's to write; answer with payloads".to_owned());
    }

    if !replies.is_empty() && !replies.contains(&name) {
        return Err(format!("{name} is not among its replies"));
    }

    valid(&name, text.get(scanned.root).unwrap_or_default().as_bytes(), schemas)
}

/// Validates a payload against the schemas. Without schemas, every payload is valid.
fn valid(name: &PayloadName, text: &[u8], schemas: &Schemas) -> Result<(), String> {
    if schemas.names().next().is_none() {
        return Ok(());
    }

    schemas.validate(name, text).map_err(|findings| {
        let findings: Vec<_> = findings.iter().map(ToString::to_string).collect();
        findings.join("; ")
    })
}

fn names(written: &[String], schemas: &Schemas) -> Result<Vec<PayloadName>, CommandFailure> {
    written.iter().map(|text| named(text, schemas)).collect()
}

/// Resolves a payload name. Accepts the full name of a payload in the schemas, or a local name that
/// occurs in the schemas exactly once. If there are no schemas, accepts any name.
fn named(text: &str, schemas: &Schemas) -> Result<PayloadName, CommandFailure> {
    let name = PayloadName::parse(text).map_err(|e| CommandFailure::usage(e.to_string()))?;
    if schemas.names().next().is_none() || schemas.contains(&name) {
        return Ok(name);
    }

    let mut same = schemas.names().filter(|known| known.local == name.local);

    match (name.namespace.is_empty(), same.next(), same.next()) {
        (true, Some(only), None) => Ok(only.clone()),
        (true, Some(one), Some(two)) => {
            Err(CommandFailure::usage(format!("`{text}` may be {one} or {two}; write it in full")))
        }
        _ => Err(CommandFailure::usage(format!("no schema defines {name}"))),
    }
}

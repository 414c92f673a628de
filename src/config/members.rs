//! Reads the declared clients, listeners and agents, each from its table.

use std::time::Duration;

use crate::contract::{Approval, Budget, Contract, Gather, Role};
use crate::ids::{ListenerName, ThreadId};
use crate::limits;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::read::TableReader;
use super::source_text::SourceRange;
use super::tree::{ExpandedText, Located};
use super::undo::{self, DeclaredUndo};
use super::{ActionTransport, FinalMode, MemoryScope};
use crate::model::ToolChoice;

/// A client, listener or agent, as the config declares it.
pub(super) struct DeclaredMember {
    pub name: Located<ListenerName>,
    pub role: Role,
    pub description: String,
    pub schema: Vec<Located<ExpandedText>>,
    pub accepts: Vec<Located<ExpandedText>>,
    pub replies: Vec<Located<ExpandedText>>,
    pub peers: Vec<Located<ExpandedText>>,
    /// Range of the key `peers` in the config's text; without this key, the range of the member's
    /// name.
    pub peers_place: SourceRange,
    pub forward: bool,
    pub gather: Gather,
    pub timeout: Duration,
    pub attempts: u32,
    pub concurrency: u32,
    pub serial_per_thread: bool,
    pub backlog: usize,
    pub actions_per_turn: u32,
    /// Condition under which calls to the member need an approval. `None` if the schemas of the
    /// member's payloads determine the condition.
    pub approval: Option<Approval>,
    /// Range of the key `approval` in the config's text; `None` without this key.
    pub approval_place: Option<SourceRange>,
    pub patience: Option<Duration>,
    /// Range of the key `approval_timeout` in the config's text; `None` without a valid time-out.
    pub patience_place: Option<SourceRange>,
    /// Maximum time that the listener takes for a preview: a description of a call's effect, for
    /// the person who approves the call. `None` if the listener gives no previews.
    pub previews: Option<Duration>,
    /// Range of the key `previews` in the config's text; `None` if the listener gives no previews.
    pub previews_place: Option<SourceRange>,
    /// Budget of an agent; empty for other members.
    pub budget: Budget,
    /// Range of the budget's key `money` in the config's text; `None` without a budget of money.
    pub money_place: Option<SourceRange>,
    /// Secret by which a client proves its identity; `None` if the config names no secret.
    pub secret: Option<DeclaredSecret>,
    /// Time for which the pump remembers the idempotency key of a client's request. After this
    /// time, a request with the same key counts as new. `None` if keys do not expire.
    pub keys_for: Option<Duration>,
    /// Whether the client may see the text that models write in the threads that the client opened.
    pub steps: bool,
    pub process: Option<DeclaredProcess>,
    /// For a listener: the client in whose name the listener's processes may send requests. `None`
    /// if the config names no client.
    pub client: Option<Located<ExpandedText>>,
    /// Names of the primitives, such as `wait`, that the member may use; `None` if the config does
    /// not list them.
    pub core: Option<Vec<String>>,
    /// Range of the key that puts the listener on NATS, in the config's text. `None` if the
    /// listener is not on NATS.
    pub nats: Option<SourceRange>,
    pub agent: Option<DeclaredAgent>,
    pub undo: Vec<DeclaredUndo>,
}

/// Source of a client's secret.
pub(super) enum DeclaredSecret {
    Variable(Located<ExpandedText>),
    File(Located<ExpandedText>),
}

/// Settings of a listener that is a child process.
pub(super) struct DeclaredProcess {
    pub command: Vec<Located<ExpandedText>>,
    pub env: Vec<(Located<String>, Located<ExpandedText>)>,
    pub instances: u32,
}

/// Settings of an agent.
pub(super) struct DeclaredAgent {
    pub model: Option<Located<ExpandedText>>,
    pub memory: MemoryScope,
    pub max_iterations: u32,
    pub transport: ActionTransport,
    /// Range of the value of `transport` in the config's text; without such a value, the range of
    /// the agent's name.
    pub transport_place: SourceRange,
    pub final_name: Option<Located<ExpandedText>>,
    pub final_format: FormatWord,
    /// Range of the key `final_format` in the config's text; without this key, the range of the
    /// agent's name.
    pub final_format_place: SourceRange,
    pub final_by: FinalMode,
    /// Range of the key `final_by`, which states how the agent ends its call, in the config's text.
    /// Without this key, the range of the agent's name.
    pub final_by_place: SourceRange,
    /// Path of the JSON Schema for final payloads in the format `json`, if the config names one.
    pub final_schema: Option<Located<ExpandedText>>,
    pub tool_choice: Option<ToolChoice>,
    pub notice: bool,
    /// Whether the config sets `timeout`.
    pub has_timeout: bool,
    pub prompt: Vec<(Located<String>, Located<ExpandedText>)>,
}

/// Format of final payloads, as the config states it. For the format `json`, the JSON Schema is
/// read later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FormatWord {
    #[default]
    Text,
    Markdown,
    Json,
}

/// Parses a member's name, which must be one token: lowercase letters, digits and hyphens. If the
/// name is no token, reports this and returns `None`.
pub(super) fn token(
    name: &Located<String>,
    problems: &mut ConfigProblems,
) -> Option<Located<ListenerName>> {
    match ListenerName::parse(&name.value) {
        Ok(value) => Some(Located { value, place: name.place.clone() }),
        Err(error) => {
            let help = match tokenized(&name.value) {
                Some(token) => format!("did you mean `{token}`?"),
                None => error.expected.to_owned(),
            };
            let problem = ConfigProblem::new(ProblemCode::BadName, &name.place, error.to_string());
            problems.push(problem.help(help));
            None
        }
    }
}

/// Converts a text to a similar valid token. Returns `None` if the text contains no usable
/// characters.
fn tokenized(text: &str) -> Option<String> {
    let good = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let token: String = text.chars().map(good).collect();
    let token = token.trim_matches(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit());
    ListenerName::parse(token).is_ok().then(|| token.to_owned())
}

/// Parses the name of a member. Reports the name and returns `None` in two cases:
///
/// - The name is invalid.
/// - The name is reserved, because records use it for another sender, such as the core.
pub(super) fn member_name(
    name: &Located<String>,
    reader: &mut TableReader<'_>,
) -> Option<Located<ListenerName>> {
    if [ListenerName::CORE, "organism", "operator", "hosted-process", "unknown-caller"]
        .contains(&name.value.as_str())
    {
        let message = format!("`{}` is a name of the core", name.value);
        let problem = ConfigProblem::new(ProblemCode::ReservedName, &name.place, message);
        reader.problem(problem.help("choose another name"));
        return None;
    }

    token(name, reader.problems)
}

/// Checks the names of all members that others call, as [`check_callee_name`] does.
pub(super) fn check_callee_names(members: &[DeclaredMember], problems: &mut ConfigProblems) {
    for member in members.iter().filter(|member| member.role != Role::Client) {
        check_callee_name(member.name.value.as_str(), &member.name.place, problems);
    }
}

/// Reports the name of a member that others call, or of a workflow, if the name means something
/// else in `organism pause`: `all`, or the id of a thread. Not for stored configs, because earlier
/// versions of the program accepted such names.
pub(super) fn check_callee_name(name: &str, place: &SourceRange, problems: &mut ConfigProblems) {
    let meaning = match name {
        "all" => "everything",
        other if ThreadId::parse(other).is_ok() => "a thread",
        _ => return,
    };

    let message = format!("`{name}` means {meaning} in `organism pause`");
    let problem = ConfigProblem::new(ProblemCode::ReservedName, place, message);
    problems.push(problem.help("choose another name"));
}

pub(super) fn client(name: &Located<String>, read: &mut TableReader<'_>) -> Option<DeclaredMember> {
    let name = member_name(name, read);
    read.required("peers", "[\"the listeners it may send to\"]");
    let secret = client_secret(read);
    let steps = read.flag("steps").unwrap_or_default();
    let keys_for = read.duration("keys_for", limits::CLIENT_KEY_TIME_CEILING);
    let declared = common(Role::Client, name, read);
    let declared = declared.map(|common| DeclaredMember { secret, steps, keys_for, ..common });
    if let Some(declared) = declared.as_ref().filter(|d| d.peers.is_empty()) {
        let place = declared.peers_place.clone();
        if place.span != read.place.span && read.is_empty_list("peers") {
            read.empty("peers", &place);
        }
    }

    declared
}

fn client_secret(read: &mut TableReader<'_>) -> Option<DeclaredSecret> {
    let variable = read.text("secret_env");
    let file = read.text("secret_file");
    if let (Some(_), Some(file)) = (&variable, &file) {
        let message = "the secret is named twice, by variable and by file";
        let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &file.place, message);
        read.problem(problem.help("keep one of secret_env and secret_file"));
    }

    variable.map(DeclaredSecret::Variable).or(file.map(DeclaredSecret::File))
}

/// Reads the settings that clients, listeners and agents have in common. Reports every problem;
/// returns `None` if the name is invalid.
fn common(
    role: Role,
    name: Option<Located<ListenerName>>,
    read: &mut TableReader<'_>,
) -> Option<DeclaredMember> {
    let gather = [("all", Gather::All), ("first", Gather::First)];
    let listens = role != Role::Client;
    // People have none of these settings: a question is sent once and has no time-out by default.
    let is_program = listens && role != Role::Human;
    let description = read.text("description").map(|text| text.value.value).unwrap_or_default();
    let schema = if listens { read.one_or_more("schema") } else { Vec::new() };
    let timeout = is_program.then(|| read.duration("timeout", limits::TIMEOUT_CEILING)).flatten();
    let attempts = is_program.then(|| read.count32("attempts", limits::ATTEMPTS_CEILING)).flatten();
    let backlog = listens.then(|| read.count("backlog", limits::BACKLOG_CEILING)).flatten();
    let calls = role != Role::Human;
    let gather = calls.then(|| read.choice("gather", &gather)).flatten();
    let (accepts, replies) = if listens {
        (read.list("accepts"), read.list("replies"))
    } else {
        (Vec::new(), Vec::new())
    };

    let peers = if role == Role::Human { Vec::new() } else { read.list("peers") };
    Some(DeclaredMember {
        name: name?,
        role,
        description,
        schema,
        accepts,
        replies,
        peers,
        peers_place: read.place_of("peers"),
        forward: false,
        gather: gather.unwrap_or_default(),
        timeout: timeout.unwrap_or(limits::TIMEOUT_DEFAULT),
        attempts: attempts.unwrap_or(limits::ATTEMPTS_DEFAULT),
        concurrency: limits::CONCURRENCY_DEFAULT,
        serial_per_thread: role == Role::Agent,
        backlog: backlog.and_then(|n| usize::try_from(n).ok()).unwrap_or(limits::BACKLOG_DEFAULT),
        actions_per_turn: limits::ACTIONS_PER_TURN_DEFAULT,
        approval: None,
        approval_place: None,
        patience: None,
        patience_place: None,
        previews: None,
        previews_place: None,
        budget: Budget::default(),
        money_place: None,
        secret: None,
        keys_for: None,
        steps: false,
        process: None,
        client: None,
        core: None,
        nats: None,
        undo: Vec::new(),
        agent: None,
    })
}

/// The places in a config where the payloads that a listener accepts can be declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaSource {
    /// Payloads are declared only in the listener's own `schema`.
    File,
    /// Payloads are declared in the listener's own `schema`, or in the section `payloads`.
    FileOrSection,
    /// Payloads may be declared in the listener's own `schema` or in the section `payloads`. If an
    /// agent or a human has no key `accepts`, only workflows declare its payloads.
    Workflows,
}

/// Reports the missing keys in a member's declaration of its payloads, and an empty list `accepts`.
/// The required keys are:
///
/// - `accepts`
/// - `replies`, for a human
/// - `schema`, if only schema files may declare payloads
///
/// If workflows may declare the payloads, an agent or a human without `accepts` needs none of these
/// keys.
fn require_accepted_payloads(schemas: SchemaSource, role: Role, read: &mut TableReader<'_>) {
    if schemas == SchemaSource::Workflows && role != Role::Listener && !read.has("accepts") {
        return;
    }
    if schemas == SchemaSource::File {
        read.required("schema", "\"the file that declares its payloads.xsd\"");
    }
    read.required("accepts", "[\"the payloads it takes\"]");
    if read.is_empty_list("accepts") {
        let place = read.place_of("accepts");
        read.empty("accepts", &place);
    }
    if role == Role::Human {
        read.required("replies", "[\"the payloads they answer with\"]");
    }
}

pub(super) fn listener(
    name: &Located<String>,
    schemas: SchemaSource,
    read: &mut TableReader<'_>,
) -> Option<DeclaredMember> {
    let name = member_name(name, read);
    let hosted = hosted(read);
    require_accepted_payloads(schemas, Role::Listener, read);
    let forward = read.flag("forward").unwrap_or_default();
    let serial_per_thread = read.flag("serial_per_thread").unwrap_or_default();
    let (approval, patience) = approval(read);
    let approval_place = read.has("approval").then(|| read.place_of("approval"));
    let patience_place = patience.map(|_| read.place_of("approval_timeout"));
    let previews = previews(read);
    let previews_place = previews.map(|_| read.place_of("previews"));
    let client = read.text("client");
    let core = core(Role::Listener, read);
    let undo = undo::read(read);
    let common = common(Role::Listener, name, read)?;
    let (concurrency, process, nats) = match hosted {
        HostKind::Here(process) => (process.instances, Some(process), None),
        HostKind::OnNats { concurrency, place } => (concurrency, None, Some(place)),
    };

    Some(DeclaredMember {
        forward,
        serial_per_thread,
        concurrency,
        approval,
        approval_place,
        patience,
        patience_place,
        previews,
        previews_place,
        process,
        client,
        core,
        nats,
        undo,
        ..common
    })
}

/// How a declared listener is hosted.
enum HostKind {
    /// The listener runs as child processes of this program.
    Here(DeclaredProcess),
    /// The listener is a program that connects over NATS. An operator starts this program.
    OnNats { concurrency: u32, place: SourceRange },
}

fn hosted(read: &mut TableReader<'_>) -> HostKind {
    let concurrency = read.count32("concurrency", limits::CONCURRENCY_CEILING);
    if read.flag("nats").unwrap_or_default() {
        for key in ["command", "instances", "env", "client"] {
            if !read.has(key) {
                continue;
            }
            let message = format!("`{key}` is for programs started here, and this one is on NATS");
            let problem = ConfigProblem::new(ProblemCode::UnknownKey, &read.place_of(key), message);
            read.problem(problem.help(format!("take {key} out, or nats = true")));
        }
        let concurrency = concurrency.unwrap_or(limits::CONCURRENCY_DEFAULT);
        return HostKind::OnNats { concurrency, place: read.place_of("nats") };
    }

    read.required("command", "[\"the program\", \"its arguments\"], or nats = true");
    if read.has("concurrency") {
        let message = "`concurrency` is for listeners on NATS; this one has `instances`";
        let problem =
            ConfigProblem::new(ProblemCode::UnknownKey, &read.place_of("concurrency"), message);
        read.problem(problem.help("write instances = 2, or as many as are wanted"));
    }

    let instances = read.count32("instances", limits::INSTANCES_CEILING);
    HostKind::Here(DeclaredProcess {
        command: read.one_or_more("command"),
        env: read.free("env"),
        instances: instances.unwrap_or(limits::INSTANCES_DEFAULT),
    })
}

/// Reads the names of the primitives, such as `wait`, that a member may use. Returns `None` if the
/// config has no such list.
fn core(role: Role, read: &mut TableReader<'_>) -> Option<Vec<String>> {
    let words: Vec<_> = Contract::core_words_of(role).collect();
    read.choices("core", &words)
}

fn approval(read: &mut TableReader<'_>) -> (Option<Approval>, Option<Duration>) {
    let words = [
        ("never", Approval::Never),
        ("dangerous", Approval::Dangerous),
        ("always", Approval::Always),
    ];
    let approval = read.choice("approval", &words);
    let patience = read.duration("approval_timeout", limits::PATIENCE_CEILING);
    (approval, patience)
}

/// Reads the maximum time that a listener takes for a preview: a description of a call's effect,
/// for the person who approves the call. Returns `None` if the listener gives no previews.
fn previews(read: &mut TableReader<'_>) -> Option<Duration> {
    let gives_previews = read.flag("previews").unwrap_or_default();
    let timeout = read.duration("preview_timeout", limits::PREVIEW_TIMEOUT_CEILING);
    if !gives_previews {
        if timeout.is_some() {
            let message = "there is a time-out for previews that are never asked for";
            let place = read.place_of("preview_timeout");
            let problem = ConfigProblem::new(ProblemCode::MissingKey, &place, message);
            read.problem(problem.help("add previews = true"));
        }
        return None;
    }

    Some(timeout.unwrap_or(limits::PREVIEW_TIMEOUT_DEFAULT))
}

/// Reads a listener that is a person. Without a configured time-out, the person has unlimited time
/// to answer. Returns `None` if the name is invalid.
pub(super) fn human(
    name: &Located<String>,
    schemas: SchemaSource,
    read: &mut TableReader<'_>,
) -> Option<DeclaredMember> {
    let name = member_name(name, read);
    require_accepted_payloads(schemas, Role::Human, read);
    let patience = read.duration("timeout", limits::PATIENCE_CEILING);
    let common = common(Role::Human, name, read)?;
    Some(DeclaredMember { patience, ..common })
}

pub(super) fn agent(
    name: &Located<String>,
    schemas: SchemaSource,
    read: &mut TableReader<'_>,
) -> Option<DeclaredMember> {
    let name = member_name(name, read);
    require_accepted_payloads(schemas, Role::Agent, read);

    let transport = transport(read);
    let transport_place = read.text("transport").map_or_else(|| read.place.clone(), |t| t.place);
    let tool_choice = tool_choice(read, transport);
    let (final_format, final_schema) = final_format(read);

    let by = [("action", FinalMode::Action), ("text", FinalMode::Text)];
    let memory = [("thread", MemoryScope::Thread), ("own", MemoryScope::Own)];
    let iterations = read.count32("max_iterations", limits::ITERATIONS_CEILING);

    let agent = DeclaredAgent {
        model: read.required_text("model", "\"one of the models of this file\""),
        memory: read.choice("memory", &memory).unwrap_or_default(),
        max_iterations: iterations.unwrap_or(limits::ITERATIONS_DEFAULT),
        transport,
        transport_place,
        final_name: read.text("final"),
        final_format,
        final_format_place: read.place_of("final_format"),
        final_by: read.choice("final_by", &by).unwrap_or_default(),
        final_by_place: read.place_of("final_by"),
        final_schema,
        tool_choice,
        notice: read.flag("notice").unwrap_or(true),
        has_timeout: read.has("timeout"),
        prompt: read.free("prompt"),
    };

    let actions = read.count32("max_actions_per_turn", limits::ACTIONS_PER_TURN_CEILING);
    let concurrency = read.count32("concurrency", limits::CONCURRENCY_CEILING);
    let nats = read.flag("nats").unwrap_or_default().then(|| read.place_of("nats"));

    let tokens = read.count("tokens", limits::TOKENS_CEILING);
    let budget = Budget { tokens, money: read.money("money") };
    let money_place = read.place_of("money");

    let core = core(Role::Agent, read);
    let common = common(Role::Agent, name, read)?;

    Some(DeclaredMember {
        budget,
        money_place: budget.money.map(|_| money_place),
        actions_per_turn: actions.unwrap_or(limits::ACTIONS_PER_TURN_DEFAULT),
        concurrency: concurrency.unwrap_or(limits::CONCURRENCY_DEFAULT),
        agent: Some(agent),
        core,
        nats,
        ..common
    })
}

fn transport(read: &mut TableReader<'_>) -> ActionTransport {
    let words = [
        ("xml", ActionTransport::Xml),
        ("native", ActionTransport::Native),
        ("xml-final", ActionTransport::XmlFinal),
    ];
    read.choice("transport", &words).unwrap_or_default()
}

/// Reads `tool_choice`, which states whether a model may or must call native tools. Returns `None`
/// if the key is missing. Reports an unusable value and returns `None` in these cases:
///
/// - The value is invalid.
/// - The agent's transport has no native tools.
/// - The value would never let the agent end its call.
fn tool_choice(read: &mut TableReader<'_>, transport: ActionTransport) -> Option<ToolChoice> {
    let words = [
        ("auto", ToolChoice::Auto),
        ("required", ToolChoice::Required),
        ("none", ToolChoice::None),
    ];
    let choice = read.choice("tool_choice", &words)?;
    let place = read.text("tool_choice").map_or_else(|| read.place.clone(), |text| text.place);
    let (message, help) = match (transport, choice) {
        (ActionTransport::Xml, _) => (
            "with transport = \"xml\" there are no native tools to choose",
            "leave tool_choice out, or take another transport",
        ),
        (ActionTransport::XmlFinal, ToolChoice::Required) => (
            "with tool_choice = \"required\" the final report could never be written",
            "write \"auto\", or leave tool_choice out",
        ),
        (ActionTransport::Native, ToolChoice::None) => (
            "with tool_choice = \"none\" the agent could do nothing, not even end its task",
            "write \"auto\" or \"required\", or leave tool_choice out",
        ),
        _ => return Some(choice),
    };

    read.problem(ConfigProblem::new(ProblemCode::ToolChoice, &place, message).help(help));
    None
}

/// Reads the format of an agent's final payloads. For the format `json`, also reads the path of the
/// JSON Schema.
fn final_format(read: &mut TableReader<'_>) -> (FormatWord, Option<Located<ExpandedText>>) {
    let words = [
        ("text", FormatWord::Text),
        ("markdown", FormatWord::Markdown),
        ("json", FormatWord::Json),
    ];
    let format = read.choice("final_format", &words).unwrap_or_default();
    let schema = match format {
        FormatWord::Json => read.required_text("final_schema", "\"report.schema.json\""),
        _ => read.text("final_schema"),
    };

    if let Some(schema) = schema.as_ref().filter(|_| format != FormatWord::Json) {
        let message = "final_schema is for reports in JSON, and final_format is another";
        let problem = ConfigProblem::new(ProblemCode::ReportSchema, &schema.place, message);
        read.problem(problem.help("write final_format = \"json\", or leave final_schema out"));
    }

    (format, schema)
}

//! The listeners of docs/LISTENERS.md. Each listener is taken from its section of the page. If the
//! interpreter of the listener is installed, a host runs the listener as the section says.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::{Message, MessageKind, Payload};
use organism::ids::PayloadName;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, message, name, repository};
use crate::docs::blocks::block;

/// Environment variable that lists the interpreters that must be installed. `.ci/run` sets it.
const REQUIRED: &str = "ORGANISM_EXAMPLES";
/// File with the languages whose examples did not run. `.ci/run` prints this file.
const SKIPPED: &str = "target/examples-skipped.txt";
const NAMESPACE: &str = "urn:example:greeter";

/// One section of the page.
struct Example {
    language: String,
    file: String,
    command: Vec<String>,
    program: String,
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/LISTENERS.md")).unwrap()
}

/// Returns the first block of indented lines in a text, without the indent.
fn indented(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("    "));
    let block = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    block.map(|line| line.get(4..).unwrap_or_default().to_owned() + "\n").collect()
}

fn schema() -> String {
    let page = page();
    let (_, rest) = page.split_once("\n`greeter.xsd`").unwrap();
    indented(rest)
}

fn examples() -> Vec<Example> {
    let page = page();
    let sections = page.split("\n## ").skip(1).filter(|section| section.contains("`command = ["));
    let parse = |section: &str| {
        let (language, rest) = section.split_once('\n').unwrap();
        let (_, file) = rest.split_once('`').unwrap();
        let (_, command) = rest.split_once("`command = [").unwrap();
        let words = command.split_once(']').unwrap().0.split(", ");
        Example {
            language: language.to_owned(),
            file: file.split_once('`').unwrap().0.to_owned(),
            command: words.map(|word| word.trim_matches('"').to_owned()).collect(),
            program: indented(rest),
        }
    };
    sections.map(parse).collect()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the arguments of the command with which the page compiles the TypeScript example.
fn compiler_arguments() -> Vec<String> {
    let page = page();
    let (_, rest) = page.split_once("\n    npx tsc ").unwrap();
    let arguments = rest.lines().next().unwrap().split_whitespace();
    arguments.map(str::to_owned).collect()
}

/// Compiles the TypeScript example as the page does. A link to the kit stands beside the example,
/// where `npm install` would put the kit.
pub fn compile(folder: &Path) {
    let kit = repository().join("target/typescript");
    let compiler = kit.join("node_modules/.bin/tsc");
    assert!(
        compiler.is_file(),
        "the TypeScript kit is not built; run .ci/typescript (make test does)"
    );
    std::os::unix::fs::symlink(kit.join("try/node_modules"), folder.join("node_modules")).unwrap();
    let arguments = compiler_arguments();
    let made = Command::new(compiler).args(arguments).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
}

/// Line of the page's config that names the folder of the Python kit.
const KIT_LINE: &str = "env = { PYTHONPATH = \"listeners/python\" }\n";

/// Installs the Python kit with the command that the page shows. The command must print `KIT_LINE`,
/// and the page must contain this line.
fn install_kit(folder: &Path) {
    let mut install = Command::new(env!("CARGO_BIN_EXE_organism"));
    install.args(["listener", "install", "python"]).current_dir(folder);
    let output = install.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), KIT_LINE);
    assert!(page().contains(&format!("\n    {KIT_LINE}")));
}

impl Example {
    fn interpreter(&self) -> &str {
        &self.command[0]
    }

    fn is_in_python(&self) -> bool {
        self.file.ends_with(".py")
    }

    /// The environment variables with which the page runs the program.
    fn variables(&self) -> Vec<(String, String)> {
        let mut quoted = KIT_LINE.split('"').skip(1);
        let kit = quoted.next().unwrap().to_owned();
        if self.is_in_python() { vec![("PYTHONPATH".to_owned(), kit)] } else { Vec::new() }
    }

    /// Writes the program and the schema. Returns the command with the full path of each file.
    fn write(&self, folder: &Path) -> Vec<String> {
        std::fs::write(folder.join("greeter.xsd"), schema()).unwrap();
        std::fs::write(folder.join(&self.file), &self.program).unwrap();
        if self.file.ends_with(".mts") {
            compile(folder);
        }
        if self.is_in_python() {
            install_kit(folder);
        }
        let path = |word: &String| {
            let file: PathBuf = folder.join(word);
            if file.is_file() { file.to_str().unwrap().to_owned() } else { word.clone() }
        };
        self.command.iter().map(path).collect()
    }

    /// Runs `organism listener test` as the page does.
    fn assert_conforms(&self, folder: &Path, command: &[String]) {
        let mut test = Command::new(env!("CARGO_BIN_EXE_organism"));
        test.args(["listener", "test", "--schema", "greeter.xsd", "--accepts", "greet"]);
        test.args(["--replies", "greeting", "--timeout", "60", "--"]).args(command);
        test.current_dir(folder).envs(self.variables());
        let output = test.output().unwrap();
        let checklist = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {checklist}{log}", self.language);
    }
}

fn greet(who: &str) -> Arc<Message> {
    request(&format!("<who>{who}</who>"))
}

/// A request with this content.
fn request(content: &str) -> Arc<Message> {
    let payload = format!("<greet xmlns=\"{NAMESPACE}\">{content}</greet>");
    let mut request = Arc::unwrap_or_clone(message(1, MessageKind::Call, ""));
    request.name = PayloadName::new(NAMESPACE, "greet");
    request.payload = Payload::new(payload);
    Arc::new(request)
}

async fn runs(example: &Example) {
    let folder = TempDir::new().unwrap();
    let command = example.write(folder.path());
    let mut options = Options::new(name("greeter"), command.clone());
    options.env = example.variables();
    options.working_dir = Some(folder.path().to_owned());
    let mut ear = HostHarness::hosting(|sink| {
        Arc::new(ProcessHost::start(options, sink, &Handle::current()))
    });
    for who in ["Ada", "R&amp;D %s \\0 `id` &lt;b&gt; Zoë"] {
        let number = ear.deliver(vec![greet(who)], 1);
        let greeting = format!("<greeting xmlns=\"{NAMESPACE}\">Hello, {who}!</greeting>");
        ear.expect(SinkEvent::Answer(number, vec![greeting])).await;
    }

    // Other forms that the schema admits.
    for start in [format!("<who xmlns=\"{NAMESPACE}\">"), "<who >".to_owned()] {
        let number = ear.deliver(vec![request(&format!("{start}Ada</who >"))], 1);
        let greeting = format!("<greeting xmlns=\"{NAMESPACE}\">Hello, Ada!</greeting>");
        ear.expect(SinkEvent::Answer(number, vec![greeting])).await;
    }

    // A form that only a parser understands.
    let prefixed = request(&format!("<g:who xmlns:g=\"{NAMESPACE}\">Ada</g:who>"));
    let number = ear.deliver(vec![prefixed], 1);
    let answer = ear.next().await;
    assert!(matches!(answer, SinkEvent::Answer(n, _) if n == number), "{answer:?}");

    // No schema has checked the text of a comment.
    for content in ["<!-- <who>x</who> --><who>Ada</who>", "<who>A<!-- <who>x</who> -->da</who>"] {
        let number = ear.deliver(vec![request(content)], 1);
        let answer = ear.next().await;
        let SinkEvent::Answer(n, payloads) = &answer else { panic!("{answer:?}") };
        assert_eq!(*n, number);
        assert!(!payloads.concat().contains("Hello, x!"), "{}: {payloads:?}", example.language);
    }

    ear.host.drain().await;
    assert!(ear.is_quiet(), "{}", example.language);
    example.assert_conforms(folder.path(), &command);
}

/// Runs the example of this language, if its interpreter is installed. Fails if a required
/// interpreter is missing.
async fn example_runs(language: &str) {
    let examples = examples();
    let example = examples.iter().find(|example| example.language == language).unwrap();
    if is_there_to_run(language, example.interpreter()) {
        runs(example).await;
    }
}

/// Whether an interpreter is installed. If not, adds the language to the list of skipped examples,
/// or panics if the interpreter is required.
pub fn is_there_to_run(language: &str, interpreter: &str) -> bool {
    if is_installed(interpreter) {
        return true;
    }

    let required = std::env::var(REQUIRED).unwrap_or_default();
    assert!(
        !required.split_whitespace().any(|program| program == interpreter),
        "{interpreter} is not installed, and {REQUIRED} requires it"
    );
    let line = format!("{language}: {interpreter} is not installed\n");
    let mut skipped = std::fs::File::options();
    let skipped = skipped.create(true).append(true).open(repository().join(SKIPPED));
    skipped.unwrap().write_all(line.as_bytes()).unwrap();
    false
}

#[test]
fn the_page_has_an_example_in_each_language() {
    let languages: Vec<_> = examples().into_iter().map(|example| example.language).collect();
    assert_eq!(languages, ["Python", "TypeScript", "Go", "Ruby", "Perl", "bash"]);
}

/// The page installs `typescript` before it runs `npx tsc`, which would otherwise fetch an
/// unrelated package.
#[test]
fn the_page_installs_the_compiler_before_it_compiles() {
    let page = page();
    let (before, _) = page.split_once("\n    npx tsc ").unwrap();
    assert!(before.ends_with("\n    npm install -D typescript"), "{before}");
    assert_eq!(compiler_arguments().last().unwrap(), "greeter.mts");
    assert_eq!(page.matches("npx tsc").count(), 1);
}

/// Runs commands of the page in `folder`. They find the program `organism`, and the Python with the
/// client for NATS.
fn shell(folder: &Path, commands: &str) -> Command {
    let python = super::remote::python();
    let programs = [Path::new(env!("CARGO_BIN_EXE_organism")), Path::new(python.get_program())];
    let own = programs.iter().map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", commands]).current_dir(folder).env("PATH", path).env("HOME", folder);
    for place in ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        shell.env_remove(place);
    }
    shell
}

fn carried_out(folder: &Path, commands: &str) -> String {
    let output = shell(folder, commands).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}: {log}");
    String::from_utf8(output.stdout).unwrap()
}

/// Takes each step of the section about a listener on another machine, on one machine.
#[test]
fn the_documented_steps_to_a_listener_on_another_machine_lead_to_an_answer() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let step = |start: &str| block("docs/LISTENERS.md", start).replace("4222", &port);
    let python = examples().into_iter().find(Example::is_in_python).unwrap();
    for (file, text) in [
        ("greeter.xsd", schema()),
        ("greeter.py", python.program),
        ("organism.toml", step("[organism]")),
        ("greet.xml", step("<greet ")),
    ] {
        std::fs::write(at.join(file), text).unwrap();
    }

    let server = step("organism nats-config --store \"$HOME/nats-store\"\n");
    let (config, start) = server.split_once('\n').unwrap();
    carried_out(at, &format!("{config} --port {port}"));
    let config = start.strip_prefix("nats-server --config ").unwrap();
    let _server = crate::nats::Server::written(&at.join(config.trim()));

    carried_out(at, &step("organism listener install"));
    let start = step("cd far").replace("python3", "exec python3");
    let _listener = crate::organism::Running { child: shell(at, &start).spawn().unwrap() };
    let greeting = carried_out(at, "organism send greet.xml");
    let expected = "<greeting xmlns=\"urn:example:greeter\">Hello, Ada!</greeting>\n";
    assert_eq!(greeting, expected);
}

#[tokio::test]
async fn the_example_in_python_runs() {
    example_runs("Python").await;
}

#[tokio::test]
async fn the_example_in_typescript_runs() {
    example_runs("TypeScript").await;
}

#[tokio::test]
async fn the_example_in_go_runs_where_go_is_installed() {
    example_runs("Go").await;
}

#[tokio::test]
async fn the_example_in_ruby_runs_where_ruby_is_installed() {
    example_runs("Ruby").await;
}

#[tokio::test]
async fn the_example_in_perl_runs() {
    example_runs("Perl").await;
}

#[tokio::test]
async fn the_example_in_bash_runs() {
    example_runs("bash").await;
}

//! Keys of models do not occur in any output or file of a run, even if the models' servers
//! misbehave.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use tempfile::TempDir;

use super::recorded::{house, run};
use super::server::{Script, Server};
use super::wires::{OPENAI, Scene};
use crate::organism::{CommandOutput, House, until};
use crate::web::page::Page;
use crate::web::{address, ask, listening};

const KEYS: usize = 20;

fn key(number: usize) -> String {
    format!("sk-live-{number:02}-{:032x}", 0x9e37_79b9_7f4a_7c15_u128 * (number as u128 + 7))
}

/// Misbehaviour of server `number`, which inserts the server's key wherever possible.
fn misbehaviour(number: usize) -> Script {
    let key = key(number);
    let said = format!("{{\"error\":{{\"message\":\"bad key {key}\",\"type\":\"{key}\"}}}}");
    let stream = |events: &[&str]| Script::stream(events);
    let statuses = [
        "401 Unauthorized",
        "402 Payment Required",
        "403 Forbidden",
        "404 Not Found",
        "418 Teapot",
        "429 Too Many Requests",
        "500 Oops",
        "502 Bad Gateway",
        "503 Unavailable",
        "529 Overloaded",
    ];
    match number {
        n if n < statuses.len() => {
            let header = format!("X-Key: {key}\r\nRetry-After: 0\r\n");
            Script::whole(statuses[n], &header, &said)
        }
        10 => Script::whole(
            "302 Found",
            &format!("Location: https://{key}.example.com/{key}\r\n"),
            &key,
        ),
        11 => Script::whole(
            "200 OK",
            "Content-Type: text/html\r\n",
            &format!("<html><title>{key}</title>"),
        ),
        12 => Script::whole("200 OK", "Content-Type: application/json\r\n", &said),
        13 => stream(&[&format!("data: {{\"{key}\n\n")]),
        14 => stream(&[&format!("data: {said}\n\n")]),
        15 => stream(&[&format!("event: error\ndata: {{\"detail\":\"{key}\"}}\n\n")]),
        16 => stream(&[&format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{key}\"}}}}]}}\n\n"
        )]),
        17 => Script::whole("200 OK", "", &key),
        18 => Script::whole("200 OK", "", ""),
        // The last server answers, with its key in every part.
        _ => {
            let (one, two) = key.split_at(11);
            let text: Vec<&'static str> = [
                "<attempt_completion><result>the key: ",
                one,
                two,
                "</result></attempt_completion>",
            ]
            .map(|t| &*Box::leak(t.to_owned().into_boxed_str()))
            .into();
            let reasoning = vec![text[1], text[2]];
            Script::stream(&(OPENAI.events)(&Scene { text, reasoning, ..Scene::default() }))
        }
    }
}

/// All files in a directory and its subdirectories.
fn files(directory: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// A house with twenty models, and a model that has a route to each of them. Half of the keys are
/// in files.
struct Keyed {
    house: House,
    servers: Vec<Server>,
    variables: BTreeMap<String, String>,
    /// Files with keys. They lie outside the house, because the test searches all files in the
    /// house.
    _files: TempDir,
}

impl Keyed {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let mut models = String::new();
        let mut servers = Vec::new();
        let mut variables = BTreeMap::from([("ORGANISM_LOG".to_owned(), "trace".to_owned())]);
        for number in 0..KEYS {
            let server = Server::answering(misbehaviour(number)).await;
            let from = if number % 2 == 0 {
                variables.insert(format!("KEY_{number}"), key(number));
                format!("api_key_env = \"KEY_{number}\"")
            } else {
                let path = directory.path().join(format!("{number}"));
                std::fs::write(&path, key(number) + "\n").unwrap();
                format!("api_key_file = \"{}\"", path.display())
            };
            models.push_str(&format!(
                "[models.m{number}]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n\
                 {from}\nattempts = 1\n",
                server.url()
            ));
            servers.push(server);
        }
        let routes: Vec<_> = (0..KEYS).map(|number| format!("\"m{number}\"")).collect();
        models
            .push_str(&format!("[models.live]\nroutes = [{}]\nattempts = 1\n", routes.join(", ")));
        Self { house: house(&listening(&models)), servers, variables, _files: directory }
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        run(self.house.command(arguments), &self.variables)
    }

    /// Makes one model call that tries every server.
    fn live(&self) -> CommandOutput {
        let sent = self.run(&["record", "out.toml", "write.xml"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert!(sent.out.contains("the key: ***"), "{sent:?}");
        for server in &self.servers {
            assert_eq!(server.requests().len(), 1, "every way to go wrong was gone");
        }
        let asked: String = self.servers.iter().flat_map(Server::requests).collect();
        for number in 0..KEYS {
            assert!(asked.contains(&format!("Bearer {}", key(number))), "the keys were in use");
        }
        sent
    }

    /// Makes one model call in a running organism with a complete log and metrics. Returns the
    /// output of the `send` and the metrics.
    fn served(&self) -> (CommandOutput, String) {
        let mut command = self.house.command(&["run"]);
        command.envs(&self.variables);
        let running = tokio::task::block_in_place(|| self.house.run_with(command));
        let sent = self.run(&["send", "write.xml"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let metrics = tokio::task::block_in_place(|| ask(address(&self.house), "/metrics")).body;
        let page = Page::read(&metrics);
        for number in 0..KEYS {
            let model = format!("m{number}");
            let labels = [("agent", "writer"), ("model", model.as_str())];
            assert_eq!(page.get("organism_model_call_seconds_count", &labels), 1.0, "{model}");
        }
        let answered = [("agent", "writer"), ("model", "m19"), ("outcome", "answered")];
        assert_eq!(page.get("organism_model_calls_total", &answered), 1.0);
        assert!(page.sum("organism_model_tokens_total") > 0.0);
        // A line that only a complete log contains.
        tokio::task::block_in_place(|| {
            let mut broken = std::net::TcpStream::connect(address(&self.house)).unwrap();
            broken.write_all(b"no request\r\n\r\n").unwrap();
            drop(broken);
            until("a broken request is logged", || {
                self.house.log().contains("DEBUG").then_some(())
            });
        });
        assert_eq!(tokio::task::block_in_place(|| running.stop()), Some(0));
        let log = self.house.log();
        assert!(log.contains("bad key ***"), "{log}");
        (sent, metrics)
    }

    fn tried(&self) -> Vec<CommandOutput> {
        let tried = [&["models", "--try"][..], &["models", "--try", "--json"]];
        let tried = tried.map(|arguments| self.run(arguments));
        for said in &tried {
            assert_eq!(said.code, Some(69), "{said:?}");
            let long = said.err.len() + said.out.len() > 2_000;
            assert!(long && said.out.contains("m18"), "{said:?}");
        }
        tried.into()
    }

    /// Outputs of every command that prints parts of the config or the journal.
    fn shown(&self) -> Vec<CommandOutput> {
        let threads = self.run(&["threads", "--all", "--json"]).json();
        let of_client = threads.iter().filter_map(|line| line["thread"].as_str());
        let thread = of_client.into_iter().find(|id| *id != "sess-organism").unwrap();
        let commands: &[&[&str]] = &[
            &["models"],
            &["models", "--json"],
            &["check"],
            &["check", "--json"],
            &["prompt", "writer"],
            &["prompt", "writer", "--json"],
            &["prompt", "writer", "--thread", thread],
            &["prompt", "writer", "--thread", thread, "--turn", "1", "--json"],
            &["threads", "--all"],
            &["thread", thread, "--full"],
            &["thread", thread, "--json"],
            &["thread", "sess-organism", "--full"],
            &["tail", "--no-follow", "-n", "1000", "--full"],
            &["tail", "--no-follow", "-n", "1000", "--json"],
            &["search", "key", "--full"],
            &["approvals", "--json"],
            &["answer", "--json"],
            &["export", "--format", "jsonl"],
            &["export", "--format", "xml"],
            &["verify"],
        ];
        let all = commands.iter().map(|arguments| {
            let said = self.run(arguments);
            assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
            said
        });
        all.collect()
    }

    /// Outputs of commands on a config that has an error near a key.
    fn wrong(&self) -> Vec<CommandOutput> {
        let config = std::fs::read_to_string(self.house.path("organism.toml")).unwrap();
        self.house.write("wrong.toml", config.replace("[models.live]", "[models.live]\ntypo = 1"));
        let commands: &[&[&str]] =
            &[&["check"], &["check", "--json"], &["run"], &["prompt", "writer"]];
        let all = commands.iter().map(|arguments| {
            let said = self.run(&[arguments, &["--config", "wrong.toml"][..]].concat());
            assert_eq!(said.code, Some(78), "{said:?}");
            said
        });
        all.collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_keys_are_in_no_record_log_error_prompt_or_export() {
    let keyed = Keyed::new().await;
    let live = keyed.live();
    let (served, metrics) = keyed.served();
    let mut said = vec![live, served];
    said.extend(keyed.tried());
    said.extend(keyed.shown());
    said.extend(keyed.wrong());
    let mut left: Vec<_> = said
        .iter()
        .map(|said| ("a command".to_owned(), format!("{said:?}").into_bytes()))
        .collect();
    left.push(("the metrics".to_owned(), metrics.into_bytes()));
    files(&keyed.house.path("."), &mut left);
    for file in ["out.toml", "log", "journal.db", "organism.toml"] {
        assert!(left.iter().any(|(name, _)| name.ends_with(file)), "{file}");
    }
    assert!(left.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 50_000);
    for (name, bytes) in &left {
        let text = String::from_utf8_lossy(bytes);
        for number in 0..KEYS {
            assert!(!text.contains(&key(number)), "key {number} in {name}");
        }
    }
}

//! The web view: a real `organism serve` on a terminal of its own, and requests as browsers and
//! attackers send them.

mod access;
mod browser;
mod compare;
mod configs;
mod conversation;
mod forks;
#[cfg(target_os = "linux")]
mod hosted;
mod live;
pub mod operate;
mod overview;
mod questions;
mod search;
mod thread_views;
mod threads;
mod trees;
mod unseen;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::HttpResponse;
use crate::organism::{House, PATIENCE, until};

/// Runs a command on a terminal of its own, and copies what the terminal shows.
const ON_TERMINAL: &str = "import pty, sys; \
                           sys.exit(__import__('os').waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

/// Number of views that this process has started. Several views may share a directory.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A running `organism serve`. It is killed at the end of the test, if it still runs.
pub struct ViewServer {
    /// The terminal of the command; `None` if another command serves the view.
    terminal: Option<Child>,
    /// Process id of the command on the terminal. `organism run` does not end with its terminal.
    pid: String,
    pub at: SocketAddr,
    pub token: String,
    cookie: String,
}

/// Runs a command on a terminal. The command's standard error goes to the file `view.log` in
/// `directory`, and its process id to the file `pid_file` in the same directory.
fn on_terminal(organism: &Command, directory: &Path, pid_file: &str) -> Child {
    let mut command = Command::new("python3");
    command.args([
        "-c",
        ON_TERMINAL,
        "sh",
        "-c",
        "echo $$ > \"$0\"; exec \"$@\" 2> view.log",
        pid_file,
    ]);
    command.arg(organism.get_program()).args(organism.get_args()).current_dir(directory);
    for (name, value) in organism.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Creates the command `organism serve` on the journal of a house.
fn serve(house: &House, arguments: &[&str]) -> Command {
    let mut organism = house.command(&["serve"]);
    organism.args(arguments).env("ORGANISM_LOG", "trace");
    organism
}

/// Terminal output, log and exit code of an `organism serve` that fails to start.
fn refused_start(house: &House, arguments: &[&str]) -> (String, Option<i32>) {
    let terminal = on_terminal(&serve(house, arguments), &house.path("."), "refused.pid");
    let ended = terminal.wait_with_output().unwrap();
    let log = std::fs::read_to_string(house.path("view.log")).unwrap();
    (String::from_utf8(ended.stdout).unwrap() + &log, ended.status.code())
}

impl ViewServer {
    /// Starts `organism serve` on any port, and opens a session with the token.
    pub fn start(house: &House, arguments: &[&str]) -> Self {
        Self::start_command(serve(house, arguments), &house.path("."))
    }

    /// Starts the given `organism serve` on any port.
    pub fn start_command(mut organism: Command, directory: &Path) -> Self {
        organism.args(["--listen", "127.0.0.1:0"]);
        Self::start_on_terminal(&organism, directory)
    }

    /// Starts a command with a web view on a terminal.
    pub fn start_on_terminal(organism: &Command, directory: &Path) -> Self {
        let pid_file = format!("view-{}.pid", STARTED.fetch_add(1, Ordering::Relaxed));
        let mut terminal = on_terminal(organism, directory, &pid_file);
        let mut line = String::new();
        BufReader::new(terminal.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(directory.join("view.log"));
        let address =
            line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}{:?}", log()));
        let (at, token) = address.split_once("/#token=").unwrap();

        let mut server = Self::unopened(at.parse().unwrap(), token);
        server.terminal = Some(terminal);
        server.pid = std::fs::read_to_string(directory.join(&pid_file)).unwrap();
        server.open();
        server
    }

    /// A web view that another command serves. The view has no session yet.
    pub fn unopened(at: SocketAddr, token: &str) -> Self {
        let (pid, cookie) = (String::new(), String::new());
        Self { terminal: None, pid, at, token: token.to_owned(), cookie }
    }

    /// Opens a session with the token.
    pub fn open(&mut self) {
        let opened = self.open_session(&self.token);
        assert_eq!(opened.status, 303, "{}", opened.head);
        let cookie = header(&opened, "set-cookie").unwrap();
        self.cookie = cookie.split(';').next().unwrap().to_owned();
    }

    /// The address with the token, as the terminal shows it.
    pub fn address(&self) -> String {
        format!("http://{}/#token={}", self.at, self.token)
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let sent = write!(stream, "{request}Content-Length: {}\r\n\r\n{body}", body.len());
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        // The view may refuse a request before it has read all of it, and close the connection. Then
        // writing or the end of reading fails, but the response has arrived.
        assert!(!text.is_empty(), "{sent:?}, {read:?}");
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        HttpResponse { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Sends the form with the token as a browser does.
    pub fn open_session(&self, token: &str) -> HttpResponse {
        let host = self.at.to_string();
        let headers = [("Host", &*host), ("Origin", "null"), ("Sec-Fetch-Site", "same-origin")];
        self.request("POST", "/session", &headers, &format!("token={token}&next=%2Fthreads"))
    }

    /// Requests a page with the session, like a browser that follows a link of the view.
    pub fn get(&self, path: &str) -> HttpResponse {
        self.get_with(path, &[("Sec-Fetch-Site", "same-origin")])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        let host = self.at.to_string();
        let mut all = vec![("Host", &*host), ("Cookie", &*self.cookie)];
        all.retain(|(name, _)| headers.iter().all(|(known, _)| known != name));
        all.extend(headers);
        self.request("GET", path, &all, "")
    }

    /// Loads a page that must exist. Waits while a new organism makes its index.
    pub fn page(&self, path: &str) -> String {
        let response = until("the index is made", || {
            let response = self.get(path);
            let is_early =
                response.status == 503 && response.body.contains("The index is being made");
            (!is_early).then_some(response)
        });
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        assert_well_formed(&response.body);
        response.body
    }
}

impl Drop for ViewServer {
    fn drop(&mut self) {
        // The processes may have exited already.
        if let Some(terminal) = &mut self.terminal {
            Command::new("kill").arg(self.pid.trim()).status().ok();
            terminal.kill().ok();
            terminal.wait().ok();
        }
    }
}

pub fn header<'r>(response: &'r HttpResponse, name: &str) -> Option<&'r str> {
    let mut lines = response.head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Asserts that a page has the elements and labels that keyboards and screen readers need, and has
/// no inline script or style.
fn assert_well_formed(page: &str) {
    for (tag, times) in [("<h1", 1), ("<main", 1), ("<html lang=\"en\">", 1), ("<title>", 1)] {
        assert_eq!(page.matches(tag).count(), times, "{tag} in {page}");
    }
    let scripts = page.matches("<script src=\"/").count();
    assert!(scripts == page.matches("<script").count() && scripts <= 2, "{page}");
    for absent in [" style=\"", "<style", " onclick", "javascript:", "http://", "https://"] {
        assert!(!page.contains(absent), "{absent} in {page}");
    }
    let labels = page.matches("<label").count();
    let fields = ["<input", "<select", "<textarea"].map(|tag| page.matches(tag).count());
    let fields: usize = fields.iter().sum();
    assert_eq!(fields - page.matches("type=\"hidden\"").count(), labels, "{page}");
    assert_eq!(
        page.matches("<th").count(),
        page.matches(" scope=").count() + page.matches("<thead").count()
    );
    assert!(!page.contains(" scope=\"col\"></th>"), "a column has no name: {page}");
    let ids: Vec<_> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next()).collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "an id stands twice: {ids:?}");
}

/// Number of the last record.
fn last_record(house: &House) -> u64 {
    let about = house.organism(&["sql", "--json", "SELECT position FROM about"]);
    about.json()[0]["position"].as_u64().unwrap()
}

/// The texts of a page, without its tags.
pub fn text_of(page: &str) -> String {
    let parts = page.split('<').filter_map(|part| part.split_once('>'));
    let text: String = parts.map(|(_, text)| text).collect();
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    entities.iter().fold(text, |text, (entity, char)| text.replace(entity, char))
}

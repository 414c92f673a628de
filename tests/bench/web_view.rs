//! The web view: time to the first byte of a page, and the cost of live pages for the relay.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use organism::limits;
use organism::web::{ViewOptions, ViewPerson, WebView};
use tokio::runtime::Runtime;

use super::figures::{Bench, median_of, percentile};
use super::floor::directory;
use super::{large, relay};

/// Number of requests for each kind of page.
const REQUESTS: usize = 200;
/// Number of live pages that are open at once.
const LIVE_PAGES: usize = 50;
const THREADS: usize = 64;

/// A web view with a session. It runs on threads of its own, as in `organism run --web`.
struct BenchedView {
    at: SocketAddr,
    cookie: String,
    view: Option<WebView>,
    runtime: Option<Runtime>,
}

impl BenchedView {
    fn on(data: PathBuf) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits::WEB_THREADS)
            .enable_all()
            .on_thread_start(|| {
                rustix::process::setpriority_process(None, limits::WEB_NICENESS).unwrap();
            })
            .build()
            .unwrap();
        let view = WebView::open(ViewOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            hosts: Vec::new(),
            token: None,
            data,
            organism: None,
            person: ViewPerson::Viewer,
            operate: None,
            proof: Default::default(),
        });
        let view = runtime.block_on(runtime.spawn(view)).unwrap().unwrap();
        let at = view.address();
        let form = format!("token={}", view.token().reveal());
        let answer = request(at, "/session", "Sec-Fetch-Site: same-origin\r\n", &form);
        let (_, cookie) = answer.split_once("set-cookie: ").unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Self { at, cookie, view: Some(view), runtime: Some(runtime) }
    }

    /// Opens a connection for several requests, as a browser does.
    fn connect(&self) -> PageConnection {
        let stream = BufReader::new(TcpStream::connect(self.at).unwrap());
        PageConnection { stream, head: format!("Host: {}\r\n{}", self.at, self.cookie_line()) }
    }

    fn cookie_line(&self) -> String {
        format!("Cookie: {}\r\n", self.cookie)
    }
}

impl Drop for BenchedView {
    fn drop(&mut self) {
        drop(self.view.take());
        self.runtime.take().unwrap().shutdown_background();
    }
}

/// A connection with a session, over which pages are loaded one after the other.
struct PageConnection {
    stream: BufReader<TcpStream>,
    head: String,
}

impl PageConnection {
    /// Loads a page. Returns its text, and the milliseconds to its first byte.
    fn page(&mut self, path: &str) -> (String, f64) {
        let (status, page, took) = self.answer(path, "");
        assert!(status.starts_with("HTTP/1.1 200"), "{path}: {status}");
        (page, took)
    }

    /// Loads a page with further header lines. Returns the status line, the body, and the
    /// milliseconds to the first byte.
    fn answer(&mut self, path: &str, head: &str) -> (String, String, f64) {
        // Several small writes would wait for the acknowledgement of the first, as no browser does.
        let request = format!("GET {path} HTTP/1.1\r\n{}{head}\r\n", self.head);
        let began = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut status = String::new();
        self.stream.read_line(&mut status).unwrap();
        let took = 1e3 * began.elapsed().as_secs_f64();

        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap();
            }
        }
        let mut page = vec![0; length];
        self.stream.read_exact(&mut page).unwrap();
        (status, String::from_utf8(page).unwrap(), took)
    }
}

/// The answer to a request over a new connection.
fn request(at: SocketAddr, path: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{head}");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the paths of the links on a page that begin with `begin` and have no query.
fn links(page: &str, begin: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let links = links.filter(|link| link.starts_with(begin) && !link.contains('?'));
    links.map(str::to_owned).collect()
}

/// Time to the first byte of each kind of page (95th percentile). All requests use one connection,
/// and begin after the web view has verified the journal.
pub fn pages(bench: &mut Bench) {
    let (data, words) = large::data_and_words(bench);
    let served = BenchedView::on(data);
    let mut view = served.connect();
    let list = loop {
        let (list, _) = view.page("/threads");
        if !list.contains("it is being proved") {
            break list;
        }
    };
    let threads = links(&list, "/threads/sess");
    let messages: Vec<_> = threads
        .iter()
        .take(20)
        .flat_map(|thread| links(&view.page(thread).0, "/messages/"))
        .collect();
    let searches: Vec<_> = words.iter().map(|word| format!("/search?words={word}")).collect();

    let lists = ["/threads".to_owned(), "/threads?status=completed".to_owned()];
    let count = if bench.quick { 20 } else { REQUESTS };
    for (figure, paths) in [
        ("web_list_p95", &lists[..]),
        ("web_thread_p95", &threads[..]),
        ("web_message_p95", &messages[..]),
        ("web_search_p95", &searches[..]),
    ] {
        let paths = paths.iter().cycle();
        let times = paths.take(count).map(|path| view.page(path).1).collect();
        bench.figures.add_small(figure, percentile(times, 0.95), "ms");
    }
}

/// Speed of the relay with open live pages, compared with the speed without live pages. Runs with
/// and without live pages alternate, first at full load, then with half as many calls per second.
pub fn relay_live(bench: &mut Bench) {
    let measure = |interval: Option<Duration>| {
        let runs: Vec<[f64; 2]> = (0..bench.runs)
            .map(|_| [true, false].map(|is_live| rate(bench.span, interval, is_live)))
            .collect();
        [0, 1].map(|which| median_of(runs.iter().map(|pair| pair[which])))
    };

    let [with, without] = measure(None);
    bench.figures.add("relay_live_full", with, "messages/s", Some(without));
    let calls_per_second = without / 2.0 / relay::HOPS as f64;
    let interval = Duration::from_secs_f64(THREADS as f64 / calls_per_second);
    let [with, without] = measure(Some(interval));
    bench.figures.add("relay_live_half", with, "messages/s", Some(without));
}

/// Hops of the relay per second, with or without live pages.
fn rate(span: Duration, interval: Option<Duration>, is_live: bool) -> f64 {
    let place = directory("relay");
    if !is_live {
        return relay::native_paced(&place, THREADS, span, interval).hops_per_second();
    }

    let has_ended = Arc::new(AtomicBool::new(false));
    let readers = start_readers(&place, &has_ended);
    let relay = relay::native_paced(&place, THREADS, span, interval);
    has_ended.store(true, Ordering::Relaxed);
    let loads: usize = readers.join().unwrap();
    assert!(loads > 0, "no live page has loaded anything");
    relay.hops_per_second()
}

/// Starts an operating system thread that opens the live pages as soon as the journal contains a
/// thread. The result of the operating system thread is the total number of page loads.
fn start_readers(place: &Path, has_ended: &Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    let data = place.join("data");
    let has_ended = Arc::clone(has_ended);
    std::thread::spawn(move || {
        let view = Arc::new(BenchedView::on(data));
        let mut pages = view.connect();
        let threads = loop {
            let (_, list, _) = pages.answer("/threads", "");
            let threads = links(&list, "/threads/sess");
            if !threads.is_empty() || has_ended.load(Ordering::Relaxed) {
                break threads;
            }
        };
        let lists = std::iter::repeat("/threads".to_owned());
        let paths = threads.into_iter().take(LIVE_PAGES / 2).chain(lists).take(LIVE_PAGES);
        let readers = paths.map(|path| {
            let (view, has_ended) = (Arc::clone(&view), Arc::clone(&has_ended));
            std::thread::spawn(move || read_live(&view, &path, &has_ended))
        });
        let readers: Vec<_> = readers.collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    })
}

/// Loads a page again whenever the journal has grown, as the script of the page does. Returns the
/// number of loads.
fn read_live(view: &BenchedView, path: &str, has_ended: &AtomicBool) -> usize {
    let mut stream = TcpStream::connect(view.at).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (at, cookie) = (view.at, view.cookie_line());
    write!(stream, "GET /live{path} HTTP/1.1\r\nHost: {at}\r\n{cookie}\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    // A browser keeps a connection for all loads of a page.
    let mut pages = view.connect();
    let mut line = String::new();
    let mut loads = 0;
    while !has_ended.load(Ordering::Relaxed) {
        // A part of a line stays there until the rest arrives.
        if lines.read_line(&mut line).is_err() {
            continue;
        }
        let version = line.strip_prefix("data: {\"version\":\"");
        if let Some(version) = version.and_then(|rest| rest.trim_end().strip_suffix("\"}")) {
            pages.answer(path, &format!("X-Live-Version: {version}\r\n"));
            loads += 1;
        }
        line.clear();
    }
    loads
}

//! A local collector: accepts OTLP over HTTP and parses it strictly.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::organism::{PATIENCE, until};

/// Behaviour of the collector towards requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Takes,
    /// Responds with this status and with this header. An empty text stands for no header.
    Says(u16, &'static str),
    /// Accepts only requests of at most this number of bytes.
    TakesUpTo(usize),
    /// Accepts the request, but responds that this number of its spans were rejected.
    TakesBut(u64),
    /// Accepts each request, and responds a second later.
    TakesSlowly,
    /// Reads each request and never responds.
    Hangs,
}

/// A received span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The process that exported the span.
    pub instance: String,
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub kind: u64,
    pub began: u64,
    pub ended: u64,
    pub failed: bool,
    pub attributes: BTreeMap<String, Json>,
}

impl Span {
    /// A string or integer attribute, as text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.attributes.get(name)?;
        ["stringValue", "intValue"].iter().find_map(|kind| value[*kind].as_str())
    }
}

#[derive(Default)]
struct Seen {
    /// Head and body of each request.
    requests: Vec<String>,
    /// Spans of the accepted requests.
    spans: Vec<Span>,
    resources: Vec<Json>,
    connections: usize,
}

pub struct Collector {
    pub port: u16,
    mood: Arc<Mutex<Mood>>,
    seen: Arc<Mutex<Seen>>,
    accepting: Option<JoinHandle<()>>,
    over: Arc<Mutex<bool>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        *self.over.lock().unwrap() = true;
        // One more connection, so that the thread sees the flag.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        if let Some(accepting) = self.accepting.take() {
            accepting.join().ok();
        }
    }
}

impl Collector {
    pub fn start(mood: Mood) -> Self {
        Self::at(0, mood)
    }

    /// Starts a collector at this port.
    pub fn at(port: u16, mood: Mood) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mood, seen) = (Arc::new(Mutex::new(mood)), Arc::default());
        let over: Arc<Mutex<bool>> = Arc::default();
        let (feels, sees, ends) = (Arc::clone(&mood), Arc::clone(&seen), Arc::clone(&over));
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if *ends.lock().unwrap() {
                    return;
                }
                let (feels, sees) = (Arc::clone(&feels), Arc::clone(&sees));
                std::thread::spawn(move || serve(stream, &feels, &sees));
            }
        });
        Self { port, mood, seen, accepting: Some(accepting), over }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn feels(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn spans(&self) -> Vec<Span> {
        self.seen.lock().unwrap().spans.clone()
    }

    pub fn resources(&self) -> Vec<Json> {
        self.seen.lock().unwrap().resources.clone()
    }

    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// Waits until `count` spans have arrived for which `which` holds. Returns these spans.
    pub fn wait_for(&self, count: usize, which: impl Fn(&Span) -> bool) -> Vec<Span> {
        until(&format!("{count} spans come; there are {:?}", names(&self.spans())), || {
            let spans: Vec<_> = self.spans().into_iter().filter(&which).collect();
            (spans.len() >= count).then_some(spans)
        })
    }
}

fn names(spans: &[Span]) -> Vec<String> {
    spans.iter().map(|span| span.name.clone()).collect()
}

fn serve(mut stream: TcpStream, mood: &Mutex<Mood>, seen: &Mutex<Seen>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    seen.lock().unwrap().connections += 1;
    let Some(request) = read(&mut stream) else { return };
    let mood = *mood.lock().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (spans, resource) = decoded(head, body);
    let body_bytes = body.len();
    {
        let mut seen = seen.lock().unwrap();
        let is_taken = match mood {
            Mood::Takes | Mood::TakesSlowly | Mood::TakesBut(_) => true,
            Mood::TakesUpTo(bytes) => body_bytes <= bytes,
            Mood::Says(..) | Mood::Hangs => false,
        };
        if is_taken {
            seen.spans.extend(spans);
            seen.resources.push(resource);
        }
        seen.requests.push(request);
    }
    let (status, header, body) = match mood {
        Mood::Takes => (200, "", "{\"partialSuccess\":{}}".to_owned()),
        Mood::TakesSlowly => {
            let taken = Instant::now();
            let is_over = || (taken.elapsed() >= Duration::from_secs(1)).then_some(());
            until("a second passes", is_over);
            (200, "", "{}".to_owned())
        }
        Mood::TakesBut(count) => {
            let message = format!("\"rejectedSpans\":\"{count}\",\"errorMessage\":\"too old\"");
            (200, "", format!("{{\"partialSuccess\":{{{message}}}}}"))
        }
        Mood::TakesUpTo(bytes) if body_bytes > bytes => (413, "", String::new()),
        Mood::TakesUpTo(_) => (200, "", "{}".to_owned()),
        Mood::Says(status, header) => (status, header, String::new()),
        Mood::Hangs => {
            // Until the client closes the connection.
            while matches!(stream.read(&mut [0]), Ok(1..)) {}
            return;
        }
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\n{header}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok();
}

fn read(stream: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if bytes.len() >= at + 4 + length.unwrap().parse::<usize>().unwrap() {
                return Some(String::from_utf8(bytes).unwrap());
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn decoded(head: &str, body: &str) -> (Vec<Span>, Json) {
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let body: Json = serde_json::from_str(body).unwrap();
    let resources = body["resourceSpans"].as_array().unwrap();
    assert_eq!(resources.len(), 1, "{body}");
    let scopes = resources[0]["scopeSpans"].as_array().unwrap();
    assert_eq!(scopes.len(), 1, "{body}");
    assert_eq!(scopes[0]["scope"]["name"], "organism");
    let spans = scopes[0]["spans"].as_array().unwrap();
    assert!(!spans.is_empty(), "a request with nothing in it");
    let resource = &resources[0]["resource"];
    let mut attributes = resource["attributes"].as_array().unwrap().iter();
    let instance = attributes.find(|pair| pair["key"] == "service.instance.id").unwrap();
    let instance = instance["value"]["stringValue"].as_str().unwrap();
    (spans.iter().map(|json| span(instance, json)).collect(), resource.clone())
}

fn hexadecimal(json: &Json, digits: usize) -> String {
    let text = json.as_str().unwrap();
    assert!(text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit()), "{json}");
    assert!(text.bytes().any(|b| b != b'0'), "{json}");
    text.to_owned()
}

fn span(instance: &str, json: &Json) -> Span {
    let nanoseconds = |key: &str| json[key].as_str().unwrap().parse::<u64>().unwrap();
    let attributes = json["attributes"].as_array().unwrap().iter();
    let pairs: Vec<_> = attributes
        .map(|pair| (pair["key"].as_str().unwrap().to_owned(), pair["value"].clone()))
        .collect();
    let attributes: BTreeMap<_, _> = pairs.iter().cloned().collect();
    assert_eq!(attributes.len(), pairs.len(), "an attribute twice: {json}");
    let failed = match &json["status"]["code"] {
        Json::Null => false,
        code => code == 2,
    };
    let span = Span {
        instance: instance.to_owned(),
        trace: hexadecimal(&json["traceId"], 32),
        id: hexadecimal(&json["spanId"], 16),
        parent: json.get("parentSpanId").map(|id| hexadecimal(id, 16)),
        name: json["name"].as_str().unwrap().to_owned(),
        kind: json["kind"].as_u64().unwrap(),
        began: nanoseconds("startTimeUnixNano"),
        ended: nanoseconds("endTimeUnixNano"),
        failed,
        attributes,
    };
    assert!(span.began <= span.ended, "{json}");
    assert_eq!(span.failed, span.get("error.type").is_some(), "{json}");
    span
}

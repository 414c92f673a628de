//! The end of an answer's body, in every form that a server may use, and responses that are not
//! HTTP.

use organism::model::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::server::{Script, Then, answered, ask, call, options, remote};
use super::wires::{OPENAI, Scene};

fn events() -> Vec<String> {
    (OPENAI.events)(&Scene { text: vec!["Hel", "lo."], ..Scene::default() })
}

/// A response whose body is in chunks that `write` makes. `end` follows the last chunk.
fn chunked(write: impl Fn(&str) -> String, end: &str) -> String {
    let chunks: String = events().iter().map(|event| write(event)).collect();
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{end}")
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn plain(head: &str) -> String {
    format!("{head}\r\n\r\n{}", events().concat())
}

/// Reads the answer in one piece and byte by byte.
async fn read_whole_and_by_byte(answer: &str) -> [Result<String, Error>; 2] {
    let whole = Script::new(vec![answer.as_bytes().to_vec()], Then::Close);
    let bytes = answer.bytes().map(|byte| vec![byte]).collect();
    let heard = [
        answered("openai", whole).await,
        answered("openai", Script::new(bytes, Then::Close)).await,
    ];
    heard.map(|(end, heard)| end.map(|_| heard.text))
}

#[tokio::test]
async fn a_body_ends_where_its_framing_says() {
    let length = events().concat().len();
    let answers = [
        chunked(chunk, "0\r\n\r\n"),
        chunked(|e| format!("{:X};name=\"a;b\"\r\n{e}\r\n", e.len()), "000;x\r\n\r\n"),
        chunked(|e| format!("{:04x} \r\n{e}\r\n", e.len()), "0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"),
        chunked(chunk, "0\r\n\r\nHTTP/1.1 500 what is this\r\n\r\n"),
        plain(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}")),
        plain(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\ncontent-length: {length}")),
        plain("HTTP/1.1 200 OK"),
        plain("HTTP/1.0 200 OK\r\nConnection: close"),
        plain(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200",
        ),
    ];
    for answer in answers {
        for heard in read_whole_and_by_byte(&answer).await {
            assert_eq!(heard.unwrap_or_else(|error| panic!("{error}: {answer}")), "Hello.");
        }
    }
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_cut_answer() {
    let answers = [
        "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(100_000)),
        "HTTP/1.1 200 OK\r\nX: y\r\n".repeat(1_000),
        plain("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x"),
        plain("HTTP/1.1 200 OK\r\nContent-Length: -1"),
        plain("HTTP/1.1 200 OK\r\nContent-Length: +9"),
        plain("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 10"),
        chunked(|event| format!("\r\n{event}\r\n"), "0\r\n\r\n"),
        chunked(|event| format!("xyz\r\n{event}\r\n"), "0\r\n\r\n"),
        chunked(|event| format!("11112222333344445\r\n{event}\r\n"), "0\r\n\r\n"),
        chunked(|event| format!("{:x}\r\n{event}", event.len()), "0\r\n\r\n"),
        chunked(|event| format!("{:x};{}\r\n{event}\r\n", event.len(), "x".repeat(100_000)), ""),
    ];
    for answer in answers {
        let whole = Script::new(vec![answer.as_bytes().to_vec()], Then::Hang);
        let (end, _) = answered("openai", whole).await;
        let shown: String = answer.chars().take(80).collect();
        let Err(Error::Cut { .. } | Error::NoResponse { .. }) = end else {
            panic!("{end:?}: {shown}")
        };
    }
}

#[tokio::test]
async fn a_complete_answer_is_valid_whatever_follows_it() {
    for heard in read_whole_and_by_byte(&chunked(chunk, "what is this?\r\n")).await {
        assert_eq!(heard.unwrap(), "Hello.");
    }
    for heard in read_whole_and_by_byte(&plain("HTTP/1.1 200 OK\r\nContent-Length: 100000")).await {
        assert_eq!(heard.unwrap(), "Hello.");
    }
}

/// Calls a server that responds before it has read the whole request. The server sends `first`
/// after one byte of the request, and `rest`, if any, after 8 MiB more.
async fn hasty(first: &str, rest: Option<&str>) -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (first, rest) = (first.to_owned(), rest.map(str::to_owned));
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        let mut some = vec![0; 1 << 20];
        let mut left: usize = if rest.is_some() { 8 << 20 } else { 0 };
        while left > 0 {
            left = stream.read(&mut some).await.map_or(0, |read| left.saturating_sub(read));
        }
        stream.write_all(rest.unwrap_or_default().as_bytes()).await.unwrap();
        // Until the peer has closed the connection.
        while stream.read(&mut some).await.is_ok_and(|read| read > 0) {}
    });
    let model = remote(options("openai", &url));
    let (end, heard) = call(&model, &ask(&"x".repeat(8 << 20))).await;
    serving.await.unwrap();
    end.map(|_| heard.text)
}

#[tokio::test]
async fn a_server_may_respond_before_it_has_read_the_whole_request() {
    let answer = chunked(chunk, "0\r\n\r\n");
    assert_eq!(hasty(&answer, None).await.unwrap(), "Hello.");
    let (head, body) = answer.split_at(answer.find("\r\n\r\n").unwrap() + 4);
    assert_eq!(hasty(head, Some(body)).await.unwrap(), "Hello.");
}

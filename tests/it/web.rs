//! The HTTP server of an organism: real servers and real requests on loopback.

mod health;
mod metrics;
pub mod page;
pub mod view;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::organism::{CONFIG, House, PATIENCE, Running, until};

/// Status and body of a response.
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Requests `path` with this Host header.
pub fn ask_as(host: &str, at: SocketAddr, path: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    HttpResponse { status, head: head.to_owned(), body: body.to_owned() }
}

pub fn ask(at: SocketAddr, path: &str) -> HttpResponse {
    ask_as(&at.to_string(), at, path)
}

/// Adds an HTTP server on any port to a config.
pub fn listening(config: &str) -> String {
    format!("{config}\n[http]\nlisten = \"127.0.0.1:0\"\n")
}

/// The address in the log of a running organism.
pub fn address(house: &House) -> SocketAddr {
    until("it says where it listens", || {
        let log = house.log();
        let (_, rest) = log.split_once("health and metrics on http://")?;
        Some(rest.split_whitespace().next()?.parse().unwrap())
    })
}

fn house() -> (House, Running, SocketAddr) {
    house_of(CONFIG)
}

fn house_of(config: &str) -> (House, Running, SocketAddr) {
    let house = House::with(&listening(config));
    let running = house.run();
    let at = address(&house);
    until("it is ready", || (ask(at, "/readyz").status == 200).then_some(()));
    (house, running, at)
}

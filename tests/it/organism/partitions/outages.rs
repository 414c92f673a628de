//! Requests while no NATS server can be reached.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use organism::nats::{Client, Options, State, connect};
use organism::service::chunks::{ChunkDecoder, DecodedChunk};
use organism::service::{
    NatsTransport, PartitionUnavailable, ServiceRequest, ServiceResponse, encoding, response_queue,
};

use super::{ask, ask_in, ask_until_served, config, host, numbered, run, until};
use crate::nats::{Server, Settings};
use crate::organism::alerts::{NOTIFY, event, events, write_notify};
use crate::organism::{CommandOutput, House};

/// A TCP proxy in front of a server. A test can cut the way through the proxy.
struct Proxy {
    address: String,
    /// Streams of the open connections; `None` while the way is cut.
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
    /// Number of connections that came while the way was cut.
    refused: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let server = server.address().strip_prefix("nats://").unwrap().to_owned();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let refused = Arc::new(AtomicUsize::new(0));
        let proxy = Self { address, open: Arc::clone(&open), refused: Arc::clone(&refused) };

        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                match &mut *open.lock().unwrap() {
                    Some(open) => {
                        let server = TcpStream::connect(&server).unwrap();
                        relay(&client, &server);
                        relay(&server, &client);
                        open.extend([client, server]);
                    }
                    None => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        proxy
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().take().into_iter().flatten() {
            // A connection that its peer has closed cannot be shut down.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    fn mend(&self) {
        *self.open.lock().unwrap() = Some(Vec::new());
    }

    fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) > 0
    }
}

/// Copies all bytes from one stream to the other, until one of them ends.
fn relay(from: &TcpStream, to: &TcpStream) {
    let mut from = from.try_clone().unwrap();
    let mut to = to.try_clone().unwrap();
    std::thread::spawn(move || {
        std::io::copy(&mut from, &mut to).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}

fn connected(client: &Client) -> Option<()> {
    (client.connection_state() == State::Connected).then_some(())
}

/// A request during an outage is never sent after it, although the NATS client keeps other
/// publishes and sends them later.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_during_an_outage_is_never_sent_after_it() {
    let server = Server::start_with(Settings { jetstream: None, more: "" });
    let proxy = Proxy::start(&server);
    let options = Options { servers: vec![proxy.address.clone()], ..server.options() };
    let transport = NatsTransport::connect(&options, "talk", "talk").await.unwrap();
    let pump = connect(&server.options(), "pump").await.unwrap();
    let mut requests = pump.subscribe(transport.subject(0)).await.unwrap();
    // The subscription is in force once a message arrives.
    pump.publish(transport.subject(0), "ready".into()).await.unwrap();
    requests.next().await.unwrap();

    proxy.cut();
    until("the outage is noticed", || connected(transport.client()).is_none().then_some(()));
    let (responses, mut received) = response_queue();
    transport.send(0, &ServiceRequest::Status, &responses).await.unwrap();
    let Some(ServiceResponse::Unavailable(why)) = received.try_recv() else {
        panic!("no pump can have answered");
    };
    assert_eq!(why, PartitionUnavailable::lasting("the servers of NATS do not respond"));

    proxy.mend();
    until("the outage is over", || connected(transport.client()));
    let later = ServiceRequest::JournalId { partition: 0 };
    let arrived = tokio::select! {
        arrived = requests.next() => arrived.unwrap(),
        sent = transport.send(0, &later, &responses) => panic!("no request arrived: {sent:?}"),
    };
    let DecodedChunk::Message(line) = ChunkDecoder::new("talk").decode(&arrived.payload) else {
        panic!("{arrived:?}");
    };
    let first: ServiceRequest = encoding::decode(&line).unwrap();
    assert!(matches!(first, ServiceRequest::JournalId { .. }), "{first:?}");
}

#[test]
fn a_command_outlasts_a_short_outage_of_the_servers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let one = host(&server);
    let running = run(&one, "0,1,2,3");
    let config = config(&server, super::PARTITIONS).replace(&server.address(), &proxy.address);
    let other = House::settled(&config);
    assert_eq!(ask(&other, "1"), numbered("pong", "1") + "\n");

    proxy.cut();
    other.write("payload.xml", numbered("ping", "2"));
    let mut send = other.command(&["send", "payload.xml", "--as", "desk", "--key", "2"]);
    let send = send.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let send = send.spawn().unwrap();
    until("the command meets the outage", || proxy.has_refused().then_some(()));
    proxy.mend();
    let sent = CommandOutput::from(send.wait_with_output().unwrap());
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, numbered("pong", "2") + "\n");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_partition_whose_stream_becomes_unsafe_waits_until_its_settings_are_right_again() {
    let server = Server::start();
    let house = host(&server);
    let running = run(&house, "0,1");
    let admin = server.admin();
    let set_discard = |value: &str| {
        let mut config = admin.info("ORGANISM-talk-0")["config"].clone();
        config["discard"] = value.into();
        admin.must("STREAM.UPDATE.ORGANISM-talk-0", &config);
    };

    set_discard("old");
    let reason = "retrying: no journal can be kept on";
    until("the partition waits", || house.log().contains(reason).then_some(()));
    let other = ask_in(&house, 1, 0);
    assert_eq!(other.code, Some(0), "{other:?}");
    set_discard("new");
    let sent = ask_until_served(&house, 0, 0);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
}

/// A host whose takeover is refused raises the alert, because no pump of the partition runs.
#[test]
fn a_takeover_that_an_unsafe_stream_prevents_raises_one_alert_until_the_pump_runs() {
    let server = Server::start();
    let alerts = "[alerts]\ncommand = \"./notify\"\non = [\"record\"]\n";
    let config = format!("{}\n{alerts}", config(&server, super::PARTITIONS));
    let hosts = [(); 2].map(|()| House::settled(&config));
    let [first, second] = &hosts;
    write_notify(first, NOTIFY);
    write_notify(second, NOTIFY);
    let mut pumping = run(first, "0");
    let running = run(second, "0");
    let standing_by = "pumps none of 4 partitions, stands by for 0";
    until("it stands by", || second.log().contains(standing_by).then_some(()));

    pumping.child.kill().unwrap();
    pumping.child.wait().unwrap();
    let admin = server.admin();
    let set_discard = |value: &str| {
        let mut config = admin.info("ORGANISM-talk-0")["config"].clone();
        config["discard"] = value.into();
        admin.must("STREAM.UPDATE.ORGANISM-talk-0", &config);
    };
    set_discard("old");
    let reported = || events(second, "record", "journal");
    until("it is raised", || (!reported().is_empty()).then_some(()));
    set_discard("new");
    let sent = ask_until_served(second, 0, 0);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is over", || (reported().len() > 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    assert_eq!(reported(), [event("raised", 1), event("ended", 1)]);
}

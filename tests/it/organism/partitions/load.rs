//! Clients that send continuously through the sockets of several hosts. A client fails if it gets
//! any answer other than a result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use organism::config::{self, Config, ConfigEnvironment};
use organism::ids::ListenerName;
use organism::organism::OrganismClient;
use organism::service::{SubmitRequest, SubmitUpdate};
use organism::thread::Closing;

use super::super::{House, PATIENCE, numbered, until_within};

/// Pause of a client after each result. The pause is so short that several clients nearly always
/// have a request in flight, and so long that the load leaves processor time for the operation
/// under test.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Load {
    done: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

pub fn loaded(house: &House) -> Config {
    let mut around = ConfigEnvironment::of_process();
    for (variable, directory) in [("XDG_DATA_HOME", "data"), ("XDG_STATE_HOME", "state")] {
        around.variables.insert(variable.to_owned(), house.path(directory).display().to_string());
    }
    config::load_without_keys(&house.path("organism.toml"), &around).unwrap()
}

impl Load {
    /// Starts `clients` clients at each host.
    pub fn start(houses: &[&House], clients: usize) -> Self {
        let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut all = Vec::new();
        for (host, house) in houses.iter().enumerate() {
            for client in 0..clients {
                let config = loaded(house);
                let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
                let name = format!("{host}-{client}");
                all.push(std::thread::spawn(move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.unwrap().block_on(send_all(config, &name, &done, &stop));
                }));
            }
        }
        Self { done, stop, clients: all }
    }

    /// Waits for `more` further results.
    pub fn has_done(&self, more: usize) {
        let goal = self.done.load(Ordering::Relaxed) + more;
        until_within(PATIENCE * 2, "the clients get on", || {
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client failed");
            (self.done.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Stops all clients. Returns the number of messages that were sent and answered.
    pub fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        self.done.load(Ordering::Relaxed)
    }
}

async fn send_all(config: Config, name: &str, done: &AtomicUsize, stop: &AtomicBool) {
    let client = OrganismClient::open(config).await.unwrap();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let said = format!("{name}-{number}");
        let request = SubmitRequest {
            client: ListenerName::parse("desk").unwrap(),
            thread: None,
            suggested: None,
            key: None,
            payload: numbered("ping", &said).into_bytes(),
            wait: true,
            trace: None,
            secret: None,
        };
        let mut results = Vec::new();
        let sent = client.submit(request, |sent| match sent {
            SubmitUpdate::Result { how, replies, .. } => results.push((how, replies)),
            SubmitUpdate::Accepted { again, .. } => assert!(!again),
            other => panic!("{said}: {other:?}"),
        });
        sent.await.unwrap_or_else(|error| panic!("{said}: {error}"));
        let [(how, replies)] = results.as_slice() else { panic!("{said}: {results:?}") };
        assert_eq!(*how, Closing::Completed, "{replies:?}");
        assert_eq!(replies[0].text(), numbered("pong", &said));
        done.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

//! Discovery responses of a NATS service (ADR-32), so that `nats micro` lists listeners.

use std::sync::Mutex;
use std::time::Duration;

use rand_core::{OsRng, RngCore as _};
use serde_json::{Value, json};

use super::ListenerSubjects;
use crate::clock::Time;
use crate::ids::ListenerName;
use crate::locks::locked;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceVerb {
    Ping,
    Info,
    Stats,
}

impl ServiceVerb {
    const ALL: [(Self, &str); 3] =
        [(Self::Ping, "PING"), (Self::Info, "INFO"), (Self::Stats, "STATS")];
}

pub struct Service {
    name: String,
    id: String,
    /// Subject of the listener's deliveries, which contains the listener's name.
    subject: String,
    metadata: Value,
    started: Time,
    counts: Mutex<EndpointCounts>,
}

#[derive(Default)]
struct EndpointCounts {
    requests: u64,
    errors: u64,
    last_error: String,
    time: Duration,
}

impl Service {
    /// Creates the description of the listener as a NATS service. In the metadata of the service,
    /// `kit` names the kind of program that runs the listener.
    pub fn new(organism: &str, listener: &ListenerName, lease: Duration, kit: &str) -> Self {
        let lease = lease.as_secs_f64().to_string();
        Self {
            name: listener.to_string(),
            id: format!("{:016x}", OsRng.next_u64()),
            subject: ListenerSubjects::new(organism, listener).deliveries(),
            metadata: json!({ "organism": organism, "lease": lease, "kit": kit }),
            started: Time::now(),
            counts: Mutex::default(),
        }
    }

    /// Returns the subjects of discovery requests. Each kind of request has three subjects: to all
    /// services, to the services with this name, and to the service with this id.
    pub fn subjects(&self) -> Vec<(ServiceVerb, String)> {
        let Self { name, id, .. } = self;
        let forms = ServiceVerb::ALL.map(|(verb, word)| {
            [
                format!("$SRV.{word}"),
                format!("$SRV.{word}.{name}"),
                format!("$SRV.{word}.{name}.{id}"),
            ]
            .map(|subject| (verb, subject))
        });
        forms.into_iter().flatten().collect()
    }

    pub fn count(&self, took: Duration, failed: Option<String>) {
        let mut counts = locked(&self.counts);
        counts.requests += 1;
        counts.time += took;
        if let Some(why) = failed {
            counts.errors += 1;
            counts.last_error = why;
        }
    }

    pub fn answer(&self, verb: ServiceVerb) -> Value {
        let version = env!("CARGO_PKG_VERSION");
        let name = &self.name;
        let id = &self.id;
        let metadata = &self.metadata;
        let endpoint = json!({
            "name": "deliveries",
            "subject": self.subject,
            "queue_group": name,
        });
        let mut answer =
            json!({ "name": name, "id": id, "version": version, "metadata": metadata });

        match verb {
            ServiceVerb::Ping => put(&mut answer, "type", json!("io.nats.micro.v1.ping_response")),
            ServiceVerb::Info => {
                put(&mut answer, "type", json!("io.nats.micro.v1.info_response"));
                put(&mut answer, "description", json!("a listener of an organism"));
                put(&mut answer, "endpoints", json!([endpoint]));
            }
            ServiceVerb::Stats => {
                put(&mut answer, "type", json!("io.nats.micro.v1.stats_response"));
                put(&mut answer, "started", json!(self.started.to_string()));
                put(&mut answer, "endpoints", json!([self.counted(endpoint)]));
            }
        }

        answer
    }

    fn counted(&self, mut endpoint: Value) -> Value {
        let counts = locked(&self.counts);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let average = nanos(counts.time).checked_div(counts.requests).unwrap_or_default();
        put(&mut endpoint, "num_requests", json!(counts.requests));
        put(&mut endpoint, "num_errors", json!(counts.errors));
        put(&mut endpoint, "last_error", json!(counts.last_error));
        put(&mut endpoint, "processing_time", json!(nanos(counts.time)));
        put(&mut endpoint, "average_processing_time", json!(average));
        endpoint
    }
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

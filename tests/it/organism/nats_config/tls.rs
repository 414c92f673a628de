//! Servers that other hosts can reach, with TLS as `nats-config` configures it, or with credentials
//! of another issuer.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use organism::listener::{Listener, NatsEndpoint, Reply, Request};
use organism::nats::{NatsCredentials, Options};

use super::super::{House, numbered, say, talk_reply, until};
use super::CONFIG;
use super::lacking::refused;
use crate::bus::harness::{name, repository};
use crate::bus::kit_language::KitLanguage;
use crate::nats::{Server, Settings};

pub fn pem(file: &str) -> PathBuf {
    repository().join("tests/data/nats/tls").join(file)
}

/// A port that is currently free.
pub fn port() -> u16 {
    let held = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    held.local_addr().unwrap().port()
}

/// Connection settings of a listener: address of the servers, credentials, and certificate of the
/// authority.
#[derive(Clone)]
pub struct Way {
    pub address: String,
    pub credentials: NatsCredentials,
    pub ca: Option<PathBuf>,
}

/// The listener `echo` of the Rust kit. The listener ends when this value is dropped.
pub struct Echo {
    _stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Echo {
    pub fn start(way: &Way) -> Self {
        let Way { address, credentials, ca } = way.clone();
        let place = NatsEndpoint::new(
            Options { servers: vec![address], credentials, ca },
            "talk",
            name("echo"),
        );
        let (_stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { stopped.await.unwrap_or_default() };
        let thread = std::thread::spawn(move || {
            let answer = |request: &Request| {
                let text = request.payload();
                let text = text.replace("<say ", "<said ").replace("</say>", "</said>");
                Ok::<_, String>(Reply::raw(text))
            };
            Listener::new().otherwise(answer).serve_at(&place, stopped)
        });
        Self { _stop, thread }
    }

    /// Waits until the listener fails to serve. Returns the reason.
    pub fn refused(self) -> String {
        self.thread.join().unwrap().unwrap_err()
    }
}

/// The process of the listener `solo`, which is written with the Python kit or the TypeScript kit.
/// Dropping this value kills the process.
pub struct Solo(Child);

impl Solo {
    pub fn start(language: KitLanguage, house: &House, way: &Way) -> Self {
        Self::start_program("solo", language, house, way)
    }

    /// Starts another program as the listener `solo`.
    pub fn start_program(program: &str, language: KitLanguage, house: &House, way: &Way) -> Self {
        let mut command = language.on_nats(program);
        command
            .env("EFFECTS", house.path("effects"))
            .env("ORGANISM_BUS_URL", &way.address)
            .env("ORGANISM_NAME", "talk")
            .env("ORGANISM_LISTENER", "solo")
            .stderr(std::fs::File::create(house.path("solo.log")).unwrap())
            .stdout(Stdio::null());
        if let Some(ca) = &way.ca {
            command.env("ORGANISM_BUS_CA", ca);
        }
        match &way.credentials {
            NatsCredentials::Nkey(path) => command.env("ORGANISM_BUS_NKEY", path),
            NatsCredentials::File(path) => command.env("ORGANISM_BUS_CREDENTIALS", path),
            other => panic!("{other:?}"),
        };
        Self(command.spawn().unwrap())
    }

    /// Waits until the listener fails to serve. Returns its exit code and output.
    pub fn refused(mut self, house: &House) -> (Option<i32>, String) {
        let status = until("the listener ends", || self.0.try_wait().unwrap());
        (status.code(), std::fs::read_to_string(house.path("solo.log")).unwrap())
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        // A process that has exited cannot be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Asserts that a listener ended with code 1, and that its log names `what` and has no stack trace.
pub fn assert_refused((code, log): (Option<i32>, String), what: &str) {
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(what), "{log}");
    assert!(!log.contains("Traceback") && !log.contains("    at "), "{log}");
}

/// Sends `text` until the listener answers, because the listener may join late. Returns the answer.
pub fn ask(house: &House, text: &str, number: &str) -> String {
    let mut tries = 0;
    until("it is answered", || {
        tries += 1;
        let told = house.send_text(text, &["--key", &format!("{number}-{tries}")]);
        assert!(matches!(told.code, Some(0 | 1)), "{told:?}\n{}", house.log());
        (told.code == Some(0)).then_some(told.out)
    })
}

/// A house with a server that `nats-config` configured for TLS.
struct Encrypted {
    house: House,
    server: Server,
    address: String,
}

impl Encrypted {
    fn start() -> Self {
        let port = port();
        let address = format!("nats://127.0.0.1:{port}");
        let first = CONFIG.replace("ADDRESS", &address).replace("NKEY", "");
        let house = House::settled(&first);
        let [certificate, key] =
            ["server.pem", "server-key.pem"].map(|file| pem(file).display().to_string());
        let (port, store) = (port.to_string(), house.path("store").display().to_string());
        let made = house.organism(&[
            "nats-config",
            "--port",
            &port,
            "--store",
            &store,
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let server = Server::written(&house.path("nats/server.conf"));
        assert_eq!(server.address(), address);
        let encrypted = Self { house, server, address };
        encrypted.trusts(Some(&pem("ca.pem")));
        encrypted
    }

    /// Sets the authority that the organism trusts, or removes it.
    fn trusts(&self, ca: Option<&Path>) {
        let mut nats = "nkey_file = \"nats/pump.nk\"".to_owned();
        if let Some(ca) = ca {
            nats += &format!("\nca_file = \"{}\"", ca.display());
        }
        let config = CONFIG.replace("ADDRESS", &self.address).replace("NKEY", &nats);
        self.house.write("organism.toml", config);
    }

    fn way(&self, listener: &str, ca: &str) -> Way {
        let credentials =
            NatsCredentials::Nkey(self.house.path(&format!("nats/listener-{listener}.nk")));
        Way { address: self.address.clone(), credentials, ca: Some(pem(ca)) }
    }
}

#[test]
fn the_written_servers_with_tls_serve_the_pump_and_all_kits() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    let _echo = Echo::start(&encrypted.way("echo", "ca.pem"));
    let running = house.run();
    assert_eq!(ask(house, &say("encrypted"), "1"), talk_reply("encrypted"));
    for (language, key) in KitLanguage::ALL.into_iter().zip(["2", "3"]) {
        let _solo = Solo::start(language, house, &encrypted.way("solo", "ca.pem"));
        assert_eq!(ask(house, &numbered("ping", "7"), key), numbered("pong", "7") + "\n");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_server_that_another_authority_signed_is_refused_by_pump_and_kits() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    for ca in [Some(pem("other-ca.pem")), None] {
        encrypted.trusts(ca.as_deref());
        let (code, told) = refused(house);
        assert_eq!(code, Some(69), "{told}");
        assert!(told.contains("certificate") && told.contains("ca_file"), "{told}");
    }
    let refused = Echo::start(&encrypted.way("echo", "other-ca.pem")).refused();
    assert!(refused.contains("certificate"), "{refused}");
    for language in KitLanguage::ALL {
        let solo = Solo::start(language, house, &encrypted.way("solo", "other-ca.pem"));
        assert_refused(solo.refused(house), "certificate");
    }
}

#[test]
fn an_unknown_key_is_reported_with_its_file_by_the_pump_and_the_kits() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    for user in ["pump", "listener-echo", "listener-solo"] {
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        house.write(&format!("nats/{user}.nk"), seed);
    }
    let (code, told) = refused(house);
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("pump.nk"), "{told}");
    let refused = Echo::start(&encrypted.way("echo", "ca.pem")).refused();
    assert!(refused.contains("listener-echo.nk"), "{refused}");
    for language in KitLanguage::ALL {
        let solo = Solo::start(language, house, &encrypted.way("solo", "ca.pem"));
        assert_refused(solo.refused(house), "listener-solo.nk");
    }
}

/// The client of NATS reads the file of the authority anew for each attempt to connect.
#[test]
fn a_certificate_that_is_no_longer_trusted_is_named_in_the_log() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    let ca = house.path("ca.pem");
    std::fs::copy(pem("ca.pem"), &ca).unwrap();
    encrypted.trusts(Some(&ca));
    let running = house.run();
    encrypted.server.kill();
    std::fs::copy(pem("other-ca.pem"), &ca).unwrap();
    encrypted.server.restart();
    let named = "invalid peer certificate";
    until("the certificate is named", || house.log().contains(named).then_some(()));
    let log = house.log();
    let line = log.lines().find(|line| line.contains(named)).unwrap();
    assert!(line.contains(&encrypted.address) && line.contains("`ca_file` trusts"), "{line}");
    std::fs::copy(pem("ca.pem"), &ca).unwrap();
    until("it is connected", || house.log().contains("connected to NATS again").then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_file_of_trusted_certificates_without_one_is_named_by_pump_and_kits() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    let key = pem("server-key.pem");
    encrypted.trusts(Some(&key));
    let (code, told) = refused(house);
    assert_eq!(code, Some(78), "{told}");
    assert!(told.contains("certificate-missing") && told.contains("server-key.pem"), "{told}");
    let refused = Echo::start(&encrypted.way("echo", "server-key.pem")).refused();
    assert!(refused.contains("server-key.pem contains no certificate"), "{refused}");
    for language in KitLanguage::ALL {
        let solo = Solo::start(language, house, &encrypted.way("solo", "server-key.pem"));
        assert_refused(solo.refused(house), "server-key.pem");
    }
}

/// While a kit is refused, it tries to connect five times a second.
#[test]
fn a_kit_whose_key_is_revoked_names_it_in_a_few_lines() {
    let encrypted = Encrypted::start();
    let house = &encrypted.house;
    let accounts = house.path("nats/accounts.conf");
    let known = std::fs::read_to_string(&accounts).unwrap();
    let seed = std::fs::read_to_string(house.path("nats/listener-solo.nk")).unwrap();
    let key = nkeys::KeyPair::from_seed(seed.trim()).unwrap().public_key();
    let other = nkeys::KeyPair::new_user().public_key();
    let running = house.run();
    for (language, number) in KitLanguage::ALL.into_iter().zip(["1", "2"]) {
        let _solo = Solo::start(language, house, &encrypted.way("solo", "ca.pem"));
        assert_eq!(ask(house, &numbered("ping", "7"), number), numbered("pong", "7") + "\n");
        let refusals = || encrypted.server.log().matches("authentication error").count();
        let before = refusals();
        std::fs::write(&accounts, known.replace(&key, &other)).unwrap();
        encrypted.server.signal("-HUP");
        until("it is refused many times", || (refusals() > before + 20).then_some(()));
        let log = std::fs::read_to_string(house.path("solo.log")).unwrap();
        assert!(log.lines().count() <= 5, "{language:?}: {log}");
        assert!(log.contains("listener-solo.nk") && log.contains("restart the listener"), "{log}");
        std::fs::write(&accounts, &known).unwrap();
        encrypted.server.signal("-HUP");
    }
    assert_eq!(running.stop(), Some(0));
}

/// No program of organism shows a certificate.
#[test]
fn a_server_that_demands_client_certificates_is_named_as_such_by_all_kits() {
    let [certificate, key, ca] =
        ["server.pem", "server-key.pem", "ca.pem"].map(|file| pem(file).display().to_string());
    let more = format!(
        "tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{ca}\", verify: true }}"
    );
    let server = Server::start_with(Settings { jetstream: None, more: more.leak() });
    let house = House::settled(&CONFIG.replace("ADDRESS", &server.address()).replace("NKEY", ""));
    house.write("solo.nk", nkeys::KeyPair::new_user().seed().unwrap());
    let way = Way {
        address: server.address().replace("nats:", "tls:"),
        credentials: NatsCredentials::Nkey(house.path("solo.nk")),
        ca: Some(pem("ca.pem")),
    };
    let named = "remove `verify` from the `tls` section";
    let refused = Echo::start(&way).refused();
    assert!(refused.contains(named), "{refused}");
    assert_refused(Solo::start(KitLanguage::Python, &house, &way).refused(&house), named);
    // The client of this kit learns nothing of the reason. The kit waits, as for a server that is down.
    let _solo = Solo::start(KitLanguage::TypeScript, &house, &way);
    let log = || std::fs::read_to_string(house.path("solo.log")).unwrap();
    until("it names the possible cause", || log().contains("has `verify`").then_some(()));
}

/// A JWT of NATS about the key `of`, signed with the key `by`.
fn token(by: &nkeys::KeyPair, of: &nkeys::KeyPair, name: &str, nats: &serde_json::Value) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    let header = BASE64.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let claims = serde_json::json!({
        "jti": of.public_key(), "iat": 1_700_000_000, "iss": by.public_key(),
        "sub": of.public_key(), "name": name, "nats": nats,
    });
    let body = format!("{header}.{}", BASE64.encode(claims.to_string()));
    let signature = BASE64.encode(by.sign(body.as_bytes()).unwrap());
    format!("{body}.{signature}")
}

/// A `.creds` file with all permissions in the account.
fn credentials(house: &House, file: &str, account: &nkeys::KeyPair) {
    let user = nkeys::KeyPair::new_user();
    let nats =
        serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let (token, seed) = (token(account, &user, file, &nats), user.seed().unwrap());
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    house.write(file, text);
}

#[test]
fn creds_files_of_servers_with_an_operator_serve_the_pump_and_all_kits() {
    use nkeys::KeyPair;
    use serde_json::json;
    let (operator, account, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_account = json!({ "type": "account", "version": 2, "limits": limits });
    let of_system = json!({ "type": "account", "version": 2, "limits": { "subs": -1, "conn": -1, "data": -1, "payload": -1 } });
    let of_operator =
        json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
    let more = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n  {}: {}\n  {}: {}\n}}\n",
        token(&operator, &operator, "operator", &of_operator),
        system.public_key(),
        account.public_key(),
        token(&operator, &account, "talk", &of_account),
        system.public_key(),
        token(&operator, &system, "SYS", &of_system),
    );
    let server = Server::start_with(Settings { jetstream: Some(""), more: more.leak() });
    let config = CONFIG.replace("ADDRESS", &server.address());
    let house = House::settled(&config.replace("NKEY", "credentials_file = \"pump.creds\""));
    let way = |file: &str| {
        credentials(&house, file, &account);
        let credentials = NatsCredentials::File(house.path(file));
        Way { address: server.address(), credentials, ca: None }
    };
    way("pump.creds");
    let _echo = Echo::start(&way("echo.creds"));
    let running = house.run();
    assert_eq!(ask(&house, &say("by token"), "1"), talk_reply("by token"));
    for (language, key) in KitLanguage::ALL.into_iter().zip(["2", "3"]) {
        let _solo = Solo::start(language, &house, &way("solo.creds"));
        assert_eq!(ask(&house, &numbered("ping", "7"), key), numbered("pong", "7") + "\n");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
    // The server does not accept a token that another account signed.
    credentials(&house, "pump.creds", &KeyPair::new_account());
    let (code, told) = refused(&house);
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("pump.creds"), "{told}");
}

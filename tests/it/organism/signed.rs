//! Operators. If the config names operators, a decision takes effect only with the signature of one
//! of them.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use organism::clock::Time;
use organism::ids::{ListenerName, MessageId, Position, ThreadId};
use organism::service::handshake::Handshake;
use organism::service::signing::{self, OperatorSigner};
use organism::service::{
    DecisionRequest, ServiceClient, ServiceRequest, ServiceResponse, SocketTransport,
    SubmittedAnswer, response_queue,
};
use organism::thread::{Decision, DecisionOrigin, Input};
use pkcs8::EncryptedPrivateKeyInfo;
use serde_json::Value as Json;
use uuid::Uuid;

use super::approvals::previews::write_previewer;
use super::operator_keys::write_operator_key;
use super::{CommandOutput, House, Running, numbered, say};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "boss", "commander"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
approval = "always"

[listeners.commander]
command = ["./commander.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
env = { ORGANISM_PASSPHRASE_FILE = "passphrase" }

[humans.boss]
schema = "people.xsd"
accepts = ["question"]
replies = ["decision", "pass"]
"#;

const PEOPLE: &str = "urn:example:people";
const HOUR_MICROS: i64 = 3_600_000_000;
const PASSPHRASE: &str = "correct horse battery";

/// A directory with the keys of two operators, and of a person who is no operator.
struct Signing {
    house: House,
}

impl Signing {
    fn new() -> Self {
        Self::with_ana(|signing| signing.write_key("ana"))
    }

    /// Creates the directory with its config and keys. `ana_key` writes the key of the operator
    /// `ana` and returns the public key.
    fn with_ana(ana_key: impl FnOnce(&Self) -> String) -> Self {
        let house = House::with(CONFIG);
        house.copy("commander.py");
        house.write("people.xsd", include_str!("../../data/organism/people.xsd"));
        house.write("payload.xml", numbered("ping", "forged"));
        house.write("passphrase", format!("{PASSPHRASE}\n"));
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(house.path("passphrase"), mode).unwrap();

        let signing = Self { house };
        let ana = ana_key(&signing);
        let [ben, _] = ["ben", "stranger"].map(|name| signing.write_key(name));
        let operators =
            format!("[operators.ana]\nkey = \"{ana}\"\n[operators.ben]\nkey = \"{ben}\"");
        signing.house.write("organism.toml", format!("{CONFIG}\n{operators}\n"));
        signing
    }

    /// Creates the directory with a listener `commander` whose calls are held, with previews.
    fn with_previews() -> Self {
        let signing = Self::new();
        write_previewer(&signing.house, "remove a");
        let keys = "approval = \"always\"\npreviews = true\npreview_timeout = \"1h\"";
        let config = std::fs::read_to_string(signing.house.path("organism.toml")).unwrap();
        let config = config.replace(
            "command = [\"./commander.py\"]",
            &format!("command = [\"./previewer.py\"]\n{keys}"),
        );
        signing.house.write("organism.toml", config);
        signing
    }

    /// Writes to the file `NAME.key` a key that is cheap to decrypt. Returns its public key.
    fn write_key(&self, name: &str) -> String {
        let path = self.house.path(&format!("{name}.key"));
        write_operator_key(&path, PASSPHRASE).to_string()
    }

    /// Makes a key in the file `NAME.key` with `organism operator key`. Returns its public key.
    fn make_key(&self, name: &str) -> String {
        let made = self.signs(&["operator", "key", &format!("{name}.key")]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let line = made.out.lines().find_map(|line| line.strip_prefix("key = \"")).unwrap();
        line.trim_end_matches('"').to_owned()
    }

    fn run(&self) -> Running {
        let mut command = self.house.command(&["run"]);
        command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
        command.env("ORGANISM_CLOCK_SKEW", self.house.path("skew"));
        self.house.run_with(command)
    }

    fn signing_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.house.command(arguments);
        command.env("ORGANISM_PASSPHRASE_FILE", self.house.path("passphrase"));
        command
    }

    /// Runs a command whose environment names the file with the passphrase of the keys.
    fn signs(&self, arguments: &[&str]) -> CommandOutput {
        self.signing_command(arguments).output().unwrap().into()
    }

    /// Sends a ping, which opens a call that is held for an approval. Returns the message, the hash
    /// and the thread of the call.
    fn hold(&self, number: &str) -> (String, String, String) {
        let sent = self.house.send_text(&numbered("ping", number), &["--no-wait"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        let held = self.house.organism(&["approvals", "--json"]).json().pop().unwrap();
        let text = |key: &str| held[key].as_str().unwrap().to_owned();
        (text("message"), text("sha256"), text("thread"))
    }

    fn held(&self) -> usize {
        self.house.organism(&["approvals", "--json"]).json().len()
    }

    fn ask_boss(&self, text: &str) -> (String, String) {
        let question = format!("<question xmlns=\"{PEOPLE}\">{text}</question>");
        assert_eq!(self.house.send_text(&question, &["--no-wait"]).code, Some(0));
        let open = self.house.organism(&["answer", "--json"]).json().pop().unwrap();
        let text = |key: &str| open[key].as_str().unwrap().to_owned();
        (text("message"), text("thread"))
    }

    fn signer(&self, name: &str) -> OperatorSigner {
        let passphrase = || Ok::<_, signing::Error>(PASSPHRASE.to_owned().into());
        OperatorSigner::load(&self.house.path(&format!("{name}.key")), passphrase).unwrap()
    }

    fn journal(&self) -> Uuid {
        self.house.reader().about().unwrap().journal
    }

    /// Sends a request to the organism. If the request is refused, returns the rule and the text of
    /// the refusal.
    fn asks(&self, ask: &ServiceRequest) -> Result<(), String> {
        let mut answer = None;
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let client =
                ServiceClient::find(&self.house.data(), self.house.handshake()).await.unwrap();
            client.unwrap().attempt(0, ask, |line| answer = Some(line)).await.unwrap();
        });
        match answer.unwrap() {
            ServiceResponse::Cancelled | ServiceResponse::Ruled(None) => Ok(()),
            ServiceResponse::Ruled(Some(refusal)) => Err(refusal.to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// The signatures in the timeline of a thread: verb, operator, and whether each is valid.
    fn signatures(&self, thread: &str) -> Vec<(String, String, bool)> {
        let shown = self.house.organism(&["thread", thread, "--json"]);
        let story: Json = serde_json::from_str(&shown.out).unwrap();
        let items = story["items"].as_array().unwrap().iter().map(|item| &item["decision"]);
        let signed = items.filter(|decision| decision["signed"].is_object()).map(|decision| {
            let text = |value: &Json| value.as_str().unwrap_or("nobody").to_owned();
            let signed = &decision["signed"];
            let holds = signed["holds"].as_bool().unwrap();
            (text(&decision["verb"]), text(&signed["operator"]), holds)
        });
        signed.collect()
    }
}

fn cancel(thread: &str) -> ServiceRequest {
    let note = "as agreed".to_owned();
    let origin = Some(DecisionOrigin { note, ..DecisionOrigin::default() });
    let thread = ThreadId::parse(thread).unwrap();
    ServiceRequest::Cancel { thread, by: operator(), reason: "enough".to_owned(), origin }
}

fn decide(message: &str, what: Decision<SubmittedAnswer>) -> ServiceRequest {
    let message: MessageId = message.parse().unwrap();
    ServiceRequest::Decide(DecisionRequest {
        message,
        partition: None,
        by: operator(),
        what,
        origin: None,
    })
}

fn operator() -> ListenerName {
    ListenerName::parse("operator").unwrap()
}

#[test]
fn a_decision_needs_the_signature_of_an_operator() {
    let signing = Signing::new();
    signing.house.write("skew", HOUR_MICROS.to_string());
    let running = signing.run();
    let (message, hash, thread) = signing.hold("1");
    let (question, asked) = signing.ask_boss("left or right?");
    // The clock is right again, and record time stays ahead: signatures count nevertheless.
    signing.house.write("skew", "0");
    let pass = format!("<?xml version=\"1.0\"?>\n<pass xmlns=\"{PEOPLE}\">no idea</pass>\n");
    signing.house.write("pass.xml", pass);
    let commands: [&[&str]; 4] = [
        &["approve", &message, "--hash", &hash],
        &["refuse", &message],
        &["answer", &question, "pass.xml"],
        &["cancel", &thread],
    ];
    for command in commands {
        for sign in [&[][..], &["--sign", "stranger.key"]] {
            let refused = signing.signs(&[command, sign].concat());
            assert_eq!(refused.code, Some(65), "{command:?}: {refused:?}");
            assert!(refused.err.contains("not-signed"), "{command:?}: {refused:?}");
        }
        let unsigned = signing.signs(command);
        assert!(unsigned.err.contains("--sign FILE"), "{unsigned:?}");
        assert!(unsigned.err.contains("ana, ben"), "{unsigned:?}");
    }
    // A question needs no approval, but it waits, too.
    for (call, other) in [(&message, "00000000"), (&message, "zzzzzzzzzz"), (&question, "00000000")]
    {
        let approve = ["approve", call, "--hash", other, "--sign", "ana.key"];
        let mistyped = signing.signs(&approve);
        assert_eq!(mistyped.code, Some(65), "{mistyped:?}");
        assert!(mistyped.err.contains("wrong-hash: "), "the key is in order: {mistyped:?}");
    }
    assert_eq!(signing.held(), 1, "it waits on");
    let listed = signing.house.organism(&["approvals"]);
    let command = format!("organism approve {message} --hash {} --sign FILE", &hash[..16]);
    assert!(listed.out.contains(&command), "{listed:?}");

    let approve = ["approve", &message, "--hash", &hash[..12], "--note", "seen", "--sign"];
    let approved = signing.signs(&[&approve[..], &["ana.key"]].concat());
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let answered = signing.signs(&["answer", &question, "pass.xml", "--sign", "ben.key"]);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let (held, _, other) = signing.hold("2");
    let refused = signing.signs(&["refuse", &held, "--reason", "no", "--sign", "ana.key"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    let (_, _, third) = signing.hold("3");
    let cancelled = signing.signs(&["cancel", &third, "--sign", "ben.key"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");

    let good = |thread: &str| {
        let mut shown = signing.signatures(thread);
        shown.retain(|(_, operator, _)| operator != "nobody");
        shown
    };
    let shown = |verb: &str, operator: &str| (verb.to_owned(), operator.to_owned(), true);
    assert_eq!(good(&thread), [shown("approve", "ana")]);
    assert_eq!(good(&asked), [shown("answer", "ben")]);
    assert_eq!(good(&other), [shown("refuse", "ana")]);
    assert_eq!(good(&third), [shown("cancel", "ben")]);
    let page = signing.house.organism(&["thread", &thread]).out;
    assert!(page.contains("signed by ana, ed25519:"), "{page}");
    assert!(page.contains("the signature is valid"), "{page}");
    assert_eq!(running.stop(), Some(0));
    signing.house.verified();
}

/// Decisions that come second are refused and recorded. The passphrase of the answer comes from
/// standard input, before the answer itself.
#[test]
fn a_signed_command_that_comes_second_is_recorded_under_the_name_of_its_operator() {
    let signing = Signing::with_previews();
    let running = signing.run();
    let (message, hash, _) = signing.hold("1");
    let sent = signing.house.send_text(&say("hello"), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = signing.house.organism(&["approvals", "--json"]).json();
    let viewed = held.iter().find(|call| call["to"] == "commander").unwrap();
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let id = text(&viewed["message"]);
    let payload = text(&viewed["sha256"]);
    let preview = text(&viewed["preview"]["recorded"]["sha256"]);
    let (question, _) = signing.ask_boss("left or right?");
    let pass = format!("<pass xmlns=\"{PEOPLE}\">no idea</pass>");
    signing.house.write("pass.xml", &pass);
    let mut command = signing.house.command(&["answer", &question, "-", "--sign", "ana.key"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = format!("{PASSPHRASE}\n{pass}");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let answered = CommandOutput::from(child.wait_with_output().unwrap());
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let approve = ["approve", &message, "--hash", &hash, "--sign", "ana.key"];
    assert_eq!(signing.signs(&approve).code, Some(0));
    // As `organism approvals` prints it.
    let approve = ["approve", &id, "--hash", &payload[..16], "--preview", &preview[..16]];
    let approved = signing.signs(&[&approve[..], &["--sign", "ana.key"]].concat());
    assert_eq!(approved.code, Some(0), "{approved:?}");

    let second: [&[&str]; 5] = [
        &["answer", &question, "pass.xml", "--sign", "ben.key"],
        &["approve", &message, "--hash", &hash[..8], "--sign", "ben.key"],
        &[&approve[..], &["--sign", "ben.key"]].concat(),
        &["refuse", &message, "--sign", "ben.key"],
        // A signature covers whole hashes alone.
        &["approve", &message, "--hash", "00000000", "--sign", "ben.key"],
    ];
    for command in second {
        let refused = signing.signs(&[command, &["--json"]].concat());
        assert_eq!(refused.code, Some(65), "{command:?}: {refused:?}");
        assert_eq!(refused.json()[0]["refusal"]["rule"], "not-waiting", "{command:?}: {refused:?}");
    }
    assert_eq!(running.stop(), Some(0));

    let reader = signing.house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let deciders = records.iter().filter_map(|sealed| match &sealed.record.input {
        Input::Decided { by, .. } => Some(by.to_string()),
        _ => None,
    });
    let deciders: Vec<_> = deciders.collect();
    assert_eq!(deciders, ["ana", "ana", "ana", "ben", "ben", "ben", "ben", "operator"]);
    let page = signing.house.organism(&["thread", "sess-organism"]).out;
    assert!(page.contains(&format!("about the call {question}")), "{page}");
    let page = signing.house.organism(&["thread", "sess-organism", "--json"]).out;
    let page: Json = serde_json::from_str(&page).unwrap();
    let items = page["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["decision"]["message"] == question), "{page}");
    signing.house.verified();
}

#[test]
fn a_signed_decision_counts_once_and_for_what_was_signed() {
    let signing = Signing::new();
    let running = signing.run();
    let (message, hash, thread) = signing.hold("1");
    let (_, _, other) = signing.hold("2");
    let (journal, ana) = (signing.journal(), signing.signer("ana"));
    let thread_id = ThreadId::parse(&thread).unwrap();
    let signed = |ask: ServiceRequest| {
        let mut ask = ask;
        ana.sign(&mut ask, journal, &thread_id);
        ask
    };

    let ServiceRequest::Cancel { origin, .. } = signed(cancel(&thread)) else { unreachable!() };
    let with_origin = |ask: ServiceRequest, origin: &Option<DecisionOrigin>| match ask {
        ServiceRequest::Cancel { thread, by, reason, .. } => {
            ServiceRequest::Cancel { thread, by, reason, origin: origin.clone() }
        }
        ServiceRequest::Decide(matter) => {
            ServiceRequest::Decide(DecisionRequest { origin: origin.clone(), ..matter })
        }
        other => other,
    };
    let noted = origin.clone().map(|origin| DecisionOrigin { note: "mine".to_owned(), ..origin });
    let mut elsewhere = cancel(&thread);
    ana.sign(&mut elsewhere, Uuid::from_u128(1), &thread_id);
    let mut expired = cancel(&thread);
    let six_minutes = i64::try_from(Duration::from_secs(360).as_micros()).unwrap();
    let early = Time(Time::now().0 - six_minutes);
    ana.sign_at(&mut expired, journal, &thread_id, (early, Uuid::from_u128(2)));
    let mut other_key = cancel(&thread);
    signing.signer("stranger").sign(&mut other_key, journal, &thread_id);
    let refuse = decide(&message, Decision::Refuse { reason: "enough".to_owned() });
    let forged = [
        ("changed after it was signed", with_origin(cancel(&thread), &noted)),
        ("changed after it was signed", with_origin(refuse, &origin)),
        ("another thread", with_origin(cancel(&other), &origin)),
        ("another journal", elsewhere),
        ("holds for 5 minutes", expired),
        ("of no operator", other_key),
    ];
    for (why, ask) in &forged {
        let refusal = signing.asks(ask).unwrap_err();
        assert!(refusal.starts_with("not-signed: ") && refusal.contains(why), "{why}: {refusal}");
    }
    assert_eq!(signing.held(), 2, "both wait on");

    let approval = signed(decide(&message, Decision::Approve { hash, preview: None }));
    assert_eq!(signing.asks(&approval), Ok(()));
    assert!(signing.asks(&approval).unwrap_err().starts_with("not-waiting"));
    let mut cancellation = cancel(&other);
    ana.sign(&mut cancellation, journal, &ThreadId::parse(&other).unwrap());
    assert_eq!(signing.asks(&cancellation), Ok(()));
    assert!(signing.asks(&cancellation).unwrap_err().contains("used before"));
    assert_eq!(running.stop(), Some(0));

    let running = signing.run();
    assert!(signing.asks(&cancellation).unwrap_err().contains("used before"), "after a restart");
    assert_eq!(running.stop(), Some(0));
    signing.house.verified();
}

#[test]
fn a_hosted_process_with_the_key_of_an_operator_decides_nothing() {
    let signing = Signing::new();
    let running = signing.run();
    let (message, hash, thread) = signing.hold("1");
    let commands = [
        format!("approve {message} --hash {hash} --sign ana.key"),
        format!("refuse {message} --sign ana.key"),
        format!("cancel {thread} --sign ana.key"),
        "pause all --sign ana.key".to_owned(),
    ];
    for command in &commands {
        let said = signing.house.send_text(&say(&format!("plain {command}")), &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains("hosted-process: this process runs in"), "{command}: {said:?}");
    }
    assert_eq!(signing.held(), 1, "it waits on");
    assert_eq!(running.stop(), Some(0));
    signing.house.verified();
}

#[test]
fn an_operators_key_is_encrypted_and_its_owners_alone_and_never_overwritten() {
    let signing = Signing::with_ana(|signing| signing.make_key("ana"));
    let path = signing.house.path("ana.key");
    let pem = std::fs::read_to_string(&path).unwrap();
    assert!(pem.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"), "{pem}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = signing.signs(&["operator", "key", "ana.key"]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("never overwritten"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), pem);

    let typed = |passphrase: &str, arguments: &[&str]| -> CommandOutput {
        let mut command = signing.house.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(passphrase.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    };
    for (passphrase, why) in [("", "no passphrase was given"), ("short\n", "at least 8 characters")]
    {
        let refused = typed(passphrase, &["operator", "key", "new.key"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    let missing = typed("long enough\n", &["operator", "key", "new/key"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("there is no directory new"), "{missing:?}");
    std::fs::create_dir(signing.house.path("new")).unwrap();
    let made = typed("long enough\n", &["operator", "key", "new/key"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(signing.house.path("new/key").exists());

    let running = signing.run();
    let (message, hash, _) = signing.hold("1");
    let approve = ["approve", &message, "--hash", &hash, "--sign"];
    let wrong = typed("incorrect horse\n", &[&approve[..], &["ana.key"]].concat());
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("this is not the passphrase of ana.key"), "{wrong:?}");
    let none = typed("anything\n", &[&approve[..], &["talk.xsd"]].concat());
    assert!(none.code == Some(2) && none.err.contains("talk.xsd"), "{none:?}");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&path, mode).unwrap();
    let open = typed(&format!("{PASSPHRASE}\n"), &[&approve[..], &["ana.key"]].concat());
    assert!(open.code == Some(2) && open.err.contains("other users can read"), "{open:?}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let approved = typed(&format!("{PASSPHRASE}\n"), &[&approve[..], &["ana.key"]].concat());
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_key_of_the_command_opens_in_openssl() {
    let signing = Signing::with_ana(|signing| signing.make_key("ana"));
    let pem = std::fs::read_to_string(signing.house.path("ana.key")).unwrap();
    let (_, der) = pkcs8::der::pem::decode_vec(pem.as_bytes()).unwrap();
    let key = EncryptedPrivateKeyInfo::try_from(&*der).unwrap();
    let scrypt = key.encryption_algorithm.pbes2().unwrap().kdf.scrypt().unwrap();
    let costs = (scrypt.cost_parameter, scrypt.block_size, scrypt.parallelization);
    assert_eq!(costs, (1 << 14, 8, 8), "OpenSSL refuses more than 32 MiB");

    let mut openssl = Command::new("openssl");
    openssl.args(["pkey", "-noout", "-passin", &format!("pass:{PASSPHRASE}"), "-in"]);
    openssl.arg(signing.house.path("ana.key"));
    // Where openssl is not installed, the parameters above have to do.
    let Ok(opened) = openssl.output() else { return };
    assert!(opened.status.success(), "{opened:?}");

    // The command of OPERATIONS for a lost public line.
    let mut public = Command::new("sh");
    let decode =
        format!("openssl pkey -in ana.key -passin 'pass:{PASSPHRASE}' -pubout -outform DER");
    let encode = "tail -c 32 | base64 | tr +/ -_ | tr -d =";
    public.args(["-c", &format!("{decode} | {encode}")]).current_dir(signing.house.path(""));
    let public = String::from_utf8(public.output().unwrap().stdout).unwrap();
    let config = std::fs::read_to_string(signing.house.path("organism.toml")).unwrap();
    let line = format!("[operators.ana]\nkey = \"ed25519:{}\"", public.trim());
    assert!(config.contains(&line), "{line} and {config}");
}

#[test]
fn check_names_an_operators_key_that_is_malformed_or_given_twice() {
    let signing = Signing::new();
    let good = std::fs::read_to_string(signing.house.path("organism.toml")).unwrap();
    let key = good.lines().find_map(|line| line.strip_prefix("key = ")).unwrap().to_owned();
    let cases = [
        ("\"ed25519:AAAA\"", "this is no public key of an operator"),
        ("\"secret of somebody\"", "this is no public key of an operator"),
        (&*key, "this is the key of the operator `ana`"),
    ];
    for (written, why) in cases {
        let config = format!("{good}\n[operators.eve]\nkey = {written}\n");
        signing.house.write("organism.toml", config);
        let checked = signing.house.organism(&["check"]);
        assert_eq!(checked.code, Some(78), "{checked:?}");
        assert!(checked.err.contains("operator-key"), "{checked:?}");
        assert!(checked.err.contains(why), "{checked:?}");
        assert!(!checked.err.contains("secret of somebody"), "{checked:?}");
    }
    let eve = signing.make_key("eve");
    for reserved in ["core", "operator"] {
        let config = format!("{good}\n[operators.{reserved}]\nkey = \"{eve}\"\n");
        signing.house.write("organism.toml", config);
        let checked = signing.house.organism(&["check"]);
        assert_eq!(checked.code, Some(78), "{checked:?}");
        assert!(checked.err.contains("reserved-name"), "{checked:?}");
    }
    signing.house.write("organism.toml", good);
    assert_eq!(signing.house.organism(&["check"]).code, Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_does_not_learn_where_the_passphrase_of_an_operator_is() {
    use super::until;

    let signing = Signing::new();
    let mut command = signing.signing_command(&["run"]);
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    let running = signing.house.run_with(command);
    let own = i64::from(running.child.id());
    let is_child =
        |pid: &i64| organism::children::status(*pid).is_some_and(|status| status.parent == own);
    let environment = until("its listener runs", || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
        pids.filter(is_child)
            .filter_map(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .find(|environment| environment.contains("ORGANISM_LISTENER=echo"))
    });
    assert!(!environment.contains("ORGANISM_PASSPHRASE_FILE"), "{environment:?}");
    assert_eq!(running.stop(), Some(0));
}

const SECRET: &str = "ZGVzay1zZWNyZXQtb2YtdGhlLXRlc3Rz";

/// Starts an organism that cannot determine the origin of its callers, and sends a ping, which
/// opens a held call. Returns the organism, and the message and the hash of the call.
fn blind(signing: &Signing) -> (Running, String, String) {
    let mut command = signing.house.command(&["run"]);
    let others = std::env::var("ORGANISM_MUTANT").unwrap_or_default();
    command.env("ORGANISM_MUTANT", format!("hide-the-caller,{others}"));
    command.env("ORGANISM_UNDER_TEST", env!("CARGO_BIN_EXE_organism"));
    command.env("DESK_SECRET", SECRET);
    let running = signing.house.run_with(command);
    let mut send = signing.house.command(&["send", "--as", "desk", "--no-wait", "payload.xml"]);
    assert_eq!(send.env("DESK_SECRET", SECRET).status().unwrap().code(), Some(3));
    let held = signing.house.organism(&["approvals", "--json"]).json().pop().unwrap();
    let text = |key: &str| held[key].as_str().unwrap().to_owned();
    (running, text("message"), text("sha256"))
}

#[test]
fn a_caller_that_nothing_shows_decides_with_the_signature_of_an_operator_alone() {
    let signing = Signing::new();
    let with_operators = std::fs::read_to_string(signing.house.path("organism.toml")).unwrap();
    let secret = "[clients.desk]\nsecret_env = \"DESK_SECRET\"\n";
    for config in [CONFIG, &with_operators] {
        let config = config.replace("[clients.desk]\n", secret);
        signing.house.write("organism.toml", &config);
        let (running, message, hash) = blind(&signing);
        let approve = ["approve", &message, "--hash", &hash];
        for sign in [&[][..], &["--sign", "stranger.key"]] {
            let refused = signing.signs(&[&approve[..], sign].concat());
            assert_eq!(refused.code, Some(65), "{refused:?}");
            assert!(refused.err.contains("unknown-caller"), "{refused:?}");
            let is_configured = config.contains("[operators.ana]");
            let key = if is_configured { "(ana, ben)" } else { "set [operators.NAME] key" };
            assert!(refused.err.contains(key), "{refused:?}");
            assert!(refused.err.contains("--sign FILE"), "{refused:?}");
        }
        assert_eq!(signing.held(), 1, "it waits on");
        let signed = signing.signs(&[&approve[..], &["--sign", "ana.key"]].concat());
        let expected = if config.contains("[operators.ana]") { 0 } else { 65 };
        assert_eq!(signed.code, Some(expected), "{signed:?}");
        assert_eq!(running.stop(), Some(0));
        if expected == 65 {
            // The caller is no hosted process: the command starts the organism itself.
            let mut refuse = signing.house.command(&["refuse", &message]);
            let refused = CommandOutput::from(refuse.env("DESK_SECRET", SECRET).output().unwrap());
            assert_eq!(refused.code, Some(0), "{refused:?}");
        }
    }
    signing.house.verified();
}

/// The signature of an operator names the journal and the thread of the call. The organism gives
/// these ids even to a caller in another container, whose process it does not see.
#[test]
fn a_caller_that_nothing_shows_learns_the_ids_that_its_signature_names() {
    let signing = Signing::new();
    let config = std::fs::read_to_string(signing.house.path("organism.toml")).unwrap();
    let secret = "[clients.desk]\nsecret_env = \"DESK_SECRET\"\n";
    signing.house.write("organism.toml", config.replace("[clients.desk]\n", secret));
    let (running, message, _) = blind(&signing);
    let handshake = Handshake::of_path(&signing.house.path("organism.toml"));
    let socket = SocketTransport::new(&signing.house.data(), handshake);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let response = |request: ServiceRequest| {
        let (responses, mut received) = response_queue();
        runtime.block_on(socket.send(&request, &responses)).unwrap();
        received.try_recv().unwrap()
    };

    let journal = response(ServiceRequest::JournalId { partition: 0 });
    let ServiceResponse::JournalId(journal) = journal else { panic!("{journal:?}") };
    assert_eq!(journal, signing.house.reader().about().unwrap().journal);
    let message = MessageId(message.parse().unwrap());
    let held = response(ServiceRequest::HeldThread { message, partition: 0 });
    assert!(matches!(held, ServiceResponse::HeldThread(Some(_))), "{held:?}");
    let all = response(ServiceRequest::HeldCalls { partition: 0, message: None });
    let ServiceResponse::Failed(refused) = all else { panic!("{all:?}") };
    assert!(refused.contains("unknown-caller"), "{refused}");
    assert_eq!(running.stop(), Some(0));
}

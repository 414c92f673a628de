//! Attacks on a stream by a user who can write on its servers. The tests cover a proof with
//! `--stream`, a restart of the pump that wrote the stream, and a failover to another host.
#![expect(
    clippy::ptr_arg,
    reason = "every attack has one shape, and some change the number of messages"
)]

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use organism::audit::{self, ProofReport, ProofVerdict, VerifyOptions};
use organism::clock::Time;
use organism::ids::Position;
use organism::journal::jetstream::{StreamJournal, StreamTakeover, compare_with_stream};
use organism::journal::{CheckpointCopies, Error, HashedRecord, Journal as _, host_key};
use serde_json::{Value, json};

use super::Place;
use crate::journal::script::{Script, research};

use Outcome::{Partly, Proved, Refused};
use ProofVerdict::{Broken, NotProved};
use Pump::{Killed, Runs, Stopped};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pump {
    Stopped,
    Killed,
    Runs,
}

/// Result of a pump that opens the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Refused,
    /// The pump starts, and all records are proved.
    Proved,
    /// The pump starts, and reports the records that it accepts without proof.
    Partly,
}

/// A stream with records, and the host that wrote it.
struct Scene {
    place: Place,
    key: String,
    /// Opens the stream on the host of its pump.
    journal: Option<StreamJournal>,
    /// A copy of its checkpoints, on other storage.
    copy: PathBuf,
    /// The host, the stream, and the records after the first tree.
    earlier: Place,
    early: Vec<String>,
}

impl Scene {
    fn new(pump: Pump) -> Self {
        let place = Place::new();
        let mut script = Script::default();
        let append = |journal: &mut StreamJournal, script: &mut Script, tree: &str| {
            research(script, tree).chunks_mut(3).for_each(|group| {
                journal.append(group).unwrap();
            });
        };
        let mut journal = place.open().unwrap();
        journal.put_blob(b"the config").unwrap();
        append(&mut journal, &mut script, "sess-firsttree");
        journal.close(Time(0)).unwrap();
        let (earlier, early) = (place.copy(), messages(&place));
        let mut journal = place.open().unwrap();
        append(&mut journal, &mut script, "sess-othertree");
        let journal = match pump {
            Stopped => {
                journal.close(Time(0)).unwrap();
                None
            }
            Killed => {
                drop(journal);
                None
            }
            Runs => Some(journal),
        };
        let key = host_key(&place.state()).unwrap().public;
        let id = place.reader().about().unwrap().journal;
        let copy = place.data().with_file_name("elsewhere");
        std::fs::copy(CheckpointCopies::file_in(&place.state(), id), &copy).unwrap();
        Self { place, key, journal, copy, earlier, early }
    }

    fn messages(&self) -> Vec<String> {
        messages(&self.place)
    }

    /// Recreates the stream with these messages, and deletes the leases' record of its end.
    fn rewrite(&self, messages: &[String]) {
        let (admin, stream) = (self.place.admin(), self.place.options.stream());
        let config = admin.info(&stream)["config"].clone();
        admin.delete(&stream);
        admin.must(&format!("STREAM.CREATE.{stream}"), &config);
        for message in messages {
            admin.publish(&self.place.options.subject(), message);
        }
        self.place.let_lapse();
    }

    /// Runs `organism verify --stream` on the host of the pump, with the copy of the checkpoints.
    fn verify(&self) -> ProofReport {
        self.verify_with(vec![self.copy.clone()])
    }

    fn verify_with(&self, copies: Vec<PathBuf>) -> ProofReport {
        let state = Some(self.place.state());
        let options = VerifyOptions { state, copies, ..VerifyOptions::default() };
        let data = self.place.data();
        let mut report = audit::verify_with(&data, &options, &mut |_, _| {}).unwrap();
        let servers = self.place.server().options();
        match compare_with_stream(&servers, &self.place.options, &data) {
            Ok(agreement) => report.stream_agrees(agreement.ahead),
            Err(Error::Broken { position, detail }) => report.stream_differs(position, detail),
            Err(error) => panic!("{error}"),
        }
        report
    }

    /// Opens the stream on another host, which knows the key of the first one.
    fn take_over(&self) -> Result<StreamTakeover, Error> {
        let mut other = self.place.elsewhere();
        other.options.known_keys = vec![self.key.clone()];
        let journal = other.open()?;
        Ok(journal.takeover().clone())
    }
}

/// Every message of a stream.
fn messages(place: &Place) -> Vec<String> {
    let (admin, stream) = (place.admin(), place.options.stream());
    let last = admin.info(&stream)["state"]["last_seq"].as_u64().unwrap();
    let message = |seq| {
        let got = admin.must(&format!("STREAM.MSG.GET.{stream}"), &json!({ "seq": seq }));
        let body = STANDARD.decode(got["message"]["data"].as_str().unwrap()).unwrap();
        String::from_utf8(body).unwrap()
    };
    (1..=last).map(message).collect()
}

fn outcome(opened: &Result<StreamTakeover, Error>) -> Outcome {
    match opened {
        Err(Error::Broken { .. } | Error::ForeignJournal { .. }) => Refused,
        Err(error) => panic!("{error}"),
        Ok(takeover) if takeover.proved == takeover.last => Proved,
        Ok(_) => Partly,
    }
}

fn is_mac(line: &str) -> bool {
    line.starts_with("{\"mac\":")
}

/// The message without its MAC.
fn without_mac(message: &str) -> String {
    match message.find("{\"mac\":") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}

fn last_group(messages: &[String]) -> usize {
    messages.iter().rposition(|message| message.contains("{\"step\":")).unwrap()
}

/// A record that no pump wrote, after the last one of the setup, and the rest of its message.
fn forged(scene: &Scene, after: &str) -> String {
    let HashedRecord { mut record, hash, .. } = scene.place.records().pop().unwrap();
    record.previous = record.position;
    record.previous_hash = hash;
    record.position = Position(record.position.0 + 1);
    record.facts.clear();
    let mut body = Vec::new();
    record.write_text(&mut body).unwrap();
    let hash = organism::journal::record_hash(&(&record).into(), &body);
    let body = String::from_utf8(body).unwrap();
    let payloads: String = record.payloads().map(|payload| payload.bytes.to_string()).collect();
    let step = json!({ "step": {
        "position": record.position,
        "tree": record.tree.as_str(),
        "previous": record.previous,
        "previous_hash": record.previous_hash,
        "time": record.time.0,
        "hash": hash,
        "body": body.len(),
        "payloads": payloads.len(),
    }});
    let head = "{\"organism\":1,\"epoch\":2,\"part\":1,\"parts\":1}";
    format!("{head}\n{step}\n{body}{payloads}\n{after}")
}

fn nothing(_: &Scene, _: &mut Vec<String>) {}

fn append_without_a_mac(scene: &Scene, messages: &mut Vec<String>) {
    messages.push(forged(scene, ""));
}

fn append_with_a_copied_mac(scene: &Scene, messages: &mut Vec<String>) {
    let last = &messages[last_group(messages)];
    let mac = last.lines().rfind(|line| is_mac(line)).unwrap();
    messages.push(forged(scene, &format!("{mac}\n\n")));
}

fn edit(_: &Scene, messages: &mut Vec<String>) {
    let at = last_group(messages);
    messages[at] = messages[at].replacen("\"time\":", "\"time\":1", 1);
}

fn cut(_: &Scene, messages: &mut Vec<String>) {
    messages.truncate(last_group(messages));
}

fn reorder(_: &Scene, messages: &mut Vec<String>) {
    let at = last_group(messages);
    messages.swap(at - 1, at);
}

fn repeat(_: &Scene, messages: &mut Vec<String>) {
    messages.push(messages[last_group(messages)].clone());
}

fn remove_a_tree(_: &Scene, messages: &mut Vec<String>) {
    messages.retain(|message| !message.contains("\"tree\":\"sess-firsttree\""));
}

fn delete_the_last_mac(_: &Scene, messages: &mut Vec<String>) {
    let at = last_group(messages);
    messages[at] = without_mac(&messages[at]);
}

fn delete_all_macs(_: &Scene, messages: &mut Vec<String>) {
    messages.iter_mut().for_each(|message| *message = without_mac(message));
}

fn delete_the_checkpoints(_: &Scene, messages: &mut Vec<String>) {
    messages.retain(|message| !message.contains("\n{\"checkpoint\":"));
}

fn forge_a_checkpoint(_: &Scene, messages: &mut Vec<String>) {
    for message in messages.iter_mut() {
        *message = message.replace("\"signature\":\"", "\"signature\":\"00");
    }
}

fn change_a_blob(_: &Scene, messages: &mut Vec<String>) {
    for message in messages.iter_mut() {
        *message = message.replace("the config", "THE CONFIG");
    }
}

/// No host can read past the changed message, so the checkpoint copy of a later position does not
/// help.
fn change_a_blob_and_repeat_it(scene: &Scene, messages: &mut Vec<String>) {
    let has_blob = |message: &String| message.contains("the config");
    let at = messages.iter().position(has_blob).unwrap();
    let good = messages[at].clone();
    change_a_blob(scene, messages);
    messages.insert(at + 1, good);
}

fn delete_the_blobs(_: &Scene, messages: &mut Vec<String>) {
    messages.retain(|message| !message.contains("\n{\"blob\":"));
}

/// The payloads keep their length and lose their content.
fn blank_the_payloads(_: &Scene, messages: &mut Vec<String>) {
    messages.iter_mut().for_each(|message| *message = blanked(message));
}

/// The message with NULs in place of the bytes of its steps' payloads.
fn blanked(message: &str) -> String {
    let (mut blanked, mut rest) = (String::new(), message);
    while let Some((line, after)) = rest.split_once('\n') {
        blanked.extend([line, "\n"]);
        rest = after;
        let Ok(head) = serde_json::from_str::<Value>(line) else { continue };
        let Some(step) = head.get("step") else { continue };
        let [body, payloads] =
            ["body", "payloads"].map(|part| usize::try_from(step[part].as_u64().unwrap()).unwrap());
        blanked.push_str(&rest[..body]);
        blanked.extend(std::iter::repeat_n('\0', payloads));
        rest = &rest[body + payloads..];
    }
    blanked + rest
}

/// Another journal, written by a program with its own key.
fn rewrite_with_another_key(scene: &Scene, messages: &mut Vec<String>) {
    let other = Scene::new(Stopped);
    let names =
        [&other, scene].map(|scene| format!("\"name\":\"{}\"", scene.place.options.organism));
    *messages = other.messages();
    messages[0] = messages[0].replace(&names[0], &names[1]);
}

type Attack = (&'static str, Pump, fn(&Scene, &mut Vec<String>), ProofVerdict, Outcome);

/// Checks the verdict of a proof on the pump's host, and the result of a takeover on another host.
const ATTACKS: &[Attack] = &[
    ("nothing", Stopped, nothing, ProofVerdict::Proved, Proved),
    ("nothing", Killed, nothing, ProofVerdict::Proved, Partly),
    ("append without a MAC", Stopped, append_without_a_mac, NotProved, Refused),
    ("append without a MAC", Killed, append_without_a_mac, NotProved, Refused),
    ("append with a copied MAC", Stopped, append_with_a_copied_mac, NotProved, Partly),
    ("append with a copied MAC", Killed, append_with_a_copied_mac, NotProved, Partly),
    ("edit a record", Stopped, edit, Broken, Refused),
    ("edit a record", Killed, edit, Broken, Refused),
    ("cut the tail", Stopped, cut, Broken, Partly),
    ("cut the tail", Killed, cut, Broken, Partly),
    ("reorder", Stopped, reorder, Broken, Refused),
    ("repeat a group", Killed, repeat, Broken, Refused),
    ("remove a tree", Stopped, remove_a_tree, Broken, Refused),
    ("delete the last MAC", Stopped, delete_the_last_mac, Broken, Refused),
    ("delete the last MAC", Killed, delete_the_last_mac, Broken, Refused),
    ("delete all MACs", Stopped, delete_all_macs, Broken, Proved),
    ("delete all MACs", Killed, delete_all_macs, Broken, Partly),
    ("delete the checkpoints", Stopped, delete_the_checkpoints, Broken, Partly),
    ("forge the checkpoints", Stopped, forge_a_checkpoint, Broken, Refused),
    ("change a blob", Stopped, change_a_blob, Broken, Refused),
    ("change a blob and repeat it", Stopped, change_a_blob_and_repeat_it, Broken, Refused),
    ("delete the blobs", Stopped, delete_the_blobs, Broken, Proved),
    ("another key", Stopped, rewrite_with_another_key, Broken, Partly),
    // A takeover verifies digests alone; `verify` finds the missing payloads.
    ("blank every payload", Stopped, blank_the_payloads, Broken, Proved),
];

#[test]
fn an_attack_on_a_stream_is_never_proved_where_its_pump_ran() {
    for (number, (name, pump, attack, expected, _)) in ATTACKS.iter().enumerate() {
        let scene = Scene::new(*pump);
        let mut messages = scene.messages();
        attack(&scene, &mut messages);
        scene.rewrite(&messages);
        let report = scene.verify();
        let case = format!("{number}: {name}, pump {pump:?}");
        assert_eq!(report.verdict, *expected, "{case}: {:?} {:?}", report.broken, report.unproved);
        let alone = scene.verify_with(Vec::new());
        assert_ne!(alone.verdict, ProofVerdict::Proved, "{case}: without a copy elsewhere");
    }
}

/// An attacker with the key of the host and write access to the servers recreates the stream from
/// an earlier copy, lets another pump continue it, and replaces the data and the state of the host.
#[test]
fn a_stream_rewritten_with_the_key_is_contradicted_by_a_copy_elsewhere_and_proved_by_nothing() {
    let scene = Scene::new(Stopped);
    scene.rewrite(&scene.early);
    let mut journal = scene.earlier.open().unwrap();
    let mut script = Script::default();
    let mut more: Vec<_> = (0..30).map(|_| script.boot(2)).collect();
    journal.append(&mut more).unwrap();
    journal.close(Time(0)).unwrap();
    for (from, to) in
        [(scene.earlier.data(), scene.place.data()), (scene.earlier.state(), scene.place.state())]
    {
        std::fs::remove_dir_all(&to).unwrap();
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }

    let alone = scene.verify_with(Vec::new());
    assert_eq!(alone.verdict, NotProved, "{:?} {:?}", alone.broken, alone.unproved);
    let compared = scene.verify();
    assert_eq!(compared.verdict, Broken, "{:?}", compared.unproved);
}

#[test]
fn payloads_that_are_blanked_under_a_running_pump_are_broken_in_its_projection_and_in_its_stream() {
    let scene = Scene::new(Runs);
    assert_eq!(scene.verify().verdict, ProofVerdict::Proved);
    let mut messages = scene.messages();
    blank_the_payloads(&scene, &mut messages);
    scene.rewrite(&messages);
    let report = scene.verify();
    assert_eq!(report.verdict, Broken, "the stream: {:?}", report.unproved);
    drop(scene.journal);

    let scene = Scene::new(Runs);
    let file = scene.place.data().join(organism::journal::sqlite::DATABASE);
    let blank = "UPDATE step SET payloads = zeroblob(length(payloads))";
    rusqlite::Connection::open(file).unwrap().execute_batch(blank).unwrap();
    let report = scene.verify();
    assert_eq!(report.verdict, Broken, "the projection: {:?}", report.unproved);
    drop(scene.journal);
}

#[test]
fn a_take_over_refuses_what_it_can_check_and_reports_what_it_accepted() {
    for (number, (name, pump, attack, _, expected)) in ATTACKS.iter().enumerate() {
        let scene = Scene::new(*pump);
        let mut messages = scene.messages();
        attack(&scene, &mut messages);
        scene.rewrite(&messages);
        let taken = scene.take_over();
        let case = format!("{number}: {name}, pump {pump:?}");
        assert_eq!(outcome(&taken), *expected, "{case}: {taken:?}");
    }
}

#[test]
fn the_pump_that_wrote_a_stream_refuses_records_that_its_own_macs_do_not_cover() {
    for attack in [append_without_a_mac, append_with_a_copied_mac] {
        let scene = Scene::new(Stopped);
        let mut forged = Vec::new();
        let all = scene.messages();
        let group = all[last_group(&all)].clone();
        forged.push(group);
        attack(&scene, &mut forged);
        let forged = forged.pop().unwrap();
        scene.place.admin().publish(&scene.place.options.subject(), &forged);
        let refused = scene.place.open().unwrap_err();
        assert!(matches!(refused, Error::Broken { .. }), "{refused}");
    }
}

#[test]
fn a_host_that_does_not_know_a_key_names_it_and_takes_no_checkpoint_of_it_for_proof() {
    let scene = Scene::new(Stopped);
    let stranger = scene.place.elsewhere();
    let journal = stranger.open().unwrap();
    let takeover = journal.takeover();
    assert_eq!(takeover.proved, Position(0), "{takeover:?}");
    assert!(takeover.unknown.contains(&scene.key), "{takeover:?}");
    drop(journal);

    let journal = scene.place.open().unwrap();
    assert_eq!(journal.takeover().proved, journal.takeover().last);
}

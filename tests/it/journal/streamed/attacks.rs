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
use organism::ids::{Position, ThreadId};
use organism::journal::jetstream::{StreamJournal, StreamTakeover, compare_with_stream};
use organism::journal::{
    CheckpointCopies, Error, HashedRecord, Journal as _, OperatorAcceptance, host_key,
};
use organism::thread::Record;
use serde_json::{Value, json};

use super::Place;
use crate::journal::attacks::replace;
use crate::journal::script::{Script, decisions, research};
use crate::nats::Admin;

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
    /// The open stream, if the pump runs.
    journal: Option<StreamJournal>,
    /// A copy of the host's checkpoints on other storage.
    copy: PathBuf,
    /// An earlier copy: the host and the stream after the first trees.
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
        journal.put_blob(b"the schema").unwrap();
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
        let copy = place.data().with_file_name("elsewhere");
        let scene = Self { place, key, journal, copy, earlier, early };
        scene.copy_checkpoints();
        scene
    }

    /// Copies the present checkpoints to the file `copy`.
    fn copy_checkpoints(&self) {
        let id = self.place.reader().about().unwrap().journal;
        std::fs::copy(CheckpointCopies::file_in(&self.place.state(), id), &self.copy).unwrap();
    }

    fn messages(&self) -> Vec<String> {
        messages(&self.place)
    }

    /// Recreates the stream with these messages. Deletes the lease as well, because the lease
    /// records the end of the stream.
    fn rewrite(&self, messages: &[String]) {
        let options = &self.place.options;
        recreate(&self.place.admin(), &options.stream(), &options.subject(), messages);
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

    /// Opens the stream on another host, which knows the key of the first host.
    fn take_over(&self) -> Result<StreamTakeover, Error> {
        let mut other = self.place.elsewhere();
        other.options.known_keys = vec![self.key.clone()];
        let journal = other.open()?;
        Ok(journal.takeover().clone())
    }
}

fn messages(place: &Place) -> Vec<String> {
    messages_of(&place.admin(), &place.options.stream())
}

/// Recreates a stream with these messages.
pub fn recreate(admin: &Admin, stream: &str, subject: &str, messages: &[String]) {
    let config = admin.info(stream)["config"].clone();
    admin.delete(stream);
    admin.must(&format!("STREAM.CREATE.{stream}"), &config);
    for message in messages {
        admin.publish(subject, message);
    }
}

/// Every message of a stream.
pub fn messages_of(admin: &Admin, stream: &str) -> Vec<String> {
    let last = admin.info(stream)["state"]["last_seq"].as_u64().unwrap();
    let message = |seq| {
        let got = admin.must(&format!("STREAM.MSG.GET.{stream}"), &json!({ "seq": seq }));
        let body = STANDARD.decode(got["message"]["data"].as_str().unwrap()).unwrap();
        String::from_utf8(body).unwrap()
    };
    (1..=last).map(message).collect()
}

fn outcome(opened: &Result<StreamTakeover, Error>) -> Outcome {
    match opened {
        Err(
            Error::Broken { .. }
            | Error::ForeignJournal { .. }
            | Error::UncoveredStream { .. }
            | Error::WithoutMac { .. },
        ) => Refused,
        Err(error) => panic!("{error}"),
        Ok(takeover) if takeover.proved == takeover.last => Proved,
        Ok(_) => Partly,
    }
}

fn is_mac(line: &str) -> bool {
    line.starts_with("{\"mac\":")
}

/// Returns a message without its MAC.
pub fn without_mac(message: &str) -> String {
    match message.find("{\"mac\":") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}

fn last_group(messages: &[String]) -> usize {
    messages.iter().rposition(|message| message.contains("{\"step\":")).unwrap()
}

/// A message with a forged record behind the last record of the setup. `after` is the text that
/// follows the record.
fn forged(scene: &Scene, after: &str) -> String {
    forged_behind(scene.place.records().pop().unwrap(), after)
}

/// A message with a forged record behind `last`. `after` is the text that follows the record.
pub fn forged_behind(last: HashedRecord, after: &str) -> String {
    let HashedRecord { mut record, hash, .. } = last;
    record.previous = record.position;
    record.previous_hash = hash;
    record.position = Position(record.position.0 + 1);
    record.facts.clear();
    let head = "{\"organism\":2,\"epoch\":2,\"part\":1,\"parts\":1}";
    format!("{head}\n{}{after}", encoded(&record))
}

/// The record as an item of a message, with the correct hash.
fn encoded(record: &Record) -> String {
    let mut body = Vec::new();
    record.write_text(&mut body).unwrap();
    let hash = organism::journal::record_hash(&record.into(), &body);
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
    format!("{step}\n{body}{payloads}\n")
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

/// Moves the last record into another tree, and keeps its MAC.
fn splice(scene: &Scene, messages: &mut Vec<String>) {
    let all = scene.place.records();
    let mut record = all.last().unwrap().record.clone();
    let other = all.iter().rfind(|sealed| sealed.record.tree.as_str() == "sess-firsttree").unwrap();
    record.tree = other.record.tree.clone();
    record.previous = other.record.position;
    record.previous_hash = other.hash;
    record.facts.clear();
    let at = last_group(messages);
    let group = &mut messages[at];
    let step = group.rfind("{\"step\":").unwrap();
    let mac = group.rfind("{\"mac\":").unwrap();
    *group = format!("{}{}{}", &group[..step], encoded(&record), &group[mac..]);
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

/// Swaps the contents of two blobs.
fn swap_two_blobs(_: &Scene, messages: &mut Vec<String>) {
    for message in messages.iter_mut() {
        let is_config = message.contains("the config");
        let (from, to) =
            if is_config { ("the config", "the schema") } else { ("the schema", "the config") };
        *message = message.replace(from, to);
    }
}

fn put_old_data_back(scene: &Scene, _: &mut Vec<String>) {
    replace(&scene.earlier.data(), &scene.place.data());
}

fn put_old_state_back(scene: &Scene, _: &mut Vec<String>) {
    replace(&scene.earlier.state(), &scene.place.state());
}

fn put_both_back(scene: &Scene, messages: &mut Vec<String>) {
    put_old_data_back(scene, messages);
    put_old_state_back(scene, messages);
}

/// Changes a message that contains a blob, and publishes the original message after the changed
/// one. No host can read beyond the changed message, so a copy of later checkpoints does not help.
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

/// Overwrites all payloads with NULs of the same length.
fn blank_the_payloads(_: &Scene, messages: &mut Vec<String>) {
    messages.iter_mut().for_each(|message| *message = blanked(message));
}

/// Returns a message with NULs in place of the payloads of its steps.
pub fn blanked(message: &str) -> String {
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

/// Replaces the stream by another journal, which a program with its own key wrote.
fn rewrite_with_another_key(scene: &Scene, messages: &mut Vec<String>) {
    let other = Scene::new(Stopped);
    let names =
        [&other, scene].map(|scene| format!("\"name\":\"{}\"", scene.place.options.organism));
    *messages = other.messages();
    messages[0] = messages[0].replace(&names[0], &names[1]);
}

/// Function that carries out an attack: it changes the messages of a stream, or the directories of
/// the host.
type Change = fn(&Scene, &mut Vec<String>);

type Attack = (&'static str, Pump, Change, ProofVerdict, Outcome);

/// Attacks, each with the verdict of a proof on the pump's host and the result of a takeover on
/// another host.
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
    ("delete all MACs", Stopped, delete_all_macs, Broken, Refused),
    ("delete all MACs", Killed, delete_all_macs, Broken, Refused),
    ("delete the checkpoints", Stopped, delete_the_checkpoints, Broken, Partly),
    ("forge the checkpoints", Stopped, forge_a_checkpoint, Broken, Refused),
    ("change a blob", Stopped, change_a_blob, Broken, Refused),
    ("change a blob and repeat it", Stopped, change_a_blob_and_repeat_it, Broken, Refused),
    ("delete the blobs", Stopped, delete_the_blobs, Broken, Proved),
    ("another key", Stopped, rewrite_with_another_key, Broken, Partly),
    ("blank every payload", Stopped, blank_the_payloads, Broken, Refused),
    ("splice another tree", Stopped, splice, Broken, Refused),
    // No checkpoint covers the record, and the other host has no key of its MAC.
    ("splice another tree", Killed, splice, Broken, Partly),
    ("swap two blobs", Stopped, swap_two_blobs, Broken, Refused),
    ("swap two blobs", Killed, swap_two_blobs, Broken, Refused),
    ("old data", Stopped, put_old_data_back, Broken, Proved),
    ("old data", Killed, put_old_data_back, Broken, Partly),
    ("old state", Stopped, put_old_state_back, ProofVerdict::Proved, Proved),
    ("old state", Killed, put_old_state_back, ProofVerdict::Proved, Partly),
    ("old data and state", Stopped, put_both_back, Broken, Proved),
    // The kept copy has no checkpoint of the records that the projection lacks.
    ("old data and state", Killed, put_both_back, NotProved, Partly),
];

/// Attacks while the pump runs, each with the verdict of a proof at that time.
const BESIDE_A_PUMP: &[(&str, Change, ProofVerdict)] = &[
    ("nothing", nothing, ProofVerdict::Proved),
    ("append without a MAC", append_without_a_mac, NotProved),
    ("edit a record", edit, Broken),
    ("cut the tail", cut, Broken),
    ("reorder", reorder, Broken),
    ("splice another tree", splice, Broken),
    ("remove a tree", remove_a_tree, Broken),
    ("delete the last MAC", delete_the_last_mac, Broken),
    ("delete all MACs", delete_all_macs, Broken),
    ("delete the checkpoints", delete_the_checkpoints, Broken),
    ("swap two blobs", swap_two_blobs, Broken),
    ("delete the blobs", delete_the_blobs, Broken),
    ("another key", rewrite_with_another_key, Broken),
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

#[test]
fn an_attack_on_a_stream_beside_its_pump_is_never_proved() {
    for (name, attack, expected) in BESIDE_A_PUMP {
        let scene = Scene::new(Runs);
        let mut messages = scene.messages();
        attack(&scene, &mut messages);
        scene.rewrite(&messages);
        let report = scene.verify();
        assert_eq!(report.verdict, *expected, "{name}: {:?} {:?}", report.broken, report.unproved);
        let alone = scene.verify_with(Vec::new());
        assert_ne!(alone.verdict, ProofVerdict::Proved, "{name}: without a copy elsewhere");
        drop(scene.journal);
    }
}

/// Directories that an attacker with the key of the host replaces in addition to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    Nothing,
    Data,
    DataAndState,
    /// The data directory. The checkpoints and the watermark in the state directory are removed.
    DataWithoutCopies,
}

/// Attacks with the key of the host and write access to the servers. The attacker recreates the
/// stream from an earlier copy, and another pump continues it. The first verdict is without a copy
/// of the checkpoints on other storage, and the second verdict is with such a copy.
const WITH_KEY: &[(Pump, Replaced, ProofVerdict, ProofVerdict)] = &[
    (Stopped, Replaced::Nothing, Broken, Broken),
    (Stopped, Replaced::Data, Broken, Broken),
    (Stopped, Replaced::DataAndState, NotProved, Broken),
    (Stopped, Replaced::DataWithoutCopies, NotProved, Broken),
    (Killed, Replaced::Nothing, Broken, Broken),
    (Killed, Replaced::Data, Broken, Broken),
    // The pump signed no checkpoint after the kept copy.
    (Killed, Replaced::DataAndState, NotProved, NotProved),
    (Killed, Replaced::DataWithoutCopies, NotProved, NotProved),
];

#[test]
fn a_stream_rewritten_with_the_key_is_contradicted_by_a_copy_elsewhere_and_proved_by_nothing() {
    for (pump, replaced, without, with) in WITH_KEY {
        let scene = Scene::new(*pump);
        scene.rewrite(&scene.early);
        let mut journal = scene.earlier.open().unwrap();
        let mut script = Script::default();
        let mut more: Vec<_> = (0..30).map(|_| script.boot(2)).collect();
        journal.append(&mut more).unwrap();
        journal.close(Time(0)).unwrap();
        replace_beside(&scene, *replaced);

        let case = format!("{pump:?}, {replaced:?}");
        let alone = scene.verify_with(Vec::new());
        assert_eq!(alone.verdict, *without, "{case}: {:?} {:?}", alone.broken, alone.unproved);
        let compared = scene.verify();
        assert_eq!(compared.verdict, *with, "{case}: {:?}", compared.unproved);
    }
}

fn replace_beside(scene: &Scene, replaced: Replaced) {
    let mut none = Vec::new();
    match replaced {
        Replaced::Nothing => {}
        Replaced::Data => put_old_data_back(scene, &mut none),
        Replaced::DataAndState => put_both_back(scene, &mut none),
        Replaced::DataWithoutCopies => {
            let id = scene.place.reader().about().unwrap().journal;
            std::fs::remove_file(scene.place.watermark()).unwrap();
            std::fs::remove_file(CheckpointCopies::file_in(&scene.place.state(), id)).unwrap();
            put_old_data_back(scene, &mut none);
        }
    }
}

/// If the directories of a host are restored from an earlier copy, the host reads the newer records
/// from its stream again.
#[test]
fn a_host_with_old_data_or_old_state_catches_up_with_its_stream() {
    for pump in [Stopped, Killed] {
        for attack in [put_old_data_back, put_old_state_back, put_both_back] {
            let scene = Scene::new(pump);
            let before = scene.place.records().len();
            attack(&scene, &mut Vec::new());
            scene.place.let_lapse();
            let journal = scene.place.open().unwrap();
            assert_eq!(journal.takeover().proved, journal.takeover().last);
            journal.close(Time(0)).unwrap();
            assert_eq!(scene.place.records().len(), before);
            scene.copy_checkpoints();
            let report = scene.verify();
            assert_eq!(report.verdict, ProofVerdict::Proved, "{:?}", report.unproved);
        }
    }
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
fn the_pump_that_wrote_a_stream_takes_no_record_without_its_mac_until_an_operator_accepts_it() {
    for attack in [append_without_a_mac, append_with_a_copied_mac] {
        let scene = Scene::new(Stopped);
        let before = scene.place.records().len() as u64;
        publish_at_the_end(&scene, attack);
        for _ in 0..2 {
            let refused = scene.place.open().unwrap_err();
            assert!(matches!(refused, Error::UncoveredStream { .. }), "{refused}");
            assert!(refused.to_string().contains("organism repair --accept-key"), "{refused}");
            assert_eq!(scene.place.records().len() as u64, before, "it was written");
        }

        let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
        let mut journal = scene.place.open_accepting(accept).unwrap();
        let (first, last) = journal.damage().uncovered.unwrap();
        assert!(first <= last && last == Position(before + 1), "{first} {last}");
        let [.., action] = decisions();
        let accepted = Script::default().step(&ThreadId::organism(), action).end();
        journal.append(&mut [accepted]).unwrap();
        journal.close(Time(0)).unwrap();
        let journal = scene.place.open().unwrap();
        assert_eq!(journal.takeover().proved, journal.takeover().last);
        drop(journal);
        scene.place.let_lapse();
        assert_eq!(outcome(&scene.take_over()), Proved, "on another host");
        scene.copy_checkpoints();
        let report = scene.verify();
        assert_eq!(
            report.verdict,
            ProofVerdict::Proved,
            "{:?} {:?}",
            report.broken,
            report.unproved
        );
    }
}

/// Adds the last message of an attack to the stream.
fn publish_at_the_end(scene: &Scene, attack: fn(&Scene, &mut Vec<String>)) {
    let all = scene.messages();
    let mut forged = vec![all[last_group(&all)].clone()];
    attack(scene, &mut forged);
    scene.place.admin().publish(&scene.place.options.subject(), &forged.pop().unwrap());
}

/// A host adds a record of a stream to its projection only after a MAC covers the record or an
/// operator accepts it. Before that, a host without a projection refuses the stream, and a standby
/// waits.
#[test]
fn no_host_writes_a_record_of_a_stream_before_a_mac_or_an_operator_covers_it() {
    let scene = Scene::new(Stopped);
    publish_at_the_end(&scene, append_without_a_mac);
    let other = scene.place.elsewhere();
    let refused = other.open().unwrap_err();
    assert!(matches!(refused, Error::UncoveredStream { .. }), "{refused}");
    assert!(other.records().is_empty(), "it was written");
    let standby = super::standby::standby(&other).unwrap();
    let waits = standby.follow(&mut |_| Ok(())).map(drop).unwrap_err();
    assert!(matches!(waits, Error::UnprovedStream { .. }), "{waits}");
    assert!(other.records().is_empty(), "it was written");

    let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
    let mut journal = scene.place.open_accepting(accept).unwrap();
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();
    super::standby::standby(&other).unwrap().follow(&mut |_| Ok(())).unwrap();
    assert_eq!(other.records().len(), scene.place.records().len());
}

#[test]
fn a_blanked_payload_of_a_stream_is_taken_by_no_host_until_an_operator_accepts_it() {
    let scene = Scene::new(Stopped);
    let mut messages = scene.messages();
    blank_the_payloads(&scene, &mut messages);
    scene.rewrite(&messages);
    let other = scene.place.elsewhere();
    let refused = other.open().unwrap_err().to_string();
    assert!(refused.contains("organism repair --accept-redaction"), "{refused}");
    assert!(other.records().is_empty(), "it was written");
    let accept = OperatorAcceptance { redaction: true, ..OperatorAcceptance::default() };
    let journal = other.open_accepting(accept).unwrap();
    assert!(!journal.damage().redacted.is_empty());
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

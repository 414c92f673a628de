//! `organism send`: input, output and exit codes.

use serde_json::{Value as Json, json};

use super::{House, TALK, numbered, say, talk_reply};

#[test]
fn a_result_goes_to_stdout_and_everything_about_it_to_stderr() {
    let house = House::with_echo();
    house.write("hello.xml", say("hello"));
    let sent = house.organism(&["send", "--as", "desk", "hello.xml"]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("hello")));
    let missing = house.organism(&["send", "--as", "desk", "nope.xml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    let advice = "nope.xml cannot be read: there is no such file; name an existing file, or `-`";
    assert!(missing.err.contains(advice), "{missing:?}");
    let directory = house.organism(&["send", "--as", "desk", "."]);
    assert!(directory.err.contains(". cannot be read: it is a directory\n"), "{directory:?}");
    let thread = sent.err.trim().strip_prefix("thread ").unwrap();
    let shown = house.organism(&["thread", thread]);
    assert!(shown.out.contains("desk → echo  say"), "{}", shown.out);
    house.verified();
}

/// Here, stacks that are too large for the memory stand for a system that starts none or one of the
/// two threads.
#[cfg(target_os = "linux")]
#[test]
fn a_command_without_its_threads_states_this_and_ends() {
    let house = House::with_echo();
    house.write("hello.xml", say("hello"));
    for (stack_bytes, memory_kib) in [("1125899906842624", "unlimited"), ("2147483648", "3500000")]
    {
        // Without an end, the command is killed with 124.
        let script = format!("ulimit -v {memory_kib}; exec timeout 60 \"$0\" \"$@\"");
        let mut command = house.script(&script, &["send", "--as", "desk", "hello.xml"]);
        command.env("RUST_MIN_STACK", stack_bytes).env("TOKIO_WORKER_THREADS", "2");
        let ended = super::CommandOutput::from(command.output().unwrap());
        assert_eq!(ended.code, Some(69), "{ended:?}");
        let text = "organism: could not start the threads of this command: ";
        assert!(ended.err.starts_with(text), "{ended:?}");
    }
}

#[test]
fn the_same_key_again_gets_the_recorded_answer_and_nothing_is_done_twice() {
    let house = House::with_orders();
    let send = |text: &str| house.send_text(&numbered("order", text), &["--key", "k1", "--json"]);
    let (first, second) = (send("7"), send("7"));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{second:?}");
    let (first, second) = (first.json(), second.json());
    assert_eq!((&first[0]["again"], &second[0]["again"]), (&json!(false), &json!(true)));
    assert_eq!(first[0]["thread"], second[0]["thread"]);
    assert_eq!(first[1], second[1]);
    assert_eq!((house.recorded("order"), house.recorded("work")), (1, 1));

    let other = send("8");
    assert_eq!(other.code, Some(65), "{other:?}");
    assert_eq!(other.json()[0]["refusal"]["rule"], "key-reused");
    house.verified();
}

#[test]
fn a_key_beyond_its_limit_is_refused_and_the_longest_one_taken() {
    let house = House::with_echo();
    let send = |bytes: usize| house.send_text(&say("x"), &["--key", &"k".repeat(bytes)]);
    let most = organism::limits::CLIENT_KEY_BYTES_MAX;
    assert_eq!(send(most).code, Some(0));
    let refused = send(most + 1);
    assert_eq!(refused.code, Some(65));
    assert_eq!(
        refused.err,
        "refused: too-large: the key has more than 256 bytes; use a shorter one\n"
    );
    let empty = send(0);
    assert_eq!(empty.code, Some(2), "a script whose variable is not set: {empty:?}");
}

#[test]
fn a_refused_name_is_shown_with_the_names_that_its_client_may_write() {
    let house = House::new();
    let plain = house.send_text("<say>hello</say>", &[]);
    assert_eq!(plain.code, Some(65), "{plain:?}");
    let hint = format!(
        "the payload's name is say, without a namespace (xmlns); write one of these, nearest \
         first:\n  {{{TALK}}}say\n"
    );
    assert!(plain.err.contains(&hint), "{plain:?}");
    let misspelled = house.send_text(&format!("<pingg xmlns=\"{TALK}\"/>"), &[]);
    let hint = format!("{{{TALK}}}pingg; write one of these, nearest first:\n  {{{TALK}}}ping\n");
    assert!(misspelled.err.contains(&hint), "{misspelled:?}");
    let invalid = house.send_text(&format!("<say xmlns=\"{TALK}\"><x/></say>"), &[]);
    assert!(!invalid.err.contains("nearest first"), "{invalid:?}");
}

// O1
#[test]
fn a_thread_is_continued_by_its_own_client_alone() {
    let house = House::with_echo();
    let first = house.send_text(&say("one"), &["--json"]).json();
    let thread = first[0]["thread"].as_str().unwrap().to_owned();
    let second = house.send_text(&say("two"), &["--json", "--thread", &thread]);
    assert_eq!((second.code, &second.json()[0]["thread"]), (Some(0), &json!(thread)));
    let told = house.organism(&["thread", &thread, "--json"]).json();
    assert_eq!(told[0]["items"].as_array().unwrap().len(), 4);

    house.write("say.xml", say("three"));
    let foreign = house.organism(&["send", "--as", "other", "--thread", &thread, "say.xml"]);
    assert_eq!(foreign.code, Some(65));
    house.verified();
}

// O5
#[test]
fn unknown_foreign_and_impossible_threads_are_answered_alike() {
    let house = House::with_echo();
    let known = house.send_text(&say("one"), &["--json"]).json()[0]["thread"].clone();
    let known = known.as_str().unwrap();
    house.write("say.xml", say("two"));
    let send = |id: &str, form: &[&str]| {
        let send = ["send", "--as", "other", "--thread", id, "say.xml"];
        house.organism(&[&send, form].concat())
    };
    for id in [known, "sess-absent00", "sess-organism", "sess-absent00.child", "bad", "../x", " "] {
        let answer = send(id, &["--json"]);
        let payload = answer.json()[0]["payload"].as_str().unwrap().to_owned();
        let same = payload.replace(&format!("unknown_id=\"{id}\""), "unknown_id=\"ID\"");
        let expected = "<system-thread-error xmlns=\"https://xml-pipeline.org/ns/core/v1\" \
             unknown_id=\"ID\" code=\"unknown_thread\" \
             message=\"Unknown thread; emit &lt;spawn-thread/&gt; to create.\"/>";
        assert_eq!((answer.code, same.as_str(), answer.err.as_str()), (Some(65), expected, ""));

        // The advice for people names commands.
        let told = send(id, &[]);
        let expected = format!(
            "refused: unknown-thread: this client has no thread {id}; `organism threads` lists what \
             is on record. Without --thread a new thread is opened, with --new ID under that id\n"
        );
        assert_eq!((told.code, told.out, told.err), (Some(65), String::new(), expected));
    }
    assert_eq!(house.recorded("say"), 1);
}

#[test]
fn a_suggested_thread_id_is_taken_or_refused_with_the_reason() {
    let house = House::with_echo();
    let send = |id: &str| {
        let sent = house.send_text(&say("x"), &["--json", "--new", id]);
        let line = sent.json()[0].clone();
        let said = match &line["refusal"] {
            Json::Null => line["thread"].as_str().unwrap().to_owned(),
            refusal => refusal["rule"].as_str().unwrap().to_owned(),
        };
        (sent.code.unwrap(), said)
    };
    assert_eq!(send("sess-mine0001"), (0, "sess-mine0001".to_owned()));
    for bad in ["sess-mine0001", "sess-short", "mine", "sess-UPPER000", "sess-a0000000.b"] {
        assert_eq!(send(bad), (65, "bad-label".to_owned()), "{bad}");
    }
}

#[test]
fn one_bad_document_does_not_stop_the_others() {
    let house = House::with_echo();
    std::fs::create_dir(house.path("in")).unwrap();
    for number in 0..5 {
        house.write(&format!("in/{number}.xml"), say(&number.to_string()));
    }
    house.write("in/1.xml", b"<say xmlns=\"urn:example:talk\">\xff</say>");
    house.write("in/2.xml", "");
    house.write("in/3.xml", vec![b'x'; organism::limits::SUBMISSION_BYTES_MAX + 1]);
    house.write("in/notes.txt", "not sent");
    let send = || house.organism(&["send", "--as", "desk", "--json", "--each", "in"]);
    let first = send();
    assert_eq!(first.code, Some(1), "{first:?}");
    assert!(
        first.err.contains("5 files: 2 done, 2 refused, 0 failed, 1 not sent"),
        "{}",
        first.err
    );
    let left_out = "entries of in that are no .xml files, left out: 1\n";
    assert!(first.err.contains(left_out), "{}", first.err);
    let reason = "in/3.xml has more than 8388608 bytes";
    assert!(first.err.contains(reason), "{}", first.err);
    let unsent = first.json().into_iter().find(|line| line["file"] == "3.xml").unwrap();
    assert!(unsent["error"].as_str().unwrap().starts_with(reason), "{unsent}");
    let mut brief: Vec<String> = first
        .json()
        .iter()
        .map(|line| format!("{} {} {}", line["file"], line["sent"], line["refusal"]["rule"]))
        .collect();
    brief.sort();
    let expected = [
        r#""0.xml" "accepted" null"#,
        r#""0.xml" "result" null"#,
        r#""1.xml" "refused" "not-utf8""#,
        r#""2.xml" "refused" "not-one-root""#,
        r#""3.xml" "not-sent" null"#,
        r#""4.xml" "accepted" null"#,
        r#""4.xml" "result" null"#,
    ];
    assert_eq!(brief, expected);

    // The directory is sent again with one corrected document; only that document is new.
    house.write("in/2.xml", say("2"));
    house.write("in/4.xml", say("four"));
    assert_eq!(send().code, Some(1));
    assert_eq!(house.recorded("say"), 4);

    std::fs::create_dir(house.path("other")).unwrap();
    let empty = house.organism(&["send", "--as", "desk", "--each", "other"]);
    assert_eq!(empty.code, Some(0), "a spool may be empty: {empty:?}");
    house.write("other/notes.txt", say("not sent"));
    let none = house.organism(&["send", "--as", "desk", "--each", "other"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.err.contains("other has no .xml file; nothing was sent"), "{none:?}");
    house.verified();
}

#[test]
fn a_text_that_is_too_large_to_be_sent_is_named_by_its_source() {
    let house = House::with_echo();
    let long = vec![b'x'; organism::limits::SUBMISSION_BYTES_MAX + 1];
    let sent = house.send_bytes(&long, &[]);
    assert_eq!((sent.code, sent.out.as_str()), (Some(65), ""));
    assert!(
        sent.err.starts_with("organism: standard input has more than 8388608 bytes"),
        "{sent:?}"
    );
}

#[test]
fn the_name_of_a_file_cannot_imitate_another_line_of_the_output() {
    let house = House::with_echo();
    std::fs::create_dir(house.path("in")).unwrap();
    let name = "a\u{1b}[31m.xml: refused\nb.xml";
    house.write(&format!("in/{name}"), say("1"));

    let sent = house.organism(&["send", "--as", "desk", "--each", "in"]);
    let expected = format!("a\\u{{1b}}[31m.xml: refused\\nb.xml: {}", talk_reply("1"));
    assert_eq!((sent.code, sent.out), (Some(0), expected));

    let again = house.organism(&["send", "--as", "desk", "--json", "--each", "in"]);
    assert_eq!(again.json()[0]["file"], name);

    house.write(&format!("in/{name}"), vec![b'x'; organism::limits::SUBMISSION_BYTES_MAX + 1]);
    let unsent = house.organism(&["send", "--as", "desk", "--each", "in"]);
    assert!(unsent.err.contains("refused\\nb.xml was not sent: "), "{}", unsent.err);
    house.verified();
}

#[test]
fn bytes_reach_the_gate_as_they_are_over_either_transport() {
    let house = House::with_echo();
    let text = b"<say xmlns=\"urn:example:talk\">caf\xe9</say>";
    let check = |sent: super::CommandOutput| {
        let refusal = sent.json()[0]["refusal"].clone();
        assert_eq!(sent.code, Some(65));
        assert_eq!(refusal["rule"], "not-utf8");
        assert_eq!(refusal["length"], text.len());
        assert_eq!(refusal["digest"], organism::ids::Digest::of(text).to_string());
        assert_eq!(refusal["place"]["offset"], 33);
    };
    check(house.send_bytes(text, &["--json"]));
    let running = house.run();
    check(house.send_bytes(text, &["--json"]));
    assert_eq!(running.stop(), Some(0));
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    assert_eq!(exported.iter().filter(|line| line["type"] == "refusal").count(), 2);
}

#[test]
fn a_payload_over_the_limit_is_refused_on_the_record_with_its_place() {
    let house = House::with_echo();
    let text = say(&"x".repeat(2 << 20));
    let running = house.run();
    let sent = house.send_text(&text, &[]);
    assert_eq!((sent.code, sent.out.as_str()), (Some(65), ""));
    assert!(sent.err.starts_with("refused: too-large: "), "{}", sent.err);
    assert!(sent.err.contains("at line 1, column "), "{}", sent.err);
    assert_eq!(running.stop(), Some(0));
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let refused = exported.iter().find(|line| line["type"] == "refusal").unwrap();
    assert_eq!((&refused["length"], &refused["rule"]), (&json!(text.len()), &json!("too-large")));
    assert_eq!(refused["head"].as_str().unwrap().len(), organism::limits::REFUSAL_HEAD_BYTES);
}

#[test]
fn without_waiting_the_receipt_is_all_and_the_result_is_read_later() {
    let house = House::new();
    let running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--json", "--key", "k"]);
    assert_eq!(sent.code, Some(0));
    assert_eq!(sent.json().len(), 1, "{sent:?}");
    house.write("let-go", "");
    let later = house.send_text(&numbered("hold", "1"), &["--json", "--key", "k"]);
    let expected = numbered("held", "1");
    assert_eq!(later.json()[1]["replies"][0]["payload"], expected.as_str(), "{later:?}");
    assert_eq!((running.stop(), house.recorded("hold")), (Some(0), 1));
}

#[test]
fn each_way_to_end_has_its_exit_code() {
    let house = House::with_echo();
    house.write("good.xml", say("x"));
    house.write("bad.toml", "[organism]\nnam = \"talk\"\n");
    let code = |arguments: &[&str]| house.organism(arguments).code.unwrap();
    assert_eq!(code(&["send", "--as", "desk", "good.xml"]), 0);
    assert_eq!(code(&["send"]), 2);
    assert_eq!(code(&["send", "--as", "desk", "absent.xml"]), 2);
    assert_eq!(code(&["send", "--as", "nobody", "good.xml"]), 2);
    assert_eq!(code(&["send", "good.xml"]), 2, "two clients, and none named");
    assert_eq!(code(&["send", "--as", "desk", "--thread", "a", "--new", "b", "good.xml"]), 2);
    assert_eq!(code(&["send", "--as", "desk", "organism.toml"]), 65);
    assert_eq!(code(&["send", "--config", "bad.toml", "good.xml"]), 78);
    assert_eq!(code(&["cancel", "sess-absent00"]), 2);
    assert_eq!(code(&["cancel", "nonsense"]), 2);
    let elsewhere = House::with_echo();
    elsewhere.write("data", "a file where a directory should be");
    let refused = elsewhere.organism(&["send", "--as", "desk", "organism.toml"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.err.contains("data/organism/talk"), "{}", refused.err);
}

#[test]
fn a_sender_whose_organism_dies_gets_advice_to_retry() {
    let house = House::new();
    let mut running = house.run();
    let payload = numbered("hold", "1");
    house.write("hold.xml", &payload);
    let mut command = house.command(&["send", "--as", "desk", "--key", "k", "hold.xml"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let sender = command.spawn().unwrap();
    super::until("it is on record", || (house.recorded("hold") == 1).then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let told: super::CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!(told.code, Some(75), "{told:?}");
    let advice = "read the thread before you send again. If you gave a --key, send again with it";
    assert!(told.err.contains(advice), "{}", told.err);
    house.write("let-go", "");
    let again = house.send_text(&payload, &["--key", "k"]);
    assert_eq!((again.code, again.out), (Some(0), numbered("held", "1") + "\n"));
    house.verified();
}

#[test]
fn a_payload_that_is_cut_short_says_where() {
    let house = House::with_echo();
    let sent = house.send_text(&format!("<say xmlns=\"{TALK}\">\n  hello"), &[]);
    assert_eq!(sent.code, Some(65));
    let expected = "refused: not-well-formed: `<say>` is not closed at line 1, column 1\n";
    assert_eq!(sent.err, expected);
}

#[test]
fn send_without_a_wait_states_that_no_organism_was_running() {
    let house = House::with_echo();
    let alone = house.send_text(&say("x"), &["--no-wait"]);
    assert_eq!(alone.code, Some(0), "{alone:?}");
    for part in ["one ran for this command alone", "the payload is on record", "`organism run`"] {
        assert!(alone.err.contains(part), "{part}: {alone:?}");
    }
    let json = house.send_text(&say("x"), &["--no-wait", "--json"]);
    assert_eq!(json.err, "");
    let running = house.run();
    let beside = house.send_text(&say("x"), &["--no-wait"]);
    assert!(!beside.err.contains("for this command alone"), "{beside:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

//! Listeners of the kits write frames to standard output, and everything else to the log.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use organism::ids::Digest;
use organism::listener::Preview;

use super::harness::{done, repository};
use super::kit_language::KitLanguage;

/// Gives these bytes to the obedient listener of a kit, and waits until the listener has ended.
fn output(language: KitLanguage, input: &[u8]) -> Output {
    let mut command = language.listener("obedient");
    command.env("ORGANISM_LISTENER", "tested");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kit = command.spawn().unwrap();
    kit.stdin.take().unwrap().write_all(input).unwrap();
    kit.wait_with_output().unwrap()
}

fn delivery(text: &str) -> Vec<u8> {
    let payload = format!("<do xmlns=\"urn:test\">{text}</do>");
    (super::kit::delivery(&[&payload]) + "\0").into_bytes()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_a_handler_prints_goes_to_the_log() {
    for language in KitLanguage::ALL {
        let output = output(language, &delivery("print to the log"));
        let answer = done("tested 2.1 sess-k3v9t2m8");
        let frame = text(&output.stdout);
        assert!(frame.ends_with(&format!("{answer}</e:answer>\0")), "{language:?}: {frame}");
        assert!(!frame.contains("to the log"), "{language:?}: {frame}");
        assert_eq!(text(&output.stderr), "to the log\n", "{language:?}");
        assert!(output.status.success(), "{language:?}");
    }
}

/// A program that a handler starts must not read the kit's standard input. The second delivery is
/// longer than the kit reads at once, so such a program would take the rest of this delivery.
#[test]
fn a_program_that_a_python_handler_starts_finds_its_input_empty() {
    let long = "x".repeat(200_000);
    let input = [delivery("read-input"), delivery(&format!("echo {long}"))].concat();
    let output = output(KitLanguage::Python, &input);
    let answers: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
    assert_eq!(answers.len(), 2, "{}", text(&output.stderr));
    assert!(answers[0].contains(&done("0")), "{}", answers[0]);
    assert!(answers[1].contains(&long), "{}", answers[1].len());
}

/// The log contains a printed line as soon as the answer has arrived. The test kills the process
/// after the answer, so that it cannot write the line later.
#[test]
fn a_line_that_a_python_handler_prints_reaches_the_log_before_its_answer() {
    let mut command = KitLanguage::Python.listener("obedient");
    command.env("ORGANISM_LISTENER", "tested");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kit = command.spawn().unwrap();
    let mut input = kit.stdin.take().unwrap();
    let mut answers = BufReader::new(kit.stdout.take().unwrap());
    input.write_all(&delivery("print to the log")).unwrap();
    assert!(answers.read_until(0, &mut Vec::new()).unwrap() > 0);
    kit.kill().unwrap();
    let killed = kit.wait_with_output().unwrap();
    assert_eq!(text(&killed.stderr), "to the log\n");
}

/// The Rust kit reads deliveries from a copy of the standard input, and replaces the original by
/// `/dev/null`. A program that a handler starts inherits the original.
#[cfg(target_os = "linux")]
#[test]
fn the_standard_input_of_a_listener_of_the_rust_kit_is_empty() {
    use std::path::Path;

    let search = Path::new(env!("CARGO_BIN_EXE_organism")).with_file_name("code-search");
    let mut command = Command::new(search);
    command.arg(repository().join("tests/data/listeners")).env("ORGANISM_LISTENER", "tested");
    let mut kit = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let namespace = "https://xml-pipeline.org/ns/code-search/v1";
    let query = format!("<search xmlns=\"{namespace}\"><query>careless</query></search>");
    let mut input = kit.stdin.take().unwrap();
    input.write_all((super::kit::delivery(&[&query]) + "\0").as_bytes()).unwrap();
    let mut answers = BufReader::new(kit.stdout.take().unwrap());
    assert!(answers.read_until(0, &mut Vec::new()).unwrap() > 0);
    let standard_input = std::fs::read_link(format!("/proc/{}/fd/0", kit.id())).unwrap();
    assert_eq!(standard_input, Path::new("/dev/null"));
    drop(input);
    assert!(kit.wait().unwrap().success());
}

/// Asserts that the TypeScript kit ends without a frame, and that the last line of its log states
/// `reason`.
fn refuses(input: &[u8], reason: &str) {
    let output = output(KitLanguage::TypeScript, input);
    let log = text(&output.stderr);
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains(reason), "expected `{reason}`: {log}");
    assert_eq!(text(&output.stdout), "", "{reason}");
    assert_eq!(output.status.code(), Some(1), "{reason}");
}

/// If an answer cannot be sent, the kit sends the reason as a text outside of any payload. The
/// attempt is not retried. The handler has acted, so a retry would repeat its effects.
#[test]
fn a_kit_answers_with_the_reason_where_it_cannot_send_an_answer_and_goes_on() {
    let cases = [
        ("control", "XML cannot contain the character U+0000"),
        ("huge", "it has 17825968 bytes, and a frame has at most 16777216"),
    ];
    for language in KitLanguage::ALL {
        for (word, reason) in cases {
            let output = output(language, &[delivery(word), delivery("echo next")].concat());
            let reason = format!("the answer cannot be sent: {reason}");
            let frames: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
            assert_eq!(frames.len(), 2, "{language:?} {word}");
            assert!(frames[0].ends_with(&format!("\">{reason}</e:answer>")), "{}", frames[0]);
            assert!(!frames[0].contains("remembers"), "{}", frames[0]);
            assert!(frames[1].contains(&done("next")), "{language:?}: {}", frames[1]);
            assert!(text(&output.stderr).ends_with(&format!("{reason}\n")), "{language:?}");
            assert!(output.status.success(), "{language:?} {word}");
        }
    }
}

/// The gate admits names of the fifth edition of XML 1.0, but the parser of Python only names of
/// the fourth. The kit sends the reason as the answer, because a retry would fail in the same way.
#[test]
fn the_python_kit_answers_a_delivery_that_it_cannot_parse_with_the_reason_and_goes_on() {
    for prefix in ["𐀀", "Ⰰ", "ⅰ", "ﬀ", "a‿"] {
        let payload = format!("<{prefix}:do xmlns:{prefix}=\"urn:test\">echo x</{prefix}:do>");
        let unreadable = (super::kit::delivery(&[&payload]) + "\0").into_bytes();
        let output = output(KitLanguage::Python, &[unreadable, delivery("echo next")].concat());
        let log = text(&output.stderr);
        let frames: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
        assert_eq!(frames.len(), 2, "{prefix}: {log}");
        let reason = "attempt=\"2.1\">the delivery cannot be read: not well-formed";
        assert!(frames[0].contains(reason), "{prefix}: {}", frames[0]);
        assert!(frames[1].contains(&done("next")), "{prefix}: {}", frames[1]);
        assert!(log.contains("the delivery cannot be read: "), "{prefix}: {log}");
        assert!(output.status.success(), "{prefix}: {log}");
    }
}

/// Delivers each of `words`, which makes the handler return an answer that the kit cannot send.
/// Asserts that the kit answers with a reason that contains `reason`, and takes the next delivery.
fn answers_with_reason(language: KitLanguage, words: &[&str], reason: &str) {
    let mut input: Vec<_> = words.iter().flat_map(|word| delivery(word)).collect();
    input.extend(delivery("echo next"));
    let output = output(language, &input);
    let log = text(&output.stderr);
    let frames: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
    assert_eq!(frames.len(), words.len() + 1, "{language:?}: {log}");
    for (frame, word) in frames.iter().zip(words) {
        assert!(frame.contains("\">the answer cannot be sent: "), "{language:?} {word}: {frame}");
        assert!(frame.contains(reason), "{language:?} {word}: {frame}");
    }
    assert!(frames[words.len()].contains(&done("next")), "{language:?}: {frames:?}");
    assert!(output.status.success(), "{language:?}: {log}");
}

#[test]
fn what_a_handler_returns_and_no_kit_can_write_is_answered_with_the_reason() {
    let words = ["number", "number-attribute", "deep", "spawn-number"];
    for language in KitLanguage::ALL {
        answers_with_reason(language, &words, "cannot be sent: return elements");
    }
    answers_with_reason(KitLanguage::Python, &["five"], "cannot be sent: return elements");
}

/// The text of an empty object, such as an element of another library without children, would be
/// empty, and would acknowledge the call.
#[test]
fn an_empty_object_that_a_handler_returns_is_no_acknowledgement() {
    for language in KitLanguage::ALL {
        let words = ["foreign-element", "empty-bytes", "empty-set"];
        answers_with_reason(language, &words, "(TypeError: this is of type ");
        let words = ["foreign-child", "empty-bytes-child", "empty-map-child"];
        answers_with_reason(language, &words, " is of type ");
    }
    let advice = "__main__.ForeignElement; return its text, such as etree.tostring(";
    answers_with_reason(KitLanguage::Python, &["foreign-element"], advice);
    answers_with_reason(KitLanguage::TypeScript, &["foreign-element"], " is of type Map)");
}

#[test]
fn the_python_kit_takes_each_iterable_of_answers_as_a_list_of_them() {
    let words = ["values-view", "deque", "set-of-text", "nested-generator", "nested-map"];
    let all = words.into_iter().chain(["spawn-generator", "empty-deque"]);
    let input: Vec<_> = all.flat_map(delivery).collect();
    let output = output(KitLanguage::Python, &input);
    let frames: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
    assert_eq!(frames.len(), words.len() + 2, "{}", text(&output.stderr));
    for (frame, word) in frames.iter().zip(words) {
        assert!(frame.ends_with(&format!(">{}</e:answer>", done("one"))), "{word}: {frame}");
    }
    let payload = format!("<c:initial-payload>{}</c:initial-payload>", done("one"));
    assert!(frames[words.len()].contains(&payload), "{}", frames[words.len()]);
    assert!(frames[words.len() + 1].ends_with("\"></e:answer>"), "{}", frames[words.len() + 1]);
}

#[test]
fn a_zero_in_place_of_a_text_is_refused_by_the_python_kit_as_other_numbers_are() {
    let reason = "'int' object has no attribute 'replace'";
    answers_with_reason(KitLanguage::Python, &["number", "zero", "zero-tail"], reason);
}

/// A supervisor would take the exit code 0 for a success.
#[test]
fn a_kit_whose_input_ends_within_a_frame_fails() {
    for language in KitLanguage::ALL {
        let output = output(language, &[&*delivery("echo done"), b"<do/>\n"].concat());
        let reason =
            "the input ended within a frame: try a listener with `organism listener test`\n";
        assert_eq!(text(&output.stderr), reason, "{language:?}");
        assert_eq!(output.status.code(), Some(1), "{language:?}");
        assert!(text(&output.stdout).contains(&done("done")), "{language:?}");
    }
    let line_break = [&*delivery("echo done"), b"\n"].concat();
    for language in KitLanguage::ALL {
        assert!(output(language, &line_break).status.success(), "{language:?}");
    }
}

#[test]
fn a_payload_without_a_handler_fails_with_the_names_that_have_one() {
    let unknown = super::kit::delivery(&["<done xmlns=\"urn:test\"/>"]) + "\0";
    for language in KitLanguage::ALL {
        let output = output(language, unknown.as_bytes());
        let log = text(&output.stderr);
        let reason = "no handler for {urn:test}done, only for {urn:test}do; names have the form \
                      {namespace}local\n";
        assert!(log.ends_with(reason), "{language:?}: {log}");
        assert_eq!(output.status.code(), Some(1), "{language:?}");
    }
}

#[test]
fn a_program_of_a_kit_without_handlers_fails() {
    let mut python = Command::new("python3");
    python.args(["-c", "import organism_listener as kit; kit.serve()"]);
    python.env("PYTHONPATH", repository().join("listeners/python"));
    let mut node = Command::new("node");
    let program = "import { Listener } from 'organism-listener'; await new Listener().serve();";
    node.args(["--input-type=module", "--eval", program]);
    node.current_dir(repository().join("target/typescript/try"));
    for mut command in [python, node] {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let reason = "there are no handlers: register them with `accepts` before `serve()`\n";
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), reason));
    }
}

/// An object in place of a text is refused. Otherwise the kit would write the representation of the
/// object, such as `b'abc'` or `[object Object]`.
#[test]
fn a_kit_refuses_an_object_as_a_text_of_an_element() {
    for language in KitLanguage::ALL {
        let words = ["bytes", "generator", "dict", "list-attribute", "null-child"];
        answers_with_reason(language, &words, " is of type ");
    }
    answers_with_reason(KitLanguage::Python, &["text-child"], "is of type str: pass elements as");
}

#[test]
fn a_kit_takes_one_element_as_the_children_of_an_element() {
    for language in KitLanguage::ALL {
        let output = output(language, &delivery("one-child"));
        let frame = text(&output.stdout);
        let nested = "<done xmlns=\"urn:test\"><done>inner</done></done>";
        assert!(frame.contains(nested), "{language:?}: {frame}");
    }
}

/// A kit writes elements with its own prefixes. If a value of a passed-on element contains a prefix
/// of the original, the kit declares this prefix, too.
#[test]
fn an_element_that_a_kit_passes_on_keeps_the_namespaces_of_the_prefixes_in_its_values() {
    let schema = "http://www.w3.org/2001/XMLSchema-instance";
    let payload = format!(
        "<t:do xmlns:t=\"urn:test\" xmlns:k=\"urn:kinds\" xmlns:s=\"{schema}\">pass-on\
         <t:done s:type=\"k:kind\"/><t:done s:type=\"kind\"/><t:done>see k:kind e:x</t:done></t:do>"
    );
    let passed_on = format!(
        "<done xmlns=\"urn:test\"><done xmlns:k=\"urn:kinds\" xmlns:a1=\"{schema}\" a1:type=\"k:kind\"/>\
         <a0:done xmlns=\"\" xmlns:a0=\"urn:test\" xmlns:a1=\"{schema}\" a1:type=\"kind\"/>\
         <done xmlns:k=\"urn:kinds\">see k:kind e:x</done></done>"
    );
    for language in KitLanguage::ALL {
        let request = super::kit::delivery(&[&payload]) + "\0";
        let output = output(language, request.as_bytes());
        let frame = text(&output.stdout);
        assert!(frame.contains(&passed_on), "{language:?}: {frame}");
    }
}

/// A handler that fails ends its process at once. By default, Python and Node.js would wait for the
/// work that the handler has begun, and the pump would wait for the end of the process.
#[test]
fn a_handler_that_fails_ends_the_process_although_work_of_its_own_goes_on() {
    for language in KitLanguage::ALL {
        let output = output(language, &delivery("crash-with-work careless"));
        let log = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{language:?}: {log}");
        assert!(log.contains("Error: careless"), "{language:?}: {log}");
        assert!(!log.contains("the work has ended"), "{language:?}: {log}");
    }
}

#[test]
fn a_python_handler_that_fails_loses_nothing_that_an_answered_call_has_buffered() {
    let input = [delivery("buffer kept-line"), delivery("crash careless")].concat();
    let output = output(KitLanguage::Python, &input);
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(text(&output.stdout).contains(&done("buffered")), "{log}");
    assert!(log.contains("kept-line"), "{log}");
}

#[test]
fn a_kit_writes_infinite_numbers_as_xml_schema_does() {
    for language in KitLanguage::ALL {
        let output = output(language, &delivery("infinite"));
        let frame = text(&output.stdout);
        let numbers = ["INF", "-INF", "NaN"].map(done).concat();
        assert!(frame.contains(&numbers), "{language:?}: {frame}");
    }
}

/// The first heartbeat is sent at once, because the time-out of a call may be shorter than the time
/// between two heartbeats.
#[test]
fn a_handler_that_is_kept_alive_sends_its_first_heartbeat_at_once() {
    for language in KitLanguage::ALL {
        let output = output(language, &delivery("alive"));
        let frames = text(&output.stdout);
        assert!(frames.starts_with("<heartbeat/>\0<e:answer "), "{language:?}: {frames}");
        assert!(frames.contains(&done("alive")), "{language:?}: {frames}");
    }
}

/// A kit sends no heartbeat after the answer to its request. Such a heartbeat would move the
/// deadline of the next delivery, or count as unsolicited output.
#[test]
fn a_heartbeat_after_the_answer_to_its_request_is_not_sent() {
    for language in KitLanguage::ALL {
        let output = output(language, &[delivery("keep"), delivery("kept-beat")].concat());
        let frames = text(&output.stdout);
        assert!(frames.contains(&done("beaten")), "{language:?}: {}", text(&output.stderr));
        assert_eq!(frames.matches("heartbeat").count(), 0, "{language:?}: {frames}");
        assert!(output.status.success(), "{language:?}");
    }
}

/// If two threads look for a cancel and both see one frame, only one thread can read it. The other
/// thread must not wait for another frame.
#[test]
fn two_threads_of_a_python_handler_may_look_for_a_cancel_at_once() {
    let program = "
import os, select, threading
import organism_listener

source, sink = os.pipe()
channel = organism_listener._DeliveryChannel(organism_listener._Connection(source, sink))
os.write(sink, b'<cancel call=\"c\"/>\\0')
both_look = threading.Barrier(2)
look = select.select

def slow_look(*arguments):
    seen = look(*arguments)
    if seen[0]:
        try:
            both_look.wait(0.2)
        except threading.BrokenBarrierError:
            pass  # the other thread cannot look yet
    return seen

select.select = slow_look
seen = []
look_for_cancel = lambda: seen.append(channel.cancels('c'))
threads = [threading.Thread(target=look_for_cancel, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(10)
print(seen)
";
    let mut command = Command::new("python3");
    command.arg("-c").arg(program).env("PYTHONPATH", repository().join("listeners/python"));
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "[True, True]\n", "{}", text(&output.stderr));
}

#[test]
fn the_python_kit_writes_values_as_xml_schema_does() {
    let output = output(KitLanguage::Python, &delivery("values"));
    let frame = text(&output.stdout);
    let element = "<done xmlns=\"urn:test\" yes=\"true\" small=\"0.00005\">false</done>";
    assert!(frame.contains(element), "{frame}");
    assert!(frame.contains(" money=\"0.00005\" bound=\"true\">"), "{frame}");
    assert!(frame.contains(&done("10000000000000000000000")), "{frame}");
    let paths = ["1e5", "nan"].map(done).concat();
    assert!(frame.contains(&paths), "a text that is no number stays: {frame}");
}

#[test]
fn the_typescript_kit_writes_numbers_without_an_exponent() {
    let output = output(KitLanguage::TypeScript, &delivery("values"));
    let frame = text(&output.stdout);
    let numbers = "small=\"0.0000005\" large=\"12500000000000000000000\" negative=\"-0.000000015\"";
    let element = format!("<done xmlns=\"urn:test\" yes=\"true\" {numbers}>false</done>");
    assert!(frame.contains(&element), "{frame}");
    assert!(frame.contains(" money=\"0.0000005\" bound=\"true\">"), "{frame}");
    assert!(frame.contains(&done("10000000000000000000000")), "{frame}");
}

/// An element in place of a text is refused. Otherwise the kit would write the text form of the
/// Python object.
#[test]
fn the_python_kit_refuses_an_element_as_the_text_of_an_element() {
    let input = [delivery("nested"), delivery("echo next")].concat();
    let output = output(KitLanguage::Python, &input);
    let frames: Vec<_> = text(&output.stdout).split_terminator('\0').collect();
    assert_eq!(frames.len(), 2, "{}", text(&output.stderr));
    let reason = "is of type Element: pass elements as children=[...]";
    assert!(frames[0].contains(reason), "{frames:?}");
    assert!(frames[1].contains(&done("next")), "{frames:?}");
    assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
}

#[test]
fn a_kit_replaces_characters_in_a_preview_that_xml_cannot_contain() {
    for language in KitLanguage::ALL {
        let request = String::from_utf8(delivery("control")).unwrap();
        let request = request.replace("e:delivery", "e:preview");
        let output = output(language, request.as_bytes());
        let preview = Preview::new("would do \0");
        let frame = text(&output.stdout);
        assert!(frame.contains(">would do \u{FFFD}</preview>"), "{language:?}: {frame}");
        let (_, payload) = frame.split_once("attempt=\"2.1\">").unwrap();
        let payload = payload.strip_suffix("</e:answer>\0").unwrap();
        assert_eq!(Digest::of(payload.as_bytes()), preview.digest(), "{language:?}");
    }
}

#[test]
fn a_handler_for_previews_that_returns_nothing_gives_no_preview() {
    for language in KitLanguage::ALL {
        let request = String::from_utf8(delivery("unshown")).unwrap();
        let request = request.replace("e:delivery", "e:preview");
        let output = output(language, request.as_bytes());
        let frame = text(&output.stdout);
        assert!(frame.ends_with("attempt=\"2.1\"></e:answer>\0"), "{language:?}: {frame}");
        let log = text(&output.stderr);
        assert_eq!(log, "no preview: the handler for previews returned nothing\n");
        assert!(output.status.success(), "{language:?}");
    }
}

#[test]
fn the_typescript_kit_takes_no_document_type_and_no_frame_beyond_the_bound() {
    let entity = "<!DOCTYPE e:delivery [<!ENTITY a \"aaaa\">]>";
    refuses(&[entity.as_bytes(), &delivery("echo")].concat(), "a document type is not allowed");
    refuses(&delivery("echo &a;"), "undefined entity");
    refuses(&vec![b' '; (16 << 20) + 1], "a frame of more than 16777216 bytes");
    refuses(b"<e:delivery>\xff\0", "not valid");
}

#[test]
fn the_text_of_a_missing_child_is_an_error_unless_a_default_is_given() {
    for language in KitLanguage::ALL {
        let missing = output(language, &delivery("child note"));
        let log = text(&missing.stderr);
        assert_eq!(missing.status.code(), Some(1), "{language:?}: {log}");
        assert!(
            log.contains("<do> has no child `note`, it has no children"),
            "{language:?}: {log}"
        );
        let default = output(language, &delivery("child-or note"));
        let answer = text(&default.stdout);
        assert!(answer.contains(&done("none")), "{language:?}: {answer}");
    }
}

#[test]
fn a_python_handler_that_returns_nothing_is_warned_of_once() {
    let mut command = KitLanguage::Python.listener("obedient");
    command.env("ORGANISM_LISTENER", "tested");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kit = command.spawn().unwrap();
    let mut input = kit.stdin.take().unwrap();
    let mut answers = BufReader::new(kit.stdout.take().unwrap());
    // The end of its input would cancel a call.
    for _ in 0..2 {
        input.write_all(&delivery("nothing")).unwrap();
        assert!(answers.read_until(0, &mut Vec::new()).unwrap() > 0);
    }
    drop(input);
    let silent = kit.wait_with_output().unwrap();
    let log = text(&silent.stderr);
    assert_eq!(log.matches("do returned nothing").count(), 1, "{log}");
    let meant = output(KitLanguage::Python, &delivery("empty"));
    assert_eq!(text(&meant.stderr), "");
    assert_eq!(text(&meant.stdout).matches('\0').count(), 1);
}

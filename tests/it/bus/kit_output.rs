//! Listeners of the kits write frames to standard output, and everything else to the log.

use std::io::Write as _;
use std::process::{Output, Stdio};

use super::harness::done;
use super::kit_language::KitLanguage;

/// Gives these bytes to the obedient listener of a kit, and waits for its end.
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

/// The TypeScript kit must end without a frame, with this as the last line of its log.
fn refuses(input: &[u8], reason: &str) {
    let output = output(KitLanguage::TypeScript, input);
    let log = text(&output.stderr);
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains(reason), "expected `{reason}`: {log}");
    assert_eq!(text(&output.stdout), "", "{reason}");
    assert_eq!(output.status.code(), Some(1), "{reason}");
}

#[test]
fn the_typescript_kit_writes_no_frame_that_breaks_the_protocol() {
    refuses(&delivery("control"), "XML cannot contain the character U+0000");
    refuses(&delivery("huge"), "an answer of 17825");
}

#[test]
fn the_typescript_kit_takes_no_document_type_and_no_frame_beyond_the_bound() {
    let entity = "<!DOCTYPE e:delivery [<!ENTITY a \"aaaa\">]>";
    refuses(&[entity.as_bytes(), &delivery("echo")].concat(), "a document type is not allowed");
    refuses(&delivery("echo &a;"), "undefined entity");
    refuses(&vec![b' '; (16 << 20) + 1], "a frame of more than 16777216 bytes");
    refuses(b"<e:delivery>\xff\0", "not valid");
}

//! The parser of event streams, by the rules of the HTML standard.

use organism::limits;
use organism::model::sse::SseDecoder;

/// Events as `name|data`, from the bytes in pieces of `size`.
fn events(bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = SseDecoder::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(size) {
        let mut rest = piece;
        while let Some(event) = decoder.next(&mut rest).unwrap() {
            found.push(format!("{}|{}", event.name, String::from_utf8_lossy(event.data)));
        }
        assert!(rest.is_empty(), "everything was read");
    }
    found
}

#[test]
fn events_are_read_by_the_standard_wherever_the_bytes_are_cut() {
    let cases: &[(&str, &[&str])] = &[
        ("data: a\n\n", &["|a"]),
        ("data: a\r\n\r\ndata: b\r\n\r\n", &["|a", "|b"]),
        ("data: a\r\rdata: b\r\r", &["|a", "|b"]),
        ("data: a\r\n\ndata: b\n\r\n", &["|a", "|b"]),
        ("\u{feff}data: a\n\n", &["|a"]),
        ("data: a\n\n\u{feff}data: b\n\n", &["|a"]),
        (": a comment\n\ndata: a\n: another\n\n", &["|a"]),
        ("data: one\ndata: two\ndata:\ndata: four\n\n", &["|one\ntwo\n\nfour"]),
        ("data\n\n", &["|"]),
        ("data:a\ndata:  b\n\n", &["|a\n b"]),
        ("event: ping\n\ndata: a\n\n", &["|a"]),
        ("event: x\ndata: a\n\ndata: b\n\n", &["x|a", "|b"]),
        ("id: 7\nretry: 10\nunknown: x\ndata: a\n\n", &["|a"]),
        ("data: grüße 🦀\n\n", &["|grüße 🦀"]),
        ("data: a\n", &[]),
        ("data: {\"a\":\"b: c\"}\n\n", &["|{\"a\":\"b: c\"}"]),
        ("\n\n\n", &[]),
    ];
    for (text, expected) in cases {
        for size in 1..=text.len() {
            assert_eq!(events(text.as_bytes(), size), *expected, "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_line_and_an_event_are_bounded() {
    let mut decoder = SseDecoder::default();
    let piece = vec![b'x'; 64 << 10];
    let read =
        (0..).map(|_| decoder.next(&mut piece.as_slice()).map(|_| ())).take_while(Result::is_ok);
    assert_eq!(read.count(), limits::STREAM_LINE_BYTES_MAX / piece.len());

    let mut decoder = SseDecoder::default();
    let line = [b"data: ", piece.as_slice(), b"\n"].concat();
    let read =
        (0..).map(|_| decoder.next(&mut line.as_slice()).map(|_| ())).take_while(Result::is_ok);
    assert!(read.count() <= limits::STREAM_EVENT_BYTES_MAX / piece.len());
}

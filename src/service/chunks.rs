//! Chunks of requests and responses over NATS. A stream of chunks carries one request, or all
//! responses to one request. Each chunk begins with a line of JSON that contains the id of the
//! stream, the number of the chunk in the stream, and the kind of the chunk. A gap in the numbers
//! means that a chunk was lost.
//!
//! The line also names the journal of the sender's organism. The subjects of requests contain only
//! the name of an organism, and another organism on the same servers may have the same name.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits;
use crate::mutant::mutant;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ChunkHeader {
    #[serde(rename = "of")]
    stream: Uuid,
    #[serde(rename = "n")]
    number: u64,
    #[serde(rename = "is")]
    kind: ChunkKind,
    /// Prefix of the names of the streams in which the sender's organism keeps its journal. `None`
    /// in a chunk of an earlier version. Earlier versions ignore the field.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    journal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkKind {
    /// A part of a request or a response. At least one more part of it follows.
    #[serde(rename = "part")]
    Part,
    #[serde(rename = "last")]
    Last,
    /// An empty chunk, which shows that the sender is alive.
    #[serde(rename = "beat")]
    Heartbeat,
    /// The last chunk of the stream.
    #[serde(rename = "end")]
    End,
}

/// Encodes requests or responses as the chunks of one stream, and numbers the chunks.
pub struct ChunkEncoder {
    stream: Uuid,
    next: u64,
    journal: String,
}

impl ChunkEncoder {
    /// Begins a stream of an organism whose journal is `journal`.
    pub fn start(journal: &str) -> Self {
        Self { stream: Uuid::now_v7(), next: 0, journal: journal.to_owned() }
    }

    pub fn encode(&mut self, kind: ChunkKind, bytes: &[u8]) -> Vec<u8> {
        let journal = Some(self.journal.clone());
        let header = ChunkHeader { stream: self.stream, number: self.next, kind, journal };
        self.next += 1;

        let mut chunk = serde_json::to_vec(&header).expect("plain data is JSON");
        chunk.push(b'\n');
        chunk.extend_from_slice(bytes);
        chunk
    }

    /// Splits one request or one response into chunks.
    pub fn encode_message(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = message.chunks(limits::SERVICE_CHUNK_BYTES).peekable();
        let mut chunks = Vec::new();
        while let Some(part) = parts.next() {
            let kind = if parts.peek().is_some() { ChunkKind::Part } else { ChunkKind::Last };
            chunks.push(self.encode(kind, part));
        }

        chunks
    }
}

/// Decodes the chunks of one stream into requests or responses.
pub struct ChunkDecoder {
    journal: String,
    stream: Option<Uuid>,
    next: u64,
    message: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum DecodedChunk {
    Message(Vec<u8>),
    /// No request or response is complete yet: the chunk is a heartbeat, or more parts must follow.
    Incomplete,
    End,
    OtherStream,
    /// The sender belongs to another organism, which keeps its journal in the streams with this
    /// prefix.
    OtherOrganism(String),
    /// The chunk cannot be used: a chunk before it was lost, the request or response is too long,
    /// or the chunk has no valid header.
    Broken,
}

impl ChunkDecoder {
    /// Makes a decoder for chunks of the organism whose journal is `journal`.
    pub fn new(journal: &str) -> Self {
        Self { journal: journal.to_owned(), stream: None, next: 0, message: Vec::new() }
    }

    pub fn decode(&mut self, chunk: &[u8]) -> DecodedChunk {
        let Some((mut header, bytes)) = split(chunk) else { return DecodedChunk::Broken };
        if let Some(journal) = header.journal.take_if(|journal| *journal != self.journal)
            && !mutant("answer-any-organism")
        {
            return DecodedChunk::OtherOrganism(journal);
        }
        if *self.stream.get_or_insert(header.stream) != header.stream {
            return DecodedChunk::OtherStream;
        }

        let fits = self.message.len() + bytes.len() <= limits::FRAME_BYTES_MAX;
        if header.number != self.next || !fits {
            return DecodedChunk::Broken;
        }

        self.next += 1;

        match header.kind {
            ChunkKind::Heartbeat => DecodedChunk::Incomplete,
            ChunkKind::End => DecodedChunk::End,
            ChunkKind::Part => {
                self.message.extend_from_slice(bytes);
                DecodedChunk::Incomplete
            }
            ChunkKind::Last => {
                self.message.extend_from_slice(bytes);
                DecodedChunk::Message(std::mem::take(&mut self.message))
            }
        }
    }
}

fn split(chunk: &[u8]) -> Option<(ChunkHeader, &[u8])> {
    let at = memchr::memchr(b'\n', chunk)?;
    let header = serde_json::from_slice(chunk.get(..at)?).ok()?;
    Some((header, chunk.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../tests/data/fixtures/exchange.txt");
    const JOURNAL: &str = "ORGANISM-desk";

    #[test]
    fn a_chunk_is_written_in_the_bytes_of_its_fixture() {
        let stream = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
        let kinds = [ChunkKind::Part, ChunkKind::Last, ChunkKind::Heartbeat, ChunkKind::End];
        let written = kinds.map(|kind| {
            let (name, bytes): (_, &[u8]) = match kind {
                ChunkKind::Part => ("part", b"{\"sent"),
                ChunkKind::Last => ("last", b"\":1}"),
                ChunkKind::Heartbeat => ("beat", b""),
                ChunkKind::End => ("end", b""),
            };
            let journal = JOURNAL.to_owned();
            let chunk = ChunkEncoder { stream, next: 7, journal }.encode(kind, bytes);
            let chunk = String::from_utf8(chunk).unwrap();
            format!("{name} with a journal\t{}\n", serde_json::to_string(&chunk).unwrap())
        });
        // The lines before are of an earlier version.
        assert!(FIXTURE.ends_with(&written.concat()), "{written:?}");
    }

    #[test]
    fn a_chunk_of_a_fixture_is_read() {
        for line in FIXTURE.lines() {
            let (name, chunk) = line.split_once('\t').unwrap();
            let chunk: String = serde_json::from_str(chunk).unwrap();
            let (header, _) = split(chunk.as_bytes()).expect(name);
            assert_eq!(header.number, 7);
            assert_eq!(header.journal.is_some(), name.ends_with("with a journal"));
        }
    }

    #[test]
    fn a_message_of_any_length_is_decoded_as_it_was_encoded() {
        let mut encoder = ChunkEncoder::start(JOURNAL);
        let mut decoder = ChunkDecoder::new(JOURNAL);
        for length in [1, 7, limits::SERVICE_CHUNK_BYTES, 3 * limits::SERVICE_CHUNK_BYTES + 1] {
            let message = vec![b'x'; length];
            let chunks = encoder.encode_message(&message);
            assert_eq!(chunks.len(), length.div_ceil(limits::SERVICE_CHUNK_BYTES));

            let decoded: Vec<_> = chunks.iter().map(|chunk| decoder.decode(chunk)).collect();
            let (last, parts) = decoded.split_last().unwrap();
            assert_eq!(*last, DecodedChunk::Message(message));
            assert!(parts.iter().all(|part| *part == DecodedChunk::Incomplete));
        }

        let heartbeat = encoder.encode(ChunkKind::Heartbeat, b"");
        assert_eq!(decoder.decode(&heartbeat), DecodedChunk::Incomplete);
        let end = encoder.encode(ChunkKind::End, b"");
        assert_eq!(decoder.decode(&end), DecodedChunk::End);
    }

    #[test]
    fn a_lost_chunk_and_a_chunk_of_another_stream_are_noticed() {
        let mut encoder = ChunkEncoder::start(JOURNAL);
        let mut decoder = ChunkDecoder::new(JOURNAL);
        let one = encoder.encode_message(b"one").remove(0);
        assert_eq!(decoder.decode(&one), DecodedChunk::Message(b"one".to_vec()));

        drop(encoder.encode_message(b"two"));
        let other = ChunkEncoder::start(JOURNAL).encode_message(b"one").remove(0);
        assert_eq!(decoder.decode(&other), DecodedChunk::OtherStream);
        let three = encoder.encode_message(b"three").remove(0);
        assert_eq!(decoder.decode(&three), DecodedChunk::Broken);
        assert_eq!(decoder.decode(b"no header"), DecodedChunk::Broken);
    }

    /// A request without a journal is of an earlier version, whose processes are still served.
    #[test]
    fn a_chunk_of_another_organism_is_not_taken_and_disturbs_no_stream() {
        let mut decoder = ChunkDecoder::new(JOURNAL);
        let other = ChunkEncoder::start("OTHER").encode_message(b"one").remove(0);
        let refused = DecodedChunk::OtherOrganism("OTHER".to_owned());
        assert_eq!(decoder.decode(&other), refused);
        let own = ChunkEncoder::start(JOURNAL).encode_message(b"one").remove(0);
        assert_eq!(decoder.decode(&own), DecodedChunk::Message(b"one".to_vec()));

        let named = format!(",\"journal\":\"{JOURNAL}\"");
        let unnamed = String::from_utf8(own).unwrap().replace(&named, "");
        let mut decoder = ChunkDecoder::new(JOURNAL);
        assert!(!unnamed.contains("journal"), "{unnamed}");
        assert_eq!(decoder.decode(unnamed.as_bytes()), DecodedChunk::Message(b"one".to_vec()));
    }
}

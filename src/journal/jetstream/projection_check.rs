//! Verifies that a projection matches its stream, record by record.

use std::path::Path;

use crate::ids::Position;
use crate::journal::Error;
use crate::nats;

use super::first_message::journal;
use super::open::connect;
use super::projection_alignment::{ComparedProjection, ProjectionAlignment};
use super::{Options, read_failed};

/// Result of a comparison that found no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAgreement {
    /// Number of records that both stream and projection have.
    pub records: u64,
    /// Number of records that the stream has and the projection has not read yet.
    pub ahead: u64,
}

/// Compares the projection in `data` with the stream of `options`. Returns [`Error::Broken`] if the
/// stream keeps another journal, if a record or a MAC differs, or if the stream lacks a record, a
/// checkpoint or a file of the projection.
pub fn compare_with_stream(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
) -> Result<StreamAgreement, Error> {
    // Ordering rule: opened before the end of the stream is read, because a pump may append
    // meanwhile.
    let projection = ComparedProjection::open_with_checkpoints(data)?;
    let api = connect(servers, options)?;
    let name = options.stream();
    let info = api.info(&name).map_err(|f| read_failed(&format!("the stream {name}"), f))?;
    let theirs = journal(&api, options)?;
    if theirs != projection.reader.about()?.journal {
        return Err(Error::broken(0, format!("the stream {name} keeps the journal {theirs}")));
    }

    let compared = projection.compare(&api, options, info.state.last_seq)?;
    let forked = match compared.alignment {
        ProjectionAlignment::Forked(position) => Some(position),
        _ => None,
    };

    let refuse = |position: u64, detail: String| Err(Error::broken(position, detail));
    if let Some(differs) = forked.into_iter().chain(compared.other_mac).min() {
        return refuse(differs.0, format!("it is not the record of the stream {name}"));
    }

    if let Some((message, blob)) = compared.damaged_blob {
        return refuse(0, format!("blob {blob} is damaged in message {message} of {name}"));
    }

    let missing = compared.missing_checkpoints.iter().min_by_key(|line| line.position);
    if let Some(line) = missing {
        let detail = format!("its checkpoint does not stand in the stream {name}");
        return refuse(line.position.0, detail);
    }

    if let Some(blob) = compared.missing_blobs.first() {
        return refuse(0, format!("blob {blob} does not stand in the stream {name}"));
    }

    let Position(last) = projection.last;
    let Position(records) = compared.records;
    if records < last {
        let detail = format!("the stream {name} ends here, but the projection goes up to {last}");
        return refuse(records + 1, detail);
    }

    Ok(StreamAgreement { records: last, ahead: records - last })
}

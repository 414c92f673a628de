//! Verifies that a projection is the stream it follows, record by record.

use std::path::Path;

use crate::ids::Position;
use crate::journal::Error;
use crate::nats;

use super::align::{ComparedProjection, ProjectionAlignment};
use super::open::connect;
use super::stream_position::journal;
use super::{Options, refused};

/// What a comparison found, where nothing differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAgreement {
    /// Records that stand in both.
    pub records: u64,
    /// Records that the stream has and the projection does not have yet.
    pub ahead: u64,
}

/// Holds the projection in `data` against the stream of `options`. [`Error::Broken`] where a record
/// differs, or where the stream ends before the projection does.
pub fn compare_with_stream(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
) -> Result<StreamAgreement, Error> {
    // Read before the stream's end is, which a pump may move on meanwhile.
    let projection = ComparedProjection::open_with_checkpoints(data)?;
    let api = connect(servers, options)?;
    let name = options.stream();
    let info = api.info(&name).map_err(|f| refused(&format!("the stream {name}"), f))?;
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

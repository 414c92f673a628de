//! Reads those messages of a stream that a projection has not read yet. Refuses records if no MAC
//! proves that a pump wrote them, and does not write such records to the projection.

use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::log::{LogMark, StreamItem};
use crate::journal::sqlite::{CatchingUp, RecordsAhead};
use crate::journal::{Error, HashedRecord};
use crate::mutant::mutant;

use super::Options;
use super::acknowledged_bounds::{PumpDirectories, StreamBounds};
use super::api::{JetStreamApi, code};
use super::first_message;
use super::open::half_moved;
use super::projection_alignment::{ComparedProjection, ProjectionAlignment};
use super::read_failed;
use super::standby::StreamHost;
use super::stream_damage::StreamDamage;
use super::stream_reader::{StreamReader, patiently};

/// Returns the message after which the projection continues to read the stream, and a position.
/// After this message, the stream may contain records that the projection already has: those up to
/// the returned position. The position is 0 if the stream still has the last message that the
/// projection read, because no record is repeated then. Returns an error if the stream is shorter
/// than the projection, or if the two have different records at some position.
pub fn resume_point(
    host: &StreamHost,
    mark: LogMark,
    bounds: Option<&StreamBounds>,
) -> Result<(LogMark, Position), Error> {
    let StreamHost { api, options, directories: PumpDirectories { data, .. }, .. } = host;
    if is_there(api, options, &mark)? || mutant("ignore-the-projection") {
        return Ok((mark, Position(0)));
    }

    let name = options.stream();
    let info = api.info(&name).map_err(|f| read_failed(&format!("the stream {name}"), f))?;
    let alignment =
        ComparedProjection::open(data)?.compare(api, options, info.state.last_seq)?.alignment;
    let alone;
    let bounds = match bounds {
        Some(bounds) => bounds,
        None => {
            alone = StreamBounds::of_projection(options, data)?;
            &alone
        }
    };

    match alignment {
        ProjectionAlignment::Whole { mark, last } => Ok((mark, last)),
        ProjectionAlignment::Shorter(last) => Err(bounds.shorter(Some(last))),
        ProjectionAlignment::Forked(_) if mutant("lead-a-fork") => Ok((mark, Position(0))),
        ProjectionAlignment::Forked(position) => Err(bounds.forked(position)),
    }
}

/// Whether the last message that a projection read still exists in the stream.
fn is_there(api: &JetStreamApi, options: &Options, mark: &LogMark) -> Result<bool, Error> {
    if mark.seq == 0 {
        return Ok(true);
    }

    match patiently(|| api.message(&options.stream(), mark.seq)) {
        Ok(stored) => Ok(Digest::of(&stored.body) == mark.digest),
        Err(failed) if failed.is(code::NO_MESSAGE) => Ok(false),
        Err(failed) => Err(read_failed(
            &format!("message {} of the stream {}", mark.seq, options.stream()),
            failed,
        )),
    }
}

/// Progress of a projection that reads its stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamProgress {
    pub mark: LogMark,
    /// Last record that the projection already has. The stream may repeat the records up to and
    /// including this record.
    pub known: Position,
    /// Whether the last read refused records, because no MAC proves that a pump wrote them.
    pub is_refused: bool,
}

/// Reads the stream after `progress` up to message `last`, and writes the records to the projection
/// `following`. If the server becomes unreachable, `progress` shows which messages were read.
///
/// Refuses records if no MAC proves that a pump wrote them, and does not write such records. Before
/// a refusal, reads and verifies the rest of the stream, because a later record may contain an
/// operator's action that accepts missing MACs, wrong MACs or blanked payloads.
pub fn read(
    host: &StreamHost,
    progress: &mut StreamProgress,
    last: u64,
    following: &mut CatchingUp,
    visit: &mut dyn FnMut(HashedRecord) -> Result<(), Error>,
) -> Result<(), Error> {
    let StreamHost { api, options, damage, .. } = host;
    let reader = StreamReader::new(api, options);
    let stream = options.stream();
    let mut is_judged = false;
    progress.is_refused = false;
    reader.read_after(progress.mark.seq, last, &mut |groups| {
        failpoint("during-recovery");
        let mut epoch = 0;
        let mut taken = Vec::<StreamItem<'_>>::new();
        for group in groups {
            let contents = reader.contents(group)?;
            epoch = epoch.max(contents.epoch.unwrap_or_default());
            taken.extend(match progress.known {
                Position(0) => contents.taken,
                known => newer(contents.taken, known),
            });
        }

        let Some(end) = groups.last() else { return Ok(()) };
        let mut judge = |read: &CatchingUp| {
            let is_proved = StreamDamage::of(&read.proof()).refuse(*damage, &stream).is_ok();
            if is_judged || is_proved {
                return Ok(());
            }

            let mut ahead = read.read_ahead()?;
            ahead.epoch = ahead.epoch.max(epoch);
            let behind = StreamProgress { mark: end.mark, ..*progress };
            let judged = judge_rest(host, behind, last, ahead);
            is_judged = judged.is_ok();
            progress.is_refused = judged.is_err();
            judged
        };

        following.take_in(&taken, end.mark, epoch, &mut judge, visit)?;
        progress.mark = end.mark;
        Ok(())
    })
}

/// Returns the stream items in `taken` without the records and checkpoints up to position `known`,
/// which the projection already has.
fn newer(taken: Vec<StreamItem<'_>>, known: Position) -> Vec<StreamItem<'_>> {
    let is_newer = |one: &StreamItem<'_>| match one {
        StreamItem::Step(row) => row.place.position > known,
        StreamItem::Checkpoint(checkpoint) => checkpoint.position > known,
        StreamItem::Blob(..) => true,
    };

    taken.into_iter().filter(is_newer).collect()
}

/// Verifies the stream after `progress` up to message `last`, without writing to the projection.
/// Returns an error if the stream has damage, such as unproved records, and no operator has
/// accepted this damage.
fn judge_rest(
    host: &StreamHost,
    progress: StreamProgress,
    last: u64,
    mut ahead: RecordsAhead,
) -> Result<(), Error> {
    let StreamHost { api, options, damage, .. } = host;
    let reader = StreamReader::new(api, options);
    reader.read_after(progress.mark.seq, last, &mut |groups| {
        for group in groups {
            let contents = reader.contents(group)?;
            ahead.epoch = ahead.epoch.max(contents.epoch.unwrap_or_default());
            for item in newer(contents.taken, progress.known) {
                if let StreamItem::Step(row) = item {
                    ahead.take(&row)?;
                }
            }
        }
        Ok(())
    })?;

    match StreamDamage::of(&ahead.proof()).refuse(*damage, &options.stream()) {
        // The journal is still being moved into the stream: its last records are not published yet.
        Err(_) if ahead.epoch == 0 && first_message::first(api, options)?.moving => {
            Err(half_moved(options))
        }
        judged => judged,
    }
}

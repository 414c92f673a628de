//! The first message of a stream, and the messages that a projection does not have yet.

use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::log::{LogMark, StreamItem};
use crate::journal::sqlite::{CatchingUp, RecordsAhead};
use crate::journal::{Error, HashedRecord};

use super::Options;
use super::api::{JetStreamApi, StoredMessage, code};
use super::commit_codec::{CommitAssembler, CommitContents};
use super::open::half_moved;
use super::projection_alignment::newer;
use super::read_failed;
use super::standby::StreamHost;
use super::stream_damage::StreamDamage;
use super::stream_reader::{StreamReader, damaged, patiently};

/// Decodes a message that is a whole group by itself.
fn whole(options: &Options, stored: &StoredMessage) -> Result<Vec<u8>, Error> {
    let taken = CommitAssembler::default().take(&stored.body);
    match taken.map_err(|detail| damaged(options, stored.seq, &detail))? {
        Some(whole) => Ok(whole),
        None => Err(damaged(options, stored.seq, "it is only a part")),
    }
}

fn message(api: &JetStreamApi, options: &Options, seq: u64) -> Result<StoredMessage, Error> {
    let stored = patiently(|| api.message(&options.stream(), seq));
    stored.map_err(|f| read_failed(&format!("message {seq} of the stream {}", options.stream()), f))
}

/// Content of the first message of a stream.
pub struct FirstMessage {
    pub journal: Uuid,
    pub partitions: u32,
    /// Whether the journal is being moved into this stream.
    pub moving: bool,
}

/// Id of the journal that the stream keeps, from its first message.
pub fn journal(api: &JetStreamApi, options: &Options) -> Result<Uuid, Error> {
    let first = first(api, options)?;
    super::partition_count::compare(options, first.partitions)?;
    Ok(first.journal)
}

/// Reads the first message: the journal, and its number of partitions.
pub fn first(api: &JetStreamApi, options: &Options) -> Result<FirstMessage, Error> {
    let first = message(api, options, 1)?;
    let whole = whole(options, &first)?;
    let contents = CommitContents::read(&whole).map_err(|detail| damaged(options, 1, &detail))?;

    match contents.journal {
        Some(about) if about.name == options.organism && about.partition == options.partition => {
            Ok(FirstMessage {
                journal: about.id,
                partitions: about.partitions,
                moving: about.moving,
            })
        }
        _ => Err(damaged(options, 1, "it does not say that this organism's journal begins here")),
    }
}

/// Whether the last message that a projection read still exists in the stream.
pub fn is_there(api: &JetStreamApi, options: &Options, mark: &LogMark) -> Result<bool, Error> {
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

/// How far a stream was read.
#[derive(Debug, Clone, Copy)]
pub struct StreamProgress {
    pub mark: LogMark,
    /// Records up to this position may be repeated in the stream, because the projection has them
    /// already.
    pub known: Position,
    /// Whether the last read refused records that are not proved.
    pub is_refused: bool,
}

/// Lets `following` read everything after `progress`, up to message `last`. If the server becomes
/// unreachable, `progress` shows how far the read came.
///
/// Refuses records that are not proved before they are written: where a MAC is missing or wrong, or
/// a payload is blanked, the rest is read first. It may hold the record of the operator who accepts
/// that.
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

            let mut ahead = read.read_ahead();
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

/// Verifies the stream after `progress` up to message `last`, without writing to the projection.
/// Returns an error if the MACs do not cover all records up to `last`.
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
        Err(_) if ahead.epoch == 0 && first(api, options)?.moving => Err(half_moved(options)),
        judged => judged,
    }
}

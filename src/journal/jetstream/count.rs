//! How many partitions a journal has: said once, in the bucket of its leases, and for as long as
//! its streams live in the first message of each.

use serde::{Deserialize, Serialize};

use crate::journal::Error;
use crate::mutant::mutant;

use super::api::{Api, Failed, code};
use super::{Options, away, refused, tail};

/// What stands in the bucket.
#[derive(Debug, Serialize, Deserialize)]
struct Count {
    partitions: u32,
}

/// Refuses another number than the journal has; of a new one, says the number for good.
pub fn agree(api: &Api, options: &Options, bucket: &str) -> Result<(), Error> {
    let subject = options.count();
    if let Some(count) = said(api, bucket, &subject)? {
        return compare(options, count);
    }
    // The bucket can be emptied; the streams cannot.
    let partitions = of_first_stream(api, options)?.unwrap_or(options.partitions);
    compare(options, partitions)?;
    let value = serde_json::to_vec(&Count { partitions }).expect("plain data is JSON");
    match api.publish(&subject, &[("Nats-Expected-Last-Subject-Sequence", "0")], value) {
        Ok(_) => Ok(()),
        Err(failed) if failed.is(code::WRONG_LAST_SEQUENCE) => {
            // Another pump began at the same moment.
            said(api, bucket, &subject)?.map_or(Ok(()), |count| compare(options, count))
        }
        Err(failed) => Err(unsaid(bucket, &failed)),
    }
}

/// Refuses a journal of another number of partitions than the config has.
pub fn compare(options: &Options, theirs: u32) -> Result<(), Error> {
    let ours = options.partitions;
    match ours == theirs || mutant("trust-the-count") {
        true => Ok(()),
        false => Err(Error::Partitions { journal: options.stream.clone(), ours, theirs }),
    }
}

fn said(api: &Api, bucket: &str, subject: &str) -> Result<Option<u32>, Error> {
    let found = api.last(bucket, subject).map_err(|failed| unsaid(bucket, &failed))?;
    let count = found.and_then(|found| serde_json::from_slice::<Count>(&found.body).ok());
    Ok(count.map(|count| count.partitions))
}

fn unsaid(bucket: &str, failed: &Failed) -> Error {
    away(&format!("the number of partitions in {bucket}"), failed)
}

fn of_first_stream(api: &Api, options: &Options) -> Result<Option<u32>, Error> {
    let first = Options { partition: 0, ..options.clone() };
    match api.info(&first.stream()) {
        Ok(info) if info.state.last_seq > 0 => Ok(Some(tail::first(api, &first)?.partitions)),
        Ok(_) => Ok(None),
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => Ok(None),
        Err(failed) => Err(refused(&format!("the stream {}", first.stream()), failed)),
    }
}

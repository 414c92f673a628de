//! Digests of large files. The blocks of a file are hashed in parallel. The digest of the file
//! covers the file's length and the digests of its blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::digest;

use crate::ids::Digest;
use crate::limits;

/// Returns the digest of a file.
pub fn file_digest(source: &Path) -> io::Result<Digest> {
    digest_blocks(&File::open(source)?, None)
}

/// Copies a file to the path `copy`, and returns the digest of the copied bytes. No file may exist
/// at this path yet. Only the user of this process may read the copy.
pub fn copy_with_digest(source: &Path, copy: &Path) -> io::Result<Digest> {
    let mut options = OpenOptions::new();
    // A leftover could have wider permissions.
    options.write(true).create_new(true).mode(0o600);
    digest_blocks(&File::open(source)?, Some(&options.open(copy)?))
}

fn digest_blocks(source: &File, copy: Option<&File>) -> io::Result<Digest> {
    let bytes = source.metadata()?.len();
    let block_bytes = limits::SNAPSHOT_BLOCK_BYTES as u64;
    let blocks = bytes.div_ceil(block_bytes);
    let next = AtomicU64::new(0);
    let digests = Mutex::new(vec![Digest::ZERO; usize::try_from(blocks).unwrap_or(0)]);

    let hash_some = || -> io::Result<()> {
        let mut block = vec![0; limits::SNAPSHOT_BLOCK_BYTES];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= blocks {
                return Ok(());
            }

            let offset = number * block_bytes;
            let length = usize::try_from(block_bytes.min(bytes - offset)).unwrap_or(0);
            let block = block.get_mut(..length).unwrap_or_default();
            source.read_exact_at(block, offset)?;
            let digest = sha256(&[block]);
            if let Some(copy) = copy {
                copy.write_all_at(block, offset)?;
            }

            // Locked for one assignment, after the block is hashed.
            let mut digests = digests.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(place) = usize::try_from(number).ok().and_then(|n| digests.get_mut(n)) {
                *place = digest;
            }
        }
    };

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(limits::SNAPSHOT_THREADS_MAX);
    std::thread::scope(|scope| {
        // This thread takes part, so the work is also done where no other thread can be started.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, hash_some).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = hash_some();
        let ended = others.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        });
        ended.chain([own]).collect::<io::Result<()>>()
    })?;

    let digests = digests.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let parts: Vec<&[u8]> = digests.iter().map(|digest| digest.0.as_slice()).collect();
    let length = bytes.to_be_bytes();
    Ok(sha256(&[&[length.as_slice()], parts.as_slice()].concat()))
}

fn sha256(parts: &[&[u8]]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    Digest(context.finish().as_ref().try_into().expect("a SHA-256 digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_bytes_and_the_digest_of_its_source_whatever_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let [source, copy] = ["source", "copy"].map(|name| directory.path().join(name));
        let block = limits::SNAPSHOT_BLOCK_BYTES;
        let mut known = Vec::new();
        for length in [0, 1, block - 1, block, block + 1, 5 * block + 7] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            std::fs::write(&source, &bytes).unwrap();
            let digest = copy_with_digest(&source, &copy).unwrap();
            assert!(copy_with_digest(&source, &copy).is_err(), "a leftover is not used");
            assert!(std::fs::read(&copy).unwrap() == bytes, "{length} bytes");
            assert_eq!(file_digest(&source).unwrap(), digest);
            std::fs::remove_file(&copy).unwrap();
            known.push(digest);
        }
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), 6, "each length has a digest of its own");
    }

    #[test]
    fn one_changed_byte_and_two_exchanged_blocks_change_the_digest() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let block = limits::SNAPSHOT_BLOCK_BYTES;
        let bytes: Vec<u8> = (0..3 * block).map(|n| (n / block) as u8).collect();
        std::fs::write(&source, &bytes).unwrap();
        let digest = file_digest(&source).unwrap();

        let mut changed = bytes.clone();
        changed[2 * block + 5] ^= 1;
        std::fs::write(&source, &changed).unwrap();
        assert_ne!(file_digest(&source).unwrap(), digest);

        let mut exchanged = bytes;
        exchanged.rotate_left(block);
        std::fs::write(&source, &exchanged).unwrap();
        assert_ne!(file_digest(&source).unwrap(), digest);
    }
}

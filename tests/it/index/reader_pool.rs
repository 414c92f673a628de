//! An index reader that a web view keeps open gives the same answers as a new reader, whatever has
//! happened to the files meanwhile.

use organism::ids::Position;
use organism::index::{INDEX_DATABASE, IndexReaderPool};
use organism::journal::Journal as _;

use super::contents;
use crate::journal::Place;
use crate::journal::attacks::replace;
use crate::journal::script::{Script, research};

/// Position of the index, and thread of its first message; `None` if the index must be made first.
fn answer(pool: &IndexReaderPool, place: &Place) -> Option<(Position, String)> {
    let sql = "SELECT thread FROM message ORDER BY position LIMIT 1";
    let answer = pool.read_unless_far(&place.data(), &mut |reader| {
        let first = reader.connection().query_row(sql, [], |row| row.get(0));
        Ok((reader.position(), first.unwrap_or_default()))
    });
    answer.unwrap()
}

#[test]
fn a_kept_reader_sees_each_new_record() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let pool = IndexReaderPool::default();
    assert_eq!(answer(&pool, &place), None);
    contents(&place.data());
    for (at, record) in records.iter_mut().enumerate() {
        journal.append(std::slice::from_mut(record)).unwrap();
        for _ in 0..2 {
            let (position, _) = answer(&pool, &place).unwrap();
            assert_eq!(position, Position(at as u64 + 1));
        }
    }
}

#[test]
fn a_kept_reader_is_not_used_for_files_that_took_the_place_of_its_own() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let other = Place::with(&mut research(&mut Script::default(), "sess-zzzzzzzz"));
    contents(&place.data());
    contents(&other.data());
    let pool = IndexReaderPool::default();
    let own = answer(&pool, &place).unwrap();

    std::fs::remove_file(place.data().join(INDEX_DATABASE)).unwrap();
    assert_eq!(answer(&pool, &place), None);
    contents(&place.data());
    assert_eq!(answer(&pool, &place).as_ref(), Some(&own));

    let of_other = answer(&pool, &other).unwrap();
    replace(&other.data(), &place.data());
    assert_eq!(answer(&pool, &place), Some(of_other));
}

/// A web view that cannot make the index in the directory of the journal makes a temporary index
/// once, and then adds each new record to it. Here, a link into a missing directory makes the file
/// of the index impossible.
#[test]
fn a_temporary_index_is_made_once_and_gets_each_new_record() {
    let mut records = research(&mut Script::default(), "sess-abcdefgh");
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let (first, later) = records.split_at_mut(1);
    journal.append(first).unwrap();
    let missing = place.data().join("missing").join(INDEX_DATABASE);
    std::os::unix::fs::symlink(missing, place.data().join(INDEX_DATABASE)).unwrap();
    let pool = IndexReaderPool::default();
    assert_eq!(answer(&pool, &place), None);
    pool.build(&place.data()).unwrap();
    for (at, record) in later.iter_mut().enumerate() {
        journal.append(std::slice::from_mut(record)).unwrap();
        for _ in 0..2 {
            let (position, _) = answer(&pool, &place).unwrap();
            assert_eq!(position, Position(at as u64 + 2));
        }
    }
}

/// Puts `count` readers of the index into `pool`, by queries that run at the same time.
#[cfg(target_os = "linux")]
fn fill(pool: &IndexReaderPool, place: &Place, count: usize) {
    let answer = pool.read_unless_far(&place.data(), &mut |_| {
        if count > 1 {
            fill(pool, place, count - 1);
        }
        Ok(())
    });
    assert!(answer.unwrap().is_some());
}

/// Number of open files of this process that were the index in `data`, and are deleted by now.
#[cfg(target_os = "linux")]
fn open_deleted(data: &std::path::Path) -> usize {
    let index = data.join(INDEX_DATABASE);
    let opened = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = opened.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let deleted = paths
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| path.starts_with(&*index.to_string_lossy()) && path.ends_with(" (deleted)"));
    deleted.count()
}

#[cfg(target_os = "linux")]
#[test]
fn no_reader_of_a_deleted_index_is_kept() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    contents(&place.data());
    let pool = IndexReaderPool::default();
    fill(&pool, &place, 4);

    std::fs::remove_file(place.data().join(INDEX_DATABASE)).unwrap();
    assert_ne!(open_deleted(&place.data()), 0);
    assert_eq!(answer(&pool, &place), None);
    assert_eq!(open_deleted(&place.data()), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_whose_index_is_deleted_during_a_query_is_not_kept() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    contents(&place.data());
    let pool = IndexReaderPool::default();
    let answer = pool.read_unless_far(&place.data(), &mut |_| {
        std::fs::remove_file(place.data().join(INDEX_DATABASE)).unwrap();
        Ok(())
    });
    assert_eq!(answer.unwrap(), Some(()));
    assert_eq!(open_deleted(&place.data()), 0);
}

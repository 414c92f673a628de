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

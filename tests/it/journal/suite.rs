//! Tests that hold for every journal. The macro `journal_suite` defines a module of these tests for
//! each implementation. The type `Place` of an implementation opens a journal with `open` and
//! `open_with`, reads it with `reader` and `records`, and copies it with `copy`.

macro_rules! journal_suite {
    ($implementation:ident: $place:ty) => {
        mod $implementation {
            use organism::ids::{Digest, Position, ThreadId};
            use organism::journal::checkpoint::CheckpointFile;
            use organism::journal::{Error, Journal as _};

            use crate::journal::script::{Script, decisions, research, thread};

            type Place = $place;

            #[test]
            fn records_come_out_as_they_went_in_with_their_payloads() {
                let mut records = research(&mut Script::default(), "sess-abcdefgh");
                let place = Place::with(&mut records);
                let read: Vec<_> = place.records().into_iter().map(|s| s.record).collect();
                assert_eq!(read, records);
                assert!(read.iter().flat_map(|r| r.payloads()).all(|p| !p.bytes.is_empty()));
            }

            #[test]
            fn positions_are_dense_and_every_tree_is_chained_on_its_own() {
                let mut script = Script::default();
                let one = research(&mut script, "sess-aaaaaaaa");
                let two = research(&mut script, "sess-bbbbbbbb");
                let mut mixed: Vec<_> =
                    one.into_iter().zip(two).flat_map(|(a, b)| [a, b]).collect();
                let place = Place::with(&mut mixed);
                let sealed = place.records();
                for (at, record) in sealed.iter().enumerate() {
                    assert_eq!(record.record.position, Position(at as u64 + 1));
                    let before = if at < 2 { None } else { Some(&sealed[at - 2]) };
                    assert_eq!(
                        record.record.previous,
                        before.map_or(Position(0), |b| b.record.position)
                    );
                    assert_eq!(
                        record.record.previous_hash,
                        before.map_or(Digest::ZERO, |b| b.hash)
                    );
                }
            }

            #[test]
            fn reopening_continues_the_chain_and_raises_the_epoch() {
                let place = Place::new();
                let mut records = research(&mut Script::default(), "sess-abcdefgh");
                for (at, record) in records.chunks_mut(1).enumerate() {
                    let mut seen = 0;
                    let mut journal = place
                        .open_with(&mut |_| {
                            seen += 1;
                            Ok(())
                        })
                        .unwrap();
                    assert_eq!((journal.epoch() as usize, seen), (at + 1, at));
                    assert_eq!(journal.next(), Position(at as u64 + 1));
                    journal.append(record).unwrap();
                }
                let read: Vec<_> = place.records().into_iter().map(|s| s.record).collect();
                assert_eq!(read, records);
            }

            #[test]
            fn a_tree_is_read_by_walking_back_from_its_head() {
                let mut script = Script::default();
                let mut records: Vec<_> = (0..20)
                    .flat_map(|n| research(&mut script, &format!("sess-tree{n:04}")))
                    .collect();
                let place = Place::with(&mut records);
                let reader = place.reader();
                for n in 0..20 {
                    let root = thread(&format!("sess-tree{n:04}"));
                    let tree = reader.tree(&root, None).unwrap();
                    let expected: Vec<_> =
                        records.iter().filter(|r| r.tree == root).cloned().collect();
                    let read: Vec<_> = tree.into_iter().map(|s| s.record).collect();
                    assert_eq!(read, expected);
                }
                let up_to = reader.tree(&thread("sess-tree0001"), Some(Position(10))).unwrap();
                assert_eq!(up_to.last().unwrap().record.position, Position(10));
                assert!(reader.tree(&thread("sess-unknown1"), None).unwrap().is_empty());
            }

            #[test]
            fn a_position_the_pump_counted_wrongly_is_refused_and_nothing_is_appended() {
                let place = Place::new();
                let mut journal = place.open().unwrap();
                let mut records = research(&mut Script::default(), "sess-abcdefgh");
                records[1].position = Position(9);
                let refused = journal.append(&mut records).unwrap_err();
                assert!(matches!(refused, Error::PositionMismatch { expected: Position(2), .. }));
                records[1].position = Position(0);
                journal.append(&mut records).unwrap();
                assert_eq!(place.records().len(), records.len());
            }

            #[test]
            fn a_blob_comes_back_by_its_digest_and_others_do_not() {
                let place = Place::new();
                let mut journal = place.open().unwrap();
                let digest = journal.put_blob(b"a schema").unwrap();
                assert_eq!(digest, journal.put_blob(b"a schema").unwrap());
                assert_eq!(place.reader().blob(digest).unwrap().unwrap(), b"a schema");
                assert_eq!(place.reader().blob(Digest::of(b"other")).unwrap(), None);
                assert_eq!(place.reader().blobs().unwrap(), [digest]);
            }

            #[test]
            fn readers_see_whole_commits_while_a_pump_writes() {
                let place = Place::new();
                let mut journal = place.open().unwrap();
                let mut script = Script::default();
                for n in 1..=50u64 {
                    let mut group = vec![script.boot(1), script.boot(1)];
                    journal.append(&mut group).unwrap();
                    let reader = place.reader();
                    assert_eq!(reader.last().unwrap(), Position(2 * n));
                    assert_eq!(reader.head(&ThreadId::organism()).unwrap(), Some(Position(2 * n)));
                    assert_eq!(reader.trees().unwrap()[0].records, 2 * n);
                }
            }

            #[test]
            fn a_second_pump_is_refused_at_once_with_the_holders_name() {
                let place = Place::new();
                let first = place.open().unwrap();
                let begun = std::time::Instant::now();
                let refused = place.open().unwrap_err();
                // The reader does not wait for the holder to end; the limit has a margin for a busy
                // machine.
                assert!(begun.elapsed() < 10 * organism::limits::LOCK_TIMEOUT);
                let holder = format!("process {} on ", std::process::id());
                assert!(refused.to_string().contains(&holder), "{refused}");
                drop(first);
                place.open().unwrap();
            }

            #[test]
            fn checkpoints_are_taken_by_count_and_by_time_and_signed() {
                let place = Place::new();
                let mut journal = place.open().unwrap();
                let mut script = Script::default();
                let mut group: Vec<_> = (0..500).map(|_| script.boot(1)).collect();
                journal.append(&mut group).unwrap();
                let now = group[499].time;
                let later = now.plus(organism::limits::CHECKPOINT_INTERVAL);
                assert!(journal.checkpoint_if_due(later).unwrap());
                assert!(!journal.checkpoint_if_due(later).unwrap());
                journal.append(&mut [script.boot(1)]).unwrap();
                assert!(!journal.checkpoint_if_due(now).unwrap());
                journal.close(later).unwrap();
                let checkpoints = place.reader().checkpoints().unwrap();
                let counts: Vec<_> = checkpoints.iter().map(|c| c.count).collect();
                assert_eq!(counts, [500, 501]);
                assert!(checkpoints.iter().all(|c| c.is_genuine()));
                let id = place.reader().about().unwrap().journal;
                let outside = CheckpointFile::new(&place.state(), id).read().unwrap();
                assert_eq!(outside, checkpoints);
                let mut forged = checkpoints[0].clone();
                forged.count += 1;
                assert!(!forged.is_genuine());
            }

            #[test]
            fn each_decision_of_an_operator_is_signed_at_once() {
                for decision in decisions() {
                    let place = Place::new();
                    let mut journal = place.open().unwrap();
                    let mut script = Script::default();
                    journal.append(&mut [script.boot(1), script.boot(1)]).unwrap();
                    assert!(place.reader().checkpoints().unwrap().is_empty(), "too early to sign");
                    let decided = script.step(&ThreadId::organism(), decision.clone()).end();
                    journal.append(&mut [script.boot(1), decided]).unwrap();
                    let signed = place.reader().checkpoints().unwrap();
                    let at: Vec<_> = signed.iter().map(|line| line.position).collect();
                    assert_eq!(at, [Position(4)], "{decision:?}");
                    let id = place.reader().about().unwrap().journal;
                    let outside = CheckpointFile::new(&place.state(), id).read().unwrap();
                    assert_eq!(outside, signed, "{decision:?}");
                    journal.append(&mut [script.boot(1)]).unwrap();
                    assert_eq!(place.reader().checkpoints().unwrap().len(), 1, "{decision:?}");
                }
            }

            #[test]
            fn records_appended_before_a_crash_exist_after_it() {
                let place = Place::new();
                let mut journal = place.open().unwrap();
                let mut records = research(&mut Script::default(), "sess-abcdefgh");
                journal.append(&mut records).unwrap();
                let after = place.copy();
                let mut script = Script::default();
                let mut journal = after.open().unwrap();
                assert_eq!(journal.next(), Position(records.len() as u64 + 1));
                journal.append(&mut [script.boot(2)]).unwrap();
                assert_eq!(after.records().len(), records.len() + 1);
            }
        }
    };
}

journal_suite!(sqlite: crate::journal::Place);
journal_suite!(jetstream: crate::journal::streamed::Place);

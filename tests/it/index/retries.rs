//! The list of requests that can be retried, in pages.

use organism::audit::{RetryMessage, retry_message_page, retry_messages};
use organism::envelope::RefusalRule;
use organism::ids::{Digest, MessageId};
use organism::index;
use organism::index::{IndexReader, RetryCursor, RetryFilter};
use organism::thread::{Input, Verdict};
use uuid::Uuid;

use super::rows::held_call;
use super::with_index;
use crate::journal::Place;
use crate::journal::script::{Script, name, thread};

/// A journal in which failed calls and refused submissions alternate.
fn failed_and_refused() -> Place {
    let mut script = Script::default();
    let mut records = vec![script.boot(1)];
    for number in 0..4_u8 {
        records.extend(held_call(&mut script, &format!("sess-failed00{number}")).0);
        let refused = Input::Submitted {
            id: MessageId(Uuid::from_u128(number.into())),
            client: name("operator"),
            thread: None,
            suggested: None,
            key: None,
            verdict: Verdict::Refused(Digest::of(b"<no/>")),
        };
        let mut step = script.step(&thread(&format!("sess-failed00{number}")), refused);
        step.refuse("operator", RefusalRule::NotInVocabulary, "it is unknown", "<no/>");
        records.push(step.end());
    }
    Place::with(&mut records)
}

fn paged(reader: &IndexReader, rows: usize) -> Result<Vec<RetryMessage>, index::Error> {
    let mut all = Vec::new();
    let mut next = Some(RetryCursor::first(reader));
    while let Some(cursor) = next {
        let page = retry_message_page(reader, &RetryFilter::default(), cursor, rows)?;
        assert!(page.messages.len() <= rows);
        all.extend(page.messages);
        next = page.next;
    }
    Ok(all)
}

#[test]
fn pages_of_any_length_have_the_same_failures_and_refusals() {
    let place = failed_and_refused();
    with_index(&place.data(), &mut |reader| {
        let all = retry_messages(reader, &RetryFilter::default(), 100)?;
        assert_eq!(all.len(), 8);
        assert!(all.is_sorted_by_key(|message| message.record));
        for rows in [1, 2, 3, 7, 8, 9] {
            assert_eq!(paged(reader, rows)?, all, "{rows} rows");
        }
        Ok(())
    })
    .unwrap();
}

//! `organism tail --live`: shows the progress of model calls between the recorded messages.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};

use tokio::time::timeout;

use crate::bus::live::LiveEvent;
use crate::limits;
use crate::service::signing::OperatorSigner;
use crate::service::{self, LiveRequest, ServiceClient};

use super::super::render::{self, LivePrinter, put, put_visible_json};
use super::super::{organism_reach, output, startup};
use super::JournalTail;

/// Shows new records and live events until the organism ends or the watched thread is over.
pub fn follow(
    tail: &mut JournalTail,
    client: &ServiceClient,
    request: LiveRequest,
    signer: Option<&OperatorSigner>,
) -> anyhow::Result<()> {
    let is_json = tail.args.json;
    let columns = tail.output.columns;
    let printer = RefCell::new(LivePrinter::new(tail.output));
    let tail = RefCell::new(tail);
    let mut shown = Ok(());

    let records = organism_reach::following(client, |partition, position| {
        let mut tail = tail.borrow_mut();
        if tail.has_shown(partition, position) {
            return ControlFlow::Continue(());
        }
        shown = put(&printer.borrow_mut().end_line()).and_then(|()| tail.show_new());
        if tail.is_over() { ControlFlow::Break(()) } else { ended_by(&shown) }
    });

    let mut printed = Ok(());
    let mut was_opened = false;
    let printed_events = Cell::new(0u64);
    let mut print = |event: LiveEvent| {
        printed_events.set(printed_events.get() + 1);
        note_opened(&event);
        let event = note_gap(event, &mut was_opened);
        printer.borrow_mut().fit(render::terminal_columns().unwrap_or(columns).min(columns));
        printed = if is_json {
            put_visible_json(&event)
        } else {
            put(&printer.borrow_mut().event(&event))
        };
        ended_by(&printed)
    };

    let events = async {
        loop {
            let mut has_responded = false;
            let mut has_left = false;
            let followed = client.follow_live(request.clone(), signer, |event| {
                has_responded = true;
                let next = print(event);
                has_left = next.is_break();
                next
            });
            match followed.await {
                // The organism has ended. A new one may already run, so subscribe again.
                Ok(()) if has_responded && !has_left => {}
                Ok(()) | Err(service::Error::Lost | service::Error::Stopped) => return Ok(()),
                Err(error) => return Err(anyhow::Error::from(error)),
            }
        }
    };

    let records = until_ended(records);
    let followed = startup::runtime()?.block_on(async {
        let mut events = pin!(events);
        tokio::select! {
            // Both futures end with the organism. Polling the records first shows the last ones.
            biased;
            () = records => drain(events.as_mut(), &printed_events).await,
            ended = events.as_mut() => ended,
        }
    });

    put(&printer.borrow_mut().end_line())?;
    shown?;
    printed?;
    followed
}

/// Waits until the organism has ended. `records` follows the journals, and succeeds when the
/// organism has ended. If `records` fails, for example for lack of a permission, prints a note and
/// never returns, so that the command can still show live events.
async fn until_ended(records: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = records.await {
        // An operator on another host has no journal to read, and still watches the live events.
        note!("messages are not followed: {error:#}");
        std::future::pending::<()>().await;
    }
}

/// Shows the live events that still arrive after the last record. Returns when no event has arrived
/// for `limits::LIVE_DRAIN_TIMEOUT`.
async fn drain(
    mut events: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
    printed: &Cell<u64>,
) -> anyhow::Result<()> {
    loop {
        let before = printed.get();
        match timeout(limits::LIVE_DRAIN_TIMEOUT, events.as_mut()).await {
            Ok(ended) => return ended,
            Err(_) if printed.get() == before => return Ok(()),
            Err(_) => {}
        }
    }
}

fn ended_by(shown: &anyhow::Result<()>) -> ControlFlow<()> {
    if shown.is_err() || output::is_closed() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// Marks gaps between live events. Each new subscription to the live channel begins with an
/// `Opened` event, and events between two subscriptions are missing. Therefore, returns `Lost` in
/// place of each `Opened` event except the first. Returns all other events unchanged.
fn note_gap(event: LiveEvent, was_opened: &mut bool) -> LiveEvent {
    match event {
        LiveEvent::Opened { .. } if std::mem::replace(was_opened, true) => {
            LiveEvent::Lost { events: 0 }
        }
        event => event,
    }
}

fn note_opened(event: &LiveEvent) {
    match event {
        LiveEvent::Opened { text: true } => {
            note!("live: text is shown as models write it, before any check");
        }
        LiveEvent::Opened { text: false } => {
            note!("live: states only; the text of models is for operators");
        }
        _ => {}
    }
}

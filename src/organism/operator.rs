//! Makes and records operators' actions on the organism as a whole. Each action states which
//! operator acts.

use std::path::Path;

use uuid::Uuid;

use super::repair::{AcceptedDamage, RepairedJournal};
use super::repair_stream::damage_actions;
use super::{Error, JournalOpening, core, open_journal_as, open_stream};
use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::{ListenerName, Position};
use crate::journal::sqlite::{self, FoundJournal};
use crate::journal::{HashedRecord, Journal, OperatorAcceptance};
use crate::pump::ResidentCore;
use crate::pump::core::Event;
use crate::thread::{ActionDetail, OperatorAction, OperatorIdentity, OperatorVerb};

/// Makes an operator action. The operator of the action is the user who runs this process.
pub fn action(
    verb: OperatorVerb,
    note: &str,
    details: Vec<ActionDetail>,
) -> Result<OperatorAction, Error> {
    let by = ListenerName::operator();
    let who = this_user();
    Ok(OperatorAction { verb, by, who, note: note.to_owned(), details })
}

/// Returns the identity of the user who runs this process.
pub fn this_user() -> OperatorIdentity {
    identity(rustix::process::geteuid().as_raw())
}

/// Returns the identity of the user `uid` on this host.
pub fn identity(uid: u32) -> OperatorIdentity {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    OperatorIdentity {
        uid: Some(uid),
        login: login(Path::new("/etc/passwd"), uid),
        host: Some(host),
    }
}

/// Returns the login name of the user `uid`, read from a file in the format of `/etc/passwd`.
/// Returns `None` if the file does not contain the user.
fn login(passwd: &Path, uid: u32) -> Option<String> {
    let text = std::fs::read_to_string(passwd).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let login = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        (found == uid).then(|| login.to_owned())
    })
}

/// Records an action while no pump runs. Takes the journal's lock, opens the journal, appends one
/// record, and closes the journal with a checkpoint. `accepts` is the id of a journal on JetStream
/// that the action adopts, although another machine or project began it; `None` in all other cases.
pub fn record_offline(
    config: &Config,
    accepts: Option<Uuid>,
    mut action: OperatorAction,
    accepted: AcceptedDamage,
) -> Result<(), Error> {
    let mut core = core(config);
    let mut actions = Vec::new();
    let mut journal: Box<dyn Journal> = match (&config.storage, action.verb) {
        (StorageConfig::Embedded, OperatorVerb::Adopt) => {
            let journal = adopted(config, &mut core, &mut action, accepted)?;
            let repaired = RepairedJournal {
                found: journal.found().clone(),
                redacted: Vec::new(),
                copies: Vec::new(),
            };
            actions = repaired.actions(accepted, &action.note, journal.public_key())?;
            Box::new(journal)
        }
        (StorageConfig::JetStream { .. }, OperatorVerb::Adopt) => {
            let accept = OperatorAcceptance { without_mac: true, ..accepted.acceptance() };
            let journal = open_stream(config, JournalOpening::offline(accepts, accept), &mut core)?;
            let damage = journal.damage();
            actions = damage_actions(damage, accepted, &action.note, journal.public_key())?;
            if let Some(last) = damage.without_mac {
                let detail = ActionDetail::new(OperatorAction::WITHOUT_MAC_UP_TO, last);
                action.details.push(detail);
            }
            Box::new(journal)
        }
        _ => {
            let opening = JournalOpening::offline(accepts, OperatorAcceptance::default());
            open_journal_as(config, opening, &mut core)?
        }
    };

    actions.push(action);
    append_actions(&mut core, &mut *journal, &config.texts(), actions)?;
    Ok(journal.close(Time::now())?)
}

/// Opens a journal that an operator adopts. If the journal has records but no MACs, accepts its
/// present records without MACs, and adds the position of the last of these records to `action`.
fn adopted(
    config: &Config,
    core: &mut ResidentCore,
    action: &mut OperatorAction,
    accepted: AcceptedDamage,
) -> Result<sqlite::SqliteJournal, Error> {
    let accept = OperatorAcceptance { without_mac: true, ..accepted.acceptance() };
    let journal = open_accepting(config, core, accept)?;
    let FoundJournal { without_mac, last, .. } = journal.found();
    if *without_mac && *last > Position(0) {
        action.details.push(ActionDetail::new(OperatorAction::WITHOUT_MAC_UP_TO, last));
    }

    Ok(journal)
}

/// Opens a damaged embedded journal for an operator who accepts the damage. A start refuses such a
/// journal.
pub(super) fn open_accepting(
    config: &Config,
    core: &mut ResidentCore,
    accept: OperatorAcceptance,
) -> Result<sqlite::SqliteJournal, Error> {
    let mut replay = |sealed: HashedRecord| core.replay(&sealed.record);

    let Config { data, state, checkpoints, .. } = config;
    let copies = checkpoints.as_deref();
    let opened = sqlite::SqliteJournal::open_with_copies(data, state, copies, accept, &mut replay);
    Ok(opened.map_err(|error| error.in_journal(config.journal_name()))?)
}

/// Appends actions to a journal in one commit. No pump may use the journal, and `core` must have
/// the state after all records of the journal. A new journal first gets its boot record, which
/// lists the digests of `texts`. These are the texts of the config, and are stored as blobs.
pub fn append_actions(
    core: &mut ResidentCore,
    journal: &mut dyn Journal,
    texts: &[&str],
    actions: Vec<OperatorAction>,
) -> Result<(), Error> {
    let mut events = Vec::new();
    // Ids are derived from the journal's id, and only the first boot records that id.
    if core.state().journal.is_nil() {
        let id = journal.id();
        let epoch = journal.epoch();
        let detail = super::VERSION.to_owned();
        let blobs = texts.iter().map(|text| journal.put_blob(text.as_bytes()));
        let blobs = blobs.collect::<Result<Vec<_>, _>>()?;
        events.push(Event::Boot { journal: id, epoch, detail, blobs });
    }

    let ticket = Uuid::nil();
    events.extend(actions.into_iter().map(|action| Event::Operator { ticket, action }));

    let mut records = Vec::new();

    for event in events {
        // The time of records never goes back, whatever the system's clock shows.
        let now = Time::now().max(core.state().time);
        let position = Position(journal.next().0 + records.len() as u64);
        records.extend(core.step(position, now, event)?.into_record());
    }

    journal.append(&mut records)?;
    Ok(())
}

//! The pump's side of an agent that runs elsewhere: what its host asks while it has a delivery is
//! answered here, in the host's own inbox.
//!
//! A question names no thread: whoever has the token of an open attempt gets that attempt's own,
//! up to the position it was handed over at, and nobody else gets anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OnceCell, Semaphore};

use crate::bus::Delivery;
use crate::envelope::{NotReserved, Reservation};
use crate::ids::{Digest, Position, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{HeaderMap, HeaderName, Message};

use super::answers::Said;
use super::asks::{self, Ask, Refused};
use super::desk::Standing;
use super::host::Shared;
use super::request::{self, Written};
use super::tokens::Token;
use super::wire::{Letter, Unsent};
use super::words;

/// What one agent remembers, for whoever takes its turns elsewhere.
pub trait Memory: Send + Sync + 'static {
    /// The thread up to there, in the agent's own words for it. May wait for a disk.
    ///
    /// # Errors
    /// What is wrong with the journal.
    fn thread(&self, thread: &ThreadId, up_to: Position) -> Result<Vec<u8>, String>;
}

/// What makes a listener on NATS an agent there.
#[derive(Clone)]
pub struct Far {
    pub memory: Arc<dyn Memory>,
    /// Of the config whose prompts are to be sent.
    pub config: Digest,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an agent of the config {}", self.config)
    }
}

/// The agent's attempts, and what was said of each so far.
pub(super) struct Agency {
    far: Far,
    open: Mutex<HashMap<Token, Open>>,
    places: Arc<Semaphore>,
}

/// One attempt.
#[derive(Default)]
struct Open {
    about: Option<(ThreadId, Position)>,
    /// The thread, once somebody asked for it.
    told: Arc<OnceCell<Arc<Vec<u8>>>>,
    /// What came of its answer,
    answer: Vec<u8>,
    /// and when that was.
    came: Option<Instant>,
}

/// What is told.
#[derive(Default)]
struct Told {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Agency {
    pub fn new(far: Far) -> Self {
        let places = Arc::new(Semaphore::new(limits::NATS_ASKS_MAX));
        Self { far, open: Mutex::default(), places }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Token, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of an attempt before it is published; how it is written. What is in its call its
    /// host reads in the thread.
    pub fn take(&self, token: Token, delivery: &Delivery) -> Written {
        let about = Some((delivery.thread.clone(), delivery.position));
        self.open().insert(token, Open { about, ..Open::default() });
        let mut headers = request::headers(delivery);
        let mut put = |name, value: String| headers.insert(HeaderName::from_static(name), value);
        put(words::POSITION, delivery.position.to_string());
        put(words::CONFIG, self.far.config.to_string());
        Written { headers, body: Vec::new() }
    }

    /// Forgets attempts of which nothing can be said any more; of one that was given up, the thread
    /// that it is not told again, and parts of an answer whose rest does not come.
    pub fn keep(&self, standing: impl Fn(Token) -> Standing) {
        self.open().retain(|token, open| {
            let standing = standing(*token);
            if standing == Standing::GivenUp {
                open.told = Arc::default();
                if open.came.is_none_or(|at| at.elapsed() >= limits::NATS_ASK_PATIENCE) {
                    open.answer = Vec::new();
                }
            }
            standing != Standing::Unknown
        });
    }
}

impl Agency {
    /// Takes a part of an answer; all of it, where that was the last.
    fn part(
        &self,
        token: Token,
        offset: usize,
        size: usize,
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, Refused> {
        if size > limits::NATS_ANSWER_BYTES_MAX {
            let most = limits::NATS_ANSWER_BYTES_MAX;
            let detail = format!("an answer of {size} bytes, of which {most} are taken");
            return Err(Refused::new(Refused::TOO_LARGE, detail));
        }
        let mut open = self.open();
        let open = open.entry(token).or_default();
        open.came = Some(Instant::now());
        let kept = &mut open.answer;
        if offset == 0 {
            kept.clear();
        }
        if offset != kept.len() || offset + part.len() > size {
            let detail = format!("the part from {} on comes next", kept.len());
            return Err(Refused::new(Refused::OUT_OF_ORDER, detail));
        }
        kept.extend_from_slice(part);
        Ok((kept.len() == size).then(|| std::mem::take(kept)))
    }
}

impl Shared {
    /// Answers what came with the token of an attempt, or with none that anybody has.
    pub(super) fn asked(self: &Arc<Self>, agency: &Arc<Agency>, at: Option<Token>, m: &Message) {
        let Some(asked) = asks::read(m) else { return };
        let prefix = format!("{}.", self.subjects().inbox());
        let inbox = m.reply.as_ref().map(|inbox| inbox.as_str()).unwrap_or_default();
        let fits = inbox.starts_with(&prefix) && !inbox.contains(['*', '>', ' ']);
        if !fits && !mutant("tell-anybody") {
            let agent = &self.options.listener;
            tracing::warn!(%agent, "a question is refused that wants its answer at `{inbox}`");
            return;
        }
        let inbox = inbox.to_owned();
        let Some(token) = at.filter(|token| self.knows(*token)) else {
            self.stray(m);
            return self.tell(inbox, Err(Refused::gone()));
        };
        self.is_heard(token);
        match asked {
            Ok(Ask::Answer { offset, size }) => {
                match agency.part(token, offset, size, &m.payload) {
                    Ok(Some(whole)) => self.has_answered(token, whole, inbox, m.clone()),
                    told => self.tell(inbox, told.map(|_| Told::default())),
                }
            }
            Ok(Ask::Thread { offset }) => {
                let (shared, agency, own) =
                    (Arc::clone(self), Arc::clone(agency), Arc::clone(agency));
                let page = async move { shared.page(&agency, token, offset).await };
                self.aside(&own, inbox, page);
            }
            Ok(Ask::Reserve(asked)) => {
                let shared = Arc::clone(self);
                self.aside(agency, inbox, async move { shared.set_aside(token, asked).await });
            }
            Err(refused) => self.tell(inbox, Err(refused)),
        }
    }

    /// What takes a while holds up nobody, and there are only so many of it.
    fn aside(
        self: &Arc<Self>,
        agency: &Agency,
        inbox: String,
        told: impl Future<Output = Result<Told, Refused>> + Send + 'static,
    ) {
        let Ok(place) = Arc::clone(&agency.places).try_acquire_owned() else {
            let busy = Refused::new(Refused::LATER, "too many questions at once");
            return self.tell(inbox, Err(busy));
        };
        let shared = Arc::clone(self);
        self.runtime().spawn(async move {
            let told = told.await;
            shared.tell(inbox, told);
            drop(place);
        });
    }

    fn tell(&self, inbox: String, told: Result<Told, Refused>) {
        let refusal = |refused: Refused| Told { headers: refused.headers(), body: Vec::new() };
        let Told { headers, body } = told.unwrap_or_else(refusal);
        let unsent = |unsent: Unsent| {
            tracing::warn!("the host of an agent was not answered: {}", unsent.detail);
        };
        let (subject, unsent) = (inbox, Box::new(unsent));
        self.wire.put(Letter { subject, reply: None, headers, body, unsent });
        self.wire.send();
    }

    /// A part of the thread that an open attempt is in.
    async fn page(&self, agency: &Agency, token: Token, offset: usize) -> Result<Told, Refused> {
        let whole = self.thread(agency, token).await?;
        // It may have ended while the journal was read.
        self.is_open(token)?;
        let room = self.client().max_payload().saturating_sub(limits::ENVELOPE_BYTES_MAX);
        let part = asks::part(&whole, offset, limits::NATS_PAGE_BYTES.min(room));
        let beyond = || Refused::new(Refused::UNREADABLE, format!("it has {} bytes", whole.len()));
        let mut headers = HeaderMap::new();
        headers.insert(words::SIZE, whole.len().to_string());
        Ok(Told { headers, body: part.ok_or_else(beyond)?.to_vec() })
    }

    fn is_open(&self, token: Token) -> Result<(), Refused> {
        let is_open = self.holder(token).is_some() || mutant("remember-for-strangers");
        if is_open { Ok(()) } else { Err(Refused::gone()) }
    }

    async fn thread(&self, agency: &Agency, token: Token) -> Result<Arc<Vec<u8>>, Refused> {
        self.is_open(token)?;
        let known = agency.open().get(&token).map(|open| (open.about.clone(), open.told.clone()));
        let ((thread, up_to), told) = match known {
            Some((Some(about), told)) => (about, told),
            _ => return Err(Refused::gone()),
        };
        // However often it is asked for meanwhile, it is read once.
        let read = async || {
            let memory = Arc::clone(&agency.far.memory);
            let read = tokio::task::spawn_blocking(move || memory.thread(&thread, up_to)).await;
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            let failed = |detail| Refused::new(Refused::LATER, format!("the thread: {detail}"));
            read.map(Arc::new).map_err(failed)
        };
        told.get_or_try_init(read).await.cloned()
    }

    async fn set_aside(&self, token: Token, asked: Reservation) -> Result<Told, Refused> {
        let (call, attempt) = self.holder(token).ok_or_else(Refused::gone)?;
        match self.sink().reserve(call, attempt, asked).await {
            Ok(Ok(())) => Ok(Told::default()),
            Ok(Err(NotReserved::Spent(detail))) => Err(Refused::new(Refused::SPENT, detail)),
            Ok(Err(NotReserved::Exhausted(detail))) => {
                Err(Refused::new(Refused::EXHAUSTED, detail))
            }
            Err(_) => Err(Refused::new(Refused::LATER, "the pump has stopped")),
        }
    }

    /// With the last part of its answer an attempt has ended. What takes long to read keeps no
    /// listener from being heard.
    fn has_answered(self: &Arc<Self>, token: Token, whole: Vec<u8>, inbox: String, last: Message) {
        let shared = Arc::clone(self);
        let (is_short, end) = (whole.len() <= limits::NATS_JUDGED_AT_ONCE_BYTES, move || {
            shared.said(token, Said::Answer(asks::answer(&whole)), &last);
            shared.tell(inbox, Ok(Told::default()));
        });
        if is_short { end() } else { drop(self.runtime().spawn_blocking(end)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Memory for Nothing {
        fn thread(&self, _: &ThreadId, _: Position) -> Result<Vec<u8>, String> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn of_a_turn_that_was_given_up_only_an_answer_is_kept_that_still_comes() {
        let config = Digest::of(b"config");
        let agency = Agency::new(Far { memory: Arc::new(Nothing), config });
        for token in [1, 2, 3] {
            assert!(agency.part(token, 0, 9, b"part").is_ok_and(|whole| whole.is_none()));
            let mut open = agency.open();
            open.get_mut(&token).unwrap().told.set(Arc::new(vec![0; 9])).unwrap();
        }
        let long_ago = Instant::now().checked_sub(limits::NATS_ASK_PATIENCE);
        agency.open().get_mut(&2).unwrap().came = long_ago;
        agency.keep(|token| match token {
            3 => Standing::Out,
            _ => Standing::GivenUp,
        });
        let kept = |token| {
            let open = agency.open();
            let open = open.get(&token).unwrap();
            (open.told.initialized(), open.answer.len())
        };
        assert_eq!([kept(1), kept(2), kept(3)], [(false, 4), (false, 0), (true, 4)]);
        agency.keep(|_| Standing::Unknown);
        assert!(agency.open().is_empty());
    }
}

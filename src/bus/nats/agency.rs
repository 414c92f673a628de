//! The pump's side of an agent that runs elsewhere: what its host asks while it has a delivery is
//! answered here, in the host's own inbox.
//!
//! A question names no thread: whoever has the token of an open attempt gets that attempt's own,
//! up to the position it was handed over at, and nobody else gets anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::bus::Delivery;
use crate::envelope::Reservation;
use crate::ids::{Digest, Position, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::nats::{HeaderMap, HeaderName, Message};

use super::answers::Said;
use super::asks::{self, Ask, Refused};
use super::desk::Token;
use super::host::Shared;
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
    told: Option<Arc<Vec<u8>>>,
    /// What came of its answer.
    answer: Vec<u8>,
}

/// What is told, with headers of its own.
type Told = Result<(HeaderMap, Vec<u8>), Refused>;

impl Agency {
    pub fn new(far: Far) -> Self {
        let places = Arc::new(Semaphore::new(limits::NATS_ASKS_MAX));
        Self { far, open: Mutex::default(), places }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Token, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is published.
    pub fn take(&self, token: Token, delivery: &Delivery) {
        let about = Some((delivery.thread.clone(), delivery.position));
        self.open().insert(token, Open { about, ..Open::default() });
    }

    /// Forgets attempts of which nothing can be said any more.
    pub fn keep(&self, is_known: impl Fn(Token) -> bool) {
        self.open().retain(|token, _| is_known(*token));
    }

    /// A delivery as a message. What is in the call its host reads in the thread.
    pub fn write(&self, delivery: &Delivery, headers: &mut HeaderMap) {
        let mut put = |name, value: String| headers.insert(HeaderName::from_static(name), value);
        put(words::POSITION, delivery.position.to_string());
        put(words::CONFIG, self.far.config.to_string());
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
                let told = self.answered(agency, token, offset, size, m);
                self.tell(inbox, told.map(|()| (HeaderMap::new(), Vec::new())));
            }
            Ok(Ask::Thread { offset }) => {
                let (shared, agency) = (Arc::clone(self), Arc::clone(agency));
                self.aside(inbox, async move { shared.page(&agency, token, offset).await });
            }
            Ok(Ask::Reserve(asked)) => {
                let shared = Arc::clone(self);
                self.aside(inbox, async move { shared.set_aside(token, asked).await });
            }
            Err(refused) => self.tell(inbox, Err(refused)),
        }
    }

    /// What takes a while holds up nobody, and there are only so many of it.
    fn aside(self: &Arc<Self>, inbox: String, told: impl Future<Output = Told> + Send + 'static) {
        let Some(agency) = self.agency() else { return };
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

    fn tell(&self, inbox: String, told: Told) {
        let (headers, body) = told.unwrap_or_else(|refused| (refused.headers(), Vec::new()));
        let client = self.client().clone();
        self.runtime().spawn(async move {
            // Who hears nothing asks again.
            client.publish_with_headers(inbox, headers, body.into()).await.ok();
        });
    }

    /// A part of the thread that an open attempt is in.
    async fn page(&self, agency: &Agency, token: Token, offset: usize) -> Told {
        let whole = self.thread(agency, token).await?;
        // It may have ended while the journal was read.
        self.is_open(token)?;
        let room = self.client().max_payload().saturating_sub(limits::ENVELOPE_BYTES_MAX);
        let part = asks::part(&whole, offset, limits::NATS_PAGE_BYTES.min(room));
        let beyond = || Refused::new(Refused::UNREADABLE, format!("it has {} bytes", whole.len()));
        let mut headers = HeaderMap::new();
        headers.insert(words::SIZE, whole.len().to_string());
        Ok((headers, part.ok_or_else(beyond)?.to_vec()))
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
        if let Some(told) = told {
            return Ok(told);
        }
        let memory = Arc::clone(&agency.far.memory);
        let read = tokio::task::spawn_blocking(move || memory.thread(&thread, up_to)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        let failed = |detail| Refused::new(Refused::LATER, format!("the thread: {detail}"));
        let whole = Arc::new(read.map_err(failed)?);
        if let Some(open) = agency.open().get_mut(&token) {
            open.told = Some(Arc::clone(&whole));
        }
        Ok(whole)
    }

    async fn set_aside(&self, token: Token, asked: Reservation) -> Told {
        let (call, attempt) = self.holder(token).ok_or_else(Refused::gone)?;
        match self.sink().reserve(call, attempt, asked).await {
            Ok(Ok(())) => Ok((HeaderMap::new(), Vec::new())),
            Ok(Err(detail)) => Err(Refused::new(Refused::SPENT, detail)),
            Err(_) => Err(Refused::new(Refused::LATER, "the pump has stopped")),
        }
    }

    /// Takes a part of an answer; with the last one the attempt has ended.
    fn answered(
        &self,
        agency: &Agency,
        token: Token,
        offset: usize,
        size: usize,
        message: &Message,
    ) -> Result<(), Refused> {
        let part = &message.payload;
        if size > limits::NATS_ANSWER_BYTES_MAX {
            let most = limits::NATS_ANSWER_BYTES_MAX;
            let detail = format!("an answer of {size} bytes, of which {most} are taken");
            return Err(Refused::new(Refused::TOO_LARGE, detail));
        }
        let whole = {
            let mut open = agency.open();
            let kept = &mut open.entry(token).or_default().answer;
            if offset == 0 {
                kept.clear();
            }
            if offset != kept.len() || offset + part.len() > size {
                let detail = format!("the part from {} on comes next", kept.len());
                return Err(Refused::new(Refused::OUT_OF_ORDER, detail));
            }
            kept.extend_from_slice(part);
            if kept.len() < size {
                return Ok(());
            }
            std::mem::take(kept)
        };
        self.said(token, Said::Answer(asks::answer(&whole)), message);
        Ok(())
    }
}

//! Memories that agents keep between turns. A memory contains the rendered messages of one thread,
//! and tables that were made from the records of the thread.

use std::sync::{Arc, Mutex};

use crate::agent::protocol::render::RenderedConversation;
use crate::agent::{MemoryScope, RendererVersion};
use crate::bounded_cache::BoundedCache;
use crate::ids::{Digest, ListenerName, Position, ThreadId};
use crate::journal;
use crate::limits;
use crate::locks::locked;
use crate::memory::ThreadHistory;
use crate::thread::{ForkSource, Record};

use super::ThreadFold;
use super::source_turns::SourceTurns;

/// One agent's memory of one thread, up to a position.
pub struct ThreadMemory {
    pub(in crate::agent) fold: ThreadFold,
    pub(in crate::agent) rendered: RenderedConversation,
    /// Digest by which the pump recognizes the records that it has sent to this machine. `None` if
    /// the pump has sent no records.
    mark: Option<Digest>,
}

impl ThreadMemory {
    fn new(
        agent: ListenerName,
        thread: ThreadId,
        scope: MemoryScope,
        version: RendererVersion,
    ) -> Self {
        let fold = ThreadFold::new(agent, thread, scope, version);
        Self { fold, rendered: RenderedConversation::default(), mark: None }
    }

    /// Returns the position up to which this memory contains the thread.
    pub const fn up_to(&self) -> Position {
        self.fold.up_to()
    }

    /// Returns the position up to which the pump has sent the thread to this machine, and the
    /// digest by which the pump recognizes the sent records. Returns `None` if the pump has sent no
    /// records.
    pub fn transferred(&self) -> Option<(Position, Digest)> {
        self.mark.map(|mark| (self.up_to(), mark))
    }

    /// Adds records that a pump on another machine has sent: those after the position `after`, up
    /// to the position `up_to`. If `after` is 0, first discards the content of this memory.
    ///
    /// Returns false and changes nothing if `after` is neither 0 nor the last position of this
    /// memory.
    pub fn extend_transferred(
        &mut self,
        records: &[Record],
        after: Position,
        (up_to, mark): (Position, Digest),
    ) -> bool {
        if after == Position(0) {
            let (agent, thread) = self.fold.key();
            *self = Self::new(agent, thread, self.fold.scope(), self.fold.version());
        }
        if after != self.up_to() {
            return false;
        }
        self.extend(records, up_to);
        self.mark = Some(mark);
        true
    }

    /// Adds records of the thread, up to the position `up_to`. Skips the records up to
    /// [`ThreadMemory::up_to`], which the memory already contains.
    pub fn extend(&mut self, records: &[Record], up_to: Position) {
        self.fold.extend(records, up_to);
    }
}

/// Memories of all agents of a process. Between turns, only the memories that were used most
/// recently are kept.
pub struct AgentMemories {
    history: Arc<dyn ThreadHistory>,
    /// The journal from which the source threads of forks are read.
    source_history: Arc<dyn ThreadHistory>,
    /// Memories that are kept between turns. Each memory is boxed, so that the empty entries of the
    /// cache's hash table take little space. Up to half of all entries are empty.
    kept: Mutex<BoundedCache<(ListenerName, ThreadId), Box<ThreadMemory>>>,
    /// Turns that an agent took in the source of a fork. The key is the agent and its thread in the
    /// fork.
    sources: Mutex<BoundedCache<(ListenerName, ThreadId), Arc<SourceTurns>>>,
}

impl AgentMemories {
    pub fn new(history: Arc<dyn ThreadHistory>) -> Self {
        let kept = BoundedCache::new(limits::MEMORY_THREADS_MAX, limits::MEMORY_THREADS_BYTES_MAX);
        let sources =
            BoundedCache::new(limits::MEMORY_THREADS_MAX, limits::MEMORY_THREADS_BYTES_MAX);
        let source_history = Arc::clone(&history);
        Self { history, source_history, kept: Mutex::new(kept), sources: Mutex::new(sources) }
    }

    /// Sets the journal from which the source threads of forks are read. Needed if a fork's source
    /// is in another journal than the fork.
    #[must_use]
    pub fn with_source_history(self, source_history: Arc<dyn ThreadHistory>) -> Self {
        Self { source_history, ..self }
    }

    /// Removes the kept memory of `agent` for `thread`, and returns it. Returns an empty memory if:
    /// - no memory is kept,
    /// - the kept memory contains records after `up_to`, or
    /// - the kept memory was made for another memory scope than `scope`, or for another renderer
    ///   version than `version`.
    pub fn take(
        &self,
        agent: &ListenerName,
        thread: &ThreadId,
        (scope, version): (MemoryScope, RendererVersion),
        up_to: Position,
    ) -> ThreadMemory {
        let kept = locked(&self.kept).take(&(agent.clone(), thread.clone()));
        let usable = kept.filter(|memory| {
            let fold = &memory.fold;
            fold.up_to() <= up_to && fold.scope() == scope && fold.version() == version
        });
        let usable = usable.map(|memory| *memory);
        usable.unwrap_or_else(|| ThreadMemory::new(agent.clone(), thread.clone(), scope, version))
    }

    /// Extends `memory` with the records of its thread up to the position `up_to`. Does not read
    /// the records that `memory` already contains. May wait for the disk.
    pub fn extend(&self, memory: &mut ThreadMemory, up_to: Position) -> Result<(), journal::Error> {
        if memory.up_to() < up_to {
            let records = self.history.records(memory.fold.thread(), memory.up_to(), up_to)?;
            memory.extend(&records, up_to);
        }
        Ok(())
    }

    /// Keeps a memory until the next turn of its agent in its thread.
    pub fn keep(&self, memory: ThreadMemory) {
        let bytes = memory.fold.bytes() + memory.rendered.bytes();
        let key = memory.fold.key();
        // Keeps the thread with the latest turn whatever its size. Otherwise, each of its turns
        // would read the thread again from the beginning.
        locked(&self.kept).put(key, Box::new(memory), bytes.min(limits::MEMORY_THREADS_BYTES_MAX));
    }

    /// Returns the turns that `agent` took in the source of a fork, after the point at which the
    /// fork begins. `thread` is a thread of the fork; the turns come from the corresponding thread
    /// of the source. May wait for the disk.
    pub fn source_turns(
        &self,
        agent: &ListenerName,
        thread: &ThreadId,
        source: &ForkSource,
    ) -> Result<Arc<SourceTurns>, journal::Error> {
        let Some(original) = thread.under(&source.thread) else { return Ok(Arc::default()) };
        let key = (agent.clone(), thread.clone());
        let kept = locked(&self.sources).take(&key);
        let mut turns = kept.unwrap_or_else(|| Arc::new(SourceTurns::after(source.history)));
        let new = self.source_history.records_since(&original, turns.up_to())?;
        if !new.is_empty() {
            Arc::make_mut(&mut turns).extend(&new, agent, &original);
        }

        let bytes = turns.bytes().min(limits::MEMORY_THREADS_BYTES_MAX);
        locked(&self.sources).put(key, Arc::clone(&turns), bytes);
        Ok(turns)
    }
}

//! Follows the growth of the journals, once for all live pages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::super::access::BrowserId;
use super::super::present_facts::is_stopped;
use super::content_version::ContentVersion;
use crate::audit::unfollowed_partitions;
use crate::blocking_work;
use crate::ids::{Position, ThreadId};
use crate::journal::partitions_in;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::locks::locked;
use crate::organism::project;
use crate::owned_tasks::AbortOnDrop;
use crate::service::handshake::Handshake;
use crate::service::{ServiceClient, ServiceTransport, SocketTransport};

/// The content that a live page follows: one tree, or `None` for the list of all trees.
pub(super) type FollowedTree = Option<ThreadId>;

/// State of the content of a live page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContentState {
    /// Whether the organism runs and thus reports the growth of its journals itself.
    pub is_running: bool,
    /// While the organism runs, the partitions whose copies it does not keep up to date.
    pub unfollowed: BTreeSet<u32>,
    /// Version of the content, which changes whenever the content grows.
    pub version: ContentVersion,
}

/// The followed trees, each with the channel to its live pages.
type FollowedTrees = HashMap<FollowedTree, watch::Sender<ContentState>>;

/// Follows the journals in a directory while there are live pages.
pub(in super::super) struct GrowthFollower {
    data: PathBuf,
    /// Limits the number of live pages.
    permits: Arc<Semaphore>,
    /// Limits the number of live pages of each browser that has at least one live page.
    ///
    /// Lock: held only for a lookup, never across an await.
    browsers: Mutex<HashMap<BrowserId, Arc<Semaphore>>>,
    shared: Arc<FollowerShared>,
    _task: AbortOnDrop,
}

/// State that the pages and the follower share.
struct FollowerShared {
    /// Lock: held only to read or update the followed trees, never across an await.
    trees: Mutex<FollowedTrees>,
    /// Notifies the follower that a live page was opened.
    opened: Notify,
}

/// The registration of one live page with the follower.
pub(super) struct FollowedPage {
    pub state: watch::Receiver<ContentState>,
    _permits: [OwnedSemaphorePermit; 2],
}

/// The limit that one more live page would exceed.
#[derive(Debug, thiserror::Error)]
pub(super) enum TooManyLivePages {
    #[error("{} pages of this browser are live already", limits::WEB_LIVE_PAGES_OF_BROWSER_MAX)]
    OfBrowser,
    #[error("{} pages of this view are live already", limits::WEB_LIVE_PAGES_MAX)]
    OfView,
}

impl GrowthFollower {
    pub fn start(data: PathBuf) -> Self {
        let permits = Arc::new(Semaphore::new(limits::WEB_LIVE_PAGES_MAX));
        let shared = Arc::new(FollowerShared { trees: Mutex::default(), opened: Notify::new() });
        let task = tokio::spawn(follow(data.clone(), Arc::clone(&shared)));
        let browsers = Mutex::default();
        Self { data, permits, browsers, shared, _task: AbortOnDrop::new(task) }
    }

    /// Registers a live page of `browser`. `is_running` states whether an organism was running at
    /// the last check. The next check replaces this value.
    pub(super) fn add(
        &self,
        followed: FollowedTree,
        is_running: bool,
        browser: BrowserId,
    ) -> Result<FollowedPage, TooManyLivePages> {
        let of_browser = self.permit_of(browser).ok_or(TooManyLivePages::OfBrowser)?;
        let of_view = Arc::clone(&self.permits).try_acquire_owned();
        let of_view = of_view.map_err(|_| TooManyLivePages::OfView)?;

        let state = self.shared.subscribe(followed, is_running, shown_gaps(&self.data));
        self.shared.opened.notify_one();
        Ok(FollowedPage { state, _permits: [of_browser, of_view] })
    }

    /// Returns a permit for a live page of `browser`; `None` if the browser already has the maximum
    /// number of live pages. Also removes the browsers without live pages.
    fn permit_of(&self, browser: BrowserId) -> Option<OwnedSemaphorePermit> {
        let most = limits::WEB_LIVE_PAGES_OF_BROWSER_MAX;
        let mut browsers = locked(&self.browsers);
        browsers.retain(|_, permits| permits.available_permits() < most);
        let permits = browsers.entry(browser).or_insert_with(|| Arc::new(Semaphore::new(most)));
        Arc::clone(permits).try_acquire_owned().ok()
    }

    /// Creates a client for the organism of the followed journals. For each request, the client
    /// looks for the organism that runs at that time.
    pub(super) fn client(&self) -> ServiceClient {
        client(&self.data)
    }
}

impl std::fmt::Debug for GrowthFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowthFollower").field("data", &self.data).finish_non_exhaustive()
    }
}

impl FollowerShared {
    fn with_trees<T>(&self, take: impl FnOnce(&mut FollowedTrees) -> T) -> T {
        take(&mut locked(&self.trees))
    }

    /// Returns the receiver for the state of a tree. If no page follows the tree yet, the state
    /// begins with the values `is_running` and `unfollowed`, and an empty version. The state keeps
    /// these values until the follower publishes a new state of the tree.
    fn subscribe(
        &self,
        followed: FollowedTree,
        is_running: bool,
        unfollowed: BTreeSet<u32>,
    ) -> watch::Receiver<ContentState> {
        self.with_trees(|trees| {
            let version = ContentVersion::default();
            let begin = ContentState { is_running, unfollowed, version };
            let sender = trees.entry(followed).or_insert_with(|| watch::Sender::new(begin));
            sender.subscribe()
        })
    }

    /// Removes the followed trees that no open page follows. Returns whether a page is still open.
    fn remove_closed_pages(&self) -> bool {
        self.with_trees(|trees| {
            trees.retain(|_, sender| sender.receiver_count() > 0);
            !trees.is_empty()
        })
    }

    fn trees(&self) -> Vec<FollowedTree> {
        self.with_trees(|trees| trees.keys().cloned().collect())
    }

    /// Sends the new state of each followed tree to the live pages that follow the tree.
    fn publish(
        &self,
        versions: &HashMap<FollowedTree, ContentVersion>,
        is_running: bool,
        unfollowed: &BTreeSet<u32>,
    ) {
        self.with_trees(|trees| {
            for (followed, sender) in trees {
                sender.send_if_modified(|state| {
                    let version = versions.get(followed).unwrap_or(&state.version).clone();
                    let unfollowed = unfollowed.clone();
                    let newest = ContentState { is_running, unfollowed, version };
                    let is_new = *state != newest;
                    *state = newest;
                    is_new
                });
            }
        });
    }
}

fn client(data: &Path) -> ServiceClient {
    let project = project::stored(data).ok().flatten();
    let handshake = project.as_deref().map(Handshake::of_path).unwrap_or_default();
    ServiceClient::new(data, ServiceTransport::Socket(SocketTransport::new(data, handshake)))
}

/// Waits for growth of the journals while there are live pages. Reports growth to these pages at
/// most once in each interval.
async fn follow(data: PathBuf, shared: Arc<FollowerShared>) {
    let mut known: BTreeMap<u32, Position> = BTreeMap::new();
    let mut shown = shown_gaps(&data);
    loop {
        while !shared.remove_closed_pages() {
            shared.opened.notified().await;
        }

        let opened = shared.opened.notified();
        let client = client(&data);
        let grown = client.follow(|partition, position| {
            let is_new = known.insert(partition, position) != Some(position);
            if is_new { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // A new page ends the wait like a growth, because it has no version yet.
        let followed = tokio::select! {
            followed = grown => followed,
            () = opened => Ok(()),
            () = change_of_gaps(&data, &shown) => Ok(()),
        };
        let is_running = !is_stopped(&data);
        let unfollowed = shown_gaps(&data);

        if followed.is_err() || !is_running {
            // The first response after an interruption then ends the next wait, even if nothing was
            // recorded meanwhile. So the pages get the new state.
            known.clear();
        }
        if unfollowed != shown {
            shown = unfollowed;
            // The pages load themselves, and must then be drawn with the result of a newer check.
            tokio::time::sleep(limits::WEB_LOOK_INTERVAL).await;
        }

        let versions = versions_of(&data, shared.trees()).await;
        shared.publish(&versions, is_running, &shown);
        let pause = if is_running { limits::WEB_LIVE_INTERVAL } else { limits::WEB_LIVE_RETRY };
        tokio::time::sleep(pause).await;
    }
}

/// Returns the partitions whose copies in `data` the running organism does not keep up to date.
/// Empty without an organism, because the pages then state that none runs.
fn shown_gaps(data: &Path) -> BTreeSet<u32> {
    let unfollowed = unfollowed_partitions(data);
    if unfollowed.is_empty() || !is_stopped(data) { unfollowed } else { BTreeSet::new() }
}

/// Waits until [`shown_gaps`] differ from `shown`. The organism itself does not report this,
/// because a frozen one reports nothing.
async fn change_of_gaps(data: &Path, shown: &BTreeSet<u32>) {
    while shown_gaps(data) == *shown {
        tokio::time::sleep(limits::WEB_LOOK_INTERVAL).await;
    }
}

/// Returns the present version of each followed tree that can be read.
async fn versions_of(
    data: &Path,
    trees: Vec<FollowedTree>,
) -> HashMap<FollowedTree, ContentVersion> {
    let data = data.to_owned();
    let look = blocking_work::run(move || {
        let journals = partitions_in(&data).into_iter();
        let open = |(partition, journal): (Option<u32>, PathBuf)| {
            Some((partition.unwrap_or_default(), JournalReader::open(&journal).ok()?))
        };
        let readers: Vec<_> = journals.filter_map(open).collect();
        let version = |tree: &FollowedTree| -> ContentVersion {
            let head = |reader: &JournalReader| match tree {
                None => reader.last().unwrap_or_default(),
                Some(thread) => shown_head(reader, thread),
            };
            readers.iter().map(|(partition, reader)| (*partition, head(reader))).collect()
        };
        trees.into_iter().map(|tree| (tree.clone(), version(&tree))).collect()
    });
    look.await.unwrap_or_default()
}

/// Returns the position, in one journal, of the last record that the page of `thread` shows. The
/// page shows the records of the thread's tree and of [`ThreadId::organism`], the reserved thread
/// for records that concern the whole organism.
fn shown_head(reader: &JournalReader, thread: &ThreadId) -> Position {
    let trees = [thread.root(), ThreadId::organism()];
    let heads = trees.iter().map(|tree| reader.head(tree).ok().flatten());
    heads.flatten().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use crate::journal::sqlite::DirectoryLock;
    use crate::service::{ServiceResponse, bind_socket, encoding, socket_path};

    /// Waits for the next request on `socket`, and sends `responses`. Returns the connection, which
    /// stays open.
    async fn answer(socket: &UnixListener, responses: &[ServiceResponse]) -> BufReader<UnixStream> {
        let mut connection = BufReader::new(socket.accept().await.unwrap().0);
        let mut request = String::new();
        connection.read_line(&mut request).await.unwrap();
        assert!(request.contains("follow"), "{request}");
        for response in responses {
            let mut line = encoding::encode(response).unwrap();
            line.push(b'\n');
            connection.write_all(&line).await.unwrap();
        }
        connection
    }

    /// A running organism with too many connections refuses a wait. The pages still show that it
    /// runs. They get the state of the next wait although nothing was recorded meanwhile.
    #[tokio::test]
    async fn a_wait_that_fails_is_no_end_of_the_organism() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_owned();
        let _lock = DirectoryLock::take(&data).unwrap();
        let socket = bind_socket(&socket_path(&data)).unwrap();
        let shared = Arc::new(FollowerShared { trees: Mutex::default(), opened: Notify::new() });
        let mut state = shared.subscribe(None, true, BTreeSet::new());
        let _task = AbortOnDrop::new(tokio::spawn(follow(data, shared)));

        let recorded = [ServiceResponse::Recorded { partition: 0, position: Position(5) }];
        let refusal = ServiceResponse::Failed("too many connections".to_owned());
        let refused = [refusal, ServiceResponse::End];
        let serve = async {
            let mut open = Vec::new();
            for responses in [&recorded[..], &refused, &recorded, &recorded] {
                open.push(answer(&socket, responses).await);
            }
            open.len()
        };
        let answered = async {
            tokio::select! {
                _ = state.wait_for(|state| !state.is_running) => 0,
                answered = serve => answered,
            }
        };
        let answered = tokio::time::timeout(Duration::from_secs(60), answered).await;
        assert_eq!(answered, Ok(4));
    }
}

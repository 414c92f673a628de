//! Maps each partition to its owner, as far as this process knows the owners, and routes requests
//! to the owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

use super::PartitionStatus;
use crate::ids::Position;
use crate::journal::jetstream::{MemberId, this_process};
use crate::limits;
use crate::locks::locked;
use crate::organism::access::DeniedCaller;
use crate::organism::health::PumpHealth;
use crate::organism::pump_rpc::PumpRpc;
use crate::organism::reload::SharedRules;
use crate::pump::driver::WriteObstacle;
use crate::service::{
    Error, PartitionUnavailable, PumpService, ResponseSender, ResultsRequest, ServiceRequest,
    ServiceResponse, SubmitRequest, follow, response_queue,
};

/// The processes that run the pumps of the partitions, as far as this process knows them.
pub struct PartitionMap {
    /// For each partition, the process that runs the partition's pump. Every request reads this
    /// list, and the workers change it. No lock of this map is held across an await.
    places: Mutex<Vec<PartitionLocation>>,
    /// For each partition, the last position of its journal that can be read on this machine. The
    /// list is empty after the last worker has ended.
    recorded: Mutex<Vec<watch::Sender<Position>>>,
    takeover_plan: Mutex<TakeoverPlan>,
    /// Wakes the tasks that wait until a partition has a new owner.
    arrivals: Notify,
    /// Health of each pump that runs in this process, by partition.
    watched: Mutex<BTreeMap<u32, PumpHealth>>,
    /// Partitions whose pump runs here but receives no requests over NATS, because the servers deny
    /// the pump's subscription. The value is the error of the servers.
    requests_denied: Mutex<BTreeMap<u32, String>>,
    /// Live processes of this organism. For each process, the value is its name and the time of its
    /// last announcement.
    members: Mutex<BTreeMap<MemberId, (String, Instant)>>,
    begun: Instant,
    /// Whether a worker has found that the journal has this process's number of partitions.
    is_partition_count_confirmed: AtomicBool,
    pub(super) rpc: PumpRpc,
    /// Access rules in force, for requests from the control socket and over NATS.
    pub(in crate::organism) rules: Arc<SharedRules>,
}

/// The partitions that this process could take over, and the partitions that it is taking over now.
#[derive(Default)]
struct TakeoverPlan {
    /// Partitions that this process could take over at any time.
    ready: BTreeSet<u32>,
    /// Partitions whose lease this process holds, and whose pump is starting.
    arriving: BTreeSet<u32>,
}

/// The state that a process announces: the partitions whose pumps it runs, the partitions that it
/// could take over, and whether it is taking over or handing over a partition.
pub(super) type MemberState = (BTreeSet<u32>, BTreeSet<u32>, bool);

#[derive(Clone)]
pub(super) enum PartitionLocation {
    Foreign,
    Starting,
    Elsewhere(String),
    Waiting { obstacle: WriteObstacle, why: String },
    Here(Box<PumpService>),
    Leaving,
    Broken(String),
}

impl PartitionLocation {
    fn status(&self) -> PartitionStatus {
        match self {
            Self::Foreign => PartitionStatus::Foreign,
            Self::Starting => PartitionStatus::Starting,
            Self::Elsewhere(holder) => PartitionStatus::Elsewhere(holder.clone()),
            Self::Waiting { obstacle, why } => {
                PartitionStatus::Waiting { obstacle: *obstacle, why: why.clone() }
            }
            Self::Here(_) => PartitionStatus::Here,
            Self::Leaving => PartitionStatus::Leaving,
            Self::Broken(why) => PartitionStatus::Broken(why.clone()),
        }
    }
}

impl PartitionMap {
    pub(super) fn new(
        partitions: u32,
        ours: &[u32],
        rpc: PumpRpc,
        rules: Arc<SharedRules>,
    ) -> Self {
        let place = |partition| {
            if ours.contains(&partition) {
                PartitionLocation::Starting
            } else {
                PartitionLocation::Foreign
            }
        };

        let places = Mutex::new((0..partitions).map(place).collect());
        let recorded = Mutex::new((0..partitions).map(|_| watch::Sender::default()).collect());
        Self {
            places,
            recorded,
            takeover_plan: Mutex::default(),
            arrivals: Notify::new(),
            watched: Mutex::default(),
            requests_denied: Mutex::default(),
            members: Mutex::default(),
            begun: Instant::now(),
            is_partition_count_confirmed: AtomicBool::new(false),
            rpc,
            rules,
        }
    }

    /// Notes that the journal has the number of partitions with which this process was started.
    pub(super) fn confirm_partition_count(&self) {
        self.is_partition_count_confirmed.store(true, Ordering::Relaxed);
    }

    /// Returns `refusal`, the response that refuses a request because of its handshake. Exception:
    /// the sender and this process have different numbers of partitions, and no worker has
    /// confirmed the number of this process yet. This process may then have the wrong number. So
    /// the function responds that the partition is unavailable and no pump has carried out the
    /// request.
    pub(in crate::organism) fn refusal_or_unavailable(
        &self,
        refusal: ServiceResponse,
    ) -> ServiceResponse {
        let is_confirmed = self.is_partition_count_confirmed.load(Ordering::Relaxed);
        if is_confirmed || !matches!(refusal, ServiceResponse::OtherPartitions { .. }) {
            return refusal;
        }

        let why = "it was started with another number of partitions than this config, and has not \
                   compared its number with the journal yet";
        ServiceResponse::Unavailable(PartitionUnavailable::lasting(why))
    }

    pub(in crate::organism) fn statuses(&self) -> Vec<PartitionStatus> {
        locked(&self.places).iter().map(PartitionLocation::status).collect()
    }

    /// Locks the table of the pumps that run in this process.
    pub(in crate::organism) fn watched(&self) -> MutexGuard<'_, BTreeMap<u32, PumpHealth>> {
        locked(&self.watched)
    }

    /// Sets the reason why the pump of a partition receives no requests over NATS: the servers deny
    /// its subscription. `None` removes the reason.
    pub(in crate::organism) fn set_requests_denied(&self, partition: u32, why: Option<String>) {
        let mut denied = locked(&self.requests_denied);
        match why {
            Some(why) => denied.insert(partition, why),
            None => denied.remove(&partition),
        };
    }

    /// Returns the reason why the pump of a partition receives no requests over NATS: the servers
    /// deny its subscription. Returns `None` if the servers do not deny the subscription.
    pub(in crate::organism) fn requests_denied(&self, partition: u32) -> Option<String> {
        let denied = locked(&self.requests_denied);
        denied.get(&partition).cloned()
    }

    /// Returns the live processes, including this process. Returns no processes shortly after the
    /// start, because a list from this time would lack processes that have not announced themselves
    /// yet.
    pub(super) fn members(&self) -> BTreeMap<MemberId, String> {
        if self.begun.elapsed() < 2 * limits::MEMBER_ANNOUNCE_INTERVAL {
            return BTreeMap::new();
        }

        let known = locked(&self.members);
        let is_fresh = |at: &Instant| at.elapsed() < limits::MEMBER_FRESH;
        let fresh = known.iter().filter(|(_, (_, at))| is_fresh(at));
        let mut members: BTreeMap<_, _> =
            fresh.map(|(id, (holder, _))| (*id, holder.clone())).collect();
        members.insert(MemberId::here(), this_process());
        members
    }

    pub(super) fn set_members(&self, members: BTreeMap<MemberId, (String, Instant)>) {
        *locked(&self.members) = members;
    }

    pub(super) fn set_ready(&self, partition: u32, ready: bool) {
        if ready {
            locked(&self.takeover_plan).ready.insert(partition)
        } else {
            locked(&self.takeover_plan).ready.remove(&partition)
        };
    }

    pub(super) fn arrives(&self, partition: u32) {
        let mut poise = locked(&self.takeover_plan);
        poise.ready.remove(&partition);
        poise.arriving.insert(partition);
    }

    /// Returns the state of this process, for its announcements.
    pub(super) fn member_state(&self) -> MemberState {
        let places = locked(&self.places);
        let poise = locked(&self.takeover_plan);
        let of = |fits: fn(&PartitionLocation) -> bool| {
            let fitting = (0..).zip(places.iter()).filter(move |(_, place)| fits(place));
            fitting.map(|(partition, _)| partition)
        };

        let leaving = of(|place| matches!(place, PartitionLocation::Leaving)).next().is_some();
        let here =
            of(|place| matches!(place, PartitionLocation::Here(_) | PartitionLocation::Leaving));
        let has = here.chain(poise.arriving.iter().copied()).collect();
        (has, poise.ready.clone(), leaving || !poise.arriving.is_empty())
    }

    pub(super) fn put(&self, partition: u32, place: PartitionLocation) {
        let mut plan = locked(&self.takeover_plan);
        plan.arriving.remove(&partition);
        // A partition whose worker has ended cannot be taken over by this process.
        if matches!(place, PartitionLocation::Broken(_)) {
            plan.ready.remove(&partition);
        }
        drop(plan);

        if let Some(found) = locked(&self.places).get_mut(partition as usize) {
            *found = place;
        }
        self.arrivals.notify_waiters();
    }

    /// Records that the partition's journal can now be read on this machine up to `position`.
    pub(super) fn set_recorded(&self, partition: u32, position: Position) {
        if let Some(recorded) = locked(&self.recorded).get(partition as usize) {
            recorded.send_replace(position);
        }
    }

    /// Ends all tasks that follow the journals, because no more records will become readable on
    /// this machine.
    pub(super) fn end_followers(&self) {
        locked(&self.recorded).clear();
    }

    /// Whether all tasks that follow the journals must end. If so, no more records will become
    /// readable on this machine.
    pub(super) fn has_ended(&self) -> bool {
        locked(&self.recorded).is_empty()
    }

    fn place(&self, partition: u32) -> PartitionLocation {
        locked(&self.places).get(partition as usize).cloned().unwrap_or(PartitionLocation::Foreign)
    }

    /// Whether the worker of this partition has not set the location of the partition yet.
    pub(super) fn is_starting(&self, partition: u32) -> bool {
        matches!(self.place(partition), PartitionLocation::Starting)
    }

    /// Records a refusal in the journal of one of the pumps that run in this process. If no pump
    /// runs here, logs the refusal as a warning.
    pub(in crate::organism) async fn record_denied(&self, denied: &DeniedCaller) {
        let pump = locked(&self.places).iter().find_map(|place| match place {
            PartitionLocation::Here(pump) => Some(PumpService::clone(pump)),
            _ => None,
        });
        match pump {
            Some(pump) => pump.record_refusal(&denied.sender, &denied.refusal).await,
            None => tracing::warn!(
                "refused a request; no pump runs here that could record the refusal: {}",
                denied.refusal
            ),
        }
    }

    /// Counts a submission that an entry point of this process has refused as `busy`. The pump of
    /// the submission's partition counts it. If that pump does not run here, any other pump of this
    /// process counts it. If no pump runs here, logs the refusal as a warning.
    pub(in crate::organism) fn count_busy(&self, submission: &SubmitRequest) {
        let places = locked(&self.places);
        let partitions = u32::try_from(places.len()).unwrap_or(1);
        let own = places.get(submission.partition(partitions) as usize);
        let pump = own.into_iter().chain(places.iter()).find_map(|place| match place {
            PartitionLocation::Here(pump) => Some(pump),
            _ => None,
        });
        match pump {
            Some(pump) => pump.count_busy(&submission.client),
            None => tracing::warn!(
                "refused a submission of {} as busy; no pump runs here that could count it",
                submission.client
            ),
        }
    }

    /// Carries out a request in this process, or passes the request on to the pump of the partition
    /// that the request concerns.
    pub(in crate::organism) async fn respond(
        &self,
        mut request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        if let ServiceRequest::Submit(submission) = &mut request {
            // A client program may omit the thread and the key. They are assigned here, so that
            // each attempt reaches the same partition.
            submission.assign_thread_and_key();
        }

        let partitions = self.count();
        let partition = match &request {
            ServiceRequest::Submit(submission) => submission.partition(partitions),
            ServiceRequest::Cancel { thread, .. }
            | ServiceRequest::AwaitResults(ResultsRequest { thread, .. }) => {
                thread.partition(partitions)
            }
            ServiceRequest::HeldThread { partition, .. }
            | ServiceRequest::HeldCalls { partition, .. }
            | ServiceRequest::JournalId { partition } => *partition,
            ServiceRequest::Pause(request) => request.partition,
            ServiceRequest::Retry(request) => request.partition,
            ServiceRequest::Fork(request) => request.source.partition(partitions),
            ServiceRequest::FollowJournals => return self.follow(responses).await,
            ServiceRequest::FollowLive(request) => {
                return self.follow_live(request, responses).await;
            }
            ServiceRequest::Status | ServiceRequest::Reload { .. } => return Ok(()),
            ServiceRequest::Decide(decision) => decision.partition.unwrap_or_default(),
        };

        self.pass_on(partition, request, responses).await
    }

    fn count(&self) -> u32 {
        u32::try_from(locked(&self.places).len()).unwrap_or(1)
    }

    /// Sends a request to the pump of a partition, in this process or elsewhere.
    pub(super) async fn pass_on(
        &self,
        partition: u32,
        request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let obstacle = match self.place(partition) {
            PartitionLocation::Here(_) | PartitionLocation::Leaving => {
                return self.respond_here(partition, request, responses).await;
            }
            PartitionLocation::Foreign
            | PartitionLocation::Starting
            | PartitionLocation::Elsewhere(_) => None,
            // A partition that has no pump here may have one in another process.
            PartitionLocation::Waiting { why, .. } | PartitionLocation::Broken(why) => Some(why),
        };
        tokio::select! {
            sent = self.send_elsewhere(partition, &request, responses, obstacle) => sent,
            () = self.arrival_of(partition) => {
                // The pump has moved to this process, so the process that had it does not respond
                // any more.
                let here = PartitionUnavailable::passing("it is here now").unsure();
                responses.send(ServiceResponse::Unavailable(here)).await.ok();
                Ok(())
            }
        }
    }

    /// Sends a request over NATS to the pump of a partition. `obstacle` is the reason why this
    /// process cannot run this pump; `None` if no such reason is known. The requester gets the
    /// reason if no other process runs the pump either.
    async fn send_elsewhere(
        &self,
        partition: u32,
        request: &ServiceRequest,
        responses: &ResponseSender,
        obstacle: Option<String>,
    ) -> Result<(), Error> {
        let Some(obstacle) = obstacle else {
            return self.rpc.transport.send(partition, request, responses).await;
        };

        let (sender, mut received) = response_queue();
        let sending = async move { self.rpc.transport.send(partition, request, &sender).await };
        // Both futures own their end of the queue, so that each of them ends with the other.
        let forwarding = async move {
            while let Some(response) = received.recv().await {
                let response = with_obstacle(response, &obstacle);
                if responses.send(response).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(sending, forwarding).0
    }

    /// Reports to the requester, for each partition, the last position of the journal that can be
    /// read on this machine. Reports each new position until the last worker has ended.
    async fn follow(&self, responses: &ResponseSender) -> Result<(), Error> {
        let journals: Vec<_> =
            locked(&self.recorded).iter().map(watch::Sender::subscribe).collect();
        if journals.is_empty() {
            return Err(Error::Stopped);
        }

        let journals = (0..).zip(journals);
        let following =
            journals.map(|(partition, recorded)| follow(partition, recorded, responses));
        join_all(following).await.into_iter().collect()
    }

    async fn arrival_of(&self, partition: u32) {
        loop {
            let arrived = self.arrivals.notified();
            if matches!(self.place(partition), PartitionLocation::Here(_)) {
                return;
            }
            arrived.await;
        }
    }

    /// Carries out a request on a partition whose pump runs in this process.
    pub(in crate::organism) async fn respond_here(
        &self,
        partition: u32,
        request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let why = match self.place(partition) {
            PartitionLocation::Here(pump) => {
                match self.respond_with(&pump, partition, request, responses).await {
                    Err(Error::Stopped) => PartitionUnavailable::passing("its pump ended").unsure(),
                    other => return other,
                }
            }
            _ => PartitionUnavailable::passing("it is changing hands"),
        };

        // The send fails if the client has left.
        responses.send(ServiceResponse::Unavailable(why)).await.ok();
        Ok(())
    }

    async fn respond_with(
        &self,
        pump: &PumpService,
        partition: u32,
        mut request: ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        if let ServiceRequest::Submit(submission) = &mut request {
            pump.replace_taken_thread(submission, partition, self.count()).await;
        }
        pump.respond(request, responses).await
    }
}

/// Adds `obstacle` to a response which states that no pump of the partition is expected to respond.
/// Returns any other response unchanged. `obstacle` is the reason why this process cannot run the
/// pump.
fn with_obstacle(response: ServiceResponse, obstacle: &str) -> ServiceResponse {
    match response {
        ServiceResponse::Unavailable(why) if !why.soon && !why.failed => {
            let detail = format!("{}; this host cannot run one: {obstacle}", why.detail);
            ServiceResponse::Unavailable(PartitionUnavailable { detail, ..why })
        }
        response => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requester_learns_why_this_process_runs_no_pump() {
        let detail_of = |why: PartitionUnavailable| match with_obstacle(
            ServiceResponse::Unavailable(why),
            "the disk is full",
        ) {
            ServiceResponse::Unavailable(why) => why.detail,
            other => panic!("{other:?}"),
        };
        let lasting = detail_of(PartitionUnavailable::lasting("no pump holds its lease"));
        let expected = "no pump holds its lease; this host cannot run one: the disk is full";
        assert_eq!(lasting, expected);
        assert_eq!(detail_of(PartitionUnavailable::passing("its pump ended")), "its pump ended");
        assert_eq!(detail_of(PartitionUnavailable::failed("it failed")), "it failed");
    }
}

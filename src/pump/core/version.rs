//! Version of the rules by which the pump's core decides. Each boot records it.

/// Changes of the core, one line for each version. Add a line whenever the step decides
/// differently, or the core writes a different text into a payload or a record. Never change or
/// remove a line.
const CHANGES: &[(u32, &str)] = &[
    (1, "a boot records this number"),
    (2, "a serial listener's thread is taken until the handler of a closed call has ended"),
    (3, "an answer that names another delivery is recorded as a stray"),
    (4, "a failed model call gives its cause, and no retry is allowed where none can help"),
    (5, "hand-overs are facts, and a call whose last attempt was lost ends as `unknown-outcome`"),
    (6, "what no listener took is taken back, and time that stood still is recorded"),
    (7, "an unknown element or native call is refused as `unknown-action`"),
    (8, "refusals of a turn name places in the model's own text, and what would be right"),
    (9, "a probe that was out during a standstill is looked at again after it"),
    (10, "failed rounds in a row are paced, and end a call at their limit"),
    (11, "a boot lists the blobs that the organism runs on"),
    (12, "where the config names operators, a decision needs the signature of one of them"),
    (13, "counts and wall time of a tree start again with a recorded renewal"),
    (14, "a decision is recorded by the operator whom its signature proves"),
    (15, "a cancellation of a thread in which nothing is open is refused"),
    (16, "the arrival of an answer is recorded where its deadline has passed since"),
    (17, "the key of another host is trusted by a recorded action"),
    (
        18,
        "held calls are counted for each client and listener, and not among all that is in flight",
    ),
    (19, "refusals as `busy` are one count for each client and ten seconds"),
    (20, "the opener of a `first` group in a spawned thread gets every fault when all legs failed"),
    (21, "the calls of a client's payload to several peers are a group, which the client gathers"),
    (22, "a listener with core words may spawn, and its empty answer waits for what is open"),
    (23, "the close of a call cancels the threads that are bound to it"),
    (24, "a listener may cancel a thread beneath its own"),
    (25, "a bound thread is unknown to senders once its call has closed"),
    (
        26,
        "a goal of a workflow has an answer of its own, and failed rounds of workflows have no limit",
    ),
    (27, "wall time of a tree runs while it waits for anything but people"),
    (28, "a spawned thread may have an allotment of tokens, money and time"),
    (
        29,
        "a spent budget ends the call of a workflow, whose refused rounds are bounded; a thread whose \
         time is over ends as timed out with all beneath it; calls that are being closed are not \
         woken; wall time stands still for calls queued behind people; a late answer to a goal needs \
         a goal; and a clock that is set forward moves the times of trees at rest",
    ),
    (30, "a goal that names its answer is answered by nothing else"),
    (31, "a run of a workflow may have a budget of tokens and money"),
    (32, "a run of a workflow records its definition in a message to itself"),
    (33, "a question of a workflow takes its own answer alone"),
    (34, "the rounds of a workflow have no bound: its run ends by itself"),
    (35, "a call that undoes another has one attempt"),
    (
        36,
        "a schedule has a planned time, its runs are sent by the core, and its events are recorded",
    ),
    (
        37,
        "an agent delegates a goal to the roles that its workflow allows, as often as the goal says",
    ),
    (
        38,
        "open runs of a schedule that left the config count if it comes back; its unsent run, or one \
         that is skipped, ends on record",
    ),
    (39, "a call whose last turn was text without an action ends with a hint to `final_by`"),
    (
        40,
        "the listener of a held call may give a preview, which its approval names; a call whose \
         preview holds no more ends as `stale-preview`",
    ),
    (
        41,
        "a call whose approved preview cannot be compared any more is not delivered, one with a \
         redacted preview is not approved, and uncounted time extends the time for a preview",
    ),
    (42, "operations that NATS servers denied to a listener are recorded"),
    (43, "a client key that is kept for a time is new after it"),
    (44, "a running pump takes another config, and its work in flight keeps the earlier one"),
    (45, "a step of the clock is recorded where client keys are kept for a time"),
    (46, "an operator pauses and resumes threads, listeners or everything"),
    (47, "alerts are recorded"),
    (
        48,
        "an operator forks a thread; calls of the fork get the recorded results of its source, and \
         its timers do not wait",
    ),
    (
        49,
        "what the source of a fork has on record, results and turns, happens in the order of the \
         source",
    ),
    (
        50,
        "the generated label of a subthread depends on the labels above it and their number alone",
    ),
    (51, "a fork begins at a turn, and opens the calls again that were open there"),
    (52, "an operator retries a message as a new message of the same sender"),
    (
        53,
        "a fork of a thread of another journal is a trial: what a person would decide ends at once",
    ),
    (
        54,
        "timers of a fork keep their order whatever their times are, and its threads keep their \
         allotments",
    ),
    (55, "the retry of a refused submission uses the submission's key"),
    (
        56,
        "an operator's message takes the place of the turn at which a fork begins, and the amounts of \
         a fork bound it",
    ),
    (
        57,
        "messages of trees that wait for persons or timers alone are not counted among all that is in \
         flight, and calls with timers are bounded for each client and listener",
    ),
    (
        58,
        "a `stale-preview` after an earlier delivery of its call ends the call as `unknown-outcome`, \
         and a call that was answered before is delivered without its preview; a delivery states \
         which time does not count for the run of a workflow",
    ),
    (
        59,
        "a run of a workflow that ends in its first outcome records its definition before its reply; \
         a reload holds and releases waiting calls as a start does, and drops requests for previews \
         that are no longer declared; a preview in place of an answer ends its call; no result \
         shortens a backoff; the pause that cancels a call is its stated reason; a retry in a renewed \
         tree has new counts; refusals of payloads inside primitives are recorded; nothing of \
         `sess-organism` is cancelled; a turn has one final; each result of a group in another thread \
         names its listener; and the end of a tree's wall time ends its open calls",
    ),
    (
        60,
        "the open runs of a workflow that the config no longer has share the smallest limits of their \
         definitions as their budget, in place of none",
    ),
    (
        61,
        "a key gets its recorded answer although the config now refuses its payload, and does not \
         expire while a call of its tree is open; a forwarded call without a reply fails if one peer \
         failed; a timer further ahead than the limit is refused; `waiting` counts threads and not \
         their calls; a question whose sender's call has closed keeps no run of a schedule open; an \
         answer that cannot be read allows no retry; in a fork, a leg of a `first` group without a \
         recorded result waits while another leg may reply, the threads of the source do not count, \
         and a thread that ended with its call is unknown",
    ),
    (
        62,
        "a run of a workflow that began from this version on does not retry a goal that fails as \
         `stopped`; calls of one outcome do not wait while their listener has free capacity; a call \
         that has failed as often as a changed config permits ends; a call that its listener had \
         before does not end as `undeliverable`, and its approval and refusal name the failures; all \
         payloads that one outcome forwards give their results; the call of an agent to itself is \
         retried, and a delegation is not; the end of a bound thread without a call is recorded",
    ),
    (
        63,
        "no attempt starts in a tree or a thread whose time is over, although the end of its calls \
         waits for answers that have arrived",
    ),
    (
        64,
        "a run of a workflow that began from this version on keeps an item of a list as the selected \
         element, and records so; it searches each of several texts of `has-word` by itself, and \
         repeats a vote without a majority; a signature is judged by the clock of the host if \
         record time is ahead of it; the used-up limits of a fork end no turn whose answer is on record; a \
         question with redacted bytes takes no answer; and the fault of a call with a redacted message names the \
         redaction; and that of a turn that was cut short says so",
    ),
    (
        65,
        "the fault of an expired approval or question states the configured limit, not the \
         difference of record times; and recorded turns and results of a fork wait for its calls that are \
         queued or wait for a retry; the last turn of an agent ends its call if \
         its final is refused; a payload that is refused in a `send-to-thread` is not acknowledged; a \
         `clear-context` counts what an earlier one of the same turn left; and an amount of money for a \
         thread is refused where a model has no price",
    ),
    (
        66,
        "an edited turn of a fork also takes the ends of the threads that still ran beside it, so its \
         agent is not woken before the results of the edit; a timer that fired in the source of a \
         fork fires in the fork in the order of the source; and the refusal of a duration states its \
         units and its least value",
    ),
    (
        67,
        "the refusal of a payload keeps the reason behind a long value, and marks a list of ten expected \
         elements, which may go on; and a decision on a call that does not wait is \
         recorded under the operator whose signature proves it; a retry of a workflow's run that began from \
         this version on applies no policy to failures that the earlier run did not handle, and \
         records so",
    ),
    (
        68,
        "model calls under way count towards the limit of model calls; a call that an operator cancels \
         together with a pause ends as cancelled also if its attempt ends before, unless the attempt \
         has closed it; a listener of another kind does not continue a call of the removed listener \
         whose name it has; texts about a time-out state the time from which the deadline was \
         calculated; a retry of a workflow's run is refused if another retry of the same run comes \
         before it in the thread; a run that fails and is undone cancels goals whose calls to \
         undo all still wait for an approval; and an undo counts what an agent has undone in a \
         thread with any label, and leaves calls that a redacted one may have undone to a person; \
         and the refusal of a payload names no repeated child as required that is already there",
    ),
    (
        69,
        "the reservations of a run of a workflow count towards a budget that the run got after them; \
         a budget of which four fifths are used is recorded as such at the end of the step, whatever \
         used them, once for each limit, and exactly for large amounts of money; the agent whose \
         attempt ended in the step is warned if its call is open, or else the agent with the earliest \
         call, or else the next agent; and the refusal of a model call states how many are made if \
         the others are reserved",
    ),
    (
        70,
        "a reload checks the recorded turns and results again that wait in forks; a call to a listener \
         that the config lacks is refused; the system payloads of a forwarded call name the listener \
         that forwarded it, and its request, in place of its peers; a message that is queued for an \
         agent during a turn ends the wait of this turn; a hand-over in the record of another tree \
         restarts the wall time of its own tree; and a call whose hold expires states the limit that \
         it was held with",
    ),
    (71, "a pump that a command starts for a cancellation drains from its boot on"),
    (
        72,
        "the refusal of an answer outside of its thread names the call; the reservations of one \
         attempt have a limit; a run of a workflow that began from this version on reads a number \
         with a plus sign as a number, takes over no result that another retry has undone, and \
         records so; and a lost attempt ends before the time of its thread ends its call",
    ),
    (
        73,
        "a run of a schedule is over once its thread has no open call, and later calls in the thread \
         do not open it again; and the retry of a refused submission whose key was used again is \
         refused without a record, and before a confirmation is required",
    ),
    (
        74,
        "the fault of a call whose last turn is used up states the rule that refused a malformed \
         payload of this turn, and states that the answer of the turn was cut or refused by the \
         model, if the turn has no well-formed action",
    ),
    (
        75,
        "other words in refusals and faults: of delegations, of children and threads at their limit, \
         of an approval in vain, of a failed model call, and of a call that needs a person in a trial",
    ),
    // Each version has one line. After a merge conflict, take the next version.
];

/// The current core version. Journals that are older than the first core version record no version.
pub const CORE_VERSION: u32 = CHANGES.len() as u32;

const _: () = {
    let mut before = 0;
    let mut rest = CHANGES;
    while let [(number, _), after @ ..] = rest {
        assert!(*number == before + 1, "the numbers rise by one");
        before = *number;
        rest = after;
    }
};

-- The tables of an index. Times are microseconds since 1970, UTC; durations are microseconds; costs
-- are billionths of the currency unit of the config's prices. Ids of messages and digests are blobs.
-- People read the views (views.sql, docs/AUDIT.md), whose names and columns are versioned.

-- Format, journal, and the position and hash up to which the index is complete.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- Names of listeners, clients and payloads, models, rules and reasons. `local` is the name of a
-- payload without its namespace, and otherwise the text itself.
CREATE TABLE name(n INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, local TEXT NOT NULL) STRICT;
CREATE INDEX name_local ON name(local);

CREATE TABLE thread_row(
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  tree INTEGER NOT NULL,
  parent INTEGER,
  -- Name of the listener or client that opened the thread.
  opened_by INTEGER,
  opened INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  -- Time of the last record that is work: of more than refusals and decisions of persons.
  worked INTEGER NOT NULL,
  position INTEGER NOT NULL,
  -- The first call of the thread: who sent it to whom, its payload, and its first words.
  requested_by INTEGER,
  listener INTEGER,
  request INTEGER,
  first_words TEXT,
  messages INTEGER NOT NULL,
  settled INTEGER NOT NULL,
  refusals INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  turns INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  -- Tokens of lost model calls, which are charged as they were reserved.
  tokens_charged INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  open_calls INTEGER NOT NULL,
  -- Calls that wait for a person.
  held INTEGER NOT NULL,
  -- Entries of the timeline of `organism thread`, and the time of the last one that is work.
  events INTEGER NOT NULL,
  last_event INTEGER NOT NULL,
  -- How and when the last call from outside the thread ended; of a request to several peers, how its
  -- calls ended together.
  ended_how TEXT,
  ended INTEGER
) STRICT;

CREATE INDEX thread_tree ON thread_row(tree);

-- The sums of a root thread and all threads beneath it; `n` is that of the root thread.
CREATE TABLE tree_row(
  n INTEGER PRIMARY KEY,
  status TEXT NOT NULL,
  opened INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  -- Time of the last record that is work of one of the threads.
  worked INTEGER NOT NULL,
  first INTEGER NOT NULL,
  head INTEGER NOT NULL,
  records INTEGER NOT NULL,
  subthreads INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  settled INTEGER NOT NULL,
  refusals INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  turns INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  -- Tokens of lost model calls, which are charged as they were reserved.
  tokens_charged INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  open_calls INTEGER NOT NULL,
  held INTEGER NOT NULL,
  events INTEGER NOT NULL
) STRICT;
CREATE INDEX tree_head ON tree_row(head);
CREATE INDEX tree_status ON tree_row(status, head);
CREATE INDEX tree_cost ON tree_row(cost) WHERE cost > 0;
CREATE INDEX tree_errors ON tree_row(head) WHERE errors > 0;
CREATE INDEX tree_errors_status ON tree_row(status, head) WHERE errors > 0;
CREATE INDEX tree_held ON tree_row(head) WHERE held > 0;
CREATE INDEX tree_held_status ON tree_row(status, head) WHERE held > 0;
-- Trees with records far apart. Few trees are long, so the others can be found by the range of their
-- last records.
CREATE INDEX tree_long ON tree_row(head) WHERE head - first > 4096;

-- Names in trees: 1 for listeners that were called, 2 for agents that took a turn, 3 for payloads,
-- 4 for currencies of costs.
CREATE TABLE tree_name_row(
  role INTEGER NOT NULL,
  name INTEGER NOT NULL,
  tree INTEGER NOT NULL,
  PRIMARY KEY(role, name, tree)
) STRICT, WITHOUT ROWID;

-- Messages and refusals are numbered together, in the order of the journal.
CREATE TABLE message_row(
  n INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  thread INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  sender INTEGER NOT NULL,
  recipient INTEGER NOT NULL,
  name INTEGER NOT NULL,
  -- Number of the message that caused this one; the id of a cause that is not on record.
  cause ANY,
  -- The call that the message is delivered in; empty if that is the message's own id.
  call BLOB,
  position INTEGER NOT NULL,
  time INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  redacted INTEGER NOT NULL,
  disposition TEXT,
  -- Position of the record with the disposition.
  disposed INTEGER
) STRICT;
CREATE INDEX message_id ON message_row(id);
CREATE INDEX message_thread ON message_row(thread, seq);
CREATE INDEX message_position ON message_row(position);
CREATE INDEX message_name ON message_row(name, thread);
CREATE INDEX message_sender ON message_row(sender);
CREATE INDEX message_recipient ON message_row(recipient);
CREATE INDEX message_time ON message_row(time);
CREATE INDEX message_cause ON message_row(cause);

-- `n` is that of the message that opened the call.
CREATE TABLE call_row(
  n INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  thread INTEGER NOT NULL,
  caller INTEGER NOT NULL,
  listener INTEGER NOT NULL,
  -- Whether a client or another thread opened the call.
  outside INTEGER NOT NULL,
  opened INTEGER NOT NULL,
  -- When something happened last after which the call may be delivered.
  ready INTEGER NOT NULL,
  -- `all` or `any` while the call waits for results of other threads or for timers.
  waits TEXT,
  attempts INTEGER NOT NULL,
  closed INTEGER,
  how TEXT,
  -- Payload of the core that ended the call, such as `timed-out`.
  fault INTEGER,
  -- `all` or `first` if the call belongs to a request to several peers: the results that count.
  gather TEXT
) STRICT;

CREATE INDEX call_thread ON call_row(thread, listener);
CREATE INDEX call_failed ON call_row(n) WHERE how = 'failed';
CREATE INDEX call_open ON call_row(n) WHERE closed IS NULL;

-- One attempt to have a listener handle a call.
CREATE TABLE delivery_row(
  call INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  listener INTEGER NOT NULL,
  thread INTEGER NOT NULL,
  position INTEGER NOT NULL,
  ready INTEGER NOT NULL,
  handed_over INTEGER NOT NULL,
  ended INTEGER,
  -- `handled`, `failed`, `not-taken`, or how the call ended before the attempt did.
  outcome TEXT,
  PRIMARY KEY(call, epoch, attempt)
) STRICT, WITHOUT ROWID;

-- If the note of a turn was redacted, the row has what the rest of the record states: agent, call,
-- tokens and cost.
CREATE TABLE turn_row(
  -- That of the note that records the turn.
  n INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  call BLOB,
  position INTEGER NOT NULL,
  time INTEGER NOT NULL,
  agent INTEGER NOT NULL,
  turn INTEGER,
  provider INTEGER,
  -- `[redacted]` if the note was redacted.
  model INTEGER,
  -- The model that answered, as the provider names it.
  answered_by INTEGER,
  stop INTEGER,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  -- Whether the tokens are estimated.
  estimated INTEGER,
  cost INTEGER NOT NULL,
  currency INTEGER,
  latency INTEGER,
  -- Requests that failed before the answer.
  failovers INTEGER,
  prompt BLOB,
  inputs BLOB,
  -- Whether the turn of a fork has an answer from the record of the source, so that no model was
  -- called.
  recorded INTEGER NOT NULL
) STRICT;

CREATE INDEX turn_thread ON turn_row(thread, agent);

CREATE TABLE refusal_row(
  n INTEGER PRIMARY KEY,
  position INTEGER NOT NULL,
  time INTEGER NOT NULL,
  sender INTEGER NOT NULL,
  thread INTEGER,
  -- The thread that a search limits itself to: `thread` or, without it, the tree of the record.
  home INTEGER NOT NULL,
  call BLOB,
  rule INTEGER NOT NULL,
  name INTEGER,
  message TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  digest BLOB NOT NULL,
  -- Id of the submission, if one was refused.
  submission BLOB
) STRICT;

CREATE INDEX refusal_call ON refusal_row(call);
CREATE INDEX refusal_submission ON refusal_row(submission) WHERE submission IS NOT NULL;
CREATE INDEX refusal_submitted ON refusal_row(n) WHERE submission IS NOT NULL;

-- Refusals that are only counted: those with the answer `busy`.
CREATE TABLE busy_row(
  position INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  client INTEGER NOT NULL,
  since INTEGER NOT NULL,
  count INTEGER NOT NULL
) STRICT;

-- Reports about alerts.
CREATE TABLE alert_row(
  position INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  event TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  cause INTEGER NOT NULL,
  since INTEGER NOT NULL,
  count INTEGER NOT NULL,
  thread INTEGER,
  detail TEXT NOT NULL
) STRICT;

-- Calls that waited for a person.
CREATE TABLE hold_row(
  call INTEGER NOT NULL,
  position INTEGER NOT NULL,
  hold TEXT NOT NULL,
  since INTEGER NOT NULL,
  until INTEGER,
  ended INTEGER,
  -- `released`, `lapsed`, or how the call ended.
  outcome TEXT,
  PRIMARY KEY(call, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX hold_open ON hold_row(call) WHERE ended IS NULL;

-- Pauses, with their ends.
CREATE TABLE pause_row(
  position INTEGER PRIMARY KEY,
  since INTEGER NOT NULL,
  -- `all`, `listener NAME` or `thread ID`.
  target TEXT NOT NULL,
  person INTEGER NOT NULL,
  note TEXT NOT NULL,
  ended INTEGER
) STRICT;
CREATE INDEX pause_open ON pause_row(target) WHERE ended IS NULL;

-- Decisions and actions of people.
CREATE TABLE action_row(
  position INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  action TEXT NOT NULL,
  person INTEGER NOT NULL,
  uid INTEGER,
  login TEXT,
  host TEXT,
  signed INTEGER NOT NULL,
  -- Whether the organism carried the action out.
  accepted INTEGER NOT NULL,
  thread INTEGER,
  message BLOB,
  -- Digest of the payload, and of the preview, that the person saw, as far as they stated it.
  payload TEXT,
  preview TEXT,
  reason TEXT,
  details TEXT
) STRICT;
CREATE INDEX action_message ON action_row(message);

-- Attempts that failed, calls that ended with a fault of the core, runs of workflows that failed in
-- root threads, and operations that NATS denied.
CREATE TABLE error_row(
  n INTEGER PRIMARY KEY,
  position INTEGER NOT NULL,
  time INTEGER NOT NULL,
  thread INTEGER,
  call BLOB,
  listener INTEGER,
  kind INTEGER NOT NULL,
  detail TEXT NOT NULL
) STRICT;
CREATE INDEX error_call ON error_row(call);

-- Starts of the pump and reloads, each with the config that is in force from there on.
CREATE TABLE config_row(
  position INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  digest BLOB NOT NULL,
  core_version INTEGER NOT NULL
) STRICT;

-- Everything that the pump ran on from there on: config, prompts and schemas, by digest.
CREATE TABLE config_blob(
  position INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY(position, digest)
) STRICT, WITHOUT ROWID;

-- Roll-ups: what happened in each hour since 1970 in UTC, by names; -1 stands for a name that the
-- events do not have.
CREATE TABLE hour_row(
  hour INTEGER NOT NULL,
  agent INTEGER NOT NULL,
  model INTEGER NOT NULL,
  listener INTEGER NOT NULL,
  rule INTEGER NOT NULL,
  turns INTEGER NOT NULL,
  failovers INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  refusals INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  PRIMARY KEY(hour, agent, model, listener, rule)
) STRICT, WITHOUT ROWID;

-- How many durations of an hour are in a bucket. `measure` is `latency`, `queue` or `work`.
CREATE TABLE hour_duration_row(
  hour INTEGER NOT NULL,
  agent INTEGER NOT NULL,
  model INTEGER NOT NULL,
  listener INTEGER NOT NULL,
  rule INTEGER NOT NULL,
  measure TEXT NOT NULL,
  bucket INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY(hour, agent, model, listener, rule, measure, bucket)
) STRICT, WITHOUT ROWID;

-- Where the rows of an hour's events stand: turns and refusals by their numbers, ended attempts by
-- those of their calls.
CREATE TABLE hour_span_row(
  hour INTEGER PRIMARY KEY,
  first_event INTEGER NOT NULL,
  last_event INTEGER NOT NULL,
  first_call INTEGER NOT NULL,
  last_call INTEGER NOT NULL
) STRICT;

-- The durations of each bucket, in microseconds.
CREATE TABLE duration_bucket(
  bucket INTEGER PRIMARY KEY,
  above INTEGER NOT NULL,
  up_to INTEGER NOT NULL
) STRICT;

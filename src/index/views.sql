-- The views of an index: its public schema (docs/AUDIT.md). A change of a name, a column or a unit
-- raises SCHEMA_VERSION. `@uuid`, `@time`, `@name` and `@hex` stand for expressions (views.rs).

CREATE VIEW about(schema_version, journal, position) AS
  SELECT (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'schema'),
    (SELECT value FROM meta WHERE key = 'journal'),
    (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'position');

CREATE VIEW tree(thread, status, opened, opened_us, updated, updated_us, requested_by, listener,
    payload, first_words, subthreads, records, messages, in_flight, refusals, errors, turns,
    tokens_in, tokens_out, tokens_charged, cost_nano, open_calls, waiting, first_position,
    last_position) AS
  SELECT t.id, r.status, @time(r.opened), r.opened, @time(r.updated), r.updated,
    @name(t.requested_by), @name(t.listener), @local(t.request), t.first_words, r.subthreads,
    r.records, r.messages, r.messages - r.settled, r.refusals, r.errors, r.turns, r.tokens_in,
    r.tokens_out, r.tokens_charged, r.cost, r.open_calls, r.held, r.first, r.head
  FROM tree_row r JOIN thread_row t ON t.n = r.n;

CREATE VIEW thread(id, tree, parent, status, opened_by, opened, opened_us, updated, updated_us,
    ended, ended_us, requested_by, listener, payload, first_words, messages, in_flight, refusals,
    errors, turns, tokens_in, tokens_out, tokens_charged, cost_nano, open_calls, waiting,
    position) AS
  SELECT t.id, root.id, (SELECT id FROM thread_row p WHERE p.n = t.parent),
    CASE
      WHEN t.n = t.tree THEN r.status
      WHEN t.open_calls > 0 THEN 'running'
      ELSE coalesce(t.ended_how, 'idle')
    END,
    @name(t.opened_by), @time(t.opened), t.opened, @time(t.updated), t.updated, @time(t.ended),
    t.ended, @name(t.requested_by), @name(t.listener), @local(t.request), t.first_words,
    t.messages, t.messages - t.settled, t.refusals, t.errors, t.turns, t.tokens_in, t.tokens_out,
    t.tokens_charged, t.cost, t.open_calls, t.held, t.position
  FROM thread_row t JOIN thread_row root ON root.n = t.tree JOIN tree_row r ON r.n = t.tree;

CREATE VIEW message(id, thread, seq, kind, sender, recipient, payload, payload_name, cause, call,
    position, time, time_us, bytes, redacted, disposition, disposed_position) AS
  SELECT @uuid(m.id), t.id, m.seq, m.kind, s.text, r.text, p.local, p.text,
    coalesce((SELECT @uuid(c.id) FROM message_row c WHERE c.n = m.cause), @uuid(m.cause)),
    @uuid(CASE m.call WHEN x'' THEN m.id ELSE m.call END), m.position, @time(m.time),
    m.time, m.bytes, m.redacted, m.disposition, m.disposed
  FROM message_row m JOIN thread_row t ON t.n = m.thread JOIN name s ON s.n = m.sender
    JOIN name r ON r.n = m.recipient JOIN name p ON p.n = m.name;

CREATE VIEW call(id, thread, caller, listener, from_outside, opened, opened_us, closed, closed_us,
    duration_us, attempts, outcome, fault) AS
  SELECT @uuid(c.id), t.id, a.text, l.text, c.outside, @time(c.opened), c.opened, @time(c.closed),
    c.closed, c.closed - c.opened, c.attempts, c.how, @local(c.fault)
  FROM call_row c JOIN thread_row t ON t.n = c.thread JOIN name a ON a.n = c.caller
    JOIN name l ON l.n = c.listener;

CREATE VIEW delivery(call, thread, listener, attempt, position, ready, ready_us, handed_over,
    handed_over_us, ended, ended_us, queue_us, work_us, outcome) AS
  SELECT @uuid(c.id), t.id, l.text, d.epoch || '.' || d.attempt, d.position, @time(d.ready),
    d.ready, @time(d.handed_over), d.handed_over, @time(d.ended), d.ended,
    d.handed_over - d.ready, d.ended - d.handed_over, d.outcome
  FROM delivery_row d JOIN call_row c ON c.n = d.call JOIN thread_row t ON t.n = d.thread
    JOIN name l ON l.n = d.listener;

CREATE VIEW turn(id, thread, call, position, time, time_us, agent, turn, provider, model,
    answered_by, stop, tokens_in, tokens_out, estimated, cost_nano, currency, latency_us, failovers,
    prompt_digest, inputs_digest) AS
  SELECT @uuid(m.id), t.id, @uuid(u.call), u.position, @time(u.time), u.time, a.text, u.turn,
    @name(u.provider), @name(u.model), @name(u.answered_by), @name(u.stop), u.tokens_in,
    u.tokens_out, u.estimated, u.cost, @name(u.currency),
    CASE WHEN u.recorded = 0 THEN u.latency END, u.failovers, @hex(u.prompt), @hex(u.inputs)
  FROM turn_row u JOIN message_row m ON m.n = u.n JOIN thread_row t ON t.n = u.thread
    JOIN name a ON a.n = u.agent;

CREATE VIEW refusal(position, time, time_us, sender, thread, call, rule, payload, message, bytes,
    digest) AS
  SELECT r.position, @time(r.time), r.time, s.text,
    (SELECT id FROM thread_row t WHERE t.n = r.thread), @uuid(r.call), u.text, @local(r.name),
    r.message, r.bytes, @hex(r.digest)
  FROM refusal_row r JOIN name s ON s.n = r.sender JOIN name u ON u.n = r.rule;

CREATE VIEW busy(position, time, time_us, client, since, since_us, refusals) AS
  SELECT b.position, @time(b.time), b.time, c.text, @time(b.since), b.since, b.count
  FROM busy_row b JOIN name c ON c.n = b.client;

CREATE VIEW alert(position, time, time_us, event, kind, subject, cause, since, since_us,
    occurrences, thread, detail) AS
  SELECT a.position, @time(a.time), a.time, a.event, a.kind, a.subject, a.cause, @time(a.since),
    a.since, a.count, (SELECT id FROM thread_row t WHERE t.n = a.thread), a.detail
  FROM alert_row a;

CREATE VIEW hour(hour, hour_us, agent, model, listener, rule, turns, failovers, tokens_in,
    tokens_out, cost_nano, refusals, attempts, failed_attempts) AS
  SELECT @time(h.hour * 3600000000), h.hour * 3600000000, @name(h.agent), @name(h.model),
    @name(h.listener), @name(h.rule), h.turns, h.failovers, h.tokens_in, h.tokens_out, h.cost,
    h.refusals, h.attempts, h.failed
  FROM hour_row h;

CREATE VIEW hour_duration(hour, hour_us, agent, model, listener, measure, above_us, up_to_us,
    durations) AS
  SELECT @time(h.hour * 3600000000), h.hour * 3600000000, @name(h.agent), @name(h.model),
    @name(h.listener), h.measure, b.above, b.up_to, h.count
  FROM hour_duration_row h JOIN duration_bucket b ON b.bucket = h.bucket;

CREATE VIEW hold(call, thread, caller, listener, kind, position, since, since_us, until, until_us,
    ended, ended_us, waited_us, outcome) AS
  SELECT @uuid(c.id), t.id, a.text, l.text, h.hold, h.position, @time(h.since), h.since,
    @time(h.until), h.until, @time(h.ended), h.ended, h.ended - h.since, h.outcome
  FROM hold_row h JOIN call_row c ON c.n = h.call JOIN thread_row t ON t.n = c.thread
    JOIN name a ON a.n = c.caller JOIN name l ON l.n = c.listener;

CREATE VIEW pause(position, target, person, note, since, since_us, ended, ended_us, paused_us) AS
  SELECT p.position, p.target, n.text, p.note, @time(p.since), p.since, @time(p.ended), p.ended,
    p.ended - p.since
  FROM pause_row p JOIN name n ON n.n = p.person;

CREATE VIEW action(position, time, time_us, action, person, uid, login, host, signed, accepted,
    thread, message, payload_digest, preview_digest, reason, details) AS
  SELECT a.position, @time(a.time), a.time, a.action, p.text, a.uid, a.login, a.host, a.signed,
    a.accepted, (SELECT id FROM thread_row t WHERE t.n = a.thread), @uuid(a.message), a.payload,
    a.preview, a.reason, a.details
  FROM action_row a JOIN name p ON p.n = a.person;

CREATE VIEW error(position, time, time_us, thread, call, listener, kind, detail) AS
  SELECT e.position, @time(e.time), e.time, (SELECT id FROM thread_row t WHERE t.n = e.thread),
    @uuid(e.call), @name(e.listener), k.text, e.detail
  FROM error_row e JOIN name k ON k.n = e.kind;

CREATE VIEW config(position, time, time_us, epoch, digest, core_version, until_position) AS
  SELECT c.position, @time(c.time), c.time, c.epoch, @hex(c.digest), c.core_version,
    (SELECT min(next.position) - 1 FROM config_row next WHERE next.position > c.position)
  FROM config_row c;

CREATE VIEW config_file(position, digest) AS
  SELECT position, @hex(digest) FROM config_blob;

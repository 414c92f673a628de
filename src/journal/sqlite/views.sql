-- For people. Every fact of every record, one a row.
CREATE VIEW fact(position, tree, at, n, kind, value) AS
  SELECT position, tree, at, n, kind,
    -- What a text leaves out (src/thread/text/mod.rs), from the input and the facts of its record.
    CASE
      WHEN kind = 'accepted' AND value ->> '$.call' = 'input' THEN
        json_replace(value, '$.call', input ->> '$.call')
      WHEN kind = 'accepted' AND value ->> '$.call' = 'cause' THEN
        json_replace(value, '$.call', value ->> '$.cause')
      -- `json_insert` keeps the value of a path that exists, also `null`.
      WHEN kind = 'disposed' THEN
        json_insert(value, '$.message', coalesce(latest, input ->> '$.call'),
          '$.how', iif(latest IS NULL, 'handled', 'recorded'))
      WHEN kind = 'heard' THEN
        json_insert(value, '$.call', input ->> '$.call', '$.attempt', input ->> '$.attempt')
      WHEN kind = 'call-closed' THEN
        json_insert(value, '$.call', input ->> '$.call', '$.how', 'completed')
      WHEN kind = 'used' THEN
        json_patch(json_patch(
          iif(value ->> '$.call' IS NULL, json_object('call', input ->> '$.call',
            'agent', input ->> '$.listener'), '{}'),
          iif(value ->> '$.tokens_in' IS NULL, json_object('tokens_in', input ->> '$.turn.tokens_in',
            'tokens_out', input ->> '$.turn.tokens_out', 'money', input ->> '$.turn.money'), '{}')
        ), value)
      ELSE value
    END
  FROM (
    SELECT s.position, s.tree, s.time AS at, s.body -> '$.input.outcome' AS input,
      f.key AS n, v.key AS kind,
      -- The message before a disposition.
      CASE v.key WHEN 'disposed' THEN (SELECT p.value ->> '$.accepted.id'
        FROM json_each(s.body, '$.facts') p
        WHERE p.key < f.key AND p.value ->> '$.accepted' IS NOT NULL
        ORDER BY p.key DESC LIMIT 1) END AS latest,
      CASE
        WHEN v.key = 'accepted' AND v.value ->> '$.from' IS NULL THEN
          json_insert(iif(v.value ->> '$.kind' = 'note', json_insert(v.value, '$.call', 'cause'),
            v.value), '$.kind', 'call',
            '$.from', iif(v.value ->> '$.kind' IN ('note', 'system'), 'core',
              s.body ->> '$.input.outcome.listener'),
            '$.to', s.body ->> '$.input.outcome.listener',
            '$.cause', s.body ->> '$.input.outcome.call')
        WHEN v.key = 'accepted' AND v.value ->> '$.cause' = 'input' THEN
          json_replace(v.value, '$.cause', s.body ->> '$.input.outcome.call')
        ELSE v.value
      END AS value
    FROM step s, json_each(s.body, '$.facts') f, json_each(f.value) v
  );

-- `disposition` and `message` read the records themselves: SQLite would evaluate all of `fact` again
-- for each of their columns.
CREATE VIEW disposition(message, how, position) AS
  SELECT
    coalesce(
      f.value ->> '$.disposed.message',
      (SELECT p.value ->> '$.accepted.id' FROM json_each(s.body, '$.facts') p
        WHERE p.key < f.key AND p.value ->> '$.accepted' IS NOT NULL ORDER BY p.key DESC LIMIT 1),
      s.body ->> '$.input.outcome.call'
    ),
    coalesce(
      f.value ->> '$.disposed.how',
      iif(EXISTS (SELECT 1 FROM json_each(s.body, '$.facts') p
          WHERE p.key < f.key AND p.value ->> '$.accepted' IS NOT NULL),
        'recorded', 'handled')
    ),
    s.position
  FROM step s, json_each(s.body, '$.facts') f
  WHERE f.value ->> '$.disposed' IS NOT NULL;

CREATE VIEW refusal(position, time, sender, thread, rule, text, length, digest, head) AS
  SELECT position, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e6, 'unixepoch'),
    value ->> '$.sender', value ->> '$.thread', value ->> '$.refusal.rule',
    value ->> '$.refusal.message', value ->> '$.refusal.length', value ->> '$.refusal.digest',
    value ->> '$.refusal.head'
  FROM fact WHERE kind = 'refused';

CREATE VIEW message(id, thread, seq, kind, sender, recipient, cause, call, time, name, payload,
    disposition, position) AS
  WITH ended AS MATERIALIZED (SELECT message, how FROM disposition)
  SELECT m.id, m.thread, m.seq, m.kind, m.sender, m.recipient, m.cause,
    CASE m.call WHEN 'cause' THEN m.cause WHEN 'input' THEN m.input_call ELSE m.call END,
    m.time, m.name,
    cast(substr(m.payloads, m.start + 1, m.length) AS TEXT), ended.how, m.position
  FROM (
    SELECT s.position AS position, s.payloads AS payloads,
      f.value ->> '$.accepted.id' AS id,
      coalesce(f.value ->> '$.accepted.thread', s.tree) AS thread,
      f.value ->> '$.accepted.seq' AS seq,
      coalesce(f.value ->> '$.accepted.kind', 'call') AS kind,
      coalesce(f.value ->> '$.accepted.from',
        iif(f.value ->> '$.accepted.kind' IN ('note', 'system'), 'core',
          s.body ->> '$.input.outcome.listener')) AS sender,
      coalesce(f.value ->> '$.accepted.to', s.body ->> '$.input.outcome.listener') AS recipient,
      CASE
        WHEN f.value ->> '$.accepted.cause' = 'input'
          OR f.value ->> '$.accepted.from' IS NULL
            AND json_type(f.value, '$.accepted.cause') IS NULL
        THEN s.body ->> '$.input.outcome.call'
        ELSE f.value ->> '$.accepted.cause'
      END AS cause,
      s.body ->> '$.input.outcome.call' AS input_call,
      CASE
        WHEN json_type(f.value, '$.accepted.call') IS NOT NULL THEN f.value ->> '$.accepted.call'
        WHEN coalesce(f.value ->> '$.accepted.kind', 'call') = 'call'
          THEN f.value ->> '$.accepted.id'
        WHEN f.value ->> '$.accepted.kind' = 'note' AND f.value ->> '$.accepted.from' IS NULL
          THEN 'cause'
      END AS call,
      strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(f.value ->> '$.accepted.time', s.time) / 1e6,
        'unixepoch') AS time,
      f.value ->> '$.accepted.name' AS name,
      f.value ->> '$.accepted.length' AS length,
      (SELECT coalesce(sum(p.value ->> '$.accepted.length'), 0)
        FROM json_each(s.body, '$.facts') p WHERE p.key < f.key) AS start
    FROM step s, json_each(s.body, '$.facts') f
    WHERE f.value ->> '$.accepted' IS NOT NULL
  ) m LEFT JOIN ended ON ended.message = m.id;

CREATE VIEW thread(id, root, parent, opened, messages, in_flight, last) AS
  SELECT thread, CASE instr(thread, '.') WHEN 0 THEN thread
      ELSE substr(thread, 1, instr(thread, '.') - 1) END,
    nullif(rtrim(rtrim(thread, replace(thread, '.', '')), '.'), ''),
    min(time), count(*), sum(disposition IS NULL), max(time)
  FROM message GROUP BY thread;

-- Format, journal uuid, epoch, signing key, and a digest over these; how far `tree` goes.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- One record a row, appended only. `hash` is over `previous_hash`, `position`, `previous`, `time`,
-- `tree` and `body`, its JSON text; `payloads` are the bytes its digests speak of, one after
-- another. What the text leaves out is listed in src/thread/text/mod.rs.
CREATE TABLE step(
  position INTEGER PRIMARY KEY,
  tree TEXT NOT NULL,
  previous INTEGER NOT NULL,
  previous_hash BLOB NOT NULL,
  time INTEGER NOT NULL,
  hash BLOB NOT NULL,
  body TEXT NOT NULL,
  payloads BLOB NOT NULL
) STRICT;

-- Derived: where each tree stood when this table was last brought up to date.
CREATE TABLE tree(
  root TEXT PRIMARY KEY,
  first INTEGER NOT NULL,
  head INTEGER NOT NULL,
  records INTEGER NOT NULL,
  opened INTEGER NOT NULL,
  updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint(
  position INTEGER PRIMARY KEY,
  line TEXT NOT NULL
) STRICT;

-- What the organism ran on: config, prompt files and schemas, by digest.
CREATE TABLE blob(digest TEXT PRIMARY KEY, bytes BLOB NOT NULL) STRICT;

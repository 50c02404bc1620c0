-- Writes that wait. Times are milliseconds since the Unix epoch, UTC. Anybody may insert: operation and body are enough, and what
-- cannot be read ends as a dead letter with its reason. What the line reads before the body stands before it.
CREATE TABLE write_jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (
    status = 'pending' OR status = 'applied' OR status = 'dead_letter' OR status = 'quarantined' OR status = 'cancelled'),
  replays INTEGER NOT NULL DEFAULT 0,
  run_at INTEGER,                           -- NULL: as soon as the line comes to it
  operation TEXT,
  correlation_id TEXT,
  idempotency_key TEXT,
  event_id TEXT,                            -- of the event it will emit; NULL: minted when it is applied
  article_id TEXT,
  slug TEXT,                                -- of the article, once applied
  last_error TEXT,
  created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  body TEXT
) STRICT;

-- The line.
CREATE INDEX write_jobs_ready ON write_jobs(id) WHERE status = 'pending' AND run_at IS NULL;
CREATE INDEX write_jobs_due ON write_jobs(run_at, id) WHERE status = 'pending' AND run_at IS NOT NULL;
-- Lists, counts, and what is old enough to go.
CREATE INDEX write_jobs_status ON write_jobs(status, updated_at, id);
CREATE UNIQUE INDEX write_jobs_key ON write_jobs(idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX write_jobs_publication ON write_jobs(article_id, status) WHERE operation = 'publish';

-- One row: what becomes of writes. `draining`: the site is open again, and new writes go behind the journal until it is empty.
-- `held`: the lanes that the freeze holds, as a JSON array.
CREATE TABLE write_mode (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  mode TEXT NOT NULL CHECK (mode = 'open' OR mode = 'journal' OR mode = 'read_only'),
  draining INTEGER NOT NULL DEFAULT 0,
  since INTEGER,
  reason TEXT,
  held TEXT NOT NULL DEFAULT '[]'
) STRICT;
INSERT INTO write_mode (one, mode) VALUES (1, 'open');

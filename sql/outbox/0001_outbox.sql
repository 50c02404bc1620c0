-- The log. Rows are never changed, and deleted only by retention once every lane has passed them.
-- Delivery order is id; gaps are normal. A foreign writer may give event_type and payload alone.
CREATE TABLE event_outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id TEXT NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16)))),
  event_type TEXT NOT NULL,
  event_key TEXT,
  payload TEXT NOT NULL,
  correlation_id TEXT,
  causation_id TEXT,
  occurred_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) STRICT;
CREATE INDEX event_outbox_correlation ON event_outbox(correlation_id) WHERE correlation_id IS NOT NULL;

-- One row per handler. cursor: every log row up to it has an outcome.
CREATE TABLE lanes (
  handler TEXT PRIMARY KEY,
  event_types TEXT NOT NULL,
  on_dead_letter TEXT NOT NULL CHECK (on_dead_letter IN ('continue', 'park_key')),
  held INTEGER NOT NULL DEFAULT 0,
  cursor INTEGER NOT NULL,
  owner TEXT,
  owned_since INTEGER,
  single_step_to INTEGER,
  running_id INTEGER,
  paused_until INTEGER,
  pause_reason TEXT,
  outage_since INTEGER
) STRICT;

-- Exceptions only: an event that was delivered at the first try has no row.
-- Open states are retry, waiting and parked; closed ones dead_letter, discarded and done.
CREATE TABLE deliveries (
  outbox_id INTEGER NOT NULL,
  handler TEXT NOT NULL,
  event_key TEXT,
  -- Written out, here and in the index below: for an IN of three or more SQLite fills a temporary table at each write.
  state TEXT NOT NULL CHECK (
    state = 'retry' OR state = 'waiting' OR state = 'parked'
    OR state = 'dead_letter' OR state = 'discarded' OR state = 'done'),
  attempts INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  replays INTEGER NOT NULL DEFAULT 0,
  next_attempt_at INTEGER,
  superseded_by INTEGER,
  reason TEXT,
  history TEXT NOT NULL DEFAULT '[]',
  payload TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  CHECK (state <> 'retry' OR next_attempt_at IS NOT NULL),
  PRIMARY KEY (outbox_id, handler)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_due ON deliveries(handler, next_attempt_at, outbox_id) WHERE state = 'retry';
CREATE INDEX deliveries_open ON deliveries(handler, event_key, outbox_id)
  WHERE (state = 'retry' OR state = 'waiting' OR state = 'parked');
CREATE INDEX deliveries_fresh_dead ON deliveries(handler, event_key, outbox_id)
  WHERE state = 'dead_letter' AND superseded_by IS NULL;
CREATE INDEX deliveries_state ON deliveries(state, handler, outbox_id);
CREATE INDEX deliveries_crashed ON deliveries(handler, outbox_id) WHERE crashes > 0;

-- An id that a cursor or a reader may already have passed would never be delivered; one at the end of the range would
-- end the sequence. Both are refused.
CREATE TRIGGER event_outbox_ids AFTER INSERT ON event_outbox
WHEN NEW.id >= 1 << 62
  OR NEW.id <= max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event_outbox'), 0),
                   coalesce((SELECT max(cursor) FROM lanes), 0))
BEGIN
  SELECT RAISE(ABORT, 'event ids are assigned by the outbox: leave id out');
END;
CREATE TRIGGER event_outbox_immutable BEFORE UPDATE ON event_outbox
BEGIN
  SELECT RAISE(ABORT, 'the event log is immutable: insert a new event instead');
END;
CREATE TRIGGER event_outbox_undelivered BEFORE DELETE ON event_outbox
WHEN OLD.id > (SELECT min(cursor) FROM lanes)
BEGIN
  SELECT RAISE(ABORT, 'the event is not delivered to every lane yet');
END;

-- For people with a SQL prompt: where each event stands with each handler. An event that the handler's filter passes
-- over counts as delivered once the cursor is beyond it.
CREATE VIEW event_status AS
SELECT e.id, e.event_id, e.event_type, e.event_key, l.handler,
       CASE d.state
         WHEN 'retry' THEN 'retrying'
         WHEN 'dead_letter' THEN 'dead'
         WHEN 'done' THEN 'delivered'
         WHEN 'waiting' THEN 'waiting'
         WHEN 'parked' THEN 'parked'
         WHEN 'discarded' THEN 'discarded'
         ELSE CASE WHEN e.id > l.cursor THEN 'pending' ELSE 'delivered' END
       END AS status,
       coalesce(d.attempts, 0) AS attempts, d.next_attempt_at, d.reason
FROM event_outbox e CROSS JOIN lanes l
LEFT JOIN deliveries d ON d.outbox_id = e.id AND d.handler = l.handler;

-- The inbox ledger: one row per event and handler that a consumer of a broker has begun. It is what makes "at least once"
-- on the wire "once" in effect, and it holds whatever a broker will not bring again.
CREATE TABLE processed_events (
  event_id TEXT NOT NULL,
  handler TEXT NOT NULL,
  -- Open: in_progress, retry. Closed: done, dead_letter, discarded.
  state TEXT NOT NULL CHECK (
    state = 'in_progress' OR state = 'retry' OR state = 'done' OR state = 'dead_letter' OR state = 'discarded'),
  -- The claim. Only whoever knows the token may end it.
  token TEXT,
  owner TEXT,
  started_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  -- Claims whose owner died or went silent.
  crashes INTEGER NOT NULL DEFAULT 0,
  replays INTEGER NOT NULL DEFAULT 0,
  next_attempt_at INTEGER,
  -- When it was closed.
  processed_at INTEGER,
  -- Order: events of one key run by position. Both NULL: no order.
  event_key TEXT,
  position INTEGER,
  -- The event as JSON while it is not done, so that nothing else has to bring it again.
  event TEXT,
  superseded_by INTEGER,
  reason TEXT,
  history TEXT NOT NULL DEFAULT '[]',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  CHECK (state <> 'in_progress' OR (token IS NOT NULL AND started_at IS NOT NULL)),
  CHECK (state <> 'retry' OR next_attempt_at IS NOT NULL),
  CHECK (state = 'in_progress' OR state = 'retry' OR processed_at IS NOT NULL),
  PRIMARY KEY (event_id, handler)
) STRICT, WITHOUT ROWID;
CREATE INDEX processed_events_due ON processed_events(handler, next_attempt_at, event_id) WHERE state = 'retry';
CREATE INDEX processed_events_claims ON processed_events(handler, started_at, event_id) WHERE state = 'in_progress';
CREATE INDEX processed_events_open ON processed_events(handler, event_key, position)
  WHERE (state = 'in_progress' OR state = 'retry');
CREATE INDEX processed_events_fresh_dead ON processed_events(handler, event_key, position)
  WHERE state = 'dead_letter' AND superseded_by IS NULL;
CREATE INDEX processed_events_listed ON processed_events(state, handler, event_id) WHERE state <> 'done';
CREATE INDEX processed_events_over ON processed_events(processed_at, event_id, handler)
  WHERE (state = 'done' OR state = 'discarded');

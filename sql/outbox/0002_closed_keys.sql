-- What an operator asks of one key reaches closed rows too. Nothing that is open pays for it: a row is put here once, when it closes.
CREATE INDEX deliveries_closed_key ON deliveries(handler, event_key, outbox_id)
  WHERE (state = 'dead_letter' OR state = 'discarded' OR state = 'done');

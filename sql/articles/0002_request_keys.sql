-- What a request with a key of its own has led to, so that the same request sent again changes nothing and is answered
-- as the first was. The row commits together with what the request wrote. Rows are kept for a day.
CREATE TABLE request_keys (
  id INTEGER PRIMARY KEY,
  -- Whose key it is: two callers may choose the same.
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  -- Tells one request from another.
  fingerprint TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  outcomes TEXT NOT NULL,
  UNIQUE (scope, key)
) STRICT;
CREATE INDEX request_keys_age ON request_keys(created_at);

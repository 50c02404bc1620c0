-- What was taken over from another program's database, by a name that tells one row of it from every other for ever. A row commits
-- together with what it became, and outlasts it: applied jobs and delivered events go, and must not come a second time.
CREATE TABLE adopted (
  origin TEXT PRIMARY KEY NOT NULL,
  adopted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The search index: a file of its own, which can be thrown away and built again from the articles.

-- One row per article this index has an opinion about. `version` is the article's last applied version and is written
-- in the same transaction as the row of `fts` with this row id. A deleted article leaves no row: an event that comes
-- late for it finds it gone from the articles, and an id that is used again starts afresh.
CREATE TABLE docs (
  doc_id      INTEGER PRIMARY KEY,
  article_id  TEXT NOT NULL UNIQUE,
  version     INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  indexed     INTEGER NOT NULL,          -- 1: `fts` holds it; 0: a draft
  slug        TEXT NOT NULL,
  title       TEXT NOT NULL,
  tags        TEXT NOT NULL,             -- JSON array
  created_at  INTEGER NOT NULL
) STRICT;

-- Holds its own text, so that a deletion needs no old values from elsewhere and cannot get them wrong.
CREATE VIRTUAL TABLE fts USING fts5(title, tags, content, tokenize = "unicode61 remove_diacritics 2");
INSERT INTO fts(fts, rank) VALUES ('rank', 'bm25(10.0, 5.0, 1.0)');

CREATE TABLE state (
  one             INTEGER PRIMARY KEY CHECK (one = 1),
  applied_id      INTEGER,               -- newest event applied: log position and event id
  applied_event   TEXT,
  built           INTEGER NOT NULL,      -- 1 once a rebuild has come to its end
  rebuild         INTEGER NOT NULL,      -- 0 none, 1 compare and mend, 2 index everything anew
  rebuild_after   TEXT,                  -- article id up to which the rebuild is done
  rebuild_id      INTEGER,               -- what `applied_*` becomes at its end
  rebuild_event   TEXT,
  revision        INTEGER NOT NULL       -- how the texts were extracted, from the first rebuild on
) STRICT;
INSERT INTO state (one, built, rebuild, revision) VALUES (1, 0, 0, 0);

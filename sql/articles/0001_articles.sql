-- Times are milliseconds since the Unix epoch, UTC. `content` stands last: what stands before it is read without
-- walking the overflow pages of a long text.
CREATE TABLE articles (
  id TEXT PRIMARY KEY NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  slug TEXT NOT NULL UNIQUE,
  title TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  content TEXT NOT NULL
) STRICT;

-- Lists: newest first within a status and a kind.
CREATE INDEX articles_newest ON articles(status, kind, created_at DESC, id DESC);

-- One row per article and normalised tag; `label` is the spelling the author chose.
CREATE TABLE article_tags (
  article_id TEXT NOT NULL,
  tag TEXT NOT NULL,
  position INTEGER NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (article_id, tag)
) STRICT, WITHOUT ROWID;

CREATE INDEX article_tags_tag ON article_tags(tag);

-- What an import has stored: a source that comes again with the same hash changes nothing, and an article whose
-- version has moved on since is not overwritten. The row outlives its article, so a deleted one does not come back.
CREATE TABLE article_sources (
  source TEXT PRIMARY KEY NOT NULL,
  article_id TEXT NOT NULL,
  hash TEXT NOT NULL,
  version INTEGER NOT NULL,
  imported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

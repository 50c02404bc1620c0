-- A draft that a job will publish has the time here, in milliseconds since the Unix epoch; every other article NULL. The column
-- stands behind the long text, but a NULL is read from the row's head, and a time only where there is one.
ALTER TABLE articles ADD COLUMN publish_at INTEGER;

CREATE INDEX articles_scheduled ON articles(kind, created_at DESC, id DESC, publish_at) WHERE publish_at IS NOT NULL;

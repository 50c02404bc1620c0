-- One row that the queue-writer bumps when it has to commit something of its own: after a COMMIT whose outcome is
-- unknown, only a further successful COMMIT makes a look at the database conclusive.
CREATE TABLE vayu_recovery (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  commits INTEGER NOT NULL
) STRICT;
INSERT INTO vayu_recovery (id, commits) VALUES (1, 0);

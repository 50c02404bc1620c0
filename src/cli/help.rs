//! Texts that `--help` shows below the options. A paragraph is one line: it is wrapped to the terminal.

/// Exit codes, the same for every command.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something failed, or one file of several did: what and why stands on stderr; or `check` found a fault
  2    the command line or a setting is wrong; nothing was done
  130  a second signal came before the stop was done";

/// `text` with the exit codes below it.
pub(super) fn with_exit_codes(text: &str) -> String {
    format!("{text}\n\n{EXIT_CODES}")
}

pub(super) const OVERVIEW: &str = "\
Examples:
  vayu-articles serve --addr 127.0.0.1:8080 --seed samples
  vayu-articles import ~/blog/content
  vayu-articles search 'idempotent handler'
  vayu-articles outbox stats
  vayu-articles outbox replay search 4711

The data folder holds articles.db (articles and their outbox), search.db and cache/. The last two can be deleted at any time \
while nothing runs: they are rebuilt from the first.";

#[cfg(feature = "server")]
pub(super) const SERVE: &str = "\
Who writes or operates needs a token (Authorization: Bearer TOKEN); reading what is published needs none. The administrator's token \
comes from VAYU_ADMIN_TOKEN or the file named by --token-file; without either it is made at the first start, in admin.token in the data \
folder, readable by its owner alone. `tokens add` makes further ones. An address that other machines can reach is served only once \
somebody has set a token.

The first SIGINT or SIGTERM stops in order and within bounds: no new \
requests are taken, running ones end, the relay drains what is committed, accepted writes are written. A second signal ends the \
process at once, which loses nothing that was answered; one within 100 ms of the first counts as the first.

--cdn needs --site: the URLs to purge are made from it. They go out as JSON in a POST, or as --cdn-shape says; with --cdn-ttl shared caches may keep what a purge would reach, with --cdn-again each purge is repeated for what was under way. docs/cdn.md has the recipes. What the CDN answers means:
  2xx, 404, 410                  done
  408, 429, 502, 503, 504        again, after Retry-After (at most 120 s) or with growing waits; it spends no attempts
  401, 403, 407                  the same, until the token is right: start again with a new one
  no answer at all               the same
  other 5xx                      again, three calls in all; then given up (a dead letter)
  400, 413, 422                  sent again in halves; a single URL that gets it is given up
  3xx, any other 4xx             given up at once: mend the settings, then `outbox replay cdn --all` and `outbox replay cdn-again --all`

--webhooks names a TOML file with a [[webhook]] for each endpoint that gets events: name, url, secret (or secret_file), and, as needed, \
types, timeout, allow_private, concurrency, source. Each message is signed (Standard Webhooks); each endpoint is a handler of its own, \
webhook:NAME. What an endpoint answers means: 2xx done; 408, 425, 429, 502, 503, 504, 401, 403, 407, 410 or no answer: again, and it spends \
no attempts; other 5xx: again, three calls in all; anything else: given up (a dead letter). docs/webhooks.md has the rest.

Every setting is a flag, a variable of the environment and a key of the file that --config names; a flag counts before a \
variable, that before the file. vayu-articles.example.toml has all keys; --print-config shows what a run would use and why. A \
handler's call takes 30 s at most.

Examples:
  vayu-articles serve
  vayu-articles serve --addr 127.0.0.1:0           (any free port; the address is printed)
  vayu-articles serve --data /var/lib/vayu --log warn
  vayu-articles serve --config vayu-articles.toml --print-config
  vayu-articles serve --seed samples               (fills an empty database first)
  vayu-articles serve --cdn https://api.example/purge --site https://example.org
  vayu-articles serve --cdn http://127.0.0.1:6081/ --cdn-shape keys --cdn-ttl 10m --site https://example.org    (Varnish)
  vayu-articles serve --webhooks webhooks.toml";

#[cfg(feature = "server")]
pub(super) const TOKENS: &str = "\
A token is sent as Authorization: Bearer TOKEN. Roles: `write` writes articles and sees drafts; `admin` does everything. `add` prints \
the new token on stdout and keeps only its digest, in tokens.json in the data folder; a running server takes up what was added or \
removed at once. The administrator's own token (see `serve --help`) has the name admin and stands in no list.

Examples:
  vayu-articles tokens add editor                    (role write)
  vayu-articles tokens add deploy --role admin > deploy.token
  vayu-articles tokens list
  vayu-articles tokens remove editor";

#[cfg(feature = "nats")]
pub(super) const WORKER: &str = "\
Takes the events from JetStream, fetches each article by id from --origin and keeps what it has done in worker.db in its data \
folder, so that each event takes effect once here, whatever the broker brings twice. A message is acknowledged once its effect, or its \
dead letter, is durable. `outbox list|show|replay|discard --data DIR` on that folder lists and replays its dead letters.

Workers of one --worker-name share the events, and order per article is kept: the broker lets one event of a partition be under way at a \
time. To share the load give `serve` and the workers the same --nats-partitions. Each machine that searches or renders for itself needs a \
--worker-name of its own. docs/jetstream.md tells what happens in which outage.

Examples:
  vayu-articles worker --nats nats://broker:4222 --origin https://example.org --data /var/lib/vayu-worker
  VAYU_ORIGIN_TOKEN=... vayu-articles worker --nats nats://broker:4222 --origin http://10.0.0.1:8080 --worker-name search-2
  vayu-articles worker ... --worker-handlers cdn --cdn http://127.0.0.1:6081/purge --site https://example.org
  vayu-articles outbox list --data /var/lib/vayu-worker";

pub(super) const IMPORT: &str = "\
Takes .md and .markdown files, in all folders below PATH (32 deep at most), in the order of their names. Hidden files \
and node_modules are skipped, links to folders are not entered. A file may open with YAML (---) or TOML (+++) front matter:

  title                   else the first `# ` heading, else the file's name
  slug                    else derived from the title
  date, updated, lastmod  2026-03-01, or 2026-03-01T09:30:00+01:00; else the date of a file named 2026-03-01-title.md
  tags, categories        a list, or one bare string, which is ONE tag; also below `taxonomies`
  draft: true             (or published: false) makes a draft
  type: page              (or kind: page) makes a page

A heading that gives the title is taken out of the text if it opens it. A time without a zone is taken as UTC, with a note. Other \
keys are passed over. An index.md or _index.md without a text is skipped, with a note. A file that cannot be stored is reported with its name, the line and the reason; the others are imported \
all the same. A database that fails, or a site that is read-only, ends the import: what came before is stored, and importing again goes on.

A file is known by the collection's name and its path below PATH, so importing again changes nothing. A changed file updates \
its article, unless that was edited since (it is kept, and reported) or deleted (it stays deleted, and is reported). The events \
are delivered before the command ends, unless a running `serve` on the same data does that.

Examples:
  vayu-articles import ~/blog/content
  vayu-articles import ~/blog/content --name blog     (the same collection wherever it lies)
  vayu-articles import post.md --data /var/lib/vayu";

pub(super) const CHECK: &str = "\
Reads only; a running server goes on meanwhile. Looks at the pages, indexes and references of articles.db and search.db, at the \
versions of their tables, for rows that belong to nothing, and whether search holds every published article in its newest version. \
Each line is `good`, `note` (worth knowing) or `FAULT` (to be mended). Exit code 1 if there is a FAULT, else 0.

Examples:
  vayu-articles check
  vayu-articles check --data /var/lib/vayu-articles --json";

pub(super) const BACKUP: &str = "\
One state of articles.db, articles with their outbox, in one file, made while a server writes. Never overwrites: a file that is there \
is an error (exit code 1). The copy is read once, synced to disk, and has its name only when it is whole. search.db and cache/ need no \
backup, they are rebuilt; tokens.json, tokens.lock and admin.token are not in it. Of a worker's folder it copies worker.db, with its dead letters. To restore, stop the server, move the data folder away, make a \
new one with the copy in it as articles.db, and start the server: events that were not delivered when the copy was made are \
delivered then. Until that start `check` notes that the lanes' owners are dead or have no lock file, which is no fault.

Examples:
  vayu-articles backup /backup/articles-$(date +%F).db
  vayu-articles backup --data /var/lib/vayu-articles /backup/articles.db";

pub(super) const ADOPT: &str = "\
PATH is the database file, or the folder that holds vayupress.db. It is only read, in one snapshot, and may be in use. Taken over are \
articles, drafts and pages with their ids, slugs, times and tags; scheduled posts; waiting write jobs; and pending events under their \
event ids, but those that were delivered. Each row that stays behind is printed with its table, its name and the reason. A second run adds \
nothing; after an interruption it completes the rest. Times without a zone are taken as UTC. The site must not be frozen. `serve` then applies the jobs and delivers \
the events. The page docs/coming-from-vayupress.md says what differs.

Exit code 1 means that a row was refused that should have come, or came as a dead letter; rows that stay behind by rule (dead, delivered, \
cache invalidations) do not count. With --json each such row is one JSON line, and the report is the last line.

Examples:
  vayu-articles adopt /var/lib/vayupress/vayupress.db --dry-run
  vayu-articles adopt /var/lib/vayupress --data /var/lib/vayu
  vayu-articles adopt vayupress.db --with-dead --json > adopted.jsonl";

pub(super) const SEARCH: &str = "\
Prints one article a line: its slug, its title and where it matched, separated by tabs; nothing if none matches. Words are taken \
literally and all must occur; a phrase goes in double quotes inside the query.

Examples:
  vayu-articles search outbox
  vayu-articles search '\"dead letter\" replay' --limit 5";

pub(super) const OUTBOX: &str = "\
Every command works while handlers run and while none does. What an operator does to an event that runs at that moment wins: the \
outcome of that run is not written.

With --json each prints one document. Fields are only ever added; moments are RFC 3339 in UTC; an exception has handler, id, \
state, event_type, key, attempts, crashes, replays, next_attempt_at, superseded_by, reason, edited, history (at, what, reason), \
created_at, updated_at:
  stats     last_id, lanes, types_without_lane (event_type, events)
  list      exceptions, next (for --after; null on the last page)
  show      event, undecodable, lanes (handler, state), exceptions, edited (handler, payload)
  trace     correlation_id, events (id, event_id, event_type, key, occurred_at, correlation_id, causation_id, payload)
  replay    handler, id (null for many), replayed, left
  edit      handler, id, edited
  discard   handler, id, discarded
  resume    handler, key, passed_over (ids)
  check     lanes, exceptions, mended, findings and notes (breach, handler, id, what, remedy, mendable), more

On a worker's data folder or worker.db the commands are stats, list, show, replay, edit, discard and check, over its ledger. An event is \
named by its event id, next is EVENT@HANDLER, an exception has handler, event_id, event_type, payload, key, state, attempts, crashes, \
replays, next_attempt_at, reason, history, and check prints entries, mended (0), findings (handler, event_id, what, remedy), more.

Examples:
  vayu-articles outbox stats
  vayu-articles outbox list                        (all that failed or waits)
  vayu-articles outbox list --handler search --type 'article.*' --older-than 1d --json
  vayu-articles outbox show 4711
  vayu-articles outbox trace 0197c2f0-5c5e-7c4b-9d55-0f6d3c1c5e11
  vayu-articles outbox replay search 4711
  vayu-articles outbox replay search --reason 'connection refused' --newer-than 2h
  vayu-articles outbox replay search --all
  vayu-articles outbox edit mail 4711 --payload '{\"to\": \"somebody\"}'
  vayu-articles outbox discard cdn 4711 --reason 'the page is gone'
  vayu-articles outbox resume billing order-17
  vayu-articles outbox check --fix
  vayu-articles outbox stats --database shop.db    (of a program that embeds the outbox)";

pub(super) const HANDLER: &str = "\
A handler goes back only, to deliver again; to leave events out, discard them. What failed in the past that is delivered again \
keeps its turn; dead letters stay what they are. Rename and retire a handler while the program that has it is stopped: one that \
runs with it delivers nothing more for it, and one that starts with the old name begins at the start of the log. The name of a retired \
handler is free for another one; what was discarded with it is forgotten then.

With --json each prints one document; fields are only ever added:
  list           lanes, as in `outbox stats --json`
  hold, release  handler, held
  rewind         handler, from, to (positions), done_forgotten, held
  rename         handler (the new name), from (the old one), held
  retire         handler, discarded, undelivered

Examples:
  vayu-articles handler list
  vayu-articles handler hold cdn
  vayu-articles handler release cdn
  vayu-articles handler rewind search --to 4711
  vayu-articles handler rewind search --since 2026-03-01T00:00:00Z
  vayu-articles handler backfill webhook:shop --to-start
  vayu-articles handler rename mail post-office
  vayu-articles handler retire cdn --reason 'no CDN any more'";

pub(super) const JOBS: &str = "\
A job is a write that waits: for the site to be opened, for its time, or because another program left it. Those that are due are applied in \
the order of their numbers by a running serve; what can never be applied is a dead letter at once, with its reason, and after three \
replays quarantined. Applied and cancelled jobs are kept for a day. The job that publishes a scheduled article is cancelled through \
the article: make it a draft.

Examples:
  vayu-articles jobs stats
  vayu-articles jobs list --status dead_letter
  vayu-articles jobs show 17
  vayu-articles jobs replay 17
  vayu-articles jobs discard 17 --reason 'written anew'";

pub(super) const ENQUEUE: &str = "\
One JSON object a line: operation (or op) and body; optionally run_at (RFC 3339 with its offset), correlation_id and idempotency_key \
(a second job with the same key is not inserted). A running serve picks them up within its poll interval. Operations and their bodies:

  create   an article, as the API takes it; also id, created_at, updated_at
  update   {\"slug\", \"patch\": {...}, \"expected\": {\"version\"}}      (expected may be left out)
  delete   {\"slug\", \"expected\": {...}}
  publish  {\"id\", \"publish_at\"}
  import   {\"source\", \"hash\", \"article\": {...}}

Examples:
  vayu-articles enqueue jobs.jsonl
  echo '{\"op\": \"create\", \"body\": {\"title\": \"Hello\", \"content\": \"Text.\"}}' | vayu-articles enqueue -";

pub(super) const FREEZE: &str = "\
From the next transaction on, in every process, writes are accepted as jobs (202 with the job's number) and no article changes. The \
freeze outlasts restarts; `thaw` ends it. At most 10,000 writes wait (serve --journal); beyond that 429. With --read-only they are \
refused (503).

Examples:
  vayu-articles freeze --quiesce --reason backup
  vayu-articles thaw";

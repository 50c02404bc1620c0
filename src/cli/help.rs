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

--cdn needs --site: the URLs to purge are made from it. They go out as JSON in a POST. What the CDN answers means:
  2xx, 404, 410                  done
  408, 429, 502, 503, 504        again, after Retry-After (at most 120 s) or with growing waits; it spends no attempts
  401, 403, 407                  the same, until the token is right: start again with a new one
  no answer at all               the same
  other 5xx                      again, three calls in all; then given up (a dead letter)
  400, 413, 422                  sent again in halves; a single URL that gets it is given up
  3xx, any other 4xx             given up at once: mend the settings, then `outbox replay cdn --all`

Every setting is a flag, a variable of the environment and a key of the file that --config names; a flag counts before a \
variable, that before the file. vayu-articles.example.toml has all keys; --print-config shows what a run would use and why. A \
handler's call takes 30 s at most.

Examples:
  vayu-articles serve
  vayu-articles serve --addr 127.0.0.1:0           (any free port; the address is printed)
  vayu-articles serve --data /var/lib/vayu --log warn
  vayu-articles serve --config vayu-articles.toml --print-config
  vayu-articles serve --seed samples               (fills an empty database first)
  vayu-articles serve --cdn http://127.0.0.1:6081/purge --site https://example.org";

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
all the same.

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
backup, they are rebuilt; tokens.json and admin.token are not in it. To restore, stop the server, move the data folder away, make a \
new one with the copy in it as articles.db, and start the server: events that were not delivered when the copy was made are \
delivered then.

Examples:
  vayu-articles backup /backup/articles-$(date +%F).db
  vayu-articles backup --data /var/lib/vayu-articles /backup/articles.db";

pub(super) const SEARCH: &str = "\
Prints one article a line: its slug, its title and where it matched, separated by tabs; nothing if none matches. Words are taken \
literally and all must occur; a phrase goes in double quotes inside the query.

Examples:
  vayu-articles search outbox
  vayu-articles search '\"dead letter\" replay' --limit 5";

pub(super) const OUTBOX: &str = "\
Examples:
  vayu-articles outbox stats
  vayu-articles outbox list                        (all that failed or waits)
  vayu-articles outbox list --handler search --state dead_letter --json
  vayu-articles outbox show 4711
  vayu-articles outbox replay search 4711
  vayu-articles outbox replay search --all
  vayu-articles outbox discard cdn 4711 --reason 'the page is gone'
  vayu-articles outbox stats --database shop.db    (of a program that embeds the outbox)";

pub(super) const HANDLER: &str = "\
Examples:
  vayu-articles handler list
  vayu-articles handler hold cdn
  vayu-articles handler release cdn";

# Varnish 6 or newer in front: pages come from memory, and are forgotten when an article changes.
#
#   vayu-articles serve --site https://example.org --cdn http://127.0.0.1:6081/ --cdn-shape keys --cdn-ttl 10m
#   varnishd -a :6081 -f /etc/varnish/default.vcl -s default,256m
#
# With another --addr of `serve`, change .host and .port of the backend below. Without --cdn-ttl nothing is kept.
# docs/cdn.md says what each setting does. Purges by address work, too (--cdn-shape purge or ban).
vcl 4.1;

import std;

backend server {
    .host = "127.0.0.1";
    .port = "8080";
    .connect_timeout = 2s;
    # Above the server's own deadlines, so that its answer is the one that arrives.
    .first_byte_timeout = 40s;
    .between_bytes_timeout = 60s;
    .probe = { .url = "/health/live"; .interval = 5s; .timeout = 2s; .window = 4; .threshold = 2; .initial = 2; }
}

# Who may purge, unless there is a token: the machine itself.
acl purgers {
    "127.0.0.1";
    "::1";
}

# With VAYU_PURGE_TOKEN in varnishd's environment, whoever has it (`--cdn-token`); else the machine itself, but not what a proxy on
# it passes on for others.
sub may_purge {
    if (std.getenv("VAYU_PURGE_TOKEN")) {
        if (req.http.Authorization != "Bearer " + std.getenv("VAYU_PURGE_TOKEN")) {
            return (synth(401, "Wrong token"));
        }
    } else if (client.ip !~ purgers || req.http.X-Forwarded-For ~ ",") {
        return (synth(403, "Not from here"));
    }
}

sub vcl_recv {
    if (req.method == "PURGE") {
        call may_purge;
        return (purge);
    }
    if (req.method == "BAN") {
        call may_purge;
        # The page with any query.
        if (std.ban("obj.http.X-Path == " + regsub(req.url, "\?.*$", ""))) {
            return (synth(200, "Banned"));
        }
        return (synth(400, std.ban_error()));
    }
    if (req.method == "POST" && req.url == "/" && req.http.Surrogate-Key) {
        call may_purge;
        if (req.http.Surrogate-Key !~ "^[A-Za-z0-9_-]+( [A-Za-z0-9_-]+)*$") {
            return (synth(400, "Keys are letters, digits, - and _, with spaces between them"));
        }
        if (std.ban("obj.http.Surrogate-Key ~ (^|\s)(" + regsuball(req.http.Surrogate-Key, " ", "|") + ")(\s|$)")) {
            return (synth(200, "Banned"));
        }
        return (synth(400, std.ban_error()));
    }

    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    # What somebody with a token sees is for nobody else; what the operator sees neither.
    if (req.http.Authorization || req.url ~ "^/(admin|health|metrics|api/v1/admin|api/v1/jobs)(/|\?|$)") {
        return (pass);
    }
    # Elsewhere the server reads no cookie.
    unset req.http.Cookie;
    if (req.url !~ "^/api/") {
        # A page does not depend on who links to it.
        set req.url = regsuball(req.url, "(?<=[?&])(utm_[a-z]+|gclid|fbclid|mc_[a-z]+)=[^&]*(&|$)", "");
        set req.url = regsub(req.url, "[?&]$", "");
    }
    # While the server answers, nothing is served beyond its time.
    if (std.healthy(req.backend_hint)) {
        set req.grace = 0s;
    }
    return (hash);
}

# One site, one address: what is said does not depend on what the visitor calls the host.
sub vcl_hash {
    hash_data(req.url);
    return (lookup);
}

sub vcl_backend_fetch {
    if (!bereq.uncacheable) {
        # A page that takes longer is not kept. The second purge (`--cdn-again`, 10 s) counts on this limit: what was asked for before a
        # change and comes after its purge is stale, and is here by then.
        set bereq.first_byte_timeout = 8s;
        unset bereq.http.X-Correlation-ID;
    }
}

sub vcl_backend_response {
    if (bereq.uncacheable) {
        return (deliver);
    }
    if (bereq.is_bgfetch && beresp.status >= 500) {
        return (abandon);
    }
    # Kept is what the server allows shared caches to keep, and what a purge would find; it says so with `--cdn-ttl`.
    if (beresp.http.Surrogate-Key && beresp.http.CDN-Cache-Control ~ "(^|[ ,])max-age=[0-9]+"
        && (beresp.status == 200 || beresp.status == 404) && !beresp.http.Set-Cookie) {
        set beresp.ttl = std.duration(regsub(beresp.http.CDN-Cache-Control, "^.*max-age=([0-9]+).*$", "\1") + "s", 0s);
        if (beresp.status == 404 && beresp.ttl > 60s) {
            set beresp.ttl = 60s;
        }
        # Only for a server that is down; bans reach these, too.
        set beresp.grace = 1h;
        set beresp.http.X-Path = regsub(bereq.url, "\?.*$", "");
        unset beresp.http.X-Correlation-ID;
    } else {
        # Others that ask for the same need not queue behind this one.
        set beresp.uncacheable = true;
        set beresp.ttl = 10s;
        set beresp.grace = 0s;
    }
    return (deliver);
}

sub vcl_deliver {
    unset resp.http.Surrogate-Key;
    unset resp.http.CDN-Cache-Control;
    unset resp.http.Surrogate-Control;
    unset resp.http.X-Path;
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
}

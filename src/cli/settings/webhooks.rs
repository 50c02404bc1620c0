//! The file that `--webhooks` names: one `[[webhook]]` for each endpoint.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::file::line_of;
use super::outcome::SettingsError;
use super::table::Settings;
use super::value::Value;
use crate::article::{CREATED, DELETED, UPDATED};
use crate::clock::SystemClock;
use crate::outbox::EventFilter;
use crate::sinks::webhook::{Secret, Webhook, WebhookOptions};

/// Larger than any such file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Each has a lane with its threads.
const ENDPOINTS_MAX: usize = 32;
/// The types of the events that this program writes.
const EMITTED: [&str; 3] = [CREATED, UPDATED, DELETED];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoints {
    #[serde(default)]
    webhook: Vec<Spanned<Endpoint>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    name: Spanned<String>,
    url: Spanned<String>,
    secret: Option<Spanned<OneOrMore>>,
    secret_file: Option<Spanned<PathBuf>>,
    types: Option<Spanned<Vec<String>>>,
    timeout: Option<Spanned<String>>,
    allow_private: Option<bool>,
    concurrency: Option<Spanned<usize>>,
    source: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a secret, or a list of them")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::More(secrets) => secrets,
        }
    }
}

impl Settings {
    /// The endpoints of the webhooks file, each ready to be a handler; none without such a file.
    ///
    /// # Errors
    /// The file cannot be read, or something in it cannot work; with the line. No secret is quoted.
    pub(in crate::cli) fn webhooks(&self) -> Result<Vec<Webhook>, SettingsError> {
        let Some(path) = &self.webhooks else { return Ok(Vec::new()) };
        let text = read(path)?;
        let parsed = parse(path, &text)?;
        if parsed.is_empty() {
            log::warn!(
                "event=webhooks_none file={:?} reason=\"it names no endpoint: write [[webhook]] and its fields\"",
                path.display().to_string()
            );
        }
        if parsed.iter().any(|(options, from_file)| !from_file && !options.secrets.is_empty()) {
            warn_if_open(path);
        }
        let built = parsed.into_iter().map(|(options, _)| Webhook::new(options, SystemClock::shared()));
        built.collect::<Result<_, _>>().map_err(|error| SettingsError::new(format!("{}: {error}", path.display())))
    }
}

/// Each endpoint, and whether its secrets are in a file of their own.
fn parse(path: &Path, text: &str) -> Result<Vec<(WebhookOptions, bool)>, SettingsError> {
    let at = |offset: usize, what: &str| {
        SettingsError::new(format!("{}, line {}: {what}", path.display(), line_of(text, offset)))
    };
    let endpoints: Endpoints = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        if text.get(offset..).is_some_and(|rest| rest.starts_with("[webhook]")) {
            return at(offset, "write [[webhook]], with double brackets: there may be several");
        }
        at(offset, &without_values(error.message()))
    })?;
    if endpoints.webhook.len() > ENDPOINTS_MAX {
        return Err(SettingsError::new(format!("{} has more than {ENDPOINTS_MAX} endpoints", path.display())));
    }
    let (mut names, mut all) = (BTreeSet::new(), Vec::new());
    for endpoint in endpoints.webhook {
        let whole = endpoint.span().start;
        let endpoint = endpoint.into_inner();
        let (name, from_file) = (endpoint.name.get_ref().clone(), endpoint.secret_file.is_some());
        let wrong = |fault: Fault| at(fault.offset.unwrap_or(whole), &format!("webhook {name:?}: {}", fault.what));
        let second = Fault::at(&endpoint.name, "there is another endpoint of this name");
        let options = options(path, endpoint).map_err(wrong)?;
        if !names.insert(name.clone()) {
            return Err(wrong(second));
        }
        all.push((options, from_file));
    }
    Ok(all)
}

/// What is wrong with an endpoint, and where its value begins; `None` for what concerns all of it.
struct Fault {
    offset: Option<usize>,
    what: String,
}

impl Fault {
    fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> Self {
        Self { offset: Some(value.span().start), what: what.into() }
    }
}

impl Endpoint {
    /// Where the value of a field of [`WebhookOptions`] begins.
    fn offset(&self, field: &str) -> Option<usize> {
        fn start<T>(value: Option<&Spanned<T>>) -> Option<usize> {
            value.map(|value| value.span().start)
        }
        match field {
            "name" => start(Some(&self.name)),
            "url" => start(Some(&self.url)),
            "secret" => start(self.secret.as_ref()).or_else(|| start(self.secret_file.as_ref())),
            "types" => start(self.types.as_ref()),
            "timeout" => start(self.timeout.as_ref()),
            "concurrency" => start(self.concurrency.as_ref()),
            "source" => start(self.source.as_ref()),
            _ => None,
        }
    }
}

fn options(path: &Path, endpoint: Endpoint) -> Result<WebhookOptions, Fault> {
    let secrets = secrets(path, &endpoint)?;
    let mut options = WebhookOptions::new(endpoint.name.get_ref(), endpoint.url.get_ref(), secrets);
    if let Some(types) = &endpoint.types {
        options.filter = EventFilter::Types(types.get_ref().clone());
    }
    if let Some(timeout) = &endpoint.timeout {
        options.timeout =
            Duration::read(timeout.get_ref()).map_err(|reason| Fault::at(timeout, format!("timeout: {reason}")))?;
    }
    options.allow_private = endpoint.allow_private.unwrap_or(options.allow_private);
    options.concurrency = endpoint.concurrency.as_ref().map_or(options.concurrency, |it| *it.get_ref());
    if let Some(source) = &endpoint.source {
        options.source.clone_from(source.get_ref());
    }
    options.check().map_err(|error| Fault { offset: endpoint.offset(error.field), what: error.to_string() })?;
    endpoint.types.as_ref().map_or(Ok(()), check_types)?;
    Ok(options)
}

fn secrets(path: &Path, endpoint: &Endpoint) -> Result<Vec<Secret>, Fault> {
    let (secrets, offset) = match (&endpoint.secret, &endpoint.secret_file) {
        (Some(secret), None) => (secret.get_ref().all().to_vec(), secret.span().start),
        // Its name would be quoted.
        (None, Some(file)) if file.get_ref().to_string_lossy().contains("whsec_") => {
            return Err(Fault::at(file, "secret_file names a file: a secret itself is written as `secret`"));
        }
        (None, Some(file)) => {
            let secrets = secrets_in(&path.with_file_name("").join(file.get_ref()));
            (secrets.map_err(|what| Fault::at(file, what))?, file.span().start)
        }
        (Some(_), Some(file)) => return Err(Fault::at(file, "secret and secret_file exclude each other")),
        (None, None) => {
            return Err(Fault { offset: None, what: "it needs a secret, or a secret_file".to_owned() });
        }
    };
    let secrets = secrets.iter().map(|text| text.parse::<Secret>());
    secrets
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Fault { offset: Some(offset), what: format!("secret {error}") })
}

/// This program emits few types: what matches none of them would be silent for ever.
fn check_types(types: &Spanned<Vec<String>>) -> Result<(), Fault> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => EMITTED.iter().any(|known| known.starts_with(start)),
        None => EMITTED.contains(&pattern),
    };
    match types.get_ref().iter().find(|pattern| !matches(pattern)) {
        // What stands there may be a secret in the wrong place.
        Some(stray) => {
            let stray = if stray.contains("whsec_") { String::new() } else { format!(" {stray:?}") };
            let known = EMITTED.join(", ");
            Err(Fault::at(types, format!("types: no event is of the type{stray}; there are {known}, and article.*")))
        }
        None => Ok(()),
    }
}

/// One secret a line.
fn secrets_in(file: &Path) -> Result<Vec<String>, String> {
    let text = read(file).map_err(|error| error.to_string())?;
    warn_if_open(file);
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<String, SettingsError> {
    let mut text = String::new();
    let wrong = |what: String| SettingsError::new(format!("cannot read {}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(wrong("it is larger than 1 MiB".to_owned())) } else { Ok(text) }
}

/// What was written where something else belongs may be a secret in the wrong place.
fn without_values(message: &str) -> String {
    match (message.find("string \""), message.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => format!("{}string{}", &message[..from], &message[to + 1..]),
        _ => message.trim_end().to_owned(),
    }
}

/// Secrets in a file that every user of this machine can read are none.
fn warn_if_open(path: &Path) {
    #[cfg(unix)]
    if std::fs::metadata(path).is_ok_and(|it| std::os::unix::fs::MetadataExt::mode(&it) & 0o007 != 0) {
        log::warn!(
            "event=webhook_secrets_open file={:?} reason=\"every user of this machine can read them: chmod o= it\"",
            path.display().to_string()
        );
    }
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn one(lines: &str) -> String {
        format!("[[webhook]]\nname = \"shop\"\nurl = \"https://example.org/x\"\n{lines}\n")
    }

    fn fault(text: &str) -> String {
        let said = parse(Path::new("hooks.toml"), text).map(|_| ()).unwrap_err().to_string();
        assert!(!said.contains("MfKQ"), "{said}");
        said
    }

    #[test]
    fn an_endpoint_has_defaults_and_what_the_file_says() {
        let text = one(&format!("secret = \"{SECRET}\""))
            + &format!(
                "[[webhook]]\nname = \"chat\"\nurl = \"http://10.0.0.9:81/\"\nsecret = [\"{SECRET}\", \"{SECRET}\"]\n\
                 types = [\"article.*\"]\ntimeout = \"3s\"\nallow_private = true\nconcurrency = 1\nsource = \"/blog\"\n"
            );
        let all = parse(Path::new("hooks.toml"), &text).expect("two endpoints");
        let [(shop, _), (chat, from_file)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((shop.timeout, shop.allow_private, shop.concurrency), (Duration::from_secs(10), false, 4));
        assert_eq!((&shop.filter, shop.secrets.len()), (&EventFilter::All, 1));
        assert_eq!((chat.timeout, chat.allow_private, chat.concurrency), (Duration::from_secs(3), true, 1));
        assert_eq!(chat.filter, EventFilter::Types(vec!["article.*".to_owned()]));
        assert_eq!((chat.secrets.len(), chat.source.as_str(), *from_file), (2, "/blog", false));
        assert!(parse(Path::new("hooks.toml"), "").expect("none").is_empty());
    }

    #[test]
    fn secrets_may_stand_in_a_file_of_their_own_beside_the_other() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("shop.secret"), format!("\n{SECRET}\n  {SECRET}\n")).expect("written");
        let all = parse(&folder.path().join("hooks.toml"), &one("secret_file = \"shop.secret\"")).expect("an endpoint");
        assert_eq!((all[0].0.secrets.len(), all[0].1), (2, true));
        let text = one("secret_file = \"other.secret\"");
        let said = parse(&folder.path().join("hooks.toml"), &text).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains("line 4") && said.contains("cannot read") && said.contains("other.secret"), "{said}");
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_with_its_line_and_without_secrets() {
        let good = format!("secret = \"{SECRET}\"");
        for (lines, line, part) in [
            ("type = [\"article.*\"]", 5, "unknown field `type`, expected one of `name`, `url`"),
            ("types = \"article.*\"", 5, "invalid type: string, expected a sequence"),
            ("timeout = 5", 5, "expected a string"),
            ("timeout = \"5\"", 5, "webhook \"shop\": timeout: write a whole number"),
            ("timeout = \"26s\"", 5, "webhook \"shop\": timeout must be above zero and at most 25s"),
            ("allow_private = \"whsec_MfKQ\"", 5, "invalid type: string, expected a boolean"),
            ("types = [\"a*b\"]", 5, "types must be event types"),
            ("secret_file = \"x\"", 5, "exclude each other"),
            ("concurrency = 65", 5, "concurrency must be 1 to 64"),
            ("concurrency = -1", 5, "integer"),
            ("name = \"shop\"", 5, "duplicate key"),
            ("secret = \"whsec_MfKQ", 5, ""),
            ("\n\n[webhooks]", 7, "unknown field `webhooks`, expected `webhook`"),
        ] {
            let said = fault(&one(&format!("{good}\n{lines}")));
            assert!(said.starts_with(&format!("hooks.toml, line {line}: ")) && said.contains(part), "{lines}: {said}");
        }
        assert!(fault(&one("secret = 5")).contains("line 4: expected a secret, or a list of them"));
        let plain = fault(&one("secret = \"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\""));
        assert!(
            plain.contains("line 4: webhook \"shop\": secret") && plain.contains("must begin with whsec_"),
            "{plain}"
        );
        let in_its_place = fault(&one(&format!("secret_file = \"{SECRET}\"")));
        assert!(in_its_place.contains("secret_file names a file"), "{in_its_place}");
        assert!(fault(&one("")).contains("line 1: webhook \"shop\": it needs a secret"));
        let private = fault(&one(&good).replace("https://example.org", "http://127.0.0.1"));
        assert!(private.contains("line 3: webhook \"shop\": url is refused") && private.contains("allow_private"));
        assert!(fault(&(one(&good) + &one(&good))).contains("line 6: webhook \"shop\": there is another"));
        assert!(fault(&one(&good).replace("\"shop\"", "\"Shop\"")).contains("line 2: webhook \"Shop\": name must be"));
        assert!(fault(&one(&good).replace("url", "uri")).contains("unknown field `uri`"));
        assert!(fault("[[webhook]]\nname = \"a\"\n").contains("missing field `url`"));
        assert!(fault("# one\n[webhook]\nname = \"a\"\n").contains("line 2: write [[webhook]], with double brackets"));
        let many: String = (0..33).map(|n| one(&good).replace("shop", &format!("shop-{n}"))).collect();
        assert!(fault(&many).contains("more than 32 endpoints"));
    }

    #[test]
    fn a_type_that_no_event_has_is_refused_with_the_types_there_are() {
        let with = |types: &str| one(&format!("secret = \"{SECRET}\"\ntypes = {types}"));
        for good in
            ["[\"*\"]", "[\"article.*\"]", "[\"article.up*\", \"article.deleted.v1\"]", "[\"article.created.v1*\"]"]
        {
            parse(Path::new("hooks.toml"), &with(good)).expect(good);
        }
        for bad in
            ["[\"artcle.*\"]", "[\"article.*\", \"article.deleted\"]", "[\"article.created.v1.*\"]", "[\"Article.*\"]"]
        {
            let said = fault(&with(bad));
            assert!(said.contains("line 5: webhook \"shop\": types: no event is of the type \""), "{said}");
            assert!(
                said.ends_with("article.created.v1, article.updated.v1, article.deleted.v1, and article.*"),
                "{said}"
            );
        }
        assert!(fault(&with(&format!("[\"{SECRET}\"]"))).contains("no event is of the type; there are"));
    }
}

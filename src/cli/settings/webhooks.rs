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
use crate::clock::SystemClock;
use crate::outbox::EventFilter;
use crate::sinks::webhook::{Secret, Webhook, WebhookOptions};

/// Larger than any such file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Each has a lane with its threads.
const ENDPOINTS_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoints {
    #[serde(default)]
    webhook: Vec<Spanned<Endpoint>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    name: String,
    url: String,
    secret: Option<OneOrMore>,
    secret_file: Option<PathBuf>,
    types: Option<Vec<String>>,
    timeout: Option<String>,
    allow_private: Option<bool>,
    concurrency: Option<usize>,
    source: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a secret, or a list of them")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
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
    let endpoints: Endpoints = toml::from_str(text)
        .map_err(|error| at(error.span().map_or(0, |span| span.start), &without_values(error.message())))?;
    if endpoints.webhook.len() > ENDPOINTS_MAX {
        return Err(SettingsError::new(format!("{} has more than {ENDPOINTS_MAX} endpoints", path.display())));
    }
    let (mut names, mut all) = (BTreeSet::new(), Vec::new());
    for endpoint in endpoints.webhook {
        let offset = endpoint.span().start;
        let endpoint = endpoint.into_inner();
        let (name, from_file) = (endpoint.name.clone(), endpoint.secret_file.is_some());
        let wrong = |what: String| at(offset, &format!("webhook {name:?}: {what}"));
        let options = options(path, endpoint).map_err(wrong)?;
        if !names.insert(name.clone()) {
            return Err(wrong("there is another endpoint of this name".to_owned()));
        }
        all.push((options, from_file));
    }
    Ok(all)
}

fn options(path: &Path, endpoint: Endpoint) -> Result<WebhookOptions, String> {
    let secrets = match (endpoint.secret, endpoint.secret_file) {
        (Some(OneOrMore::One(secret)), None) => vec![secret],
        (Some(OneOrMore::More(secrets)), None) => secrets,
        // Its name would be quoted.
        (None, Some(file)) if file.to_string_lossy().contains("whsec_") => {
            return Err("secret_file names a file: a secret itself is written as `secret`".to_owned());
        }
        (None, Some(file)) => secrets_in(&path.with_file_name("").join(file))?,
        (Some(_), Some(_)) => return Err("secret and secret_file exclude each other".to_owned()),
        (None, None) => return Err("it needs a secret, or a secret_file".to_owned()),
    };
    let secrets = secrets.iter().map(|text| text.parse::<Secret>());
    let secrets = secrets.collect::<Result<Vec<_>, _>>().map_err(|error| format!("secret {error}"))?;
    let mut options = WebhookOptions::new(endpoint.name, endpoint.url, secrets);
    if let Some(types) = endpoint.types {
        options.filter = EventFilter::Types(types);
    }
    if let Some(timeout) = endpoint.timeout {
        options.timeout = Duration::read(&timeout).map_err(|reason| format!("timeout: {reason}"))?;
    }
    options.allow_private = endpoint.allow_private.unwrap_or(options.allow_private);
    options.concurrency = endpoint.concurrency.unwrap_or(options.concurrency);
    options.source = endpoint.source.unwrap_or(options.source);
    options.check().map_err(|error| error.to_string())?;
    Ok(options)
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
        assert!(said.contains("line 1") && said.contains("cannot read") && said.contains("other.secret"), "{said}");
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_with_its_line_and_without_secrets() {
        let good = format!("secret = \"{SECRET}\"");
        for (lines, line, part) in [
            ("type = [\"article.*\"]", 5, "unknown field `type`, expected one of `name`, `url`"),
            ("types = \"article.*\"", 5, "invalid type: string, expected a sequence"),
            ("timeout = 5", 5, "expected a string"),
            ("timeout = \"5\"", 1, "webhook \"shop\": timeout: write a whole number"),
            ("timeout = \"26s\"", 1, "webhook \"shop\": timeout must be above zero and at most 25s"),
            ("allow_private = \"whsec_MfKQ\"", 5, "invalid type: string, expected a boolean"),
            ("types = [\"a*b\"]", 1, "types must be event types"),
            ("secret_file = \"x\"", 1, "exclude each other"),
            ("concurrency = 65", 1, "concurrency must be 1 to 64"),
            ("concurrency = -1", 5, "integer"),
            ("name = \"shop\"", 5, "duplicate key"),
            ("secret = \"whsec_MfKQ", 5, ""),
            ("\n\n[webhooks]", 7, "unknown field `webhooks`, expected `webhook`"),
        ] {
            let said = fault(&one(&format!("{good}\n{lines}")));
            assert!(said.starts_with(&format!("hooks.toml, line {line}: ")) && said.contains(part), "{lines}: {said}");
        }
        assert!(fault(&one("secret = 5")).contains("line 4: expected a secret, or a list of them"));
        assert!(fault(&one("secret = \"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"")).contains("must begin with whsec_"));
        let in_its_place = fault(&one(&format!("secret_file = \"{SECRET}\"")));
        assert!(in_its_place.contains("secret_file names a file"), "{in_its_place}");
        assert!(fault(&one("")).contains("line 1: webhook \"shop\": it needs a secret"));
        assert!(fault(&one(&good).replace("https://example.org", "http://127.0.0.1")).contains("allow_private"));
        assert!(fault(&(one(&good) + &one(&good))).contains("line 5: webhook \"shop\": there is another"));
        assert!(fault(&one(&good).replace("\"shop\"", "\"Shop\"")).contains("line 1: webhook \"Shop\": name must be"));
        assert!(fault(&one(&good).replace("url", "uri")).contains("unknown field `uri`"));
        assert!(fault("[[webhook]]\nname = \"a\"\n").contains("missing field `url`"));
        assert!(fault("[webhook]\nname = \"a\"\n").contains("line 1: "));
        let many: String = (0..33).map(|n| one(&good).replace("shop", &format!("shop-{n}"))).collect();
        assert!(fault(&many).contains("more than 32 endpoints"));
    }
}

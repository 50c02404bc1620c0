//! Which of several places a setting was taken from.

use std::fmt;
use std::path::{Path, PathBuf};

use super::file::{self, Entry};
use super::flags::Given;
use super::table::{Row, Settings, TABLE};
use super::value::Value;

/// Where a setting came from, the weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    /// The line of the file.
    File(usize),
    Variable,
    Flag,
}

/// What a setting turned out to be.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) row: &'static Row,
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// Why there are no settings to run with: what is wrong, where, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingsError {
    message: String,
}

impl SettingsError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SettingsError {}

/// A settings file, read.
#[derive(Debug, Clone)]
pub(super) struct FileText {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl FileText {
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| SettingsError::new(format!("cannot read the settings in {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), text })
    }
}

impl Settings {
    /// Flags before variables before the file before the defaults. A variable that is set to nothing counts as unset.
    pub(super) fn layered(
        flags: &Given,
        variable: &dyn Fn(&str) -> Option<String>,
        file: Option<&FileText>,
    ) -> Result<Self, SettingsError> {
        let entries = file.map(|file| file::entries(&file.path, &file.text)).transpose()?.unwrap_or_default();
        let outcomes: Vec<_> = TABLE.iter().map(|row| outcome(row, flags, variable, &entries)).collect();
        for outcome in &outcomes {
            outcome.check(file)?;
        }
        let settings = Self::from_outcomes(outcomes)?;
        settings.check_together()?;
        Ok(settings)
    }

    /// The outcome of the setting with this flag.
    pub(super) fn outcome(&self, flag: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.row.flag == flag)
    }

    /// What one setting needs of another.
    fn check_together(&self) -> Result<(), SettingsError> {
        if self.cdn.is_some() && self.site.is_none() {
            return Err(SettingsError::new(
                "--cdn (VAYU_CDN, cdn.url) needs --site (VAYU_SITE, server.site): the URLs to purge are made from it",
            ));
        }
        if self.cdn_token.is_some() && self.cdn.is_none() {
            return Err(SettingsError::new("--cdn-token (VAYU_CDN_TOKEN, cdn.token) needs --cdn (VAYU_CDN, cdn.url)"));
        }
        if let Some(delay) = self.cdn_again.0
            && delay > crate::sinks::cdn::DELAY_MAX
        {
            return Err(SettingsError::new("--cdn-again (VAYU_CDN_AGAIN, cdn.again) must be at most 20s, or off"));
        }
        if self.max_bodies.0 < self.max_body.0 {
            return Err(SettingsError::new(
                "--max-bodies (server.max_bodies) must not be below --max-body (server.max_body)",
            ));
        }
        if self.backoff_max < self.backoff {
            return Err(SettingsError::new(
                "--backoff-max (outbox.backoff_max) must not be below --backoff (outbox.backoff)",
            ));
        }
        Ok(())
    }
}

fn outcome(row: &'static Row, flags: &Given, variable: &dyn Fn(&str) -> Option<String>, entries: &[Entry]) -> Outcome {
    if let Some(text) = flags.get(row.flag) {
        return Outcome { row, text: text.to_owned(), origin: Origin::Flag };
    }
    if let Some(text) = variable(row.variable).filter(|text| !text.is_empty()) {
        return Outcome { row, text, origin: Origin::Variable };
    }
    if let Some(entry) = entries.iter().find(|entry| entry.key == row.key) {
        return Outcome { row, text: entry.text.clone(), origin: Origin::File(entry.line) };
    }
    Outcome { row, text: row.default.to_owned(), origin: Origin::Default }
}

impl Outcome {
    /// The value of an outcome that was checked.
    pub(super) fn read<T: Value>(outcome: Option<&Self>) -> Result<T, SettingsError> {
        let outcome = outcome.ok_or_else(|| SettingsError::new("a setting has no outcome"))?;
        T::read(&outcome.text).map_err(|reason| SettingsError::new(format!("{}: {reason}", outcome.row.key)))
    }

    /// Where it came from, for people.
    #[cfg(feature = "server")]
    pub(super) fn place(&self) -> String {
        match &self.origin {
            Origin::Default => "default".to_owned(),
            Origin::File(line) => format!("file, line {line}"),
            Origin::Variable => format!("environment, {}", self.row.variable),
            Origin::Flag => format!("flag, --{}", self.row.flag),
        }
    }

    fn check(&self, file: Option<&FileText>) -> Result<(), SettingsError> {
        let Err(reason) = (self.row.check)(&self.text) else { return Ok(()) };
        let place = match (&self.origin, file) {
            (Origin::File(line), Some(file)) => format!("{}, line {line}: {}", file.path.display(), self.row.key),
            (Origin::Flag, _) => format!("--{}", self.row.flag),
            _ => self.row.variable.to_owned(),
        };
        let shown = if self.row.secret { String::new() } else { format!(" is {:?}", self.text) };
        Err(SettingsError::new(format!("{place}{shown}: {reason}")))
    }
}

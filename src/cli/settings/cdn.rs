//! The settings of caches in front of the site: how they are purged, and what pages tell them.

use std::time::Duration;

use super::outcome::SettingsError;
use super::table::Settings;
use super::value::Value;
use crate::clock::SystemClock;
#[cfg(feature = "server")]
use crate::http::Edge;
use crate::sinks::cdn::{CdnAgain, CdnOptions, CdnOptionsError, CdnPurge, CdnShape, SITE_PATHS};

/// The handlers that purge.
#[derive(Debug, Clone)]
pub(in crate::cli) struct CdnLanes {
    pub(in crate::cli) purge: CdnPurge,
    /// Unless the second purge is off.
    pub(in crate::cli) again: Option<CdnAgain>,
}

/// A time, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOrOff(pub Option<Duration>);

impl Value for TimeOrOff {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            _ => Duration::read(text).map(|time| Self(Some(time))).map_err(|reason| format!("{reason}; or off")),
        }
    }
}

impl Value for CdnShape {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: crate::sinks::cdn::UnknownShape| error.to_string())
    }
}

impl Settings {
    /// The CDN to purge, if one is set.
    ///
    /// # Errors
    /// A setting cannot work.
    pub(in crate::cli) fn cdn(&self) -> Result<Option<CdnLanes>, SettingsError> {
        if let Some(site) = &self.site {
            check_site(site)?;
        }
        let (Some(endpoint), Some(site)) = (&self.cdn, &self.site) else { return Ok(None) };
        let mut options = CdnOptions::new(endpoint, site);
        options.shape = self.cdn_shape;
        options.method.clone_from(&self.cdn_method);
        options.key_header.clone_from(&self.cdn_key_header);
        options.token = self.cdn_token.as_ref().map(|token| token.reveal().to_owned());
        options.token_header.clone_from(&self.cdn_token_header);
        options.timeout = self.cdn_timeout;
        options.further_paths = SITE_PATHS.iter().map(|path| (*path).to_owned()).collect();
        let again = |delay| CdnAgain::new(options.clone(), delay, SystemClock::shared());
        Ok(Some(CdnLanes {
            again: self.cdn_again.0.map(again).transpose().map_err(refused)?,
            purge: CdnPurge::new(options, SystemClock::shared()).map_err(refused)?,
        }))
    }

    /// What pages tell the caches in front: nothing, unless one is purged or may keep pages.
    ///
    /// # Errors
    /// A setting cannot work.
    #[cfg(feature = "server")]
    pub(in crate::cli) fn edge(&self) -> Result<Option<Edge>, SettingsError> {
        if self.cdn.is_none() && self.cdn_ttl.is_none() {
            return Ok(None);
        }
        if self.cdn_ttl.is_none() && self.cdn_shape != CdnShape::Json {
            log::warn!(
                "event=cdn_keeps_nothing shape={} reason=\"pages do not say how long a cache may keep them, so one that \
                 goes by that, as with deploy/varnish.vcl, keeps none: set --cdn-ttl, such as 10m\"",
                format!("{:?}", self.cdn_shape).to_lowercase()
            );
        }
        Edge::new(self.cdn_shape, &self.cdn_key_header, self.cdn_ttl).map(Some).map_err(refused)
    }
}

fn refused(error: CdnOptionsError) -> SettingsError {
    let option = match error.field {
        "endpoint" => "--cdn",
        "base_url" => "--site",
        "token" => "--cdn-token",
        "token_header" => "--cdn-token-header",
        "key_header" => "--cdn-key-header",
        "method" => "--cdn-method",
        "delay" => "--cdn-again",
        _ => "--cdn, --site",
    };
    SettingsError::new(format!("{option} {}", error.reason))
}

/// # Errors
/// Pages cannot have such addresses.
fn check_site(url: &str) -> Result<(), SettingsError> {
    let uri = url.parse::<ureq::http::Uri>().ok();
    let known = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    });
    if known { Ok(()) } else { Err(SettingsError::new("--site must be an http or https URL with a host and no query")) }
}

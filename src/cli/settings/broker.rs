//! The settings of NATS and of a worker as the options of those parts.

use super::outcome::SettingsError;
use super::table::Settings;
use crate::sinks::nats::NatsOptions;
use crate::worker::{OriginOptions, WorkerOptions};

impl Settings {
    /// The broker, if one is set.
    ///
    /// # Errors
    /// A setting cannot work.
    pub(in crate::cli) fn nats(&self) -> Result<Option<NatsOptions>, SettingsError> {
        let Some(servers) = &self.nats else { return Ok(None) };
        let servers = servers.reveal().split(',').map(str::trim).filter(|server| !server.is_empty());
        let mut options = NatsOptions::new(servers);
        options.stream.clone_from(&self.nats_stream);
        options.prefix.clone_from(&self.nats_prefix);
        options.partitions = self.nats_partitions.map_or(0, |count| count.0);
        options.credentials.clone_from(&self.nats_creds);
        options.tls_ca.clone_from(&self.nats_ca);
        options.tls_client = match (&self.nats_cert, &self.nats_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(SettingsError::new("--nats-cert and --nats-key need each other")),
        };
        options.tls_required = self.nats_tls;
        options.connect_timeout = self.nats_connect_timeout;
        options.ack_timeout = self.nats_ack_timeout;
        options.window = self.nats_window.len();
        options.max_age = self.nats_max_age;
        options.source.clone_from(&self.nats_source);
        options.check().map_err(|error| SettingsError::new(error.to_string()))?;
        Ok(Some(options))
    }

    /// A worker's options.
    ///
    /// # Errors
    /// No broker is set, or a setting cannot work.
    pub(in crate::cli) fn worker(&self) -> Result<WorkerOptions, SettingsError> {
        let nats = self.nats()?.ok_or_else(|| SettingsError::new("a worker needs --nats URLS"))?;
        let mut options = WorkerOptions::new(nats);
        options.name.clone_from(&self.worker_name);
        options.in_flight = self.in_flight.0;
        options.ack_wait = self.ack_wait;
        options.policy = self.relay().policy;
        Ok(options)
    }

    /// Where a worker's articles are.
    ///
    /// # Errors
    /// No origin is set.
    pub(in crate::cli) fn origin(&self) -> Result<OriginOptions, SettingsError> {
        let url = self.origin.as_deref().ok_or_else(|| SettingsError::new("a worker needs --origin URL"))?;
        let mut options = OriginOptions::new(url);
        options.token = self.origin_token.as_ref().map(|token| token.reveal().to_owned());
        options.timeout = self.origin_timeout;
        Ok(options)
    }
}

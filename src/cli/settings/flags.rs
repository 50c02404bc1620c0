//! The settings as clap's arguments. Everything but the flags is looked up elsewhere, so clap is given neither the
//! defaults nor the variables, only told to show them.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::table::{Row, Scope, TABLE};

/// The flags of settings that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(BTreeMap<&'static str, String>);

/// Settings that every command has as flags.
#[derive(Debug, Clone, Default)]
pub struct SharedFlags(Given);

/// Settings that every command has as flags which delivers events.
#[derive(Debug, Clone, Default)]
pub struct DeliverFlags(Given);

/// Those of `serve`.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Default)]
pub struct ServeFlags(Given);

/// Those of `worker`.
#[cfg(feature = "nats")]
#[derive(Debug, Clone, Default)]
pub struct WorkerFlags(Given);

impl Given {
    /// What was given for this flag.
    pub(super) fn get(&self, flag: &str) -> Option<&str> {
        self.0.get(flag).map(String::as_str)
    }

    /// Both together.
    pub(super) fn and(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().map(|(flag, text)| (*flag, text.clone())));
        self
    }

    #[cfg(test)]
    pub(super) fn of(pairs: &[(&'static str, &str)]) -> Self {
        Self(pairs.iter().map(|(flag, text)| (*flag, (*text).to_owned())).collect())
    }

    fn found(matches: &ArgMatches, scopes: &[Scope]) -> Self {
        let text = |row: &Row| matches.try_get_one::<String>(row.flag).ok().flatten().cloned();
        Self(rows(scopes).filter_map(|row| Some((row.flag, text(row)?))).collect())
    }
}

fn rows(scopes: &[Scope]) -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| scopes.contains(&row.scope))
}

fn add(command: Command, scopes: &[Scope]) -> Command {
    rows(scopes).fold(command, |command, row| command.arg(arg(row)))
}

fn arg(row: &'static Row) -> Arg {
    let mut help = format!("{} [env: {}]", row.help, row.variable);
    if !row.default.is_empty() {
        help.push_str(&format!(" [default: {}]", row.default));
    }
    let check = move |text: &str| (row.check)(text).map(|()| text.to_owned());
    Arg::new(row.flag)
        .long(row.flag)
        .value_name(row.unit)
        .help(help)
        .help_heading(heading(row))
        .global(row.scope == Scope::Every)
        .value_parser(check)
}

/// The section of the file, so that the help has the settings in groups.
fn heading(row: &Row) -> &'static str {
    match row.key.split_once('.') {
        Some(("server", _)) => "Server",
        Some(("database", _)) => "Database",
        Some(("outbox", _)) => "Outbox",
        Some(("cache", _)) => "Cache of rendered pages",
        Some(("cdn", _)) => "CDN",
        Some(("webhooks", _)) => "Webhooks",
        Some(("nats", _)) => "NATS JetStream",
        Some(("worker", _)) => "Worker",
        _ => "Options",
    }
}

macro_rules! flags {
    ($($name:ident: $scopes:expr;)*) => {$(
        impl $name {
            /// The flags that were given.
            pub(in crate::cli) fn given(&self) -> &Given {
                &self.0
            }
        }

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                add(command, $scopes)
            }

            fn augment_args_for_update(command: Command) -> Command {
                add(command, $scopes)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(Given::found(matches, $scopes)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = std::mem::take(&mut self.0).and(&Given::found(matches, $scopes));
                Ok(())
            }
        }
    )*};
}

flags! {
    SharedFlags: &[Scope::Every];
    DeliverFlags: &[Scope::Deliver];
}

#[cfg(feature = "server")]
flags! {
    ServeFlags: &[Scope::Deliver, Scope::Broker, Scope::Serve];
}

#[cfg(feature = "nats")]
flags! {
    WorkerFlags: &[Scope::Worker, Scope::Broker, Scope::Deliver];
}

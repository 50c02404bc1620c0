//! What the program may be told: by a flag, else by the environment, else by a file, else a default.
//!
//! [`table`] has one line for each setting; to add one is to add a line there, and its text to the example file.

#[cfg(feature = "nats")]
mod broker;
mod cdn;
mod choices;
mod data_dir;
mod file;
mod flags;
mod outcome;
#[cfg(feature = "server")]
mod print;
mod table;
#[cfg(all(test, feature = "server"))]
mod tests;
mod uses;
mod value;
#[cfg(feature = "server")]
mod webhooks;

pub(super) use cdn::CdnLanes;
#[cfg(feature = "server")]
pub use choices::TokenRole;
pub(super) use choices::collection;
pub use choices::{ListState, LogFormat, LogLevel};
pub(super) use data_dir::DataDir;
#[cfg(feature = "server")]
pub use flags::ServeFlags;
#[cfg(feature = "nats")]
pub use flags::WorkerFlags;
pub use flags::{DeliverFlags, SharedFlags};
pub use outcome::SettingsError;
pub use table::Settings;
pub use value::Secret;

use std::path::Path;

use flags::Given;
use outcome::FileText;

impl Settings {
    /// The settings of a run with these flags and this file.
    ///
    /// # Errors
    /// The file cannot be read or has something in it that is no setting, or a value is wrong.
    pub(super) fn load(file: Option<&Path>, flags: &[&Given]) -> Result<Self, SettingsError> {
        let file = file.map(FileText::read).transpose()?;
        let given = flags.iter().fold(Given::default(), |all, some| all.and(some));
        let variable = |name: &str| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self::layered(&given, &variable, file.as_ref())
    }
}

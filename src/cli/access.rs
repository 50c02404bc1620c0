//! Settings of who may write, as the server takes them.

use std::net::SocketAddr;

use super::CliError;
use super::settings::{DataDir, Settings};
use crate::http::access::{AccessOptions, AdminToken, TokenStore};

/// The administrator's token; in the environment, since others could read it on a command line.
pub(super) const ADMIN_VARIABLE: &str = "VAYU_ADMIN_TOKEN";

/// Where the tokens for a server come from. Touches nothing.
///
/// # Errors
/// The settings do not fit each other or the address, or the named tokens cannot be read.
pub(super) fn options(dir: &DataDir, settings: &Settings) -> Result<AccessOptions, CliError> {
    let given = match std::env::var(ADMIN_VARIABLE) {
        Ok(token) => Some(token),
        Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(CliError::Usage(format!("{ADMIN_VARIABLE}: {error}"))),
    };
    let admin = match (given, &settings.token_file) {
        (Some(_), Some(_)) => {
            return Err(CliError::Usage(format!("give either {ADMIN_VARIABLE} or --token-file, not both")));
        }
        (Some(token), None) => AdminToken::Given(token),
        (None, Some(path)) => AdminToken::File(path.clone()),
        (None, None) => {
            may_be_made(dir, settings.addr)?;
            AdminToken::Made(dir.admin_token())
        }
    };
    Ok(AccessOptions { admin, tokens: dir.tokens() })
}

/// Whoever opens the program to others has to have thought about who may write.
fn may_be_made(dir: &DataDir, addr: SocketAddr) -> Result<(), CliError> {
    if addr.ip().is_loopback() {
        return Ok(());
    }
    let named = TokenStore::new(dir.tokens()).list().map_err(|error| CliError::failed(error.to_string()))?;
    if named.is_empty() {
        return Err(CliError::Usage(format!(
            "{addr} can be reached from other machines, and nobody has set a token: set {ADMIN_VARIABLE} or --token-file, \
             or add one with `tokens add NAME --role admin`; or serve 127.0.0.1 and put a proxy in front"
        )));
    }
    Ok(())
}

//! `tokens add|list|remove`.

use std::path::Path;

use super::output::{Output, say};
use super::settings::DataDir;
use super::{CliError, TokensArgs, TokensCommand, exit};
use crate::clock::{Clock, SystemClock};
use crate::http::access::{AccessError, TokenStore};

/// Runs one of the commands on the data folder's tokens. A running server takes the change up by itself.
pub(super) fn run(data: &Path, args: &TokensArgs) -> Result<u8, CliError> {
    let mut out = Output::new();
    match &args.command {
        TokensCommand::Add(args) => {
            let dir = DataDir::for_articles(data)?;
            let token = store(&dir).add(&args.name, args.role.into(), SystemClock.now_ms()).map_err(refused)?;
            out.line(&token)?;
            out.flush()?;
            say(&format!("keep it now: only its digest is stored. {} may {}", args.name, args.role.allows()));
        }
        TokensCommand::List => list(&DataDir::at(data), &mut out)?,
        TokensCommand::Remove(args) => {
            store(&DataDir::at(data)).remove(&args.name).map_err(refused)?;
            out.line(&format!("the token {} is removed, and refused from now on", args.name))?;
        }
    }
    out.flush()?;
    Ok(exit::OK)
}

fn list(dir: &DataDir, out: &mut Output) -> Result<(), CliError> {
    let tokens = store(dir).list().map_err(refused)?;
    if tokens.is_empty() {
        say("no named tokens; `tokens add NAME` makes one");
    } else {
        let rows: Vec<_> =
            tokens.into_iter().map(|token| [token.name, token.role.to_string(), token.created_at]).collect();
        out.table(["NAME", "ROLE", "ADDED"], &rows)?;
    }
    if dir.admin_token().exists() {
        out.flush()?;
        say(&format!("the administrator's token stands in {}", dir.admin_token().display()));
    }
    Ok(())
}

fn store(dir: &DataDir) -> TokenStore {
    TokenStore::new(dir.tokens())
}

fn refused(error: AccessError) -> CliError {
    match error {
        AccessError::BadName(_) => CliError::Usage(error.to_string()),
        error => CliError::failed(error.to_string()),
    }
}

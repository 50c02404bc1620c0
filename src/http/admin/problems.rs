//! An operator's act that was refused, as an answer.

use hyper::StatusCode;

use crate::article::ArticleError;
use crate::http::problem::Problem;
use crate::outbox::{DiscardError, HoldError, ReplayError, ResumeError};
use crate::queue::WriteError;
use crate::storage::TransactError;

/// A refusal of the outbox with its code; what the database has to say is worded as for any write.
pub(in crate::http) fn act_failed<E: Refusal>(error: TransactError<E>) -> Problem {
    let stored = match error {
        TransactError::Task(refusal) => match refusal.code() {
            Some((status, code)) => return Problem::new(status, code, refusal.to_string()),
            None => match refusal.into_sqlite() {
                Some(error) => TransactError::Task(ArticleError::Sqlite(error)),
                None => TransactError::Panicked("an act was refused without a reason".to_owned()),
            },
        },
        TransactError::TooLarge { bytes, limit } => TransactError::TooLarge { bytes, limit },
        TransactError::Saturated { jobs, bytes } => TransactError::Saturated { jobs, bytes },
        TransactError::Stopped => TransactError::Stopped,
        TransactError::DeadlineExceeded => TransactError::DeadlineExceeded,
        TransactError::Database(fault) => TransactError::Database(fault),
        TransactError::OutcomeUnknown(what) => TransactError::OutcomeUnknown(what),
        TransactError::Panicked(what) => TransactError::Panicked(what),
        TransactError::Refused(what) => TransactError::Refused(what),
        TransactError::WouldDeadlock => TransactError::WouldDeadlock,
    };
    WriteError::from(stored).into()
}

/// Why the outbox refuses an act.
pub(in crate::http) trait Refusal: std::fmt::Display {
    /// Status and code; `None` when SQLite failed.
    fn code(&self) -> Option<(StatusCode, &'static str)>;
    fn into_sqlite(self) -> Option<rusqlite::Error>;
}

/// Declares the codes of one error; `Sqlite` has none.
macro_rules! refusal {
    ($error:ident, $($variant:pat => $status:ident $code:literal),+ $(,)?) => {
        impl Refusal for $error {
            fn code(&self) -> Option<(StatusCode, &'static str)> {
                match self {
                    $($variant => Some((StatusCode::$status, $code)),)+
                    Self::Sqlite(_) => None,
                }
            }

            fn into_sqlite(self) -> Option<rusqlite::Error> {
                match self {
                    Self::Sqlite(error) => Some(error),
                    _ => None,
                }
            }
        }
    };
}

refusal!(ReplayError,
    Self::NotFound => NOT_FOUND "not_found",
    Self::NoHandler => NOT_FOUND "not_found",
    Self::NotDead(_) => CONFLICT "not_dead",
    Self::Delivered => CONFLICT "delivered",
    Self::NotYetDelivered => CONFLICT "not_yet_delivered",
    Self::NotWanted => CONFLICT "not_wanted",
    Self::Superseded { .. } => CONFLICT "superseded",
    Self::TooOften => CONFLICT "too_often",
    Self::EventMissing => CONFLICT "event_missing",
);
refusal!(DiscardError,
    Self::NotFound => NOT_FOUND "not_found",
    Self::Delivered => CONFLICT "delivered",
    Self::Closed(_) => CONFLICT "closed",
);
refusal!(HoldError,
    Self::NotFound => NOT_FOUND "not_found",
    Self::StillOwned { .. } => CONFLICT "still_owned",
);
refusal!(ResumeError,
    Self::NotParked => CONFLICT "not_parked",
);

//! The table of `std::io::Error`.

use std::io::{self, ErrorKind as Kind};

use super::Class::{self, Retry, Unavailable};
use crate::outbox::DispatchError;

/// Every kind that is stable, and what it counts as. What would hit the next event as well is an outage: the lane pauses
/// and keeps its place. If it is this event's own trouble after all, the next event of another key goes well, and the
/// policy counts it as a failure of this one. Nothing here is poison: no kind tells that a further try is useless.
const KINDS: &[(Kind, Class)] = &[
    // The other side, or the way to it.
    (Kind::ConnectionRefused, Unavailable),
    (Kind::ConnectionReset, Unavailable),
    (Kind::ConnectionAborted, Unavailable),
    (Kind::NotConnected, Unavailable),
    (Kind::BrokenPipe, Unavailable),
    (Kind::UnexpectedEof, Unavailable),
    (Kind::TimedOut, Unavailable),
    (Kind::WouldBlock, Unavailable),
    (Kind::HostUnreachable, Unavailable),
    (Kind::NetworkUnreachable, Unavailable),
    (Kind::NetworkDown, Unavailable),
    (Kind::StaleNetworkFileHandle, Unavailable),
    // This machine: addresses, memory, disk, rights.
    (Kind::AddrInUse, Unavailable),
    (Kind::AddrNotAvailable, Unavailable),
    (Kind::OutOfMemory, Unavailable),
    (Kind::StorageFull, Unavailable),
    (Kind::QuotaExceeded, Unavailable),
    (Kind::FileTooLarge, Unavailable),
    (Kind::ReadOnlyFilesystem, Unavailable),
    (Kind::PermissionDenied, Unavailable),
    (Kind::ResourceBusy, Unavailable),
    // What the handler asked for.
    (Kind::NotFound, Retry),
    (Kind::AlreadyExists, Retry),
    (Kind::NotADirectory, Retry),
    (Kind::IsADirectory, Retry),
    (Kind::DirectoryNotEmpty, Retry),
    (Kind::InvalidFilename, Retry),
    (Kind::CrossesDevices, Retry),
    (Kind::TooManyLinks, Retry),
    (Kind::NotSeekable, Retry),
    (Kind::ExecutableFileBusy, Retry),
    (Kind::ArgumentListTooLong, Retry),
    (Kind::Deadlock, Retry),
    (Kind::InvalidInput, Retry),
    (Kind::InvalidData, Retry),
    (Kind::WriteZero, Retry),
    (Kind::Interrupted, Retry),
    (Kind::Unsupported, Retry),
    (Kind::Other, Retry),
];

/// Errors of the system that have no kind, and are outages.
#[cfg(unix)]
const CODES: &[i32] = &[
    5,  // EIO: the device fails
    6,  // ENXIO: no such device, any more
    19, // ENODEV: likewise
    23, // ENFILE: too many files in the system
    24, // EMFILE: too many files in the process
    #[cfg(any(target_os = "linux", target_os = "android"))]
    37, // ENOLCK: no locks left
    #[cfg(any(target_os = "linux", target_os = "android"))]
    102, // ENETRESET: the network dropped the connection
    #[cfg(any(target_os = "linux", target_os = "android"))]
    105, // ENOBUFS: no buffer space
    #[cfg(any(target_os = "linux", target_os = "android"))]
    108, // ESHUTDOWN: the transport was shut down
    #[cfg(any(target_os = "linux", target_os = "android"))]
    112, // EHOSTDOWN: the host is down
    #[cfg(any(target_os = "linux", target_os = "android"))]
    123, // ENOMEDIUM: no medium in the drive
];
#[cfg(not(unix))]
const CODES: &[i32] = &[];

/// Not reachable, no space, no right and too many files are outages; anything else is a failure of this event.
impl From<io::Error> for DispatchError {
    fn from(error: io::Error) -> Self {
        let by_code = error.raw_os_error().is_some_and(|code| CODES.contains(&code));
        let by_kind = || KINDS.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, class)| *class);
        // A kind that is new to the table is a failure of this event: that ends by itself, as a dead letter.
        let class = if by_code { Unavailable } else { by_kind().unwrap_or(Retry) };
        class.with(error.to_string())
    }
}

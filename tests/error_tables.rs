//! The tables that say which errors from elsewhere are outages, row by row; and whether a row is missing: what the system, and the
//! sources of the crates that this build uses, know and no row names, fails too.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, ErrorKind as Kind};
use std::path::PathBuf;
use std::process::Command;

use rusqlite::ffi::{self, ErrorCode as Code};
use rusqlite::types::{FromSqlError, Type};
use vayu_articles::outbox::{DispatchError, InsertError};
use vayu_articles::rusqlite;
use vayu_articles::storage::{ReadError, TransactError};

use Class::{Poison, Retry, Unavailable};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    Retry,
    Poison,
    Unavailable,
}

fn class(error: impl Into<DispatchError>) -> Class {
    match error.into() {
        DispatchError::Retry { .. } => Retry,
        DispatchError::Poison { .. } => Poison,
        DispatchError::Unavailable { .. } => Unavailable,
        other => panic!("a new outcome: {other:?}"),
    }
}

/// Kinds that are stable in the Rust this crate asks for.
const IO_KINDS: &[(Kind, Class)] = &[
    (Kind::AddrInUse, Unavailable),
    (Kind::AddrNotAvailable, Unavailable),
    (Kind::AlreadyExists, Retry),
    (Kind::ArgumentListTooLong, Retry),
    (Kind::BrokenPipe, Unavailable),
    (Kind::ConnectionAborted, Unavailable),
    (Kind::ConnectionRefused, Unavailable),
    (Kind::ConnectionReset, Unavailable),
    (Kind::CrossesDevices, Retry),
    (Kind::Deadlock, Retry),
    (Kind::DirectoryNotEmpty, Retry),
    (Kind::ExecutableFileBusy, Retry),
    (Kind::FileTooLarge, Unavailable),
    (Kind::HostUnreachable, Unavailable),
    (Kind::Interrupted, Retry),
    (Kind::InvalidData, Retry),
    (Kind::InvalidFilename, Retry),
    (Kind::InvalidInput, Retry),
    (Kind::IsADirectory, Retry),
    (Kind::NetworkDown, Unavailable),
    (Kind::NetworkUnreachable, Unavailable),
    (Kind::NotADirectory, Retry),
    (Kind::NotConnected, Unavailable),
    (Kind::NotFound, Retry),
    (Kind::NotSeekable, Retry),
    (Kind::Other, Retry),
    (Kind::OutOfMemory, Unavailable),
    (Kind::PermissionDenied, Unavailable),
    (Kind::QuotaExceeded, Unavailable),
    (Kind::ReadOnlyFilesystem, Unavailable),
    (Kind::ResourceBusy, Unavailable),
    (Kind::StaleNetworkFileHandle, Unavailable),
    (Kind::StorageFull, Unavailable),
    (Kind::TimedOut, Unavailable),
    (Kind::TooManyLinks, Retry),
    (Kind::UnexpectedEof, Unavailable),
    (Kind::Unsupported, Retry),
    (Kind::WouldBlock, Unavailable),
    (Kind::WriteZero, Retry),
];

#[test]
fn each_kind_of_io_error_has_its_outcome() {
    for (kind, expected) in IO_KINDS {
        assert_eq!(class(io::Error::from(*kind)), *expected, "{kind:?}");
        assert_eq!(class(io::Error::new(*kind, "with words")), *expected, "{kind:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn each_error_number_has_its_outcome() {
    /// Those without a kind that are outages.
    const OUTAGES: [i32; 11] = [5, 6, 19, 23, 24, 37, 102, 105, 108, 112, 123];
    /// The highest number of Linux.
    const LAST: i32 = 133;
    let mut kinds = BTreeSet::new();
    for number in 1..=LAST {
        let error = io::Error::from_raw_os_error(number);
        let kind = error.kind();
        let name = format!("{kind:?}");
        // Not stable, or no kind at all: nobody can name them in a table.
        let nameless = matches!(name.as_str(), "Uncategorized" | "FilesystemLoop" | "InProgress");
        let row = IO_KINDS.iter().find(|(known, _)| *known == kind).map(|(_, class)| *class);
        assert!(nameless || row.is_some(), "number {number}: {kind:?} has no row");
        let expected = if OUTAGES.contains(&number) { Unavailable } else { row.unwrap_or(Retry) };
        assert_eq!(class(error), expected, "number {number}, {kind:?}");
        kinds.insert(name);
    }
    assert!(kinds.len() > 30, "the numbers are those of this system: {kinds:?}");
}

/// Each primary code: number, name in rusqlite, name in SQLite.
const SQLITE_CODES: &[(i32, Code, &str, Class)] = &[
    (1, Code::Unknown, "ERROR", Retry),
    (2, Code::InternalMalfunction, "INTERNAL", Retry),
    (3, Code::PermissionDenied, "PERM", Unavailable),
    (4, Code::OperationAborted, "ABORT", Retry),
    (5, Code::DatabaseBusy, "BUSY", Unavailable),
    (6, Code::DatabaseLocked, "LOCKED", Unavailable),
    (7, Code::OutOfMemory, "NOMEM", Unavailable),
    (8, Code::ReadOnly, "READONLY", Unavailable),
    (9, Code::OperationInterrupted, "INTERRUPT", Retry),
    (10, Code::SystemIoFailure, "IOERR", Unavailable),
    (11, Code::DatabaseCorrupt, "CORRUPT", Unavailable),
    (12, Code::NotFound, "NOTFOUND", Retry),
    (13, Code::DiskFull, "FULL", Unavailable),
    (14, Code::CannotOpen, "CANTOPEN", Unavailable),
    (15, Code::FileLockingProtocolFailed, "PROTOCOL", Unavailable),
    (16, Code::Unknown, "EMPTY", Retry),
    (17, Code::SchemaChanged, "SCHEMA", Retry),
    (18, Code::TooBig, "TOOBIG", Poison),
    (19, Code::ConstraintViolation, "CONSTRAINT", Retry),
    (20, Code::TypeMismatch, "MISMATCH", Retry),
    (21, Code::ApiMisuse, "MISUSE", Retry),
    (22, Code::NoLargeFileSupport, "NOLFS", Unavailable),
    (23, Code::AuthorizationForStatementDenied, "AUTH", Retry),
    (24, Code::Unknown, "FORMAT", Retry),
    (25, Code::ParameterOutOfRange, "RANGE", Retry),
    (26, Code::NotADatabase, "NOTADB", Unavailable),
    (27, Code::Unknown, "NOTICE", Retry),
    (28, Code::Unknown, "WARNING", Retry),
];

/// Extended codes, as far as they tell a cause of their own.
const SQLITE_EXTENDED: &[(i32, Class)] = &[
    (ffi::SQLITE_ABORT_ROLLBACK, Retry),
    (ffi::SQLITE_AUTH_USER, Retry),
    (ffi::SQLITE_BUSY_RECOVERY, Unavailable),
    (ffi::SQLITE_BUSY_SNAPSHOT, Unavailable),
    (ffi::SQLITE_BUSY_TIMEOUT, Unavailable),
    (ffi::SQLITE_CANTOPEN_DIRTYWAL, Unavailable),
    (ffi::SQLITE_CANTOPEN_FULLPATH, Unavailable),
    (ffi::SQLITE_CANTOPEN_ISDIR, Unavailable),
    (ffi::SQLITE_CANTOPEN_NOTEMPDIR, Unavailable),
    (ffi::SQLITE_CANTOPEN_SYMLINK, Unavailable),
    (ffi::SQLITE_CONSTRAINT_CHECK, Retry),
    (ffi::SQLITE_CONSTRAINT_DATATYPE, Retry),
    (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, Retry),
    (ffi::SQLITE_CONSTRAINT_NOTNULL, Retry),
    (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, Retry),
    (ffi::SQLITE_CONSTRAINT_ROWID, Retry),
    (ffi::SQLITE_CONSTRAINT_TRIGGER, Retry),
    (ffi::SQLITE_CONSTRAINT_UNIQUE, Retry),
    (ffi::SQLITE_CORRUPT_INDEX, Unavailable),
    (ffi::SQLITE_CORRUPT_SEQUENCE, Unavailable),
    (ffi::SQLITE_CORRUPT_VTAB, Unavailable),
    (ffi::SQLITE_ERROR_RETRY, Retry),
    (ffi::SQLITE_ERROR_SNAPSHOT, Retry),
    (ffi::SQLITE_IOERR_ACCESS, Unavailable),
    (ffi::SQLITE_IOERR_CORRUPTFS, Unavailable),
    (ffi::SQLITE_IOERR_DATA, Unavailable),
    (ffi::SQLITE_IOERR_FSYNC, Unavailable),
    (ffi::SQLITE_IOERR_LOCK, Unavailable),
    (ffi::SQLITE_IOERR_NOMEM, Unavailable),
    (ffi::SQLITE_IOERR_READ, Unavailable),
    (ffi::SQLITE_IOERR_SHMMAP, Unavailable),
    (ffi::SQLITE_IOERR_SHORT_READ, Unavailable),
    (ffi::SQLITE_IOERR_TRUNCATE, Unavailable),
    (ffi::SQLITE_IOERR_WRITE, Unavailable),
    (ffi::SQLITE_LOCKED_SHAREDCACHE, Unavailable),
    (ffi::SQLITE_LOCKED_VTAB, Unavailable),
    (ffi::SQLITE_READONLY_CANTLOCK, Unavailable),
    (ffi::SQLITE_READONLY_DBMOVED, Unavailable),
    (ffi::SQLITE_READONLY_DIRECTORY, Unavailable),
    (ffi::SQLITE_READONLY_RECOVERY, Unavailable),
];

fn sqlite_failure(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

#[test]
fn each_code_of_sqlite_has_its_outcome() {
    for (number, code, name, expected) in SQLITE_CODES {
        let error = sqlite_failure(*number);
        assert_eq!(error.sqlite_error_code(), Some(*code), "{name}");
        assert_eq!(class(&error), *expected, "{name}");
        // Whatever an extended code adds to it.
        for more in [1, 2, 77, 255] {
            assert_eq!(class(sqlite_failure(number | (more << 8))), *expected, "{name} {more}");
        }
        let at_a_token = rusqlite::Error::SqlInputError {
            error: ffi::Error::new(*number),
            msg: name.to_string(),
            sql: "?".into(),
            offset: 0,
        };
        assert_eq!(class(at_a_token), *expected, "{name} at a token");
    }
    for (number, expected) in SQLITE_EXTENDED {
        assert_eq!(class(sqlite_failure(*number)), *expected, "extended {number}");
    }
}

fn any_error() -> Box<dyn Error + Send + Sync> {
    "not that".into()
}

/// Every variant that this build has, with a word for each that carries a code.
fn rusqlite_errors() -> Vec<(&'static str, rusqlite::Error, Class)> {
    use rusqlite::Error as E;
    let no_text = String::from_utf8(vec![0xff]).unwrap_err().utf8_error();
    let nul = std::ffi::CString::new("a\0b").unwrap_err();
    let at_a_token = E::SqlInputError { error: ffi::Error::new(1), msg: "?".into(), sql: "?".into(), offset: 0 };
    vec![
        ("SqliteFailure", sqlite_failure(5), Unavailable),
        ("SqliteSingleThreadedMode", E::SqliteSingleThreadedMode, Retry),
        ("FromSqlConversionFailure", E::FromSqlConversionFailure(0, Type::Text, any_error()), Retry),
        ("IntegralValueOutOfRange", E::IntegralValueOutOfRange(0, -1), Retry),
        ("Utf8Error", E::Utf8Error(0, no_text), Retry),
        ("NulError", E::NulError(nul), Retry),
        ("InvalidParameterName", E::InvalidParameterName(":x".into()), Retry),
        ("InvalidPath", E::InvalidPath("x".into()), Retry),
        ("ExecuteReturnedResults", E::ExecuteReturnedResults, Retry),
        ("QueryReturnedNoRows", E::QueryReturnedNoRows, Retry),
        ("QueryReturnedMoreThanOneRow", E::QueryReturnedMoreThanOneRow, Retry),
        ("InvalidColumnIndex", E::InvalidColumnIndex(9), Retry),
        ("InvalidColumnName", E::InvalidColumnName("x".into()), Retry),
        ("InvalidColumnType", E::InvalidColumnType(0, "x".into(), Type::Blob), Retry),
        ("StatementChangedRows", E::StatementChangedRows(2), Retry),
        ("ToSqlConversionFailure", E::ToSqlConversionFailure(Box::new(FromSqlError::InvalidType)), Retry),
        ("Empty", E::Empty, Retry),
        ("InvalidQuery", E::InvalidQuery, Retry),
        ("UnwindingPanic", E::UnwindingPanic, Retry),
        ("MultipleStatement", E::MultipleStatement, Retry),
        ("InvalidParameterCount", E::InvalidParameterCount(1, 2), Retry),
        ("SqlInputError", at_a_token, Retry),
        ("InvalidDatabaseIndex", E::InvalidDatabaseIndex(3), Retry),
    ]
}

#[test]
fn each_error_of_rusqlite_has_its_outcome() {
    for (name, error, expected) in rusqlite_errors() {
        assert!(format!("{error:?}").starts_with(name), "{name}: {error:?}");
        assert_eq!(class(error), expected, "{name}");
    }
}

#[test]
fn each_error_of_this_crate_has_its_outcome() {
    type Read = ReadError<io::Error>;
    type Write = TransactError<InsertError>;
    let full = || sqlite_failure(13);
    let invalid = || InsertError::Invalid { field: "payload", reason: "is not JSON".into() };
    assert_eq!(class(Read::Read(Kind::NotFound.into())), Retry, "the closure's own");
    assert_eq!(class(Read::Read(Kind::StorageFull.into())), Unavailable, "the closure's own");
    for (error, expected) in [
        (Read::PoolTimeout, Unavailable),
        (Read::Nested, Retry),
        (Read::Closed, Unavailable),
        (Read::TooLong, Unavailable),
    ] {
        let name = format!("{error:?}");
        assert_eq!(class(error), expected, "{name}");
    }
    for (error, expected) in [
        (Write::Task(invalid()), Poison),
        (Write::Task(InsertError::Sqlite(full())), Unavailable),
        (Write::Task(InsertError::Sqlite(sqlite_failure(19))), Retry),
        (Write::Panicked("x".into()), Retry),
        (Write::Refused("x".into()), Retry),
        (Write::TooLarge { bytes: 2, limit: 1 }, Poison),
        (Write::Saturated { jobs: 1, bytes: 1 }, Unavailable),
        (Write::Stopped, Unavailable),
        (Write::DeadlineExceeded, Unavailable),
        (Write::OutcomeUnknown("x".into()), Unavailable),
        (Write::WouldDeadlock, Retry),
    ] {
        let name = format!("{error:?}");
        assert_eq!(class(error), expected, "{name}");
    }
    assert_eq!(class(serde_json::from_str::<u32>("{").unwrap_err()), Poison);
    assert_eq!(class(serde_json::from_str::<u32>("").unwrap_err()), Poison);
    assert_eq!(class(serde_json::from_str::<u32>("\"one\"").unwrap_err()), Poison);
    assert_eq!(class(serde_json::from_reader::<_, u32>(Cut).unwrap_err()), Unavailable);
}

/// A connection that is cut while it is read.
struct Cut;

impl io::Read for Cut {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(Kind::ConnectionReset.into())
    }
}

#[cfg(feature = "sinks")]
mod http {
    use ureq::Error as E;
    use ureq::Timeout as T;

    use super::*;

    /// A row for each range of statuses.
    const STATUSES: &[(std::ops::RangeInclusive<u16>, Class)] = &[
        (100..=399, Retry),
        (400..=400, Poison),
        (401..=401, Unavailable),
        (402..=402, Poison),
        (403..=403, Unavailable),
        (404..=406, Poison),
        (407..=407, Unavailable),
        (408..=408, Retry),
        (409..=424, Poison),
        (425..=425, Retry),
        (426..=428, Poison),
        (429..=429, Unavailable),
        (430..=499, Poison),
        (500..=501, Retry),
        (502..=504, Unavailable),
        (505..=999, Retry),
    ];

    #[test]
    fn each_status_has_its_outcome() {
        let mut next = 100;
        for (statuses, expected) in STATUSES {
            assert_eq!(*statuses.start(), next, "the table has no gaps");
            next = statuses.end() + 1;
            for status in statuses.clone() {
                assert_eq!(class(E::StatusCode(status)), *expected, "{status}");
            }
        }
    }

    /// Every variant that this build has.
    fn ureq_errors() -> Vec<(&'static str, E, Class)> {
        let no_header = ureq::http::HeaderValue::from_bytes(b"\n").unwrap_err();
        let no_certificate = b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
        let no_certificate = ureq::tls::Certificate::from_pem(no_certificate).expect_err("no certificate");
        let mut errors = vec![
            ("StatusCode", E::StatusCode(503), Unavailable),
            ("Http", E::Http(no_header.into()), Poison),
            ("BadUri", E::BadUri("x".into()), Poison),
            ("RequireHttpsOnly", E::RequireHttpsOnly("http://x".into()), Poison),
            ("Protocol", protocol_error(), Unavailable),
            ("HostNotFound", E::HostNotFound, Unavailable),
            ("ConnectionFailed", E::ConnectionFailed, Unavailable),
            ("ConnectProxyFailed", E::ConnectProxyFailed("x".into()), Unavailable),
            ("RedirectFailed", E::RedirectFailed, Retry),
            ("TooManyRedirects", E::TooManyRedirects, Retry),
            ("BodyExceedsLimit", E::BodyExceedsLimit(1), Retry),
            ("LargeResponseHeader", E::LargeResponseHeader(2, 1), Retry),
            ("Decompress", E::Decompress("gzip", Kind::InvalidData.into()), Retry),
            ("InvalidProxyUrl", E::InvalidProxyUrl, Unavailable),
            ("Tls", E::Tls("x"), Unavailable),
            ("Pem", no_certificate, Unavailable),
            ("TlsRequired", E::TlsRequired, Unavailable),
            ("Other", E::Other(any_error()), Unavailable),
            ("BodyStalled", E::BodyStalled, Unavailable),
        ];
        // Without an answer it does not matter what kind of error kept it away.
        errors.extend(IO_KINDS.iter().map(|(kind, _)| ("Io", E::Io((*kind).into()), Unavailable)));
        let timeouts = [
            T::PerRead,
            T::PerWrite,
            T::Global,
            T::PerCall,
            T::Resolve,
            T::Connect,
            T::SendRequest,
            T::SendBody,
            T::RecvResponse,
            T::RecvBody,
        ];
        errors.extend(timeouts.map(|timeout| ("Timeout", E::Timeout(timeout), Unavailable)));
        #[cfg(feature = "nats")]
        errors.push(("Rustls", E::Rustls(async_nats::rustls::Error::DecryptError), Unavailable));
        errors
    }

    /// From a server that speaks something else.
    fn protocol_error() -> E {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            use io::{BufRead, Write};
            let (mut client, _) = listener.accept().unwrap();
            let head = io::BufReader::new(&client).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            assert!(head.count() > 1);
            client.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").unwrap();
        });
        let error = ureq::get(&url).call().expect_err("no HTTP");
        server.join().unwrap();
        error
    }

    #[test]
    fn each_error_of_ureq_has_its_outcome() {
        for (name, error, expected) in ureq_errors() {
            assert!(format!("{error:?}").starts_with(name), "{name}: {error:?}");
            assert_eq!(class(&error), expected, "{name}: {error}");
            assert_eq!(class(error), expected, "{name}");
        }
    }

    #[test]
    fn no_error_of_the_ureq_in_use_is_without_a_row() {
        /// Of features that this build does not ask for.
        const ABSENT: [&str; 9] = [
            "NativeTls",
            "Der",
            "Cookie",
            "CookieValue",
            "CookieJar",
            "UnknownCharset",
            "Json",
            "InvalidMimeType",
            "Rustls",
        ];
        let Some(source) = source("ureq", "src/error.rs") else { return };
        let rows: BTreeSet<&str> = ureq_errors().iter().map(|(name, ..)| *name).chain(ABSENT).collect();
        let known = variants(&source, "pub enum Error {");
        assert!(known.contains("HostNotFound"), "{known:?}");
        assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), rows);
    }
}

#[test]
fn no_error_of_the_rusqlite_and_the_sqlite_in_use_is_without_a_row() {
    /// Of features that this build does not ask for.
    const ABSENT: [&str; 6] =
        ["InvalidParameterType", "UserFunctionError", "ModuleError", "GetAuxWrongType", "BlobSizeError", "InitError"];
    let Some(rusqlite) = source("rusqlite", "src/error.rs") else { return };
    let rows: BTreeSet<&str> = rusqlite_errors().iter().map(|(name, ..)| *name).chain(ABSENT).collect();
    let known = variants(&rusqlite, "pub enum Error {");
    assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), rows);
    let Some(ffi) = source("libsqlite3-sys", "src/error.rs") else { return };
    let rows: BTreeSet<String> = SQLITE_CODES.iter().map(|(_, code, ..)| format!("{code:?}")).collect();
    assert_eq!(variants(&ffi, "pub enum ErrorCode {"), rows);
    // A primary code that rusqlite does not know by name is a row all the same.
    let Some(bindings) = source("libsqlite3-sys", "sqlite3/bindgen_bundled_version.rs") else { return };
    let primary = |line: &str| {
        let (name, value) = line.strip_prefix("pub const SQLITE_")?.split_once(": i32 = ")?;
        let value: i32 = value.strip_suffix(';')?.parse().ok()?;
        (1..100).contains(&value).then(|| (value, name.to_owned()))
    };
    // The result codes come first, from OK to DONE.
    let result_codes = bindings.lines().skip_while(|line| !line.contains("SQLITE_OK:"));
    let found: BTreeSet<_> =
        result_codes.take_while(|line| !line.contains("SQLITE_DONE:")).filter_map(primary).collect();
    let rows: BTreeSet<_> = SQLITE_CODES.iter().map(|(number, _, name, _)| (*number, (*name).to_owned())).collect();
    assert_eq!(found, rows);
}

/// A file of a crate that this build uses; `None`, said aloud, where cargo or the file is absent.
fn source(name: &str, file: &str) -> Option<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run =
        |arguments: &[&str]| Command::new(&cargo).current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok();
    let Some(about) = run(&["-vV"]) else {
        eprintln!("skipped: cargo cannot be run here");
        return None;
    };
    let about = String::from_utf8(about.stdout).unwrap();
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let arguments =
        ["metadata", "--offline", "--locked", "--all-features", "--format-version", "1", "--filter-platform", host];
    let output = run(&arguments).unwrap();
    if !output.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == name).expect("the build uses it");
    let folder = PathBuf::from(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
    Some(std::fs::read_to_string(folder.join(file)).unwrap())
}

/// Names of the variants of an enum, whatever feature they belong to.
fn variants(source: &str, begins: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(begins).expect("the enum is there");
    let body = body.split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let name = |line: &str| line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned();
    lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())).map(name).collect()
}

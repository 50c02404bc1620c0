//! A token: how it is made, what it must be, and how it is compared.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::AccessError;

/// Longest token, in bytes.
pub(super) const MAX_BYTES: usize = 512;
/// Shortest token that somebody may choose, in bytes.
const MIN_BYTES: usize = 16;
/// Random bytes in a token made here.
const RANDOM_BYTES: usize = 32;
/// So that scanners for leaked secrets can tell what it is.
const PREFIX: &str = "vayu_";

/// A new token, to be shown once.
pub(super) fn make() -> Result<String, AccessError> {
    let mut random = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| AccessError::NoRandom(error.to_string()))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// What a header can carry, and nobody guesses.
pub(super) fn check(token: &str, place: &str) -> Result<(), AccessError> {
    let reason = if token.len() < MIN_BYTES {
        format!("is shorter than {MIN_BYTES} characters")
    } else if token.len() > MAX_BYTES {
        format!("is longer than {MAX_BYTES} characters")
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        "has characters other than visible ASCII, or blanks".to_owned()
    } else {
        return Ok(());
    };
    Err(AccessError::Unusable { place: place.to_owned(), reason })
}

/// SHA-256 of a token. Tokens are long and random, so nothing slower is needed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compared in constant time.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(super) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0_u8; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

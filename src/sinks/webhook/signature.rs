//! The signature of the Standard Webhooks scheme, made and verified.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How far the time of a message may be from the receiver's, both ways.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// How the text of a secret begins.
const PREFIX: &str = "whsec_";
/// How a signature of this kind begins.
const VERSION: &str = "v1,";
/// More signatures than that in one header are not looked at.
const SIGNATURES_MAX: usize = 16;
/// Secrets are given with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What sender and receiver share: `whsec_` and 24 to 64 random bytes in Base64. Shown to nobody.
///
/// ```
/// use vayu_articles::sinks::webhook::Secret;
///
/// let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
/// assert_eq!(format!("{secret:?}"), "(hidden)");
/// assert!("whsec_dG9vIHNob3J0".parse::<Secret>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// What is wrong with the text of a secret. It does not quote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretError {
    /// It does not begin with `whsec_`.
    Prefix,
    /// What follows is no Base64.
    Base64,
    /// Fewer than 24 or more than 64 bytes.
    Length(usize),
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let key = BASE64.decode(encoded).map_err(|_| SecretError::Base64)?;
        if (24..=64).contains(&key.len()) { Ok(Self(key)) } else { Err(SecretError::Length(key.len())) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => f.write_str("must begin with whsec_")?,
            Self::Base64 => f.write_str("must be Base64 after whsec_")?,
            Self::Length(bytes) => write!(f, "must be 24 to 64 bytes, and is {bytes}")?,
        }
        f.write_str("; `echo \"whsec_$(openssl rand -base64 32)\"` makes one")
    }
}

impl std::error::Error for SecretError {}

/// A message as it arrived: three headers and the body, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// The header `webhook-id`.
    pub id: &'a str,
    /// The header `webhook-timestamp`.
    pub timestamp: &'a str,
    /// The header `webhook-signature`.
    pub signature: &'a str,
    /// The body, before anything parsed it.
    pub body: &'a [u8],
}

/// Why a message is not to be trusted. All of them are answered alike, 401 for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyError {
    /// This header is empty or not of the form that it should have.
    Malformed(&'static str),
    /// It was sent more than [`TOLERANCE`] ago, or so far ahead: sent again by somebody else, or a clock is wrong.
    Time {
        /// Seconds from the message's time to the receiver's; negative if the message is ahead.
        seconds: i64,
    },
    /// No signature was made with one of the secrets over just this.
    Signature,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(header) => write!(f, "the header {header} is missing or malformed"),
            Self::Time { seconds } => write!(f, "the message is {seconds} s old: more than 5 min from this clock"),
            Self::Signature => f.write_str("no signature fits: another secret, or a message that was changed"),
        }
    }
}

impl std::error::Error for VerifyError {}

/// Whether `received` comes from somebody who knows one of `secrets`, and recently. `now_ms`: milliseconds since the Unix epoch.
/// Takes the same time wherever a wrong signature differs. A receiver then skips what it has had already, by `id`.
///
/// ```
/// use vayu_articles::sinks::webhook::{Received, Secret, VerifyError, verify};
///
/// let secrets: Vec<Secret> = vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap()];
/// let received = Received {
///     id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
///     timestamp: "1614265330",
///     signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
///     body: br#"{"test": 2432232314}"#,
/// };
/// assert_eq!(verify(&received, &secrets, 1_614_265_331_000), Ok(()));
/// let changed = Received { body: br#"{"test": 2432232315}"#, ..received };
/// assert_eq!(verify(&changed, &secrets, 1_614_265_331_000), Err(VerifyError::Signature));
/// ```
///
/// # Errors
/// Why not.
pub fn verify(received: &Received<'_>, secrets: &[Secret], now_ms: i64) -> Result<(), VerifyError> {
    let Received { id, timestamp, signature, body } = *received;
    // A dot would let a part of one count as a part of another.
    if id.is_empty() || id.contains('.') {
        return Err(VerifyError::Malformed("webhook-id"));
    }
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent: i64 = timestamp.parse().ok().filter(|_| digits).ok_or(VerifyError::Malformed("webhook-timestamp"))?;
    let seconds = now_ms.div_euclid(1_000).saturating_sub(sent);
    if seconds.unsigned_abs() > TOLERANCE.as_secs() {
        return Err(VerifyError::Time { seconds });
    }
    let given = signature.split_ascii_whitespace().take(SIGNATURES_MAX).filter_map(|one| one.strip_prefix(VERSION));
    let given: Vec<Vec<u8>> = given.filter_map(|one| STANDARD.decode(one).ok()).collect();
    if given.is_empty() {
        return Err(VerifyError::Malformed("webhook-signature"));
    }
    let fits = |secret: &Secret| {
        let mac = mac(secret, id, timestamp, body);
        given.iter().any(|tag| mac.clone().verify_slice(tag).is_ok())
    };
    if secrets.iter().any(fits) { Ok(()) } else { Err(VerifyError::Signature) }
}

/// The header `webhook-signature`: one signature for each secret.
pub(super) fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &str) -> String {
    let timestamp = timestamp.to_string();
    let mut header = String::new();
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str(VERSION);
        STANDARD.encode_string(mac(secret, id, &timestamp, body.as_bytes()).finalize().into_bytes(), &mut header);
    }
    header
}

/// `message_id` as a header can carry it and the scheme wants it: visible ASCII without a dot. The ids that are made here are
/// so already; of others, what is not is percent-encoded, and so is `%`, so that two ids stay two.
pub(super) fn header_id(message_id: &str) -> String {
    let mut id = String::with_capacity(message_id.len());
    for byte in message_id.bytes() {
        if byte.is_ascii_graphic() && byte != b'.' && byte != b'%' {
            id.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(id, "%{byte:02X}");
        }
    }
    id
}

fn mac(secret: &Secret, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &str = r#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const NOW: i64 = 1_614_265_330_000;

    fn secret(text: &str) -> Secret {
        text.parse().unwrap()
    }

    fn other() -> Secret {
        secret(&format!("whsec_{}", STANDARD.encode([7; 64])))
    }

    fn received(signature: &str) -> Received<'_> {
        Received { id: ID, timestamp: "1614265330", signature, body: BODY.as_bytes() }
    }

    /// The known answer that the scheme's own libraries are tested with.
    #[test]
    fn the_known_message_of_the_scheme_has_the_known_signature() {
        assert_eq!(sign(&[secret(SECRET)], ID, 1_614_265_330, BODY), SIGNATURE);
        assert_eq!(verify(&received(SIGNATURE), &[secret(SECRET)], NOW), Ok(()));
    }

    #[test]
    fn any_signature_and_any_secret_will_do_while_secrets_change() {
        let both = sign(&[other(), secret(SECRET)], ID, 1_614_265_330, BODY);
        assert_eq!(both.split(' ').nth(1), Some(SIGNATURE));
        for secrets in [&[other()][..], &[secret(SECRET)], &[other(), secret(SECRET)]] {
            assert_eq!(verify(&received(&both), secrets, NOW), Ok(()));
        }
        let further = format!("v1a,AAAA v2,x nonsense v1,!!  {SIGNATURE}");
        assert_eq!(verify(&received(&further), &[secret(SECRET)], NOW), Ok(()));
        assert_eq!(verify(&received(SIGNATURE), &[other()], NOW), Err(VerifyError::Signature));
        assert_eq!(verify(&received(SIGNATURE), &[], NOW), Err(VerifyError::Signature));
    }

    #[test]
    fn whatever_was_changed_on_the_way_does_not_fit() {
        let secrets = [secret(SECRET)];
        let good = received(SIGNATURE);
        let changed = [
            Received { id: "msg_other", ..good },
            Received { timestamp: "1614265331", ..good },
            Received { timestamp: "01614265330", ..good },
            Received { body: b"{\"test\":2432232314}", ..good },
            Received { body: b"", ..good },
            received("v1,AAAA"),
            received("v1,"),
        ];
        for received in changed {
            assert_eq!(verify(&received, &secrets, NOW), Err(VerifyError::Signature), "{received:?}");
        }
        for (received, header) in [
            (Received { id: "", ..good }, "webhook-id"),
            (Received { id: "a.1", ..good }, "webhook-id"),
            (Received { timestamp: "", ..good }, "webhook-timestamp"),
            (Received { timestamp: "+1614265330", ..good }, "webhook-timestamp"),
            (Received { timestamp: "99999999999999999999", ..good }, "webhook-timestamp"),
            (received(""), "webhook-signature"),
            (received("v2,g0hM9SsE"), "webhook-signature"),
        ] {
            assert_eq!(verify(&received, &secrets, NOW), Err(VerifyError::Malformed(header)), "{received:?}");
        }
    }

    #[test]
    fn a_message_from_another_time_is_refused() {
        let at = |now_ms| verify(&received(SIGNATURE), &[secret(SECRET)], now_ms);
        assert_eq!(at(NOW + 300_999), Ok(()));
        assert_eq!(at(NOW - 300_000), Ok(()));
        assert_eq!(at(NOW + 301_000), Err(VerifyError::Time { seconds: 301 }));
        assert_eq!(at(NOW - 301_000), Err(VerifyError::Time { seconds: -301 }));
        assert!(at(i64::MAX).is_err() && at(i64::MIN).is_err());
    }

    #[test]
    fn a_secret_has_its_form_and_stays_hidden() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![1; bytes]));
        for bytes in [24, 32, 64] {
            assert_eq!(format!("{:?}", secret(&of(bytes))), "(hidden)");
            assert_eq!(secret(of(bytes).trim_end_matches('=')), secret(&of(bytes)), "without padding");
        }
        for (text, error) in [
            (of(23), SecretError::Length(23)),
            (of(65), SecretError::Length(65)),
            ("whsec_".to_owned(), SecretError::Length(0)),
            ("whsec_%%%".to_owned(), SecretError::Base64),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(), SecretError::Prefix),
            (String::new(), SecretError::Prefix),
        ] {
            assert_eq!(text.parse::<Secret>(), Err(error));
            assert!(!error.to_string().contains("MfKQ"), "{error}");
        }
    }

    #[test]
    fn an_id_has_neither_dots_nor_what_a_header_cannot_carry_and_stays_unique() {
        let uuid = "0197c2f0-5c5e-7c4b-9d55-0f6d3c1c5e11:r2";
        assert_eq!(header_id(uuid), uuid);
        assert_eq!(header_id("order.17\r\nx: é"), "order%2E17%0D%0Ax:%20%C3%A9");
        assert_ne!(header_id("a.b"), header_id("a%2Eb"));
    }
}

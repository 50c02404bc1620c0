//! `Idempotency-Key`: a write that is sent again with its key is not done again but answered as the first time.

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH};
use sha2::{Digest, Sha256};

use super::problem::Problem;
use super::route::Call;
use crate::article::RequestKey;
use crate::service::WriteContext;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The context of a write, with its key if the client gave one.
///
/// # Errors
/// 400: the key is empty, too long, repeated, or has other characters than visible ASCII.
pub(super) fn context(call: &Call<'_>) -> Result<WriteContext, Problem> {
    let mut context = call.context.clone();
    if let Some(text) = given(&call.request.headers)? {
        // Keys of two tokens never meet, so nobody can read another's answer by guessing a key.
        let scope = call.caller.as_ref().map_or("", |caller| &caller.name);
        let key = RequestKey::new(scope, text, fingerprint(call)).map_err(|error| malformed(&error))?;
        context.key = Some(key);
    }
    Ok(context)
}

fn given(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(malformed(&"is given more than once"));
    }
    let text = value.to_str().map_err(|_| malformed(&"must be visible ASCII characters"))?;
    Ok(Some(text.trim()))
}

fn malformed(reason: &dyn std::fmt::Display) -> Problem {
    let mut problem = Problem::bad_request(format!("Idempotency-Key: {reason}"));
    problem.code = "bad_idempotency_key";
    problem.field = Some("idempotency_key".to_owned());
    problem
}

/// Stands for the method, the route, what it names, the condition and every byte of the body.
fn fingerprint(call: &Call<'_>) -> String {
    let request = call.request;
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(request.method.as_str().as_bytes());
    part(call.route.path.as_bytes());
    call.segments.iter().for_each(|segment| part(segment.as_bytes()));
    part(request.headers.get(IF_MATCH).map_or(&[], |value| value.as_bytes()));
    part(&request.body);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

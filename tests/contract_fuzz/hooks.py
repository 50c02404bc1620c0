"""A client makes up a fresh Idempotency-Key for each request; the fuzzer would use one for many different requests."""

import re
import uuid

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    phase = case.meta.phase.data if case.meta else None
    if (getattr(phase, "parameter", None) or "").lower() == "authorization":
        return  # Sent without a token on purpose; to touch the headers would bring it back.
    key = case.headers.get("Idempotency-Key") if case.headers else None
    if isinstance(key, str) and re.fullmatch(r"[!-~]{1,255}", key):
        case.headers["Idempotency-Key"] = str(uuid.uuid4())

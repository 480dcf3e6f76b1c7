"""Calls over HTTP that did not work out, in words: what failed, where, and the next step.

When a call is made again is the guard's business.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.failure import Failure, FailureKind, Refusal, RefusalCause, keyless_advice
from chargehand.models.messages import Message, Usage
from chargehand.models.model import ModelFailed
from chargehand.models.prices import similar_models

LONGEST_WAIT = 7 * 86_400.0
_LONGEST_WORDS = 300
_LOOKS_SECRET = re.compile(r"\b(?:sk|pk|key|Bearer)[-_ ][A-Za-z0-9_\-.]{12,}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")
_NEXT_STEP = {
    300: "calls are not sent on to other addresses: set the base URL to where it is now",
    400: "change the request: sent again as it is, it fails again",
    401: "check the key{variable}",
    402: "the account has no credit left: top it up, or use another provider",
    403: "this key{variable} may not use that model: ask for access, or use another model",
    404: "check the model's name and the base URL",
    413: "the request is too large: send less",
    429: "wait, or lower the limits for this provider",
}


_REQUEST_REFUSED = (400, 415, 422)


class Party(Struct, frozen=True):
    """Who is called, for messages. `secrets` never appear in one; `variable` is where the key was taken from."""

    handle: str
    place: str
    secrets: tuple[str, ...] = ()
    variable: str = ""


class Unreadable(Exception):
    """Bytes that are not what they should be. The caller, which knows the provider, makes a failure of it."""


_BY_STATUS: dict[int, RefusalCause] = {401: "key", 402: "credit", 403: "access", 404: "model"}
_BY_CODE: tuple[tuple[RefusalCause, re.Pattern[str]], ...] = (
    ("credit", re.compile(r"insufficient_quota|billing_not_active|credit balance is too low", re.IGNORECASE)),
    ("key", re.compile(r"invalid_api_key|API_KEY_INVALID|API key not valid", re.IGNORECASE)),
    ("model", re.compile(r"model_not_found", re.IGNORECASE)),
)
"""What a body says whatever the status: OpenAI's quota is a 429, Anthropic's credit and Google's key are a 400."""
_ABOUT_ONE_REQUEST = re.compile(
    r"context_length|maximum context|context window|too long|too large|too many tokens|max_length|content_policy"
    r"|content.?filter|content management|invalid_prompt|safety|moderat|image",
    re.IGNORECASE,
)
"""What a 400 or 422 says that is about this one request; any other is about how the model is called."""


class CallFailed(ModelFailed):
    """`status` is what HTTP (or an error inside a 200) said; 0 when there was no answer that could be read."""

    def __init__(
        self,
        failure: Failure,
        usage: Usage | None = None,
        *,
        status: int = 0,
        billed: bool = True,
        sent: bool = True,
    ) -> None:
        self.status = status
        super().__init__(failure, usage, billed=billed, sent=sent)


def clean(party: Party, words: str) -> str:
    """Words of a stranger, fit to be shown: no secrets, no control characters, no more than fits.

    Secrets go first: half of one must not be left over by a cut.
    """
    for secret in party.secrets:
        words = words.replace(secret, "[key]")
    words = _LOOKS_SECRET.sub("[key]", words[: 4 * _LONGEST_WORDS])
    words = _UNPRINTABLE.sub(" ", words).strip()
    return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "..."


def shorten_words(words: str, most: int) -> str:
    """How a text begins, in whole words: half a secret would not be known for one by who looks for secrets later."""
    return words if len(words) <= most else f"{re.sub(r'[^ ]*$', '', words[:most])}..."


def connection_lost(party: Party, what: str, *, billed: bool = True) -> CallFailed:
    """No connection, or not to the end. It was not billed if the request was never sent."""
    message = f"{what}; check that {party.place} can be reached, then try again"
    return CallFailed(Failure("network", f"{party.handle}: {message}"), billed=billed, sent=billed)


def timed_out(party: Party, what: str) -> CallFailed:
    return _failed(party, "timeout", f"{what}; try again, or allow more time")


def unreadable_reply(party: Party, what: str, usage: Usage | None = None) -> CallFailed:
    """An answer, but not one in the protocol: never to be taken for success."""
    message = f"the reply cannot be used: {what}; try again, and if it stays so check the base URL"
    return _failed(party, "network", message, usage)


def useless_reply(party: Party, what: str, usage: Usage | None = None) -> CallFailed:
    """An answer in the protocol with which nothing can be done. It was paid for all the same."""
    return _failed(party, "logic", what, usage)


def too_large(party: Party, most: int) -> CallFailed:
    message = f"the reply is larger than {most:,} bytes; ask for less, or raise the cap"
    return CallFailed(Failure("resource", f"{party.handle}: {message}"))


def call_refused(
    party: Party, status: int, words: str, wait: float = 0.0, *, billed: bool | None = None, advice: str = ""
) -> CallFailed:
    """An error the provider reports, by HTTP status or inside a 200.

    Unless it is said whether it was `billed`, that goes by the status. `advice` is a further next step where the
    request itself was refused.
    """
    cause = _cause_of(status, words)
    like = {"credit": 402, "key": 401, "address": 300}.get(cause or "", status)
    kind, permanent = _class_of(like)
    step = _NEXT_STEP.get(like) or (_NEXT_STEP[400] if permanent else "try again later")
    step = step.format(variable=f" in {party.variable}" if party.variable else "")
    keyless = "://" in party.handle and not party.secrets and not party.variable
    if cause == "key" and keyless:
        step = keyless_advice(party.handle)
    if advice and status in _REQUEST_REFUSED and like == status:
        step = f"{step}; {advice}"
    cleaned = clean(party, words)
    answer = f"answered {status}" if status else "reported an error"
    message = f"{party.handle}: {party.place} {answer}{': ' + cleaned if cleaned else ''}; {step}"
    refusal = None
    if cause is not None:
        refusal = Refusal(
            provider=_provider(party),
            model=party.handle,
            cause=cause,
            status=status,
            variable=party.variable,
            keyless=keyless,
            near=_similar_models(party) if cause == "model" else (),
        )
    billed = may_be_billed(status) if billed is None else billed
    return CallFailed(Failure(kind, message, wait, permanent, refusal=refusal), status=status, billed=billed)


def file_advice(messages: Iterable[Message]) -> str:
    """What to do where a request with these messages is refused for its files; empty where it has none."""
    messages = list(messages)
    steps = [
        f"if the model takes no {what}: {option}=False"
        for what, option in (("PDFs", "documents"), ("pictures", "images"))
        if any(getattr(message, option) for message in messages)
    ]
    return f"{', '.join(steps)}, in Python an option of find_model" if steps else ""


def _cause_of(status: int, words: str) -> RefusalCause | None:
    """Why a provider would refuse whatever else is asked of this model; None where that is not so."""
    if 300 <= status < 400:
        return "address"
    if not 400 <= status < 500:
        return None
    for cause, code in _BY_CODE:
        if code.search(words):
            return cause
    if status in (400, 422) and not _ABOUT_ONE_REQUEST.search(words):
        return "request"
    return _BY_STATUS.get(status)


def _provider(party: Party) -> str:
    return party.place if "://" in party.handle else party.handle.partition(":")[0]


def _similar_models(party: Party) -> tuple[str, ...]:
    """Models of the same provider whose names are like that of one it does not have."""
    if "://" in party.handle:
        return ()
    provider, _, name = party.handle.partition(":")
    return similar_models(provider, name)


def may_be_billed(status: int) -> bool:
    """Whether a call that was answered with this status may cost something.

    A provider that answers with an error charges nothing. A gateway that gave up waiting does not know whether the
    provider behind it went on.
    """
    return status < 300 or status in (408, 499, 502, 504) or 520 <= status <= 527


def _class_of(status: int) -> tuple[FailureKind, bool]:
    if status in (408, 409, 425) or status >= 500 or status < 300:
        return "network", False
    if status == 429:
        return "resource", False
    return ("resource" if status in (401, 402, 403, 413) else "logic"), True


def is_rate_limited(error: ModelFailed) -> bool:
    """Whether the provider refused a call because there were too many."""
    if error.failure.permanent:
        return False
    if isinstance(error, CallFailed):
        return error.status == 429
    return error.failure.kind == "resource" and error.failure.retry_after > 0


def error_in_reply(party: Party, error: Raw) -> CallFailed:
    """An `error` field where a reply was due."""
    status, words = read_error(error)
    return call_refused(party, status, words, billed=True)


def _failed(
    party: Party, kind: FailureKind, message: str, usage: Usage | None = None, *, billed: bool = True
) -> CallFailed:
    return CallFailed(Failure(kind, f"{party.handle}: {message}"), usage, billed=billed)


NOTHING = Raw(b"")  # a field that was left out: `Raw | None` does not take an object


class ErrorBody(Struct):
    """The fields providers put errors in. OpenAI, Anthropic, OpenRouter, vLLM and llama.cpp differ in the rest."""

    error: Raw = NOTHING
    message: str = ""
    detail: Raw = NOTHING


class _Error(Struct):
    message: str = ""
    type: str | None = None
    code: int | str | None = None
    param: str | None = None
    """The field of the request that is to blame."""


_ERROR_BODY = msgspec.json.Decoder(ErrorBody, strict=False)
_ERROR = msgspec.json.Decoder(_Error | str, strict=False)
_BY_TYPE = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def is_present(field: Raw) -> bool:
    """Whether a field was there and not null."""
    return bytes(field) not in (b"", b"null")


def read_error(error: Raw) -> tuple[int, str]:
    """The status and the words of an `error` field; status 0 when it does not say."""
    try:
        error_body = _ERROR.decode(error)
    except (ValueError, RecursionError):
        return 0, bytes(error).decode("utf-8", "replace")
    if isinstance(error_body, str):
        return 0, error_body
    kind = error_body.type or ""
    label = str(error_body.code) if error_body.code is not None else kind
    status = _BY_TYPE.get(label) or _BY_TYPE.get(kind, 0)
    if re.fullmatch(r"[45]\d\d", label):
        status = int(label)
    message = error_body.message
    names = " ".join(name for name in dict.fromkeys((kind, label)) if name and not name.isdigit())
    return status, message if not names or names in message else f"{message} ({names})"


def error_words(body: bytes) -> str:
    """What an error page says, as far as it can be read."""
    if body.lstrip()[:1] == b"<":
        return "an HTML page"
    try:
        error_body = _ERROR_BODY.decode(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    if is_present(error_body.error):
        return read_error(error_body.error)[1]
    if error_body.message:
        return error_body.message
    return read_error(error_body.detail)[1] if is_present(error_body.detail) else ""


def error_param(body: bytes) -> str:
    """The field of the request that an error page blames; empty where it names none."""
    try:
        error = _ERROR.decode(_ERROR_BODY.decode(body).error)
    except (ValueError, RecursionError):
        return ""
    return "" if isinstance(error, str) else error.param or ""


def requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds the server asks us to wait. A date is read against the server's own clock, which may be wrong."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text):
            return min(float(text) * unit, LONGEST_WAIT)
    until = headers.get("retry-after", "")
    server_now = headers.get("date", "")
    if not (until and server_now):
        return 0.0
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - hardly any provider sends a date

    try:
        wait = (parsedate_to_datetime(until) - parsedate_to_datetime(server_now)).total_seconds()
    except (ValueError, TypeError):  # not a date, or one of them without a zone
        return 0.0
    return min(max(wait, 0.0), LONGEST_WAIT)

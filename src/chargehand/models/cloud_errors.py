"""Errors that the libraries of clouds raise about credentials, which no model of pydantic_ai passes on as its own."""

import re
from collections.abc import Mapping

from chargehand.engine.failure import Failure
from chargehand.models.call_errors import CallFailed, Party, clean, connection_lost

_STEPS: Mapping[str, str] = {
    "botocore": "set AWS_BEARER_TOKEN_BEDROCK, or give the AWS SDK a region and credentials (AWS_PROFILE, "
    "`aws sso login`)",
    "google": "run `gcloud auth application-default login`, or name the file of a service account in "
    "GOOGLE_APPLICATION_CREDENTIALS",
}
"""What to do about credentials, by the package whose error it is."""
_IS_NETWORK = re.compile(
    r"TransportError|TimeoutError|Connect\w*Error|HTTPClientError|ProxyConnectionError|SSLError|MetadataRetrievalError"
    r"|IncompleteReadError"
)
"""Names of errors, or of what they inherit from, that say that a server was not reached."""


def cloud_problem(party: Party, error: BaseException) -> str:
    """Return why the library of a cloud cannot make a call, and what to do; empty for other errors."""
    step = _step(error)
    if not step or _is_network(error):
        return ""
    return f"{party.handle}: its library cannot make the call: {clean(party, str(error)).rstrip('.')}; {step}"


def cloud_failure(party: Party, error: Exception) -> CallFailed | None:
    """Return how a call failed for the library of a cloud; None for an error of another library."""
    if not _step(error):
        return None
    if _is_network(error):
        what = f"the call, or one for its credentials, did not get through ({type(error).__name__})"
        return connection_lost(party, what)
    return CallFailed(Failure("resource", cloud_problem(party, error), permanent=True), billed=False, sent=False)


def _step(error: BaseException) -> str:
    package, _, rest = type(error).__module__.partition(".")
    return "" if package == "google" and not rest.startswith("auth") else _STEPS.get(package, "")


def _is_network(error: BaseException) -> bool:
    return any(_IS_NETWORK.fullmatch(kind.__name__) for kind in type(error).__mro__)

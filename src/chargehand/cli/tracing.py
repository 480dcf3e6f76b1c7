"""Traces by the environment: whether they are wanted, and the listener that sends them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chargehand.config.environment import secret_values
from chargehand.errors import Invalid

if TYPE_CHECKING:
    from chargehand.integrations.otel import OtelListener

SWITCH = "CHARGEHAND_OTEL"
CONTENT = "CHARGEHAND_OTEL_CONTENT"
_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")
_COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether traces are to be sent: `CHARGEHAND_OTEL` says so, or, where it says nothing, a collector is named."""
    if environment.get(SWITCH, "").strip():
        return _switch(environment, SWITCH)
    return not _is_on(environment, "OTEL_SDK_DISABLED") and any(environment.get(name) for name in _COLLECTORS)


def listener_from(environment: Mapping[str, str]) -> "OtelListener | None":
    """The listener that sends traces, if the environment wants them; Invalid where OpenTelemetry is not installed."""
    if not is_wanted(environment):
        return None
    from chargehand.integrations.otel import OtelListener  # noqa: PLC0415 - an extra
    from chargehand.server.middleware.redaction import Redactor  # noqa: PLC0415 - only with traces

    for name in _COLLECTORS:
        endpoint = environment.get(name, "")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise Invalid(f"{name} is {endpoint[:200]!r}; write the whole of it: http://{endpoint[:200]}")
    redactor = Redactor(secret_values())
    return OtelListener(content=_switch(environment, CONTENT), redact=redactor.text)


def _switch(environment: Mapping[str, str], name: str) -> bool:
    """One of our own variables; Invalid where it says neither yes nor no."""
    value = environment.get(name, "").strip()
    if value.lower() not in (*_ON, *_OFF):
        raise Invalid(f"{name} is {value[:50]!r}; write 1 or 0")
    return value.lower() in _ON


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() not in _OFF

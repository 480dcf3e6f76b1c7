"""The models of agents: which of them clients may name, and what bounds their use.

An agent may name a model whose key is not set; the default one answers then.
"""

import logging
from collections import OrderedDict
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from chargehand.agents.shape import JsonShape
from chargehand.agents.spending import CallCap
from chargehand.engine.failure import Failure
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.models.providers import BUILT_IN, OTHERS, OWN, RECORDED, RECORDING, key_variable, without_secrets
from chargehand.models.resolve import Lookup, check_handle
from chargehand.server.letta.settings import AgentSettings
from chargehand.server.settings import ServerLimits, ServerSettings
from chargehand.server.tenants import Tenant
from chargehand.server.wire import invalid

_MAX_RUNS = 10_000
_UNPRICED_CALL = 10_000  # micros

logger = logging.getLogger(__name__)


# --- which models clients may name


def find_model(tenant: Tenant, handle: str) -> Model:
    """The model an agent names, if it is available to clients now; else the default one."""
    settings = tenant.settings
    if not _asks_for_default(handle) and not forbidden_reason(handle, settings, tenant.lookup):
        try:
            return tenant.finder.find(handle)
        except Invalid:  # its key is not set, or not any more
            pass
    return tenant.finder.find(settings.model or BUILT_IN)


def check_model(field: str, handle: str, tenant: Tenant) -> None:
    """Raise a problem for a model that no agent can have here. Where only its key is missing, another stands in."""
    problem = model_problem(handle, tenant)
    if problem:
        raise invalid(f"{field}: {problem}")


def model_problem(handle: str, tenant: Tenant) -> str:
    """Why no agent can have the model of this handle; empty if one can, or if only its key is missing."""
    if _asks_for_default(handle):
        return ""
    reason = forbidden_reason(handle, tenant.settings, tenant.lookup)
    if reason:
        return f"clients may not name {without_secrets(handle)[:100]!r} here: {reason}"
    try:
        check_handle(handle)
        if not _lacks_key(provider_of(handle), tenant.lookup):
            tenant.finder.find(handle)
    except Invalid as error:
        return str(error)
    return ""


def _asks_for_default(handle: str) -> bool:
    """Whether it is the name of no model of a provider: `letta/letta-free` and its like are those of Letta's server."""
    return handle in ("", BUILT_IN) or handle.startswith("letta/")


def _lacks_key(provider: str, lookup: Lookup) -> bool:
    if provider in OWN:
        return OWN[provider].needs_key and not lookup(OWN[provider].key)
    return provider in OTHERS and not lookup(key_variable(provider))


def forbidden_reason(handle: str, settings: ServerSettings, lookup: Lookup) -> str:
    """Why a client may not name this model, and what the operator would have to say; empty if it may.

    The server calls this machine only where the operator says so.
    """
    provider = provider_of(handle)
    if provider in (RECORDED, RECORDING):
        return "it reads or writes files"
    if "://" in handle:
        if not settings.model_urls:
            return "models by URL need `serve --model-urls`"
        return "" if _may_call(handle, settings.model_hosts) else "this address needs `serve --model-host HOST:PORT`"
    place = OWN.get(provider)
    if place is None or place.needs_key or lookup(place.base) or provider_of(settings.model) == provider:
        return ""
    return f"set {place.base} for the server, or start it with --model {provider}:NAME"  # it may be on this machine


def provider_of(handle: str) -> str:
    return handle.replace("/", ":", 1).partition(":")[0].lower()


def protocol_of(provider: str) -> str:
    return OWN[provider].protocol if provider in OWN else "openai"


def _may_call(handle: str, hosts: tuple[str, ...]) -> bool:
    """Whether the address in a handle is public, or one that the operator named."""
    try:
        parts = urlsplit(handle)
        host = (parts.hostname or "").rstrip(".")
        port = parts.port
    except ValueError:
        return True  # no URL: finding the model fails, and says so
    return _is_public(host) or host in hosts or f"{host}:{port}" in hosts


def _is_public(host: str) -> bool:
    """Whether it is a public address, or a name with a dot: what that stands for is known to its network only."""
    try:
        address = ip_address(host)
    except ValueError:
        is_address = host.rpartition(".")[2].isdigit()  # 127.1 and 2130706433 are addresses, too
        return "." in host and not is_address and not host.endswith((".localhost", ".local", ".internal"))
    return address.is_global


# --- models within the settings of an agent


class JsonReply(JsonShape):
    """What a client's `response_format` asks for: a reply that fits is passed on as the text it is."""

    def read(self, text: str) -> object:
        value = super().read(text)
        stripped = text.strip()
        try:
            msgspec.json.decode(stripped)
        except (msgspec.DecodeError, UnicodeError, RecursionError):  # there was something around it
            stripped = bytes(encode_value(value)).decode()
        return WorkerOutput(stripped)


class BoundedModel(Struct, frozen=True):
    """A model within the settings of an agent: a smaller window, and at most one call of a tool in a reply."""

    model: Model
    settings: AgentSettings

    @property
    def card(self) -> ModelCard:
        card = self.model.card
        return structs.replace(card, window=min(card.window, self.settings.context_window_limit or card.window))

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        reply = await self.model.reply(request, hear)
        if self.settings.model_settings.parallel_tool_calls is False:  # not every provider keeps to the setting
            return structs.replace(reply, calls=reply.calls[:1])
        return reply


# --- what agents may use that write to each other because of one message of a client: model calls, and dollars


class Use(Struct):
    """What was used because of one message of a client."""

    calls: int = 0
    micros: int = 0
    has_unpriced: bool = False
    """Whether a model was called whose price is not known."""


class MessageAllowances:
    """What was used since the server started, by the run of the client's message.

    The agent that the client wrote to has its own limit of steps, and is not counted here: it is told when the others
    have used up what there is, and answers with what it has.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._uses: OrderedDict[str, Use] = OrderedDict()

    def metered(self, client_run: str, models: tuple[Model, ...]) -> tuple[Model, ...]:
        """The models for an agent that works because another wrote to it, in the run of this client's message."""
        use = self._uses.setdefault(client_run, Use())
        self._uses.move_to_end(client_run)
        if len(self._uses) > _MAX_RUNS:
            self._uses.popitem(last=False)
        return tuple(MeteredModel(model, use, self._limits) for model in models)


class MeteredModel(Struct):
    """A model that is not called any more when the calls or the dollars are used up.

    A call of a model whose price is not known counts as one cent.
    """

    model: Model
    use: Use
    limits: ServerLimits

    @property
    def card(self) -> ModelCard:
        return self.model.card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self._check()
        self.use.calls += 1
        if not self.card.is_priced:
            self._count_unpriced()
        usage = micros = None
        try:
            reply = await self.model.reply(request, hear)
            usage = reply.usage
            micros = reply.micros
        except ModelFailed as error:
            usage = error.usage
            raise
        finally:
            if micros is None and usage is not None:
                micros = self.card.price(usage)
            self.use.micros += micros or 0
        return reply

    def _check(self) -> None:
        if self.use.calls >= self.limits.message_calls:
            spent = f"made {self.limits.message_calls} calls of models"
        elif self.use.micros >= self.limits.message_micros:
            spent = f"used ${self.limits.message_micros / 1_000_000:.2f}"
        else:
            return
        reason = f"agents that wrote to each other because of one message have {spent}, which is all they may"
        advice = "answer with what there is, or write to fewer agents"
        raise ModelFailed(Failure("budget", f"{reason}; {advice}", permanent=True), billed=False)

    def _count_unpriced(self) -> None:
        """That dollars cannot be kept to is logged once a message of a client."""
        self.use.micros += _UNPRICED_CALL
        if not self.use.has_unpriced:
            limit = min(self.limits.message_calls, self.limits.message_micros // _UNPRICED_CALL)
            cap = CallCap((self.card.handle,), self.limits.message_micros / 1_000_000, limit)
            logger.warning("messages between agents: %s", cap.warning)
        self.use.has_unpriced = True

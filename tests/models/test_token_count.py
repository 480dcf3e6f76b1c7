"""Token estimates against counts of real tokenizers: before anything is known of a model, and after its replies."""

from base64 import b64encode
from collections.abc import Iterator
from itertools import permutations
from math import ceil
from pathlib import Path
from random import Random
from string import ascii_uppercase

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from chargehand.models.messages import Image, Message, Request, ToolCall, ToolSpec
from chargehand.models.token_count import (
    EMPTY,
    Size,
    TokenRates,
    count_tokens,
    measure,
    measure_request,
    together,
)


class Sample(Struct, frozen=True):
    """A text of one kind, and how many tokens it is for each tokenizer."""

    kind: str
    text: str
    tokens: dict[str, int]

    @property
    def size(self) -> Size:
        return measure(self.text)


SAMPLES = msgspec.json.decode(Path(__file__).with_name("token_samples.json").read_bytes(), type=list[Sample])
KINDS = list(dict.fromkeys(sample.kind for sample in SAMPLES))
IN_USE = ["o200k", "gemini", "deepseek_v3", "qwen3"]
"""Tokenizers of models that are sold today."""
RETIRED = ["cl100k", "claude"]
"""Those of GPT-4 and of Claude 2: they take more tokens for all but English."""


def of_kind(kind: str) -> list[Sample]:
    return [sample for sample in SAMPLES if sample.kind == kind]


def error(rates: TokenRates, samples: list[Sample], tokenizer: str) -> float:
    """Return how far the estimate of several samples together is off, as a part of what they are."""
    true = sum(sample.tokens[tokenizer] for sample in samples)
    return sum(rates.estimate(sample.size) for sample in samples) / true - 1


def taught(samples: list[Sample], tokenizer: str) -> TokenRates:
    rates = TokenRates()
    for sample in samples:
        rates.learn(sample.size, sample.tokens[tokenizer])
    return rates


@pytest.mark.parametrize("tokenizer", IN_USE)
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_within_a_third_before_anything_is_known(kind: str, tokenizer: str) -> None:
    assert abs(error(TokenRates(), of_kind(kind), tokenizer)) <= 0.33


@pytest.mark.parametrize("tokenizer", [*IN_USE, *RETIRED])
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_within_15_percent_after_three_replies(kind: str, tokenizer: str) -> None:
    *first, fourth, fifth = of_kind(kind)
    assert abs(error(taught(first, tokenizer), [fourth, fifth], tokenizer)) <= 0.15


@pytest.mark.parametrize("tokenizer", [*IN_USE, *RETIRED])
def test_what_is_learned_of_one_kind_does_not_spoil_another(tokenizer: str) -> None:
    rates = taught([sample for kind in KINDS for sample in of_kind(kind)[:3]], tokenizer)
    errors = {kind: error(rates, of_kind(kind)[3:], tokenizer) for kind in KINDS}
    assert [kind for kind, off in errors.items() if abs(off) > 0.15] == []


def taught_in_any_way(tokenizer: str) -> Iterator[TokenRates]:
    """Rates that know nothing, a few replies of one kind, and many of one kind or of all."""
    yield TokenRates()
    for kind in KINDS:
        samples = of_kind(kind)
        for some in permutations(samples, 3):
            yield taught(list(some), tokenizer)
        yield taught(samples * 10, tokenizer)
    shuffled = SAMPLES * 3
    Random(7).shuffle(shuffled)
    yield taught(shuffled, tokenizer)


@pytest.mark.parametrize("tokenizer", [*IN_USE, *RETIRED])
def test_what_is_reserved_is_never_too_little(tokenizer: str) -> None:
    for rates in taught_in_any_way(tokenizer):
        short = [sample for sample in SAMPLES if rates.bound(sample.size) < sample.tokens[tokenizer]]
        assert short == []


def test_what_is_reserved_is_less_once_a_model_is_known() -> None:
    samples = of_kind("chinese")
    known = taught(samples[:3], "o200k")
    assert known.bound(samples[3].size) < 0.85 * TokenRates().bound(samples[3].size)


def test_one_usage_that_is_invented_does_not_spoil_what_is_known() -> None:
    samples = of_kind("json")
    rates = taught(samples[:3], "o200k")
    rates.learn(samples[3].size, 10**12)
    assert 0 <= error(rates, samples[3:], "o200k") <= 0.5
    for sample in samples:
        rates.learn(sample.size, sample.tokens["o200k"])
    assert abs(error(rates, samples, "o200k")) <= 0.15


def test_a_reply_that_says_nothing_of_its_input_teaches_nothing() -> None:
    rates = TokenRates()
    rates.learn(measure("a text"), 0)
    assert (rates.replies, rates.ratios) == (0, TokenRates().ratios)


def test_a_long_text_is_sampled() -> None:
    text = "\n".join(sample.text for sample in SAMPLES)
    parts = sum(count_tokens(text[start : start + 2_000]) for start in range(0, len(text), 2_000))
    assert len(text) > 25_000
    assert count_tokens(text) == pytest.approx(parts, rel=0.06)


@given(st.text(max_size=3_000))
def test_any_text_has_a_size(text: str) -> None:
    size = measure(text)
    assert len(size) == len(EMPTY)
    assert min(size) >= 0
    assert count_tokens(text) <= 2 * len(text.encode(errors="replace")) + 1


@given(st.text(min_size=1, max_size=300))
def test_a_text_has_as_many_tokens_as_its_characters_make(text: str) -> None:
    rates = TokenRates()
    rates.learn(measure("word " * 100), 140)
    tokens = rates.estimate(measure(text))
    assert ceil(len(text) / rates.characters_per_token(text) - 1e-9) == tokens
    assert ceil(len(text.encode(errors="replace")) / rates.bytes_per_token(text) - 1e-9) == tokens


def test_a_request_has_the_size_of_all_that_is_in_it() -> None:
    call = ToolCall("1", "look_up", '{"city": "Cork"}')
    tool = ToolSpec("look_up", "Look a city up.", Raw(b'{"type": "object"}'))
    plain = Request([Message("user", "Where is Cork?")])
    more = [
        Request([*plain.messages, Message("assistant", calls=(call,))]),
        Request(plain.messages, tools=(tool,)),
        Request(plain.messages, schema=Raw(b'{"type": "object"}')),
        Request([Message("user", "Where is Cork?", images=(Image("f", "image/png"),))]),
    ]
    rates = TokenRates()
    sizes = [rates.estimate(measure_request(request)) for request in more]
    assert min(sizes) > rates.estimate(measure_request(plain)) > rates.estimate(measure("Where is Cork?"))
    assert sizes[3] - rates.estimate(measure_request(plain)) == 1_600


def test_a_fixed_part_that_a_provider_adds_is_not_taken_for_words() -> None:
    rates = TokenRates()
    short = measure_request(Request([Message("user", "Where is Cork?")]))
    for _ in range(3):
        rates.learn(short, 60)
    long = of_kind("prose")[0]
    assert abs(error(rates, [long], "o200k")) <= 0.15
    assert together(short, EMPTY) == short


def test_what_is_no_language_is_reserved_for() -> None:
    """Keys and codes are cut into more tokens than words; o200k counts these."""
    chance = Random(1)
    base64 = b64encode(chance.randbytes(3000)).decode()
    chance.randbytes(2000)
    for _ in range(80):
        chance.getrandbits(128)
    codes = " ".join("".join(chance.choice(ascii_uppercase) for _ in range(8)) for _ in range(300))
    for text, tokens in ((base64, 2_723), (codes, 1_427), ("x" * 4_000, 500)):
        assert TokenRates().bound(measure(text)) >= 0.95 * tokens

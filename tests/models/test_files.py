"""Pictures and PDFs as each protocol takes them, and what providers cite, over real sockets and as providers refuse."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from chargehand.engine.facts import Citation
from chargehand.errors import Invalid
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.call_errors import CallFailed
from chargehand.models.citations import MAX_CITATIONS
from chargehand.models.messages import (
    IMAGE_TOKENS,
    PAGE_TOKENS,
    PDF,
    Document,
    Image,
    Message,
    Reply,
    Request,
    ToolCall,
)
from chargehand.models.openai import OpenAIChat
from chargehand.models.pydantic_ai_models import ProviderModel
from chargehand.models.resolve import Finder
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.file_rules import FILE_MODES, NO_DOCUMENTS, SHOWN, broken_rule
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.models.token_count import TokenRates, measure_request
from chargehand.models.wrappers import ReplicaPool
from tests.models.loopback import Move, loopback, whole
from tests.models.test_thoughts import chat, chunks, events, message
from tests.sample_files import make_pdf
from tests.support.closing import closing
from tests.support.hearing import Heard

Json = dict[str, Any]
PICTURE = Image("file-1", "image/png", b"\x89PNG\r\n\x1a\n")
PAPER = Document("file-2", "paper.pdf", 2, data=make_pdf("Hello", "Goodbye"))
CALLS = (ToolCall("c1", "look"), ToolCall("c2", "fail"))
ASKED = Message("user", "What is in them?", images=(PICTURE,), documents=(PAPER,))
ROUND = (
    ASKED,
    Message("assistant", calls=CALLS),
    Message("tool", "a cat", call="c1", images=(PICTURE,), documents=(PAPER,)),
    Message("tool", "no such thing", call="c2", is_error=True),
)
SCHEMA = msgspec.Raw(b'{"type":"object","properties":{},"required":[],"additionalProperties":false}')


def body_of(protocol: str, request: Request) -> Json:
    make = OpenAIChat if protocol == "openai" else AnthropicMessages
    model = make("test:m", "http://127.0.0.1:1/v1", "m", documents=True)
    return msgspec.json.decode(msgspec.json.encode(model._write(request, 100, None)))


# --- how they are sent


def test_openai_is_sent_files_of_the_user_as_parts_and_those_of_tools_behind_all_results() -> None:
    messages: list[Json] = body_of("openai", Request([*ROUND, Message("user", "And now?")]))["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    text, paper, picture = messages[0]["content"]
    assert text == {"type": "text", "text": "What is in them?"}
    assert paper["file"]["filename"] == "paper.pdf"
    assert paper["file"]["file_data"].startswith("data:application/pdf;base64,JVBERi0")
    assert picture == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert [messages[2]["content"], messages[3]["content"]] == ["a cat", "no such thing"]
    text, *parts = messages[4]["content"]
    assert "file-2, file-1" in text["text"]
    assert parts == [paper, picture]


def test_anthropic_is_sent_files_as_blocks_and_those_of_tools_inside_their_results() -> None:
    messages: list[Json] = body_of("anthropic", Request(ROUND))["messages"]
    paper, picture, _ = messages[0]["content"]
    assert (paper["type"], paper["title"], paper["source"]["media_type"]) == ("document", "paper.pdf", PDF)
    assert paper["citations"] == {"enabled": True}
    assert picture["source"]["media_type"] == "image/png"
    good, bad = messages[2]["content"]
    assert [block["type"] for block in good["content"]] == ["text", "document", "image"]
    assert "is_error" not in good
    assert (bad["content"], bad["is_error"]) == ("no such thing", True)


def test_citations_are_not_asked_for_where_the_reply_has_a_schema() -> None:
    body = body_of("anthropic", Request(ROUND, schema=SCHEMA))
    assert "format" in body["output_config"]
    assert "citations" not in msgspec.json.encode(body).decode()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_server_that_takes_files_refuses_none_of_ours(protocol: str, streamed: bool) -> None:
    async with FaultServer() as server:
        make = OpenAIChat if protocol == "openai" else AnthropicMessages
        model = make("test:m", server.url("takes-files"), "m", documents=True)
        async with closing(model):
            for request in (Request(ROUND), Request([ASKED], schema=SCHEMA)):
                reply = await model.reply(request, Heard() if streamed else None)
                assert reply.text


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_server_that_takes_no_pdfs_says_so_and_takes_pictures(protocol: str) -> None:
    async with FaultServer() as server:
        make = OpenAIChat if protocol == "openai" else AnthropicMessages
        model = make("test:m", server.url("takes-no-documents"), "m", documents=True)
        async with closing(model):
            assert (await model.reply(Request([Message("user", "What is it?", images=(PICTURE,))]))).text
            with pytest.raises(CallFailed, match=r"(?i)'file'|Input should be 'text', 'image'") as failed:
                await model.reply(Request([ASKED]))
        assert failed.value.failure.permanent
        assert str(failed.value).endswith(
            "if the model takes no PDFs: documents=False, if the model takes no pictures: images=False, "
            "in Python an option of find_model"
        )


@pytest.mark.parametrize(
    ("status", "message", "advised"),
    [
        (400, Message("user", "x", documents=(PAPER,)), "if the model takes no PDFs: documents=False, in Python"),
        (422, Message("user", "x", images=(PICTURE,)), "if the model takes no pictures: images=False, in Python"),
        (400, Message("user", "x"), ""),
        (404, ASKED, ""),
        (429, ASKED, ""),
    ],
)
async def test_a_refused_request_with_files_says_how_to_send_none(status: int, message: Message, advised: str) -> None:
    error = {"error": {"message": "unknown part", "type": "invalid_request_error"}}
    async with loopback(lambda _: whole(error, status)) as server:
        model = OpenAIChat("test:m", server.url, "m", documents=True)
        async with closing(model):
            with pytest.raises(CallFailed) as failed:
                await model.reply(Request([message]))
    assert "unknown part (invalid_request_error);" in str(failed.value), "its kind is named once"
    assert advised in str(failed.value)
    assert ("=False" in str(failed.value)) == bool(advised)


def test_what_is_no_picture_and_what_is_no_pdf_is_refused_before_it_is_sent() -> None:
    with pytest.raises(Invalid, match="application/pdf, which is no picture; a PDF goes into documents"):
        Image("file-1", "application/pdf", b"%PDF-1.4")
    with pytest.raises(Invalid, match="only a PDF"):
        Document("file-1", "photo.png", media_type="image/png")


def chat_body(role: str, part: Json) -> Json:
    return {"messages": [{"role": role, "content": [{"type": "text", "text": "x"}, part]}]}


def block(kind: str, media_type: str, **more: Any) -> Json:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": ""}, **more}


def result(*content: Json, is_error: bool = False) -> Json:
    return {"type": "tool_result", "tool_use_id": "c", "content": list(content), "is_error": is_error}


CITED = block("document", PDF, citations={"enabled": True})
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
PDF_URL = {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,"}}
FILE: Json = {"type": "file", "file": {"filename": "a", "file_data": "data:application/pdf;base64,"}}
TEXT_FILE = {"type": "file", "file": {"filename": "a", "file_data": "data:text/csv;base64,"}}


@pytest.mark.parametrize(
    ("protocol", "body", "words"),
    [
        (
            "openai",
            chat_body("tool", IMAGE_URL),
            "Invalid 'messages[0]'. Image URLs are only allowed for messages with",
        ),
        ("openai", chat_body("user", PDF_URL), "Invalid MIME type. Only image types are supported."),
        ("openai", chat_body("user", TEXT_FILE), "Invalid file data: 'messages[0].content[1].file.file_data'"),
        ("openai", chat_body("user", FILE), "Invalid value: 'file'."),
        ("anthropic", chat_body("user", block("image", PDF)), "messages.0.content.1.image.source.base64.media_type"),
        (
            "anthropic",
            chat_body("user", result(block("image", "image/png"), is_error=True)),
            "messages.0.content.1: all",
        ),
        ("anthropic", {"messages": [{"role": "user", "content": [CITED, block("document", PDF)]}]}, "all or none"),
        ("anthropic", {**chat_body("user", CITED), "output_config": {"format": {}}}, "output_config.format"),
        ("anthropic", chat_body("user", block("document", PDF)), "messages.0.content.1.type: Input should be"),
    ],
)
def test_each_rule_about_files_refuses_what_its_provider_does(protocol: Any, body: Json, words: str) -> None:
    error = broken_rule(NO_DOCUMENTS, protocol, body)
    assert error is not None
    assert cast("Json", error["error"])["message"].startswith(words) or words in str(error)


def test_rules_about_files_have_sources_and_modes() -> None:
    assert set(FILE_MODES) == {"takes-files", "takes-no-documents"}
    assert all(rule.source.startswith("https://") for rule in NO_DOCUMENTS)
    for protocol in ("openai", "anthropic"):
        assert broken_rule(SHOWN, protocol, body_of(protocol, Request(ROUND))) is None


# --- who takes them


@pytest.mark.parametrize(
    ("handle", "documents"),
    [
        ("openai:gpt-5-mini", True),
        ("openai:gpt-4o", True),
        ("openai:o3", True),
        ("openai:o3-mini", False),
        ("openai:gpt-3.5-turbo", False),
        ("openai:gpt-4o-audio-preview", False),
        ("anthropic:claude-sonnet-4-6", True),
        ("openrouter:deepseek/deepseek-v4", True),
        ("ollama:llava", False),
        ("openai+http://127.0.0.1:9/v1#gpt-5", False),
        ("anthropic+http://127.0.0.1:9#claude-sonnet-4-6", False),
        ("google:gemini-3-pro", True),
        ("deepseek:deepseek-chat", False),
    ],
)
def test_who_takes_pdfs_goes_by_place_and_name_unless_it_is_said(handle: str, documents: bool) -> None:
    finder = Finder(lambda name: "key" if name.endswith("_KEY") else None, shared=False)
    assert finder.find(handle).card.documents is documents
    assert finder.find(handle, documents=not documents).card.documents is not documents


def test_replicas_take_what_all_of_them_take() -> None:
    sees = ScriptedModel([], card=msgspec.structs.replace(ScriptedModel([]).card, documents=True))
    assert ReplicaPool([sees, sees], {}).card.documents
    assert not ReplicaPool([sees, ScriptedModel([])], {}).card.documents


async def test_the_extra_is_given_the_same_files_as_binary_content() -> None:
    seen: list[theirs.ModelMessage] = []

    def answer(messages: list[theirs.ModelMessage], _: AgentInfo) -> theirs.ModelResponse:
        seen[:] = messages
        return theirs.ModelResponse([theirs.TextPart("a cat")])

    await ProviderModel("google:m", FunctionModel(answer, model_name="gemini-3")).reply(Request(ROUND))
    asked, _, returned = seen
    (prompt,) = asked.parts
    assert isinstance(prompt, theirs.UserPromptPart)
    contents = [each for each in prompt.content if isinstance(each, theirs.BinaryContent)]
    assert [(each.media_type, each.data) for each in contents] == [(PDF, PAPER.data), ("image/png", PICTURE.data)]
    good, bad = returned.parts
    assert isinstance(good, theirs.ToolReturnPart)
    assert isinstance(bad, theirs.ToolReturnPart)
    kinds = [type(each).__name__ for each in cast("Sequence[object]", good.content)]
    assert kinds == ["str", "BinaryContent", "BinaryContent"]
    assert (good.outcome, bad.outcome, bad.content) == ("success", "failed", "no such thing")


async def test_the_extra_sends_files_as_the_providers_take_them() -> None:
    async with FaultServer() as server:
        url = server.url("takes-files")
        ours = [
            AnthropicModel(
                "claude-sonnet-4-6", provider=AnthropicProvider(api_key="k", base_url=url.removesuffix("/v1"))
            ),
            OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(api_key="k", base_url=url)),
        ]
        for made in ours:
            model = ProviderModel("test:m", made)
            assert (model.card.images, model.card.documents) == (True, True)
            async with closing(model):
                assert (await model.reply(Request(ROUND))).text
        assert server.requests["takes-files"] == 2


# --- what they count


def test_a_page_counts_as_a_provider_documents_it_and_more_is_reserved() -> None:
    plain = measure_request(Request([Message("user", "What is in them?")]))
    shown = measure_request(Request([ASKED]))
    assert round(sum(shown) - sum(plain)) == IMAGE_TOKENS + 2 * PAGE_TOKENS
    assert 1_500 <= PAGE_TOKENS <= 4_600, "text of 1,500 to 3,000 tokens, and a picture of the page"
    rates = TokenRates()
    assert rates.bound(shown) - rates.bound(plain) >= IMAGE_TOKENS + 2 * 4_600
    for _ in range(3):
        rates.learn(shown, 5_000)
    assert rates.estimate(shown) < sum(shown) * 0.9, "learned from replies"


# --- what they cite


PAGES: Json = {
    "type": "page_location",
    "cited_text": "The sum is 42.",
    "document_index": 0,
    "document_title": "paper.pdf",
    "start_page_number": 2,
    "end_page_number": 4,
}
WEB: Json = {
    "type": "web_search_result_location",
    "cited_text": "So it is.",
    "url": "https://a.test/",
    "title": "A",
    "encrypted_index": "x",
}
OF_PAGES = Citation("paper.pdf", "The sum is 42.", "It is 42.", page=2, last_page=3)
OF_WEB = Citation("A", "So it is.", "Really.", url="https://a.test/")


async def read(protocol: str, moves: list[Move], *, streamed: bool) -> Reply:
    async with loopback(lambda _: moves) as server:
        make = OpenAIChat if protocol == "openai" else AnthropicMessages
        model = make("test:m", server.url, "m")
        async with closing(model):
            return await model.reply(Request([Message("user", "hello")]), Heard() if streamed else None)


async def test_citations_of_anthropic_are_read_whole_and_streamed() -> None:
    said: list[Json] = [
        {"type": "text", "text": "It is 42.", "citations": [PAGES]},
        {"type": "text", "text": " Really.", "citations": [WEB]},
    ]
    whole = await read("anthropic", message(*said, stop="end_turn"), streamed=False)
    cited = {"type": "citations_delta"}
    streamed = await read(
        "anthropic",
        events(
            (
                {"type": "text", "text": "", "citations": []},
                [{**cited, "citation": PAGES}, {"type": "text_delta", "text": "It is 42."}],
            ),
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": " Really."}, {**cited, "citation": WEB}]),
            stop="end_turn",
        ),
        streamed=True,
    )
    for reply in (whole, streamed):
        assert reply.text == "It is 42. Really."
        assert reply.citations == (OF_PAGES, OF_WEB)


async def test_annotations_of_openai_are_read_whole_and_streamed() -> None:
    place = {"url": "https://a.test/", "title": "A", "start_index": 0, "end_index": 9}
    annotations: list[Json] = [
        {"type": "url_citation", "url_citation": place},
        {"type": "file_citation", "file_citation": {"file_id": "file-1"}},
        {"type": "file", "file": {"hash": "x"}},
    ]
    whole = await read("openai", chat({"content": "It is 42.", "annotations": annotations}, "stop"), streamed=False)
    streamed = await read(
        "openai", chunks({"content": "It is 42."}, {"annotations": annotations}, finish="stop"), streamed=True
    )
    cited = (Citation("A", claim="It is 42.", url="https://a.test/"), Citation("file-1"))
    assert whole.citations == streamed.citations == cited


async def test_of_many_and_long_citations_a_bounded_part_is_kept() -> None:
    many = [{**PAGES, "cited_text": f"{number} " + "x" * 5_000} for number in range(200)]
    reply = await read(
        "anthropic", message({"type": "text", "text": "hi", "citations": many}, stop="end_turn"), streamed=False
    )
    assert len(reply.citations) == MAX_CITATIONS
    assert max(len(each.text) for each in reply.citations) == 1_000

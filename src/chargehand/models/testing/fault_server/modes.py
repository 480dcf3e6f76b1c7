"""The table of faults: what each is called, what it does in one line, and who plays it."""

import chargehand.models.testing.fault_server.answers as answers
import chargehand.models.testing.fault_server.transport as transport
from chargehand.models.testing.fault_server.transport import Play, status

ELSEWHERE = "elsewhere"

_TABLE: dict[str, tuple[str, Play]] = {
    "ok": ("answers: echoes the last message, or makes the tool call it asks for", answers.ok),
    "late": ("answers after 0.3 s", transport.late),
    "flaky": ("every other request gets a 503", transport.flaky),
    # statuses
    "429": ("too many requests, Retry-After: 1", status(429, "slow down", {"Retry-After": "1"})),
    "429-day": ("too many requests, Retry-After: 86400", status(429, "see you", {"Retry-After": "86400"})),
    "429-date": ("too many requests, Retry-After as a date of a clock that is decades behind", transport.retry_date),
    "429-nonsense": ("too many requests, Retry-After: soon", status(429, "slow down", {"Retry-After": "soon"})),
    "500": ("internal error", status(500, "something broke")),
    "502-html": ("a gateway's error page", transport.bare_500),
    "503": ("unavailable", status(503, "restarting")),
    "529": ("overloaded, a status that is not in the standard", status(529, "overloaded")),
    "400": ("the request is refused as malformed", status(400, "messages: at least one is needed")),
    "401": ("the key is refused", status(401, "invalid api key")),
    "403": ("the key may not use this model", status(403, "you have no access to this model")),
    "404": ("there is no such model", status(404, "model not found")),
    "422": ("the settings are refused", status(422, "temperature: unexpected value")),
    "400-long": ("the request is longer than the model's window", status(400, "context_length_exceeded: 9 > 8 tokens")),
    "429-quota": ("the account has no credit left", status(429, "You exceeded your quota (insufficient_quota)")),
    "redirect": ("sent on to another address, which must not get the key", transport.redirect),
    # the connection
    "reset-before": ("connection reset before the headers", transport.reset_before),
    "reset-after-headers": ("connection reset after the headers", transport.reset_after_headers),
    "short-body": ("the connection ends halfway through the promised length", transport.short_body),
    "hang-up": ("answers, promises to keep the connection, and closes it", transport.hang_up),
    "eof-without-finish": ("ends in good order, before the answer does", transport.eof_without_finish),
    "chunked-abort": ("the connection ends between two chunks", transport.chunked_abort),
    "bad-chunk": ("a chunk whose size is no number", transport.bad_chunk),
    "garbage": ("not HTTP at all", transport.garbage),
    "stream-error": ("an error event in the middle of a stream", transport.stream_error),
    "cut-mid-json": ("cut in the middle of a JSON document", transport.cut_mid_json),
    # the clock
    "slow-comments": ("comments (one piece: blanks) for ever, and no data", transport.slow_comments),
    "slow-pings": ("valid events without content (one piece: line ends) for ever", transport.slow_pings),
    "slow-bytes": ("the answer, five bytes a second", transport.slow_bytes),
    "slow-headers": ("headers without end, one at a time", transport.slow_headers),
    "hang-before-headers": ("accepts, then says nothing", transport.hang_before_headers),
    "hang-mid-stream": ("begins to answer, then says nothing", transport.hang_mid_stream),
    "skewed-date": ("answers, with a Date of 1970", transport.skewed_date),
    # the size
    "huge-body": ("200 MiB in one string", transport.huge_body),
    "endless-events": ("200 MiB of small valid events (one piece: text)", transport.endless_events),
    "gzip-bomb": ("a gigabyte of blanks, packed into one megabyte", transport.gzip_bomb),
    "bad-gzip": ("says gzip and is not", transport.bad_gzip),
    "huge-header": ("a header of 200 MiB", transport.huge_header),
    "deep-json": ("brackets nested a hundred thousand deep", answers.deep_json),
    # the answer
    "bad-json": ("not JSON", answers.bad_json),
    "two-jsons": ("two JSON documents where one belongs", answers.two_jsons),
    "html": ("a web page with status 200", answers.html),
    "empty-body": ("status 200 and nothing else", answers.empty_body),
    "empty-choices": ("a reply with no choice, or no block, in it", answers.hollow),
    "null-content": ("a reply whose content is null", answers.null_content),
    "wrong-schema": ("JSON of some other kind", answers.wrong_schema),
    "error-in-200": ("an error with status 200", answers.error_in_200),
    "wrong-content-type": ("the right answer as text/plain", answers.wrong_content_type),
    "stream-unasked": ("a stream for who wanted one piece, one piece for who wanted a stream", answers.stream_unasked),
    "length": ("cut off at the token limit", answers.length),
    "refused": ("stopped by a content filter", answers.refused),
    "usage-missing": ("answers, without usage", answers.usage_missing),
    "usage-negative": ("answers, with usage below nothing", answers.usage_negative),
    "usage-absurd": ("answers, with a usage of two thousand million million tokens", answers.usage_absurd),
    "duplicate-call-ids": ("two tool calls with one id", answers.duplicate_call_ids),
    "wrong-call-index": (
        "arguments for a tool call that never began (one piece: a call without a name)",
        answers.wrong_call_index,
    ),
    "bad-arguments": ("a tool call whose arguments are not JSON", answers.bad_arguments),
    "bad-utf8": ("bytes that are not UTF-8", answers.bad_utf8),
    "split-utf8": ("answers, with characters cut in two between packets (legal)", answers.split_utf8),
    "odd-lines": ("answers, with comments, unknown fields and carriage returns (legal)", answers.odd_lines),
}

MODES: dict[str, str] = {name: said for name, (said, _) in _TABLE.items()}
# where the redirect leads: it answers properly, so that whoever follows is found out
PLAYS: dict[str, Play] = {ELSEWHERE: answers.ok, **{name: play for name, (_, play) in _TABLE.items()}}

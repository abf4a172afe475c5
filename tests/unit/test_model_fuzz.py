"""Whatever an endpoint sends, the readers give text or one of the model's own errors, and never a secret."""

import contextlib
import itertools
import json

from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.drivers.endpoint_errors import complaint_of, refused, retry_after_s
from bot.drivers.model_replies import ReplyReader
from bot.drivers.model_wire import EventReader
from bot.errors import ModelError
from bot.redaction import Redactor

KEY = "sk-proj-0123456789abcdefghijklmn"
ACCOUNT = "0123456789abcdef0123456789abcdef"
REDACT = Redactor((KEY, ACCOUNT))

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    *("choices", "delta", "message", "content", "finish_reason", "usage", "tool_calls", "index", "function", "name"),
    *("response", "result", "success", "error", "errors", "detail", "code", "type", "text", "reasoning"),
    *("prompt_tokens", "completion_tokens", "object"),
]
known = st.recursive(
    anything, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
)
lines = st.sampled_from(
    ["data: {}", "data:x", "data", ": ping", "", "", "event: error", "id: 1", "retry: 5", "data: é", "x", "data:  y"]
)
streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda parts: "".join(line + end for line, end in parts)
)


@settings(max_examples=200, deadline=None)
@given(stream=streams, cuts=st.lists(st.integers(0, 200), max_size=20))
def test_however_a_stream_is_cut_the_events_are_those_of_the_standards_parser(stream, cuts):
    line_decoder, decoder = SSELineDecoder(), SSEDecoder()
    whole = [*line_decoder.decode(stream), *line_decoder.flush(), ""] if stream else [""]
    expected = [event.data for line in whole if (event := decoder.decode(line)) and event.data]

    reader, found, held = EventReader(), [], ""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for start, end in itertools.pairwise(edges):
        held += stream[start:end]
        line_end = max(held.rfind("\n"), held.rfind("\r")) + 1
        if line_end:
            found += reader.read(held[:line_end])
            held = held[line_end:]
    assert found + reader.finish(held) == expected


@settings(max_examples=150, deadline=None)
@given(event=known)
def test_any_json_is_read_or_refused_as_garbled(event):
    reader = ReplyReader(REDACT)
    for read in (reader.feed, reader.feed_whole):
        with contextlib.suppress(ModelError):
            assert isinstance(read(json.dumps(event)), str)
    with contextlib.suppress(ModelError):
        reader.check_not_empty()


@settings(max_examples=120, deadline=None)
@given(
    status=st.integers(300, 599),
    body=known.map(json.dumps) | st.text(max_size=200),
    after=st.text(max_size=12) | st.integers().map(str),
    secret=st.sampled_from([KEY, ACCOUNT, f"https://api.example/accounts/{ACCOUNT}/ai", ""]),
    html=st.booleans(),
)
def test_any_answer_becomes_one_plain_sentence_and_one_line_without_secrets(status, body, after, secret, html):
    body = f"<html><b>{body} {secret}</b></html>" if html else f"{body}{secret}"
    error = refused(status, {"retry-after": after}, body, now=0.0, redact=REDACT)
    assert not any(mark in error.room_text for mark in "<>{}[]\n")
    assert KEY not in str(error)
    assert ACCOUNT not in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 800


@given(value=st.text(max_size=30))
def test_a_retry_after_is_a_time_or_nothing(value):
    seconds = retry_after_s({"retry-after": value}, now=0.0)
    assert seconds is None or seconds >= 0


@settings(max_examples=60, deadline=None)
@given(data=known)
def test_a_complaint_is_found_without_ever_failing(data):
    complaint = complaint_of(data)
    assert complaint is None or isinstance(complaint.message, str)

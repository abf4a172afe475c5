"""The wire as real endpoints speak it: each test is one habit seen in the field, against a server that has it."""

import asyncio
import gzip
import json
import time
from email.utils import formatdate

import pytest

from bot.conversation import Usage
from bot.drivers.chat_model import Endpoint, OpenAIModel, Patience
from bot.drivers.model_wire import Clocks
from bot.errors import ContextTooLong, ModelBusy, ModelError, ModelGarbled, ModelQuota, ModelRefused, ModelTimeout
from bot.ports import ChatMessage, Findings, Finished, ModelCall, Profile, Text
from tests.scripted_model import HANG, RESET, Reply, ScriptedModel, chunk

QUICK = Clocks(connect_s=3, first_s=3, silence_s=3, total_s=8)
SHORT = Clocks(connect_s=3, first_s=0.8, silence_s=0.8, total_s=8)
PATIENCE = Patience(retries=2, first_pause_s=0.01, longest_pause_s=1.5)
CALL = ModelCall((ChatMessage("system", "be brief"), ChatMessage("user", "Ana: hello")), "hello", Findings(), 64)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def says(text: str) -> bytes:
    return event(chunk({"content": text}))


STOP = event(chunk({}, finish="stop"))
DONE = event("[DONE]")


def wire(*parts: bytes | float | str) -> Reply:
    return Reply(raw=(HEAD, *parts))


class Heard:
    """What came of one call."""

    def __init__(self) -> None:
        self.text = ""
        self.finished: Finished | None = None
        self.error: ModelError | None = None


async def ask(model: OpenAIModel, call: ModelCall = CALL) -> Heard:
    heard = Heard()
    try:
        async for piece in model.stream(call):
            if isinstance(piece, Text):
                heard.text += piece.text
            else:
                heard.finished = piece
    except ModelError as error:
        heard.error = error
    return heard


async def hear(*replies: str | Reply, clocks: Clocks = QUICK, native: bool = False) -> tuple[Heard, ScriptedModel]:
    async with ScriptedModel(replies) as server:
        address = server.native_url if native else server.url
        model = OpenAIModel(
            Endpoint(address, "m", "sk-secret-key-1234"), profile=Profile(), clocks=clocks, patience=PATIENCE
        )
        try:
            return await ask(model), server
        finally:
            await model.aclose()


async def test_what_is_sent_is_the_call_and_max_tokens_always():
    heard, server = await hear("Hello.")
    assert heard.text == "Hello."
    assert heard.finished == Finished("stop", Usage(11, 7), "m")
    (request,) = server.requests
    assert request.messages == [{"role": m.role, "content": m.content} for m in CALL.messages]
    assert request.body["max_tokens"] == 64
    assert request.headers["authorization"] == "Bearer sk-secret-key-1234"
    assert request.path == "/v1/chat/completions"


async def test_01_comments_between_events_are_skipped():
    heard, _ = await hear(wire(b": OPENROUTER PROCESSING\n\n", says("a"), b":\n\n", says("b"), STOP, DONE))
    assert (heard.text, heard.error) == ("ab", None)


async def test_02_crlf_missing_spaces_split_characters_and_several_data_lines_are_one_stream():
    whole = json.dumps(json.loads(chunk({"content": "é€😀"})), ensure_ascii=False)
    data = f"data:{whole}\r\n\r\n".encode()
    pieces = [item for at in range(len(data)) for item in (data[at : at + 1], 0.0)]
    first, second = chunk({"content": "!"}).split(', "choices"')
    two_lines = f'data: {first}\ndata: , "choices"{second}\n\n'.encode()
    heard, _ = await hear(wire(*pieces, two_lines, STOP, DONE))
    assert (heard.text, heard.error) == ("é€😀!", None)


@pytest.mark.parametrize(
    "fault",
    [
        event('{"error":{"message":"upstream died","type":"server_error"}}') + DONE,
        event('{"error":"upstream died"}'),
        b'event: error\ndata: {"error":{"message":"upstream died"}}\n\n',
        event('{"object":"error","message":"upstream died","code":500}'),
    ],
)
async def test_03_an_error_inside_a_200_stream_keeps_the_partial_text_and_is_no_success(fault):
    heard, server = await hear(wire(says("Half an "), fault))
    assert heard.finished is None
    assert isinstance(heard.error, ModelError)
    assert heard.error.partial == "Half an "
    assert "upstream died" in str(heard.error)
    assert "upstream" not in heard.error.room_text
    assert len(server.requests) == 1, "text was shown, so it must not be asked again"


async def test_04_an_error_as_json_with_status_200_is_an_error():
    heard, _ = await hear(Reply(body='{"error":{"message":"No such model m","code":"model_not_found"}}'))
    assert isinstance(heard.error, ModelRefused)
    assert "DUET_MODEL" in heard.error.room_text


async def test_04_a_reply_that_was_not_streamed_is_taken_whole():
    choice = {"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    heard, _ = await hear(Reply(body=json.dumps({"choices": [choice], "usage": usage})))
    assert (heard.text, heard.finished) == ("Hi.", Finished("stop", Usage(3, 2), "m"))


async def test_04_what_calls_itself_a_stream_and_is_none_is_taken_for_what_it_is():
    choice = {"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    for kind in ("text/event-stream", "text/plain", ""):
        for body in (json.dumps({"choices": [choice]}), "\ufeff\n" + json.dumps({"choices": [choice]}, indent=1)):
            heard, _ = await hear(
                Reply(body=body, headers={"content-type": kind, "content-length": str(len(body.encode()))})
            )
            assert (heard.text, heard.error) == ("Hi.", None)
    events = (says("Hi.") + STOP).decode()
    heard, _ = await hear(Reply(body=events, headers={"content-type": "application/json"}))
    assert (heard.text, heard.error) == ("Hi.", None)


async def test_04_a_reply_packed_unasked_is_unpacked():
    body = gzip.compress(b"".join(says(f"{n} ") for n in range(9_000)) + STOP)
    head = HEAD.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection")
    heard, _ = await hear(Reply(raw=(head, *(body[at : at + 1_000] for at in range(0, len(body), 1_000)))))
    assert heard.text == "".join(f"{n} " for n in range(9_000))


async def test_05_trailers_end_a_reply_as_well_as_nothing_does():
    data = says("Whole") + STOP
    head = HEAD.replace(b"Connection", b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection")
    heard, _ = await hear(Reply(raw=(head, b"%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n" % (len(data), data))))
    assert (heard.text, heard.error) == ("Whole", None)


async def test_05_an_end_without_done_or_finish_is_incomplete():
    heard, _ = await hear(wire(says("Half")))
    assert isinstance(heard.error, ModelGarbled)
    assert heard.error.partial == "Half"


@pytest.mark.parametrize("ending", [STOP, DONE, STOP + DONE])
async def test_05_either_sign_makes_it_complete(ending):
    heard, _ = await hear(wire(says("Whole"), ending))
    assert heard.finished is not None
    assert heard.finished.reason == "stop"


async def test_06_a_cut_connection_is_tried_again_only_before_the_first_text():
    heard, server = await hear(wire(0.01, RESET), "Hello.")
    assert (heard.text, len(server.requests)) == ("Hello.", 2)
    heard, server = await hear(wire(says("Half"), 0.05, RESET), "Hello.")
    assert (heard.text, len(server.requests)) == ("Half", 1)
    assert heard.error is not None
    assert heard.error.partial == "Half"


async def test_06_a_chunked_body_that_stops_is_a_cut():
    head = HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked")
    body = says("Half")
    heard, _ = await hear(Reply(raw=(head, b"%x\r\n%s\r\n" % (len(body), body))))
    assert heard.error is not None
    assert heard.error.partial == "Half"


async def test_07_usage_may_come_on_any_chunk_be_null_or_be_zeroed_at_the_end():
    real = '{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":40,"completion_tokens":2}}'
    zero = '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}'
    null = '{"choices":[{"index":0,"delta":{"content":"b"}}],"usage":null}'
    heard, _ = await hear(wire(event(real), event(null), STOP, event(zero), DONE))
    assert heard.finished == Finished("stop", Usage(40, 2), "m")
    heard, _ = await hear(Reply("no usage at all", usage=None))
    assert heard.finished is not None
    assert heard.finished.usage == Usage()


async def test_07_tokens_counted_in_text_are_counted():
    heard, _ = await hear(
        wire(says("a"), STOP, event('{"choices":[],"usage":{"prompt_tokens":"12","completion_tokens":"3"}}'))
    )
    assert heard.finished == Finished("stop", Usage(12, 3), "m")


async def test_08_an_endpoint_that_rejects_optional_fields_is_asked_once_more_without_them():
    rejects = Reply(
        status=422, body='{"detail":[{"loc":["body","stream_options"],"msg":"extra fields not permitted"}]}'
    )
    async with ScriptedModel([rejects, "Hello.", "Again."]) as server:
        model = OpenAIModel(Endpoint(server.url, "m"), profile=Profile(), clocks=QUICK, patience=PATIENCE)
        assert (await ask(model)).text == "Hello."
        assert (await ask(model)).text == "Again.", "and it is remembered"
        await model.aclose()
        sent = [request.body for request in server.requests]
    assert ["stream_options" in body for body in sent] == [True, False, False]


async def test_08_an_endpoint_that_wants_the_limit_under_its_new_name_gets_it():
    rejects = Reply(status=400, body='{"error":{"message":"Unsupported parameter: use \'max_completion_tokens\'"}}')
    heard, server = await hear(rejects, "Hello.")
    assert heard.text == "Hello."
    assert server.requests[1].body["max_completion_tokens"] == 64
    assert "max_tokens" not in server.requests[1].body


async def test_09_null_missing_and_empty_content_are_nothing():
    odd = [
        chunk({"role": "assistant", "content": None}),
        chunk({}),
        chunk({"content": ""}),
        '{"choices":[{"delta":null}]}',
    ]
    heard, _ = await hear(wire(*(event(data) for data in odd), says("a"), event('{"choices":[{"index":0}]}'), STOP))
    assert (heard.text, heard.error) == ("a", None)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["", "stop", "stop"], "stop"),
        (["length", "stop"], "length"),
        (["max_tokens"], "length"),
        (["content_filter"], "content_filter"),
        (["eos_token"], "stop"),
    ],
)
async def test_10_the_first_real_finish_reason_counts(reasons, expected):
    heard, _ = await hear(wire(says("a"), *(event(chunk({}, finish=reason)) for reason in reasons), DONE))
    assert heard.finished is not None
    assert heard.finished.reason == expected


async def test_10_a_reply_that_a_filter_ended_says_so():
    heard, _ = await hear(wire(says("Half of"), event(chunk({}, finish="content_filter"))))
    assert heard.finished is not None
    assert (heard.text, heard.finished.reason) == ("Half of", "content_filter")
    assert "withheld the rest" in heard.finished.note
    heard, _ = await hear(*[wire(event(chunk({}, finish="SAFETY")))] * 3)
    assert heard.error is not None
    assert "withheld" in heard.error.room_text


async def test_10_a_refusal_in_the_models_own_words_is_its_reply():
    refusal = [event(chunk({"content": None, "refusal": piece})) for piece in ("I cannot ", "do that.")]
    heard, _ = await hear(wire(*refusal, STOP))
    assert (heard.text, heard.error) == ("I cannot do that.", None)


async def test_10_of_several_choices_one_is_read():
    def choice(index: int, text: str) -> bytes:
        return event(json.dumps({"choices": [{"index": index, "delta": {"content": text}}]}))

    heard, _ = await hear(wire(choice(0, "a"), choice(1, "x"), choice(0, "b"), choice(1, "y"), STOP))
    assert (heard.text, heard.error) == ("ab", None)


async def test_10_a_finish_called_error_is_a_failure():
    heard, _ = await hear(wire(says("a"), event(chunk({}, finish="error")), DONE))
    assert isinstance(heard.error, ModelGarbled)


async def test_10_a_reply_that_stops_at_the_limit_without_saying_so_was_cut():
    heard, _ = await hear(Reply("a", finish=None, usage=(9, 64)))
    assert heard.finished is not None
    assert heard.finished.reason == "length"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_11_reasoning_is_not_shown_but_is_a_sign_of_life(field):
    thoughts = [item for _ in range(4) for item in (event(chunk({field: "<run>rm</run>", "content": ""})), 0.3)]
    heard, _ = await hear(wire(*thoughts, says("Done."), STOP, DONE), clocks=SHORT)
    assert (heard.text, heard.error) == ("Done.", None)


async def test_11_a_reply_of_nothing_but_reasoning_says_so():
    thought = event(chunk({"reasoning": "hm"}))
    heard, _ = await hear(*[wire(thought, event(chunk({}, finish="length")), DONE)] * 3)
    assert isinstance(heard.error, ModelGarbled)
    assert "thought" in heard.error.room_text


@pytest.mark.parametrize(
    ("status", "body", "limit"),
    [
        (
            400,
            '{"error":{"code":400,"message":"the request exceeds the available context size",'
            '"type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}',
            4096,
        ),
        (
            400,
            '{"error":{"code":"context_length_exceeded","message":"This model\'s maximum context length is 8192"}}',
            8192,
        ),
        (413, '{"errors":[{"code":3006,"message":"Request is too large"}],"success":false}', None),
        (500, '{"error":{"message":"context size exceeded"}}', None),
        (
            400,
            '{"errors":[{"code":5021,"message":"AiError: The estimated number of input and maximum output tokens '
            '(30000) exceeded this model context window limit (24000)."}]}',
            24000,
        ),
    ],
)
async def test_12_a_prompt_that_is_too_long_is_told_apart_with_its_limit(status, body, limit):
    heard, server = await hear(Reply(status=status, body=body))
    assert isinstance(heard.error, ContextTooLong)
    assert heard.error.context_tokens == limit
    assert len(server.requests) == 1


async def test_12_an_empty_success_is_no_success():
    heard, server = await hear(*[Reply("", usage=(4096, 0))] * 3)
    assert isinstance(heard.error, ModelGarbled)
    assert "empty" in heard.error.room_text
    assert len(server.requests) == 3


async def test_13_a_server_that_is_loading_its_model_is_waited_for():
    loading = Reply(status=503, body='{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
    heard, server = await hear(loading, "Hello.")
    assert (heard.text, len(server.requests)) == ("Hello.", 2)


async def test_14_retry_after_is_honoured_in_seconds_and_as_a_date():
    body = '{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'
    started = time.perf_counter()
    heard, _ = await hear(Reply(status=429, headers={"Retry-After": "0.5"}, body=body), "Hello.")
    assert heard.text == "Hello."
    assert time.perf_counter() - started >= 0.5
    past = formatdate(time.time() - 5, usegmt=True)
    heard, _ = await hear(Reply(status=429, headers={"Retry-After": past}, body=body), "Hello.")
    assert heard.text == "Hello."


async def test_14_a_long_retry_after_is_told_instead_of_waited_for():
    heard, server = await hear(Reply(status=429, headers={"Retry-After": "3600"}, body="{}"), "Hello.")
    assert isinstance(heard.error, ModelBusy)
    assert heard.error.retry_after_s == 3600
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}',
        '{"errors":[{"code":3036,"message":"you have used up your daily free allocation of 10,000 neurons"}]}',
        '{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}',
    ],
)
async def test_14_a_used_up_allowance_is_not_tried_again(body):
    heard, server = await hear(Reply(status=429, body=body), "Hello.")
    assert isinstance(heard.error, ModelQuota)
    assert len(server.requests) == 1


async def test_14_out_of_capacity_is_tried_again():
    busy = Reply(
        status=429, body='{"errors":[{"code":3040,"message":"Capacity temporarily exceeded"}],"success":false}'
    )
    heard, server = await hear(busy, busy, "Hello.")
    assert (heard.text, len(server.requests)) == ("Hello.", 3)


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"<b>bad</b> key sk-secret-key-1234"}}',
        '{"error":"bad key sk-secret-key-1234"}',
        '{"errors":[{"code":10000,"message":"bad key sk-secret-key-1234"}]}',
        '{"detail":"bad key sk-secret-key-1234"}',
        "<html><style>x{}</style><body>bad key sk-secret-key-1234</body></html>",
        "[1, 2]",
        "",
    ],
)
async def test_15_every_shape_of_error_becomes_a_plain_sentence_and_a_line_without_secrets(body):
    heard, _ = await hear(Reply(status=401, body=body))
    assert isinstance(heard.error, ModelRefused)
    assert "DUET_MODEL_KEY" in heard.error.room_text
    line = str(heard.error)
    assert "sk-secret-key-1234" not in line
    assert "<" not in line
    assert "\n" not in line


async def test_15_an_account_id_in_an_address_or_a_message_is_never_repeated():
    body = '{"errors":[{"code":7003,"message":"Could not route to /accounts/0123456789abcdef0123456789abcdef/ai"}]}'
    heard, _ = await hear(Reply(status=404, body=body), native=True)
    assert isinstance(heard.error, ModelRefused)
    assert "0123456789abcdef" not in f"{heard.error} {heard.error.room_text}"


async def test_16_the_first_token_and_the_silence_after_it_have_their_own_clocks():
    slow_start = Clocks(connect_s=3, first_s=3.0, silence_s=0.3, total_s=8)
    heard, _ = await hear(Reply("Hello.", before_s=0.6), clocks=slow_start)
    assert heard.text == "Hello."
    heard, _ = await hear(wire(says("a"), HANG), clocks=slow_start)
    assert isinstance(heard.error, ModelTimeout)
    assert "silent" in heard.error.room_text
    assert heard.error.partial == "a"


async def test_16_the_listeners_own_slowness_is_not_the_models_silence():
    async with ScriptedModel([wire(says("a"), says("b"), 1.2, says("c"), STOP, DONE)]) as server:
        model = OpenAIModel(Endpoint(server.url), profile=Profile(), clocks=SHORT, patience=PATIENCE)
        text = ""
        async for piece in model.stream(CALL):
            if isinstance(piece, Text):
                text += piece.text
                if piece.text.startswith("a"):
                    await asyncio.sleep(1.1)
        await model.aclose()
    assert text == "abc"


@pytest.mark.parametrize(
    "calls",
    [
        [
            [{"index": 0, "id": "1", "function": {"name": "she", "arguments": '{"a'}}],
            [{"index": 0, "function": {"name": "ll", "arguments": '":1}'}}],
        ],
        [[{"name": "shell", "arguments": {"a": 1}}]],
        [[{"function": {"name": "shell", "arguments": {"a": 1}}}]],
    ],
)
async def test_17_tool_calls_in_pieces_or_whole_are_named_and_nothing_is_run(calls):
    events = [event(chunk({"content": None, "tool_calls": call})) for call in calls]
    heard, _ = await hear(*[wire(*events, event(chunk({}, finish="tool_calls")), DONE)] * 3)
    assert isinstance(heard.error, ModelGarbled)
    assert "shell" in str(heard.error)


async def test_cloudflares_own_dialect_is_spoken_at_its_own_address():
    usage = '{"response":"","usage":{"prompt_tokens":5,"completion_tokens":3}}'
    reply = wire(event('{"response":"The answer is "}'), event('{"response":42,"p":"abc"}'), event(usage), DONE)
    heard, server = await hear(reply, native=True)
    assert heard.text == "The answer is 42"
    assert heard.finished == Finished("stop", Usage(5, 3), "m")
    (request,) = server.requests
    assert request.path.endswith("/ai/run/m")
    assert "model" not in request.body
    assert request.body["stream"] is True


async def test_cloudflares_reply_in_one_piece_is_unwrapped():
    body = '{"result":{"response":"Hi.","usage":{"prompt_tokens":5}},"success":true,"errors":[],"messages":[]}'
    heard, _ = await hear(Reply(body=body), native=True)
    assert (heard.text, heard.error) == ("Hi.", None)


async def test_cloudflares_recorded_habit_of_finishing_twice_with_zero_usage():
    choices = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    finishes = [choices + f'"usage":{{"prompt_tokens":{p},"completion_tokens":{c}}}}}' for p, c in ((20, 4), (0, 0))]
    heard, _ = await hear(wire(says("Hi."), *map(event, finishes), DONE))
    assert heard.finished == Finished("stop", Usage(20, 4), "m")


@pytest.mark.parametrize(
    ("url", "name", "path", "label"),
    [
        ("https://x.example/v1/", "m", "/v1/chat/completions", "m"),
        ("https://x.example/v1", "", "/v1/chat/completions", "x.example"),
        ("https://x.example/accounts/abc/ai/run", "@cf/meta/l", "/accounts/abc/ai/run/@cf/meta/l", "@cf/meta/l"),
        ("https://x.example/accounts/abc/ai/run/@cf/meta/l", "", "/accounts/abc/ai/run/@cf/meta/l", "@cf/meta/l"),
        ("https://x.example/accounts/abc/ai/v1", "@cf/meta/l", "/accounts/abc/ai/v1/chat/completions", "@cf/meta/l"),
        ("https://x.example/open/m?api-version=2#x", "m", "/open/m/chat/completions?api-version=2", "m"),
        ("https://x.example/a/ai/run/?gateway=g", "@cf/l", "/a/ai/run/@cf/l?gateway=g", "@cf/l"),
        ("https://x.example", "m", "/chat/completions", "m"),
    ],
)
def test_an_endpoints_address_and_label_follow_from_its_settings(url, name, path, label):
    endpoint = Endpoint(url, name)
    assert (endpoint.address, endpoint.label) == (f"https://x.example{path}", label)


async def test_an_address_of_six_numbers_and_one_with_a_password_are_called_and_the_password_is_told_to_nobody(caplog):
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "::1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with ScriptedModel([Reply(status=400, body="no: hunter2hunter2 AIzaSecretInTheQuery")] * 3) as server:
        locked = server.url.replace("://", "://user:hunter2hunter2@") + "?key=AIzaSecretInTheQuery"
        with caplog.at_level("DEBUG", "bot"):
            for address in (f"http://[::1]:{port}/v1", locked):
                model = OpenAIModel(Endpoint(address, "m"), profile=Profile(), clocks=QUICK, patience=PATIENCE)
                heard = await ask(model)
                await model.aclose()
                assert heard.error is not None
                said = f"{heard.error} {heard.error.room_text} {caplog.text} {model!r}"
                assert "hunter2" not in said
                assert "AIza" not in said
        assert server.requests[0].path == "/v1/chat/completions?key=AIzaSecretInTheQuery"
        assert server.requests[0].headers["authorization"].startswith("Basic ")
    listener.close()


async def test_a_finished_reply_is_not_held_up_by_a_connection_that_stays_open():
    started = time.perf_counter()
    heard, _ = await hear(wire(says("Hi."), STOP, HANG), clocks=Clocks(total_s=30))
    assert (heard.text, heard.error) == ("Hi.", None)
    assert time.perf_counter() - started < 4


async def test_stopping_to_listen_closes_the_connection():
    async with ScriptedModel([wire(says("a"), *[item for _ in range(100) for item in (says("b"), 0.02)])]) as server:
        model = OpenAIModel(Endpoint(server.url), profile=Profile(), clocks=QUICK, patience=PATIENCE)
        stream = model.stream(CALL)
        assert isinstance(await anext(stream), Text)
        await stream.aclose()
        async with asyncio.timeout(2):
            while not server.cut:
                await asyncio.sleep(0.02)
        await model.aclose()


async def test_the_check_says_the_time_to_the_first_piece_and_whether_tokens_are_counted():
    async with ScriptedModel(["ready", Reply(status=401, body="{}")]) as server:
        model = OpenAIModel(Endpoint(server.url, "m"), profile=Profile(), clocks=QUICK, patience=PATIENCE)
        (good,), (bad,) = await model.checks(), await model.checks()
        await model.aclose()
    assert good.verdict == "ok"
    assert "first piece after" in good.seen
    assert bad.verdict == "fail"
    assert "DUET_MODEL_KEY" in bad.mend

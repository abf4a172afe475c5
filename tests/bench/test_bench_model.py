"""What the model client costs above bare httpx for each chunk of a streamed reply: a ratio, measured in one run."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.ports import ChatMessage, Findings, ModelCall, Profile, Text

CHUNKS = 2_000
RUNS = 9
MOST = 1.3
TEXT = "word " * CHUNKS


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """A server in a process of its own, so that only the client's work is counted."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": TEXT, "piece_chars": 5}]))
    server = Path(__file__).parents[1] / "scripted_model.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(server), "--script", str(script), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    yield (await process.stdout.readline()).decode().strip()
    process.terminate()
    await process.wait()


async def spent(work: Callable[[], Awaitable[str]]) -> float:
    """Give the processor seconds of one reply."""
    started = time.process_time()
    text = await work()
    took = time.process_time() - started
    assert text == TEXT
    return took


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer slows Duet's side alone")
async def test_streaming_costs_at_most_a_third_more_than_bare_httpx(address: str):
    messages = [{"role": "user", "content": "go"}]
    model = OpenAIModel(Endpoint(address, "m"), profile=Profile())
    call = ModelCall((ChatMessage("user", "go"),), "go", Findings(), 4_000)

    async with httpx.AsyncClient(timeout=30) as client:

        async def bare() -> str:
            pieces = []
            body = {"model": "m", "stream": True, "messages": messages}
            async with client.stream("POST", f"{address}/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        choices = json.loads(line[6:])["choices"]
                        if choices and (text := choices[0]["delta"].get("content")):
                            pieces.append(text)
            return "".join(pieces)

        async def ours() -> str:
            return "".join([piece.text async for piece in model.stream(call) if isinstance(piece, Text)])

        await bare()
        await ours()
        gc.disable()  # what other tests left on the heap is not this reply's cost
        try:
            costs = [(await spent(bare), await spent(ours)) for _ in range(RUNS)]
        finally:
            gc.enable()
    await model.aclose()
    floor, cost = min(b for b, _ in costs), min(o for _, o in costs)
    print(f"bare {floor / CHUNKS * 1e6:.1f} µs a chunk, ours {cost / CHUNKS * 1e6:.1f} µs: {cost / floor:.2f}")
    assert cost / floor <= MOST

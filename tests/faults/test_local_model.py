"""The built-in model's process: started once, ended with the program, and each reason why it cannot start told."""

import asyncio
import hashlib
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.drivers import local_model
from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.drivers.local_model import LocalModel, LocalServer, Weights, fault_of, free_memory_bytes
from bot.errors import ModelTimeout, ModelUnreachable
from bot.ports import ChatMessage, ChatModel, Findings, Finished, ModelCall, Text

CALL = ModelCall((ChatMessage("user", "hi"),), "hi", Findings(), 8)

# Speaks as the real child does, without its weights: `say` is one of good, fault, nothing, slow.
CHILD = textwrap.dedent("""
    import asyncio, json, pathlib, sys, time
    sys.path.insert(0, {root!r})
    from tests.scripted_model import ScriptedModel
    say, log = {say!r}, pathlib.Path({log!r})
    key = sys.stdin.readline().strip()
    with log.open("a") as file:
        file.write(key + "\\n")
    async def main():
        async with ScriptedModel(["Hello."], repeat_last=True) as model:
            print(json.dumps({{"ready": model.url}}), flush=True)
            await asyncio.to_thread(sys.stdin.read)
    if say == "good":
        asyncio.run(main())
    elif say == "fault":
        print(json.dumps({{"fault": "it needs 2.0 GB of memory and 0.4 GB are free."}}), flush=True)
    elif say == "slow":
        time.sleep(30)
""")


class Child:
    """A fake child's command line, and how often it was started."""

    def __init__(self, folder: Path, say: str) -> None:
        self.log = folder / "starts"
        script = folder / f"child-{say}.py"
        root = str(Path(__file__).parents[2])
        script.write_text(CHILD.format(root=root, say=say, log=str(self.log)))
        self.command = (sys.executable, str(script))

    @property
    def keys(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"GGUF" * 1_000)
    return Weights(path, hashlib.sha256(path.read_bytes()).hexdigest(), 4_000)


@pytest.fixture
async def opened() -> AsyncIterator[list[LocalModel]]:
    models: list[LocalModel] = []
    yield models
    for model in models:
        await model.aclose()


def local(opened: list[LocalModel], weights: Weights | None, child: Child, *, patience_s: float = 10) -> LocalModel:
    def client(address: str, key: str) -> ChatModel:
        return OpenAIModel(Endpoint(address, LocalModel.name, key), profile=LocalModel.profile)

    model = LocalModel(lambda: weights, client, patience_s=patience_s, command=child.command)
    opened.append(model)
    return model


async def reply(model: LocalModel) -> str:
    return "".join([piece.text async for piece in model.stream(CALL) if isinstance(piece, Text)])


async def test_it_starts_at_the_first_question_and_only_once(opened, weights, tmp_path):
    child = Child(tmp_path, "good")
    model = local(opened, weights, child)
    assert child.keys == []
    assert await asyncio.gather(reply(model), reply(model)) == ["Hello.", "Hello."]
    assert len(child.keys) == 1
    finished = [piece async for piece in model.stream(CALL) if isinstance(piece, Finished)]
    assert finished[0].model == "Qwen2.5-Coder-1.5B-Instruct (built in)"


async def test_its_key_is_random_and_not_on_the_command_line(opened, weights, tmp_path):
    child = Child(tmp_path, "good")
    model = local(opened, weights, child)
    await reply(model)
    (key,) = child.keys
    assert len(key) >= 24
    assert model._server is not None
    assert key not in " ".join(model._server._arguments)


async def test_closing_ends_the_process(opened, weights, tmp_path):
    model = local(opened, weights, Child(tmp_path, "good"))
    await reply(model)
    assert model._server is not None
    process = model._server._process
    await model.aclose()
    assert process is not None
    assert process.returncode is not None


async def test_a_process_that_died_is_started_again(opened, weights, tmp_path):
    child = Child(tmp_path, "good")
    model = local(opened, weights, child)
    await reply(model)
    assert model._server is not None
    process = model._server._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert await reply(model) == "Hello."
    assert len(child.keys) == 2


@pytest.mark.parametrize(("say", "words"), [("fault", "needs 2.0 GB of memory"), ("nothing", "ended without a word")])
async def test_a_process_that_cannot_serve_says_why(opened, weights, tmp_path, say, words):
    with pytest.raises(ModelUnreachable) as fault:
        await reply(local(opened, weights, Child(tmp_path, say)))
    assert words in fault.value.room_text


async def test_weights_that_are_not_installed_are_told_and_looked_for_again(opened, weights, tmp_path):
    found: list[Weights | None] = [None, weights]
    child = Child(tmp_path, "good")
    model = local(opened, None, child)
    model._weights = lambda: found.pop(0)
    with pytest.raises(ModelUnreachable) as fault:
        await reply(model)
    assert "not installed" in fault.value.room_text
    assert "duet model install local" in str(fault.value)
    assert await reply(model) == "Hello."


async def test_a_start_that_takes_too_long_for_one_turn_goes_on_for_the_next(opened, weights, tmp_path):
    model = local(opened, weights, Child(tmp_path, "slow"), patience_s=0.2)
    with pytest.raises(ModelTimeout) as fault:
        await reply(model)
    assert "still starting" in fault.value.room_text
    assert model._starting is not None
    assert not model._starting.done()


async def test_it_can_be_warmed_before_anybody_asks(opened, weights, tmp_path):
    child = Child(tmp_path, "good")
    model = local(opened, weights, child)
    model.warm()
    assert model._warming is not None
    await model._warming
    assert len(child.keys) == 1


async def test_without_its_runtime_it_says_which_extra_to_install(opened, weights, tmp_path, monkeypatch):
    model = local(opened, weights, Child(tmp_path, "good"))
    model._command = None
    monkeypatch.setattr(local_model, "RUNTIME", "no_such_runtime")
    with pytest.raises(ModelUnreachable) as fault:
        await reply(model)
    assert "duet-bot[local]" in fault.value.room_text


def test_weights_that_cannot_be_loaded_are_told_one_by_one(weights):
    assert fault_of(weights, free_bytes=10_000_000_000) is None
    assert "0.5 GB are free" in (fault_of(weights, free_bytes=500_000_000) or "")
    short = Weights(weights.path, weights.sha256, 5_000)
    assert "not whole (4,000 of 5,000 bytes)" in (fault_of(short, free_bytes=None) or "")
    assert "are missing" in (fault_of(Weights(weights.path / "no", "", 1), free_bytes=None) or "")


def test_a_file_with_another_hash_is_refused_even_after_the_right_one_was_verified(weights):
    assert fault_of(weights, free_bytes=None) is None
    weights.path.write_bytes(b"gguf" * 1_000)
    assert "SHA-256 differs" in (fault_of(weights, free_bytes=None) or "")


def test_a_verified_file_is_not_hashed_again_while_it_stays_the_same(weights, monkeypatch):
    assert fault_of(weights, free_bytes=None) is None
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert fault_of(weights, free_bytes=None) is None


def test_free_memory_is_the_lesser_of_the_machines_and_the_containers(tmp_path):
    assert free_memory_bytes(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4000000 kB\n")
    assert free_memory_bytes(tmp_path) == 4_096_000_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("2000000000\n")
    (group / "memory.current").write_text("500000000\n")
    assert free_memory_bytes(tmp_path) == 1_500_000_000
    (group / "memory.max").write_text("max\n")
    assert free_memory_bytes(tmp_path) == 4_096_000_000


async def test_the_real_child_says_in_one_line_what_is_wrong(tmp_path):
    server = LocalServer(Weights(tmp_path / "none.gguf", "0", 1))
    with pytest.raises(ModelUnreachable) as fault:
        await server.start()
    assert "are missing" in fault.value.room_text
    assert str(tmp_path) not in fault.value.room_text


async def test_the_child_ends_when_its_parent_is_killed(tmp_path, weights):
    child = Child(tmp_path, "good")
    parent = textwrap.dedent(f"""
        import asyncio, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from bot.drivers.local_model import LocalServer, Weights
        async def main():
            server = LocalServer(Weights(Path({str(weights.path)!r}), "", 1), command={child.command!r})
            await server.start()
            print(server._process.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    child_pid = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    async with asyncio.timeout(10):
        while _is_alive(child_pid):
            await asyncio.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"

"""The engine gone, killed, hung, restarted, replaced: noticed within five seconds, and rooms recover by themselves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.conversation import Ended
from bot.errors import SandboxUnavailable
from tests.private_engine import PrivateEngine, private_engine
from tests.sandbox_engine import Bench, begun, closing, room, run, stopwatch


@pytest.fixture
def engine() -> Iterator[PrivateEngine]:
    # Not pytest's folder: the path of a unix socket is at most 107 characters long.
    with (
        tempfile.TemporaryDirectory(prefix="duet-e-", ignore_cleanup_errors=True) as folder,
        private_engine(Path(folder)) as made,
    ):
        yield made


@pytest.fixture
def bench(engine: PrivateEngine, tmp_path: Path) -> Bench:
    return Bench(tmp_path, engine.address)


async def test_an_engine_killed_in_the_middle_ends_the_command_at_once_and_the_room_recovers(
    engine: PrivateEngine, bench: Bench
) -> None:
    async with closing(bench.sandbox(timeout_s=30)) as sandbox:
        await run(sandbox, "echo kept > f")
        await sandbox.settled()
        await sandbox.upkeep.sweep(bench.now_ms + 6_000)  # saved
        task = await begun(sandbox, "echo begun; sleep 30")
        async with stopwatch() as seconds:
            engine.kill()
            result = await task
            assert seconds() < 5
        assert (result.ended, result.stdout) == (Ended.KILLED, "begun\n")
        assert "engine went away" in result.note
        with pytest.raises(SandboxUnavailable, match="nothing listens"):
            await run(sandbox, "true")
        engine.start()
        assert await recovered(sandbox, "cat f") == "kept\n"


async def test_an_engine_that_hangs_is_noticed_within_five_seconds(engine: PrivateEngine, bench: Bench) -> None:
    async with closing(bench.sandbox(timeout_s=30)) as sandbox:
        await run(sandbox, "true", where=room("b"))
        running = await begun(sandbox, "echo begun; sleep 30")
        async with stopwatch() as seconds:
            engine.freeze()
            with pytest.raises(SandboxUnavailable) as fault:
                await run(sandbox, "true", where=room("b"))
            assert seconds() < 5
            assert fault.value.mend
            assert (await running).ended is Ended.KILLED
            assert seconds() < 5, "the answer does not wait for the clearing up"
        async with stopwatch() as seconds:
            with pytest.raises(SandboxUnavailable):
                await run(sandbox, "true", where=room("b"))
            assert seconds() < 5
        engine.thaw()
        assert await recovered(sandbox, "echo back") == "back\n"
        assert await recovered(sandbox, "ps | grep -c '[s]leep 30'") == "0\n", "what ran before is gone"


@pytest.mark.slow
async def test_an_engine_that_was_replaced_gets_new_containers_and_the_old_files(
    engine: PrivateEngine, bench: Bench
) -> None:
    async with closing(bench.sandbox()) as sandbox:
        await run(sandbox, "echo kept > f")
        await sandbox.settled()
        await sandbox.upkeep.sweep(bench.now_ms + 6_000)
        engine.stop()
        engine.start(data="other")
        with pytest.raises(SandboxUnavailable, match=r"not on the engine\. Run `duet image build`"):
            await recovered(sandbox, "cat f")
        engine.load_tiny()
        assert await recovered(sandbox, "cat f") == "kept\n"


async def test_a_reset_while_the_engine_is_down_is_remembered_and_done_by_the_sweep(
    engine: PrivateEngine, bench: Bench
) -> None:
    async with closing(bench.sandbox()) as sandbox:
        await run(sandbox, "echo secret > f")
        await sandbox.settled()
        await sandbox.upkeep.sweep(bench.now_ms + 6_000)
        engine.stop()
        async with stopwatch() as seconds:
            with pytest.raises(SandboxUnavailable):
                await sandbox.destroy(room(), through=0)
            assert seconds() < 5
        assert not list(bench.home.glob("snapshots/*.tar")), "the files are gone at once"
        engine.start()
        assert len(bench.containers()) == 1
        async with asyncio.timeout(20):
            while bench.containers():
                await sandbox.upkeep.sweep(bench.now_ms)
                await asyncio.sleep(0.2)  # the next round; the first may come before the engine is believed again
        assert (await run(sandbox, "cat f", generation=1)).exit_code == 1


@pytest.mark.slow
async def test_an_engine_with_live_restore_is_emptied_of_what_went_on_running(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="duet-e-", ignore_cleanup_errors=True) as folder,
        private_engine(Path(folder), "--live-restore") as engine,
    ):
        bench = Bench(tmp_path, engine.address)
        async with closing(bench.sandbox(timeout_s=30)) as sandbox:
            await run(sandbox, "echo kept > f")
            task = await begun(sandbox, "echo begun; sleep 25; echo late > late")
            engine.kill()
            await task
            engine.start()
            assert await recovered(sandbox, "cat f; ps | grep -c '[s]leep 25'") == "kept\n0\n"


async def recovered(sandbox: object, code: str, *, within_s: float = 8.0) -> str:
    """Run `code` as soon as the engine is found again."""
    async with stopwatch() as seconds:
        while True:
            try:
                return (await run(sandbox, code)).stdout
            except SandboxUnavailable:
                if seconds() > within_s:
                    raise
                await asyncio.sleep(0.2)

"""The life of rooms' containers on the real engine: made, kept, saved, stopped, found again, removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from bot.conversation import Ended
from bot.drivers.ledger import SandboxState
from bot.drivers.sandbox import DockerSandbox
from bot.errors import BadInput, SandboxUnavailable
from tests.sandbox_engine import Bench, begun, bench, closing, engine_address, room, run, stopwatch

IDLE_MS = 6_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


@pytest.fixture
async def sandbox(place: Bench) -> AsyncIterator[DockerSandbox]:
    async with closing(place.sandbox()) as made:
        yield made


async def test_a_workspace_is_saved_after_five_idle_seconds_and_not_before(
    place: Bench, sandbox: DockerSandbox
) -> None:
    await run(sandbox, "echo a > f")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + 4_000)
    assert not list(place.home.glob("snapshots/*.tar"))
    await sandbox.upkeep.sweep(place.now_ms + IDLE_MS)
    (snapshot,) = place.home.glob("snapshots/*.tar")
    assert b"./f" in snapshot.read_bytes()
    assert snapshot.stat().st_mode & 0o077 == 0


async def test_an_idle_sandbox_is_stopped_with_its_files_and_starts_again(place: Bench, sandbox: DockerSandbox) -> None:
    await run(sandbox, "mkdir -p d/e; echo deep > d/e/f; ln -s f d/e/link; chmod 750 d; echo x > 'odd name'")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + 901_000)
    assert place.containers(all=False) == []
    after = await run(sandbox, "cat d/e/link 'odd name'; stat -c %a d")
    assert after.stdout == "deep\nx\n750\n"


@pytest.mark.slow
async def test_a_sandbox_idle_for_a_day_goes_with_its_files(place: Bench, sandbox: DockerSandbox) -> None:
    await run(sandbox, "echo a > f")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + IDLE_MS)
    await sandbox.upkeep.sweep(place.now_ms + 86_401_000)
    assert place.containers() == []
    assert not list(place.home.glob("snapshots/*.tar"))
    assert (await run(sandbox, "cat f")).exit_code == 1


@pytest.mark.slow
async def test_a_room_in_use_is_neither_saved_nor_stopped(place: Bench, sandbox: DockerSandbox) -> None:
    task = await begun(sandbox, "echo in; sleep 1; echo done")
    await sandbox.upkeep.sweep(place.now_ms + 90_000_000)
    assert (await task).stdout == "in\ndone\n"


async def test_a_dirty_workspace_is_saved_at_the_end_and_found_at_the_next_start(place: Bench) -> None:
    async with closing(place.sandbox()) as first:
        await run(first, "echo kept > f")
    assert list(place.home.glob("snapshots/*.tar"))
    place.remove_all()
    async with closing(place.sandbox()) as second:
        await second.upkeep.reconcile()
        assert (await run(second, "cat f")).stdout == "kept\n"


async def test_a_killed_process_leaves_rooms_that_the_next_takes_over_and_orphans_that_it_removes(
    place: Bench,
) -> None:
    killed = place.sandbox()  # never closed
    await run(killed, "echo kept > f")
    await killed.settled()
    (mine,) = place.containers()
    orphan = await killed.upkeep._rooms.containers.create(killed.upkeep._rooms.names.room("0123456789abcdef", 0))
    async with closing(place.sandbox()) as heir:
        await heir.upkeep.reconcile()
        assert [one["Id"] for one in place.containers()] == [mine["Id"]]
        assert orphan not in {one["Id"] for one in place.containers()}
        assert (await run(heir, "cat f")).stdout == "kept\n"
        row = await place.ledger.sandbox(room())
        assert row is not None
        assert row.dirty, "its last command may not have been written down"
    killed.engine.close()


async def test_what_a_killed_process_left_running_is_ended_before_the_next_command(place: Bench) -> None:
    killed = place.sandbox(timeout_s=30)
    task = await begun(killed, "echo in; sleep 28")
    async with closing(place.sandbox()) as heir:
        hold = killed.upkeep._rooms.locks
        assert await hold.try_hold(next(iter(hold._turns))) is None
        # As the kernel does when the process is gone: the lock goes, the command goes on.
        heir.upkeep._rooms.locks = heir._rooms.locks = _Unlocked(heir._rooms.locks)
        await heir.interrupt(room())
        assert (await run(heir, "ps | grep -c '[s]leep 28'")).stdout == "0\n"
    assert (await task).ended is Ended.KILLED
    await killed.close()


class _Unlocked:
    """Locks as they are for a process whose fellow has died: free."""

    def __init__(self, locks: object) -> None:
        self._locks = locks

    async def hold(self, digest: str) -> _Unlocked:
        return self

    async def try_hold(self, digest: str) -> _Unlocked:
        return self

    def release(self) -> None:
        return


async def test_containers_of_another_data_folder_are_never_touched(place: Bench, sandbox: DockerSandbox) -> None:
    with bench(place.home / "other") as neighbour:
        async with closing(neighbour.sandbox(pool=1)) as theirs:
            await run(theirs, "echo theirs > f")
            await theirs.upkeep.sweep(0)
            before = {one["Id"] for one in neighbour.containers()}
            assert len(before) == 2
            await sandbox.upkeep.reconcile()
            await sandbox.upkeep.sweep(place.now_ms + 90_000_000)
            await sandbox.destroy(room(), through=5)
            assert {one["Id"] for one in neighbour.containers()} == before
            assert (await run(theirs, "cat f")).stdout == "theirs\n"


async def test_two_processes_share_a_room_without_ending_each_others_command(place: Bench) -> None:
    async with closing(place.sandbox()) as one, closing(place.sandbox()) as two:
        await run(one, "true")
        results = await asyncio.gather(
            run(one, "sleep 0.5; echo x >> f; cat f"), run(two, "sleep 0.5; echo x >> f; cat f")
        )
    assert {result.ended for result in results} == {Ended.EXIT}
    assert sorted(result.stdout for result in results) == ["x\n", "x\nx\n"]
    assert len(place.containers()) == 1


async def test_the_first_command_of_a_room_takes_a_container_that_stands_by(place: Bench) -> None:
    async with closing(place.sandbox(pool=1)) as sandbox:
        await sandbox.upkeep.sweep(place.now_ms)
        (ready,) = place.containers(all=False)
        assert "-pool-" in ready["Names"][0]
        assert (await run(sandbox, "echo hi")).stdout == "hi\n"
        await sandbox.settled()
        (taken,) = place.containers(all=False)
        assert taken["Id"] == ready["Id"]
        assert taken["Names"][0].endswith("-g0"), "it bears the room's name now"
        await sandbox.upkeep.sweep(place.now_ms)
        assert len(place.containers(all=False)) == 2, "another one stands by"
        await sandbox.upkeep.reconcile()
        assert len(place.containers(all=False)) == 2


@pytest.mark.slow
async def test_two_processes_never_take_the_same_standing_container(place: Bench) -> None:
    async with closing(place.sandbox(pool=1)) as one, closing(place.sandbox(pool=1)) as two:
        await one.upkeep.sweep(place.now_ms)
        await asyncio.gather(run(one, "echo one > f", where=room("one")), run(two, "echo two > f", where=room("two")))
        outputs = await asyncio.gather(run(one, "cat *", where=room("one")), run(two, "cat *", where=room("two")))
    assert [result.stdout for result in outputs] == ["one\n", "two\n"]


@pytest.mark.slow
async def test_standing_containers_of_an_older_make_are_replaced(place: Bench) -> None:
    async with closing(place.sandbox(pool=1)) as old:
        await old.upkeep.sweep(place.now_ms)
    (before,) = place.containers()
    async with closing(place.sandbox(pool=1, pids=32)) as new:
        await new.upkeep.reconcile()
        await new.upkeep.sweep(place.now_ms)
        (after,) = place.containers()
        assert after["Id"] != before["Id"]


async def test_a_container_killed_from_outside_in_the_middle_is_said_and_the_room_goes_on(
    place: Bench, sandbox: DockerSandbox
) -> None:
    await run(sandbox, "echo kept > f")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + IDLE_MS)
    task = await begun(sandbox, "echo in; sleep 20")
    with contextlib.closing(place.client()) as client:
        client.kill(place.containers()[0]["Id"])
    result = await task
    assert result.ended is Ended.KILLED
    assert "stopped from outside" in result.note
    assert (await run(sandbox, "cat f")).stdout == "kept\n"


@pytest.mark.slow
async def test_a_container_removed_from_outside_between_commands_is_made_anew(
    place: Bench, sandbox: DockerSandbox
) -> None:
    await run(sandbox, "echo kept > f")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + IDLE_MS)
    place.remove_all()
    assert (await run(sandbox, "cat f")).stdout == "kept\n"


@pytest.mark.slow
async def test_a_container_paused_from_outside_goes_on(place: Bench, sandbox: DockerSandbox) -> None:
    await run(sandbox, "echo kept > f")
    await sandbox.settled()
    with contextlib.closing(place.client()) as client:
        client.pause(place.containers()[0]["Id"])
    assert (await run(sandbox, "cat f")).stdout == "kept\n"


async def test_a_sandbox_that_cannot_be_emptied_is_restarted_with_its_saved_files(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with closing(place.sandbox(timeout_s=2)) as sandbox:
        await run(sandbox, "echo saved > f")
        await sandbox.settled()
        await sandbox.upkeep.sweep(place.now_ms + IDLE_MS)
        monkeypatch.setattr("bot.drivers.containers.REAP_TRIES", 0)
        result = await run(sandbox, "echo lost > g; kill -STOP $PPID; sleep 60")
        assert result.ended is Ended.TIMEOUT
        assert "had to be restarted; its files are as they were" in result.note
        after = await run(sandbox, "ls; cat f; ps | grep -c '[s]leep 60'")
        assert after.stdout == "f\nsaved\n0\n"


async def test_destroying_ends_the_running_command(sandbox: DockerSandbox, place: Bench) -> None:
    task = await begun(sandbox, "echo in; sleep 20")
    async with stopwatch() as seconds:
        await sandbox.destroy(room(), through=0)
        assert (await task).ended is Ended.KILLED
        assert seconds() < 5
    assert place.containers() == []
    assert (await run(sandbox, "true", generation=0)).ended is Ended.NOT_STARTED


@pytest.mark.slow
async def test_a_command_of_a_newer_generation_leaves_nothing_of_the_older(
    sandbox: DockerSandbox, place: Bench
) -> None:
    await run(sandbox, "echo old > f", generation=3)
    assert (await run(sandbox, "cat f", generation=4)).exit_code == 1
    assert len(place.containers()) == 1
    assert (await run(sandbox, "true", generation=3)).ended is Ended.NOT_STARTED


@pytest.mark.slow
async def test_a_workspace_that_cannot_be_saved_is_not_thrown_away(place: Bench, sandbox: DockerSandbox) -> None:
    await run(sandbox, "echo kept > f")
    await sandbox.settled()

    async def fails(container_id: str, write: object) -> str:
        return "no"

    sandbox.upkeep._rooms.containers.save = fails
    await sandbox.upkeep.sweep(place.now_ms + 901_000)
    row = await place.ledger.sandbox(room())
    assert row is not None
    assert row.state is SandboxState.LIVE
    assert (await run(sandbox, "cat f")).stdout == "kept\n"


async def test_a_full_disk_costs_neither_the_workspace_nor_what_space_is_left(
    place: Bench, sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(sandbox, "head -c 300K /dev/urandom >f; echo kept >g")
    await sandbox.settled()

    def on_a_full_disk(fd: int, mode: str) -> IO[bytes]:
        os.close(fd)
        return open("/dev/full", mode)

    with monkeypatch.context() as full:
        full.setattr("bot.drivers.snapshots.os.fdopen", on_a_full_disk)
        await sandbox.upkeep.sweep(place.now_ms + 901_000)
        assert [path.name for path in place.home.glob("snapshots/*") if path.suffix != ".lock"] == ["standby"]
    row = await place.ledger.sandbox(room())
    assert row is not None
    assert (row.state, row.dirty) == (SandboxState.LIVE, True)
    assert (await run(sandbox, "cat g")).stdout == "kept\n"
    place.now_ms += 1  # it is tried once a command
    await run(sandbox, "true")
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + 901_000)
    assert len(list(place.home.glob("snapshots/*.tar"))) == 1


async def test_a_standing_container_that_cannot_be_written_down_is_not_left(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.touch", fails)
    async with closing(place.sandbox(pool=1)) as sandbox:
        for _ in range(2):
            await sandbox.upkeep.sweep(place.now_ms)
        assert place.containers() == []


async def test_a_snapshot_that_a_killed_process_was_writing_is_cleared_away(
    place: Bench, sandbox: DockerSandbox
) -> None:
    await run(sandbox, "true")
    old, new = (place.home / "snapshots" / f".writing-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    await sandbox.upkeep.reconcile()
    assert (old.exists(), new.exists()) == (False, True)


async def test_a_snapshot_holds_what_a_hostile_workspace_can_hold(place: Bench, sandbox: DockerSandbox) -> None:
    code = (
        "mkfifo pipe; ln -s /etc/passwd out; echo x > unreadable; chmod 0 unreadable; echo y > ok; ln ok hard; "
        "mkdir shut; chmod 0 shut; chmod 0 ."
    )
    await run(sandbox, code)
    await sandbox.settled()
    await sandbox.upkeep.sweep(place.now_ms + 901_000)
    assert (await run(sandbox, "cat ok hard; ls | wc -l")).stdout.startswith("y\ny\n")


async def test_a_missing_image_says_what_to_run(place: Bench) -> None:
    async with closing(place.sandbox(image="duet-no-such-image:1")) as sandbox:
        with pytest.raises(SandboxUnavailable, match=r"Run `duet image build`\."):
            await run(sandbox, "true")


async def test_an_engine_that_is_away_is_told_at_once(tmp_path: Path) -> None:
    place = Bench(tmp_path, f"unix://{tmp_path}/none.sock")
    async with closing(place.sandbox()) as sandbox:
        async with stopwatch() as seconds:
            with pytest.raises(SandboxUnavailable, match="no socket at its address") as fault:
                await run(sandbox, "true")
            assert seconds() < 5
        assert "Start Docker" in fault.value.mend
        await sandbox.upkeep.sweep(0)
        await sandbox.upkeep.reconcile()
        await sandbox.interrupt(room())


@pytest.mark.slow
async def test_fifty_rooms_at_once_all_get_their_own_answer(place: Bench) -> None:
    async with closing(place.sandbox(timeout_s=30)) as sandbox:
        rooms = [room(f"r{n}") for n in range(50)]
        results = await asyncio.gather(
            *(run(sandbox, f"echo {n} > f; cat f", where=one) for n, one in enumerate(rooms))
        )
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(50)]


@pytest.mark.slow
async def test_more_rooms_than_may_run_at_once_all_get_their_own_answer(place: Bench) -> None:
    async with closing(place.sandbox(timeout_s=30, rooms_at_once=2)) as sandbox:
        rooms = [room(f"r{n}") for n in range(6)]
        results = await asyncio.gather(
            *(run(sandbox, f"echo {n} > f; cat f", where=one) for n, one in enumerate(rooms))
        )
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(6)]


async def test_a_file_that_does_not_fit_is_refused_in_words(sandbox: DockerSandbox) -> None:
    with pytest.raises(BadInput, match="does not fit into the workspace"):
        await sandbox.put(room(), 0, "big.bin", bytes(33 << 20))
    await run(sandbox, "dd if=/dev/zero of=full bs=1M count=30")
    with pytest.raises(BadInput, match=r"big\.bin could not be laid into the workspace"):
        await sandbox.put(room(), 0, "big.bin", bytes(5 << 20))
    assert (await run(sandbox, "ls -A")).stdout == "full\n", "no half file is left"


TRICKS = {
    "pipe": "is no plain file",
    "to-pipe": "is no plain file",
    "d": "is a folder; pack it first",
    "..": "lies outside",
    "env": "lies outside",
    "passwd": "lies outside",
    "to-zero": "lies outside",
    "/etc/passwd": "lies outside",
    "d/../../etc/passwd": "lies outside",
    "/proc/self/environ": "lies outside",
    "/dev/stdin": "lies outside",
    "shadow": "There is no file",
    "loop": "There is no file",
    "f/": "There is no file",
    "f\n": "There is no file",
    "*": "There is no file",
    "$(id)": "There is no file",
    "-n": "There is no file",
    "shut": "is closed to reading",
    "x" * 200_000: "Name a file",
    "a\0b": "Name a file",
    "": "Name a file",
}


async def test_getting_follows_no_trick_out_of_the_room(sandbox: DockerSandbox) -> None:
    await run(
        sandbox,
        "mkfifo pipe; ln -s pipe to-pipe; mkdir d; ln -s /proc/1/root/etc/shadow shadow; ln -s /etc/passwd passwd; "
        "ln -s /proc/self/environ env; ln -s /dev/zero to-zero; ln -s loop loop; echo f >f; touch shut; chmod 0 shut",
    )
    for path, fault in TRICKS.items():
        with pytest.raises(BadInput, match=re.escape(fault)):
            await sandbox.get(room(), 0, path)


async def test_files_of_any_name_and_size_come_out_as_they_are(sandbox: DockerSandbox) -> None:
    await run(
        sandbox,
        "printf dash >-rf; printf line >'a\n'; printf ü >'ü ï'; : >empty; mkdir d; printf in >d/f; ln -s d/f inside; "
        "truncate -s 32M whole; printf x >'{path}'",
    )
    for path, data in {
        "-rf": b"dash",
        "a\n": b"line",
        "ü ï": "ü".encode(),
        "empty": b"",
        "inside": b"in",
        "/workspace/d/../d/f": b"in",
        "{path}": b"x",
    }.items():
        assert await sandbox.get(room(), 0, path) == data
    assert await sandbox.get(room(), 0, "whole") == bytes(32 << 20), "as large as the workspace"


async def test_putting_writes_through_nothing_that_lies_there(sandbox: DockerSandbox) -> None:
    await run(
        sandbox,
        "mkdir folder; mkfifo pipe; echo kept >other; ln -s other link; ln -s nowhere dangling; ln -s /tmp out; "
        "for n in $(seq 300); do mkfifo .duet-part-$n; done",
    )
    for name in ("pipe", "link", "dangling", "-rf", "ü.txt"):
        await sandbox.put(room(), 0, name, name.encode())
        assert await sandbox.get(room(), 0, name) == name.encode()
    with pytest.raises(BadInput, match=r"folder could not be laid into the workspace: .*directory"):
        await sandbox.put(room(), 0, "folder", b"x")
    with contextlib.suppress(BadInput):  # the link is replaced or refused, never followed
        await sandbox.put(room(), 0, "out", b"x")
    await sandbox.put(room(), 0, "empty", b"")
    seen = await run(sandbox, "cat other; ls -A folder /tmp; ls nowhere; ls -l empty | wc -l; ls -A | grep -vc part")
    assert seen.stdout == "kept\n/tmp:\n\nfolder:\n1\n9\n"


async def test_a_workspace_that_its_commands_shut_takes_files_or_says_why_not(sandbox: DockerSandbox) -> None:
    await run(sandbox, "chmod 0 /workspace")
    await sandbox.put(room(), 0, "f", b"in")
    assert await sandbox.get(room(), 0, "f") == b"in"
    await run(sandbox, "chmod 500 /workspace")
    with pytest.raises(BadInput, match="Permission denied"):
        await sandbox.put(room(), 0, "big", bytes(20 << 20))
    assert await sandbox.get(room(), 0, "f") == b"in"


@pytest.mark.slow
async def test_nothing_of_the_bot_is_in_the_environment(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "canary-5521")
    monkeypatch.setenv("HTTPS_PROXY", "http://canary-5521@proxy:3128")
    async with closing(place.sandbox()) as sandbox:
        seen = (await run(sandbox, "env")).stdout
    assert "canary" not in seen
    names = {line.split("=")[0] for line in seen.splitlines()}
    assert names <= {"HOME", "LANG", "PATH", "PWD", "SHLVL", "HOSTNAME", "_", "OLDPWD", "PYTHONDONTWRITEBYTECODE"}


async def test_the_spec_of_a_container_is_as_tight_as_promised(place: Bench, sandbox: DockerSandbox) -> None:
    await run(sandbox, "true")
    with contextlib.closing(place.client()) as client:
        seen = client.inspect_container(place.containers()[0]["Id"])
    host = seen["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"]) == ("none", "none", True)
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
    assert host["Memory"] == host["MemorySwap"] == 192 << 20
    assert (host["PidsLimit"], host["NanoCpus"]) == (64, 1_000_000_000)
    assert host["LogConfig"]["Type"] == "none"
    assert host["Binds"] in (None, [])
    assert not host.get("Devices")
    assert seen["Config"]["User"] == "65534:65534"
    assert seen["Config"]["Tty"] is False
    of_the_image = {"duet.recipe"}
    assert set(seen["Config"]["Labels"]) - of_the_image == {"duet.sandbox", "duet.home", "duet.spec"}
    assert seen["Name"].startswith("/duet-") and seen["Name"].endswith("-g0")  # noqa: PT018 - one name


def test_an_engine_address_comes_from_the_environment() -> None:
    assert engine_address()


@pytest.mark.slow
async def test_a_row_put_while_a_reset_went_on_does_not_undo_it(place: Bench) -> None:
    async with closing(place.sandbox()) as sandbox:
        await run(sandbox, "true")
        row = await place.ledger.sandbox(room())
        assert row is not None
        await sandbox.destroy(room(), through=0)
        await place.ledger.put_sandbox(replace(row, doomed_through=-1, destroyed_through=-1))
        assert (await run(sandbox, "true", generation=0)).ended is Ended.NOT_STARTED

"""The parts of the sandbox that need no engine: frames, clipping, names, limits, the seccomp profile."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.conversation import RoomKey
from bot.drivers.command_output import LiveOutput, clean_text
from bot.drivers.container import (
    Names,
    SandboxSpec,
    container_arguments,
    host_arguments,
    looser_than_default,
    room_hash,
)
from bot.drivers.exec_stream import Frames, Kept
from bot.drivers.image.build import recipe_hash
from bot.drivers.image.seccomp import profile, tightened
from bot.drivers.ledger import MemoryLedger
from bot.drivers.sandbox import DockerSandbox, refusal, safe_name
from bot.drivers.sandbox_checks import MENDS, is_safe_runc, not_in_force
from bot.drivers.ssh_bridge import ssh_command
from bot.errors import SandboxUnavailable
from bot.settings import Settings

pieces = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=12)


@given(pieces, st.lists(st.integers(1, 60), max_size=30))
def test_frames_come_apart_the_same_wherever_the_stream_is_cut(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">BxxxI", number, len(data)) + data for number, data in sent)
    frames, got = Frames(), {1: b"", 2: b""}
    while stream:
        size = cuts.pop() if cuts else len(stream)
        for number, piece in frames.feed(stream[:size]):
            got[number] += bytes(piece)
        stream = stream[size:]
    assert got == {n: b"".join(data for number, data in sent if number == n) for n in (1, 2)}


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(2, 100))
def test_what_is_kept_is_the_head_and_the_tail(sent: list[bytes], limit: int) -> None:
    kept, whole = Kept(limit), b"".join(sent)
    for data in sent:
        kept.add(data)
    head, tail = kept.parts()
    if len(whole) <= limit:
        assert head + tail == whole
        assert kept.left_out_bytes == 0
    else:
        assert (head, tail) == (whole[: limit // 2], whole[-(limit - limit // 2) :])
        assert kept.left_out_bytes == len(whole) - limit


def test_a_clip_through_a_character_leaves_no_replacement_sign() -> None:
    kept = Kept(1001)
    kept.add("ä".encode() * 2000)
    text = clean_text(kept)
    assert "�" not in text
    assert "\n[… 2,999 bytes left out …]\n" in text


def test_invalid_utf8_is_replaced_and_control_characters_go() -> None:
    kept = Kept(1000)
    kept.add(b"a\xffb\x00c\x1b[31md\xe2\x80\xaee\n")
    assert clean_text(kept) == "a�bcde\n"


async def test_live_output_holds_back_a_cut_character_and_a_cut_escape() -> None:
    told: list[str] = []
    live = LiveOutput(told.append, limit_chars=1000)
    for piece in (b"x\xc3", b"\xa4y\x1b[3", b"1mz"):
        live.feed(1, piece)
        await asyncio.sleep(0.07)
    live.flush()
    assert "".join(told) == "xäyz"


async def test_live_output_stops_at_its_limit_and_tells_at_most_twenty_times_a_second() -> None:
    told: list[str] = []
    live = LiveOutput(told.append, limit_chars=500)
    for _ in range(1000):
        live.feed(1, b"y\n")
    await asyncio.sleep(0.12)
    assert len("".join(told)) == 500
    assert len(told) <= 3


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.csv", "report.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\x.txt", "x.txt"),
        ("..", "file"),
        ("a\n\0b", "ab"),
        ("", "file"),
        ("x" * 500, "x" * 200),
        ("日" * 500 + ".tar.gz", "日" * 65 + ".gz"),
        ("x." + "y" * 500, "x." + "y" * 49),
        ("txt\u202egnp.exe", "txtgnp.exe"),
        ("a\udcff.csv", "a.csv"),
        (" -rf ", "-rf"),
        (".bashrc", ".bashrc"),
    ],
)
def test_a_files_name_says_nothing_about_where_it_lies(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_long_command_is_refused_with_its_size() -> None:
    assert refusal("x" * 100_001).startswith("The command is 100,001 bytes long")
    assert refusal("x" * 100_000) == ""


def test_names_are_read_back_by_their_own_installation_alone() -> None:
    digest = room_hash(RoomKey("slack", "T1", "C1"))
    mine, other = Names("abc-123"), Names("abc-124")
    assert mine.parse("/" + mine.room(digest, 7)) == (digest, 7)
    assert other.parse(mine.room(digest, 7)) is None
    assert mine.parse(mine.pooled("x")) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_mb": 512}, "memory_mb is 512 MB, the default is 256 MB"),
        ({"workspace_mb": 65}, "workspace_mb is 65 MB"),
        ({"pids": 65}, "pids is 65"),
        ({"cpus": 0.6}, "cpus is 0.6"),
        ({"timeout_s": 31.0}, "timeout_s is 31 s"),
        ({"network": "bridge"}, "network is 'bridge'"),
        ({"userns": "host"}, "userns is 'host'"),
        ({"runtime": "odd"}, "runtime is 'odd'"),
    ],
)
def test_each_limit_that_is_looser_than_the_default_is_said(changes: dict[str, object], said: str) -> None:
    (phrase,) = replace(SandboxSpec(), **changes).looser
    assert phrase.startswith(said)


def test_the_settings_defaults_are_the_tight_ones() -> None:
    assert SandboxSpec.of(Settings()) == SandboxSpec()
    assert looser_than_default(Settings()) == ()
    assert looser_than_default(Settings(sandbox_network="bridge"))
    assert SandboxSpec(runtime="runsc", pids=10, memory_mb=200).looser == ()


def test_a_full_workspace_leaves_memory_for_processes() -> None:
    assert SandboxSpec(memory_mb=16, workspace_mb=64).memory_bytes == (64 + 128) << 20


def test_swap_is_never_more_than_memory_and_nothing_of_the_bot_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-canary")
    host = host_arguments(SandboxSpec())
    assert host["mem_limit"] == host["memswap_limit"]
    made = container_arguments(SandboxSpec(), image_id="i", install_id="h")
    assert "canary" not in json.dumps([made, host], default=str)
    assert made["use_config_proxy"] is False


def test_another_limit_or_image_is_another_spec() -> None:
    def named(spec: SandboxSpec, image: str = "i") -> str:
        return str(container_arguments(spec, image_id=image, install_id="h")["labels"]["duet.spec"])

    assert named(SandboxSpec()) == named(SandboxSpec(timeout_s=5, pool=9))
    assert len({named(SandboxSpec()), named(SandboxSpec(pids=9)), named(SandboxSpec(), "j")}) == 3


def test_the_profile_allows_three_socket_families_and_one_architecture() -> None:
    default = json.loads((files("bot.drivers.image") / "moby-default.json").read_text())
    made = tightened(default)
    assert made == profile()
    allowed = [rule for rule in made["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    sockets = [rule for rule in allowed if "socket" in rule["names"]]
    assert [rule["args"][0]["value"] for rule in sockets] == [1, 2, 10]
    assert all(set(entry) == {"architecture"} for entry in made["archMap"])
    names = {name for rule in allowed for name in rule["names"]}
    for gone in ("ptrace", "io_uring_setup", "socketcall", "keyctl", "bpf", "unshare", "mount", "setns", "reboot"):
        assert gone not in names
    assert {"read", "execve", "clone", "openat", "futex"} <= names
    assert made["defaultAction"] == "SCMP_ACT_ERRNO"


GOOD = {
    "memory": str(SandboxSpec().memory_bytes),
    "swap": "0",
    "pids": "64",
    "cpu": "50000 100000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "root": "read-only",
    "network": "lo",
    "workspace": str(64 << 10),
    "files": "256",
    "user": "1000",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", "9223372036854771712"),
        ("swap", "max"),
        ("pids", "max"),
        ("cpu", "-1 100000"),
        ("NoNewPrivs", "0"),
        ("Seccomp", "0"),
        ("CapEff", "00000000a80425fb"),
        ("CapBnd", "00000000a80425fb"),
        ("root", "writable"),
        ("network", "eth0 lo"),
        ("workspace", "1000000"),
        ("files", "1048576"),
        ("user", "0"),
    ],
)
def test_each_limit_that_does_not_hold_is_named(name: str, value: str) -> None:
    assert not_in_force(GOOD, SandboxSpec()) == []
    assert not_in_force(GOOD | {name: value}, SandboxSpec()) == [name]
    assert not_in_force({key: seen for key, seen in GOOD.items() if key != name}, SandboxSpec()) == [name]
    assert set(MENDS) <= set(GOOD)


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((1, 1, 5), False),
        ((1, 1, 99), False),
        ((1, 2, 7), False),
        ((1, 2, 8), True),
        ((1, 3, 2), False),
        ((1, 3, 3), True),
        ((1, 4, 0), True),
        ((2, 0, 0), True),
    ],
)
def test_a_runc_without_the_fixes_is_known(version: tuple[int, int, int], safe: bool) -> None:
    assert is_safe_runc(version) is safe


def test_an_engine_behind_ssh_is_dialled_with_a_checked_host() -> None:
    command = ssh_command("ssh://ops@build.example:2222")
    assert command[:2] == ["ssh", "-T"]
    assert command[-6:] == ["ops", "-p", "2222", "--", "build.example", "docker system dial-stdio"]
    for bad in ("ssh://", "ssh://-oProxyCommand=x", "ssh://a b"):
        with pytest.raises(SandboxUnavailable, match="ssh://user@host:port"):
            ssh_command(bad)


def test_the_recipe_has_a_short_name() -> None:
    assert len(recipe_hash()) == 16


async def test_a_reset_of_a_room_that_never_had_a_sandbox_needs_no_engine(tmp_path: Path) -> None:
    sandbox = DockerSandbox(
        SandboxSpec(docker_host="unix:///nowhere/docker.sock"),
        home=tmp_path,
        install_id="t",
        ledger=MemoryLedger(),
        clock=lambda: 0,
    )
    await sandbox.destroy(RoomKey("terminal", "local", "new"), through=0)
    await sandbox.close()

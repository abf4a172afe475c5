"""The engine over each of its transports: the reader, the input and the end of a command work the same."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from bot.conversation import Ended
from bot.errors import SandboxUnavailable
from tests.private_engine import private_engine
from tests.sandbox_engine import Bench, closing, engine_address, room, run, stopwatch


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the engine's and the client's certificates, named as Docker wants them."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, subject in (("server-", "127.0.0.1"), ("", "client.example")):
        made = authority.issue_cert(subject)
        made.private_key_pem.write_to_path(folder / f"{name}key.pem")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}cert.pem")
    return folder


@pytest.fixture(scope="module")
def tls_engine(certificates: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = (
        *("--host", f"tcp://127.0.0.1:{port}", "--tlsverify"),
        *("--tlscacert", str(certificates / "ca.pem")),
        *("--tlscert", str(certificates / "server-cert.pem")),
        *("--tlskey", str(certificates / "server-key.pem")),
    )
    with (
        tempfile.TemporaryDirectory(prefix="duet-t-", ignore_cleanup_errors=True) as folder,
        private_engine(Path(folder), *flags),
    ):
        yield f"tcp://127.0.0.1:{port}"


async def works(place: Bench, **changes: object) -> None:
    """Run, stop, feed and fetch over the place's transport."""
    async with closing(place.sandbox(timeout_s=2, **changes)) as sandbox:
        result = await run(sandbox, "echo out; echo err >&2; exit 4")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 4)
        assert (await run(sandbox, "sleep 20")).ended is Ended.TIMEOUT
        assert (await run(sandbox, "yes")).truncated
        data = os.urandom(300_000)
        await sandbox.put(room(), 0, "data.bin", data)
        assert await sandbox.get(room(), 0, "data.bin") == data
        await sandbox.settled()
        await sandbox.upkeep.sweep(place.now_ms + 901_000)
        assert await sandbox.get(room(), 0, "data.bin") == data
        await sandbox.destroy(room(), through=0)


async def test_tcp_with_tls(tls_engine: str, certificates: Path, tmp_path: Path) -> None:
    place = Bench(tmp_path, tls_engine)
    await works(place, docker_tls_verify=True, docker_cert_path=str(certificates))


async def test_a_client_without_a_certificate_is_told_so(tls_engine: str, tmp_path: Path) -> None:
    place = Bench(tmp_path, tls_engine)
    async with closing(place.sandbox()) as sandbox, stopwatch() as seconds:
        with pytest.raises(SandboxUnavailable):
            await run(sandbox, "true")
        assert seconds() < 5


async def test_missing_certificate_files_are_named(tls_engine: str, tmp_path: Path) -> None:
    place = Bench(tmp_path, tls_engine)
    async with closing(place.sandbox(docker_tls_verify=True, docker_cert_path=str(tmp_path / "none"))) as sandbox:
        with pytest.raises(SandboxUnavailable, match=r"certificate|TLS|\.pem"):
            await run(sandbox, "true")


@pytest.mark.slow
async def test_ssh_through_the_ssh_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = engine_address()
    programs = tmp_path / "bin"
    programs.mkdir()
    # What sshd would start on the far side, with the arguments written down.
    stand_in = programs / "ssh"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\nexec docker -H {address} system dial-stdio\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    place = Bench(tmp_path / "home", "ssh://ops@build.example:2222")
    place.home.mkdir()
    await works(place)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert set(asked) == {
        "-T -o BatchMode=yes -o ConnectTimeout=4 -l ops -p 2222 -- build.example docker system dial-stdio"
    }


async def test_ssh_that_does_not_get_through_is_told_within_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    async with closing(Bench(tmp_path, "ssh://ops@build.example").sandbox()) as sandbox, stopwatch() as seconds:
        with pytest.raises(SandboxUnavailable):
            await run(sandbox, "true")
        assert seconds() < 5


@pytest.mark.parametrize("address", ["nonsense", "unix://", "tcp://127.0.0.1:9", "ssh://-oProxyCommand=x", "ftp://x"])
async def test_an_address_that_is_none_is_told_at_once(address: str, tmp_path: Path) -> None:
    async with closing(Bench(tmp_path, address).sandbox()) as sandbox:
        async with stopwatch() as seconds:
            with pytest.raises(SandboxUnavailable) as fault:
                await run(sandbox, "true")
            assert seconds() < 5
        assert fault.value.mend

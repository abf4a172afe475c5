"""An engine behind ssh as a local socket: each connection is handed to the ssh program, which dials on the far side.

docker-py's own ssh transport needs paramiko and cannot give a socket that ends reading early; the ssh program brings
the user's keys, agent, jump hosts and known hosts along.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from bot.errors import SandboxUnavailable


class SshBridge:
    """Listen on a private socket and connect each caller through `ssh … docker system dial-stdio`."""

    def __init__(self, url: str) -> None:
        self._command = ssh_command(url)
        self._folder = Path(tempfile.mkdtemp(prefix="duet-ssh-"))
        path = self._folder / "engine.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._dialled: list[subprocess.Popen[bytes]] = []
        self.url = f"unix://{path}"
        threading.Thread(target=self._accept, name="ssh-bridge", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller:
                self._dialled = [process for process in self._dialled if process.poll() is None]
                with contextlib.suppress(OSError):  # no ssh program: the caller sees the connection end
                    self._dialled.append(
                        subprocess.Popen(  # noqa: S603 - a list, its host checked
                            self._command, stdin=caller.fileno(), stdout=caller.fileno(), stderr=subprocess.DEVNULL
                        )
                    )

    def close(self) -> None:
        """End every connection and remove the socket."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for process in self._dialled:
            process.terminate()
        for process in self._dialled:
            process.wait(5)
        shutil.rmtree(self._folder, ignore_errors=True)


def ssh_command(url: str) -> list[str]:
    """Give the argument list that dials the engine of `ssh://user@host:port`. Raises: SandboxUnavailable."""
    parts = urlsplit(url)
    host, user = parts.hostname or "", parts.username or ""
    if not re.fullmatch(r"[\w.:\[\]-]+", host) or host.startswith("-") or user.startswith("-"):
        raise SandboxUnavailable(
            f"{url!r} is no address of an engine.", mend="Set DOCKER_HOST to ssh://user@host:port."
        )
    command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4"]
    command += ["-l", user] if user else []
    command += ["-p", str(parts.port)] if parts.port else []
    return [*command, "--", host, "docker system dial-stdio"]

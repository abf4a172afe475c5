"""docker-py's way to a local socket, with one difference: a socket that cannot connect is closed.

docker-py leaves it to the garbage collector, which is a leak for as long as an engine is away and is asked again and
again.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from docker import APIClient
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self.unix_socket)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class _Pool(UnixHTTPConnectionPool):  # the stubs of docker and urllib3 do not agree about what follows
    def _new_conn(self) -> _Connection:  # type: ignore[override]
        return _Connection(self.base_url, self.socket_path, self.timeout)  # type: ignore[arg-type]


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: str | bytes, proxies: Mapping[str, str] | None = None) -> _Pool:
        with self.pools.lock:
            pool: _Pool | None = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(str(url), self.socket_path, self.timeout, maxsize=self.max_pool_size)
        return pool


def mount(client: APIClient, url: str, *, timeout_s: float, pool_size: int) -> None:
    """Make `client` reach the socket of `url` this way; nothing is asked yet."""
    client.get_adapter("http+docker://localhost").close()
    # The stub wants whole seconds; requests does not.
    adapter = _Adapter(url.replace("unix://", "http+unix://"), timeout_s, max_pool_size=pool_size)  # type: ignore[arg-type]
    client.mount("http+docker://", adapter)

"""`duet doctor` on HTTP: each fault with what mends it."""

from __future__ import annotations

from adapters.web.checks import checks
from bot.checks import Health
from bot.settings import Settings
from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import serving


async def test_a_free_address_is_well() -> None:
    (check,) = await checks(Settings(http_port=0))
    assert (check.verdict, check.seen) == (Health.OK, "127.0.0.1:0 is free; only this machine can call")
    (check,) = await checks(Settings(http_port=0, http_token="x" * 20))
    assert check.seen.endswith("callers need the token")


async def test_an_address_open_to_others_without_a_token_fails() -> None:
    (check,) = await checks(Settings(http_host="0.0.0.0", http_port=0))
    assert check.verdict is Health.FAIL
    assert "DUET_HTTP_TOKEN" in check.mend


async def test_a_taken_port_is_a_warning_since_duet_itself_may_hold_it() -> None:
    async with serving(FakeDuet()) as address:
        (check,) = await checks(Settings(http_port=int(address.rsplit(":", 1)[1])))
    assert check.verdict is Health.WARN
    assert "DUET_HTTP_PORT" in check.mend
    assert "x" * 20 not in check.seen

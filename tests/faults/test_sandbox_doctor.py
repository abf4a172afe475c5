"""Doctor's checks of the sandbox, each broken once on the real engine, and what each says to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.checks import Check, Health
from bot.drivers import containers
from bot.drivers.container import host_arguments
from bot.drivers.sandbox_checks import checks
from tests.sandbox_engine import FULL, TINY, Bench, bench


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


async def named(place: Bench, name: str, **changes: Any) -> Check:
    found = {check.name: check for check in await checks(place.spec(**changes), install_id=place.install_id)}
    return found[name]


async def test_all_is_well_on_a_good_engine_and_nothing_is_left(place: Bench) -> None:
    found = {check.name: check for check in await checks(place.spec(cpus=0.5), install_id=place.install_id)}
    assert found["docker engine"].verdict is Health.OK
    assert found["sandbox limits"].verdict is Health.OK
    assert found["sandbox settings"].verdict is Health.OK
    assert place.containers() == []


async def test_an_engine_that_is_away_says_to_start_it(place: Bench) -> None:
    check = await named(place, "docker engine", docker_host="unix:///nonexistent/docker.sock")
    assert check.verdict is Health.FAIL
    assert check.mend.startswith("Start Docker, or set DOCKER_HOST")


async def test_a_missing_image_says_to_build_it(place: Bench) -> None:
    check = await named(place, "sandbox image", image="duet-no-such:1")
    assert (check.verdict, check.mend) == (Health.FAIL, "Run `duet image build`.")


async def test_an_image_of_another_make_says_to_build_it(place: Bench) -> None:
    check = await named(place, "sandbox image", image=TINY)
    assert (check.verdict, check.mend) == (Health.WARN, "Run `duet image build`.")
    assert "not made by Duet" in check.seen


async def test_an_image_of_the_present_recipe_is_well(tmp_path: Path) -> None:
    with bench(tmp_path, image=FULL) as place:
        assert (await named(place, "sandbox image")).verdict is Health.OK


@pytest.mark.slow
async def test_an_image_of_an_older_recipe_says_so(place: Bench) -> None:
    with contextlib.closing(place.client()) as client:
        made = client.create_container(TINY, ["true"], labels={"duet.home": place.install_id})
        client.commit(made["Id"], "duet-old-recipe", "test", changes=["LABEL duet.recipe=0123456789abcdef"])
        client.remove_container(made["Id"])
    try:
        check = await named(place, "sandbox image", image="duet-old-recipe:test")
        assert "older recipe" in check.seen
        assert check.mend == "Run `duet image build`."
    finally:
        with contextlib.closing(place.client()) as client:
            client.remove_image("duet-old-recipe:test")


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("memory", {"mem_limit": None, "memswap_limit": None}, "control groups"),
    ("pids", {"pids_limit": 0}, "control groups"),
    ("cpu", {"nano_cpus": 0}, "control groups"),
    ("Seccomp", {"security_opt": ["no-new-privileges:true", "seccomp=unconfined"]}, "support seccomp"),
    ("NoNewPrivs", {"security_opt": []}, "support seccomp"),
    ("CapBnd", {"cap_drop": []}, "support seccomp"),
    ("root", {"read_only": False}, "read-only root"),
    ("workspace", {"tmpfs": {"/workspace": "rw,size=90m,mode=0777"}}, "sized tmpfs"),
    ("files", {"ulimits": []}, "support seccomp"),
]


SHORT_FORM = ("memory", "Seccomp", "root")


@pytest.mark.parametrize(
    ("limit", "changes", "mend"),
    [pytest.param(*one, id=one[0], marks=[] if one[0] in SHORT_FORM else [pytest.mark.slow]) for one in BROKEN],
)
async def test_a_limit_that_is_not_in_force_is_seen_from_inside(
    place: Bench, monkeypatch: pytest.MonkeyPatch, limit: str, changes: dict[str, Any], mend: str
) -> None:
    monkeypatch.setattr(containers, "host_arguments", lambda spec: host_arguments(spec) | changes)
    if limit == "root":
        # The command's user may write nowhere in the image but here.
        monkeypatch.setattr("bot.drivers.sandbox_checks.COMMAND_USER", "0:0")
    check = await named(place, "sandbox limits")
    assert check.verdict is Health.FAIL
    assert f"{limit} is " in check.seen
    assert mend in check.mend
    assert "set `commands` to off" in check.mend


async def test_looser_settings_are_said_loudly(place: Bench) -> None:
    check = await named(place, "sandbox settings", pids=500)
    assert check.verdict is Health.WARN
    assert check.seen == "LOOSER THAN THE DEFAULT: pids is 500, the default is 64; cpus is 1, the default is 0.5"
    assert "approval" in check.mend


async def test_an_old_runc_is_warned_of(place: Bench) -> None:
    check = await named(place, "container runtime")
    if check.verdict is Health.WARN:
        assert "Update runc to 1.2.8" in check.mend
    else:
        assert check.seen

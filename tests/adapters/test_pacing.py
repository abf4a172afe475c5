"""Pacing: slots in order, rests kept, channels independent."""

from __future__ import annotations

import asyncio
import itertools

from adapters.pacing import Pacer


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_one_channel_gets_a_slot_a_period_in_order() -> None:
    pacer, began, seen = Pacer(period_s=0.05), now(), []

    async def send(number: int) -> None:
        await pacer.slot("C1")
        seen.append((number, now() - began))

    await asyncio.gather(*(send(number) for number in range(4)))
    assert [number for number, _ in seen] == [0, 1, 2, 3]
    assert all(at >= number * 0.05 - 0.01 for number, at in seen)


async def test_channels_do_not_wait_for_each_other() -> None:
    pacer, began = Pacer(period_s=5), now()
    await asyncio.gather(*(pacer.slot(f"C{number}") for number in range(200)))
    assert now() - began < 1


async def test_a_rest_silences_its_channel_only() -> None:
    pacer, began = Pacer(period_s=0.001), now()
    pacer.rest("C1", 0.2)
    await pacer.slot("C2")
    assert now() - began < 0.1
    assert pacer.resting_s("C1") > 0
    assert pacer.resting_s("C2") == 0
    await pacer.slot("C1")
    assert now() - began >= 0.19


async def test_after_a_rest_those_who_waited_still_go_one_by_one() -> None:
    pacer, ends = Pacer(period_s=0.05), []
    pacer.rest("C1", 0.3)

    async def send() -> None:
        await pacer.slot("C1")
        ends.append(now())

    await asyncio.gather(*(send() for _ in range(4)))
    assert all(later - earlier > 0.04 for earlier, later in itertools.pairwise(ends))


async def test_a_rest_asked_for_while_one_waits_is_kept_too() -> None:
    pacer, began = Pacer(period_s=0.001), now()
    pacer.rest("C1", 0.1)
    waiting = asyncio.create_task(pacer.slot("C1"))
    await asyncio.sleep(0.05)
    pacer.rest("C1", 0.2)
    await waiting
    assert now() - began >= 0.24


async def test_what_may_be_left_out_never_waits() -> None:
    pacer, began = Pacer(period_s=60, burst=2), now()
    assert [await pacer.try_slot("C1") for _ in range(4)] == [True, True, False, False]
    pacer.rest("C2", 60)
    assert not await pacer.try_slot("C2")
    assert now() - began < 1


async def test_holding_takes_no_slot() -> None:
    pacer = Pacer(period_s=0.1)
    await pacer.slot("C1")
    await pacer.hold("C1")
    began = now()
    await pacer.slot("C1")
    assert now() - began < 0.05


async def test_idle_channels_are_forgotten_and_busy_ones_kept() -> None:
    pacer = Pacer(period_s=0.01, keep=3)
    pacer.rest("busy", 60)
    for number in range(10):
        await pacer.slot(f"C{number}")
        await asyncio.sleep(0.03)
    assert pacer.resting_s("busy") > 50

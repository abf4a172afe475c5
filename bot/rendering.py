"""Answer -> the parts that are to be stored: rendered by the platform's outlet, their files kept first."""

from __future__ import annotations

import asyncio
import hashlib

from bot.conversation import Answer
from bot.ports import Outlet, Store
from bot.records import NewPart, OpenTurn


def part_key(turn: OpenTurn, ordinal: int) -> str:
    """Give the key of a part: the same for the same turn, so that a platform can tell a part posted twice.

    25 characters, what Discord takes as a nonce: https://docs.discord.com/developers/resources/message
    """
    digest = hashlib.sha256(f"{turn.turn.session}:{turn.turn.id}".encode()).hexdigest()
    return f"{digest[:21]}-{ordinal}"


async def new_parts(store: Store, outlet: Outlet | None, turn: OpenTurn, answer: Answer) -> tuple[NewPart, ...]:
    """Render an answer for the outbox; nothing for a front that answers within the request."""
    if outlet is None:
        return ()
    await asyncio.sleep(0)  # checking a long answer was a piece of work; others get their turn before the next
    bodies = outlet.render(answer)
    for body in bodies:
        await store.keep_files(body)
    return tuple(NewPart(part_key(turn, ordinal), ordinal, body) for ordinal, body in enumerate(bodies))

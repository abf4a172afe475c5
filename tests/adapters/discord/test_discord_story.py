"""The whole story, once with threads and once without: ask, go on, run, approve, long output, reset, clean start."""

from __future__ import annotations

import pytest

from bot.policy import Policy


@pytest.mark.parametrize("threads", [False, True], ids=["in-the-channel", "in-a-thread"])
async def test_a_day_with_duet(world, threads):
    async with world(policy=Policy(commands="ask"), discord_threads=threads) as w:
        w.shell.output = lambda code: "\n".join(f"{n}: {code}" for n in range(500))
        asked = await w.ask()
        where = w.channel
        if threads:
            await w.until(lambda: w.channel.threads)
            where = w.channel.threads[0]
            assert where.id == asked.id
        [answer] = await w.settled(1, where)
        assert "[1] [branch-naming.md" in answer.content

        await w.ask("what about for hotfixes?", who=w.bob, channel=where)
        await w.settled(2, where)
        assert any("alice" in m.content and "branch naming" in m.content for m in w.model.calls[-1].messages)

        w.model.replies = ["I count them. <run>seq 500</run>", "There are 500."]
        await w.ask("list the files here", channel=where)
        card = (await w.settled(3, where))[-1]
        assert w.shell.ran == []
        await w.bob.click(card, label="Approve")
        done = (await w.settled(4, where))[-1]
        assert w.shell.ran == ["seq 500"]
        assert "There are 500." in done.content
        assert [file.filename for file in done.attachments] == ["output.txt"]

        reset = await w.bob.slash(where, "duet reset")
        await w.until(lambda: "bob cleared" in reset.response.content)
        await w.ask("what about for hotfixes?", channel=where)
        await w.until(lambda: len(w.model.calls) == 5 or "does not cover" in w.mine(where)[-1].content)
        await w.quiet()
        assert not any("seq 500" in m.content for call in w.model.calls[4:] for m in call.messages)

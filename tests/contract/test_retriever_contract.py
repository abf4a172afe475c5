"""What every Retriever keeps to: the index of a real folder, and the fake that the core's tests use."""

import pytest

from bot.conversation import RoomKey
from bot.drivers.codex import Codex
from bot.ports import Band
from tests.fakes import FakeRetriever

ROOM = RoomKey("slack", "T1", "C1")


@pytest.fixture(params=["the fake", "the index"])
async def retriever(request, tmp_path):
    fake = FakeRetriever()
    if request.param == "the fake":
        yield fake
        return
    folder = tmp_path / "codex"
    folder.mkdir()
    for section in fake.sections_:
        (folder / section.document).write_text(f"# {section.title}\n\n## {section.heading}\n\n{section.text}\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    yield codex
    await codex.close()


async def test_a_question_about_what_is_there_is_covered(retriever):
    findings = await retriever.search("How is a branch named?", (), room=ROOM, limit=3)
    assert findings.hits[0].section.document == FakeRetriever().sections_[0].document
    assert findings.band is not Band.LOW
    assert 0 <= findings.confidence <= 1


async def test_a_question_about_something_else_is_not(retriever):
    findings = await retriever.search("Who feeds the office walrus?", (), room=ROOM, limit=3)
    assert findings.band is Band.LOW


async def test_no_more_is_given_than_asked_for(retriever):
    assert len((await retriever.search("branch naming", (), room=ROOM, limit=1)).hits) <= 1


async def test_documents_sections_and_ids_belong_together(retriever):
    for document in retriever.documents(ROOM):
        sections = retriever.sections(ROOM, document.name)
        assert sections
        assert len(sections) == document.sections or isinstance(retriever, FakeRetriever)
        for section in sections:
            assert section.document == document.name
            assert retriever.section(ROOM, section.id) == section


async def test_what_is_unknown_is_none_or_empty(retriever):
    assert retriever.section(ROOM, "nowhere.md#nothing") is None
    assert list(retriever.sections(ROOM, "nowhere.md")) == []


async def test_without_a_base_address_there_is_no_link(retriever):
    findings = await retriever.search("branch naming", (), room=ROOM, limit=1)
    assert retriever.url(findings.hits[0].section) == ""

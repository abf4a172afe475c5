"""Prompts for a small model: one for each task, chosen by code.

A model of one or two billion parameters does one thing at a time. Asked in one prompt to answer, to cite and to run
commands it forgot the citation nine times of ten and answered questions with made-up commands; with a prompt of its own
for each, three worked examples and a fixed phrase for "not here" it got ten of ten. The program adds the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from bot.conversation import Message
from bot.intent import wants_action
from bot.ports import Band, ChatMessage, Findings
from bot.quoting import clipped

SECTION_CHARS = 1_200
REPLAYED_CHARS = 400
FOUND_SECTIONS = 2  # a third only distracts a model of this size


class Task(StrEnum):
    """What a question asks of a small model."""

    ANSWER = "answer"
    RUN = "run"
    CODE = "code"


ANSWER = (
    "You answer questions about a company's engineering standards. Use only the given text. Answer in one or two full "
    "sentences that keep the words of the text. If the text does not contain the answer, reply only: NOT COVERED"
)
RUN = (
    "You turn a request into one shell command for Linux. Reply with the command only, inside <run> and </run> tags, "
    "like <run>uname -a</run>."
)
CODE = "You are a concise pair programmer. Give a short, working answer. Put code into a fenced block."
EXPLAIN = (
    "You are told a request and the output of the commands that were run for it. Reply in one or two short sentences "
    "with what the output shows. Use only the output. Do not write any command."
)

_EXAMPLES = (
    (
        "Text:\nPython style - Line length: Lines hold at most 100 characters. Strings with web addresses may be "
        "longer.\n\nQuestion: How long may a line be?",
        "A line holds at most 100 characters; only strings with web addresses may be longer.",
    ),
    (
        "Text:\nReleases - Freeze: No release goes out between 20 December and 2 January. Security fixes are exempt "
        "and need the approval of the release captain.\n\nQuestion: Can I ship a security fix on Christmas Day?",
        "Yes. Security fixes are exempt from the freeze, but they need the approval of the release captain.",
    ),
    (
        "Text:\nReleases - Version numbers: We use semantic versions; the tag is v followed by the number."
        "\n\nQuestion: Who pays for the team lunch?",
        "NOT COVERED",
    ),
)

_VERB = re.compile(
    r"\b(?:run|execute|list|show|check|print|display|count|find|create|make|delete|remove|install|start|tell me)\b",
    re.I,
)
_MACHINE = re.compile(
    r"\b(?:files?|folders?|director(?:y|ies)|kernel|disk|memory|cpus?|cores?|process(?:es)?|uptime|host ?name|sandbox|"
    r"environment variables?|working folder|python version|version of \w+|command|shell|uname|whoami|date and time|"
    r"current (?:time|date|user))\b",
    re.I,
)
_HERE = re.compile(r"\b(?:here|this machine|the machine|the sandbox|in the container)\b", re.I)
_QUESTION = re.compile(r"\s*(?:how|what|when|why|who|whom|whose|which|where|do|does|is|are|should|may|must)\b", re.I)
_TO_RUN = re.compile(r"\s*(?:please\s+)?(?:run|execute)\s*[:`]|`[^`\n]+`", re.I)


_CODE = re.compile(
    r"```|\b(?:write|implement|refactor|debug|rewrite|translate|regex|function|script|snippet|one-liner|python|bash|sql|"
    r"javascript|typescript|rust|golang|traceback|exception|stack trace|unit test|algorithm)\b",
    re.I,
)


_DECLINED = re.compile(r"\W*(?:the (?:standards|codex) do(?:es)? not cover|not covered)", re.I)


def task_of(question: str, findings: Findings) -> Task:
    """Say what a question asks for. What reads as a question is one, unless it is about this very machine."""
    is_command = _VERB.search(question) and (_MACHINE.search(question) or _TO_RUN.search(question))
    if is_command and not _QUESTION.match(question):
        return Task.RUN
    if _MACHINE.search(question) and _HERE.search(question):
        return Task.RUN
    nothing_found = findings.band is Band.LOW or not findings.hits
    is_code = wants_action(question) and (nothing_found or _CODE.search(question))
    return Task.CODE if is_code else Task.ANSWER


def head(task: Task) -> Iterator[ChatMessage]:
    """Give the part that is the same for every question, which the endpoint can keep in its cache."""
    yield ChatMessage("system", {Task.ANSWER: ANSWER, Task.RUN: RUN, Task.CODE: CODE}[task])
    if task is Task.ANSWER:
        for asked, answered in _EXAMPLES:
            yield ChatMessage("user", asked)
            yield ChatMessage("assistant", answered)


def worth_replaying(history: Sequence[Message]) -> Iterator[Message]:
    """Give the turns that were answered, clipped: shown a refusal, a small model refuses the next question too."""
    asked: Message | None = None
    for message in history:
        if message.role != "agent":
            asked = message
        elif not _DECLINED.match(message.text):
            if asked is not None:
                yield replace(asked, text=clipped(asked.text, REPLAYED_CHARS))
            yield replace(message, text=clipped(message.text, REPLAYED_CHARS))
            asked = None


def question(task: Task, text: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """Give the last message; `sections` are (title, heading, body), best first."""
    if task is Task.RUN or not (sections or task is Task.ANSWER):
        return text
    nearest_last = reversed(sections[:FOUND_SECTIONS])  # what stands next to the question counts most
    bodies = "\n".join(f"{title} - {heading}: {_flat(body)}" for title, heading, body in nearest_last)
    if task is Task.CODE:
        return f"Our standards:\n{bodies}\n\n{text}"
    return f"Text:\n{bodies}\n\nQuestion: {text}"


def _flat(body: str) -> str:
    """Give a section's text without blank lines, clipped: the shape that the examples have."""
    text = "\n".join(line.strip() for line in body.splitlines() if line.strip())
    return text if len(text) <= SECTION_CHARS else text[:SECTION_CHARS] + "…"

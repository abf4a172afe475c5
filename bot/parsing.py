"""Model text -> what a person may see, and the commands it asked for; incremental, so that a draft never shows a tag.

Only a closed `<run>…</run>` outside code counts: a fence (``` or ~~~) and an inline code span are shown as they are.
What a model thinks aloud (`<think>…</think>`) is neither shown nor scanned. Where Markdown is ambiguous this reads more
as code than a renderer would, because text shown by mistake is harmless and a command run by mistake is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_COMMANDS = 4
MAX_COMMAND_CHARS = 8_000

_TAG = re.compile(r"</?(?:run|think)>", re.IGNORECASE | re.ASCII)
_TAGS = ("<run>", "</run>", "<think>", "</think>")
_NEXT = re.compile(r"[`<\n]")
_TICKS = re.compile(r"`+")

# What may stand before a fence on its line: indentation, quote marks, one list marker.
_BEFORE_FENCE = r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
_FENCE = re.compile(_BEFORE_FENCE + r"(?:(?P<ticks>`{3,})[^`\n]*|(?P<tildes>~{3,})[^\n]*)(?:\n|\Z)")
_MAYBE_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)]?)?[ \t]*)(?:`{0,2}|~{0,2}|`{3,}[^`\n]*|~{3,}[^\n]*)")
# A code span ends with its paragraph: at a blank line, or where a fence begins.
_PARAGRAPH_END = re.compile(r"\n[ \t]*(?=\n)|\n(?=" + _BEFORE_FENCE + r"(?:`{3}|~{3}))")
_WRAPPED = re.compile(r"(?P<fence>`{3,})[^\n`]*\n(?P<block>.*)\n[ \t]*(?P=fence)|`(?P<span>[^`\n]+)`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply, taken apart.

    `commands` are trimmed and in order; `notes` are sentences about what was left out.
    """

    prose: str
    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_reply(text: str, *, max_commands: int = MAX_COMMANDS) -> Reply:
    """Take a whole reply apart."""
    parser = ReplyParser(max_commands=max_commands)
    parser.feed(text)
    return parser.finish()


class ReplyParser:
    """Reads one reply as it comes; however it is cut into pieces, the result is the same.

    A draft shows `visible`. It only grows, with one exception: some models omit the opening `<think>`, and then all
    that came before `</think>` turns out to have been thought, not said.
    """

    def __init__(self, *, max_commands: int = MAX_COMMANDS) -> None:
        self._max_commands = max_commands
        self._mode: Callable[[bool], bool] = self._in_text
        self._text = ""  # what is being read; decided up to `_at`
        self._at = 0
        self._pending: list[str] = []  # what came while nothing in it could decide the rest
        self._wakes = ""  # characters that may decide it; "" is any
        self._shown: list[str] = []
        self._at_line_start = True
        self._after_tag = False
        self._fence_end = re.compile("")
        self._thought = False
        self._commands: list[str] = []
        self._notes: dict[str, None] = {}  # ordered, each once
        self._left_out = 0

    @property
    def visible(self) -> str:
        """All that may be shown so far."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """Take the next piece; give the visible text that it added."""
        already = len(self._shown)
        self._pending.append(text)
        if not self._wakes or any(mark in text for mark in self._wakes):
            self._advance(final=False)
        return "".join(self._shown[already:])

    def finish(self) -> Reply:
        """Decide what was left open and give the whole reply."""
        self._advance(final=True)
        if self._mode == self._in_run:
            self._note("The model began a command and did not end it; it was not run.")
        if self._mode == self._in_thought:
            self._note("The reply ended while the model was still thinking.")
        if self._left_out and not self._max_commands:
            self._note("The model wrote a command where none was asked for; it was not run.")
        elif self._left_out:
            self._note(f"Only the first {self._max_commands} commands were taken; {self._left_out} more were left out.")
        return Reply(self.visible.strip(), tuple(self._commands), tuple(self._notes))

    def _advance(self, *, final: bool) -> None:
        self._text = self._text[self._at :] + "".join(self._pending)
        self._at = 0
        self._pending.clear()
        self._wakes = ""
        while self._at < len(self._text) and self._mode(final):
            pass

    # Each mode takes what it can decide and gives True, or gives False until more has come.

    def _in_text(self, final: bool) -> bool:
        if self._at_line_start:
            fence = _FENCE.match(self._text, self._at)
            if fence and (final or fence.group().endswith("\n")):
                return self._open_fence(fence)
            if not final and _MAYBE_FENCE.fullmatch(self._text, self._at):
                return False
        found = _NEXT.search(self._text, self._at)
        if not found:
            return self._show(len(self._text))
        if found.start() > self._at:
            return self._show(found.start())
        match found.group():
            case "`":
                return self._code_span(final)
            case "<":
                return self._tag(final)
            case _:
                return self._show(found.end())

    def _open_fence(self, fence: re.Match[str]) -> bool:
        marks = fence["ticks"] or fence["tildes"]
        self._fence_end = re.compile(rf"[ \t>]*{marks[0]}{{{len(marks)},}}[ \t]*\n?")
        self._mode = self._in_fence
        return self._show(fence.end())

    def _in_fence(self, final: bool) -> bool:
        end = self._text.find("\n", self._at) + 1
        if not end and not final:
            self._wakes = "\n"
            return False
        end = end or len(self._text)
        if self._fence_end.fullmatch(self._text, self._at, end):
            self._mode = self._in_text
        return self._show(end)

    def _code_span(self, final: bool) -> bool:
        """Show a code span whole, or its opening marks alone if nothing closes them in the paragraph."""
        opening = _marks(self._text, self._at)
        for closing in _TICKS.finditer(self._text, opening):
            if closing.end() == len(self._text) and not final:
                break  # this run of marks may go on
            if closing.end() - closing.start() == opening - self._at:
                crosses = _PARAGRAPH_END.search(self._text, opening, closing.end())
                return self._show(opening if crosses else closing.end())
        if final or _PARAGRAPH_END.search(self._text, opening):
            return self._show(opening)
        self._wakes = "" if self._text.endswith("`") else "`~\n"
        return False

    def _tag(self, final: bool) -> bool:
        tag = _TAG.match(self._text, self._at)
        if not tag:
            rest = self._text[self._at : self._at + 8].lower()
            may_become_one = not final and any(known.startswith(rest) for known in _TAGS)
            return False if may_become_one else self._show(self._at + 1)
        self._at = tag.end()
        self._after_tag = True
        match tag.group().lower():
            case "<run>":
                self._mode = self._in_run
            case "<think>":
                self._mode, self._thought = self._in_thought, True
            case "</think>" if not self._thought:
                self._take_all_as_thought()
            case _:  # a closing tag without its opening one is hidden
                pass
        return True

    def _take_all_as_thought(self) -> None:
        self._thought = True
        self._shown.clear()
        self._commands.clear()
        self._notes.clear()
        self._left_out = 0

    def _in_run(self, final: bool) -> bool:
        return self._until("</run>", self._add_command)

    def _in_thought(self, final: bool) -> bool:
        return self._until("</think>", lambda thought: None)

    def _until(self, closing: str, use: Callable[[str], None]) -> bool:
        """Hand what stands before the closing tag to `use`, and go back to text."""
        end = next((tag for tag in _TAG.finditer(self._text, self._at) if tag.group().lower() == closing), None)
        if not end:
            self._wakes = ">"
            return False
        use(self._text[self._at : end.start()])
        self._at = end.end()
        self._mode = self._in_text
        return True

    def _add_command(self, inner: str) -> None:
        code = _unwrapped(inner.strip())
        if not code:
            return
        if "<run>" in code.lower():
            self._note("A command that held another <run> tag was not run.")
        elif len(code) > MAX_COMMAND_CHARS:
            self._note(f"A command of more than {MAX_COMMAND_CHARS} characters was not run.")
        elif len(self._commands) == self._max_commands:
            self._left_out += 1
        else:
            self._commands.append(code)

    def _note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def _show(self, end: int) -> bool:
        """Move the text up to `end` to what is visible."""
        text = self._text[self._at : end]
        self._at = end
        self._at_line_start = text.endswith("\n")
        if self._after_tag and (not self._shown or self._shown[-1].endswith("\n")):
            text = text.removeprefix("\n")  # the line that held nothing but a tag goes with it
        self._after_tag = False
        if text:
            self._shown.append(text)
        return True


def _marks(text: str, at: int) -> int:
    """Give the end of the run of backticks at `at`."""
    run = _TICKS.match(text, at)
    return run.end() if run else at


def _unwrapped(code: str) -> str:
    """Take off a code fence or code marks around the whole command: to a shell, backticks would run its output."""
    wrapped = _WRAPPED.fullmatch(code)
    return (wrapped["block"] or wrapped["span"] or "").strip() if wrapped else code

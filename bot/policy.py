"""Who may ask, run, approve, reset and stop: one pure function for every entry, and it fails closed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from bot.budget import Caps
from bot.conversation import Author, Standing


class Action(StrEnum):
    ASK = "ask"
    RUN = "run"
    APPROVE = "approve"
    RESET = "reset"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the team decided. Lists hold ids of people or groups, never names; an empty list means every full member.

    `commands`: `auto` runs them, `ask` makes each wait for a person, `off` refuses. `loosened` names what makes the
    sandbox looser than its default: then every command waits for a person.
    """

    commands: Literal["auto", "ask", "off"] = "auto"
    guests: bool = False
    askers: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    resetters: tuple[str, ...] = ()
    loosened: tuple[str, ...] = ()
    caps: Caps = Caps()

    @property
    def commands_wait(self) -> bool:
        return self.commands == "ask" or (self.commands == "auto" and bool(self.loosened))

    def commands_for(self, author: Author) -> Literal["auto", "ask", "off"]:
        """Give what becomes of commands in a turn of this author."""
        if refusal(Action.RUN, author, self):
            return "off"
        return "ask" if self.commands_wait else self.commands


_WHO = {
    Standing.GUEST: "guests of this workspace",
    Standing.OUTSIDER: "people from outside this workspace",
    Standing.BOT: "other bots",
    Standing.GONE: "deactivated accounts",
    Standing.UNKNOWN: "people whose standing could not be looked up",
}


def refusal(action: Action, author: Author, policy: Policy) -> str | None:
    """Give the sentence that refuses `author` this `action`; None allows it."""
    if author.standing not in (Standing.MEMBER, Standing.LOCAL):
        allowed_guest = author.standing is Standing.GUEST and policy.guests and action in (Action.ASK, Action.STOP)
        if action is Action.RUN and author.standing is Standing.GUEST and policy.guests:
            return "Guests of this workspace ask, but run no commands."
        if not allowed_guest:
            return f"Duet does not answer {_WHO[author.standing]}."
    if action in (Action.RUN, Action.APPROVE) and not author.may_run:
        return "Commands run only where Duet is a member."
    if action is Action.RUN and policy.commands == "off":
        return "Commands are switched off here (DUET_COMMANDS=off)."
    if author.standing is Standing.LOCAL:
        return None
    ids = {author.id, *author.groups}
    if policy.askers and not ids & set(policy.askers):
        return "You are not on the list of people who may use Duet here."
    listed = {Action.APPROVE: policy.approvers, Action.RESET: policy.resetters}.get(action, ())
    if listed and not ids & set(listed):
        return f"You are not on the list of people who may {action} here."
    return None


MAX_QUESTION_CHARS = 20_000


def unusable(text: str) -> str | None:
    """Give the sentence that refuses a text before any model sees it; None when it can be used."""
    if not text.strip():
        return "The question is empty. Ask something, for example: What is our branch naming convention?"
    if len(text) > MAX_QUESTION_CHARS:
        return (
            f"The question has {len(text):,} characters; the most is {MAX_QUESTION_CHARS:,}. "
            "Ask a shorter one; in Slack and Discord the long part can be a text file beside it."
        )
    return None

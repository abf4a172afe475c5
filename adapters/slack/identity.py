"""Who Duet is in a workspace, and which workspaces it is installed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Duet's own account in one workspace (`team`, `T…`; `enterprise`, `E…`, where it belongs to a Grid)."""

    team: str
    user: str
    bot: str = ""
    team_name: str = ""
    user_name: str = "duet"
    enterprise: str = ""
    app: str = ""

    def is_own(self, *, user: str, bot: str) -> bool:
        """Tell whether a message's `user` and `bot_id` are Duet's."""
        return (bool(user) and user == self.user) or (bool(bot) and bot == self.bot)

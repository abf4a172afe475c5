"""`/duet get`: a file out of the room's workspace, uploaded into the channel where it was asked for."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from adapters.slack.calls import Calls
from adapters.slack.surroundings import Looking
from adapters.slack.wording import escaped, one_line
from bot.conversation import FileData, SessionKey, Turn
from bot.errors import BadInput, Incident, OutletError, SandboxUnavailable, attempt
from bot.policy import Action, refusal

if TYPE_CHECKING:
    from bot.duet import Duet

FILE_BYTES = 20 << 20


async def bring(duet: Duet, calls: Calls, looking: Looking, wanted: Turn) -> None:
    """Upload the file that `wanted` names; what keeps it away is told to the person alone. Raises: OutletError."""
    done = await attempt(_brought(duet, calls, looking, wanted), where=f"bringing a file of {wanted.room}")
    said = f"{done.text} (incident {done.id})" if isinstance(done, Incident) else done
    if said and (url := wanted.reply_to.get("response_url")):
        await calls.respond(url, {"text": escaped(said)}, in_channel=False)


async def _brought(duet: Duet, calls: Calls, looking: Looking, wanted: Turn) -> str:
    """Upload the file, or give the sentence that says why not."""
    if why_not := refusal(Action.RUN, await looking.author(wanted), duet.policy):
        return why_not
    room, path = SessionKey(wanted.room), one_line(wanted.text, 200)
    cleared_at = await duet.cleared_at(room)
    try:
        data = await duet.get_file(wanted.room, wanted.text)
    except (BadInput, SandboxUnavailable) as error:
        return str(error)
    if not data:
        return f"{path} is empty."
    if len(data) > FILE_BYTES:
        return f"{path} has {len(data) / 2**20:.1f} MB; Duet brings files of at most {FILE_BYTES >> 20} MB into Slack."
    try:
        uploaded = await calls.upload(
            wanted.room.channel, (FileData(PurePosixPath(wanted.text).name, data),), thread=""
        )
    except OutletError as error:
        return f"{path} could not be brought here: {error}"
    # An upload is no statement that a reset could fence, so what came after one is taken back.
    if await duet.cleared_at(room) != cleared_at:
        await calls.delete_files(uploaded)
        return "The channel was reset meanwhile."
    return ""

"""Slack's JSON, read without trust: whatever stands at a path, a text, an object or a list comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Payload: TypeAlias = Mapping[str, Any]


def text_at(payload: object, *path: str) -> str:
    """Give the text at `path`, or '' where there is none."""
    for step in path:
        payload = payload.get(step) if isinstance(payload, Mapping) else None
    if not isinstance(payload, str):
        return ""
    # Half a surrogate pair is valid JSON and no valid text: nothing could store it.
    return payload if payload.isascii() else payload.encode("utf-8", "replace").decode()


def map_at(payload: object, *path: str) -> Payload:
    """Give the object at `path`, or an empty one."""
    for step in path:
        payload = payload.get(step) if isinstance(payload, Mapping) else None
    return payload if isinstance(payload, Mapping) else {}


def list_at(payload: object, *path: str) -> list[Payload]:
    """Give the objects of the list at `path`."""
    *way, last = path
    found = map_at(payload, *way).get(last)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []

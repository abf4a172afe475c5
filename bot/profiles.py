"""A model's name and address -> what it can take: context, longest reply, one prompt or split ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from bot.ports import Profile

SMALL_BILLIONS = 4.0  # below this a model does one thing at a time
SMALL = Profile(context_tokens=4_096, max_reply_tokens=512, prompts="split")
UNKNOWN = Profile(context_tokens=16_000)
REASONING_REPLY_TOKENS = 4_096  # what a model thinks counts against its longest reply

# Name -> context in tokens, the reply included. Cloudflare's are smaller than the models' own.
_CONTEXTS = (
    (r"llama-3\.3-70b-instruct-fp8-fast", 24_000),
    (r"llama-3-8b-instruct", 7_900),
    (
        r"gpt-4o|gpt-4\.1|gpt-5|gpt-oss|\bo[134]\b|claude|gemini|mistral-(?:large|medium)|deepseek|qwen3|command-r",
        64_000,
    ),
    (r"llama-?3\.[123]|qwen2\.5|mistral|mixtral|gemma-?[34]|phi-?4", 24_000),
)
_REASONING = re.compile(r"deepseek-r1|\br1\b|qwq|qwen3|gpt-oss|gpt-5|\bo[134]\b|think|reason", re.I)
_SIZE = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?)\s*(b|m)(?![a-z\d])", re.I)
# Ollama cuts longer prompts silently, whatever the model could take.
_OLLAMA = re.compile(r":11434\b|//ollama\b", re.I)
OLLAMA_CONTEXT = 4_096


def profile_of(
    name: str,
    *,
    url: str = "",
    prompts: Literal["auto", "one", "split"] = "auto",
    context_tokens: int = 0,
    max_reply_tokens: int = 0,
) -> Profile:
    """Give the profile of the model called `name`; what is set (not `auto`, not 0) counts more than what is known."""
    known = _known(name)
    if _OLLAMA.search(url):
        known = replace(known, context_tokens=min(known.context_tokens, OLLAMA_CONTEXT))
    context = context_tokens or known.context_tokens
    reply = max_reply_tokens or min(known.max_reply_tokens, context // 4)
    return Profile(context, min(reply, max(1, context // 2)), known.prompts if prompts == "auto" else prompts)


def _known(name: str) -> Profile:
    billions = size_billions(name)
    if billions is not None and billions < SMALL_BILLIONS:
        return SMALL
    context = next((tokens for pattern, tokens in _CONTEXTS if re.search(pattern, name, re.I)), UNKNOWN.context_tokens)
    reply = REASONING_REPLY_TOKENS if _REASONING.search(name) else UNKNOWN.max_reply_tokens
    return replace(UNKNOWN, context_tokens=context, max_reply_tokens=reply)


def size_billions(name: str) -> float | None:
    """Read a model's size off its name: `qwen2.5-coder:1.5b`, `gemma3-270m`. The largest number counts."""
    sizes = [float(number) / (1_000 if unit.lower() == "m" else 1) for number, unit in _SIZE.findall(name)]
    return max(sizes, default=None)

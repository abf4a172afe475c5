"""What a model can take, read off its name and address; what a day may cost."""

import pytest

from bot.budget import Caps, cost, day_of, overdrawn
from bot.ports import Profile
from bot.profiles import profile_of, size_billions
from bot.records import Used


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("Qwen2.5-Coder-1.5B-Instruct", "split"),
        ("qwen2.5-coder:0.5b", "split"),
        ("gemma3-270m", "split"),
        ("llama3.2:3b", "split"),
        ("@cf/meta/llama-3-8b-instruct", "one"),
        ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "one"),
        ("qwen3-30b-a3b", "one"),
        ("gpt-5-mini", "one"),
        ("some-name", "one"),
        ("", "one"),
    ],
)
def test_a_small_model_gets_split_prompts(name, prompts):
    assert profile_of(name).prompts == prompts


def test_cloudflares_contexts_are_smaller_than_the_models_own():
    assert profile_of("@cf/meta/llama-3.3-70b-instruct-fp8-fast").context_tokens == 24_000
    assert profile_of("@cf/meta/llama-3-8b-instruct").context_tokens == 7_900


def test_ollama_cuts_silently_so_its_default_context_is_assumed():
    assert profile_of("llama3.1:8b", url="http://127.0.0.1:11434/v1").context_tokens == 4_096
    assert profile_of("llama3.1:8b", url="http://127.0.0.1:11434/v1", context_tokens=32_000).context_tokens == 32_000


def test_a_model_that_thinks_gets_room_for_it():
    assert profile_of("deepseek-r1").max_reply_tokens == 4_096
    assert profile_of("qwen2.5-72b").max_reply_tokens == 1_024


def test_what_is_set_counts_more_than_what_is_known():
    assert profile_of("qwen2.5-coder:1.5b", prompts="one", context_tokens=9_000, max_reply_tokens=700) == Profile(
        9_000, 700, "one"
    )


def test_the_longest_reply_never_takes_more_than_half_the_context():
    profile = profile_of("x", context_tokens=1_000, max_reply_tokens=5_000)
    assert profile.max_reply_tokens == 500


@pytest.mark.parametrize(
    ("name", "size"), [("a-7b", 7), ("b-0.5B-x", 0.5), ("270m", 0.27), ("qwen3-30b-a3b", 30), ("gpt-4o", None)]
)
def test_a_size_is_read_off_a_name(name, size):
    assert size_billions(name) == size


def test_a_day_is_a_utc_day():
    assert day_of(1_796_083_200_000 - 1) == "2026-11-30"
    assert day_of(1_796_083_200_000) == "2026-12-01"


@pytest.mark.parametrize(
    ("caps", "whose"),
    [
        (Caps(), None),
        (Caps(user_tokens=101), None),
        (Caps(user_tokens=100), "Your"),
        (Caps(room_tokens=200), "This channel's"),
        (Caps(tokens=300), "The team's"),
    ],
)
def test_a_daily_cap_refuses_politely_once_it_is_reached(caps, whose):
    refusal = overdrawn(caps, user=Used(tokens=100), room=Used(tokens=200), everyone=Used(tokens=300))
    assert (refusal is None) if whose is None else (refusal or "").startswith(whose)
    if refusal:
        assert "midnight UTC" in refusal
    assert caps.are_set == (caps != Caps())


def test_tokens_cost_by_the_million():
    assert cost(1_500_000, price_of_a_million=0.4) == pytest.approx(0.6)

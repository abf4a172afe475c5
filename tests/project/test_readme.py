"""What README says is what the program does."""

from __future__ import annotations

from pathlib import Path

from bot.__main__ import FIRST_COMMAND
from bot.settings import declared

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def settings_table() -> str:
    """Give the table of settings as README shows it."""
    rows = ["| setting | environment | what it is | default |", "|---|---|---|---|"]
    for field in declared():
        default = field.default
        said = str(default).lower() if isinstance(default, bool) else default
        shown = "" if default in (None, "", (), {}) else f"`{said}`"
        if isinstance(default, tuple) and default:
            shown = f"`{','.join(default)}`"
        meta = field.metadata
        rows.append(f"| `{meta['key']}` | `{meta['env']}` | {meta['help'].replace('|', '/')} | {shown} |")
    return "\n".join(rows)


def test_readme_lists_every_setting_as_the_program_declares_it() -> None:
    begin, end = README.index("<!-- settings -->"), README.index("<!-- /settings -->")
    assert README[begin:end] == f"<!-- settings -->\n{settings_table()}\n"


def test_readmes_first_command_is_what_a_bare_python_is_told() -> None:
    assert FIRST_COMMAND in README


def test_every_page_that_readme_names_exists() -> None:
    import re

    for name in re.findall(r"\]\(([\w/.-]+)\)", README):
        assert (ROOT / name).exists(), name

"""Words that engineers use for one another, for search without the language model's vectors.

Short on purpose: everyday abbreviations and near synonyms of any handbook. Words of one team belong into a document's
`aliases:`.
"""

from __future__ import annotations

from collections import defaultdict

from bot.drivers.codex_text import content_words, words

_GROUPS = """
pr, pull request, merge request
repo, repository, codebase
prod, production, live
docs, documentation
config, configuration, settings
env, environment
ci, pipeline, continuous integration, build
deploy, deployment, release, ship, rollout
db, database
auth, authentication, login
infra, infrastructure
approve, approval, sign off
reviewer, review
outage, incident, down
oncall, on call, pager
vacation, leave, holiday
salary, pay, paid, money
bug, fault, defect
fix, mend, repair
delete, remove
name, naming, call
rollback, revert, undo
secret, password, credential, key
license, licence
postmortem, post mortem, retrospective
start, begin, create
stop, end
allowed, permitted, may
must, required, mandatory
quickly, fast, soon
team, group
test, testing
branch, branches
merge, merging
notify, tell, inform
urgent, emergency, hotfix
"""


def _meanings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in _GROUPS.strip().splitlines():
        group = line.split(", ")
        for word in group:
            found[word] += [other for other in group if other != word]
    return dict(found)


_MEANINGS = _meanings()


def synonyms(text: str) -> str:
    """Give the other words for what `text` names, '' where there is none."""
    alone = set(content_words(text))
    whole = f" {' '.join(words(text))} "
    named = (word for word in _MEANINGS if (word in alone if " " not in word else f" {word} " in whole))
    return " ".join(dict.fromkeys(other for word in named for other in _MEANINGS[word]))

"""Is a turn a question about rules, or does it want something done or help with code?

Asked only where the Codex does not cover the turn: a question about rules ends there, because nobody may invent a rule;
anything else goes to the model. In doubt it is a question about rules.
"""

from __future__ import annotations

import re


def _any_of(phrases: str) -> str:
    """Give a pattern for any of the phrases, which stand between commas."""
    return "|".join(re.sub(r"\s+", r"\\s+", phrase.strip()) for phrase in phrases.split(",") if phrase.strip())


_POLITE = re.compile(
    r"^(?:(?:hi|hey|hello|ok|okay|now|then|so|and|also|great|thanks|thank you|please|pls|kindly|just|quickly|"
    r"(?:can|could|would|will) (?:you|u)|i(?:'d| would) like you to|i (?:want|need) you to|help me(?: to)?|"
    r"let's|lets|go ahead and|try to|duet|@\w+)[\s,:!.-]+)+",
    re.IGNORECASE,
)
# Verbs that ask for work whatever follows.
_WORK = _any_of(
    r"""run, re-?run, execute, write, rewrite, create, make, build, fix, debug, refactor, implement, generate, convert,
    translate, install, uninstall, delete, remove, rename, move, copy, download, upload, clone, commit, push, pull,
    rebase, cherry-pick, stash, check ?out, start, stop, restart, kill, count, compute, calculate, print, sort,
    parse, format, lint, test, benchmark, profile, optimi[sz]e, add, update, upgrade, change, replace, edit, plot,
    scaffold, set ?up, initiali[sz]e, init, compile, deploy, draft, simplify, port, extract, grep, curl, ping, pip,
    npm, git, docker, ls, cat, cd, echo, touch, mkdir, solve, measure, time, clean, unzip, zip, untar, mock,
    reproduce, bisect, decode, encode, hash, validate, verify, check if, check whether, check that, diff, merge,
    split, append, prepare, insert, wrap, inline, vectori[sz]e, document, comment, annotate, turn"""
)
_WORKS = re.compile(rf"^(?:{_WORK})\b", re.IGNORECASE)
# Verbs that ask for work on a thing, or to be told a rule: the object decides.
_SHOWS = re.compile(
    r"^(?:show|list|find|explain|describe|give|tell|get|read|open|look|review|see|summari[sz]e|search|check|inspect|"
    r"analy[sz]e|compare|suggest|improve|walk|use|display|dump|tail|head|do|help|what'?s wrong|what is wrong)\b",
    re.IGNORECASE,
)
_CODE_THING = _any_of(
    r"""files?, director(?:y|ies), folders?, kernel, disks?, memory, cpu, running processes, ports?, output, logs?,
    commits?, diff, repo(?:sitory)?, workspace, sandbox, environment variables?, env vars?, python, bash, shell,
    javascript, typescript, java, golang, rust, ruby, sql, html, css, json, yaml, csv, xml, toml, regex(?:p|es)?,
    regular expression, dockerfile, makefile, docker, kubectl, git, npm, pip, pytest, script, function, method,
    class, snippet, (?<!dress\s)(?<!zip\s)(?<!post\s)code(?!\sof), program, algorithm, quer(?:y|ies), loop, array,
    string, dict(?:ionary)?, variable, stack ?trace, traceback, exception, segfault, error message, syntax error,
    type ?error, compiler, null pointer, unit tests?, test suite, module, package, binary, date and time, current
    time, uname, hostname, ip address, numbers?, primes?, command line, one-liner, hello world, merge conflict,
    stdin, stdout, api call, endpoint,
    \w+\.(?:py|js|ts|go|rs|sh|c|cpp|java|rb|json|ya?ml|toml|txt|csv|log|md)"""
)
_CODE = re.compile(rf"\b(?:{_CODE_THING})\b", re.IGNORECASE)
# Names that no rule is needed to explain: "How do I get code reviewed?" is about people, "… sort in Python?" is not.
_TECHNIQUE = re.compile(
    r"\b(?:"
    + _any_of(
        r"""python, bash, shell, javascript, typescript, java, golang, rust, ruby, sql, css, json, yaml, csv, xml, toml,
        regex(?:p|es)?, regular expression, docker(?:file)?, makefile, kubectl, git, npm, pip, pytest, stack ?trace,
        traceback, segfault, type ?error, null pointer, one-liner, sandbox,
        current (?:date|time|directory)"""
    )
    + r")\b",
    re.IGNORECASE,
)
_MINE = re.compile(
    rf"\b(?:this|that|my|the following|these)\s+(?:\w+\s+)?(?:{_CODE_THING}|tests?|build|error|bug|config)\b",
    re.IGNORECASE,
)
_PASTED = re.compile(r"```|~~~|^\s*\$ \w|Traceback \(most recent|^\s+at \S+\(|\b\w*(?:Error|Exception):", re.MULTILINE)
# Words that speak of what holds for everyone here.
_RULE_WORD = _any_of(
    r"""polic(?:y|ies), rules?, conventions?, guidelines?, guidance, standards?, allowed, permitted, forbidden,
    prohibited, required, requirements?, mandatory, entitled, eligible, have to, has to, supposed to, must, should,
    may (?:i|we|you|one), our, (?:do|can|are|may|did|will|when|how|where|why|what) we, we (?:do|use|have|need),
    handbook, codex, company, process for, procedure, approv(?:e|es|al|als), sign[- ]off, owns?, responsible,
    deadline, budget, preferred, maximum, minimum, official, recommended, best practices?, (?:who|whom|whose) \w+, how
    (?:many|much|long|often|soon)"""
)
_RULE = re.compile(rf"\b(?:{_RULE_WORD})\b", re.IGNORECASE)
_ASKS_HOW = re.compile(
    r"^(?:how (?:do|can|would|could|should|to)|what(?:'s| is| does| are)|why|which|is there)\b", re.IGNORECASE
)


def wants_action(text: str) -> bool:
    """Say whether `text` asks for something to be done, or for help with code, rather than for a rule."""
    if _PASTED.search(text):
        return True
    plain = _POLITE.sub("", text.strip())
    if _WORKS.match(plain):
        # "Test environments: who owns them?" begins with a noun.
        return not (plain == text.strip() and plain.endswith("?") and _RULE.search(plain))
    if _SHOWS.match(plain):
        return bool(_CODE.search(plain)) and not _RULE.search(plain)
    if _RULE.search(plain):
        return False
    return bool(_MINE.search(plain)) or bool(_ASKS_HOW.match(plain) and _TECHNIQUE.search(plain))

"""Requests to act and questions about rules are told apart."""

import pytest

from bot.intent import wants_action

ACTIONS = [
    "list the files here and show the kernel version",
    "run the tests",
    "Can you write a Python function that reverses a string?",
    "please create a file called notes.txt with the word hello in it",
    "fix this: ```python\nprint('a'\n```",
    "Why does my script crash with a segfault?",
    "How do I undo the last git commit?",
    "count the lines in main.py",
    "Could you refactor this function to use a generator?",
    "show me the disk usage",
    "What does this regex match: ^a+$",
    "Write a bash one-liner that finds the largest file",
    "clone the repository and run its unit tests",
    "Help me debug a TypeError in my code",
    "convert this JSON to YAML",
    "install pandas and plot a sine wave",
    "explain this code",
    "what's wrong with my Dockerfile?",
    "Calculate 17 factorial",
    "ok now delete the temporary directory",
    "How can I sort a dictionary by value in Python?",
    'Traceback (most recent call last):\n  File "a.py", line 1',
    "generate a SQL query that joins users and orders",
    "Is there a way to parse a CSV in bash?",
]

RULE_QUESTIONS = [
    "What is our vacation policy?",
    "How many days of parental leave do we get?",
    "Can we expense a home office chair?",
    "Who approves travel abroad?",
    "Do I have to wear a badge in the office?",
    "Which laptop am I entitled to?",
    "What's the dress code?",
    "May I bring my dog to work?",
    "How do I request a new monitor?",
    "When is payday?",
    "Are we allowed to work from another country?",
    "Which coffee machine do we have?",
    "Is there a budget for conferences?",
    "Where do I park my bike?",
    "Tell me the rules for company cars",
    "Show me the policy on gifts from suppliers",
    "Should we use tabs or spaces in Python?",
    "What is the retention period for customer data?",
    "How much notice must I give before I leave?",
    "List the public holidays",
    "Explain the promotion process",
    "Who is the head of design?",
    "What salary band is a senior engineer in?",
    "How long is the probation period?",
]


@pytest.mark.parametrize("text", ACTIONS)
def test_a_request_to_act_goes_to_the_model(text):
    assert wants_action(text)


@pytest.mark.parametrize("text", RULE_QUESTIONS)
def test_a_question_about_rules_is_never_taken_for_a_request(text):
    assert not wants_action(text)


# Written after the patterns; four of them were mistaken at first, and the patterns mended.
FRESH_ACTIONS = [
    "echo hello world",
    "what's the current date in the sandbox?",
    "can you look at main.py and tell me why it fails?",
    "how do I write a for loop in rust",
    "npm install fails with ERESOLVE, help",
    'I get "ModuleNotFoundError: No module named requests", how do I fix it?',
    "my build is broken, can you take a look?",
    "show git log of the last five commits",
    "add a docstring to this method",
    "diff a.txt and b.txt",
]
FRESH_RULES = [
    "What happens if I miss my on-call shift because I am ill?",
    "Do you know who signs off invoices?",
    "How do we test candidates in interviews?",
    "Can I install my own software on the laptop?",
    "Build artefacts: how long are they kept?",
    "Which version of Java do we run in production?",
    "Can contractors push to main?",
    "Test environments: who owns them?",
    "How do I report harassment?",
    "Give me the bereavement policy",
]


def test_words_that_nobody_had_in_mind_are_told_apart_too():
    assert [text for text in FRESH_ACTIONS if not wants_action(text)] == []
    assert [text for text in FRESH_RULES if wants_action(text)] == []

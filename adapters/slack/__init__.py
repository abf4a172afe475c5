"""Slack: a mention in a thread becomes an answer in that thread."""

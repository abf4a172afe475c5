"""Duet answers from a team's written standards, with sources, and runs commands in a locked-down sandbox."""

__version__ = "0.1.0"

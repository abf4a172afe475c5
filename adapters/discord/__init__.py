"""Fronts: each turns one platform's events into turns, and answers into its messages."""

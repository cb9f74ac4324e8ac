"""Rows in, text out: every view and export of a result. Nothing here computes a figure of its own."""

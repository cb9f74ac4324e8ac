"""Thin commands: load, compute, render, write. One file each, imported only when it runs."""

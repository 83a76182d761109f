"""Compiled code on disk: what it is made from, where it is kept, whether it can be believed; and
loading much of it at a time."""

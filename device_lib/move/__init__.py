"""Bytes moved by the threads of a scope: between user memory, staging and other GPUs, contiguous or
by a datatype.

Knows neither requests nor the ring; the roads that messages take (``proxied``) import it.
"""

"""Launching kernels that take a context: which build they are linked with, which of them still
run."""

"""What the proxy runs on: arrays that compiled and Python code share, functions of the MPI library
by address, the compiler's cache, clocks and recorders.

Imports nothing else of ``host_proxy``.
"""

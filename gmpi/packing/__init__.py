"""``gmpi.pack`` and ``gmpi.unpack``: datatypes of device arrays outside of kernels.

``calls`` is what users call, ``prepare`` chooses a kernel for a plan, ``kernels*`` are these.
"""

"""``gmpi.pack`` and ``gmpi.unpack``: datatypes of device arrays outside of kernels.

``calls`` is what users call. ``prepare`` chooses a kernel (``kernels*``) or a copy (``copies``) for
a plan of ``gmpi.datatypes``; ``driver`` launches it. No kernel of a user runs any of this.
"""

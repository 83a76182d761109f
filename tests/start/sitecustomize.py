"""What every Python that tests start does first: it collects garbage less often, and finds the
simulator where it looks for ``numba.cuda``.

Numba is half a million objects, none of them garbage. Python looks at them again and again while it
imports, and at all of them three times when it ends: that took a third of the processor time of
a program that opens a context and ends.

Most of our programs import ``numba.cuda`` first, and GMPI then replaces what is in it: a quarter of
the processor time until a context can be opened goes into what is not used.
"""

import atexit
import gc
import os

from device_lib.platform import front_end_sim

#: Of new objects; Python's own is 700.
gc.set_threshold(200_000, 20, 20)
# Runs after all that programs register: what they leave open is closed and told as ever.
atexit.register(gc.freeze)

if "TEST_NUMBA_FIRST" not in os.environ:
    front_end_sim.install()

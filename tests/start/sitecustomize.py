"""What every Python that tests start does first: it collects garbage less often.

Numba is half a million objects, none of them garbage. Python looks at them again and again while it
imports, and at all of them three times when it ends: that took a third of the processor time of
a program that opens a context and ends.
"""

import atexit
import gc

#: Of new objects; Python's own is 700.
gc.set_threshold(200_000, 20, 20)
# Runs after all that programs register: what they leave open is closed and told as ever.
atexit.register(gc.freeze)

"""What kernels run on: one twin for CUDA and one for the simulator of every operation that differs,
the scopes of threads, the linked library, and the context as a kernel sees it.

Imports nothing else of ``device_lib``; everything else in it may import this.
"""

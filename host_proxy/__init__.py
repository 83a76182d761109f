"""Host half of GMPI: the proxy that makes the MPI calls. Import ``gmpi`` instead.

In the order of a record's journey: ``ring`` (poll, decode), ``checks``, ``dispatch``, then
``sending``, ``receiving`` and ``collectives`` (MPI), ``progress``, and ``completion`` (answer).
``loop`` turns that wheel without the GIL; ``mpi4py_engine`` does the same in plain Python.
"""

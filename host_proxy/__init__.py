"""Host half of GMPI: the proxy that makes the MPI calls. Import ``gmpi`` instead.

``proxy`` is the thread. It runs one of two engines: ``compiled``, or ``reference`` in plain mpi4py.
Both take ``records`` and answer them; ``platform`` is what they run on. In the order of a record's
journey: ``ring`` (poll, decode), ``checks``, ``dispatch``, then ``sending``, ``receiving`` and
``collectives`` (MPI), ``progress``, and ``completion`` (answer).
"""

"""CUDA Python without a GPU: kernels of ``numba.cuda`` run as Python, their threads as greenlets.

Ours, written from the documented interface of ``numba.cuda``; only ``names`` asks Numba, for types.

* ``meetings``: where threads meet.
* ``lanes``: threads as greenlets, and who of them runs.
* ``threads``: what a kernel asks of its thread, block and warp: ``threadIdx``, ``syncthreads`` ...
* ``addresses``: all memory, by address.
* ``memory``: shared, local and constant arrays; data types in Numba's words.
* ``atomics``, ``mathematics``, ``vectors``: operations on elements, numbers and short vectors.
* ``kernels``: ``jit`` and launches; strict mode is told of launches here.
* ``arrays``: arrays of the device, whose memory is the host's.
* ``reduction``: ``cuda.reduce``.
* ``host``: streams, events, devices and contexts.
* ``absent``: what needs a compiler or a driver, and says so when it is called.
* ``names``: all of this by the names that it has in ``numba.cuda``.

Each imports only those above it in this list. Kernels and programs come here by ``numba.cuda``,
where ``device_lib/platform/front_end_sim.py`` puts it; ``device_lib/platform``, ``api`` and
``strict``, which are the library's half of it, and ``gmpi`` may import from here where they run in
the simulator. It knows nothing of MPI.
"""

"""Traces: every call of kernels and of the host, from its begin to its completion, on one clock.

While a context with ``trace_file`` is open, its ``Recorder`` (``recorder``) gives each launch a
place for events. When it closes, events, the proxy's stamps and the host's calls are joined to
operations (``operations``), which are written as Chrome's trace events (``chrome``). ``merge``
joins the files of all ranks by arrows from sends to receives, ``summary`` says where time goes.
"""

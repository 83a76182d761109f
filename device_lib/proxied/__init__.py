"""The road of a message by the proxy: a request gets a slot, a record goes into the ring, a
completion or a command comes back, a wait ends it.

Read in this order: ``ring``, ``slots``, ``opening``, ``publishing``, ``commands``, ``completion``,
``closing``; ``requests`` chooses among them. ``api`` calls ``requests``, what opens requests that
are not in one piece (``scattered``, ``opening_blocks``, ``opening_counted``), and ``closing_all``.
"""

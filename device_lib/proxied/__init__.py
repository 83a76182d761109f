"""The road of a message by the proxy: a request gets a slot, a record goes into the ring, a
completion or a command comes back, a wait ends it.

Read in this order: ``ring``, ``slots``, ``opening``, ``orders``, ``completion``, ``closing``;
``requests`` chooses among them. ``api`` calls only ``requests``, ``scattered`` and ``closing_all``.
"""

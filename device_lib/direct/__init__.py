"""The direct road: messages between GPUs that map each other's memory, without the proxies.

Matching is counting (``gmpi/contract/channels.py``). ``table`` finds the channel of a call;
``short`` has the quick way of a short message, ``requests`` all others, whose state is in ``rows``;
``sends`` and ``receives`` are one step of each, ``going_on`` takes them. ``api`` asks here first;
what has no channel goes by ``proxied``, which this imports for slots and help.
"""

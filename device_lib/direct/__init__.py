"""The direct road: messages between GPUs that map each other's memory, without the proxies.

Matching is counting (``gmpi/contract/channels.py``). ``table`` finds the channel of a call;
``one_warp`` and ``wide_messages`` are the quick ways of messages in one piece, ``requests`` leaves
all others to ``row_requests``, by the leading warp; ``sends`` and ``receives`` are one step of
each, ``going_on`` takes them, ``announcing`` says where a long one goes. ``block_jobs`` and
``long_moves`` are what other warps do. In grid scope the leading block does all this; ``grid_team``
is how the blocks meet, ``grid_commands`` how the leader has the others move bytes, ``grid_jobs``
what they do.
``api`` asks here first; what has no channel goes by ``proxied``, which this imports for slots.
"""

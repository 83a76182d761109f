"""Functions of the library whose registers and stack ``test_ptx.py`` looks at."""

#: What one full warp does for a small message, tuned for latency.
INLINE = ["gmpi_open_inline", "gmpi_finish_small", "gmpi_transact"]
#: The same on the direct road, and of collectives there: by all threads of a scope, or one warp.
_CALLS = "send send_many post take take_many allreduce bcast barrier blocks_at_once"
_CALLS += " allreduce_alone bcast_alone barrier_alone blocks_alone reduce_alone"
DIRECT = [f"gmpi_direct_{call}_{scope}" for call in _CALLS.split() for scope in ("block", "warp")]
#: What moves bytes.
MOVING = ["gmpi_copy_to_staging", "gmpi_copy_from_staging", "gmpi_direct_reduce_words"]

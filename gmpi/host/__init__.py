"""``Context.host``: calls of the host that match those of kernels."""

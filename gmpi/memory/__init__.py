"""The memory of a context: its regions, how they are shared with the ranks of the node and with the
GPU."""

"""What ``gmpi tune`` has measured once on a machine: how it is kept, and how it decides.

Nothing here measures; ``gmpi/commands`` does.
"""

"""How a context opens, waits, fails and closes, and what happens to it when its process forks, is
interrupted or ends.

The watchdog is here: it ends waits. ``context.py`` calls all of this; nothing here is for users.
"""

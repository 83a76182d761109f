"""The ``GMPI_*`` calls: what users import (``exports``), what each does (``calls``), and what is
wrong with the arguments of one (``arguments``).

Nothing else in ``device_lib`` imports this.
"""

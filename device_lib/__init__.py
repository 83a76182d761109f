"""Device half of GMPI: what runs inside the user's kernel. Import ``gmpi`` instead.

In the order of a record's journey: ``calls`` (GMPI_*), ``copy`` (pack), ``slots`` and ``ring``
(publish), then ``completion`` (wait), ``orders`` (large messages) and ``copy`` again (unpack).
"""

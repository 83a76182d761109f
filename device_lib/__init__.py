"""Device half of GMPI: what runs inside the user's kernel. Import ``gmpi`` instead.

``api`` holds the calls, ``proxied`` the road of a message by the proxy, ``move`` what moves bytes,
``platform`` what all of it runs on. Each imports only those behind it in this list.
"""

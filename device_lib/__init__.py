"""Device half of GMPI: what runs inside the user's kernel. Import ``gmpi`` instead.

``api`` holds the calls, ``direct`` the road of a message from GPU to GPU, ``proxied`` that by the
proxy, ``move`` what moves bytes, ``platform`` what all of it runs on, ``simulator`` what plays the
GPU where there is none. Each imports only those behind it in this list. ``strict`` watches kernels
in the simulator, where it is asked to.
"""

"""What kernels, proxies and ranks agree on: the shared bytes (``wire``), the sizes of their memory
(``sizes``), what they decide alike (``rules``), and MPI's numbers (``constants``).

Imports neither CUDA nor MPI nor anything else of GMPI; everybody may import it.
"""

"""GMPI for kernels in CUDA C++: CuPy's, and those that nvcc compiles.

``table`` says what each call looks like in C, ``header`` writes it down, ``symbols`` compiles the
calls, ``link`` joins them with a program, ``module`` launches it by CuPy, ``launching`` tells GMPI
of launches that others make.
"""

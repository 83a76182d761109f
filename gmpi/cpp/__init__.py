"""GMPI for kernels in CUDA C++: CuPy's, and those that nvcc compiles.

``table`` says what each call looks like in C, ``header`` writes it down, ``symbols`` compiles the
calls. For CuPy, ``link`` joins them with a program and ``module`` launches it. For nvcc,
``library_file`` writes them to a file, by the programs of ``nvcc``, and ``launching`` tells GMPI of
launches that others make.
"""

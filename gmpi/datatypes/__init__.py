"""MPI datatypes as GMPI understands them.

    >>> print(gmpi.datatypes.plan(MPI.DOUBLE.Create_vector(512, 1, 512)))

In the order of a datatype's way: ``decode`` (from MPI), ``nodes`` (canonical form), ``parts``
(what kernels look up), ``plans`` (all of it together).
"""

from gmpi.datatypes.parts import RunList, StridedBlock
from gmpi.datatypes.plans import Plan, plan

__all__ = ["Plan", "RunList", "StridedBlock", "plan"]

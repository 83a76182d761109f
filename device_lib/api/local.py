"""Calls that any thread makes, alone: what a kernel can answer by itself.

Of a Cartesian communicator its dimensions are in device memory; ranks are in row-major order of
their coordinates (MPI 4.1 section 8.2).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.move.layouts import type_row
from device_lib.move.message import is_derived
from device_lib.platform.context import sign32, world_rank, world_size
from device_lib.platform.primitives import device, int64, load_gpu, load_sys, timer_ns
from gmpi.contract import constants
from gmpi.contract.layouts import TYPE_BASIC_SHIFT, TYPE_DISTINCT, TYPE_SIZE
from gmpi.contract.topology import PERIODS_SHIFT
from gmpi.contract.wire import (
    COMMUNICATOR_BYTES,
    COMMUNICATORS,
    DEVICE_TOPOLOGY,
    MAPPED_COMMUNICATORS,
    TOPOLOGY_BYTES,
)

_DATATYPE_COUNT = len(constants.DATATYPES)


@device
def _communicator_word(ctx, comm):
    if comm < 0 or comm >= COMMUNICATORS:
        return 0xFFFFFFFF  # rank -1, size 0
    return load_sys(ctx.mapped + MAPPED_COMMUNICATORS + int64(comm) * COMMUNICATOR_BYTES)


@device
def comm_rank(ctx, comm):
    """Rank of this process in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == constants.COMM_WORLD:
        return world_rank(ctx)
    return sign32(_communicator_word(ctx, comm))


@device
def comm_size(ctx, comm):
    """Number of processes in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == constants.COMM_WORLD:
        return world_size(ctx)
    return sign32(_communicator_word(ctx, comm) >> 32)


@device
def _topology(ctx, comm):
    """(number of dimensions, which are periodic, address of their lengths)."""
    if comm < 0 or comm >= COMMUNICATORS:
        return 0, 0, 0
    row = ctx.device + DEVICE_TOPOLOGY + int64(comm) * TOPOLOGY_BYTES
    head = load_gpu(row)
    return head & 0xFF, head >> PERIODS_SHIFT, row + 8


@device
def cartdim_get(ctx, comm):
    ndims, periods, lengths = _topology(ctx, comm)
    return ndims


@device
def _store_coords(ndims, lengths, rank, coords):
    i = ndims - 1
    while i >= 0:
        length = load_gpu(lengths + i * 8)
        coords[i] = rank % length
        rank //= length
        i -= 1


@device
def cart_coords(ctx, comm, rank, maxdims, coords):
    ndims, periods, lengths = _topology(ctx, comm)
    if ndims == 0:
        return constants.ERR_TOPOLOGY
    if rank < 0 or rank >= comm_size(ctx, comm):
        return constants.ERR_RANK
    if maxdims < ndims:
        return constants.ERR_ARG
    _store_coords(ndims, lengths, int64(rank), coords)
    return constants.SUCCESS


@device
def cart_get(ctx, comm, maxdims, dims, periods, coords):
    ndims, around, lengths = _topology(ctx, comm)
    if ndims == 0:
        return constants.ERR_TOPOLOGY
    if maxdims < ndims:
        return constants.ERR_ARG
    i = 0
    while i < ndims:
        dims[i] = load_gpu(lengths + i * 8)
        periods[i] = around >> i & 1
        i += 1
    _store_coords(ndims, lengths, int64(comm_rank(ctx, comm)), coords)
    return constants.SUCCESS


@device
def cart_rank(ctx, comm, coords):
    ndims, periods, lengths = _topology(ctx, comm)
    if ndims == 0:
        return constants.UNDEFINED
    rank = int64(0)
    i = 0
    while i < ndims:
        length = load_gpu(lengths + i * 8)
        at = int64(coords[i])
        if at < 0 or at >= length:
            if periods >> i & 1 == 0:
                return constants.PROC_NULL
            at = (at % length + length) % length
        rank = rank * length + at
        i += 1
    return rank


@device
def _beside(me, at, length, stride, disp, around):
    """Rank at ``disp`` from ``me`` in one dimension, or PROC_NULL."""
    to = at + disp
    if to < 0 or to >= length:
        if around == 0:
            return constants.PROC_NULL
        to = (to % length + length) % length
    return me + (to - at) * stride


@device
def cart_shift(ctx, comm, direction, disp):
    ndims, periods, lengths = _topology(ctx, comm)
    if direction < 0 or direction >= ndims:
        return constants.UNDEFINED, constants.UNDEFINED
    me = int64(comm_rank(ctx, comm))
    stride = int64(1)
    i = ndims - 1
    while i > direction:
        stride *= load_gpu(lengths + i * 8)
        i -= 1
    length = load_gpu(lengths + int64(direction) * 8)
    at = me // stride % length
    around = periods >> direction & 1
    source = _beside(me, at, length, stride, -int64(disp), around)
    return source, _beside(me, at, length, stride, int64(disp), around)


@device
def wtime(ctx):
    return timer_ns() * 1e-9


@device
def type_size(ctx, datatype):
    if is_derived(datatype):
        row = type_row(ctx, datatype)
        return load_gpu(row + TYPE_SIZE) if row != 0 else constants.UNDEFINED
    if datatype & ~0xFFFF != constants.DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return constants.UNDEFINED
    if datatype == constants.SHORT_INT:
        return 6
    extent = int64(datatype) >> 8 & 0xFF
    if datatype & 0xFF >= constants.FIRST_WITH_GAPS:
        return extent // 2 + 4  # half is the value, then comes an integer of 4 bytes
    return extent


@device
def get_count(ctx, status, datatype):
    size = type_size(ctx, datatype)
    if size == constants.UNDEFINED or status.nbytes == 0:
        return size if size == constants.UNDEFINED else 0
    if size == 0 or status.nbytes % size != 0:
        return constants.UNDEFINED
    return status.nbytes // size


@device
def get_elements(ctx, status, datatype):
    if not is_derived(datatype):
        return get_count(ctx, status, datatype)
    row = type_row(ctx, datatype)
    if row == 0:
        return constants.UNDEFINED
    basic = load_gpu(row + TYPE_DISTINCT) >> TYPE_BASIC_SHIFT
    if basic == 0 or status.nbytes % basic != 0:
        return constants.UNDEFINED
    return status.nbytes // basic


@device
def test_cancelled(ctx, status):
    return status.tag == constants.NO_MESSAGE


@device
def error_class(ctx, errorcode):
    return errorcode


LOCAL = SimpleNamespace(
    comm_rank=comm_rank,
    comm_size=comm_size,
    cartdim_get=cartdim_get,
    cart_coords=cart_coords,
    cart_get=cart_get,
    cart_rank=cart_rank,
    cart_shift=cart_shift,
    wtime=wtime,
    type_size=type_size,
    get_count=get_count,
    get_elements=get_elements,
    test_cancelled=test_cancelled,
    error_class=error_class,
)

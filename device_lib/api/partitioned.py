"""The calls of partitioned requests (MPI 4.1 chapter 4), for each scope."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.lists import call_of
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64
from gmpi.contract.constants import ERR_COUNT, SUCCESS
from gmpi.contract.partitions import DIMENSIONS_SHIFT, FLAWS_SHIFT
from gmpi.contract.wire import (
    FLAG_PRIVATE_BUFFER,
    FLAG_STRIDED_BUFFER,
    OP_PRECV_INIT,
    OP_PSEND_INIT,
)

_PREADY_LIST = call_of("Pready_list")


@device
def _dimension(words, number):
    """(elements, bytes from one to the next) of a dimension of what ``describe`` has described."""
    if number >= gpu.load_8(words + 16):
        return 0, 0
    return gpu.load_8(words + 32 + 16 * number), gpu.load_8(words + 40 + 16 * number)


def make_partitioned_calls(
    partitioned: SimpleNamespace, making: SimpleNamespace, refuse: Callable
) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        partitioned: of ``direct.partitioned_quick``.
        making: ``direct.partitioned_making``.
        refuse: of ``lists``.
    """
    make_one = making.make
    make_ready, make_range_ready = partitioned.ready, partitioned.ready_range
    has_arrived = partitioned.arrived

    # wide: as MPI's
    @device
    def init(ctx, op, buf, partitions, count, datatype, peer, tag, comm):
        address, room, strided = gpu.buffer_of(buf)
        about = gpu.itemsize_of(buf)
        n0 = n1 = n2 = n3 = s0 = s1 = s2 = s3 = 0
        if strided != 0:  # False at compile time for most arrays
            words = gpu.describe(buf, address, room, strided)
            n0, s0 = _dimension(words, 0)
            n1, s1 = _dimension(words, 1)
            n2, s2 = _dimension(words, 2)
            n3, s3 = _dimension(words, 3)
            about |= FLAG_STRIDED_BUFFER << FLAWS_SHIFT | gpu.load_8(words + 16) << DIMENSIONS_SHIFT
        if gpu.memory_space(address) != 0:
            about |= FLAG_PRIVATE_BUFFER << FLAWS_SHIFT
        wanted, _nbytes, _strided = gpu.buffer_of((
            int64(address), int64(room), int64(partitions), int64(count), int64(datatype),
            int64(peer), int64(tag), int64(comm), int64(about),
            int64(n0), int64(s0), int64(n1), int64(s1), int64(n2), int64(s2), int64(n3), int64(s3),
        ))  # fmt: skip
        return make_one(ctx, op, wanted)

    @device
    def psend_init(ctx, buf, partitions, count, datatype, dest, tag, comm):
        return init(ctx, OP_PSEND_INIT, buf, partitions, count, datatype, dest, tag, comm)

    @device
    def precv_init(ctx, buf, partitions, count, datatype, source, tag, comm):
        return init(ctx, OP_PRECV_INIT, buf, partitions, count, datatype, source, tag, comm)

    @device
    def pready(ctx, partition, request):
        return make_ready(ctx, int64(partition), int64(request))

    @device
    def pready_range(ctx, low, high, request):
        return make_range_ready(ctx, int64(low), int64(high), int64(request))

    @device
    def pready_list(ctx, length, partitions, request):
        if refuse(ctx, _PREADY_LIST, length, len(partitions)):
            return int64(ERR_COUNT)
        result = int64(SUCCESS)
        i = 0
        while i < length:
            error = make_ready(ctx, int64(partitions[i]), int64(request))
            result = error if result == SUCCESS else result
            i += 1
        return result

    @device
    def parrived(ctx, request, partition):
        return has_arrived(ctx, int64(partition), int64(request)) != 0

    return SimpleNamespace(
        psend_init=psend_init,
        precv_init=precv_init,
        pready=pready,
        pready_range=pready_range,
        pready_list=pready_list,
        parrived=parrived,
    )

"""Two iterations of the Himeno benchmark in one pass over memory, by a kernel that stays.

Every block that sweeps has some rows of each plane, and goes through the planes. What it reads of
the coefficients of a plane stays in shared memory until the second iteration has used it as well,
a few planes behind the first: memory is read once for two iterations. Between the two each part
needs the halo that its neighbours send after the first; with launches that takes halos two planes
deep, updated on both sides.

Half of the warps of a block lead, in even iterations, the others trail (``_himeno_stages.py``), and
all wait for nothing but what they need (``_himeno_signals.py``). The pressure of three planes stays
in the registers of the threads that go through them.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from _himeno_fetch import await_full, expect, fetch, leave, prefetch, prepare
from _himeno_grid import Part
from _himeno_kernels import take_role, warp_sum
from _himeno_signals import ALL, make_signals
from _himeno_stages import FRESH, FRESH_TRAILING, LEADS, PLANE, TRAILS, WORDS, stages
from _himeno_strips import Strips, sides
from _himeno_sweep import Plan, make_read, make_relax, window
from _himeno_vector import device, load4_shared, release
from numba import cuda, float32, int32, int64

from device_lib.platform.primitives import fence_gpu, sync_block, thread_rank

_AHEAD = 3  # stages from asking L2 to fetching


@device
def inner(window):
    """Without the neighbours."""
    return window[1], window[2], window[3], window[4]


def make_three(part: Part):
    """Reads the pressure of three rows around 4 points of one plane, with both neighbours."""
    pitch = part.pitch

    @device
    def three(p, at):
        return window(p, at - pitch), window(p, at), window(p, at + pitch)

    return three


@device
def nothing():
    """What ``three`` gives, before anything has been read."""
    zero = float32(0.0)
    none = (zero, zero, zero, zero, zero, zero)
    return none, none, none


@device
def corners(m, i):
    """The rows beside, in the planes before and behind."""
    return inner(m[0]), inner(m[2]), inner(i[0]), inner(i[2])


@device
def decode(word, turn, trailing):
    """(iteration, plane) that a half has to do in a stage; iteration -1 for none."""
    n = int32(-1)
    if trailing:
        if word & TRAILS != 0:
            n = int32(2 * turn + (word & TRAILS) - 2)
    elif word & LEADS != 0:
        n = int32(2 * turn)
    return n, int32(word >> PLANE)


@device
def add_up(sums, n, iterations, value):
    """Adds what a warp has summed up in iteration ``n``, if there is one."""
    value = warp_sum(value)
    if cuda.laneid == 0 and 0 <= n < iterations:
        cuda.atomic.add(sums, (0, n), value)


def make_slots(part: Part, strips: Strips, plan: Plan, of_round: int, stages_at: int):
    """Device functions ``begin`` and ``leave_slot`` for the coefficients in shared memory, and
    ``row_at``."""
    box = part.box
    pitch, part_rows = part.pitch, part.rows
    first_plane, first_row, rows = box.i0, box.j0, box.rows
    count, strip_rows, row_step, slot_step = strips.count, strips.rows, strips.row, strips.slot
    slots, warps = plan.slots, strips.warps

    @device
    def own_rows(worker):
        return min(strip_rows, rows - worker * strip_rows)

    @device
    def row_at(worker, plane):
        """Number of the first row of a block in a plane."""
        return (first_plane + plane) * part_rows + first_row + worker * strip_rows

    @device
    def fetch_stage(coef, held, shared, full, worker, s, iterations):
        """Has the coefficients of a stage copied into its slot; one thread."""
        turn = s // of_round
        slot = s % slots
        word = shared[WORDS * (s - turn * of_round)]
        even, plane = decode(word, turn, False)
        odd, _ = decode(word, turn, True)
        elements = own_rows(worker) * row_step
        if 0 <= even < iterations or 0 <= odd < iterations:
            expect(full, slot, elements)
            fetch(
                held, slot * slot_step, coef, row_at(worker, plane) * row_step, elements, full, slot
            )
        else:
            expect(full, slot, 0)

    @device
    def ask(p, coef, shared, worker, s, iterations):
        """L2 is asked for what a later stage needs of memory; one thread."""
        turn = s // of_round
        _, plane = decode(shared[WORDS * (s - turn * of_round)], turn, False)
        if 2 * turn < iterations:
            prefetch(coef, row_at(worker, plane) * row_step, own_rows(worker) * row_step)
            prefetch(p, row_at(worker, plane + 1) * pitch, own_rows(worker) * pitch)

    @device
    def begin(coef, held, board, shared, freed, full, worker, iterations):
        """Prepares shared memory and has the first coefficients fetched; a block."""
        thread = thread_rank()
        at = thread
        while at < WORDS * of_round:
            shared[at] = board[stages_at + at]
            at += cuda.blockDim.x
        if thread < slots:
            freed[thread] = 0
        if thread == 0:
            prepare(full, slots)
        sync_block()
        if thread == 0 and worker < count:
            for s in range(min(slots, (iterations // 2 + 1) * of_round)):
                fetch_stage(coef, held, shared, full, worker, s, iterations)

    # wide: arrays, and words in registers
    @device
    def leave_slot(p, coef, held, shared, freed, full, worker, s, slot, phase, iterations):
        """The last warp of a block that leaves a slot has it filled again."""
        if leave(freed, slot) == 2 * warps * (phase + 1):
            if s + slots < (iterations // 2 + 1) * of_round:
                fetch_stage(coef, held, shared, full, worker, s + slots, iterations)
                ask(p, coef, shared, worker, s + slots + _AHEAD, iterations)

    return begin, leave_slot, row_at


def make_wave(part: Part, plan: Plan) -> SimpleNamespace:
    """``sweep``, a device function for the blocks that sweep, and what others must know of it.

    Only for a part that is cut along i, or not at all.
    """
    box = part.box
    order = stages(box.planes, sides(part)[0])
    strips = Strips(part, plan.workers)
    signals = make_signals(part, strips, order, plan.messages)
    own_word, touches, look = signals.own_word, signals.touches, signals.look
    at_edge, event_of, least = signals.at_edge, signals.event_of, signals.least
    tell, tell_all, await_others = signals.tell, signals.tell_all, signals.await_others
    of_round, stage_words = len(order), WORDS * len(order)
    begin, leave_slot, row_at = make_slots(part, strips, plan, of_round, signals.stages_at)
    count, strip_rows, row_step, slot_step = strips.count, strips.rows, strips.row, strips.slot
    half, slots = strips.threads, plan.slots
    pitch, plane_step = part.pitch, part.plane
    groups, rows, lead_in = box.groups, box.rows, 4 * box.g0
    three = make_three(part)
    _, relax = make_relax(part)
    read = make_read(load4_shared, pitch)

    @device
    def following(turn, stage):
        stage = int32(stage + 1)
        if stage == of_round:
            return int32(turn + 1), int32(0)
        return turn, stage

    @device
    def next_slot(slot, phase):
        slot = int32(slot + 1)
        if slot == slots:
            return int32(0), int32(phase + 1)
        return slot, phase

    @device
    def place(worker):
        """(whether a thread has points, the first in the first plane, its place in a slot)."""
        thread = thread_rank() % half
        r = thread // groups
        row = worker * strip_rows + r
        k = lead_in + 4 * (thread - r * groups)
        has = r < strip_rows and row < rows
        base = (row_at(worker, 0) + r) * pitch + k
        return has, base, int32(min(r, strip_rows - 1) * row_step + k)

    # wide: the kernel's arrays, and the block's place
    @device
    def lead(p, q, coef, held, sums, board, shared, freed, full, worker, iterations):
        """Even iterations, from ``p`` to ``q``; a thread of the leading half.

        What a stage follows from was done a round ago: how far the others are is looked at now and
        then, and the pressure of the next plane is on its way while this one is computed.
        """
        mine = own_word(worker, 0)
        has, base, in_slot = place(worker)
        touched = touches()
        m = o = i = ahead = nothing()
        share = 0.0
        stage, turn, slot, phase = int32(0), int32(0), int32(0), int32(0)
        going = True
        loaded = False
        known = int32(0)  # stages that all the others have ended, behind a fence
        s = int32(0)
        last = int32((iterations // 2 + 1) * of_round)
        while s < last:
            n, plane = decode(shared[WORDS * stage], turn, False)
            changes = going and 0 <= n < iterations
            at = base + plane * plane_step
            if changes and not loaded:
                needed = int32(turn * of_round + shared[WORDS * stage + 1])
                if known < needed or at_edge(plane):
                    going = await_others(board, touched, worker, 0, needed, n, plane, mine, s)
                    known = least(look(board, touched, worker, 0))
                    fence_gpu()
                    changes = going
                if has:
                    m = three(p, at - plane_step)
                    o = three(p, at)
                    i = three(p, at + plane_step)
            event = event_of(changes, plane)
            round_ends = stage == of_round - 1
            turn, stage = following(turn, stage)
            word = shared[WORDS * stage]
            n, plane = decode(word, turn, False)
            needed = int32(turn * of_round + shared[WORDS * stage + 1])
            loaded = going and 0 <= n < iterations and word & FRESH == 0
            loaded = loaded and known >= needed and not at_edge(plane)
            if loaded and has:
                ahead = three(p, at + 2 * plane_step)
            await_full(full, slot, phase)
            if changes and has:
                c = read(held, slot * slot_step + in_slot)
                share += relax(q, at, c, (m[1], o[0], o[1], o[2], i[1], *corners(m, i)))
            m = o
            o = i
            i = ahead
            if round_ends:
                add_up(sums, 2 * turn - 2, iterations, share)
                share = 0.0
            cuda.syncwarp()
            if event != 0 or round_ends:
                tell_all(board, mine, s + 1, event, round_ends, turn, going)
            elif going and cuda.laneid == 0:
                release(board, mine, s + 1)
            leave_slot(p, coef, held, shared, freed, full, worker, s, slot, phase, iterations)
            s = int32(s + 1)
            slot, phase = next_slot(slot, phase)

    # long: one loop, whose state is in registers
    # wide: as ``lead``
    @device
    def trail(p, q, coef, held, sums, board, shared, freed, full, worker, iterations):
        """Odd iterations, from ``q`` to ``p``; a thread of the trailing half.

        It waits for the leading halves with its coefficients in registers, so that the slot is
        free. One fence is both for what they have done and for what this half tells, and there is
        none while they are known to be far enough.
        """
        mine = own_word(worker, 1)
        has, base, in_slot = place(worker)
        touched = touches()
        m = o = nothing()
        share = 0.0
        stage, turn, slot, phase = int32(0), int32(0), int32(0), int32(0)
        going = True
        seen = int32(0)  # stages that the others have ended, one of them for each lane
        known = int32(0)  # the same, behind a fence
        s = int32(0)
        last = int32((iterations // 2 + 1) * of_round)
        while s < last:
            word = shared[WORDS * stage]
            n, plane = decode(word, turn, True)
            changes = going and 0 <= n < iterations
            await_full(full, slot, phase)
            c = read(held, slot * slot_step + in_slot)
            leave_slot(p, coef, held, shared, freed, full, worker, s, slot, phase, iterations)
            needed = int32(turn * of_round + shared[WORDS * stage + 2])
            if changes and (at_edge(plane) or not cuda.all_sync(ALL, known >= needed)):
                if at_edge(plane) or not cuda.all_sync(ALL, seen >= needed):
                    going = await_others(board, touched, worker, 1, needed, n, plane, mine, s)
                    changes = going
                    seen = needed
                else:
                    fence_gpu()
                known = seen
                if going:
                    tell(board, mine, s, 0)
            seen = look(board, touched, worker, 1)
            ss = 0.0
            if changes and has:
                at = base + plane * plane_step
                if word & FRESH_TRAILING != 0:
                    m = three(q, at - plane_step)
                    o = three(q, at)
                i = three(q, at + plane_step)
                ss = relax(p, at, c, (m[1], o[0], o[1], o[2], i[1], *corners(m, i)))
                m = o
                o = i
            if word & TRAILS == 1:
                add_up(sums, 2 * turn - 1, iterations, ss)
            else:
                share += ss
            event = event_of(changes, plane)
            round_ends = stage == of_round - 1
            if round_ends:
                add_up(sums, 2 * turn + 1, iterations, share)
                share = 0.0
            turn, stage = following(turn, stage)
            s = int32(s + 1)
            if event != 0 or round_ends:
                cuda.syncwarp()
                tell_all(board, mine, s, event, round_ends, turn, going)
            slot, phase = next_slot(slot, phase)

    @device
    def sweep(p, q, coef, sums, board, worker, iterations):
        """All iterations, from ``p`` to ``q`` and back; all threads of a block.

        Args:
            sums: float64[1 or more, iterations]: residuals are added to its first row.
        """
        held = cuda.shared.array(0, float32, alignment=128)  # [slots * slot_step]
        # Each begins a line: what other code of the kernel has in shared memory moves them about,
        # and where they came to lie together size L took 262 us an iteration in place of 222.
        shared = cuda.shared.array(stage_words, int32, alignment=128)
        freed = cuda.shared.array(slots, int32, alignment=128)
        full = cuda.shared.array(slots, int64, alignment=128)
        begin(coef, held, board, shared, freed, full, worker, iterations)
        if worker >= count:
            return
        if thread_rank() < half:
            lead(p, q, coef, held, sums, board, shared, freed, full, worker, iterations)
        else:
            trail(p, q, coef, held, sums, board, shared, freed, full, worker, iterations)

    return SimpleNamespace(
        of_plane=count * strips.warps,
        in_round=2 * count * strips.warps,
        fresh=signals.fresh,
        summed_at=signals.summed_at,
        sweep=sweep,
    )


def make_persistent_wave(part: Part, plan: Plan) -> SimpleNamespace:
    """``make_persistent`` for two iterations at a time."""
    made = make_wave(part, plan)
    sweep, communicating = made.sweep, plan.communicating

    @cuda.jit(max_registers=plan.registers)
    def persistent(p, q, coef, sums, board, iterations):
        slot = cuda.shared.array(2, int64)
        worker, _, _, _ = take_role(board, slot, communicating)
        if worker >= 0:
            sweep(p, q, coef, sums, board, worker, iterations)

    return SimpleNamespace(kernel=persistent, warps=made.of_plane, fresh=made.fresh)

"""The bytes that cross between a running kernel and its proxy.

Everything lives in pinned host memory that the GPU maps (*mapped memory*) and one piece of GPU
memory (*device memory*, never touched by the host while a kernel runs).

    mapped memory    control | communicators | ring | completions | small staging | large staging
    GPU staging      what large staging is, in GPU memory, for messages to ranks that map it (CUDA
                     IPC); and mailboxes, which those ranks write to
    device memory    counters | busy bits | reach | requests | claims | datatypes | layouts

**Packets.** All traffic travels in packets of 16 bytes: an 8-byte low word, a 4-byte high word and
a 4-byte sequence number. A packet is written by one 16-byte store and says itself whether it is
valid, so neither side needs a fence, a flag or a clearing pass, and a packet of zeros is an
ordinary value.
Sequence numbers are odd, freshly zeroed memory is therefore valid for nobody.

**Record** (kernel to proxy): up to 16 packets in the ring slot ``ticket % ring_slots``, numbered
with the ticket. Four header packets (one cache line), then up to 144 bytes of payload, 12 a packet.
Only the packets that a call needs are written and read.

**Completion** (proxy to kernel): up to 16 packets in the slot of the request, numbered with the
ticket of the record that opened the request. Packet 0 says what happened; a receive adds packet 1
(source, tag) and then the payload. Requests of the large class use packets 2..6 for *copy
commands*.

**Copy command**: "move these bytes between the user's buffer and this staging buffer". Waiting
threads execute commands and answer with a CHUNK record.

Versions are compared when a context opens: ranks must agree on ``VERSION`` and on the sizes
(``sizes.py``). What two sides must decide alike is in ``rules.py``; datatypes and layouts in device
memory are described in ``layouts.py``.
"""

from __future__ import annotations

VERSION = 11

# --- packets -----------------------------------------------------------------------------------
PACKET_BYTES = 16
PACKET_PAYLOAD = 12  # bytes of user data in one packet: the low word and the high word
SLOT_PACKETS = 16
SLOT_BYTES = SLOT_PACKETS * PACKET_BYTES  # 256: one attribute record (paper III.B), one completion

# --- record: header packets -----------------------------------------------------------------------
#   packet 0   low  = opcode | flags << 8 | communicator << 16 | call << 25 | datatype << 32
#            high = peer or root
#   packet 1   low  = count (elements, signed)                    high = message tag or reduction,
#                                                                 or 1: MPI_IN_PLACE
#   packet 2   low  = request handle (0: nobody waits)              high = 0, or the peer again
#   packet 3   low  = address of the user's buffer, of the one that is written, high = calling block
#                   where there are two, SCATTERED if it is not in one piece; CHUNK: the command
#                   executed; FAULT: error class; FLAG_SHORT_BUFFER: bytes of the array
HEADER_PACKETS = 4
HANDLE_PACKET = 2
DATATYPE_SHIFT = 32  # in the low word of packet 0
COMMUNICATOR_MASK = 0x1FF
NO_COMMUNICATOR = COMMUNICATOR_MASK  # for a handle that has no room there
# Which of the user's calls it was, where several have the same opcode: only reports look at it.
CALL_SHIFT = 25
CALL_MASK = 0x7F
BLOCKING = 1 << CALL_SHIFT  # GMPI_Send, GMPI_Recv, GMPI_Allreduce and what moves blocks
SENDRECV = 2 << CALL_SHIFT
PARTITIONED = 3 << CALL_SHIFT  # of a wait that is reported
NONBLOCKING = 4 << CALL_SHIFT  # GMPI_Ibcast, GMPI_Ibarrier, GMPI_Iprobe
READY = 5 << CALL_SHIFT  # GMPI_Irsend
READY_BLOCKING = 6 << CALL_SHIFT  # GMPI_Rsend
REPLACE = 7 << CALL_SHIFT  # GMPI_Sendrecv_replace
PERSISTENT = 12 << CALL_SHIFT  # of a Start of GMPI_Send_init and the like; NONBLOCKING is in it
READY_PERSISTENT = 13 << CALL_SHIFT  # GMPI_Rsend_init
COMBINED = 8 << CALL_SHIFT  # GMPI_Isendrecv
COMBINED_REPLACE = 9 << CALL_SHIFT  # GMPI_Isendrecv_replace
MATCHED, MATCHED_TOO = 10 << CALL_SHIFT, 11 << CALL_SHIFT  # GMPI_Mprobe, Imrecv; Improbe, Mrecv
SYNCHRONOUS = 16 << CALL_SHIFT  # GMPI_Issend; of what follows, too, short messages are MPI_Issend's
SYNCHRONOUS_BLOCKING = 17 << CALL_SHIFT  # GMPI_Ssend
SYNCHRONOUS_PERSISTENT = 18 << CALL_SHIFT  # GMPI_Ssend_init
# Of a wait for a piece of a long direct collective, which stands in place of the peer
# (gmpi/contract/pipelines.py).
PIECE = 32 << CALL_SHIFT
# In a predefined datatype: its size is not that of the array's elements, whose size stands in its
# place; the rest is the number of the datatype.
DATATYPE_UNFIT = 0x80
INLINE_BYTES = (SLOT_PACKETS - HEADER_PACKETS) * PACKET_PAYLOAD  # 144

# The first element of a record names the operation (paper III.B).
OP_NULL = 1  # counted, nothing else happens: a claimed ticket that was not needed
OP_PING = 2  # completes at once; count = host clock in ns. Measures the path
OP_ISEND = 3
OP_IRECV = 4
OP_ALLREDUCE = 5
OP_BCAST = 6
OP_BARRIER = 7
OP_SYNCHRONIZE = 8  # completes once every request opened before it has completed
OP_CHUNK = 9  # a command has been executed
OP_FAULT = 10  # the kernel itself refused a call: flags = its opcode, count = value; packet 3
OP_WAIT = 11  # only named in faults; there with the number of a call from 1 on, if it is one of
# these, whose arrays have no room for as many as it says:
LISTED = (
    "Waitall", "Waitany", "Testall", "Testany", "Testsome", "Waitsome", "Startall", "Pready_list",
)  # fmt: skip
OP_SEND_CHANNEL = 12  # where messages to a peer with a tag go: packet 1 of the completion says it
OP_RECEIVE_CHANNEL = 13  # and where those from it come
# A wait on the direct road that takes long, and its end: for reports and time-outs. Their handle is
# the request's, flags are its opcode, and packet 3 has its bytes.
OP_WAITS = 14
OP_WAITED = 15
OP_START = 16  # these are only named in faults
OP_PREADY = 17
OP_PARRIVED = 18
OP_GRID = 19  # of a wait that is reported: blocks of a grid have not come (gmpi/contract/grid.py)
# A kernel makes an end of a partitioned request; their payload is ``Wanted`` of partitions.py. And
# frees one, whose handle is the count.
OP_PSEND_INIT = 20
OP_PRECV_INIT = 21
OP_REQUEST_FREE = 22
OP_BSEND = 23  # complete when its bytes are in memory of the proxy's own; never packed by the call
OP_ABORT = 24  # MPI_Abort; the error code is the count
OP_CANCEL = 25  # of a receive, whose handle is the count
OP_PROBE = 26
# In debug mode: a request of the direct road is about to open, and to end. They open no request.
# Count and packet 3 are address and bytes of its buffer; the handle is its slot << 32, its opcode
# << WATCHED_OP_SHIFT, and the even sequence number with which packet 0 of the slot's completion
# answers: an error class, or 0. With the opcode OP_REQUEST_FREE nobody waits for an answer: nothing
# more is looked at.
OP_OPENS = 27
OP_ENDS = 28
WATCHED_OP_SHIFT = 48
LAST_PLAIN = OP_ENDS
# Collectives that move blocks (gmpi/contract/moves.py); of the first ones, to or from a root.
OP_REDUCE = 32
OP_GATHER = 33
OP_SCATTER = 34
OP_ALLGATHER = 35
OP_ALLTOALL = 36
OP_REDUCE_SCATTER_BLOCK = 37
OP_SCAN = 38
OP_EXSCAN = 39
FIRST_MOVING = OP_REDUCE
LAST_ROOTED = OP_SCATTER
LAST_MOVING = OP_EXSCAN
# Those whose blocks have counts of their own: a table in small staging says them
# (gmpi/contract/counts.py).
OP_GATHERV = 48
OP_SCATTERV = 49
OP_ALLGATHERV = 50
OP_ALLTOALLV = 51
OP_ALLTOALLW = 52
OP_REDUCE_SCATTER = 53
OP_NEIGHBOR_ALLGATHER = 54
OP_NEIGHBOR_ALLGATHERV = 55
OP_NEIGHBOR_ALLTOALL = 56
OP_NEIGHBOR_ALLTOALLV = 57
OP_NEIGHBOR_ALLTOALLW = 58
FIRST_COUNTED = OP_GATHERV
LAST_COUNTED = OP_NEIGHBOR_ALLTOALLW
LAST_OPCODE = LAST_COUNTED
OP_WINDOW = 64  # only named in faults: one-sided calls (gmpi/contract/windows.py)

# What the kernel saw of the buffer. The proxy refuses a record with a flaw, naming it.
FLAG_INLINE = 1  # what goes out is in this record
FLAG_NULL_BUFFER = 2
FLAG_SHORT_BUFFER = 4  # count elements do not fit the array that was passed
FLAG_STRIDED_BUFFER = 8  # the array is not contiguous
FLAG_PRIVATE_BUFFER = 16  # memory that not every thread that moves the data can address
FLAG_OUT = 32  # bytes go out: the payload is in the record or in staging
FLAG_BACK = 64  # bytes come back
FLAG_OVERLAP = 128  # a receive would write some bytes more than once
FLAWS = (
    FLAG_NULL_BUFFER | FLAG_SHORT_BUFFER | FLAG_STRIDED_BUFFER | FLAG_PRIVATE_BUFFER | FLAG_OVERLAP
)

# --- completion packets ---------------------------------------------------------------------------
#   packet 0    low = payload bytes | error class << 48 | kind << 56    high = count (elements)
#   packet 1    low = source (32 bits) | message tag << 32              high = commands of it
#   packet 2..  payload (small class, posted with at most INLINE_BYTES); large class: one copy
#             command for each staging buffer of the slot
#             low = position in the message, bytes | direction << 63  high = length, bytes
#   packet 6    large class: low = address (GPU) of the chunk buffers that commands are about
#                          high = what their ready word will be, 0: they have none
#                    or MAILED_MARK and which mailbox they are in
STATUS_PACKETS = 2
KIND_DONE = 1
BYTES_MASK = (1 << 48) - 1
ERROR_SHIFT = 48
KIND_SHIFT = 56

# --- large class --------------------------------------------------------------------------------
# A message above ``eager_bytes`` uses a large slot, whose chunk buffers pipeline packing, MPI and
# unpacking: chunk k goes through buffer ``k % LARGE_BUFFERS``. Chunk 0 is packed before the record
# of the call is published, chunks 1..3 right after it, each announced by a CHUNK record; the rest
# is asked for.
# In GPU staging chunk 0 is packed after the record, while the message is on its way: when it is
# there, the record's sequence number is stored in the slot's *ready word*, behind its buffers, and
# that is where the receiver's threads look.
# Up to MAILBOX_BYTES need no buffer of the sender: its threads store them as packets straight into
# a *mailbox* in the receiver's GPU memory, one for each large slot of each rank of the node.
# Where no large slot is free, a request takes a *narrow* one, of the same class without buffers, so
# that it waits for nothing that another request holds. A receive reads the sender's buffers, or the
# mailbox, as ever. What else comes or goes, the proxy keeps in memory of the message's own,
# and asks for it to be moved in pieces of ``eager_bytes``, through the slot's small staging.
LARGE_BUFFERS = 4
READY_BYTES = 128  # the line of the ready word
BASE_PACKET = STATUS_PACKETS + LARGE_BUFFERS
LARGE_PACKETS = BASE_PACKET + 1
MAILBOX_BYTES = 65536
# Of a group: 48 bytes of the message, three words of 16 bytes. All packets of the last group are
# written.
MAILBOX_PACKETS = 4
# Of a block: their first packets lie together, then their second ones, and so on. So do, in the
# message, their first words, then their second and third ones. The last block may have fewer.
MAILBOX_GROUPS = 32
_BLOCK_PAYLOAD = MAILBOX_GROUPS * MAILBOX_PACKETS * PACKET_PAYLOAD
MAILBOX_STRIDE = (
    -(-MAILBOX_BYTES // _BLOCK_PAYLOAD) * MAILBOX_GROUPS * MAILBOX_PACKETS * PACKET_BYTES
)
MAILBOX_RANKS = 16  # of one node; with more there are no mailboxes
MAILED_MARK = 1 << 62  # in packet 6: | ticket << 29 | groups << 16 | mailbox
MAILED_TICKET_SHIFT = 29
MAILED_GROUPS_SHIFT = 16
PACK = 0  # user buffer to staging
UNPACK = 1  # staging to user buffer
DIRECTION_SHIFT = 63
POSITION_MASK = (1 << 38) - 1  # 256 GiB: the longest message
IN_SMALL = 0  # in packet 6: commands are about the slot's small staging, whatever their buffer
POSITION_STEP = 128  # positions are multiples of this, so that a command number fits 32 bits
CHUNK_POSITION_SHIFT = 8  # in a CHUNK record: position << 8 | direction << 7 | buffer
CHUNK_DIRECTION_SHIFT = 7

# --- messages between proxies -------------------------------------------------------------------
# Every point-to-point message starts with this header, so that the receiver knows the true length
# (truncation is ours to report, exactly) and how the rest comes.
#   word 0   payload bytes of the whole message
#   word 1   chunk bytes | transfer number << 32   (0: the payload is in this message)
#   word 2   where the chunks are: NOT_SHARED, they follow as messages; else the sender's large
#            slot, whose buffers the receiver reads: the first is full, a notice follows for each
#            other one
#   word 3   NOT_SHARED: 0; else P2P, those buffers are in the sender's GPU staging, | what their
#            ready word will be << 32; or P2P | MAILED | sequence number of the packets << 32: the
#            message is in the receiver's mailbox for that slot
# A message that could not be sent is followed by a header that takes its place: word 2 is ABANDONED
# and word 1 the error class.
MESSAGE_HEADER = 32
NOT_SHARED = -1
ABANDONED = -2
NO_HEADER = -3  # in word 2 of memory that a header is to come to
P2P = 1
MAILED = 2
# On the chunk communicator, for transfer number n: tag 2n from the sender (chunk k, or the notice
# that it is packed, in order of k), tag 2n + 1 back (its buffer has been read; where chunks are
# messages, one receipt: receives for all of them are posted). Chunks are never empty, all else is.
# Whose request has failed sends *last words* in place of its next messages, LAST_WORDS of them or
# as many as are left: the error class | how many of its messages there are with these << 8, in
# LAST_WORD bytes; in twice as many where a chunk would be as long.
LAST_WORD = 8
LAST_WORDS = LARGE_BUFFERS  # as many receives as may be posted for them
TRANSFER_TAG_UB = (1 << 15) - 1  # MPI_TAG_UB must be at least this (MPI 4.1 section 9.1.2)
STAGING_LEAD = 64  # payload starts here in a small staging buffer; the header sits just before

# --- mapped memory: where the regions begin (bytes) -----------------------------------------------
# The ring and what precedes it have fixed places; completions follow the ring, then small staging,
# then large staging.
# Two packets that every wait looks at now and then, in one read. Who waits executes the commands
# of its own requests and of its own block at once, those of others when they have waited for long.
CONTROL_DOORBELL = 0  # 8 bytes, bit i: large slot i has a command that nobody has come for
CONTROL_ABORT = 8  # 8 bytes, non-zero: error class with which every wait ends
CONTROL_COMMANDS = 16  # 8 bytes, bit i: large slot i has a command that nobody has executed
CONTROL_BLOCKS = 24  # 8 bytes, bit i: such a slot was opened by a block whose number ends in i
BLOCK_BITS = 31  # of a block's number that CONTROL_BLOCKS tells apart
NARROW_SHIFT = 32  # of CONTROL_BLOCKS: the same of narrow slots. All bits: they are for everybody
CONTROL_CONSUMED = 64  # 8 bytes, records taken from the ring; its own cache line
CONTROL_RESOURCE_NS = 128  # 8 bytes, how long a call waits for a free request slot
CONTROL_FREED = 136  # 8 bytes, not zero: a kernel has freed a request that was open
CONTROL_NARROW = 192  # a bit for each narrow slot: it has a command that nobody has executed
MAPPED_COMMUNICATORS = 4096
COMMUNICATORS = 256
# Ours, of all ranks of the context, on which partitioned requests travel by the proxies. No call
# can name it. It has the ranks of communicator 0, whose row in device memory its low bits name.
PRIVATE_COMMUNICATOR = COMMUNICATORS
COMMUNICATOR_BYTES = 8  # rank (int32), size (int32)
MAPPED_RING = 8192

# --- device memory (byte offsets) ----------------------------------------------------------------
# Each counter has its own 128-byte line: they are hot and used by different warps.
DEVICE_TICKET = 0
DEVICE_CONSUMED = 128  # last known CONTROL_CONSUMED
DEVICE_REFRESH = 256  # 1 while one warp reads CONTROL_CONSUMED for all
DEVICE_ABORT = 264  # copy of CONTROL_ABORT for warps that wait for room
DEVICE_WAITS = 272  # looks at host memory in long waits, see device_lib/proxied/pacing.py
DEVICE_PROXIED = 280  # rows of the table of channels that say: the proxied road
DEVICE_STAGED = 288  # bits of staging buffers in direct memory that are taken
DEVICE_DIRECT_OPEN = 296  # how many requests of the direct road are open
DEVICE_LATE = 304  # partitions that are ready and not stored; each counts as an open request
DEVICE_PARTITIONED_COUNT = 312  # rows of partitioned requests that may be in use
DEVICE_PERSISTENT_COUNT = 320  # persistent requests made so far
DEVICE_FREED = 328  # how many requests were freed and are not closed yet
DEVICE_LOOKED = 336  # when a wait of the direct road last looked at host memory for all of them, ns
DEVICE_PENDING = 344  # collectives that do not block and are not complete; as DEVICE_LATE
# A line that is read through L1: nothing that changes lies in it.
DEVICE_LARGE = 448  # address (GPU) of large staging; constant
DEVICE_STAGING = 456  # address of GPU staging; constant, 0: there is none
DEVICE_MAILBOXES = 464  # address of our mailboxes; constant, 0: there are none
# Address of direct memory (gmpi/contract/channels.py); constant, 0: there is none.
DEVICE_DIRECT = 472
DEVICE_CHANNELS = 480  # address of the table of channels; constant
DEVICE_CHANNELS_MASK = 488  # its rows less 1; constant
DEVICE_WATCHED = 496  # not 0: debug mode looks at requests of the direct road; constant
DEVICE_BUSY = 512  # words of busy bits, each on its own line
BUSY_STRIDE = 128
BUSY_BITS = 32  # requests per word
# In the other half of those lines: cycles after which a block's calls look for their answers, the
# null request's and the send's (0: not known). Guesses: nobody minds if one is lost.
DEVICE_POLL_DELAYS = DEVICE_BUSY + 64
BUSY_DIRECT = 4  # in a line of busy bits: which of its requests are of the direct road, and open
BUSY_FREED = 8  # and BUSY_FREED_STEP behind: of 16 requests each, see device_lib/api/freeing.py
BUSY_FREED_STEP = 16
BUSY_SUMMARY = 16  # in each 32nd of these lines: which of the 32 may have such a request
POLL_DELAYS = 128
MAX_REQUEST_SLOTS = 32768
MAX_EAGER_BYTES = 1 << 20
MAX_LARGE_SLOTS = 64
MAX_NARROW_SLOTS = 512
NARROW_WORDS = MAX_NARROW_SLOTS // 64  # of CONTROL_NARROW
# For each communicator, which of its ranks read our GPU staging: the first rank and a step, since
# ranks that are placed on nodes in turn have those of their own node at equal distances; a bit for
# the first rank and for each of the 63 that follow it in steps; then, for each of the 64, where our
# mailboxes on it are (0: it has none). The host writes it when the communicator is registered.
MAX_SLOTS = MAX_REQUEST_SLOTS + MAX_LARGE_SLOTS + MAX_NARROW_SLOTS
DEVICE_P2P = DEVICE_BUSY + MAX_SLOTS // BUSY_BITS * BUSY_STRIDE
P2P_RANKS = 64
P2P_FIRST = 0  # first rank | step << 32
P2P_MAGIC = 8  # divides by the step: ``magic_of`` of device_lib/platform/divide.py
P2P_BITS = 16
P2P_DIRECT = 24  # 1: messages on it may take the direct road, COLLECTIVES_DIRECT: collectives too
COLLECTIVES_DIRECT = 2
NEIGHBOURS_DIRECT = 4  # and those among neighbours
P2P_MAILBOXES = 32
P2P_BYTES = P2P_MAILBOXES + 8 * P2P_RANKS
# Rows of partitioned requests (gmpi/contract/partitions.py).
DEVICE_PARTITIONED = DEVICE_P2P + COMMUNICATORS * P2P_BYTES
PARTITIONED_ROWS = 1024
PARTITIONED_ROW_BYTES = 256
# A row for each communicator whose collectives are direct (gmpi/contract/collectives.py).
DEVICE_COLLECTIVES = DEVICE_PARTITIONED + PARTITIONED_ROWS * PARTITIONED_ROW_BYTES
COLLECTIVE_ROW_BYTES = 512
# What the blocks of a grid tell each other in a call of grid scope (gmpi/contract/grid.py).
DEVICE_GRID = DEVICE_COLLECTIVES + COMMUNICATORS * COLLECTIVE_ROW_BYTES
GRID_BYTES = 512
# A row for each communicator (gmpi/contract/topology.py).
DEVICE_TOPOLOGY = DEVICE_GRID + GRID_BYTES
TOPOLOGY_BYTES = 128
# A row for each window (gmpi/contract/windows.py).
DEVICE_WINDOWS = DEVICE_TOPOLOGY + COMMUNICATORS * TOPOLOGY_BYTES
WINDOW_ROWS = 64
WINDOW_ROW_BYTES = 768
# Rows of persistent requests (gmpi/contract/persistent.py).
DEVICE_PERSISTENT = DEVICE_WINDOWS + WINDOW_ROWS * WINDOW_ROW_BYTES
PERSISTENT_ROWS = 512
PERSISTENT_ROW_BYTES = 400
# For each small slot, which request of the direct road a helper has seen there, and since when.
DEVICE_SEEN = DEVICE_PERSISTENT + PERSISTENT_ROWS * PERSISTENT_ROW_BYTES
SEEN_BYTES = 16
DEVICE_ROWS = DEVICE_SEEN + MAX_REQUEST_SLOTS * SEEN_BYTES
REQUEST_BYTES = 64  # one row a slot
REQUEST_OWNER = 0  # handle of the open request; of the last one, claimed, when free
REQUEST_RECV = 8  # address that is unpacked to
REQUEST_SEND = 16  # address that is packed from (large requests)
REQUEST_BLOCK = 32  # number of the block that opened it (large requests)
REQUEST_FINISHED = 24  # UNPACK commands of the open request that have been executed (large ones)
CLAIM_BYTES = 8 * LARGE_BUFFERS
# In REQUEST_RECV and REQUEST_SEND: the bytes do not lie in one piece; where they do is in the
# slot's layout of that direction, and the rest of the field is 0.
SCATTERED = 1 << 62

# --- request handle ------------------------------------------------------------------------------
#   sequence number (32) | slot (16) << 32 | packets to poll (4) << 48 | class (1) << 52
#   | context (6) << 53
HANDLE_SLOT_SHIFT = 32
HANDLE_SLOT_MASK = 0xFFFF
HANDLE_PACKETS_SHIFT = 48
HANDLE_PACKETS_MASK = 0xF
HANDLE_SMALL_SHIFT = 48  # of a handle of the direct road: how long a receive is at most
HANDLE_FREED_SHIFT = 49  # likewise: GMPI_Request_free was called, no wait takes it any more
HANDLE_SENDS_SHIFT = 50  # likewise: a send
HANDLE_MEDIUM_SHIFT = 51  # as HANDLE_SMALL_SHIFT
HANDLE_LARGE_SHIFT = 52
HANDLE_CONTEXT_SHIFT = 53
HANDLE_CONTEXT_MASK = 0x3F
HANDLE_ERROR_SHIFT = 60  # set: no request was opened, the low byte is the error class
HANDLE_DIRECT_SHIFT = 61  # set: of the direct road
# Set: a partitioned request; with HANDLE_DIRECT_SHIFT, a persistent one.
HANDLE_PARTITIONED_SHIFT = 62
LOW_32 = 0xFFFFFFFF
REQUEST_NULL = 0


def payload_packets(nbytes: int) -> int:
    """Packets that ``nbytes`` (below 32768) of payload take: divides by 12 without a division."""
    return (nbytes + PACKET_PAYLOAD - 1) * 43691 >> 19

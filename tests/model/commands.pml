/* Model of the copy commands: how waiting threads, of any block, move the chunks of long messages.
 *
 * What it is a model of: device_lib/proxied/commands.py, completion.py, closing.py, closing_all.py,
 * opening.py, opening_long.py, outgoing.py (the blocks), host_proxy/compiled/receiving.py,
 * sending.py, host_proxy/records/completion.py (the proxy), and what GPU memory promises between two
 * fences.
 *
 * What is explored: every interleaving of BLOCKS blocks and one proxy, where each block opens ROUNDS
 * requests, one after the other, over SLOTS large slots, of CHUNKS chunks each in BUFFERS buffers,
 * and closes them by Wait, Test in a loop, Waitall, or by a Wait after it has computed until others
 * have moved the message; the last HELPERS blocks only help, for ever.
 *   RECEIVE  all blocks receive; chunks come from elsewhere, as MPI completes them
 *   TURNS    a send to elsewhere, then a receive, in turns (SEND: only sends)
 *   SHARED   block 1 sends to block 0, which reads the buffers of the sender's slot; the message is
 *            packed after its record, or before (open_long, open_any), and has a ready word
 * and of their parts:
 *   - orders are at once those of who waits for the request, and of its block, and those of all from
 *     any later moment on: when the proxy's patience is over;
 *   - who waits, and who helps, reads status, orders and where the buffers are one after the other,
 *     in either order; the proxy writes a unit in two stores, low word first, then that of its tag;
 *   - MPI may write a buffer from when its receive is posted until it completes, and read one from
 *     when its send is posted; packing and unpacking take time, too;
 *   - with DELAYS: each store of a block reaches memory at any time before its next fence, in any
 *     order but that of stores to one address; and what a block has read or written of a user's
 *     buffer it reads from its L1 until its next fence.
 *
 * What is checked: a block whose wait is over finds its message in its buffer, all of it; what MPI
 * sends, and what is unpacked, is the chunk that it should be, from begin to end; each order is
 * carried out once; no record names a request that is not open, or opens one that is; at the end
 * all slots are free; nobody is ever stuck (invalid end state).
 *
 * With FAILS, a receive may end with an error as soon as none of its orders is open.
 *
 * Left out: the ring itself (ring.pml), messages that are longer than their receive, other errors,
 * collectives, scattered buffers; a Waitall waits for one request.
 *
 * Each mutation (tests/test_model_commands.py) takes something away; the model must then fail. They
 * are numbers, chosen by the environment when the search begins, so that a model is compiled once.
 */

#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef HELPERS
#define HELPERS 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef CHUNKS
#define CHUNKS 3
#endif
#ifndef BUFFERS
#define BUFFERS 2
#endif
#ifndef RECEIVED
#define RECEIVED CHUNKS /* chunks of a message received, where it is not one sent here */
#endif
#ifndef WAYS
#define WAYS 7 /* ways to wait: 1 Wait, 2 Test, 4 Waitall, 8 Wait when all is done */
#endif

/* --- mutations --------------------------------------------------------------------------------- */

#define CLAIM_WITHOUT_SWAP 1
#define NO_OWNER_CHECK 2
#define NO_BASE_TAG 3
#define UNIT_TAG_FIRST 4
#define UNIT_NOT_CLEARED 5
#define COUNTED_BEFORE_COPY 6
#define COUNTED_AFTER_ANSWER 7
#define DONE_WITHOUT_COUNT 8
#define COUNT_NOT_RESET 9
#define ANSWERED_BEFORE_COPY 10
#define FREED_BEFORE_ANSWER 11
#define LAST_OF_MANY 12
#define NO_READY_WORD 13
#define READY_BEFORE_COPY 14
#define BUFFER_FREE_TOO_SOON 15
#define WAITALL_HELPS_NOBODY 16
#define TICKET_LONG_BEFORE_SLOT 17
#define NO_RELEASE_BEFORE_ROW 18
#define NO_RELEASE_OF_CHUNK 19
#define NO_RELEASE_BEFORE_READY 20
#define NO_ACQUIRE_OF_ORDER 21
#define NO_ACQUIRE_AT_END 22
#define SEND_ADDRESS_AFTER_RELEASE 23
#define COUNTED_BEFORE_TICKET 24
#define NEVER_OVERDUE 25

#define IF(name) (mutation == name)

/* --- what is shared ---------------------------------------------------------------------------- */

#define RECORDS 8 /* of the ring; more than are ever on their way */
#define NONE 255

#define STATUS 0 /* completion units: as in gmpi/contract/wire.py, with two buffers */
#define COUNT 1
#define ORDER 2
#define BASE 4
#define UNITS 5
#define U(slot, unit) ((slot) * UNITS + (unit))
#define B(slot, chunk) ((slot) * BUFFERS + (chunk) % BUFFERS)

/* A byte of a message: whose it is, and where in it. One for each chunk. */
#define BYTE(id, chunk) ((id) * 4 + (chunk))
#define TORN 254 /* a buffer that is being written */

/* device memory */
byte ticket_counter;
bit busy[SLOTS];
byte owner[SLOTS]; /* tag of the request that is, or was last, open */
bit claimed[SLOTS];
byte recv_address[SLOTS]; /* whose buffer */
byte send_address[SLOTS];
byte finished[SLOTS];
byte claim[SLOTS * BUFFERS]; /* tag * 4 + number */
byte user[BLOCKS * CHUNKS];

/* mapped memory, and staging */
byte low[SLOTS * UNITS];
byte high[SLOTS * UNITS];
byte tag[SLOTS * UNITS];
bit ordered[SLOTS]; /* it has orders, and whose block they are */
byte opener[SLOTS];
bit attention[SLOTS]; /* it has orders that nobody has come for */
byte staging[SLOTS * BUFFERS];
byte ready[SLOTS];

/* the ring: what record "ticket % RECORDS" says */
#define OP_NULL 1
#define OP_IRECV 2
#define OP_ISEND 3
#define OP_CHUNK 4
byte op[RECORDS]; /* 0: not there yet */
byte record_slot[RECORDS];
byte record_tag[RECORDS];
byte record_what[RECORDS]; /* which message, which chunk */
bit record_near[RECORDS];
byte record_block[RECORDS];

#define NUMBER(chunk) ((chunk) + 1)
#define CLAIM(expected, chunk) ((expected) * 4 + NUMBER(chunk))
#define IS_OPEN(seen, expected, chunk) \
    ((seen) / 4 != (expected) || (seen) % 4 < NUMBER(chunk))
#define HAS_ORDER(slot, expected, i) \
    (tag[U(slot, ORDER + i)] == (expected) && tag[U(slot, BASE)] == (expected) && \
        IS_OPEN(claim[B(slot, i)], expected, low[U(slot, ORDER + i)]))

byte ended; /* blocks that have done what they had to */

#include "commands_memory.pml"
#include "commands_proxy.pml"
#include "commands_block.pml"

byte mutation; /* of the environment; each process has its own copy, which nobody shares */

init {
    byte b;
    atomic {
        c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
        for (b : 0 .. SLOTS - 1) { recv_address[b] = BLOCKS - 1; send_address[b] = BLOCKS - 1 }
        run Proxy(mutation);
#ifdef DELAYS
        for (b : 0 .. BLOCKS * POSITIONS - 1) { l1[b] = NONE }
        for (b : 0 .. BLOCKS - 1) { run Memory(b) }
#endif
        for (b : 0 .. BLOCKS - 1) { run Block(b, mutation) }
        b = 0
    }
}

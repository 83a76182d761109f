/* Model of the orders: how waiting threads, of any block, move the chunks of long messages.
 *
 * What it is a model of: device_lib/orders.py, completion.py, closing.py, closing_all.py,
 * opening.py, opening_long.py (the blocks), host_proxy/receiving.py, sending.py, completion.py,
 * point_to_point.py (the proxy), and what GPU memory promises between two fences.
 *
 * What is explored: every interleaving of BLOCKS blocks and one proxy, where a block opens ROUNDS
 * requests, one after the other, over SLOTS large slots, of CHUNKS chunks each in two buffers, and
 * closes them by Wait, Test in a loop, or Waitall; the last HELPERS blocks only help, for ever.
 *   RECEIVE  all blocks receive; chunks come from elsewhere, as MPI completes them
 *   SEND     all blocks send to elsewhere
 *   TURNS    a send, then a receive, in turns
 *   SHARED   block 1 sends to block 0, whose helpers read the buffers of the sender's slot
 * and of their parts:
 *   - 16-byte units are read one by one, in either order, by who waits and by who helps; the
 *     proxy writes a unit in two stores, low word first, then the word with its tag;
 *   - MPI may write a buffer from when its receive is posted until it completes, and read one from
 *     when its send is posted; packing and unpacking take time, too;
 *   - with DELAYS: each store of a block reaches memory at any time before its next fence, in any
 *     order but that of stores to one address, and a block that has seen a byte of the user's
 *     buffer sees that in its L1 until its next fence.
 *
 * What is checked: a block whose wait is over finds its message in its buffer, all of it; what MPI
 * sends, and what is unpacked, is the chunk that it should be, from begin to end; each order is
 * carried out once; no record names a request that is not open, or opens one that is; at the end
 * all slots are free; nobody is ever stuck (invalid end state).
 *
 * Left out: the ring itself (ring.pml), messages that are longer than their receive, errors,
 * collectives, scattered buffers. Taken for granted: the two atomics that take a ticket and try a
 * slot (slots.begin_open), under way together, are not so far apart that meanwhile another block
 * takes a ticket, publishes its last chunk and frees that slot (mutation TICKET_LONG_BEFORE_SLOT).
 *
 * Each mutation (tests/test_model_orders.py) takes something away; the model must then fail. They
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
#ifndef WAYS
#define WAYS 7 /* ways to wait: 1 Wait, 2 Test, 4 Waitall */
#endif

/* --- mutations ------------------------------------------------------------------------------- */

#define CLAIM_WITHOUT_SWAP 1
#define NO_OWNER_CHECK 2
#define NO_BASE_TAG 3
#define UNIT_TAG_FIRST 4
#define UNIT_NOT_CLEARED 5
#define COUNTED_BEFORE_COPY 6
#define PACKED_IS_COUNTED 7
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

#define IF(name) (mutation == name)

/* --- what is shared ---------------------------------------------------------------------------- */

#define BUFFERS 2
#define RECORDS 8 /* of the ring; more than are ever on their way */
#define NONE 255

#define STATUS 0 /* completion units: as in gmpi/wire.py, with two buffers */
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
bit attention[SLOTS];
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

#define NUMBER(chunk) ((chunk) + 1)
#define CLAIM(expected, chunk) ((expected) * 4 + NUMBER(chunk))
#define IS_OPEN(seen, expected, chunk) \
    ((seen) / 4 != (expected) || (seen) % 4 < NUMBER(chunk))
#define HAS_ORDER(slot, expected, i) \
    (tag[U(slot, ORDER + i)] == (expected) && tag[U(slot, BASE)] == (expected) && \
        IS_OPEN(claim[B(slot, i)], expected, low[U(slot, ORDER + i)]))

byte ended; /* blocks that have done what they had to */

/* --- stores on their way, and L1 --------------------------------------------------------------- */

inline write_own(id_or_0) { /* the owner's own bytes: what it sends, or zeros */
    for (k : 0 .. CHUNKS - 1) {
        user[me * CHUNKS + k] = (id_or_0 -> BYTE(id_or_0, k) : 0)
    }
    k = 0
}

#ifdef DELAYS

#define FLYING_OWN 1
#define FLYING_DATA 2    /* a chunk unpacked */
#define FLYING_STAGING 4 /* a chunk packed */
#define FLYING_SEND 8    /* fields of a row */
#define FLYING_FINISHED 16
#define FLYING_OWNER 32
byte flying[BLOCKS];
byte own_id[BLOCKS];
byte data_at[BLOCKS];
byte data_byte[BLOCKS];
byte staging_at[BLOCKS];
byte staging_byte[BLOCKS];
byte row_slot[BLOCKS];
byte row_tag[BLOCKS];
#define POSITIONS (BLOCKS * CHUNKS)
byte l1[BLOCKS * POSITIONS]; /* NONE: not there */

#define LANDED(what) ((flying[me] & (what)) == 0)
#define LANDS(what) flying[me] & (what) -> flying[me] = flying[me] & ~(what)

proctype Memory(byte me) {
    byte k;
end:
    do
    :: atomic { LANDS(FLYING_OWN); write_own(own_id[me]); own_id[me] = 0 }
    :: atomic { LANDS(FLYING_DATA);
           user[data_at[me]] = data_byte[me]; data_at[me] = 0; data_byte[me] = 0 }
    :: atomic { LANDS(FLYING_STAGING);
           staging[staging_at[me]] = staging_byte[me]; staging_at[me] = 0; staging_byte[me] = 0 }
    :: atomic { LANDS(FLYING_SEND); send_address[row_slot[me]] = me }
    :: atomic { LANDS(FLYING_FINISHED); finished[row_slot[me]] = 0 }
    :: atomic { LANDS(FLYING_OWNER); recv_address[row_slot[me]] = me;
           owner[row_slot[me]] = row_tag[me]; claimed[row_slot[me]] = 0 }
    od
}

inline store_own(id_or_0) {
    atomic { LANDED(FLYING_OWN | FLYING_DATA); /* stores to one address stay in order */
        flying[me] = flying[me] | FLYING_OWN; own_id[me] = id_or_0;
        for (k : 0 .. CHUNKS - 1) {
            l1[me * POSITIONS + me * CHUNKS + k] = (id_or_0 -> BYTE(id_or_0, k) : 0)
        }
        k = 0 }
}
inline store_data(p, value) {
    LANDED(FLYING_DATA) -> flying[me] = flying[me] | FLYING_DATA;
    data_at[me] = p; data_byte[me] = value; l1[me * POSITIONS + p] = value
}
inline store_staging(p, value) {
    LANDED(FLYING_STAGING) -> flying[me] = flying[me] | FLYING_STAGING;
    staging_at[me] = p; staging_byte[me] = value
}
inline load_user(p) {
    if :: l1[me * POSITIONS + p] == NONE -> l1[me * POSITIONS + p] = user[p] :: else fi;
    at = l1[me * POSITIONS + p]
}
inline open_orders() {
    atomic { LANDED(FLYING_SEND | FLYING_FINISHED | FLYING_OWNER);
        row_slot[me] = slot; row_tag[me] = handle;
        flying[me] = flying[me] | FLYING_SEND | (IF(COUNT_NOT_RESET) -> 0 : FLYING_FINISHED) }
}
inline open_row() {
    atomic { row_slot[me] = slot; row_tag[me] = handle; flying[me] = flying[me] | FLYING_OWNER }
}
inline fence() {
    atomic { flying[me] == 0 ->
        for (k : 0 .. POSITIONS - 1) { l1[me * POSITIONS + k] = NONE }
        k = 0; row_slot[me] = 0; row_tag[me] = 0 }
}
#define OWNER_LANDED LANDED(FLYING_OWNER)

#else

inline store_own(id_or_0) { d_step { write_own(id_or_0) } }
inline store_data(p, value) { user[p] = value }
inline store_staging(p, value) { staging[p] = value }
inline load_user(p) { at = user[p] }
inline open_orders() {
    atomic { send_address[slot] = me; if :: IF(COUNT_NOT_RESET) :: else -> finished[slot] = 0 fi }
}
inline open_row() { atomic { recv_address[slot] = me; owner[slot] = handle; claimed[slot] = 0 } }
inline fence() { skip }
#define OWNER_LANDED true

#endif

/* --- the proxy ----------------------------------------------------------------------------------- */

byte p_op[SLOTS]; /* 0: nothing open */
byte p_tag[SLOTS];
byte carried[SLOTS]; /* for the checks: chunks whose order has been claimed */

#define BIT(chunk) (1 << (chunk) % BUFFERS)

inline write_unit(unit, l, h) {
    if
    :: IF(UNIT_TAG_FIRST) ->
        atomic { high[U(s, unit)] = h; tag[U(s, unit)] = p_tag[s] };
        low[U(s, unit)] = l
    :: else ->
        low[U(s, unit)] = l;
        atomic { high[U(s, unit)] = h; tag[U(s, unit)] = p_tag[s] }
    fi
}

inline order(n) {
    if
    :: IF(UNIT_NOT_CLEARED)
    :: else -> atomic { high[U(s, ORDER + (n) % BUFFERS)] = 0; tag[U(s, ORDER + (n) % BUFFERS)] = 0 }
    fi;
    write_unit(ORDER + (n) % BUFFERS, n, n);
    atomic { p_orders[s]++; attention[s] = 1 }
}

inline tell(orders) {
    p_told[s] = 1;
    write_unit(COUNT, p_id[s], orders);
    write_unit(STATUS, p_id[s], 0)
}

inline close() {
    d_step { assert(p_op[s] && p_told[s] && !p_flight[s] && !p_orders[s]);
        p_op[s] = 0; p_tag[s] = 0; p_id[s] = 0; p_begun[s] = 0; p_next[s] = 0; p_come[s] = 0;
        p_done[s] = 0; p_free[s] = 0; p_told[s] = 0; carried[s] = 0 }
}

#ifdef SHARED
/* The sender's proxy tells the receiver's, and back; here they are one. */
chan headers = [2] of { byte, byte, byte }; /* message, slot, ready word */
chan notices = [4] of { byte };
chan returns = [4] of { byte };
#endif

inline receive_chunks() {
    d_step {
        do
        :: p_next[s] < CHUNKS && p_free[s] & BIT(p_next[s]) ->
            p_free[s] = p_free[s] & ~BIT(p_next[s]);
            p_flight[s] = p_flight[s] | 1 << p_next[s];
#ifndef SHARED
            staging[B(s, p_next[s])] = TORN; /* from now on, MPI may write to it */
#endif
            p_next[s]++
        :: else -> break
        od
    }
}

inline received_chunk() {
    p_come[s]++;
    if
    :: p_come[s] == CHUNKS -> tell(CHUNKS)
    :: else
    fi;
    order(c);
    if
    :: IF(BUFFER_FREE_TOO_SOON) -> p_free[s] = p_free[s] | BIT(c)
    :: else
    fi;
    receive_chunks()
}

inline unpacked_chunk() {
    d_step { p_done[s]++; p_free[s] = p_free[s] | BIT(c) };
#ifdef SHARED
    atomic {
        p_read[s] = p_read[s] | BIT(c);
        do
        :: p_read[s] & BIT(p_returned[s]) ->
            p_read[s] = p_read[s] & ~BIT(p_returned[s]);
            p_returned[s]++;
            returns!p_id[s]
        :: else -> break
        od
    }
#endif
    receive_chunks();
    if
    :: p_done[s] == CHUNKS && p_told[s] -> close()
    :: else
    fi
}

inline packed_chunk() {
    atomic {
        p_free[s] = p_free[s] | BIT(c);
        do
        :: p_next[s] < CHUNKS && p_free[s] & BIT(p_next[s]) ->
            p_free[s] = p_free[s] & ~BIT(p_next[s]);
            p_flight[s] = p_flight[s] | 1 << p_next[s];
#ifdef SHARED
            if :: p_next[s] > 0 -> notices!p_id[s] :: else fi;
#else
            assert(staging[B(s, p_next[s])] == BYTE(p_id[s], p_next[s]));
#endif
            p_next[s]++
        :: else -> break
        od
    }
}

inline sent_chunk() {
    p_done[s]++;
    if
    :: c + BUFFERS < CHUNKS -> order(c + BUFFERS)
    :: else
    fi;
    if
    :: p_done[s] == CHUNKS -> tell(0); close()
    :: else
    fi
}

#define RECORD_IS(what) op[head % RECORDS] == what
inline taken() {
    op[head % RECORDS] = 0; record_slot[head % RECORDS] = 0; record_tag[head % RECORDS] = 0;
    record_what[head % RECORDS] = 0; record_near[head % RECORDS] = 0; head++
}
inline admit(what) {
    s = record_slot[head % RECORDS];
    assert(!p_op[s]); /* else it is refused */
    p_op[s] = what; p_tag[s] = record_tag[head % RECORDS]; p_id[s] = record_what[head % RECORDS];
    near = record_near[head % RECORDS];
    taken()
}

proctype Proxy(byte mutation) {
    byte head, s, c;
    byte p_id[SLOTS];
    bit p_begun[SLOTS];   /* the header has come, or gone */
    byte p_next[SLOTS];   /* chunks posted, or passed on */
    byte p_come[SLOTS];   /* S_ARRIVED */
    byte p_done[SLOTS];   /* S_FINISHED */
    byte p_free[SLOTS];   /* S_BUFFERS: free ones of a receive, full ones of a send */
    byte p_flight[SLOTS]; /* chunks that MPI has in hand */
    byte p_orders[SLOTS];
    bit p_told[SLOTS];
#ifdef SHARED
    byte p_base[SLOTS]; /* of a receive: the sender's slot */
    byte p_read[SLOTS];
    byte p_returned[SLOTS];
#endif
    bit near;
    do
    :: atomic { RECORD_IS(OP_NULL) -> taken() }
    :: atomic { RECORD_IS(OP_IRECV) -> admit(OP_IRECV); p_free[s] = 3; s = 0 }
    :: atomic { RECORD_IS(OP_ISEND) -> admit(OP_ISEND) };
        write_unit(BASE, s, 0);
#ifdef SHARED
        atomic { headers!p_id[s], s, (near -> p_tag[s] : 0); p_begun[s] = 1 };
#endif
        packed_chunk();
        atomic { s = 0; near = 0 }
    :: atomic { RECORD_IS(OP_CHUNK) ->
           s = record_slot[head % RECORDS]; c = record_what[head % RECORDS];
           assert(p_op[s] && p_tag[s] == record_tag[head % RECORDS]);
           if
           :: p_op[s] == OP_IRECV ->
               assert(c < p_next[s] && p_orders[s] && (IF(BUFFER_FREE_TOO_SOON) || !(p_free[s] & BIT(c))));
               p_orders[s]--
           :: else ->
               assert(p_next[s] <= c && c < p_next[s] + BUFFERS && !(p_free[s] & BIT(c)));
               if :: c >= BUFFERS -> assert(p_orders[s]); p_orders[s]-- :: else fi
           fi;
           if :: !p_orders[s] -> attention[s] = 0 :: else fi;
           taken() };
        if
        :: p_op[s] == OP_IRECV -> unpacked_chunk()
        :: else -> packed_chunk()
        fi;
        atomic { s = 0; c = 0 }
#ifdef SHARED
#define COMES(n) (p_op[n] == OP_IRECV && !p_begun[n] && headers??[eval(p_id[n]), s, c])
#define LANDS_HERE(n) ((p_op[n] == OP_IRECV && notices??[eval(p_id[n])]) || \
    (p_op[n] == OP_ISEND && returns??[eval(p_id[n])]))
#define FIRST(c) !(p_flight[s] & (1 << (c)) - 1) /* empty messages with one tag stay in order */
#else
#define COMES(n) (p_op[n] == OP_IRECV && !p_begun[n])
#define LANDS_HERE(n) true
#define FIRST(c) true
#endif
#define MOVES(n) (p_flight[n] && LANDS_HERE(n))
#if SLOTS > 1
#define SLOT(condition) if :: condition(0) -> s = 0 :: condition(1) -> s = 1 fi
#else
#define SLOT(condition) condition(0) -> s = 0
#endif
    :: atomic { SLOT(COMES);
           p_begun[s] = 1;
#ifdef SHARED
           headers??eval(p_id[s]), p_base[s], c };
        write_unit(BASE, p_base[s], c);
        atomic { c = 0; p_free[s] = 2; p_next[s] = 1 };
        received_chunk();
#else
           p_free[s] = 3 };
        write_unit(BASE, s, 0);
        receive_chunks();
#endif
        s = 0
    :: atomic { SLOT(MOVES);
           if
           :: p_flight[s] & 1 -> c = 0
           :: p_flight[s] & 2 && FIRST(1) -> c = 1
           :: p_flight[s] & 4 && FIRST(2) -> c = 2
           fi;
           p_flight[s] = p_flight[s] & ~(1 << c);
#ifdef SHARED
           if
           :: p_op[s] == OP_IRECV -> notices??eval(p_id[s])
           :: else -> returns??eval(p_id[s])
           fi
#else
           if
           :: p_op[s] == OP_IRECV -> staging[B(s, c)] = BYTE(p_id[s], c)
           :: else -> assert(staging[B(s, c)] == BYTE(p_id[s], c))
           fi
#endif
       };
       if
       :: p_op[s] == OP_IRECV -> received_chunk()
       :: else -> sent_chunk()
       fi;
       atomic { s = 0; c = 0 }
    :: atomic { ended == BLOCKS - HELPERS && head == ticket_counter ->
           for (s : 0 .. SLOTS - 1) { assert(!busy[s] && !p_op[s] && !attention[s]) }
           break }
    od
}

/* --- a block ------------------------------------------------------------------------------------- */

#define WAIT 1
#define TEST 2
#define WAITALL 4

#if defined(RECEIVE)
#define SENDS false
#elif defined(SEND)
#define SENDS true
#elif defined(TURNS)
#define SENDS (round % 2 == 0)
#else
#define SENDS (me == 1)
#endif

inline take_ticket() { atomic { ticket = ticket_counter; ticket_counter++ } }

inline write_record(what, its_slot, its_tag, about) {
    atomic {
        assert(!op[ticket % RECORDS]);
        op[ticket % RECORDS] = what; record_slot[ticket % RECORDS] = its_slot;
        record_tag[ticket % RECORDS] = its_tag; record_what[ticket % RECORDS] = about;
        record_near[ticket % RECORDS] = near; ticket = 0
    }
}

inline try_slot() {
    if
    :: slot = 0
#if SLOTS > 1
    :: slot = 1
#endif
    fi;
    if :: !busy[slot] -> busy[slot] = 1 :: else -> slot = NONE fi
}

/* Packs chunk n of the buffer of block "who" into the buffers of a slot. */
inline pack(buffers, n, who) {
    staging[B(buffers, n)] = TORN;
    atomic { load_user((who) * CHUNKS + (n)); store_staging(B(buffers, n), at); at = 0 }
}

inline unpack(buffers, n, who) {
    atomic { at = staging[B(buffers, n)]; assert(at != TORN && at % 4 == n) };
    atomic { assert(staging[B(buffers, n)] == at); store_data((who) * CHUNKS + (n), at); at = 0 }
}

inline report_chunk(of_slot, of_tag, n) {
    if :: IF(NO_RELEASE_OF_CHUNK) :: else -> fence() fi;
    take_ticket();
    write_record(OP_CHUNK, of_slot, of_tag, n)
}

inline pack_next_chunks() {
    chunk = 1;
    do
    :: chunk < BUFFERS && chunk < CHUNKS ->
        pack(slot, chunk, me);
        report_chunk(slot, handle, chunk);
        chunk++
    :: else -> break
    od;
    chunk = 0
}

inline open_long() {
    if
    :: IF(TICKET_LONG_BEFORE_SLOT) -> take_ticket(); atomic { try_slot() }
    :: else -> atomic { take_ticket(); try_slot() }
    fi;
    if
    :: slot == NONE -> write_record(OP_NULL, 0, 0, 0)
    :: else ->
        handle = ticket + 1;
        write_record((SENDS -> OP_ISEND : OP_IRECV), slot, handle, id);
        open_orders();
        if :: SENDS || IF(NO_RELEASE_BEFORE_ROW) :: else -> fence() fi;
        open_row();
        if
        :: SENDS -> /* fill */
            if :: IF(READY_BEFORE_COPY) -> ready[slot] = handle :: else fi;
            pack(slot, 0, me);
            if :: IF(NO_RELEASE_BEFORE_READY) :: else -> fence() fi;
            ready[slot] = handle;
            pack_next_chunks()
        :: else
        fi
    fi
}

inline open_any() {
    if /* acquire */
    :: atomic { !busy[0] -> busy[0] = 1; slot = 0 }
#if SLOTS > 1
    :: atomic { !busy[1] -> busy[1] = 1; slot = 1 }
#endif
    fi;
    if
    :: SENDS ->
        pack(slot, 0, me);
        if :: IF(SEND_ADDRESS_AFTER_RELEASE) -> fence() :: else fi
    :: else
    fi;
    open_orders();
    if :: IF(NO_RELEASE_BEFORE_ROW) || IF(SEND_ADDRESS_AFTER_RELEASE) :: else -> fence() fi;
    atomic { take_ticket(); handle = ticket + 1 };
    open_row();
    write_record((SENDS -> OP_ISEND : OP_IRECV), slot, handle, id);
    if
    :: SENDS ->
        if :: near -> ready[slot] = handle :: else fi;
        pack_next_chunks()
    :: else
    fi
}

/* Looks at the units of a completion: those with the tag "expected" are fresh. */
inline read_status() {
    d_step {
        if
        :: tag[U(its, STATUS)] == expected ->
            fresh = fresh | 1 << STATUS
        :: else
        fi;
        if
        :: tag[U(its, COUNT)] == expected ->
            fresh = fresh | 1 << COUNT; count = high[U(its, COUNT)]
        :: else
        fi
    }
}
inline read_order(n) {
    if
    :: tag[U(its, ORDER + n)] == expected ->
        fresh = fresh | 1 << (ORDER + n);
        position[n] = low[U(its, ORDER + n)]; length[n] = high[U(its, ORDER + n)]
    :: else
    fi
}
inline read_orders() { d_step { read_order(0); read_order(1) } }
inline read_base() {
    d_step {
        if
        :: tag[U(its, BASE)] == expected || IF(NO_BASE_TAG) ->
            fresh = fresh | 1 << BASE; base = low[U(its, BASE)]; word = high[U(its, BASE)]
        :: else
        fi
    }
}

#define FRESH(unit) (fresh & 1 << (unit))
#define CALLS(i) (FRESH(ORDER + i) && FRESH(BASE) && IS_OPEN(seen[i], expected, position[i]))

inline forget() {
    d_step { its = 0; expected = 0; fresh = 0; count = 0; position[0] = 0; position[1] = 0;
        length[0] = 0; length[1] = 0; base = 0; word = 0; i = NONE; whose = 0 }
}

/* The swap: order i, if nobody has taken one since the claim word was seen. */
inline take() {
    atomic {
        if
        :: claim[B(its, i)] == seen[i] || IF(CLAIM_WITHOUT_SWAP) ->
            assert(p_op[its] && p_tag[its] == expected && !(carried[its] & 1 << position[i]));
            assert(length[i] == position[i]);
            carried[its] = carried[its] | 1 << position[i];
            seen[i] = CLAIM(expected, position[i]);
            claim[B(its, i)] = seen[i]
        :: else -> seen[i] = claim[B(its, i)]; i = NONE
        fi
    };
    if
    :: i != NONE && word && position[i] == 0 && !IF(NO_READY_WORD) -> ready[base] == word
    :: else
    fi
}

/* own: it is the last one, and of this block's request. */
inline carry_out(own) {
    if
    :: IF(COUNTED_BEFORE_COPY) && !own && p_op[its] == OP_IRECV -> finished[its]++
    :: else
    fi;
    if
    :: own -> atomic { take_ticket(); early = 1 }
    :: true
    fi;
    chunk = position[i];
    if
    :: IF(ANSWERED_BEFORE_COPY) && !own ->
        take_ticket(); write_record(OP_CHUNK, its, expected, chunk)
    :: else
    fi;
    if
    :: p_op[its] == OP_IRECV -> packs = 0; whose = recv_address[its]; unpack(base, chunk, whose)
    :: else -> packs = 1; whose = send_address[its]; pack(base, chunk, whose)
    fi;
    if
    :: own ->
        if :: early -> early = 0 :: else -> take_ticket() fi;
        if :: IF(FREED_BEFORE_ANSWER) -> busy[its] = 0 :: else fi;
        write_record(OP_CHUNK, its, expected, chunk)
    :: else ->
        if
        :: IF(ANSWERED_BEFORE_COPY)
        :: else -> report_chunk(its, owner[its], chunk)
        fi;
        if
        :: (packs && !IF(PACKED_IS_COUNTED)) || IF(COUNTED_BEFORE_COPY)
        :: else -> finished[its]++
        fi
    fi;
    atomic { chunk = 0; packs = 0 }
}

#define IN_NEED(n) (attention[n] && owner[n] && (HAS_ORDER(n, owner[n], 0) || HAS_ORDER(n, owner[n], 1)))

/* Carries out an order of any request, if there still is one. */
inline help(n) {
    atomic { its = n; expected = owner[n] };
    if
    :: true -> read_orders(); read_base()
    :: true -> read_base(); read_orders()
    fi;
    atomic { kept[0] = seen[0]; kept[1] = seen[1]; seen[0] = claim[B(its, 0)]; seen[1] = claim[B(its, 1)];
        if :: CALLS(0) -> i = 0 :: else -> if :: CALLS(1) -> i = 1 :: else fi fi };
    if
    :: i != NONE && (owner[its] == expected || IF(NO_OWNER_CHECK)) -> take()
    :: else -> i = NONE
    fi;
    if
    :: i != NONE ->
        if :: IF(NO_ACQUIRE_OF_ORDER) :: else -> fence() fi;
        carry_out(false)
    :: else
    fi;
    atomic { seen[0] = kept[0]; seen[1] = kept[1]; kept[0] = 0; kept[1] = 0; forget() }
}

#define IS_DONE(n, t) (tag[U(n, STATUS)] == t && \
    (SENDS || (tag[U(n, COUNT)] == t && finished[n] >= high[U(n, COUNT)])))

inline begin_wait() {
    atomic { OWNER_LANDED -> assert(owner[slot] == handle && !claimed[slot]); claimed[slot] = 1 };
    atomic { seen[0] = claim[B(slot, 0)]; seen[1] = claim[B(slot, 1)] }
}

inline wait_for() {
    atomic {
        if
        :: WAYS & WAIT -> way = WAIT
        :: WAYS & TEST -> way = TEST
        :: WAYS & WAITALL -> way = WAITALL
        fi
    }
    begin_wait();
    do
    :: atomic { (IS_DONE(slot, handle) || (HAS_ORDER(slot, handle, 0) && tried != low[U(slot, ORDER)])
               || (way != WAITALL && HAS_ORDER(slot, handle, 1))) ->
           its = slot; expected = handle };
       if
       :: true -> read_status(); read_orders(); read_base()
       :: true -> read_base(); read_orders(); read_status()
       fi;
       if
       :: FRESH(STATUS) && SENDS -> break
       :: FRESH(STATUS) && FRESH(COUNT) && !SENDS && (finished[slot] >= count || IF(DONE_WITHOUT_COUNT)) ->
           if :: IF(NO_ACQUIRE_AT_END) :: else -> fence() fi;
           break
       :: else
       fi;
       if
       :: way == WAITALL && CALLS(0) && position[0] != tried ->
           i = 0; tried = position[0];
           if :: position[0] != 0 -> seen[0] = claim[B(slot, 0)] :: else fi;
           if :: CALLS(0) -> take() :: else -> i = NONE fi
       :: way == WAITALL && !(CALLS(0) && position[0] != tried)
       :: way != WAITALL && CALLS(0) -> i = 0; take()
       :: way != WAITALL && !CALLS(0) && CALLS(1) -> i = 1; take()
       :: way != WAITALL && !CALLS(0) && !CALLS(1)
       fi;
       if
       :: i == NONE
       :: i != NONE && !SENDS && FRESH(STATUS) && FRESH(COUNT) && (count == 1 || IF(LAST_OF_MANY)) ->
           carry_out(true);
           break
       :: else -> carry_out(false); tried = NONE
       fi;
       forget();
       if
       :: way == TEST -> claimed[slot] = 0; begin_wait()
       :: else
       fi
    :: IN_NEED(0) && !(way == WAITALL && IF(WAITALL_HELPS_NOBODY)) -> help(0); tried = NONE
#if SLOTS > 1
    :: IN_NEED(1) && !(way == WAITALL && IF(WAITALL_HELPS_NOBODY)) -> help(1); tried = NONE
#endif
    od;
    forget();
    atomic { way = 0; tried = NONE; seen[0] = 0; seen[1] = 0 };
    if :: IF(FREED_BEFORE_ANSWER) && !busy[slot] :: else -> busy[slot] = 0 fi
}

inline check_own() {
    atomic {
        for (chunk : 0 .. CHUNKS - 1) {
            load_user(me * CHUNKS + chunk);
            assert(at == BYTE(id, chunk))
        }
        chunk = 0; at = 0
    }
}

proctype Block(byte me, mutation) {
    byte round, id, slot, handle, ticket, way, tried = NONE;
    byte its, expected, fresh, count, base, word, i = NONE, whose, chunk, at, k;
    byte position[2], length[2], seen[2], kept[2];
    bit near, early, packs;

    do
    :: me >= BLOCKS - HELPERS || round == ROUNDS -> break
    :: else ->
#ifdef SHARED
        id = round + 1;
        if :: SENDS -> near = 1 :: true fi;
#else
        id = round * BLOCKS + me + 1;
#endif
        if :: SENDS -> at = id :: else fi;
        store_own(at);
        at = 0;
        slot = NONE;
        if
        :: !SENDS || near -> open_long()
        :: true
        fi;
        if
        :: slot == NONE -> open_any()
        :: else
        fi;
        near = 0;
        wait_for();
        check_own();
        atomic { round++; id = 0; slot = 0; handle = 0 }
    od;
    round = 0;
    if
    :: me < BLOCKS - HELPERS -> ended++
    :: else ->
end:
        do
        :: IN_NEED(0) -> help(0)
#if SLOTS > 1
        :: IN_NEED(1) -> help(1)
#endif
#ifdef DELAYS
        :: atomic { l1[me * POSITIONS] == NONE -> load_user(0); at = 0 } /* a line beside its own */
#endif
        od
    fi
}

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

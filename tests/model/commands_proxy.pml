/* commands.pml: the proxy, and MPI. */

byte p_op[SLOTS]; /* 0: nothing open */
byte p_tag[SLOTS];
#ifdef FAILS
bit fails; /* one has */
#endif
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
    :: else ->
        d_step { high[U(s, ORDER + (n) % BUFFERS)] = 0; tag[U(s, ORDER + (n) % BUFFERS)] = 0 }
    fi;
    write_unit(ORDER + (n) % BUFFERS, n, n);
    atomic { p_orders[s]++; ordered[s] = 1 }
}

inline tell(orders) {
    p_told[s] = 1;
    write_unit(COUNT, p_id[s], orders);
    write_unit(STATUS, p_id[s], 0)
}

inline close() {
    d_step { assert(p_op[s] && p_told[s] && !p_flight[s] && !p_orders[s]);
        p_op[s] = 0; p_tag[s] = 0; p_id[s] = 0; p_begun[s] = 0; p_next[s] = 0; p_come[s] = 0;
        p_done[s] = 0; p_free[s] = 0; p_told[s] = 0; carried[s] = 0;
#ifdef SHARED
        p_base[s] = 0; p_read[s] = 0; p_returned[s] = 0
#endif
    }
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
        :: p_next[s] < RECEIVED && p_free[s] & BIT(p_next[s]) ->
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
    :: p_come[s] == RECEIVED -> tell(RECEIVED)
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
#ifdef FAILS
    if
    :: !p_told[s] && !p_orders[s] && !fails ->
        atomic { fails = 1; p_flight[s] = 0 };
        tell(0)
    :: true -> receive_chunks()
    fi;
#else
    receive_chunks();
#endif
    if
    :: p_told[s] && (p_done[s] == RECEIVED || !p_flight[s] && !p_orders[s]
            && p_come[s] < RECEIVED) -> close()
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
    record_what[head % RECORDS] = 0; record_near[head % RECORDS] = 0;
    record_block[head % RECORDS] = 0; head++
}
inline admit(what) {
    s = record_slot[head % RECORDS];
    assert(!p_op[s]); /* else it is refused */
    p_op[s] = what; p_tag[s] = record_tag[head % RECORDS]; p_id[s] = record_what[head % RECORDS];
    near = record_near[head % RECORDS]; opener[s] = record_block[head % RECORDS];
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
    :: atomic { RECORD_IS(OP_IRECV) -> admit(OP_IRECV); s = 0 }
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
               assert(c < p_next[s] && p_orders[s]);
               assert(!(p_free[s] & BIT(c)) || IF(BUFFER_FREE_TOO_SOON));
               p_orders[s]--
           :: else ->
               assert(p_next[s] <= c && c < p_next[s] + BUFFERS && !(p_free[s] & BIT(c)));
               if :: c >= BUFFERS -> assert(p_orders[s]); p_orders[s]-- :: else fi
           fi;
           if :: !p_orders[s] -> ordered[s] = 0; attention[s] = 0 :: else fi;
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
        atomic { c = 0; p_free[s] = (1 << BUFFERS) - 2; p_next[s] = 1 };
        received_chunk();
#else
           p_free[s] = (1 << BUFFERS) - 1 };
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
#define OVERDUE(n) (ordered[n] && !attention[n] && !IF(NEVER_OVERDUE))
    :: atomic { SLOT(OVERDUE); attention[s] = 1; s = 0 } /* find_overdue, at any time */
    :: atomic { ended == BLOCKS - HELPERS && head == ticket_counter ->
           for (s : 0 .. SLOTS - 1) { assert(!busy[s] && !p_op[s] && !ordered[s] && !attention[s]) }
           break }
    od
}

/* commands.pml: the blocks. */

#define WAIT 1
#define TEST 2
#define WAITALL 4
#define COMPUTE 8

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
        record_near[ticket % RECORDS] = near; record_block[ticket % RECORDS] = me;
        ticket = 0
    }
}

/* One try; with two slots, the first free one: they are alike. */
inline try_slot() {
    if
    :: !busy[0] -> busy[0] = 1; slot = 0
#if SLOTS > 1
    :: busy[0] && !busy[1] -> busy[1] = 1; slot = 1
#endif
    :: else -> slot = NONE
    fi
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

/* What follows the record of a send whose receiver reads the buffers. */
inline pack_first_chunk() {
    if :: IF(READY_BEFORE_COPY) -> ready[slot] = handle :: else fi;
    pack(slot, 0, me);
    if :: IF(NO_RELEASE_BEFORE_READY) :: else -> fence() fi;
    ready[slot] = handle
}

inline open_long() {
    if
    :: IF(TICKET_LONG_BEFORE_SLOT) ->
        take_ticket();
        atomic { try_slot() };
        if :: slot == NONE -> write_record(OP_NULL, 0, 0, 0) :: else fi
    :: else ->
        atomic { try_slot() };
        if :: slot == NONE :: else -> take_ticket() fi
    fi;
    if
    :: slot == NONE
    :: else ->
        handle = ticket + 1;
        write_record((SENDS -> OP_ISEND : OP_IRECV), slot, handle, id);
        open_orders();
        if :: SENDS || IF(NO_RELEASE_BEFORE_ROW) :: else -> fence() fi;
        open_row();
        if
        :: SENDS ->
            pack_first_chunk();
            pack_next_chunks()
        :: else
        fi
    fi
}

inline open_any() {
    if /* acquire */
    :: atomic { !busy[0] -> busy[0] = 1; slot = 0 }
#if SLOTS > 1
    :: atomic { busy[0] && !busy[1] -> busy[1] = 1; slot = 1 }
#endif
    fi;
    if
    :: SENDS && !near ->
        pack(slot, 0, me);
        if :: IF(SEND_ADDRESS_AFTER_RELEASE) -> fence() :: else fi
    :: else
    fi;
    open_orders();
    if
    :: (SENDS && near) || IF(NO_RELEASE_BEFORE_ROW) || IF(SEND_ADDRESS_AFTER_RELEASE)
    :: else -> fence()
    fi;
    atomic { take_ticket(); handle = ticket + 1 };
    open_row();
    write_record((SENDS -> OP_ISEND : OP_IRECV), slot, handle, id);
    if
    :: SENDS ->
        if :: near -> pack_first_chunk() :: else fi;
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

inline count_finished() {
    if
    :: packs || IF(COUNTED_BEFORE_COPY)
    :: else -> finished[its]++
    fi
}
#define COUNTED_IN_BETWEEN (!IF(COUNTED_BEFORE_TICKET) && !IF(COUNTED_AFTER_ANSWER))

/* own: it is the last one, and of this block's request. */
inline execute(own) {
    if
    :: IF(COUNTED_BEFORE_COPY) && !own && p_op[its] == OP_IRECV -> finished[its]++
    :: else
    fi;
    if
    :: own && !IF(FREED_BEFORE_ANSWER) -> atomic { take_ticket(); early = 1 }
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
        if :: IF(FREED_BEFORE_ANSWER) -> busy[its] = 0 :: else fi;
        if :: early -> early = 0 :: else -> take_ticket() fi;
        write_record(OP_CHUNK, its, expected, chunk)
    :: else ->
        if
        :: IF(ANSWERED_BEFORE_COPY)
        :: else ->
            answers = owner[its];
            if :: IF(NO_RELEASE_OF_CHUNK) :: else -> fence() fi;
            if :: IF(COUNTED_BEFORE_TICKET) -> count_finished() :: else fi;
            take_ticket();
            if :: COUNTED_IN_BETWEEN -> count_finished() :: else fi;
            write_record(OP_CHUNK, its, answers, chunk);
            answers = 0
        fi;
        if
        :: IF(ANSWERED_BEFORE_COPY) || IF(COUNTED_AFTER_ANSWER) -> count_finished()
        :: else
        fi
    fi;
    atomic { chunk = 0; packs = 0 }
}

#define IN_NEED(n) ((attention[n] || ordered[n] && opener[n] == me) && owner[n] && \
    (HAS_ORDER(n, owner[n], 0) || HAS_ORDER(n, owner[n], 1)))

/* Carries out an order of any request, if there still is one. */
inline help(n) {
    atomic { its = n; expected = owner[n] };
    if
    :: true -> read_orders(); read_base()
    :: true -> read_base(); read_orders()
    fi;
    atomic {
        kept[0] = seen[0]; kept[1] = seen[1];
        seen[0] = claim[B(its, 0)]; seen[1] = claim[B(its, 1)];
        if :: CALLS(0) -> i = 0 :: else -> if :: CALLS(1) -> i = 1 :: else fi fi };
    if
    :: i != NONE && (owner[its] == expected || IF(NO_OWNER_CHECK)) -> take()
    :: else -> i = NONE
    fi;
    if
    :: i != NONE ->
        if :: IF(NO_ACQUIRE_OF_ORDER) :: else -> fence() fi;
        execute(false)
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
        :: WAYS & COMPUTE -> way = WAIT; IS_DONE(slot, handle)
        fi
    }
    begin_wait();
    do
    /* A receive is looked at once at any time; else only when there is something: nobody spins. */
    :: atomic { ((!looked && !SENDS) || IS_DONE(slot, handle)
               || (HAS_ORDER(slot, handle, 0) && tried != low[U(slot, ORDER)])
               || (way != WAITALL && HAS_ORDER(slot, handle, 1))) ->
           its = slot; expected = handle; looked = 1 };
       if
       :: true -> read_status(); read_orders(); read_base()
       :: true -> read_base(); read_orders(); read_status()
       fi;
       if
       :: FRESH(STATUS) && SENDS -> break
       :: (FRESH(STATUS) && FRESH(COUNT) && !SENDS
               && (finished[slot] >= count || IF(DONE_WITHOUT_COUNT))) ->
           if :: IF(NO_ACQUIRE_AT_END) :: else -> fence() fi;
#ifdef FAILS
           failed = count == 0;
#endif
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
       :: (i != NONE && !SENDS && FRESH(STATUS) && FRESH(COUNT)
               && (count == 1 || IF(LAST_OF_MANY))) -> /* LAST */
           execute(true);
           break
       :: else -> execute(false); tried = NONE
       fi;
       forget();
       if
       :: way == TEST -> claimed[slot] = 0; begin_wait()
       :: else
       fi
    TOUCH
    :: IN_NEED(0) && !(way == WAITALL && IF(WAITALL_HELPS_NOBODY)) -> help(0); tried = NONE
#if SLOTS > 1
    :: IN_NEED(1) && !(way == WAITALL && IF(WAITALL_HELPS_NOBODY)) -> help(1); tried = NONE
#endif
    od;
    forget();
    atomic { way = 0; looked = 0; tried = NONE; seen[0] = 0; seen[1] = 0 };
    busy[slot] = 0
}

inline check_own() {
    atomic {
        for (chunk : 0 .. (SENDS -> CHUNKS : RECEIVED) - 1) {
            load_user(me * CHUNKS + chunk);
            assert(at == BYTE(id, chunk))
        }
        chunk = 0; at = 0
    }
}

proctype Block(byte me, mutation) {
    byte round, id, slot, handle, ticket, way, tried = NONE;
    byte its, expected, fresh, count, base, word, i = NONE, whose, chunk, at, k, answers;
    byte position[2], length[2], seen[2], kept[2];
    bit near, early, packs, looked, failed;

    do
    :: me >= BLOCKS - HELPERS || round == ROUNDS -> break
    :: else ->
#ifdef SHARED
        id = round + 1;
        if :: SENDS -> near = 1 :: else fi;
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
        if :: failed -> failed = 0 :: else -> check_own() fi;
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
        TOUCH
        od
    fi
}

/* Model of the ring, the request slots and the completions, for the model checker spin.
 *
 * What it is a model of: device_lib/proxied/ring.py, slots.py, opening.py, completion.py (the producers),
 * host_proxy/records/ring.py, completion.py (the proxy), gmpi/contract/wire.py (units, tags, handles).
 *
 * What is explored: every interleaving of PRODUCERS warps that make CALLS calls each, over a ring of
 * RING slots and REQUESTS request slots, with
 *   - the units of records reaching host memory in any order, however late (process Memory);
 *   - ring slots returned to the producers at any time, their number cached in device memory and
 *     refreshed by one warp;
 *   - requests completing in any order, each completion unit in two stores (data, then tag);
 *   - with WRAP: tags that repeat after so many tickets, and requests whose record has no payload;
 *   - a first try for a request slot that fails after the ticket has been taken (NULL records);
 *   - with STRAY_WAITS: a wait by each warp for any handle that was ever issued, so stale ones, and
 *     two waits for one request;
 *   - with ABORT: an abort at any time, after which the proxy may stop at any time.
 *
 * What is checked: no record is read that is not the head's own, in any of its units; no completion
 * is taken that is not the request's own; a wait for an open request is never refused, and at most
 * one wins; at the end every record was taken, every request waited for, every slot is free; nobody
 * is ever stuck (invalid end state), with ABORT either.
 *
 * Left out: payloads in staging, large requests.
 *
 * Each mutation of MUTATIONS (tests/test_model.py) takes one check away; the model must then fail.
 */

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef RING
#define RING 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif

#ifdef WRAP
#define TICKETS CALLS /* of one warp, which always finds its slot free */
#else
#define TICKETS (2 * PRODUCERS * CALLS) /* a call takes a second one when it had no slot */
#endif
#define MOST 16                         /* TICKETS at most: see Memory */
#define UNITS 3
#define OPERATION 0 /* header unit: the opcode */
#define HANDLE 1    /* header unit: the request handle */
#define PAYLOAD 2
#define STATUS 0 /* completion unit */
#define DATA 1   /* completion unit */
#define NONE 255

/* The tag of a record and of its completion; 0 is memory that nobody has written. */
#ifdef NO_LAP_IN_TAG
#define TAG(t) 1
#else
#ifdef WRAP
#define TAG(t) ((t) % WRAP + 1)
#else
#define TAG(t) ((t) + 1)
#endif
#endif

/* device memory */
byte ticket_counter;
byte consumed_copy;
bit refreshing;
bit abort_copy;
bit busy[REQUESTS];
byte owner[REQUESTS]; /* tag of the request that is, or was last, open; 0: none yet */
bit claimed[REQUESTS];

/* mapped memory. A unit is (tag, whose): "whose" stands for the 12 bytes of data, and is the ticket
 * of the record that they are of. */
byte ring_tag[RING * UNITS];
byte ring_whose[RING * UNITS];
byte completion_tag[REQUESTS * 2];
byte completion_whose[REQUESTS * 2];
byte consumed;
bit abort_word;

/* stores on their way to the ring: bit u of flying[t] is unit u of record t */
byte flying[MOST];
byte slot_in[MOST]; /* what the record says: its request slot, NONE in a NULL record */
bit bare[MOST];     /* what the record says: it has no payload */
#ifdef OWNER_CLEARED_ON_RELEASE
bit clearing[REQUESTS];
#endif

/* the proxy */
byte head;
bit open[REQUESTS];
byte request[REQUESTS]; /* ticket of the request that is open */

/* for the checks only */
bit issued[MOST];
bit waited[MOST];
byte finished;

/* --- memory: units arrive in any order ------------------------------------------------------- */

inline deliver(t, u) {
    ring_tag[((t) % RING) * UNITS + u] = TAG(t);
    ring_whose[((t) % RING) * UNITS + u] = t;
    flying[t] = flying[t] & ~(1 << u)
}

#define ARRIVES(t, u) :: atomic { flying[t] & (1 << u) -> deliver(t, u) }
#define RECORD(t) ARRIVES(t, 0) ARRIVES(t, 1) ARRIVES(t, 2)

active proctype Memory() {
end:
    do
    RECORD(0) RECORD(1) RECORD(2) RECORD(3) RECORD(4) RECORD(5) RECORD(6) RECORD(7)
    RECORD(8) RECORD(9) RECORD(10) RECORD(11) RECORD(12) RECORD(13) RECORD(14) RECORD(15)
#ifdef OWNER_CLEARED_ON_RELEASE
    :: atomic { clearing[0] -> owner[0] = 0; clearing[0] = 0 }
#endif
    od
}

/* --- the proxy -------------------------------------------------------------------------------- */

#define UNIT_TAG(u) ring_tag[(head % RING) * UNITS + u]
#define UNIT_WHOSE(u) ring_whose[(head % RING) * UNITS + u]

inline write_completion(s, unit) {
#ifdef COMPLETION_TAG_FIRST
    completion_tag[(s) * 2 + unit] = TAG(request[s]);
    completion_whose[(s) * 2 + unit] = request[s];
#else
    completion_whose[(s) * 2 + unit] = request[s];
    completion_tag[(s) * 2 + unit] = TAG(request[s]);
#endif
}

/* ring.take: in two laps of each WRAP tickets a slot forgets its payload, before it is returned. */
inline take() {
#ifdef WRAP
#ifndef PAYLOAD_NEVER_FORGOTTEN
    if
    :: head % (WRAP / 2) < RING -> UNIT_TAG(PAYLOAD) = 0
    :: else
    fi;
#endif
#endif
    slot = 0; head++
}

inline complete(s) {
    write_completion(s, DATA);
    write_completion(s, STATUS);
    atomic { open[s] = 0; request[s] = 0 }
}

active proctype Proxy() {
    byte slot, i;
    do
    :: atomic { UNIT_TAG(HANDLE) == TAG(head) ->
#ifndef NO_TAG_CHECK_OPERATION
           UNIT_TAG(OPERATION) == TAG(head) ->
#endif
           assert(UNIT_WHOSE(HANDLE) == head && UNIT_WHOSE(OPERATION) == head);
           slot = slot_in[head] }
       if
       :: slot == NONE -> atomic { take() }
       :: else ->
           assert(!open[slot]);
           atomic { open[slot] = 1; request[slot] = head }
#ifdef SLOTS_RETURNED_BEFORE_READ
           consumed = head + 1;
#endif
#ifdef PAYLOAD_NOT_ALWAYS_READ
           if
           :: atomic { true -> take(); goto taken } /* refused, or to PROC_NULL */
           :: true
           fi;
#endif
           atomic {
#ifdef NO_TAG_CHECK_PAYLOAD
               true ->
#else
               bare[head] || UNIT_TAG(PAYLOAD) == TAG(head) ->
#endif
               assert(bare[head] || UNIT_WHOSE(PAYLOAD) == head);
               take() };
       taken:
           skip
       fi
    :: consumed < head -> consumed = head /* return_slots: after a batch, or when idle */
    :: open[0] -> complete(0)
#if REQUESTS > 1
    :: open[1] -> complete(1)
#endif
    :: atomic { finished == PRODUCERS && !abort_word && head == ticket_counter ->
           for (i : 0 .. REQUESTS - 1) { assert(!busy[i] && !open[i]) }
           for (i : 0 .. TICKETS - 1) { assert(issued[i] == waited[i]) }
           break }
    :: abort_word -> break
    od
}

/* --- a warp ------------------------------------------------------------------------------------ */

#define FULL (ticket - consumed_copy >= RING)

#ifdef NO_REFRESH_LOCK
#define MAY_REFRESH true
#else
#define MAY_REFRESH (!refreshing)
#endif

inline wait_for_room() {
#ifdef NO_ROOM_CHECK
    skip
#else
    do
    :: !FULL -> break
    /* A refresh that would change nothing is left out: it is the same state again. */
    :: atomic { (FULL && MAY_REFRESH && (consumed != consumed_copy || abort_word != abort_copy)) ->
           refreshing = 1 };
       fresh = consumed;
#ifdef ABORT
       aborted = abort_word;
#endif
       atomic { assert(fresh >= consumed_copy); consumed_copy = fresh; fresh = 0 }
#ifdef ABORT
       abort_copy = aborted;
#endif
       refreshing = 0;
       if
       :: (FULL && aborted) -> break
       :: else -> aborted = 0
       fi
    :: atomic { (FULL && abort_copy) -> aborted = 1; break }
    od
#endif
}

inline take_ticket() { atomic { ticket = ticket_counter; ticket_counter++ } }

inline write_record(says) {
    atomic { slot_in[ticket] = says; flying[ticket] = 7;
#ifdef WRAP
        if :: true :: true -> bare[ticket] = 1; flying[ticket] = 3 fi
#endif
    }
}

inline write_null() {
    atomic { slot_in[ticket] = NONE; flying[ticket] = 3 } /* it has no payload */
}

inline open_row() { atomic { owner[slot] = TAG(ticket); claimed[slot] = 0 } }

inline read_unit(unit) {
    if
    :: atomic {
#ifdef NO_TAG_CHECK_STATUS
           (unit == STATUS || completion_tag[its * 2 + unit] == TAG(handle)) ->
#else
#ifdef NO_TAG_CHECK_DATA
           (unit == DATA || completion_tag[its * 2 + unit] == TAG(handle)) ->
#else
           completion_tag[its * 2 + unit] == TAG(handle) ->
#endif
#endif
           assert(completion_whose[its * 2 + unit] == handle) }
    :: abort_word -> aborted = 1
    fi
}

/* Waits for the request that record "handle" opened; it may be anybody's, and over. */
inline wait_for() {
    atomic {
        its = slot_in[handle];
        if
#ifdef NO_OWNER_CHECK
        :: true ->
#else
        :: owner[its] == TAG(handle) && !claimed[its] ->
#endif
            claimed[its] = 1;
            won = 1;
            assert(!waited[handle]);
            waited[handle] = 1
        :: else -> won = 0; assert(waited[handle])
        fi
    }
    if
    :: won ->
        if /* the lanes' reads are served in any order */
        :: read_unit(STATUS); read_unit(DATA)
        :: read_unit(DATA); read_unit(STATUS)
        fi;
        if
        :: aborted -> aborted = 0
        :: else ->
            atomic { busy[its] = 0
#ifdef OWNER_CLEARED_ON_RELEASE
                clearing[its] = 1
#endif
            }
        fi
    :: else
    fi;
    atomic { won = 0; its = 0 }
}

proctype Producer() {
    byte calls, ticket, slot, fresh, handle, its;
    bit aborted, won, strayed;

    do
    :: calls == CALLS -> break
    :: else ->
        calls++;
        take_ticket();
        if
        :: slot = 0
#if REQUESTS > 1
        :: slot = 1
#endif
        fi;
        if /* begin_open: one try */
        :: atomic { !busy[slot] -> busy[slot] = 1 }
        :: atomic { busy[slot] -> slot = NONE }
        fi;
        if
        :: slot != NONE
        :: else ->
#ifndef TICKET_KEPT_WITHOUT_SLOT
            wait_for_room();
            if
            :: aborted -> aborted = 0
            :: else -> write_null()
            fi;
#endif
            if /* acquire */
            :: atomic { !busy[0] -> busy[0] = 1; slot = 0 }
#if REQUESTS > 1
            :: atomic { !busy[1] -> busy[1] = 1; slot = 1 }
#endif
            :: abort_word -> goto next
            fi;
#ifndef TICKET_KEPT_WITHOUT_SLOT
            take_ticket()
#endif
        fi;
        wait_for_room();
        if
        :: aborted -> goto next
        :: else
        fi;
        if
        :: write_record(slot); open_row() /* open_inline */
        :: open_row(); write_record(slot) /* open_any */
        fi;
        atomic { handle = ticket; issued[ticket] = 1 }
        wait_for();
#ifdef STRAY_WAITS
        if
        :: !strayed ->
            strayed = 1;
            atomic {
                handle = 0;
                do
                :: handle + 1 < ticket_counter -> handle++
                :: break
                od
            }
            if
            :: issued[handle] -> wait_for()
            :: else
            fi
        :: true
        fi;
#endif
    next:
        atomic { aborted = 0; ticket = 0; slot = 0; handle = 0 }
    od;
    finished++
}

#ifdef ABORT
active proctype Host() { abort_word = 1 }
#endif

init {
    byte i;
    atomic {
        for (i : 1 .. PRODUCERS) { run Producer() }
        i = 0
    }
}

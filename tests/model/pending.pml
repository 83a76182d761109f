/* Collectives of the direct road that do not block: all ranks of a communicator start the same ones.
 *
 * Any sequence of Allreduces, Barriers, and Bcasts from any root; with ALL_KINDS of Scans, and Gathers
 * to any root, too. Call k goes to inbox k mod PENDING, of which each rank has that many for each
 * source.
 *
 *     Start      waits until all ranks, itself too, are known to have taken call k - PENDING. Then it
 *                stores packet 0 to each rank, and but for a Barrier a second one to each that wants
 *                its bytes.
 *     Take       in the order of calls, one thread of a rank at a time: whoever waits for anything.
 *                Every CREDIT_STEP calls the rank tells the others its *credit*, how many calls it has
 *                taken.
 *     Wait       takes all calls up to its own; or sees that another thread has.
 *
 *     Allreduce  has come with both packets of all.
 *     Barrier    has come with packet 0 of all.
 *     Bcast      has come with both packets of the root; there, at once.
 *     Gather     has come to the root with both packets of all; elsewhere, at once.
 *     Scan       has come with both packets of the ranks before.
 *
 * A rank may start all calls first, and then wait for the last one first (FIRST); wait for each one
 * before it starts the next (IN_TURN); or do both in any order (ANY). With ONE_LAGS, the last rank
 * starts call k only when it has received a message from rank 0, which sends it when it has started
 * PENDING - CREDIT_STEP + 1 calls from k on: so far ahead a rank surely gets. With TWO_WAITERS, a
 * second thread of rank 0 waits for calls, too.
 *
 * The numbers in packet 0 wrap. Where call k is looked for, there may be that of a call up to two turns
 * of the inboxes before, since all store it in every call; and of one turn after, where k has been
 * taken. The numbers in the second packet do not wrap: it may have been left from any call before.
 *
 * Stores reach memory in any order, but for those to one place; with AT_ONCE, which keeps the search
 * small, in the order of the ranks' steps.
 *
 * With DIES, the last rank may stop at any time, and then waits are aborted. With DIFFERS, it calls
 * something else in some call: packet 0 says so. Who waits for long looks at it, of all ranks, in the
 * first call that it has not taken, and in the PENDING calls before: others may wait there, or have
 * ended, though this rank needs nothing from them. For each of its last PENDING calls it has a record,
 * what it has called. Who sees a difference ends with an error, and its rank neither takes nor starts
 * anything more. So do all ranks that wait; nobody tells them. Not among these calls is one that all
 * take though they differ, since nobody needs anything from who calls another: the last rank's Bcast
 * from itself, where the others' root is another. Who looks in time ends with an error there, and who
 * has gone on may have no record of that call any more, and wait for the former.
 *
 * Who looks does not have the lock. Meanwhile another thread of the rank may have begun call
 * n + PENDING, whose record takes the place of that of n before it counts as started. That begins when
 * all ranks are known to have taken n: one asks this afterwards, and believes what has been found only
 * where they are not.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_CREDIT 1              /* a start does not look */
#define CREDIT_OF_ONE 2          /* or looks at the credit of the next rank only */
#define NOT_ITS_OWN 3            /* or not at what its own rank has taken */
#define WINDOW_TOO_LARGE 4       /* it begins a call too early */
#define CREDIT_BEFORE_READ 5     /* credit for a call is told before its packets have been read */
#define STEP_TOO_LARGE 6         /* it is told every PENDING + 1 calls */
#define OUT_OF_ORDER 7           /* a wait takes its own call only: those before pass for taken */
#define NO_LOCK 8                /* two threads take at once */
#define NO_PROGRESS_IN_START 9   /* a start that waits takes nothing */
#define NO_PROGRESS_ELSEWHERE 10 /* nor does a receive */
#define SILENT_IN_BCAST 11       /* who gives no bytes stores nothing */
#define ALL_NUMBERS_WRAP 12      /* those of the second packet, too */
#define NO_SIGNATURE 13          /* packet 0 does not say which call it is */
#define ONLY_OWN_CALL 14         /* a thread looks at its own call, not the next, whether it differs */
#define ONLY_THIS_CALL 15        /* or not at those before */
#define ONE_FEWER_BEFORE 16      /* or at PENDING - 1 of them */
#define ONLY_IF_OPEN 17          /* or at none where the rank has taken all that it has started */
#define NO_SECOND_LOOK 18        /* or does not ask afterwards whether the record is the call's */
#define ASKS_STARTED 19          /* or asks whether call n + PENDING has been started, not begun */
#define NO_END_BY_ABORT 20

#define IF(name) (mutation == name)

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef PENDING
#define PENDING 2
#endif
#ifndef CREDIT_STEP
#define CREDIT_STEP 1
#endif
#define STEP (IF(STEP_TOO_LARGE) -> PENDING + 1 : CREDIT_STEP)
#define NUMBERS (3 * PENDING)
#define NOTHING 255

/* What a call is: a Bcast from that rank, one of these, or a Gather to a rank (GATHER + it). */
#define ALLREDUCE RANKS
#define BARRIER (RANKS + 1)
#define SCAN (RANKS + 2)
#define GATHER (RANKS + 3)
#ifdef ALL_KINDS
#define LAST_KIND (GATHER + RANKS - 1)
#else
#define LAST_KIND BARRIER
#endif

/* The order of a rank. */
#define ANY 0
#define FIRST 1
#define IN_TURN 2
#define LAGS 3

/* Places: packet p in the inbox of a call at rank ``to``, for source ``from``; credit of ``from``. */
#define PLACE(to, k, from, p) ((((to) * PENDING + (k) % PENDING) * RANKS + (from)) * 2 + (p))
#define CREDITS (RANKS * PENDING * RANKS * 2)
#define CREDIT(to, from) (CREDITS + (to) * RANKS + (from))
#define PLACES (CREDITS + RANKS * RANKS)
#define OTHER 100

byte there[PLACES];  /* a call; in packet 0 with another signature OTHER more; credit: calls */
byte flying[PLACES];
byte kind[CALLS];
byte record[RANKS * PENDING]; /* what a rank keeps of its calls: their numbers */
byte started[RANKS];
byte taken[RANKS];
bool locked[RANKS];
byte got[RANKS];     /* a bit for each call that has been read */
byte waited[RANKS];  /* a bit for each one that some thread has waited for, or does */
byte order[RANKS];
byte odd = NOTHING;  /* the call in which the last rank calls something else */
byte odd_kind;
bool broken[RANKS];  /* a thread has seen that calls differ */
bool aborted;

#define BELOW(k) ((1 << (k)) - 1)
#define GOT(rank, k) ((got[rank] >> (k)) & 1)
#define OPEN (BELOW(started[me]) & ~waited[me])
#define IS_ODD(k) ((k) == odd && me == RANKS - 1)
#define KIND(k) (IS_ODD(k) -> odd_kind : kind[k])

/* Whether a rank waits for what we store in a call; whether data are wanted from one, and packet 0;
 * whether they are there. */
#define GIVES(k, to) ((to) != me && (KIND(k) == me || KIND(k) == ALLREDUCE || KIND(k) == BARRIER || \
    KIND(k) == GATHER + (to) || (KIND(k) == SCAN && me < (to))))
#define DATA(k, from) ((from) != me && (KIND(k) == (from) || KIND(k) == ALLREDUCE || \
    KIND(k) == GATHER + me || (KIND(k) == SCAN && (from) < me)))
#define CALL(k, from) (DATA(k, from) || ((from) != me && KIND(k) == BARRIER))
#define SAYS(k, from, p) there[PLACE(me, k, from, p)]
#define SAME(a, b) ((a) != NOTHING && (a) % OTHER % NUMBERS == (b) % NUMBERS)
#define HERE(k, from) SAME(SAYS(k, from, 0), k)
#define FITS(k, from) ((SAYS(k, from, 0) >= OTHER) == IS_ODD(k) || IF(NO_SIGNATURE))
#define DATA_HERE(k, from) (SAYS(k, from, 1) == (k) || (IF(ALL_NUMBERS_WRAP) && SAME(SAYS(k, from, 1), k)))
#define COME(k, from) ((!CALL(k, from) || (HERE(k, from) && FITS(k, from))) && \
    (!DATA(k, from) || DATA_HERE(k, from)))
#define RECORD(k) record[me * PENDING + (k) % PENDING]
#define ANOTHER(k, from) ((from) != me && HERE(k, from) && (!FITS(k, from) || RECORD(k) != (k)))

/* Whether a rank is known to have taken the call before in the inboxes of call k. */
#define ENOUGH(calls, k) ((calls) + PENDING + IF(WINDOW_TOO_LARGE) > (k))
#define FREE_AT(k, to) (((to) == me && (ENOUGH(taken[me], k) || IF(NOT_ITS_OWN))) || ((to) != me && \
    (ENOUGH(there[CREDIT(me, to)], k) || (IF(CREDIT_OF_ONE) && (to) != (me + 1) % RANKS))))
#define LANDED_AT(k, to) ((to) == me || \
    (flying[PLACE(to, k, me, 0)] == NOTHING && flying[PLACE(to, k, me, 1)] == NOTHING))
#if RANKS == 2
#define ALL(what, k) (what(k, 0) && what(k, 1))
#define ONE(what, k) (what(k, 0) || what(k, 1))
#else
#define ALL(what, k) (what(k, 0) && what(k, 1) && what(k, 2))
#define ONE(what, k) (what(k, 0) || what(k, 1) || what(k, 2))
#endif
#define MAY_START(k) (IF(NO_CREDIT) || ALL(FREE_AT, k))
#define RECEIVED(k) (order[me] != LAGS || started[0] == CALLS || started[0] > (k) + PENDING - CREDIT_STEP)
#define ENDED (aborted && !IF(NO_END_BY_ABORT))

#ifdef AT_ONCE
#define fly(place, what) there[place] = what
#else
#define fly(place, what) flying[place] = what
#endif

/* It may land at once: what was there must have been read. */
inline store(p, what) {
    assert(k < PENDING || GOT(peer, k - PENDING));
    fly(PLACE(peer, k, me, p), what)
}

inline start() {
    if
    :: kind[k] == NOTHING -> select(peer : 0 .. LAST_KIND); kind[k] = peer
    :: else
    fi;
    d_step {
        RECORD(k) = k;
        for (peer : 0 .. RANKS - 1) {
            if
            :: peer != me && (GIVES(k, peer) || !IF(SILENT_IN_BCAST)) ->
                store(0, k + (IS_ODD(k) -> OTHER : 0))
            :: else
            fi;
            if :: GIVES(k, peer) && KIND(k) != BARRIER -> store(1, k) :: else fi
        };
        peer = 0;
        started[me] = k + 1
    }
}

inline read() {
    assert(!GOT(me, call));
    got[me] = got[me] | (1 << call);
    assert(RECORD(call) == call);
    for (peer : 0 .. RANKS - 1) {
        assert(!CALL(call, peer) || SAYS(call, peer, 0) % OTHER == call);
        assert(!DATA(call, peer) || SAYS(call, peer, 1) == call);
        assert(!CALL(call, peer) || call != odd || (me != RANKS - 1 && peer != RANKS - 1))
    };
    peer = 0
}

/* Where credit is still flying, more of it takes its place: nobody minds the first. */
inline tell() {
    for (peer : 0 .. RANKS - 1) {
        if
        :: peer != me && (call + 1) % STEP == 0 -> fly(CREDIT(peer, me), call + 1)
        :: else
        fi
    };
    peer = 0
}

/* What a thread does next: k is the call that it starts, or waits for. */
inline choose() {
    if
    :: starts && !broken[me] && started[me] < CALLS && (order[me] != IN_TURN || OPEN == 0) ->
        k = started[me]
    :: OPEN != 0 && (!starts || order[me] == ANY || order[me] == IN_TURN || started[me] == CALLS) ->
        k = CALLS - 1; /* the last one, or any */
        do
        :: (OPEN >> k) & 1 -> break
        :: !((OPEN >> k) & 1) || ((!starts || order[me] == ANY) && (OPEN & BELOW(k)) != 0) -> k--
        od;
        waited[me] = waited[me] | (1 << k)
    :: waited[me] == BELOW(CALLS) -> goto stop
    :: broken[me] || ENDED -> goto stop
    fi
}

#define STARTING (k == started[me])
/* Whether a thread takes calls: one that waits for a call, for credit, or for a message. */
#define TAKES ((!STARTING && taken[me] <= k) || \
    (STARTING && RECEIVED(k) && !MAY_START(k) && !IF(NO_PROGRESS_IN_START)) || \
    (STARTING && !RECEIVED(k) && !IF(NO_PROGRESS_ELSEWHERE)))
#define NEXT (IF(OUT_OF_ORDER) && !STARTING -> k : taken[me])

/* Whether a thread looks for calls that differ; at which; whether it sees one there. */
#define LOOKS ((STARTING && RECEIVED(k) && !MAY_START(k)) || (!STARTING && taken[me] <= k))
#define FIRST_OPEN (IF(ONLY_OWN_CALL) -> k : taken[me])
#define BEFORE (PENDING - IF(ONE_FEWER_BEFORE))
#define LOOKS_BEFORE(lag) (taken[me] >= (lag) && (lag) <= BEFORE && !IF(ONLY_THIS_CALL) && \
    (!IF(ONLY_IF_OPEN) || taken[me] < started[me]))
#define IS_SURE(n) (IF(NO_SECOND_LOOK) || (IF(ASKS_STARTED) && started[me] <= (n) + PENDING) || \
    (!IF(ASKS_STARTED) && !ALL(FREE_AT, (n) + PENDING)))
#define SEES(n) (ONE(ANOTHER, n) && IS_SURE(n))
#define SEES_BEFORE(lag) (LOOKS_BEFORE(lag) && SEES(taken[me] - (lag)))
#define SEES_ANY ((FIRST_OPEN < started[me] && SEES(FIRST_OPEN)) || \
    SEES_BEFORE(1) || SEES_BEFORE(2) || SEES_BEFORE(3))

#ifdef TWO_WAITERS
#define ALONE (me != 0)
#else
#define ALONE true
#endif
#ifdef AT_ONCE
#define LANDED(k) true
#else
#define LANDED(k) ALL(LANDED_AT, k)
#endif

proctype Thread(byte me; bool starts) {
    byte k, call, peer;
    atomic { choose() };
again:
    do
    :: atomic { STARTING && RECEIVED(k) && MAY_START(k) && LANDED(k) ->
           if
           :: ALONE -> start(); choose()
           :: else -> RECORD(k) = k; goto stores
           fi }
    :: atomic { !STARTING && taken[me] > k -> assert(GOT(me, k)); choose() }
    :: atomic { TAKES && taken[me] < started[me] && !broken[me] && (!locked[me] || IF(NO_LOCK)) &&
           ALL(COME, NEXT) ->
           locked[me] = true; call = NEXT;
           if
           :: !ALONE || IF(CREDIT_BEFORE_READ) -> goto takes
           :: else -> d_step { read(); taken[me] = call + 1; tell(); call = 0; locked[me] = false }
           fi }
    :: ALONE && LOOKS && SEES_ANY -> goto differs
    :: atomic { !ALONE && LOOKS ->
           if
           :: FIRST_OPEN < started[me] -> call = FIRST_OPEN
           :: LOOKS_BEFORE(1) -> call = taken[me] - 1
           :: LOOKS_BEFORE(2) -> call = taken[me] - 2
           :: LOOKS_BEFORE(3) -> call = taken[me] - 3
           fi;
           goto looks }
    :: ENDED -> goto stop
#ifdef DIES
    :: me == RANKS - 1 -> aborted = true; goto stop
#endif
    od;
stores:
    atomic { start(); choose() };
    goto again;
takes:
    if :: IF(CREDIT_BEFORE_READ) -> d_step { tell() } :: else fi;
    d_step { read() };
    taken[me] = call + 1;
    d_step { if :: IF(CREDIT_BEFORE_READ) :: else -> tell() fi; call = 0; locked[me] = false };
    goto again;
looks:
    atomic { if :: SEES(call) -> goto differs :: else -> call = 0; goto again fi };
differs:
    atomic { assert(odd != NOTHING); broken[me] = true };
stop:
    skip
}

proctype Store(byte place) {
end:
    do
    :: atomic { flying[place] != NOTHING -> there[place] = flying[place]; flying[place] = NOTHING }
    od
}

init {
    byte place;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (place : 0 .. CALLS - 1) { kind[place] = NOTHING }
#ifdef DIFFERS
        select(odd : 0 .. CALLS - 1);
        select(odd_kind : 0 .. LAST_KIND);
        select(place : 0 .. LAST_KIND);
        kind[odd] = (place < RANKS - 1 && odd_kind == RANKS - 1 -> odd_kind : place);
#endif
        for (place : 0 .. PLACES - 1) {
            there[place] = (place < CREDITS -> NOTHING : 0); flying[place] = NOTHING;
#ifndef AT_ONCE
            if
            :: place < CREDITS && place / 2 % RANKS != place / (2 * RANKS * PENDING) -> run Store(place)
            :: place >= CREDITS && (place - CREDITS) % RANKS != (place - CREDITS) / RANKS -> run Store(place)
            :: else
            fi
#endif
        }
        for (place : 0 .. RANKS - 1) {
#ifdef ONE_LAGS
            order[place] = (place == RANKS - 1 -> LAGS : FIRST);
#else
#ifdef ORDER
            order[place] = ORDER;
#else
            if :: order[place] = FIRST :: order[place] = IN_TURN fi;
#endif
#endif
            run Thread(place, true)
        }
#ifdef TWO_WAITERS
        run Thread(0, false)
#endif
    }
}

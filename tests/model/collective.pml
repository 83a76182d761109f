/* Collectives of the direct road: all ranks of a communicator call the same ones, a round each.
 *
 * Any sequence of Allreduces, Barriers, Scans, and Bcasts from and Gathers to any root; a Reduce is a
 * Gather here, and an Allgather, an Alltoall or a Reduce_scatter_block an Allreduce. In each round every rank stores
 * packet 0 to every other one, and a second packet where its bytes are wanted: to one of two inboxes
 * for each source, in turn. Who has stored packet 0 has *entered* the round, and has read all of the
 * one before.
 *
 *     Allreduce   waits for both packets of all.
 *     Barrier     waits for packet 0 of all.
 *     Bcast       waits for both packets of the root, which itself waits for nobody. So whether all
 *                 have entered it is not known: the next round looks, before it stores.
 *     Gather      the root waits for both packets of all, who do not wait: they look afterwards.
 *     Scan        waits for both packets of the ranks before: all but the last rank look.
 *
 * The numbers in packet 0 wrap; those in the second packet do not, because it may have been left
 * from any round before. What is there when a wait begins is read then, and all is read at its end.
 * Stores reach memory in any order, but for those to one place; with AT_ONCE, which keeps the search
 * small, in the order of the ranks' steps. With FEW_KINDS there are no Scans and Gathers.
 *
 * With DIES, the last rank may stop at any round, and then waits are aborted. With DIFFERS, it calls
 * something else in some round: packet 0 says so, and all ranks end with an error.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_LOOK 1             /* nobody looks whether all have entered a Bcast */
#define LOOKS_AT_ROOT 2       /* or only whether its root has */
#define ONE_INBOX 3           /* all rounds go to the same inbox */
#define NUMBERS_OF_ONE_BIT 4  /* packet 0 of a round passes for that of the one before the last */
#define ALL_NUMBERS_WRAP 5    /* those of the second packet, too */
#define ENTERS_TOO_EARLY 6    /* packet 0 of a round is stored before the last one has been read */
#define SILENT_IN_BCAST 7     /* who only receives does not say that it has entered */
#define BARRIER_OF_SOME 8     /* a Barrier waits for the next rank only */
#define NO_SIGNATURE 9        /* packet 0 does not say which call it is */
#define NO_END_BY_ABORT 10
#define NO_LOOK_AFTER_GATHER 11
#define NO_LOOK_AFTER_SCAN 12

#define IF(name) (mutation == name)

#ifndef RANKS
#define RANKS 2
#endif
#ifndef ROUNDS
#define ROUNDS 5
#endif
#define NUMBERS 4
#define NOTHING 255
#define FIRST_NUMBER(k) ((k) % (NUMBERS - 2 * IF(NUMBERS_OF_ONE_BIT)))
#define NUMBER(k, p) ((p) == 0 -> FIRST_NUMBER(k) : (IF(ALL_NUMBERS_WRAP) -> (k) % NUMBERS : (k)))

/* What a round is: a Bcast from that rank, one of these, or a Gather to a rank (GATHER + it). */
#define ALLREDUCE RANKS
#define BARRIER (RANKS + 1)
#define SCAN (RANKS + 2)
#define GATHER (RANKS + 3)
#ifdef FEW_KINDS
#define LAST_KIND BARRIER
#else
#define LAST_KIND (GATHER + RANKS - 1)
#endif
#define IS_BCAST(k) (kind[k] < RANKS)
/* Whether we have waited for all in a round, and so know that all have entered it. */
#define KNOWS(k) (kind[k] == ALLREDUCE || kind[k] == BARRIER || kind[k] == GATHER + me || \
    (kind[k] == SCAN && me == RANKS - 1))

/* Places: packet p in the inbox of a round at rank ``to``, for source ``from``. */
#define INBOX(k) ((k) % 2 * !IF(ONE_INBOX))
#define PLACE(to, k, from, p) ((((to) * 2 + INBOX(k)) * RANKS + (from)) * 2 + (p))
#define PLACES (RANKS * 2 * RANKS * 2)
#define OTHER 100

byte kind[ROUNDS + 1];
byte number[PLACES];
byte value[PLACES]; /* the round; in packet 0 with another signature OTHER more */
byte flying_number[PLACES];
byte flying_value[PLACES];
byte entered[RANKS]; /* rounds */
byte odd;            /* the round in which the last rank calls something else; 0: none */
bool aborted;

#define HERE(k, from, p) (number[PLACE(me, k, from, p)] == NUMBER(k, p))
#define SAYS(k, from, p) (value[PLACE(me, k, from, p)])
#define IS_ODD(k) ((k) == odd && me == RANKS - 1 && !IF(NO_SIGNATURE))
#define SIGNED(k) ((k) + (IS_ODD(k) -> OTHER : 0))
#define SENDS(k) (kind[k] == ALLREDUCE || kind[k] == me || kind[k] >= SCAN)

/* Whether data of a round are wanted from a rank, and packet 0; whether they are there. */
#define DATA(k, from) ((from) != me && (kind[k] == ALLREDUCE || kind[k] == (from) || \
    kind[k] == GATHER + me || (kind[k] == SCAN && (from) < me)))
#define CALL(k, from) ((from) != me && (DATA(k, from) || \
    (kind[k] == BARRIER && (!IF(BARRIER_OF_SOME) || (from) == (me + 1) % RANKS))))
#define FITS(k, from) ((SAYS(k, from, 0) >= OTHER) == IS_ODD(k))
#define GOOD(k, from) (HERE(k, from, 0) && FITS(k, from))
#define COME(k, from) ((!CALL(k, from) || GOOD(k, from)) && (!DATA(k, from) || HERE(k, from, 1)))
#define LOOKED(k, from) ((from) == me || GOOD(k, from) || (IF(LOOKS_AT_ROOT) && (from) != kind[k] && (from) + GATHER != kind[k]))
#define ANOTHER(k, from) ((from) != me && HERE(k, from, 0) && !FITS(k, from))
#if RANKS == 2
#define ALL(what, k) (what(k, 0) && what(k, 1))
#define ONE(what, k) (what(k, 0) || what(k, 1))
#else
#define ALL(what, k) (what(k, 0) && what(k, 1) && what(k, 2))
#define ONE(what, k) (what(k, 0) || what(k, 1) || what(k, 2))
#endif
#define ENDED (aborted && !IF(NO_END_BY_ABORT))

#define LANDED(j, p) \
    (flying_number[PLACE((me + 1) % RANKS, j, me, p)] == NOTHING && \
     flying_number[PLACE((me + RANKS - 1) % RANKS, j, me, p)] == NOTHING)

/* To all others. */
inline store(j, p) {
    d_step {
        LANDED(j, p) ->
        for (peer : 0 .. RANKS - 1) {
            if
            :: peer != me ->
#ifdef AT_ONCE
                value[PLACE(peer, j, me, p)] = (p == 0 -> SIGNED(j) : j);
                number[PLACE(peer, j, me, p)] = NUMBER(j, p)
#else
                flying_value[PLACE(peer, j, me, p)] = (p == 0 -> SIGNED(j) : j);
                flying_number[PLACE(peer, j, me, p)] = NUMBER(j, p)
#endif
            :: else
            fi
        };
        peer = 0
    }
}

/* What a wait finds of packet 0, of the second one. */
inline right(j) {
    for (peer : 0 .. RANKS - 1) {
        assert(!CALL(j, peer) || !GOOD(j, peer) || SAYS(j, peer, 0) == SIGNED(j));
        assert(!DATA(j, peer) || !HERE(j, peer, 1) || SAYS(j, peer, 1) == j)
    };
    peer = 0
}

proctype Rank(byte me) {
    byte k, peer;
    for (k : 1 .. ROUNDS) {
#ifdef DIES
        if :: me == RANKS - 1 -> aborted = 1; goto stop :: true fi;
#endif
        atomic {
            if
            :: kind[k] == NOTHING -> select(peer : 0 .. LAST_KIND); kind[k] = peer; peer = 0
            :: else
            fi
        };
        if
        :: k == 1 || KNOWS(k - 1) || IF(NO_LOOK) || (IF(NO_LOOK_AFTER_GATHER) && kind[k - 1] > SCAN) ||
           (IF(NO_LOOK_AFTER_SCAN) && kind[k - 1] == SCAN) || ALL(LOOKED, k - 1)
        :: k > 1 && !KNOWS(k - 1) && !IF(NO_LOOK) && ONE(ANOTHER, k - 1) -> goto stop
        :: ENDED -> goto stop
        fi;
        entered[me] = k;
        if
        :: (k > 1 && IF(ENTERS_TOO_EARLY)) || (IF(SILENT_IN_BCAST) && IS_BCAST(k) && !SENDS(k))
        :: else -> store(k, 0)
        fi;
        if :: SENDS(k) -> store(k, 1) :: else fi;
        if :: IF(ENTERS_TOO_EARLY) && k < ROUNDS -> store(k + 1, 0) :: else fi;
        d_step { right(k) };
        if
        :: d_step { ALL(COME, k) ->
            right(k);
            for (peer : 0 .. RANKS - 1) { assert(kind[k] != BARRIER || entered[peer] >= k) };
            peer = 0;
            assert(odd == 0 || k <= odd) }
        :: ONE(ANOTHER, k) -> goto stop
        :: ENDED -> goto stop
        fi
    }
stop:
    skip
}

proctype Store(byte place) {
end:
    do
    :: atomic { flying_number[place] != NOTHING ->
           number[place] = flying_number[place]; value[place] = flying_value[place];
           flying_number[place] = NOTHING }
    od
}

init {
    byte place;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
#ifdef DIFFERS
        select(odd : 1 .. ROUNDS - 1);
#endif
        for (place : 0 .. ROUNDS) { kind[place] = NOTHING }
        for (place : 0 .. PLACES - 1) {
            number[place] = NOTHING; flying_number[place] = NOTHING;
#ifndef AT_ONCE
            if
            :: place / 2 % RANKS != place / (4 * RANKS) -> run Store(place)
            :: else
            fi
#endif
        }
        for (place : 0 .. RANKS - 1) { run Rank(place) }
    }
}

/* Partitioned requests of the direct road: two ranks, each with a send to the other and a receive
 * from it, of two partitions each.
 *
 * In every round each rank starts its send, makes both partitions ready, starts its receive, and
 * waits for both requests. Ready comes before the other rank has started, as MPI allows.
 *
 *     Start of a receive   stores the *credit*, how many rounds have been started, at the sender.
 *     Ready                stores the partition if the credit allows it; else leaves it as *late*.
 *     Wait                 takes what has come, and stores what is late.
 *
 * With STORES: bytes go straight to the receiver's buffer, when this round has been started there;
 * behind a fence comes the flag, the number of the round. Otherwise packets, bytes with the number
 * of the round, go to one of two inboxes in turn, when the round before has been started.
 *
 * The ends do not know each other at first. The host opens the receive, then the send. A receive
 * that was started before that has given no credit: the host gives it. Both look after they have
 * stored.
 *
 * Stores reach memory in any order, but for those to one place. Numbers wrap. With ONE_WAY, rank 0
 * only sends, so that it may be ahead of rank 1, which only receives. With DIES, rank 1 may stop at
 * any round, and then waits are aborted.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_CREDIT 1           /* a partition is stored whenever it is ready */
#define CREDIT_TOO_LARGE 2    /* a Start promises one round too many */
#define ONE_INBOX 3           /* all rounds go to the same inbox */
#define NUMBERS_OF_ONE_BIT 4  /* packets of a round pass for those of the one before the last */
#define NEVER_LATE 5          /* Ready waits for the receiver */
#define LATE_FOR_EVER 6       /* nobody stores what is late */
#define NO_FENCE_BEFORE_FLAG 7
#define NO_SECOND_LOOK 8      /* Start does not look again whether the host has opened the receive */
#define NO_LOOK_OF_HOST 9     /* the host does not look whether it has been started */
#define NO_END_BY_ABORT 10

#define IF(name) (mutation == name)

#ifndef ROUNDS
#define ROUNDS 5
#endif
#define NUMBERS 4
#define NOTHING 255
#define NUMBER(k) ((k) % (NUMBERS - 2 * IF(NUMBERS_OF_ONE_BIT)))

/* Places of direction d, from rank d to the other: a partition in each inbox, or in the buffer; its
 * flag; the credit. */
#define INBOX(k) ((k) % 2 * !IF(ONE_INBOX))
#ifdef STORES
#define BYTES(d, k, p) ((d) * 7 + (p))
#define AHEAD 0
#else
#define BYTES(d, k, p) ((d) * 7 + 2 * INBOX(k) + (p))
#define AHEAD 1
#endif
#define FLAG(d, p) ((d) * 7 + 4 + (p))
#define CREDIT(d) ((d) * 7 + 6)
#define PLACES 14

byte number[PLACES];
byte value[PLACES];
byte flying_number[PLACES];
byte flying_value[PLACES];
byte buffer[2];     /* what a rank sends: its round */
byte started[2];    /* receives of a direction */
bool opened[2];     /* at the receiver of a direction */
bool known[2];      /* at its sender */
bool aborted;

#define LANDED(place) (flying_number[place] == NOTHING)
#define MAY(d, k) (known[d] && (IF(NO_CREDIT) || number[CREDIT(d)] + AHEAD >= (k)))
#ifdef STORES
#define HERE(d, k, p) (number[FLAG(d, p)] == NUMBER(k))
#else
#define HERE(d, k, p) (number[BYTES(d, k, p)] == NUMBER(k))
#endif
#ifdef ONE_WAY
#define SENDS(me) ((me) == 0)
#define RECEIVES(me) ((me) == 1)
#else
#define SENDS(me) 1
#define RECEIVES(me) 1
#endif
#define ENDED (aborted && !IF(NO_END_BY_ABORT))

inline fly(place, n, v) { flying_value[place] = v; flying_number[place] = n }

inline store(p) {
    atomic { LANDED(BYTES(me, k, p)) -> fly(BYTES(me, k, p), NUMBER(k), buffer[me]) }
#ifdef STORES
    atomic { LANDED(FLAG(me, p)) && (LANDED(BYTES(me, k, p)) || IF(NO_FENCE_BEFORE_FLAG)) ->
        fly(FLAG(me, p), NUMBER(k), 0) }
#endif
}

inline ready(p) {
    if
    :: MAY(me, k) -> store(p); sent[p] = 1
    :: !MAY(me, k) && !IF(NEVER_LATE)
    :: ENDED -> goto stop
    fi
}

inline give_credit(d, n) {
    atomic { LANDED(CREDIT(d)) -> fly(CREDIT(d), n + IF(CREDIT_TOO_LARGE), 0) }
}

proctype Rank(byte me) {
    byte k;
    bool sent[2], taken[2], knew;
    for (k : 1 .. ROUNDS) {
#ifdef DIES
        if :: me == 1 -> aborted = 1; goto stop :: true fi;
#endif
        d_step {
            buffer[me] = k; sent[0] = !SENDS(me); sent[1] = !SENDS(me);
            taken[0] = !RECEIVES(me); taken[1] = !RECEIVES(me)
        };
        if :: SENDS(me) -> ready(0); ready(1) :: else fi;
#ifdef STORES
        /* What came in the last round is the user's until now. */
        assert(k == 1 || !RECEIVES(me) || (value[BYTES(1 - me, k, 0)] == k - 1 && value[BYTES(1 - me, k, 1)] == k - 1));
#endif
        if :: RECEIVES(me) -> knew = opened[1 - me]; started[1 - me] = k :: else fi;
        if
        :: !RECEIVES(me)
        :: RECEIVES(me) && (knew || (opened[1 - me] && !IF(NO_SECOND_LOOK))) -> give_credit(1 - me, k)
        :: else
        fi;
        do
        :: !taken[0] && opened[1 - me] && HERE(1 - me, k, 0) ->
            assert(value[BYTES(1 - me, k, 0)] == k); taken[0] = 1
        :: !taken[1] && opened[1 - me] && HERE(1 - me, k, 1) ->
            assert(value[BYTES(1 - me, k, 1)] == k); taken[1] = 1
        :: !sent[0] && MAY(me, k) && !IF(LATE_FOR_EVER) -> store(0); sent[0] = 1
        :: !sent[1] && MAY(me, k) && !IF(LATE_FOR_EVER) -> store(1); sent[1] = 1
        :: taken[0] && taken[1] && sent[0] && sent[1] -> break
        :: ENDED -> goto stop
        od
    }
stop:
    skip
}

proctype Host(byte d) {
    opened[d] = 1;
#ifdef STORES
    if
    :: started[d] > 0 && !IF(NO_LOOK_OF_HOST) -> give_credit(d, 1)
    :: else
    fi;
#endif
    known[d] = 1
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
        for (place : 0 .. PLACES - 1) {
            number[place] = NOTHING; flying_number[place] = NOTHING;
            run Store(place)
        }
        number[CREDIT(0)] = 0; number[CREDIT(1)] = 0;
        run Rank(0); run Rank(1); run Host(0); run Host(1)
    }
}

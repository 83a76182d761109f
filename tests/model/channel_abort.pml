/* The end of a channel of the direct road by an abort, at any moment, and the context that follows.
 *
 * Rank 0 sends a short message and a long one, rank 1 receives them, each by two blocks. The channel
 * has one slot; see channel.pml for what is the same. Each host may abort the waits of its own
 * kernel (Synchronization.abort), as it does when the other rank is said to have gone.
 *
 *     send       looks for its credit, and a long one for the announcement. If neither comes and
 *                waits are aborted, the call ends with an error, and what is left of the message is
 *                never sent (row_requests.finish_rest, pacing.long_wait).
 *     receive    the same of its message. While it takes packets it looks at the abort word as well:
 *                then nothing is noted of the message (packets.await_packet, receives.advance_receive).
 *                An aborted wait keeps its claim: nobody goes on with that request. What nobody has
 *                waited for stays open, and any wait of the kernel may go on with it, and store to
 *                its buffer.
 *     host       waits until its kernel has ended (shutdown.release), which is when all that it has
 *                stored has landed. The user gets the error, and may free ordinary arrays. Another
 *                kernel may be launched: it is told of the abort before, and goes on with nothing
 *                of what was left open (process._tell_of_abort, going_on.take_a_step). Then the
 *                context closes.
 *     memory     inbox, cells and registered arrays, to which the other rank stores, are given back
 *                when *both* ranks open their next context, and so have closed this one
 *                (Exported.__init__). Then each clears its own, and nobody begins before both have
 *                (Peers.__init__): numbers begin from 0 again.
 *
 * What the next context sends must arrive, without an abort. With DIES, rank 0 is killed at any
 * moment: what it has stored and has not landed never does. Rank 1 is aborted then.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_END_OF_CREDIT 1         /* a send that waits for its slot does not look at the abort */
#define NO_END_OF_ANNOUNCEMENT 2   /* nor does one that waits for its receiver */
#define NO_END_OF_RECEIVE 3        /* nor a receive that waits for its message */
#define NO_END_OF_PACKETS 4        /* nor one that has found its first packet */
#define NOTED_AFTER_ABORT 5        /* a message of which packets lack counts as taken */
#define HELPER_KEEPS_CLAIM 6       /* a helper that was aborted does not let go of the request */
#define LATER_KERNEL_HELPS 7       /* a later kernel goes on with what was left open */
#define CLOSES_TOO_EARLY 8         /* the host does not wait for its kernel */
#define FREED_AT_CLOSE 9           /* registered arrays go when their owner closes */
#define NO_MEETING_BEFORE_CLEAR 10 /* a rank clears while the other has not closed */
#define NO_MEETING_AFTER_CLEAR 11  /* a rank begins before the other has cleared */
#define NO_CLEAR 12                /* the next context finds what this one has left */

#define IF(name) (mutation == name)

#define BLOCKS 2
#define SHORT 0
#define LONG 1

/* Places: in rank 1's memory up to CREDIT, then in rank 0's. */
#define FIRST 0         /* packet 0: what kind of message it is */
#define SECOND 1        /* packet 1: a short message's bytes; of a long one, that all is there */
#define ARRAY(i) (2 + (i)) /* registered, of receive i */
#define IS_ARRAY(place) ((place) >= ARRAY(0) && (place) < CREDIT)
#define CREDIT 4
#define ANNOUNCED 5
#define PLACES 6
#define OWNER(place) ((place) < CREDIT -> 1 : 0)
#define WRITER(place) ((place) < CREDIT -> 0 : 1)

byte number[PLACES];   /* + 1; 0: fresh memory */
byte value[PLACES];
byte flying_number[PLACES];
byte flying_value[PLACES];
bit flying_for[PLACES]; /* context */

/* Requests of rank 1. */
#define NONE 0
#define OPEN 1
#define CLAIMED 2 /* by a wait */
#define HELPED 3
#define BEGINS 0
#define ROUNDS 1
#define DONE 2
byte owner[BLOCKS];
byte stage[BLOCKS];
byte message[BLOCKS]; /* its number */
bool right[BLOCKS];   /* what came is in the buffer */
bool gone[BLOCKS];    /* the user has freed the buffer of a short message */

/* Of each rank. */
byte drawn[2];
byte started[2];       /* kernels, one for each context */
byte ended[2];         /* blocks of the last one */
bool aborted[2];
bool closed[2];
bit life[2];           /* for which context its memory is */
bool cleared[2];
bool dead;             /* rank 0 */

#define LANDED(place) (flying_number[place] == 0)
#define NOTHING_FLIES(rank) (rank == 0 -> \
    LANDED(FIRST) && LANDED(SECOND) && LANDED(ARRAY(0)) && LANDED(ARRAY(1)) : \
    LANDED(CREDIT) && LANDED(ANNOUNCED))
#define ENDED(rank) (ended[rank] == BLOCKS && NOTHING_FLIES(rank))

inline fly(where, what, with) {
    flying_number[where] = (what) + 1; flying_value[where] = with; flying_for[where] = context
}

proctype Store(byte place) {
end:
    do
    :: atomic { !LANDED(place) ->
           if
           :: dead && WRITER(place) == 0
           :: else ->
               /* Memory of the context that stores, which is mapped. */
               assert(flying_for[place] == life[OWNER(place)]);
               assert(flying_for[place] == 1 || !closed[WRITER(place)]);
               assert(flying_for[place] == 1 || !closed[1] || !IS_ARRAY(place) ||
                   !IF(FREED_AT_CLOSE));
               number[place] = flying_number[place]; value[place] = flying_value[place]
           fi;
           flying_number[place] = 0; flying_value[place] = 0; flying_for[place] = 0 }
    od
}

/* --- kernels ----------------------------------------------------------------------------------- */

proctype Sender(byte me) { /* block 0 sends the short message, block 1 the long one */
    byte n, to;
    bit context;
end_again:
    atomic { started[0] == context + 1 -> n = drawn[0]; drawn[0]++ };
    if
    :: atomic { (n == 0 || number[CREDIT] == n) && LANDED(FIRST) && LANDED(SECOND) ->
           fly(FIRST, n, me);
           if :: me == SHORT -> fly(SECOND, n, n) :: else fi }
    :: aborted[0] && !IF(NO_END_OF_CREDIT) -> goto stop
    fi;
    if
    :: me == LONG ->
        if
        :: atomic { number[ANNOUNCED] == n + 1 -> to = value[ANNOUNCED]; fly(ARRAY(to), n, n) }
        :: aborted[0] && !IF(NO_END_OF_ANNOUNCEMENT) -> goto stop
        fi;
        atomic { LANDED(ARRAY(to)) && LANDED(SECOND) -> to = 0; fly(SECOND, n, 0) }
    :: else
    fi;
stop:
    atomic { n = 0; ended[0]++;
        if :: context == 0 -> context = 1; goto end_again :: else fi }
}

#define HAS_COME(i, place) (number[place] == message[i] + 1)
#define CAN_STEP(i) ((stage[i] == BEGINS && HAS_COME(i, FIRST)) || \
    (stage[i] == ROUNDS && HAS_COME(i, SECOND)))

inline done(i) { stage[i] = DONE; fly(CREDIT, message[i], 0) }

/* One step of a request that the caller has claimed. */
inline step(i, lets_go) {
    if
    :: stage[i] == BEGINS && value[FIRST] == SHORT ->
        if
        :: atomic { HAS_COME(i, SECOND) && LANDED(CREDIT) ->
               assert(!gone[i] && value[SECOND] == message[i]);
               right[i] = true; done(i) }
        :: atomic { aborted[1] && !IF(NO_END_OF_PACKETS) ->
               if
               :: IF(NOTED_AFTER_ABORT) && LANDED(CREDIT) -> done(i)
               :: IF(HELPER_KEEPS_CLAIM) -> lets_go = false
               :: else
               fi }
        fi
    :: stage[i] == BEGINS && value[FIRST] == LONG ->
        atomic { LANDED(ANNOUNCED) -> fly(ANNOUNCED, message[i], i); stage[i] = ROUNDS }
    :: stage[i] == ROUNDS ->
        atomic { LANDED(CREDIT) -> assert(value[ARRAY(i)] == message[i]);
            right[i] = true; done(i) }
    fi
}

proctype Receiver(byte me) {
    bit context;
    bool lets_go = true;
end_again:
    atomic { started[1] == context + 1 -> message[me] = drawn[1]; drawn[1]++;
        owner[me] = OPEN };
    if
    :: context == 0 -> goto stop /* without waiting */
    :: true
    fi;
    atomic { owner[me] == OPEN -> owner[me] = CLAIMED };
    do
    :: stage[me] == DONE -> assert(right[me]); break
    :: CAN_STEP(me) -> step(me, lets_go); lets_go = true
    :: atomic { owner[1 - me] == OPEN && CAN_STEP(1 - me) -> owner[1 - me] = HELPED };
       step(1 - me, lets_go);
       if
       :: atomic { lets_go -> owner[1 - me] = OPEN }
       :: else -> lets_go = true
       fi
    :: aborted[1] && !IF(NO_END_OF_RECEIVE) -> break
    od;
stop:
    atomic { ended[1]++;
        if :: context == 0 -> context = 1; goto end_again :: else fi }
}

/* --- hosts ------------------------------------------------------------------------------------- */

inline clear() {
    if
    :: IF(NO_CLEAR)
    :: else ->
        for (place : 0 .. PLACES - 1) {
            if :: OWNER(place) == me -> number[place] = 0; value[place] = 0 :: else fi
        }
    fi;
    if
    :: me == 1 ->
        for (place : 0 .. BLOCKS - 1) {
            owner[place] = NONE; stage[place] = BEGINS; right[place] = false; gone[place] = false
        }
    :: else
    fi;
    place = 0; drawn[me] = 0; ended[me] = 0; aborted[me] = false; life[me] = 1; cleared[me] = true
}

proctype Host(byte me) {
    byte place;
    bit context;
    bool lets_go;
    started[me] = 1;
    do
    :: ENDED(me) -> break
    :: aborted[me] && IF(CLOSES_TOO_EARLY) -> break
    :: !aborted[me] -> aborted[me] = true
    od;
    if
    :: me == 1 ->
        atomic { gone[0] = true; gone[1] = true };
        if /* a later kernel */
        :: IF(LATER_KERNEL_HELPS) && owner[0] == OPEN && CAN_STEP(0) -> step(0, lets_go)
        :: IF(LATER_KERNEL_HELPS) && owner[1] == OPEN && CAN_STEP(1) -> step(1, lets_go)
        :: true
        fi;
        NOTHING_FLIES(1)
    :: else
    fi;
    closed[me] = true;
    if
    :: closed[1 - me] || IF(NO_MEETING_BEFORE_CLEAR)
    :: dead -> goto stop
    fi;
    atomic { clear() };
    if
    :: cleared[1 - me] || IF(NO_MEETING_AFTER_CLEAR)
    :: dead -> goto stop
    fi;
    started[me] = 2;
    if
    :: ENDED(me)
    :: dead -> atomic { aborted[0] = true; aborted[1] = true }; ENDED(me)
    fi;
stop:
    skip
}

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (i : 0 .. PLACES - 1) { run Store(i) }
        for (i : 0 .. BLOCKS - 1) { run Sender(i); run Receiver(i) }
        for (i : 0 .. 1) { run Host(i) }
        i = 0
    }
#ifdef DIES
    dead = true
#endif
}

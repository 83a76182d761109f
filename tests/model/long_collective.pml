/* Long collectives of the direct road: what the ranks store into each other's area, chunk by chunk.
 *
 * Any sequence of Allreduces, and Bcasts from any root, of one or two chunks each. An area has an
 * inbox and an outbox with a place for each rank. All ranks *meet* twice in each chunk: each enters
 * a round, with a fence before it, and waits until all have (collective.pml is about the rounds).
 *
 *     Allreduce   each stores its part of each segment to the inbox of the segment's owner; they
 *                 meet; each reduces its own segment, and stores the result to all outboxes; they
 *                 meet; each takes all segments from its own outbox.
 *     Bcast       they meet; the root stores to all outboxes; they meet; the others take it.
 *
 * Nobody waits after the last take: the next chunk, or call, begins at once.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_FIRST_MEETING 1   /* of a Bcast: the root stores at once */
#define NO_SECOND_MEETING 2
#define BCAST_TO_INBOX 3     /* the root stores there */
#define STORES_LATE 4        /* segments are stored after their owner has been told */
#define RESULTS_LATE 5       /* results are */
#define TAKES_LATE 6         /* the next round is entered before the last chunk has been taken */
#define NEXT_RANK_ONLY 7     /* a meeting waits for one of the others */

#define IF(name) (mutation == name)

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#define NOTHING 255
#define ALLREDUCE RANKS

byte kind[CALLS];
byte chunks[CALLS];
#define IN 0  /* of a rank, for a source: which chunk it is of */
#define OUT 1 /* of a rank, for a segment */
byte area[2 * RANKS * RANKS];
byte entered[RANKS];

#define AT(box, rank, from) (((box) * RANKS + (rank)) * RANKS + (from))
#define NEXT ((me + 1) % RANKS)
#if RANKS == 2
#define ALL_ENTERED(k) (entered[0] >= k && entered[1] >= k)
#else
#define ALL_ENTERED(k) (entered[0] >= k && entered[1] >= k && entered[2] >= k)
#endif

inline enter() { round++; entered[me] = round }
inline await() { (ALL_ENTERED(round) || (IF(NEXT_RANK_ONLY) && entered[NEXT] >= round)) }

/* Ours to all ranks, one place after the other. */
inline store(box) {
    peer = 0;
    do
    :: peer < RANKS -> area[AT(box, peer, me)] = chunk; peer++
    :: else -> break
    od
}

inline store_all(box) {
    peer = 0;
    do
    :: peer < RANKS * RANKS -> area[AT(box, 0, 0) + peer] = chunk; peer++
    :: else -> break
    od
}

inline read(box) {
    peer = 0;
    do
    :: peer < RANKS -> assert(area[AT(box, me, peer)] == chunk); peer++
    :: else -> break
    od
}

proctype Rank(byte me) {
    byte call, part, chunk, peer, round;
    bool takes, early;
    for (call : 0 .. CALLS - 1) {
        atomic {
            if
            :: kind[call] == NOTHING ->
                select(peer : 0 .. ALLREDUCE); kind[call] = peer;
                select(peer : 1 .. 2); chunks[call] = peer;
                peer = 0
            :: else
            fi
        };
        for (part : 1 .. chunks[call]) {
            chunk++;
            if
            :: kind[call] == ALLREDUCE && !IF(STORES_LATE) -> store(IN)
            :: else
            fi;
            if
            :: kind[call] != ALLREDUCE && IF(NO_FIRST_MEETING) -> skip
            :: else -> if :: early :: else -> enter() fi; await()
            fi;
            early = 0;
            if
            :: kind[call] == ALLREDUCE ->
                if :: IF(STORES_LATE) -> store(IN) :: else fi;
                read(IN);
                if :: !IF(RESULTS_LATE) -> store(OUT) :: else fi
            :: kind[call] == me ->
                if
                :: IF(BCAST_TO_INBOX) -> store_all(IN)
                :: !IF(BCAST_TO_INBOX) -> store_all(OUT)
                fi
            :: else
            fi;
            if
            :: IF(NO_SECOND_MEETING)
            :: !IF(NO_SECOND_MEETING) -> enter(); await()
            fi;
            if :: kind[call] == ALLREDUCE && IF(RESULTS_LATE) -> store(OUT) :: else fi;
            if :: IF(TAKES_LATE) -> enter(); early = 1 :: else fi;
            if
            :: kind[call] == me
            :: kind[call] != me && kind[call] != ALLREDUCE && IF(BCAST_TO_INBOX) -> read(IN)
            :: else -> read(OUT)
            fi
        }
    }
}

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (i : 0 .. CALLS - 1) { kind[i] = NOTHING }
        for (i : 0 .. RANKS - 1) { run Rank(i) }
    }
}

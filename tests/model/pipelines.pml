/* Long collectives of all blocks at once: one pipeline of each rank, and straight ones
 * (gmpi/contract/pipelines.py).
 *
 * Any sequence of calls. All ranks enter a round before each (collective.pml is about rounds) and
 * wait for all. Then
 *
 *     straight    each loads from all buffers that go out, stores to all those that come back, enters
 *                 another round and waits for all.
 *     Allreduce   in each turn each stores a piece to the slot IN of all others, and says so; hears
 *                 all; reduces, stores a result to the slots OUT, and says so; hears all; takes them.
 *     blocks      in each turn each stores a piece to one of its two slots at all others, the one that
 *                 it has not used just before, and says so; hears all; takes theirs. Then its own
 *                 piece goes through a slot that it has taken from.
 *
 * Who says something stores the number of the opening and of the turn. Nobody waits after the last
 * turn, and nothing is given back.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_OPENING 1      /* nobody waits for the others there */
#define NO_END_MEETING 2  /* of a straight one */
#define STORES_LATE 3     /* a piece is stored after the others have been told */
#define RESULTS_LATE 4    /* a result is */
#define TAKES_LATE 5      /* results are taken after the next piece has been announced */
#define PUTS_EARLY 6      /* the next piece is stored before the results have been heard of */
#define ONE_SLOT 7        /* for blocks */
#define OLD_FLAGS 8       /* flags without the number of the opening */
#define NEXT_RANK_ONLY 9  /* one of the others is heard */
#define OPENS_EARLY 10    /* the next round is entered before the last turn's bytes have been taken */
#define OWN_EARLY 11      /* the own piece is packed to a slot before that has been taken from */
#define OWN_LATE 12       /* it is, after the next piece has been announced */

#define IF(name) (mutation == name)

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef TURNS
#define TURNS 3
#endif
#define NOTHING 255
#define OWN 254
#define STRAIGHT 0
#define ALLREDUCE 1
#define BLOCKS 2

byte kind[CALLS];
byte turns[CALLS];
#define IN 0
#define OUT 1
byte slots[2 * RANKS * RANKS]; /* which piece there is: of an owner, for a source */
byte flags[2 * RANKS * RANKS];
byte out[RANKS];               /* users' buffers: of which call they are */
byte back[RANKS * RANKS];      /* of a rank, for who stores there */
byte entered[RANKS];

#define AT(which, owner, source) (((which) * RANKS + (owner)) * RANKS + (source))
#define NEXT ((me + 1) % RANKS)
#if RANKS == 2
#define ALL_ENTERED(k) (entered[0] >= k && entered[1] >= k)
#else
#define ALL_ENTERED(k) (entered[0] >= k && entered[1] >= k && entered[2] >= k)
#endif
/* Number of the opening and of the turn: of the same opening, and no earlier turn. */
#define FLAG ((IF(OLD_FLAGS) -> turn : (call + 1) * 8 + turn))
#define HEARD(which, source) \
    (source == me || (flags[AT(which, me, source)] >= FLAG \
     && (IF(OLD_FLAGS) || flags[AT(which, me, source)] / 8 == call + 1)))
#if RANKS == 2
#define ALL_HEARD(which) (HEARD(which, 0) && HEARD(which, 1))
#else
#define ALL_HEARD(which) (HEARD(which, 0) && HEARD(which, 1) && HEARD(which, 2))
#endif

inline enter() { round++; entered[me] = round }
inline await() { (ALL_ENTERED(round)) }

inline store(which, what) {
    peer = 0;
    do
    :: peer < RANKS -> if :: peer != me -> slots[AT(which, peer, me)] = what :: else fi; peer++
    :: else -> break
    od
}

inline say(which) {
    peer = 0;
    do
    :: peer < RANKS -> if :: peer != me -> flags[AT(which, peer, me)] = FLAG :: else fi; peer++
    :: else -> break
    od
}

inline hear(which) {
    (ALL_HEARD(which) || (IF(NEXT_RANK_ONLY) && HEARD(which, NEXT)))
}

inline read(which, what) {
    peer = 0;
    do
    :: peer < RANKS -> assert(peer == me || slots[AT(which, me, peer)] == what); peer++
    :: else -> break
    od
}

inline keep(which) {
    slots[AT(which, me, NEXT)] = OWN;
    assert(slots[AT(which, me, NEXT)] == OWN)
}

inline straight() {
    peer = 0;
    do
    :: peer < RANKS -> assert(out[peer] == call + 1); peer++
    :: else -> break
    od;
    peer = 0;
    do
    :: peer < RANKS -> back[peer * RANKS + me] = call + 1; peer++
    :: else -> break
    od;
    if
    :: IF(NO_END_MEETING)
    :: !IF(NO_END_MEETING) -> enter(); await()
    fi;
    peer = 0;
    do
    :: peer < RANKS -> assert(back[me * RANKS + peer] == call + 1); peer++
    :: else -> break
    od
}

proctype Rank(byte me) {
    byte call, turn, piece, peer, round;
    bool early, stored, owed, own;
    for (call : 0 .. CALLS - 1) {
        atomic {
            if
            :: kind[call] == NOTHING ->
                select(peer : 0 .. 2); kind[call] = peer;
                select(peer : 1 .. TURNS); turns[call] = peer;
                peer = 0
            :: else
            fi
        };
        out[me] = call + 1;
        if :: early :: else -> enter() fi;
        early = 0;
        if :: IF(NO_OPENING) :: else -> await() fi;
        if
        :: kind[call] == STRAIGHT -> straight()
        :: else ->
            turn = 1;
            do
            :: turn <= turns[call] ->
                piece++;
                if
                :: kind[call] == ALLREDUCE ->
                    if :: stored || IF(STORES_LATE) :: else -> store(IN, piece) fi;
                    stored = 0;
                    say(IN);
                    if :: owed -> read(OUT, piece - 1); owed = 0 :: else fi;
                    if :: IF(STORES_LATE) -> store(IN, piece) :: else fi;
                    hear(IN);
                    read(IN, piece);
                    if :: IF(RESULTS_LATE) :: else -> store(OUT, piece) fi;
                    say(OUT);
                    if :: IF(RESULTS_LATE) -> store(OUT, piece) :: else fi;
                    if
                    :: IF(PUTS_EARLY) && turn < turns[call] -> store(IN, piece + 1); stored = 1
                    :: else
                    fi;
                    hear(OUT);
                    if
                    :: IF(TAKES_LATE) && turn < turns[call] -> owed = 1
                    :: else ->
                        if
                        :: IF(OPENS_EARLY) && turn == turns[call] -> enter(); early = 1
                        :: else
                        fi;
                        read(OUT, piece)
                    fi
                :: else ->
                    if
                    :: IF(STORES_LATE)
                    :: else -> store((IF(ONE_SLOT) -> 0 : turn & 1), piece)
                    fi;
                    say(IN);
                    if :: IF(STORES_LATE) -> store(turn & 1, piece) :: else fi;
                    if :: own -> keep(1 - (turn & 1)); own = 0 :: else fi;
                    if :: IF(OWN_EARLY) -> keep(turn & 1) :: else fi;
                    hear(IN);
                    if
                    :: IF(OPENS_EARLY) && turn == turns[call] -> enter(); early = 1
                    :: else
                    fi;
                    read((IF(ONE_SLOT) -> 0 : turn & 1), piece);
                    if
                    :: IF(OWN_LATE) && turn < turns[call] -> own = 1
                    :: IF(OWN_EARLY)
                    :: else -> keep((IF(ONE_SLOT) -> 0 : turn & 1))
                    fi
                fi;
                turn++
            :: else -> break
            od
        fi;
        out[me] = 0 /* it is the user's again */
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

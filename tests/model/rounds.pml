/* The rounds of a long message (channel.pml is about its beginning and its end).
 *
 * The receiver has a staging buffer of two halves, for even and odd rounds. It announces rounds, in
 * one cell of the sender's memory: the last one that may be pushed, and with it all before that. The
 * sender pushes a round part by part, and behind a fence after each part says how many there are.
 *
 * The first two rounds are announced at once, and the next but one when all of a round has been
 * taken: then its half is empty. So the sender has a round to push while another one is being taken.
 *
 * Stores reach memory in any order, but for those to one place.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define ITS_OWN_ONLY 1    /* the sender waits for the announcement of its round, not of a later one */
#define NOT_EMPTIED 2     /* the next but one is announced when a round has begun to come */
#define NO_FENCE 3        /* "so many parts" may come before their bytes */
#define ANY_ROUND 4       /* the sender takes any announcement for that of its round */
#define ONE_HALF 5        /* all rounds go to the same half */
#define NEVER_AGAIN 6     /* only the first two rounds are announced */
#define WHERE_ANNOUNCED 7 /* a round goes to the half of the announced one */

#define IF(name) (mutation == name)

#ifndef ROUNDS
#define ROUNDS 4
#endif
#define PARTS 2 /* of a round */
#define NOTHING 255

/* Places: both halves; how many parts there are; the cell. */
#define HALF(round) (IF(ONE_HALF) -> 0 : (round) % 2)
#define PART(round, p) (HALF(round) * PARTS + (p))
#define FILLED (2 * PARTS)
#define CELL (FILLED + 1)
#define PLACES (CELL + 1)

byte memory[PLACES];
byte flying[PLACES];

#define LANDED(place) (flying[place] == NOTHING)
#define COME (memory[FILLED] == NOTHING -> 0 : memory[FILLED])

inline fly(place, what) { atomic { LANDED(place) -> flying[place] = what } }

proctype Store(byte place) {
end:
    do
    :: atomic { flying[place] != NOTHING -> memory[place] = flying[place]; flying[place] = NOTHING }
    od
}

proctype Sender() {
    byte round, p, to;
    for (round : 0 .. ROUNDS - 1) {
        atomic { memory[CELL] != NOTHING && (memory[CELL] >= round || IF(ANY_ROUND)) &&
                !(IF(ITS_OWN_ONLY) && memory[CELL] != round) ->
            to = (IF(WHERE_ANNOUNCED) -> memory[CELL] : round) };
        for (p : 0 .. PARTS - 1) {
            fly(PART(to, p), round * PARTS + p);
            if :: IF(NO_FENCE) || LANDED(PART(to, p)) fi;
            fly(FILLED, round * PARTS + p + 1)
        }
    }
}

proctype Receiver() {
    byte taken, round;
    fly(CELL, (ROUNDS > 1 -> 1 : 0));
    do
    :: taken < ROUNDS * PARTS ->
        atomic { COME > taken -> round = taken / PARTS };
        if
        :: IF(NOT_EMPTIED) && taken % PARTS == 0 && round + 2 < ROUNDS -> fly(CELL, round + 2)
        :: else
        fi;
        assert(memory[PART(round, taken % PARTS)] == taken);
        taken++;
        if
        :: taken % PARTS == 0 && round + 2 < ROUNDS && !IF(NOT_EMPTIED) && !IF(NEVER_AGAIN) ->
            fly(CELL, round + 2)
        :: else
        fi
    :: else -> break
    od
}

init {
    byte place;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (place : 0 .. PLACES - 1) {
            memory[place] = NOTHING; flying[place] = NOTHING; run Store(place)
        }
        run Sender();
        run Receiver()
    }
}

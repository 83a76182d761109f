/* The rounds of a long message (channel.pml is about its beginning and its end).
 *
 * The receiver has a staging buffer of two halves, for even and odd rounds. It announces a round,
 * in one cell of the sender's memory: where it goes, by the round's first part. The sender pushes
 * the round part by part, and behind a fence after each part says how many there are.
 *
 * The next round is announced when the first part of this one has been seen: then the sender has
 * read the announcement of this one, and the other half has been emptied, because parts are taken in
 * order. So the sender never waits for a half that is being emptied while the other one is free.
 *
 * Stores reach memory in any order, but for those to one place.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define ANNOUNCED_AT_ONCE 1 /* the second round together with the first one */
#define NOT_EMPTIED 2       /* the next but one is announced when the next one has begun to come */
#define NO_FENCE 3          /* "so many parts" may come before their bytes */
#define ANY_ROUND 4         /* the sender takes any announcement for that of its round */
#define ONE_HALF 5          /* all rounds go to the same half */
#define NEVER_AGAIN 6       /* only the first two rounds are announced */

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
        atomic { memory[CELL] == round || (IF(ANY_ROUND) && memory[CELL] != NOTHING) ->
            to = memory[CELL] };
        for (p : 0 .. PARTS - 1) {
            fly(PART(to, p), round * PARTS + p);
            if :: IF(NO_FENCE) || LANDED(PART(to, p)) fi;
            fly(FILLED, round * PARTS + p + 1)
        }
    }
}

proctype Receiver() {
    byte taken, round, ahead;
    fly(CELL, 0);
    if :: IF(ANNOUNCED_AT_ONCE) -> fly(CELL, 1) :: else fi;
    do
    :: taken < ROUNDS * PARTS ->
        if
        :: COME > taken
        :: IF(NOT_EMPTIED) && ahead > 0 && ahead < ROUNDS - 1 && COME > ahead * PARTS ->
            ahead++; fly(CELL, ahead)
        fi;
        round = taken / PARTS;
        if
        :: taken % PARTS == 0 && round + 1 < ROUNDS && COME > taken && ahead <= round &&
                !(IF(NEVER_AGAIN) && round > 0) ->
            ahead = round + 1; fly(CELL, ahead)
        :: else
        fi;
        if
        :: COME > taken ->
            assert(memory[PART(round, taken % PARTS)] == taken);
            taken++
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

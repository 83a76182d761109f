/* Blocks of an exchange: a receive answers, before its message comes, where the block goes
 * (device_lib/direct/exchange_answers.py).
 *
 * One channel. A call receives as many messages as there are slots, enters all of them, and takes
 * them in their order; then the next call does. Each receive may answer STRAIGHT, into the user's
 * buffer, or INBOX, or not at all, as the first messages of a channel do. The sender of a medium
 * message looks for an answer as long as it likes, and takes the inbox otherwise. That of a LARGE
 * one says its length and waits: for the answer, or for what the receiver announces then. Both ends
 * know how long a message is.
 *
 * An announcement is two packets, and both must be there: a cell, and what is wanted. INBOX is the
 * cell alone. The buffer is the user's between two calls, who writes to it.
 *
 * Stores reach memory in any order, but for those to one place.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define ANSWERS_TOO_EARLY 1  /* those of the next call, before the messages of this one are taken */
#define NO_FENCE 2           /* "it is there" may come before the bytes */
#define WANTED_IN_ANY_CASE 3 /* INBOX is two packets, too */
#define ANNOUNCES_AGAIN 4    /* also what has been answered STRAIGHT */
#define WAITS_FOR_ANSWER 5   /* a medium message takes the inbox only where an answer says so */
#define NO_CREDIT 6          /* the inbox is used before the message before has been taken */
#define ANY_ANSWER 7         /* the sender takes that of another message for its own */

#define IF(name) (mutation == name)

#ifndef CALLS
#define CALLS 2
#endif
#ifndef DEPTH
#define DEPTH 1 /* slots, and messages of a call */
#endif
#define MESSAGES (CALLS * DEPTH)
#define NOTHING 255

/* What a cell says of message k. */
#define STRAIGHT(k) (4 * (k))
#define INBOX(k) (4 * (k) + 1)
#define STAGED(k) (4 * (k) + 2)
/* What packet 0 of a slot says. */
#define LONG(k) (2 * (k))
#define IN_SLOT(k) (2 * (k) + 1)

#define SLOT(k) ((k) % DEPTH)
#define CELL(k) SLOT(k)
#define WANTED(k) (DEPTH + SLOT(k))     /* 2 * k + 1; of INBOX, if at all, 2 * k */
#define CREDIT(k) (2 * DEPTH + SLOT(k))
#define PACKET(k) (3 * DEPTH + SLOT(k))
#define FILLED(k) (4 * DEPTH + SLOT(k))
#define BUFFER(k) (5 * DEPTH + SLOT(k)) /* the user's, of a message of a call */
#define STAGING(k) (6 * DEPTH + SLOT(k))
#define PLACES (7 * DEPTH)

byte memory[PLACES];
byte flying[PLACES];
bool large[MESSAGES];
bool registered[MESSAGES];
bool answers[MESSAGES];

#define LANDED(place) (flying[place] == NOTHING)
#define IS(place, what) (memory[place] == (what))
#define MINE(k) (IS(CELL(k), STRAIGHT(k)) || (IF(ANY_ANSWER) && memory[CELL(k)] != NOTHING && \
    memory[CELL(k)] % 4 == 0))
#define SAID(k, what) (IS(CELL(k), what) && memory[WANTED(k)] != NOTHING && \
    memory[WANTED(k)] / 2 == (k))
#define FREE(k) ((k) < DEPTH || IS(CREDIT(k), (k) - DEPTH))

inline fly(place, what) { atomic { LANDED(place) -> flying[place] = what } }

proctype Store(byte place) {
end:
    do
    :: atomic { flying[place] != NOTHING -> memory[place] = flying[place]; flying[place] = NOTHING }
    od
}

inline push(place, k) {
    fly(place, k);
    if :: IF(NO_FENCE) || LANDED(place) fi;
    fly(FILLED(k), k)
}

proctype Sender() {
    byte k;
    for (k : 0 .. MESSAGES - 1) {
        if
        :: large[k] ->
            FREE(k) || IF(NO_CREDIT);
            fly(PACKET(k), LONG(k));
            if
            :: atomic { SAID(k, STRAIGHT(k)) -> assert(memory[WANTED(k)] % 2) };
                push(BUFFER(k), k)
            :: atomic { SAID(k, STAGED(k)) -> assert(memory[WANTED(k)] % 2) };
                push(STAGING(k), k)
            fi
        :: else ->
            if
            :: MINE(k) -> fly(PACKET(k), LONG(k)); push(BUFFER(k), k)
            :: IS(CELL(k), INBOX(k)) || !IF(WAITS_FOR_ANSWER) ->
                FREE(k) || IF(NO_CREDIT);
                fly(PACKET(k), IN_SLOT(k))
            fi
        fi
    }
}

inline answer(k) {
    if
    :: !answers[k]
    :: answers[k] && registered[k] -> fly(WANTED(k), 2 * k + 1); fly(CELL(k), STRAIGHT(k))
    :: answers[k] && !registered[k] ->
        if :: IF(WANTED_IN_ANY_CASE) -> fly(WANTED(k), 2 * k) :: else fi;
        fly(CELL(k), INBOX(k))
    fi
}

proctype Receiver() {
    byte call, k, i;
    for (call : 0 .. CALLS - 1) {
        for (i : 0 .. DEPTH - 1) {
            k = call * DEPTH + i;
            if :: !IF(ANSWERS_TOO_EARLY) || call == 0 -> answer(k) :: else fi
        }
        for (i : 0 .. DEPTH - 1) {
            k = call * DEPTH + i;
            if
            :: IF(ANSWERS_TOO_EARLY) && call + 1 < CALLS -> k = k + DEPTH; answer(k); k = k - DEPTH
            :: else
            fi;
            if
            :: IS(PACKET(k), IN_SLOT(k)) -> memory[BUFFER(k)] = k
            :: IS(PACKET(k), LONG(k)) ->
                if
                :: answers[k] && registered[k] && !(IF(ANNOUNCES_AGAIN) && large[k]) ->
                    IS(FILLED(k), k)
                :: else ->
                    fly(WANTED(k), 2 * k + 1);
                    fly(CELL(k), STAGED(k));
                    IS(FILLED(k), k);
                    assert(IS(STAGING(k), k));
                    memory[BUFFER(k)] = memory[STAGING(k)]
                fi
            fi;
            assert(IS(BUFFER(k), k));
            fly(CREDIT(k), k)
        }
        for (i : 0 .. DEPTH - 1) {
            k = call * DEPTH + i;
            assert(IS(BUFFER(k), k) && LANDED(BUFFER(k)));
            memory[BUFFER(k)] = 200 /* the user's */
        }
    }
    for (i : 0 .. DEPTH - 1) { assert(IS(BUFFER(i), 200)) }
}

init {
    byte place;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (place : 0 .. MESSAGES - 1) {
            if :: large[place] = true :: skip fi;
            if :: registered[place] = true :: skip fi;
            if :: answers[place] = true :: skip fi
        }
        for (place : 0 .. PLACES - 1) {
            memory[place] = NOTHING; flying[place] = NOTHING; run Store(place)
        }
        run Sender();
        run Receiver()
    }
}

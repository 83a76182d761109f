/* Stores that come late: what a multiprocessor has stored comes to L2 later, in any order, up to its
 * next fence. Two buffers that change hands all the same.
 *
 * A staging buffer, which the blocks of a GPU take in turn, each on a multiprocessor of its own. A
 * send is packed to it and read from there, from L1 if L1 has it: so a fence comes before it is given
 * back. It is the same with slots, where a block writes how a buffer with gaps lies. What a receive
 * has brought is stored to staging and read past L1, so it has been in L2. What the sender pushes
 * there comes to L2 at once, and L1 may have what was there before.
 *
 * The buffer of a receive, which is announced to a sender that stores there itself: what its GPU has
 * stored there comes before, by a fence. Behind a second one L1 has forgotten it.
 *
 * Stores of a multiprocessor to one word come in order, and a load past L1, or that L1 does not have,
 * comes behind them.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_FENCE_OF_PACKED 1   /* before a buffer that a send was packed to is given back */
#define RECEIVED_FROM_L1 2     /* what was pushed is read from L1 */
#define GIVEN_BACK_UNREAD 3    /* before the last word of what has come was read */
#define TAKEN_TWICE 4          /* nobody looks whether a buffer is taken */
#define NO_FENCE_OF_USERS 5    /* before the user's buffer is announced */
#define NO_FENCE_AFTER_FLAG 6  /* before what has come there is read */

#define IF(name) (mutation == name)

#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef USES
#define USES 2
#endif
#define WORDS 2
#define NOTHING 0
#define OLD 200 /* of a user's buffer, before its message comes */

#define USERS (BLOCKS * WORDS) /* places behind those of the staging buffer: a word for each block */
#define PLACE(block, word) ((block) * WORDS + (word))
#define LANDED(place) (flying[place] == NOTHING)
#define ALL_LANDED(block) (LANDED(PLACE(block, 0)) && LANDED(PLACE(block, 1)))

bool taken;
byte l2[WORDS];
byte users[BLOCKS];
byte l1[USERS + BLOCKS];     /* of each block's multiprocessor; NOTHING: it is not there */
byte flying[USERS + BLOCKS]; /* stores on their way; NOTHING: none */

proctype Store(byte place) {
end:
    do
    :: atomic { flying[place] != NOTHING ->
           if
           :: place < USERS -> l2[place % WORDS] = flying[place]
           :: else -> users[place - USERS] = flying[place]
           fi;
           flying[place] = NOTHING }
    od
}

/* L1 may keep what is stored, and does where it has the word. */
inline store(place, what) {
    atomic { LANDED(place) -> flying[place] = what };
    if :: l1[place] != NOTHING -> l1[place] = what :: true -> l1[place] = what :: l1[place] == NOTHING fi
}

inline load(place, memory) {
    if
    :: l1[place] != NOTHING -> seen = l1[place]
    :: atomic { l1[place] == NOTHING && LANDED(place) -> seen = memory };
        if :: l1[place] = seen :: true fi
    fi
}

inline load_past_l1(place, memory) { atomic { LANDED(place) -> seen = memory } }

proctype Block(byte me) {
    byte use, word, seen, value;
    for (use : 1 .. USES) {
        value = me * USES + use;
        if
        :: atomic { !taken || IF(TAKEN_TWICE) -> taken = 1 };
            if
            :: /* a send */
                for (word : 0 .. WORDS - 1) { store(PLACE(me, word), value) };
                for (word : 0 .. WORDS - 1) {
                    load(PLACE(me, word), l2[word]); assert(seen == value)
                };
                if
                :: IF(NO_FENCE_OF_PACKED)
                :: !IF(NO_FENCE_OF_PACKED) && ALL_LANDED(me)
                fi
            :: /* a receive, in packets */
                for (word : 0 .. WORDS - 1) { store(PLACE(me, word), value) };
                for (word : 0 .. (IF(GIVEN_BACK_UNREAD) -> WORDS - 2 : WORDS - 1)) {
                    load_past_l1(PLACE(me, word), l2[word]); assert(seen == value)
                }
            :: /* a receive of what the sender pushes */
                for (word : 0 .. WORDS - 1) { l2[word] = value };
                for (word : 0 .. WORDS - 1) {
                    if
                    :: IF(RECEIVED_FROM_L1) -> load(PLACE(me, word), l2[word])
                    :: else -> load_past_l1(PLACE(me, word), l2[word])
                    fi;
                    assert(seen == value)
                }
            fi;
            taken = 0
        :: /* a receive into the user's buffer, which the sender stores to */
            store(USERS + me, OLD);
            if
            :: IF(NO_FENCE_OF_USERS)
            :: !IF(NO_FENCE_OF_USERS) && LANDED(USERS + me)
            fi;
            users[me] = value;
            if :: !IF(NO_FENCE_AFTER_FLAG) -> l1[USERS + me] = NOTHING :: else fi;
            load(USERS + me, users[me]);
            assert(seen == value)
        fi
    }
}

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (i : 0 .. USERS + BLOCKS - 1) { run Store(i) };
        for (i : 0 .. BLOCKS - 1) { run Block(i) }
    }
}

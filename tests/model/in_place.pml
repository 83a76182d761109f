/* Alltoallv with IN_PLACE on the direct road: what comes in takes the place of what goes out
 * (device_lib/direct/exchange_swaps.py).
 *
 * Several calls at once, each on a communicator of its own that has all ranks. In a call a rank swaps
 * its block for each other rank with the block that this one has for it, one pair after the other.
 * A block is SHORT, and then it goes through a slot as a whole; or it goes in rounds (rounds.pml is
 * about them), through a staging buffer of the receiver with two halves. A rank has fewer of these
 * than there are calls. Datatypes may differ: so one block of a pair may be short, and the other not.
 *
 * Everything is seen at once here: what is new is the order in which a rank does what it may do.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define ROUNDS_AT_ONCE 1 /* a round is taken before the own one has been pushed */
#define SLOT_AT_ONCE 2   /* a message is taken from a slot before the own block has gone */
#define AFTER_ALL 3      /* nothing is taken before all of the own block has gone */
#define ANY_BUFFER 4     /* both ranks of a pair take staging at once */
#define OTHER_STEPS 5    /* in step k with the rank k behind, as calls do that are not IN_PLACE */

#define IF(name) (mutation == name)

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define BUFFERS 1 /* of a rank */

/* Of a block, by its call and the ranks that it comes from and goes to. */
#define OF(from, to) ((call * RANKS + (from)) * RANKS + (to))
#define BLOCKS (CALLS * RANKS * RANKS)
bool is_short[BLOCKS];
bool begun[BLOCKS];     /* its length has been sent */
bool in_slot[BLOCKS];
byte pushed[BLOCKS];    /* rounds */
byte announced[BLOCKS]; /* rounds, by its receiver */
byte staged[2 * BLOCKS];

byte buffers[RANKS]; /* that are free */
/* What a rank has where its block for another one was: rounds of it, and whose they are. */
byte memory[BLOCKS * ROUNDS];

#define PIECE(whose, k) ((whose) * ROUNDS + (k))
#define HERE(k) memory[OF(me, peer) * ROUNDS + (k)]
#define HALF(block, k) staged[2 * (block) + (k) % 2]
#define OUT OF(me, peer)
#define BACK OF(peer, me)
#define PEER (IF(OTHER_STEPS) -> (me + step) % RANKS : (step + RANKS - me) % RANKS)

proctype Rank(byte me; byte call) {
    byte step, peer, taken, k;
    bool sending, receiving, holds;
    for (step : 0 .. RANKS - 1) {
        peer = PEER;
        if
        :: peer == me
        :: else ->
            sending = true; receiving = true; holds = false; taken = 0;
            begun[OUT] = true;
            do
            :: atomic { sending && is_short[OUT] ->
                for (k : 0 .. ROUNDS - 1) { assert(HERE(k) == PIECE(me, k)) }
                in_slot[OUT] = true; pushed[OUT] = ROUNDS; sending = false }
            :: atomic { sending && !is_short[OUT] && announced[OUT] > pushed[OUT] ->
                k = pushed[OUT];
                assert(HERE(k) == PIECE(me, k));
                HALF(OUT, k) = PIECE(me, k);
                pushed[OUT] = k + 1;
                sending = k + 1 < ROUNDS }
            :: atomic { receiving && in_slot[BACK] && (!sending || IF(SLOT_AT_ONCE)) ->
                for (k : 0 .. ROUNDS - 1) { HERE(k) = PIECE(peer, k) }
                receiving = false }
            :: atomic { receiving && begun[BACK] && !is_short[BACK] && !holds && buffers[me] > 0 &&
                    (me > peer || pushed[OUT] > 0 || IF(ANY_BUFFER)) ->
                buffers[me]--; holds = true; announced[BACK] = 2 }
            :: atomic { holds && pushed[BACK] > taken && !(IF(AFTER_ALL) && sending) &&
                    (pushed[OUT] > taken || IF(ROUNDS_AT_ONCE)) ->
                assert(HALF(BACK, taken) == PIECE(peer, taken));
                HERE(taken) = PIECE(peer, taken);
                taken++;
                announced[BACK] = taken + 2;
                if
                :: taken == ROUNDS -> buffers[me]++; holds = false; receiving = false
                :: else
                fi }
            :: !sending && !receiving -> break
            od
        fi
    }
    for (peer : 0 .. RANKS - 1) {
        for (k : 0 .. ROUNDS - 1) { assert(HERE(k) == PIECE(peer, k)) }
    }
}

init {
    byte me, call, peer, k;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (call : 0 .. CALLS - 1) {
            for (me : 0 .. RANKS - 1) {
                for (peer : 0 .. RANKS - 1) {
                    if :: me != peer -> is_short[OUT] = true :: skip fi;
                    for (k : 0 .. ROUNDS - 1) { HERE(k) = PIECE(me, k) }
                }
            }
        }
        for (me : 0 .. RANKS - 1) { buffers[me] = BUFFERS }
        for (call : 0 .. CALLS - 1) {
            for (me : 0 .. RANKS - 1) { run Rank(me, call) }
        }
    }
}

/* A call of grid scope: how the blocks of a grid meet, in device memory of one rank.
 *
 * Block 0 leads. The others count up ARRIVED when they come to a call, and wait for commands: jobs,
 * which all do, and the result. A command is several packets with its number, which arrive in any
 * order; nothing is cleared. The leader writes a command when all others have arrived, and waits
 * for them again after a job.
 *
 * Any block may leave the kernel before a call. Then waits are aborted, as they may be at any time:
 * who sees it before all have come says that the grid has given up. The leader does so in place of
 * the number of its call's first command; another block only if the leader has not come to its call,
 * by a compare-and-swap.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_MEETING 1        /* the leader does not wait for the others */
#define NO_END_OF_JOB 2     /* nor for the end of a job */
#define ONE_PACKET 3        /* the others look at one packet of a command */
#define RESET_LATE 4        /* the count is reset after the command has been written */
#define LEAVES_ALONE 5      /* who sees the abort leaves, and does not say so */
#define LEAVES_THE_LEADER 6 /* though the leader has come, or comes just then */
#define SILENT_LEADER 7     /* the leader does not say that it has given up */
#define NO_LAST_LOOK 8      /* who reads that does not look whether a command has come before */
#define SAYS_TOO_EARLY 9    /* the leader says so while its last result is on its way */

#define IF(name) (mutation == name)

#define OTHERS 2
#define CALLS 3
#define WORDS 2
#define NOTHING 255
#define GAVE_UP 200
#define ABORTED 100 /* in place of a result */
#define JOB 50      /* | call */

byte number[WORDS];
byte value[WORDS];
byte flying_number[WORDS];
byte flying_value[WORDS];
byte arrived, entered;
byte stored[OTHERS];               /* + 1: the call before which each has stored to a buffer */
byte job[OTHERS];                  /* the last one each has done */
byte result[CALLS * (OTHERS + 1)]; /* of each block */
bool aborted;

#define LANDED (flying_number[0] == NOTHING && flying_number[1] == NOTHING)
#define RESULT(call, block) result[(call) * (OTHERS + 1) + (block)]
#define ALL_HERE (arrived == OTHERS || IF(NO_MEETING))

proctype Store(byte w) {
end:
    do
    :: atomic { flying_number[w] != NOTHING ->
           number[w] = flying_number[w]; value[w] = flying_value[w];
           flying_number[w] = NOTHING }
    od
}

inline command(what) {
    atomic { LANDED -> if :: !IF(RESET_LATE) -> arrived = 0 :: else fi; last++;
        flying_number[0] = last; flying_value[0] = what;
        flying_number[1] = last; flying_value[1] = what };
    if :: IF(RESET_LATE) -> arrived = 0 :: else fi
}

/* All blocks have the same result of a call, as far as they have one. */
inline ended(block, what) {
    d_step {
        RESULT(call, block) = what;
        for (other : 0 .. OTHERS) {
            assert(RESULT(call, other) == NOTHING || RESULT(call, other) == what)
        };
        other = 0
    }
}

proctype Leader() {
    byte call, last, before, other;
    for (call : 0 .. CALLS - 1) {
        if :: true -> aborted = 1; goto left :: true fi;
        atomic { before = entered; if :: before != GAVE_UP -> entered = last + 1 :: else fi };
        if :: before == GAVE_UP -> ended(0, ABORTED); goto next :: else fi;
        if
        :: ALL_HERE
        :: atomic { !ALL_HERE && aborted } ->
            if :: IF(SAYS_TOO_EARLY) || LANDED fi;
            if :: !IF(SILENT_LEADER) -> entered = GAVE_UP :: else fi;
            ended(0, ABORTED); goto next
        fi;
        /* Now it may touch buffers: what all have stored before the call is there. */
        d_step { for (other : 0 .. OTHERS - 1) { assert(stored[other] == call + 1) }; other = 0 };
        if
        :: command(JOB | call);
            if
            :: IF(NO_END_OF_JOB)
            :: !IF(NO_END_OF_JOB) && arrived == OTHERS
            fi;
            assert(job[0] == (JOB | call) && job[1] == (JOB | call))
        :: true
        fi;
        command(call);
        ended(0, call);
next:
        skip
    }
left:
    skip
}

#define HAS_COME \
    (number[0] == last + 1 && (number[1] == last + 1 || IF(ONE_PACKET)))

proctype Other(byte me) {
    byte call, last, first, seen, other;
    for (call : 0 .. CALLS - 1) {
        if :: true -> aborted = 1; goto left :: true fi;
        last = number[0]; first = last;
        stored[me] = call + 1;
        arrived++;
wait:
        if
        :: atomic { HAS_COME ->
               last++;
               if
               :: value[0] == (JOB | call) -> assert(value[1] == value[0]); job[me] = value[1];
                   seen = 1
               :: else -> assert(value[0] == call && value[1] == call); seen = 0
               fi };
            if
            :: seen -> arrived++; goto wait
            :: else -> ended(me + 1, call)
            fi
        :: aborted ->
            seen = entered;
            if
            :: seen <= first || IF(LEAVES_THE_LEADER) ->
                if
                :: IF(LEAVES_ALONE) -> skip
                :: atomic { !IF(LEAVES_ALONE) && entered == seen -> entered = GAVE_UP }
                :: !IF(LEAVES_ALONE) && entered != seen -> goto wait
                fi;
                ended(me + 1, ABORTED)
            :: seen == GAVE_UP && !IF(LEAVES_THE_LEADER) ->
                if
                :: number[0] != last && !IF(NO_LAST_LOOK) -> goto wait
                :: else -> ended(me + 1, ABORTED)
                fi
            :: else -> (HAS_COME || entered != seen); goto wait
            fi
        fi
    }
left:
    skip
}

proctype Host() { if :: aborted = 1 :: true fi }

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (i : 0 .. CALLS * (OTHERS + 1) - 1) { result[i] = NOTHING };
        for (i : 0 .. WORDS - 1) { flying_number[i] = NOTHING; run Store(i) };
        run Host();
        run Leader();
        for (i : 0 .. OTHERS - 1) { run Other(i) }
    }
}

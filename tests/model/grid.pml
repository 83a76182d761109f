/* Calls of grid scope: how the blocks of a grid meet, in device memory of one rank.
 *
 * Calls are cut into steps. Each block has a word: the last step that it has come to, and how many
 * blocks its launch has. Block 0 leads: it opens requests when all have come to the step, without
 * the others waiting for it, and writes commands, jobs and results, which they wait for. A command
 * is several packets with the number of its step, which arrive in any order. Nothing is cleared.
 *
 * Blocks that were not in the last launch do not know the step. Where the number of blocks is
 * another one, all meet first, and the leader takes the words from those that are not there.
 *
 * Any block may leave the kernel before a call. Then waits are aborted, as they may be at any time:
 * who sees it before the leader has come to the call says that the grid has given up, by a
 * compare-and-swap; or the leader does, where it cannot go on.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_MEETING 1        /* the leader opens requests without waiting for the others */
#define NO_END_OF_JOB 2     /* nor for the end of a job */
#define ONE_PACKET 3        /* the others look at one packet of a command */
#define NO_ROOM 4           /* a command is written over one that somebody has not read */
#define LEAVES_ALONE 5      /* who sees the abort leaves, and does not say so */
#define LEAVES_THE_LEADER 6 /* though the leader has come, or comes just then */
#define SILENT_LEADER 7     /* the leader does not say that it has given up */
#define NO_LAST_LOOK 8      /* who reads that does not look whether a command has come before */
#define OVERTAKES 9         /* a block's own message does not wait for what its grid has opened */
#define JOBS_AT_ONCE 10     /* a call that does not wait for the others has jobs as well */
#define KEEPS_WORDS 11      /* the words of blocks that are not in a launch stay */
#define COMES_FIRST 12      /* to the meeting, and reads its number then */
#define FORGETS_TO_MEET 13  /* a launch goes on from the words of the last one, whatever they say */

#define IF(name) (mutation == name)

#ifndef CALLS
#define CALLS 2 /* of a launch */
#endif
#define OTHERS 2
#define WORDS 2
#define RING 2
#define NOTHING 255
#define GAVE_UP 200
#define ABORTED 100 /* in place of a result */
#define JOB 50      /* | call */
#define OPENS 0     /* kinds of calls */
#define ENDS 1      /* a short message: no jobs */
#define GATHERS 2

#ifdef LAUNCHES /* of two others, one and two again */
#define ALL_CALLS (3 * CALLS)
#define OTHERS_OF(launch) ((launch) == 1 -> 1 : OTHERS)
#else
#define ALL_CALLS CALLS
#define OTHERS_OF(launch) OTHERS
#endif

byte kind[ALL_CALLS];
byte step_of[OTHERS + 1], blocks_of[OTHERS + 1]; /* the words; block 0 leads */
byte number[RING * WORDS], value[RING * WORDS];
byte flying_number[RING * WORDS], flying_value[RING * WORDS];
byte entered, come, meeting, met_at, opened;
byte calls_of[OTHERS + 1];             /* which each block has come to */
byte job[OTHERS];                      /* the last one each has done */
byte result[ALL_CALLS * (OTHERS + 1)]; /* of each block */
byte launch, ended_blocks;
bool aborted;

#define BLOCKS (OTHERS_OF(launch) + 1)
#define AT(step, w) ((step) % RING * WORDS + (w))
#define LANDED(step) (flying_number[AT(step, 0)] == NOTHING && flying_number[AT(step, 1)] == NOTHING)
#define RESULT(call, block) result[(call) * (OTHERS + 1) + (block)]
#define HAS(block, step) \
    (OTHERS_OF(launch) < (block) || \
        (step_of[block] > (step) || (step_of[block] == (step) && blocks_of[block] >= BLOCKS)))
#define ALL(step) (HAS(1, step) && HAS(2, step))
#define KNOWS(block) (blocks_of[block] == BLOCKS || (IF(FORGETS_TO_MEET) && blocks_of[block] > 0))

proctype Store(byte at) {
end:
    do
    :: atomic { flying_number[at] != NOTHING ->
           number[at] = flying_number[at]; value[at] = flying_value[at];
           flying_number[at] = NOTHING }
    od
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

inline ends_launch() {
    atomic {
        ended_blocks++;
        if
        :: ended_blocks == BLOCKS -> ended_blocks = 0; launch++
        :: else
        fi
    }
}

/* In the leader: sets step, and told to false where there can be no command any more. */
inline command(what) {
    step = step_of[0] + 1;
    if
    :: IF(NO_ROOM) || step < RING || ALL(step - RING + 1) ->
        atomic { LANDED(step) ->
            flying_number[AT(step, 0)] = step; flying_value[AT(step, 0)] = what;
            flying_number[AT(step, 1)] = step; flying_value[AT(step, 1)] = what;
            step_of[0] = step }
    :: atomic { !IF(NO_ROOM) && step >= RING && !ALL(step - RING + 1) && aborted -> told = 0 };
        quits()
    fi
}

/* All commands have arrived: there is a fence. */
inline quits() {
    (LANDED(0) && LANDED(1));
    if :: !IF(SILENT_LEADER) -> entered = GAVE_UP :: else fi;
    last = GAVE_UP
}

inline fails() {
    if :: kind[call] != OPENS -> ended(0, ABORTED) :: else fi
}

proctype Leader() {
    byte call, last, before, other, step, what;
    bool told;
    for (call : 0 .. ALL_CALLS - 1) {
#ifdef LAUNCHES
end_launch:
        launch >= call / CALLS;
#else
        if :: true -> aborted = 1; goto left :: true fi;
#endif
        told = 1;
        if :: last == GAVE_UP -> fails(); goto next :: else fi;
        if
        :: KNOWS(0)
        :: else ->
            if
            :: come == OTHERS_OF(launch) ->
                d_step {
                    come = 0;
                    if
                    :: BLOCKS <= OTHERS && !IF(KEEPS_WORDS) ->
                        step_of[OTHERS] = 0; blocks_of[OTHERS] = 0
                    :: else
                    fi;
                    blocks_of[0] = BLOCKS; met_at = step_of[0]
                };
                meeting++
            :: atomic { come != OTHERS_OF(launch) && aborted -> skip };
                quits(); fails(); goto next
            fi
        fi;
        step = step_of[0] + 1;
        if
        :: kind[call] != OPENS ->
            d_step { before = entered; entered = entered + step - last; last = step };
            if :: before >= GAVE_UP -> last = GAVE_UP; fails(); goto next :: else fi
        :: else
        fi;
        if
        :: kind[call] == ENDS || ALL(step) || (kind[call] == OPENS && IF(NO_MEETING))
        :: atomic { kind[call] != ENDS && !ALL(step) && aborted -> skip };
            quits(); fails(); goto next
        fi;
        d_step { if
        :: kind[call] != ENDS ->
            for (other : 1 .. OTHERS_OF(launch)) { assert(calls_of[other] > call) };
            other = 0
        :: else
        fi };
        if :: kind[call] == OPENS -> opened = step; step_of[0] = step; goto next :: else fi;
        what = call;
        if
        :: kind[call] == GATHERS || IF(JOBS_AT_ONCE);
            command(JOB | call);
            if
            :: !told
            :: told && (IF(NO_END_OF_JOB) || ALL(step + 1)) ->
                for (other : 1 .. OTHERS_OF(launch)) { assert(job[other - 1] == (JOB | call)) };
                other = 0
            fi
        :: true
        :: aborted -> what = ABORTED
        fi;
        if :: told -> command(what) :: else fi;
        if :: told -> ended(0, what) :: else -> ended(0, ABORTED) fi;
next:
        if :: call % CALLS == CALLS - 1 -> ends_launch() :: else fi
    }
left:
    skip
}

#define HAS_COME(step) \
    (number[AT(step, 0)] == step && (number[AT(step, 1)] == step || IF(ONE_PACKET)))

/* Sets gone: the block leaves the call. Else it waits on, for what is not there yet. */
inline gives_up(first, there) {
    seen = entered; gone = 0;
    if
    :: seen < first || IF(LEAVES_THE_LEADER) ->
        if
        :: IF(LEAVES_ALONE) -> gone = 1
        :: else ->
            atomic { if :: entered == seen -> entered = GAVE_UP; gone = 1 :: else fi }
        fi
    :: seen >= GAVE_UP && !IF(LEAVES_THE_LEADER) ->
        if
        :: there && !IF(NO_LAST_LOOK)
        :: else -> gone = 1
        fi
    :: else -> (there || entered != seen)
    fi;
    seen = 0
}

proctype Other(byte me) {
    byte call, step, first, seen, other, was;
    bool gone;
    for (call : 0 .. ALL_CALLS - 1) {
#ifdef LAUNCHES
end_launch:
        launch >= call / CALLS;
        if :: me > OTHERS_OF(call / CALLS) -> goto next :: else fi;
#else
        if
        :: true -> aborted = 1; goto left
        :: kind[call] == ENDS -> /* it waits for something that needs the call's message before */
            if :: RESULT(call, 0) != NOTHING :: aborted fi
        :: true
        fi;
#endif
        if
        :: KNOWS(me)
        :: else ->
            if
            :: IF(COMES_FIRST) -> first = entered + 1; come++; was = meeting
            :: else -> d_step { was = meeting; first = entered + 1; come++ }
            fi;
meet:
            if
            :: meeting == was + 1 ->
                d_step { step_of[me] = met_at; blocks_of[me] = BLOCKS }
            :: aborted ->
                gives_up(first, meeting == was + 1);
                if
                :: gone ->
                    if :: kind[call] != OPENS -> ended(me, ABORTED) :: else fi;
                    goto over
                :: else -> goto meet
                fi
            fi
        fi;
        step = step_of[me] + 1; first = step;
        d_step { calls_of[me] = call + 1; step_of[me] = step; blocks_of[me] = BLOCKS };
        if
        :: kind[call] == OPENS ->
            if
            :: step_of[0] >= step || IF(OVERTAKES) -> assert(opened >= step || aborted)
            :: aborted /* its own message ends with that, too */
            :: true
            fi;
            goto over
        :: else
        fi;
wait:
        if
        :: atomic { HAS_COME(step) ->
               if
               :: value[AT(step, 0)] == (JOB | call) ->
                   assert(value[AT(step, 1)] == value[AT(step, 0)]);
                   job[me - 1] = value[AT(step, 1)]; seen = 1
               :: else ->
                   assert(value[AT(step, 0)] == call || value[AT(step, 0)] == ABORTED);
                   assert(value[AT(step, 1)] == value[AT(step, 0)]); seen = 0
               fi };
            if
            :: seen -> seen = 0; step++; step_of[me] = step; goto wait
            :: else -> was = value[AT(step, 0)]; ended(me, was)
            fi
        :: aborted ->
            gives_up(first, HAS_COME(step));
            if :: gone -> ended(me, ABORTED) :: else -> goto wait fi
        fi;
over:
        was = 0; gone = 0; first = 0; step = 0;
        if :: call % CALLS == CALLS - 1 -> ends_launch() :: else fi;
next:
        skip
    }
left:
    skip
}

proctype Host() { if :: aborted = 1 :: true fi }

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (i : 0 .. ALL_CALLS * (OTHERS + 1) - 1) { result[i] = NOTHING };
        for (i : 0 .. ALL_CALLS - 1) {
#ifdef KIND
            kind[i] = KIND
#else
            if :: kind[i] = OPENS :: kind[i] = ENDS :: kind[i] = GATHERS fi
#endif
        };
        for (i : 0 .. RING * WORDS - 1) { flying_number[i] = NOTHING; run Store(i) };
#ifndef LAUNCHES
        for (i : 0 .. OTHERS) { blocks_of[i] = OTHERS + 1 };
#endif
        i = 0;
        run Host();
        run Leader();
        run Other(1); run Other(2)
    }
}

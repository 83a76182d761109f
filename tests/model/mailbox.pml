/* One landing place: two blocks of the sender that use its slot in turn, the receiver, and stores
 * that are on their way (docs/design.md, "The life of a message through a mailbox").
 *
 * A block's stores to one address stay in order, all others arrive in any. The record comes first:
 * the receiver may look before anything has been stored. A message is refused, and then received by
 * nobody, or received with room for all of it, for some, for nothing.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define ONLY_WANTED_UNITS 1      /* the receiver answers when it has what it has room for */
#define NO_FENCE_AFTER_REFUSAL 2 /* a refused send frees its slot with stores on their way */
#define SAME_TAG 3
#define TORN_UNIT 4 /* a unit's tag may arrive before its bytes */
#define ANSWERED_BEFORE_TAKEN 5

#define IF(name) (mutation == name)

#define UNITS 2
#define BLOCKS 2
#define ROUNDS 3 /* of each block */

byte tag[UNITS], bytes[UNITS];   /* the place; the bytes of a message are its number */
byte flying_tag[BLOCKS * UNITS]; /* 0: nothing */
byte flying_bytes[BLOCKS * UNITS];
byte messages;
bool busy;
chan header = [1] of { byte, byte, byte }; /* tag, units, number */
chan notice = [1] of { bit };

#define F(block, unit) ((block) * UNITS + (unit))

inline store(block, unit) {
    atomic { flying_tag[F(block, unit)] == 0 && flying_bytes[F(block, unit)] == 0;
        flying_tag[F(block, unit)] = mine; flying_bytes[F(block, unit)] = number }
}

proctype Store(byte f) { /* that a block has on its way to a unit */
end:
    do
    :: atomic { flying_tag[f] != 0 && !IF(TORN_UNIT) ->
           tag[f % UNITS] = flying_tag[f]; flying_tag[f] = 0;
           bytes[f % UNITS] = flying_bytes[f]; flying_bytes[f] = 0 }
    :: atomic { flying_tag[f] != 0 && IF(TORN_UNIT) ->
           tag[f % UNITS] = flying_tag[f]; flying_tag[f] = 0 }
    :: atomic { flying_bytes[f] != 0 && IF(TORN_UNIT) ->
           bytes[f % UNITS] = flying_bytes[f]; flying_bytes[f] = 0 }
    od
}

#define NOTHING_FLIES(block) (flying_tag[F(block, 0)] == 0 && flying_tag[F(block, 1)] == 0)

proctype Sender(byte me) {
    byte round, number, mine, n, unit;
    bit ignored;
    bool refused;
    do
    :: round < ROUNDS ->
        atomic { !busy -> busy = true; messages++; number = messages;
            mine = (IF(SAME_TAG) -> 1 : 2 * number + 1) }
        n = 0;
        do
        :: n < UNITS -> n++; if :: break :: n < UNITS -> skip fi
        od;
        if :: refused = true :: refused = false; header!mine, n, number fi;
        unit = 0;
        do
        :: unit < n -> store(me, unit); unit++
        :: else -> break
        od;
        if
        :: refused && !IF(NO_FENCE_AFTER_REFUSAL) -> NOTHING_FLIES(me)
        :: refused && IF(NO_FENCE_AFTER_REFUSAL)
        :: !refused -> notice?ignored
        fi;
        busy = false;
        round++
    :: else -> break
    od
}

proctype Receiver() {
    byte expected, n, number, room, unit;
end:
    do
    :: header?expected, n, number ->
        if :: IF(ANSWERED_BEFORE_TAKEN) -> notice!0 :: else fi;
        room = 0;
        do
        :: room < n -> room++
        :: break
        od;
        unit = 0;
        do
        :: unit < (IF(ONLY_WANTED_UNITS) -> room : n) ->
            atomic { tag[unit] == expected -> assert(unit >= room || bytes[unit] == number) }
            unit++
        :: else -> break
        od;
        if :: IF(ANSWERED_BEFORE_TAKEN) :: else -> notice!0 fi
    od
}

init {
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        run Store(0); run Store(1); run Store(2); run Store(3);
        run Receiver(); run Sender(0); run Sender(1)
    }
}

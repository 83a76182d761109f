/* A channel of the direct road: counted matching between two GPUs that map each other's memory.
 *
 * A channel is (communicator, source, tag) in one direction. Both ends count: the k-th send meets
 * the k-th receive, which is MPI's non-overtaking rule, so nothing is searched. Message k travels
 * through slot k mod DEPTH of an *inbox* in the receiver's memory, in packets of bytes and a number,
 * each stored at once: no flag, no clearing.
 *
 *     sender     takes number k; waits for the *credit* of its slot, in its own memory: message
 *                k - DEPTH has been taken; stores packet 0, the length.
 *                Short: the packets of the payload.
 *                Long: waits for the *announcement* of the receiver's buffer, in its own memory,
 *                stores there what fits, part by part, and behind a fence after each part the
 *                packet that says how many parts there are.
 *     receiver   takes number k; announces its buffer once the slot is message k's: at once where
 *                there is room for a long message, else when a long one has come. Polls its own
 *                memory for packet 0, then for the others. When it has seen *all* of them, wanted or
 *                not, it stores the credit: one that comes later would fall on the next message.
 *
 * With WIDE_SLOT, messages that are too large for a slot, and not long, in place of long ones: they
 * go through one *wide slot*, when all messages before have been taken. They have numbers of their
 * own there, which packet 0 brings: nobody writes to the wide slot while there are only others. A
 * send may draw one in vain, and goes with the next. The first ones after half a turn of these
 * numbers write all packets, and say so in packet 0: as many as make sure that one is used.
 *
 * An announcement that a short message has not asked for may still be on its way: a fence comes
 * before the credit then, so that it does not fall on the next one.
 *
 * Numbers wrap. A packet that no message has written for a whole turn of the numbers would pass for
 * a new one, so the first message in each slot after half a turn (REFRESH) writes all its packets,
 * and its receiver an announcement, be it an empty one.
 *
 * Up to two blocks at each end. Stores reach memory in any order, but for those of one block to one
 * place.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define NO_CREDIT 1              /* the sender does not wait for the slot to be free */
#define COUNT_OF_CREDITS 2       /* one count for all slots, though they are freed in any order */
#define CREDIT_BEFORE_TAKEN 3    /* the receiver gives the slot back before it has read it */
#define ONLY_WANTED_PACKETS 4    /* and before it has seen what it has no room for */
#define NO_FENCE_AFTER_PUSH 5    /* "so many parts" may come before the bytes */
#define NO_FENCE_BEFORE_CREDIT 6 /* an announcement may come after the next one */
#define ANNOUNCED_TOO_EARLY 7    /* while the slot is another message's */
#define ANY_ANNOUNCEMENT 8       /* the sender takes any announcement in the slot for its own */
#define NO_LATE_ANNOUNCEMENT 9   /* a receive without room never announces its buffer */
#define TORN_PACKET 10           /* a packet's number may come before its bytes */
#define NO_REFRESH 11            /* packets may be a whole turn of the numbers old */
#define NO_WAIT_FOR_ALL 12       /* the wide slot is used as soon as the message's own is free */
#define NO_WIDE_REFRESH 13       /* packets of the wide slot may be as old */
#define ONE_WIDE_REFRESH 16      /* only the first number, which may be drawn in vain */
#define NO_FENCE_AFTER_FIRST 14  /* as 5, of the first part only: the last one has its fence */
#define ANY_PART 15              /* the receiver takes all parts when the first has come */

#define IF(name) (mutation == name)

#ifndef DEPTH
#define DEPTH 1
#endif
#ifndef MESSAGES
#define MESSAGES 5
#endif
#define NUMBERS (4 * DEPTH)
#define REFRESH (2 * DEPTH)
#define ROOM 2 /* packets of payload in a slot, after packet 0 */
#define LONG 3 /* a length: more than fits them */
#define WIDE_1 4 /* another: one packet in the wide slot */
#define WIDE_2 5 /* two of them */
#define WIDE_ALL 6 /* one, and all are written */
#define IS_WIDE(length) (length >= WIDE_1)
#define WIDE_NUMBERS 8
#define WIDE_REFRESHES 2
#ifndef SENDERS
#define SENDERS 1
#endif
#ifndef RECEIVERS
#define RECEIVERS 2
#endif
#define BLOCKS 2 /* the larger of both */
#define NOTHING 255

/* Places: the inbox; a buffer for each block of the receiver; the sender's cells for each slot. */
#define PACKET(slot, p) ((slot) * (ROOM + 1) + (p))
#define PARTS 2 /* of a long message */
#define BUFFER(b, part) (DEPTH * (ROOM + 1) + PARTS * (b) + (part))
#define WIDE(p) (BUFFER(BLOCKS, 0) + (p))
#define ANNOUNCED(slot) (WIDE(2) + (slot))
#define CREDIT(slot) (ANNOUNCED(DEPTH) + (slot))
#define PLACES CREDIT(DEPTH)
#define THEIRS WIDE(2) /* the sender writes to places before this one, the receiver behind */

byte number[PLACES];
byte value[PLACES];
byte flying_number[BLOCKS * PLACES]; /* a block's store to a place that is on its way */
byte flying_value[BLOCKS * PLACES];
byte sent, received, taken;
byte done[DEPTH]; /* at the receiver: messages that have gone through a slot */
byte wides = WIDE_REFRESHES; /* at the sender: numbers of the wide slot so far */

#define F(b, place) ((b) * PLACES + (place))
#define LANDED(b, place) (flying_number[F(b, place)] == NOTHING && flying_value[F(b, place)] == NOTHING)
#define IS_REFRESHED(n) (!IF(NO_REFRESH) && (n) % REFRESH < DEPTH)

#define WIDE_REFRESHED \
    (!IF(NO_WIDE_REFRESH) && \
        wides % (WIDE_NUMBERS / 2) < (IF(ONE_WIDE_REFRESH) -> 1 : WIDE_REFRESHES))

/* Packets of one message are stored together: they arrive in any order anyhow. */
inline fly(place, v) { flying_number[F(me, place)] = k; flying_value[F(me, place)] = v }
inline fly_wide(p, v) {
    flying_number[F(me, WIDE(p))] = wides % WIDE_NUMBERS; flying_value[F(me, WIDE(p))] = v
}
#define WORD(length, wide) ((length) | (wide) << 3) /* in packet 0 */
#define PARTS_OF(n, count) ((n) << 2 | (count)) /* in packet 1 of a long message */

proctype Store(byte f; byte place) {
end:
    do
    :: atomic { !IF(TORN_PACKET) && flying_number[f] != NOTHING ->
           number[place] = flying_number[f]; value[place] = flying_value[f];
           flying_number[f] = NOTHING; flying_value[f] = NOTHING }
    :: atomic { IF(TORN_PACKET) && flying_number[f] != NOTHING ->
           number[place] = flying_number[f]; flying_number[f] = NOTHING }
    :: atomic { IF(TORN_PACKET) && flying_value[f] != NOTHING ->
           value[place] = flying_value[f]; flying_value[f] = NOTHING }
    od
}

#define INBOX_FREE(from) \
    ((from > 0 || LANDED(me, PACKET(slot, 0))) && (from > 1 || LANDED(me, PACKET(slot, 1))) && \
        LANDED(me, PACKET(slot, 2)))
#define CREDITED \
    (n < DEPTH || IF(NO_CREDIT) || (IF(COUNT_OF_CREDITS) && taken > n - DEPTH) || \
        number[CREDIT(slot)] == (n - DEPTH) % NUMBERS)
#define ANNOUNCEMENT \
    (number[ANNOUNCED(slot)] == k || (IF(ANY_ANNOUNCEMENT) && number[ANNOUNCED(slot)] != NOTHING))

/* Later ones may have been taken, too. */
#define TAKEN(m) (n < DEPTH - (m) || \
    (number[CREDIT((n + (m)) % DEPTH)] + 2 * NUMBERS - (n + (m) - DEPTH)) % NUMBERS < REFRESH)
#if DEPTH == 1
#define ALL_TAKEN true
#else
#define ALL_TAKEN TAKEN(1)
#endif

proctype Sender(byte me) {
    byte n, k, slot, length, buffer;
    bool wanted;
    do
    :: atomic { sent < MESSAGES -> n = sent; sent++; k = n % NUMBERS; slot = n % DEPTH;
#ifdef WIDE_SLOT
           if :: length = 1 :: length = WIDE_1 :: length = WIDE_2 fi };
#else
           if :: length = 1 :: length = ROOM :: length = LONG fi };
#endif
        atomic { CREDITED && INBOX_FREE(0) && (!IS_WIDE(length) || (LANDED(me, WIDE(0)) &&
                LANDED(me, WIDE(1)) && (ALL_TAKEN || IF(NO_WAIT_FOR_ALL)))) ->
            if :: IS_WIDE(length) -> wides++ :: true fi; /* in vain */
            if
            :: length == WIDE_1 && WIDE_REFRESHED -> length = WIDE_ALL
            :: else
            fi;
            if :: IS_WIDE(length) -> fly_wide(0, n) :: else fi;
            if
            :: length == WIDE_2 -> fly_wide(1, n)
            :: length == WIDE_ALL -> fly_wide(1, NOTHING - 1)
            :: else
            fi;
            fly(PACKET(slot, 0), WORD(length, wides % WIDE_NUMBERS));
            if :: IS_WIDE(length) -> wides++ :: else fi;
            if
            :: length == 1 || length == ROOM -> fly(PACKET(slot, 1), n)
            :: IS_WIDE(length) && IS_REFRESHED(n) -> fly(PACKET(slot, 1), NOTHING - 1)
            :: else
            fi;
            if
            :: length == ROOM -> fly(PACKET(slot, 2), n)
            :: length != ROOM && IS_REFRESHED(n) -> fly(PACKET(slot, 2), NOTHING - 1)
            :: else
            fi };
        if
        :: length == LONG ->
            atomic { ANNOUNCEMENT -> buffer = value[ANNOUNCED(slot)] >> 1;
                wanted = value[ANNOUNCED(slot)] & 1;
                if :: wanted -> fly(BUFFER(buffer, 0), n) :: else fi };
            atomic { (IF(NO_FENCE_AFTER_PUSH) || IF(NO_FENCE_AFTER_FIRST) ||
                    LANDED(me, BUFFER(buffer, 0))) ->
                fly(PACKET(slot, 1), PARTS_OF(n, 1));
                if :: wanted -> fly(BUFFER(buffer, 1), n) :: else fi };
            atomic { (IF(NO_FENCE_AFTER_PUSH) || LANDED(me, BUFFER(buffer, 1))) ->
                fly(PACKET(slot, 1), PARTS_OF(n, 2)) }
        :: else
        fi
    :: sent == MESSAGES -> break
    od
}

/* What the receiver waits for: packets that carry something, those that are only refreshed, and of
 * both, by a mutation, only those that it has room for. */
#define LAST (length == LONG -> 1 : (IS_WIDE(length) -> 0 : length))
#define WIDE_SEEN \
    (!IS_WIDE(length) || (number[WIDE(0)] == wide && (length == WIDE_1 || number[WIDE(1)] == wide)))
#define WIDE_RIGHT \
    (!IS_WIDE(length) || (value[WIDE(0)] == n && (length != WIDE_2 || value[WIDE(1)] == n)))
#define WANTED(p) (p <= LAST && (p <= room || length == LONG))
#define WRITTEN(p) (p <= LAST || IS_REFRESHED(n))
#define SEEN(p) \
    (number[PACKET(slot, p)] == k || !WRITTEN(p) || (IF(ONLY_WANTED_PACKETS) && !WANTED(p)))
#define RIGHT(p) \
    (!WANTED(p) || value[PACKET(slot, p)] == (length == LONG -> PARTS_OF(n, PARTS) : n))
#define PART_SEEN(count) \
    (number[PACKET(slot, 1)] == k && (value[PACKET(slot, 1)] & 3) >= count)
#define PART_RIGHT(part) (room != LONG || value[BUFFER(me, part)] == n)

inline announce() { fly(ANNOUNCED(slot), me << 1 | (room == LONG)); announced = true }

inline give_back() { done[slot]++; taken++; fly(CREDIT(slot), 0) }

proctype Receiver(byte me) {
    byte n, k, slot, room, length, wide;
    bool announced;
    do
    :: atomic { received < MESSAGES -> n = received; received++; k = n % NUMBERS; slot = n % DEPTH;
#ifdef WIDE_SLOT
           if :: room = 1 :: room = LONG fi;
#else
           if :: room = 1 :: room = ROOM :: room = LONG fi;
#endif
           value[BUFFER(me, 0)] = NOTHING; value[BUFFER(me, 1)] = NOTHING;
           announced = false };
        if
        :: atomic { room == LONG && LANDED(me, ANNOUNCED(slot)) &&
               (done[slot] == n / DEPTH || IF(ANNOUNCED_TOO_EARLY)) -> announce() }
        :: true /* or later */
        fi;
        atomic { done[slot] == n / DEPTH && number[PACKET(slot, 0)] == k ->
            length = value[PACKET(slot, 0)] & 7; wide = value[PACKET(slot, 0)] >> 3 };
        if
        :: IF(CREDIT_BEFORE_TAKEN) -> atomic { LANDED(me, CREDIT(slot)) -> give_back() }
        :: else
        fi;
        if
        :: length == LONG && !announced && !(IF(NO_LATE_ANNOUNCEMENT) && room != LONG) ->
            atomic { LANDED(me, ANNOUNCED(slot)) -> announce() }
        :: else
        fi;
        if
        :: length == LONG ->
            atomic { PART_SEEN(1) -> assert(PART_RIGHT(0)) };
            atomic { PART_SEEN(2) || IF(ANY_PART) -> assert(PART_RIGHT(1)) }
        :: else
        fi;
        atomic { SEEN(1) && SEEN(2) && WIDE_SEEN ->
            assert(RIGHT(1) && RIGHT(2) && WIDE_RIGHT) };
        if
        :: IF(CREDIT_BEFORE_TAKEN)
        :: else ->
            if
            :: IS_REFRESHED(n) && !announced ->
                atomic { LANDED(me, ANNOUNCED(slot)) -> fly(ANNOUNCED(slot), NOTHING - 1) }
            :: else
            fi;
            atomic { LANDED(me, CREDIT(slot)) &&
                (IF(NO_FENCE_BEFORE_CREDIT) || LANDED(me, ANNOUNCED(slot))) ->
                give_back() }
        fi
    :: received == MESSAGES -> break
    od
}

init {
    byte b, place;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
        for (place : 0 .. PLACES - 1) { number[place] = NOTHING; value[place] = NOTHING }
        for (place : 0 .. BLOCKS * PLACES - 1) {
            flying_number[place] = NOTHING; flying_value[place] = NOTHING
        }
        for (b : 0 .. BLOCKS - 1) {
            for (place : 0 .. PLACES - 1) {
                if
                :: (place < THEIRS && b < SENDERS) || (place >= THEIRS && b < RECEIVERS) ->
                    run Store(F(b, place), place)
                :: else
                fi
            }
            if :: b < SENDERS -> run Sender(b) :: else fi;
            if :: b < RECEIVERS -> run Receiver(b) :: else fi
        }
    }
}

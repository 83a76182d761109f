/* How a channel of the direct road opens: from both ends at once, by several blocks of each rank.
 *
 * Rank 0 sends and rank 1 receives, with several keys. Each rank has a *table* of its own
 * (device_lib/direct/table.py), to which nobody but itself writes, and a proxy
 * (host_proxy/reference/channels.py). Nobody agrees on a number: both ends count from 0.
 *
 *     block      looks for the row of its key, from the same place on for all keys (find). What it
 *                sees through L1 may be old: no row, or a row without where our end is. Who finds
 *                none asks its proxy (row_requests.open_rest), and claims the first row that is
 *                nobody's or the key's by compare-and-swap (enter). Who has won it fills it, and
 *                says where the other end is *last*; all others wait for that. Then the number is
 *                drawn, from the row's counters: next_count.
 *     receiver's proxy  gives the key an inbox as soon as it hears of it, by its own kernel or by
 *                the sender's proxy, and tells the sender's proxy once. There may be none left:
 *                then the key goes by the proxies (_inbox).
 *     sender's proxy  answers when it has been told. If it does not know when it is asked, it asks,
 *                once (send_end).
 *
 * A key that goes by the proxies is entered as well, as long as few are: room is kept for channels.
 * Those that are not entered are asked for each time.
 *
 * Before the first message the sender's cells must say that those of a former turn have been taken
 * (packets.begin_cells); the receiver may have announced its buffer there already. With FAILS a
 * question fails now and then: there is no slot for it (requests.make_ask). The call is refused
 * then, and made again here.
 *
 * A channel has one slot, and its first message is a long one. See channel.pml for all that follows.
 */

byte mutation; /* MUTATION in the environment: what is taken away; 0: nothing */

/* --- mutations --------------------------------------------------------------------------------- */

#define CLAIM_WITHOUT_SWAP 1        /* enter: looks whether a row is free, then takes it */
#define ANY_FREE_ROW 2              /* enter: a row that is the key's already does not count */
#define LOSER_DOES_NOT_WAIT 3       /* enter, find: OPENING passes for the proxied road */
#define LOSER_BEGINS_TOO 4          /* enter: who has lost begins the cells as well */
#define NO_FENCE_BEFORE_REMOTE 5    /* enter: where the other end is may be seen first */
#define TRUSTS_L1 6                 /* find: does not look past L1 for where our end is */
#define BEGINS_ALL_OF_THE_CELL 7    /* begin_cells: also what the receiver has announced */
#define INBOX_FOR_EACH_QUESTION 8   /* _inbox: does not look whether the key has one */
#define TELLS_WHO_ASKS 9            /* _inbox: tells nobody when our own kernel asks */
#define UNTOLD_IS_PROXIED 10        /* send_end: no answer passes for the proxied road */
#define NO_ROOM_KEPT 11             /* enter: the table is filled with those that go by the proxies */
#define FAILED_IS_PROXIED 12        /* make_ask: so does a question that has failed */

#define IF(name) (mutation == name)

#ifndef KEYS
#define KEYS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2 /* with each key */
#endif
#ifndef SENDERS
#define SENDERS 2
#endif
#ifndef RECEIVERS
#define RECEIVERS 2
#endif
#ifndef INBOXES
#define INBOXES KEYS
#endif
#ifndef ROWS
#define ROWS (KEYS + 1) /* one is always nobody's, or who looks would never end */
#endif
#ifndef MOST_PROXIED
#define MOST_PROXIED 0 /* rows of keys that go by the proxies */
#endif
#define CHANNELS (INBOXES + 2) /* numbers of inboxes; more than there should be, for mutations */

#if SENDERS + RECEIVERS == 2 /* both go from key to key in order, or each would wait for the other */
#define IN_TURN(k) ((k) == 0 || calls[RANK * KEYS + (k) - 1] == MESSAGES)
#else
#define IN_TURN(k) true
#endif
#define MAY_CALL(k) (calls[RANK * KEYS + (k)] < MESSAGES && IN_TURN(k))

#define SENDS (me < SENDERS)
#define RANK (SENDS -> 0 : 1)
#define NO_KEY 0

/* In place of where the other end is; a channel's number behind them. */
#define OPENING 0
#define PROXIED 1
#define FIRST 2
#define UNKNOWN 255

/* Tables, one behind the other. */
#define ROW(i) (RANK * ROWS + (i))
byte key_of[2 * ROWS];     /* the key + 1 */
byte remote_of[2 * ROWS];
bool local_of[2 * ROWS];   /* whether it is there: our end, and the counters */
bool local_flying[2 * ROWS];
byte next[2 * ROWS];       /* counters: of the next message */
byte proxied_rows[2];      /* that have been wanted */

/* Proxies. */
byte question[SENDERS + RECEIVERS]; /* a block's: key + 1 */
byte answer[SENDERS + RECEIVERS];   /* UNKNOWN: none so far */
byte inbox_of[KEYS], told[KEYS];    /* at the receiver's, at the sender's */
bool asked[KEYS];
byte given;
chan to_receiver = [KEYS] of { byte };
chan to_sender = [2 * KEYS] of { byte, byte };

/* Ends: of the sender, its cells; of the receiver, its inbox. */
byte taken[CHANNELS];      /* messages that have been, + 1; 0: fresh memory */
bool beginning[CHANNELS];  /* the store that says "none has been" is on its way */
bool announced[CHANNELS];  /* the buffer of the first message */
byte inbox[CHANNELS];      /* number of the message in it + 1 */
byte inbox_key[CHANNELS];

/* By the proxies: how many have been sent, and received. */
byte proxied_sent[KEYS], proxied_received[KEYS];

/* What both ends must agree on. */
byte road[KEYS];           /* + 1; 0: nobody has taken any */
byte calls[2 * KEYS];      /* so far, of a rank with a key */
byte drawn[2 * KEYS];      /* numbers, a bit each */
byte failures;

inline go_to_next_row() { at++; assert(at < ROWS) } /* else nobody's row is left: it never ends */

inline take_road(r) { assert(road[key] == 0 || road[key] == (r) + 1); road[key] = (r) + 1 }

proctype LocalStore(byte row) { /* and CellStore: stores of a block that are on their way */
end:
    do
    :: atomic { local_flying[row] -> local_of[row] = true; local_flying[row] = false }
    od
}

proctype CellStore(byte c) {
end:
    do
    :: atomic { beginning[c] -> taken[c] = 1; beginning[c] = false;
           if :: IF(BEGINS_ALL_OF_THE_CELL) -> announced[c] = false :: else fi }
    od
}

/* --- proxies ----------------------------------------------------------------------------------- */

inline give_inbox(k, by_kernel) {
    if
    :: inbox_of[k] == UNKNOWN || IF(INBOX_FOR_EACH_QUESTION) ->
        if
        :: given < INBOXES || (IF(INBOX_FOR_EACH_QUESTION) && inbox_of[k] >= FIRST && given < CHANNELS) ->
            inbox_of[k] = FIRST + given; given++
        :: else -> inbox_of[k] = PROXIED
        fi;
        if :: by_kernel && IF(TELLS_WHO_ASKS) :: else -> to_sender!k, inbox_of[k] fi
    :: else
    fi
}

inline answer_sender(b) {
    k = question[b] - 1;
    if
    :: told[k] != UNKNOWN -> answer[b] = told[k]; question[b] = NO_KEY
    :: told[k] == UNKNOWN && !asked[k] -> asked[k] = true; to_receiver!k
    :: else -> answer[b] = PROXIED; question[b] = NO_KEY
    fi;
    k = 0
}

inline answer_receiver(b) {
    k = question[b] - 1; give_inbox(k, true);
    answer[b] = inbox_of[k]; question[b] = NO_KEY; k = 0
}

proctype ReceiversProxy() {
    byte k;
end:
    do
    :: atomic { to_receiver?k -> give_inbox(k, false); k = 0 }
    :: atomic { question[SENDERS] != NO_KEY -> answer_receiver(SENDERS) }
#if RECEIVERS > 1
    :: atomic { question[SENDERS + 1] != NO_KEY -> answer_receiver(SENDERS + 1) }
#endif
    od
}

#define ANSWERS(b) (question[b] != NO_KEY && \
    (told[question[b] - 1] != UNKNOWN || !asked[question[b] - 1] || IF(UNTOLD_IS_PROXIED)))

proctype SendersProxy() {
    byte k, said;
end:
    do
    :: atomic { to_sender?k, said -> told[k] = said; k = 0; said = 0 }
    :: atomic { ANSWERS(0) -> answer_sender(0) }
#if SENDERS > 1
    :: atomic { ANSWERS(1) -> answer_sender(1) }
#endif
    od
}

/* --- blocks ------------------------------------------------------------------------------------ */

#define HAS_LOCAL (local_of[ROW(at)] || IF(NO_FENCE_BEFORE_REMOTE))

proctype Block(byte me) {
    byte key, at, remote, n, last, last_key;
    bool ours, won;
next_call:
    if
    :: atomic { MAY_CALL(0) -> key = 0; calls[RANK * KEYS]++ }
#if KEYS > 1
    :: atomic { MAY_CALL(1) -> key = 1; calls[RANK * KEYS + 1]++ }
#endif
#if KEYS > 2
    :: atomic { MAY_CALL(2) -> key = 2; calls[RANK * KEYS + 2]++ }
#endif
    :: !MAY_CALL(0) && !MAY_CALL(KEYS / 2) && !MAY_CALL(KEYS - 1) -> goto finished
    fi;
    /* find */
look:
    atomic {
        if
        :: key_of[ROW(at)] == key + 1 ->
            remote = remote_of[ROW(at)];
            if :: ours = local_of[ROW(at)] :: ours = false /* from L1 */ fi;
            if
            :: remote == OPENING && IF(LOSER_DOES_NOT_WAIT) -> remote = PROXIED; goto go
            :: remote != OPENING && (remote == PROXIED || ours || IF(TRUSTS_L1)) -> goto go
            :: else -> goto when_open
            fi
        :: key_of[ROW(at)] != NO_KEY && key_of[ROW(at)] != key + 1 ->
            go_to_next_row(); goto look
        :: true /* nobody has asked, as far as L1 knows */
        fi;
        at = 0; question[me] = key + 1; answer[me] = UNKNOWN };
    atomic {
        if
        :: answer[me] != UNKNOWN -> remote = answer[me]
#ifdef FAILS
        :: failures > 0 && question[me] != NO_KEY -> failures--; question[me] = NO_KEY;
            if
            :: IF(FAILED_IS_PROXIED) -> remote = PROXIED; goto go
            :: else -> at = 0; goto look
            fi
#endif
        fi;
        answer[me] = UNKNOWN };
    /* enter */
    atomic {
        if
        :: remote == PROXIED && !IF(NO_ROOM_KEPT) ->
            proxied_rows[RANK]++;
            if :: proxied_rows[RANK] > MOST_PROXIED -> proxied_rows[RANK]--; goto go :: else fi
        :: else
        fi };
swap:
    atomic {
        won = key_of[ROW(at)] == NO_KEY;
        if
        :: won && !IF(CLAIM_WITHOUT_SWAP) -> key_of[ROW(at)] = key + 1
        :: !won && key_of[ROW(at)] != key + 1 -> go_to_next_row(); goto swap
        :: !won && key_of[ROW(at)] == key + 1 && IF(ANY_FREE_ROW) -> go_to_next_row(); goto swap
        :: else
        fi };
    if
    :: won ->
        atomic {
            key_of[ROW(at)] = key + 1;
            if :: SENDS && remote >= FIRST -> beginning[remote - FIRST] = true :: else fi;
            if :: remote >= FIRST -> local_flying[ROW(at)] = true :: else fi };
        atomic { !local_flying[ROW(at)] || IF(NO_FENCE_BEFORE_REMOTE) ->
            remote_of[ROW(at)] = remote };
        atomic { !local_flying[ROW(at)]; ours = true; goto go }
    :: else ->
        if
        :: SENDS && IF(LOSER_BEGINS_TOO) && remote >= FIRST ->
            atomic { !beginning[remote - FIRST] -> beginning[remote - FIRST] = true }
        :: else
        fi;
        if
        :: IF(LOSER_DOES_NOT_WAIT) ->
            atomic { remote = remote_of[ROW(at)]; ours = true;
                if :: remote == OPENING -> remote = PROXIED :: else fi; goto go }
        :: else
        fi
    fi;
when_open: /* past L1 */
    atomic { remote_of[ROW(at)] != OPENING -> remote = remote_of[ROW(at)];
        ours = local_of[ROW(at)] };
go:
    won = false;
    if
    :: remote == PROXIED ->
        atomic { take_road(PROXIED); at = 0; remote = 0; ours = false;
            if
            :: SENDS -> proxied_sent[key]++; goto done
            :: else -> n = proxied_received[key]; proxied_received[key]++
            fi };
        atomic { proxied_sent[key] > n -> goto done }
    :: else
    fi;
    atomic {
        take_road(remote); assert(ours);
        n = next[ROW(at)]; next[ROW(at)]++;
        assert((drawn[RANK * KEYS + key] & 1 << n) == 0); /* each number once */
        drawn[RANK * KEYS + key] = drawn[RANK * KEYS + key] | 1 << n;
        assert(last_key != key + 1 || n > last); /* nobody overtakes */
        last = n; last_key = key + 1; at = 0; ours = false; remote = remote - FIRST };
    if
    :: SENDS ->
        atomic { taken[remote] == n + 1 && (n > 0 || announced[remote]) ->
            inbox[remote] = n + 1; inbox_key[remote] = key }
    :: else ->
        if :: n == 0 -> announced[remote] = true :: else fi;
        atomic { inbox[remote] == n + 1 -> assert(inbox_key[remote] == key);
            taken[remote] = n + 2 }
    fi;
done:
    atomic { n = 0; remote = 0; key = 0; goto next_call };
finished:
    skip
}

init {
    byte i;
    c_code { now.mutation = getenv("MUTATION") ? atoi(getenv("MUTATION")) : 0; };
    atomic {
#ifdef FAILS
        failures = 2;
#endif
        for (i : 0 .. KEYS - 1) { inbox_of[i] = UNKNOWN; told[i] = UNKNOWN }
        for (i : 0 .. SENDERS + RECEIVERS - 1) { answer[i] = UNKNOWN }
        for (i : 0 .. 2 * ROWS - 1) { run LocalStore(i) }
        for (i : 0 .. CHANNELS - 1) { run CellStore(i) }
        run SendersProxy();
        run ReceiversProxy();
        for (i : 0 .. SENDERS + RECEIVERS - 1) { run Block(i) };
        i = 0
    }
}

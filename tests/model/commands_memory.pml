/* commands.pml: stores that are on their way, and L1. */

inline write_own(id_or_0) { /* the owner's own bytes: what it sends, or zeros */
    for (k : 0 .. CHUNKS - 1) {
        user[me * CHUNKS + k] = (id_or_0 -> BYTE(id_or_0, k) : 0)
    }
    k = 0
}

#ifdef DELAYS

#define FLYING_OWN 1
#define FLYING_DATA 2    /* a chunk unpacked */
#define FLYING_STAGING 4 /* a chunk packed */
#define FLYING_SEND 8    /* fields of a row */
#define FLYING_FINISHED 16
#define FLYING_OWNER 32
byte flying[BLOCKS];
byte own_id[BLOCKS];
byte data_at[BLOCKS];
byte data_byte[BLOCKS];
byte staging_at[BLOCKS];
byte staging_byte[BLOCKS];
byte row_slot[BLOCKS];
byte row_tag[BLOCKS];
#define POSITIONS (BLOCKS * CHUNKS)
byte l1[BLOCKS * POSITIONS]; /* NONE: not there */

#define LANDED(what) ((flying[me] & (what)) == 0)
#define LANDS(what) flying[me] & (what) -> flying[me] = flying[me] & ~(what)

proctype Memory(byte me) {
    byte k;
end:
    do
    :: atomic { LANDS(FLYING_OWN); write_own(own_id[me]); own_id[me] = 0 }
    :: atomic { LANDS(FLYING_DATA);
           user[data_at[me]] = data_byte[me]; data_at[me] = 0; data_byte[me] = 0 }
    :: atomic { LANDS(FLYING_STAGING);
           staging[staging_at[me]] = staging_byte[me]; staging_at[me] = 0; staging_byte[me] = 0 }
    :: atomic { LANDS(FLYING_SEND); send_address[row_slot[me]] = me }
    :: atomic { LANDS(FLYING_FINISHED); finished[row_slot[me]] = 0 }
    :: atomic { LANDS(FLYING_OWNER); recv_address[row_slot[me]] = me;
           owner[row_slot[me]] = row_tag[me]; claimed[row_slot[me]] = 0 }
    od
}

inline store_own(id_or_0) {
    atomic { LANDED(FLYING_OWN | FLYING_DATA); /* stores to one address stay in order */
        flying[me] = flying[me] | FLYING_OWN; own_id[me] = id_or_0;
        for (k : 0 .. CHUNKS - 1) {
            l1[me * POSITIONS + me * CHUNKS + k] = (id_or_0 -> BYTE(id_or_0, k) : 0)
        }
        k = 0 }
}
inline store_data(p, value) {
    LANDED(FLYING_DATA) -> flying[me] = flying[me] | FLYING_DATA;
    data_at[me] = p; data_byte[me] = value; l1[me * POSITIONS + p] = value
}
inline store_staging(p, value) {
    LANDED(FLYING_STAGING) -> flying[me] = flying[me] | FLYING_STAGING;
    staging_at[me] = p; staging_byte[me] = value
}
inline load_user(p) {
    if :: l1[me * POSITIONS + p] == NONE -> l1[me * POSITIONS + p] = user[p] :: else fi;
    at = l1[me * POSITIONS + p]
}
inline open_orders() {
    atomic { LANDED(FLYING_SEND | FLYING_FINISHED | FLYING_OWNER);
        row_slot[me] = slot; row_tag[me] = handle;
        flying[me] = flying[me] | FLYING_SEND | (IF(COUNT_NOT_RESET) -> 0 : FLYING_FINISHED) }
}
inline open_row() {
    atomic { row_slot[me] = slot; row_tag[me] = handle; flying[me] = flying[me] | FLYING_OWNER }
}
inline fence() {
    atomic { flying[me] == 0 ->
        for (k : 0 .. POSITIONS - 1) { l1[me * POSITIONS + k] = NONE }
        k = 0; row_slot[me] = 0; row_tag[me] = 0 }
}
#define OWNER_LANDED LANDED(FLYING_OWNER)
/* A block may look at bytes beside these, in the same line, at any time: here, at the last ones. */
#define LAST_BYTE (CHUNKS - 1)
#ifdef SHARED
#define TOUCH
#else
#define TOUCH \
    :: atomic { l1[me * POSITIONS + LAST_BYTE] == NONE -> load_user(LAST_BYTE); at = 0 }
#endif

#else

inline store_own(id_or_0) { d_step { write_own(id_or_0) } }
inline store_data(p, value) { user[p] = value }
inline store_staging(p, value) { staging[p] = value }
inline load_user(p) { at = user[p] }
inline open_orders() {
    atomic { send_address[slot] = me; if :: IF(COUNT_NOT_RESET) :: else -> finished[slot] = 0 fi }
}
inline open_row() { atomic { recv_address[slot] = me; owner[slot] = handle; claimed[slot] = 0 } }
inline fence() { skip }
#define OWNER_LANDED true
#define TOUCH

#endif

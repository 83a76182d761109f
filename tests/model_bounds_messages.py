"""The same as ``model_bounds.py``, of models of messages between two ranks."""

from __future__ import annotations

from model_kinds import EITHER, FAST, SMALL, STUCK, WRONG, Bounds, Model

MESSAGES = {
    # A channel of the direct road. Numbers wrap after four messages a slot.
    "channel": Model(
        {
            "two senders, wrap": Bounds(
                ["SENDERS=2", "RECEIVERS=1", "DEPTH=1", "MESSAGES=5"],
                1_000_000,
                options=FAST,
                full=True,
            ),
            "two senders, two slots": Bounds(
                ["SENDERS=2", "RECEIVERS=1", "DEPTH=2", "MESSAGES=3"],
                1_000_000,
                options=SMALL,
                full=True,
            ),
            "two receivers": Bounds(
                ["SENDERS=1", "RECEIVERS=2", "DEPTH=1", "MESSAGES=4"],
                1_000_000,
                options=SMALL,
                full=True,
            ),
            "two receivers, wrap": Bounds(
                ["SENDERS=1", "RECEIVERS=2", "DEPTH=1", "MESSAGES=5"],
                5_000_000,
                options=SMALL,
                full=True,
            ),
            "wide slot, wrap": Bounds(
                ["WIDE_SLOT", "SENDERS=1", "RECEIVERS=1", "DEPTH=1", "MESSAGES=6"],
                100_000,
                options=FAST,
            ),
            "wide slot, two receivers": Bounds(
                ["WIDE_SLOT", "SENDERS=1", "RECEIVERS=2", "DEPTH=2", "MESSAGES=3"],
                1_000_000,
                options=SMALL,
                full=True,
            ),
            "two of both": Bounds(
                ["SENDERS=2", "RECEIVERS=2", "DEPTH=1", "MESSAGES=3"],
                5_000_000,
                options=SMALL,
                full=True,
            ),
            # For mutations: two receivers free slots in any order.
            "two slots": Bounds(
                ["SENDERS=1", "RECEIVERS=2", "DEPTH=2", "MESSAGES=3"], options=FAST
            ),
            "wide slot, two slots": Bounds(
                ["WIDE_SLOT", "SENDERS=1", "RECEIVERS=2", "DEPTH=2", "MESSAGES=3"], options=FAST
            ),
        },
        {
            "NO_CREDIT": ("two senders, wrap", WRONG),
            "COUNT_OF_CREDITS": ("two slots", STUCK),
            "CREDIT_BEFORE_TAKEN": ("two senders, wrap", STUCK),
            "ONLY_WANTED_PACKETS": ("two senders, wrap", STUCK),
            "NO_FENCE_AFTER_PUSH": ("two senders, wrap", WRONG),
            "NO_FENCE_BEFORE_CREDIT": ("two senders, wrap", EITHER),
            "ANNOUNCED_TOO_EARLY": ("two slots", STUCK),
            "ANY_ANNOUNCEMENT": ("two senders, wrap", WRONG),
            "NO_LATE_ANNOUNCEMENT": ("two senders, wrap", STUCK),
            "TORN_PACKET": ("two senders, wrap", WRONG),
            "NO_REFRESH": ("two senders, wrap", WRONG),
            "NO_WAIT_FOR_ALL": ("wide slot, two slots", STUCK),
            "NO_WIDE_REFRESH": ("wide slot, wrap", WRONG),
            "ONE_WIDE_REFRESH": ("wide slot, wrap", WRONG),
            "NO_FENCE_AFTER_FIRST": ("two senders, wrap", WRONG),
            "ANY_PART": ("two senders, wrap", WRONG),
        },
    ),
    # How such a channel opens, from both ends at once.
    "opening": Model(
        {
            "one key": Bounds(["KEYS=1"], 100_000),
            "two keys, two senders": Bounds(["RECEIVERS=1", "MESSAGES=1"], 100_000),
            "two keys, two receivers": Bounds(["SENDERS=1", "MESSAGES=1"], 100_000),
            "an inbox too few": Bounds(
                ["RECEIVERS=1", "MESSAGES=1", "INBOXES=1", "MOST_PROXIED=1"], 100_000
            ),
            "no room for the proxied road": Bounds(
                ["SENDERS=1", "RECEIVERS=1", "KEYS=3", "INBOXES=1", "ROWS=2"], 5_000
            ),
            "questions fail": Bounds(["FAILS", "RECEIVERS=1", "KEYS=1"], 50_000),
            "three messages": Bounds(["KEYS=1", "MESSAGES=3"], 1_000_000, options=FAST, full=True),
            "questions of both fail": Bounds(
                ["FAILS", "KEYS=1"], 1_000_000, options=FAST, full=True
            ),
        },
        {
            "CLAIM_WITHOUT_SWAP": ("one key", EITHER),
            "ANY_FREE_ROW": ("one key", WRONG),
            "LOSER_DOES_NOT_WAIT": ("one key", WRONG),
            "LOSER_BEGINS_TOO": ("one key", STUCK),
            "NO_FENCE_BEFORE_REMOTE": ("one key", WRONG),
            "TRUSTS_L1": ("one key", WRONG),
            "BEGINS_ALL_OF_THE_CELL": ("one key", STUCK),
            "INBOX_FOR_EACH_QUESTION": ("one key", EITHER),
            "TELLS_WHO_ASKS": ("one key", STUCK),
            "UNTOLD_IS_PROXIED": ("one key", WRONG),
            "NO_ROOM_KEPT": ("no room for the proxied road", WRONG),
            "FAILED_IS_PROXIED": ("questions fail", WRONG),
        },
    ),
    # How it ends by an abort, and what the next context finds.
    "channel_abort": Model(
        {
            "two of both": Bounds([], 100_000),
            "a rank dies": Bounds(["DIES"], 200_000),
        },
        {
            "NO_END_OF_CREDIT": ("two of both", STUCK),
            "NO_END_OF_ANNOUNCEMENT": ("two of both", STUCK),
            "NO_END_OF_RECEIVE": ("two of both", STUCK),
            "NO_END_OF_PACKETS": ("a rank dies", STUCK),
            "NOTED_AFTER_ABORT": ("two of both", WRONG),
            "HELPER_KEEPS_CLAIM": ("two of both", STUCK),
            "LATER_KERNEL_HELPS": ("two of both", WRONG),
            "CLOSES_TOO_EARLY": ("two of both", EITHER),
            "FREED_AT_CLOSE": ("two of both", WRONG),
            "NO_MEETING_BEFORE_CLEAR": ("two of both", WRONG),
            "NO_MEETING_AFTER_CLEAR": ("two of both", WRONG),
            "NO_CLEAR": ("two of both", EITHER),
        },
    ),
    # A mailbox.
    "mailbox": Model(
        {
            "all": Bounds([], 100_000),
        },
        {
            "ONLY_WANTED_UNITS": ("all", STUCK),
            "NO_FENCE_AFTER_REFUSAL": ("all", STUCK),
            "SAME_TAG": ("all", WRONG),
            "TORN_UNIT": ("all", WRONG),
            "ANSWERED_BEFORE_TAKEN": ("all", EITHER),
        },
    ),
    # Partitioned requests. Numbers wrap after four rounds.
    "partitioned": Model(
        {
            "packets": Bounds(["ROUNDS=5"], 100_000),
            "packets one way": Bounds(["ONE_WAY", "ROUNDS=6"], 1_000),
            "stores": Bounds(["STORES", "ROUNDS=5"], 100_000),
            "a rank dies": Bounds(["DIES", "ROUNDS=5"], 100_000),
        },
        {
            "NO_CREDIT": ("packets one way", EITHER),
            "CREDIT_TOO_LARGE": ("stores", WRONG),
            "ONE_INBOX": ("packets", WRONG),
            "NUMBERS_OF_ONE_BIT": ("packets", WRONG),
            "NEVER_LATE": ("stores", STUCK),
            "LATE_FOR_EVER": ("packets", STUCK),
            "NO_FENCE_BEFORE_FLAG": ("stores", WRONG),
            "NO_SECOND_LOOK": ("stores", STUCK),
            "NO_LOOK_OF_HOST": ("stores", STUCK),
            "NO_END_BY_ABORT": ("a rank dies", STUCK),
        },
    ),
    # Blocks of exchanges on the direct road.
    "answers": Model(
        {
            "one slot": Bounds(["CALLS=3"], 100_000),
            "two slots": Bounds(["DEPTH=2", "CALLS=2"], 1_000_000, options=SMALL, full=True),
        },
        {
            "ANSWERS_TOO_EARLY": ("one slot", STUCK),
            "NO_FENCE": ("one slot", WRONG),
            "WANTED_IN_ANY_CASE": ("one slot", WRONG),
            "ANNOUNCES_AGAIN": ("one slot", WRONG),
            "WAITS_FOR_ANSWER": ("one slot", STUCK),
            "NO_CREDIT": ("one slot", EITHER),
            "ANY_ANSWER": ("one slot", WRONG),
        },
    ),
    # Exchanges with IN_PLACE there.
    "in_place": Model(
        {
            "three rounds": Bounds(["ROUNDS=3"], 1_000),
            "two calls": Bounds(["CALLS=2", "ROUNDS=2"], 100_000),
            "three ranks": Bounds(["RANKS=3", "ROUNDS=2"], 100_000),
        },
        {
            "ROUNDS_AT_ONCE": ("three rounds", WRONG),
            "SLOT_AT_ONCE": ("three rounds", WRONG),
            "AFTER_ALL": ("three rounds", STUCK),
            "ANY_BUFFER": ("two calls", STUCK),
            "OTHER_STEPS": ("three ranks", STUCK),
        },
    ),
    # The rounds of long messages on the direct road.
    "rounds": Model(
        {
            "rounds": Bounds(["ROUNDS=5"], 1_000),
        },
        {
            "ITS_OWN_ONLY": ("rounds", STUCK),
            "NOT_EMPTIED": ("rounds", WRONG),
            "NO_FENCE": ("rounds", WRONG),
            "ANY_ROUND": ("rounds", WRONG),
            "ONE_HALF": ("rounds", WRONG),
            "NEVER_AGAIN": ("rounds", STUCK),
            "WHERE_ANNOUNCED": ("rounds", WRONG),
        },
    ),
}

"""At which bounds ``test_model_protocols.py`` searches each model, and what can be taken away."""

from __future__ import annotations

from model_bounds_messages import MESSAGES
from model_kinds import EITHER, FAST, SMALL, STUCK, WRONG, Bounds, Model

MODELS = {
    **MESSAGES,
    # Collectives of the direct road. Numbers wrap after four rounds.
    "collective": Model(
        {
            "two ranks": Bounds(["ROUNDS=5", "FEW_KINDS"], 100_000),
            "three ranks": Bounds(["RANKS=3", "ROUNDS=3", "AT_ONCE", "FEW_KINDS"], 100_000),
            "all kinds": Bounds(["ROUNDS=3"], 10_000),
            "a rank dies": Bounds(["DIES", "ROUNDS=3"], 10_000),
            "calls differ": Bounds(["DIFFERS", "ROUNDS=4", "FEW_KINDS"], 50_000),
            "calls of three ranks differ": Bounds(
                ["DIFFERS", "RANKS=3", "ROUNDS=3", "AT_ONCE", "FEW_KINDS"], 50_000
            ),
            "all kinds of three ranks": Bounds(
                ["RANKS=3", "ROUNDS=3", "AT_ONCE"], 100_000, full=True
            ),
            "all kinds, and numbers wrap": Bounds(["ROUNDS=5"], 100_000, full=True),
        },
        {
            "NO_LOOK": ("two ranks", EITHER),
            "LOOKS_AT_ROOT": ("three ranks", EITHER),
            "ONE_INBOX": ("two ranks", EITHER),
            "NUMBERS_OF_ONE_BIT": ("two ranks", WRONG),
            "ALL_NUMBERS_WRAP": ("two ranks", WRONG),
            "ENTERS_TOO_EARLY": ("two ranks", EITHER),
            "SILENT_IN_BCAST": ("two ranks", STUCK),
            "BARRIER_OF_SOME": ("three ranks", WRONG),
            "NO_SIGNATURE": ("calls differ", WRONG),
            "NO_END_BY_ABORT": ("a rank dies", STUCK),
            "NO_LOOK_AFTER_GATHER": ("all kinds", EITHER),
            "NO_LOOK_AFTER_SCAN": ("all kinds", EITHER),
        },
    ),
    # Collectives that do not block there. Numbers wrap after three turns of the inboxes.
    "pending": Model(
        {
            "two ranks": Bounds(["CALLS=3"], 500_000, options=FAST),
            "one inbox, and numbers wrap": Bounds(
                ["PENDING=1", "CALLS=5"], 1_000_000, options=FAST
            ),
            "three inboxes": Bounds(["AT_ONCE", "PENDING=3", "CREDIT_STEP=2", "CALLS=5"], 200_000),
            "three ranks": Bounds(["AT_ONCE", "RANKS=3", "CALLS=3"], 200_000),
            "all kinds": Bounds(
                ["ALL_KINDS", "AT_ONCE", "ORDER=FIRST", "RANKS=3", "CALLS=3"], 200_000
            ),
            "any order": Bounds(["AT_ONCE", "ORDER=ANY", "CALLS=3"], 50_000),
            "a rank lags": Bounds(["ONE_LAGS", "CALLS=3"], 50_000),
            "a rank lags, three inboxes": Bounds(
                ["ONE_LAGS", "AT_ONCE", "PENDING=3", "CREDIT_STEP=2", "CALLS=5"], 100_000
            ),
            "two waiters": Bounds(["TWO_WAITERS", "AT_ONCE", "CALLS=3"], 200_000),
            "a rank dies": Bounds(["DIES", "ORDER=FIRST", "PENDING=1", "CALLS=3"], 100_000),
            "calls differ": Bounds(["DIFFERS", "AT_ONCE", "CALLS=3"], 100_000),
            "calls differ, any order of stores": Bounds(
                ["DIFFERS", "PENDING=1", "CALLS=3"], 200_000
            ),
            "calls of two waiters differ": Bounds(
                ["DIFFERS", "TWO_WAITERS", "AT_ONCE", "PENDING=1", "CALLS=3"], 500_000
            ),
            "calls of three ranks differ": Bounds(
                ["DIFFERS", "AT_ONCE", "ORDER=FIRST", "RANKS=3", "PENDING=1", "CALLS=3"], 100_000
            ),
            "four calls of two ranks": Bounds(["CALLS=4"], 1_000_000, options=FAST, full=True),
            "any order, of stores, too": Bounds(
                ["ORDER=ANY", "CALLS=3"], 1_000_000, options=SMALL, full=True
            ),
            "two waiters, any order of stores": Bounds(
                ["TWO_WAITERS", "ORDER=FIRST", "CALLS=3"], 5_000_000, options=SMALL, full=True
            ),
            "four calls of three ranks": Bounds(
                ["AT_ONCE", "RANKS=3", "CALLS=4"], 1_000_000, options=SMALL, full=True
            ),
            "all kinds, in turn, too": Bounds(
                ["ALL_KINDS", "AT_ONCE", "RANKS=3", "CALLS=3"], 1_000_000, options=SMALL, full=True
            ),
            "three calls differ, any order of stores": Bounds(
                ["DIFFERS", "CALLS=3"], 2_000_000, options=SMALL, full=True
            ),
            "three calls of two waiters differ": Bounds(
                ["DIFFERS", "TWO_WAITERS", "AT_ONCE", "CALLS=3"],
                1_000_000,
                options=SMALL,
                full=True,
            ),
            "three calls of three ranks differ": Bounds(
                ["DIFFERS", "AT_ONCE", "ORDER=FIRST", "RANKS=3", "CALLS=3"],
                1_000_000,
                options=FAST,
                full=True,
            ),
            "calls of three inboxes differ": Bounds(
                ["DIFFERS", "AT_ONCE", "PENDING=3", "CREDIT_STEP=2", "CALLS=5"],
                1_000_000,
                options=SMALL,
                full=True,
            ),
        },
        {
            "NO_CREDIT": ("two ranks", WRONG),
            "CREDIT_OF_ONE": ("three ranks", WRONG),
            "NOT_ITS_OWN": ("two ranks", WRONG),
            "WINDOW_TOO_LARGE": ("two ranks", WRONG),
            "CREDIT_BEFORE_READ": ("two ranks", WRONG),
            "STEP_TOO_LARGE": ("two ranks", STUCK),
            "OUT_OF_ORDER": ("two ranks", WRONG),
            "NO_LOCK": ("two waiters", WRONG),
            "NO_PROGRESS_IN_START": ("two ranks", STUCK),
            "NO_PROGRESS_ELSEWHERE": ("a rank lags", STUCK),
            "SILENT_IN_BCAST": ("one inbox, and numbers wrap", WRONG),
            "ALL_NUMBERS_WRAP": ("one inbox, and numbers wrap", WRONG),
            "NO_SIGNATURE": ("calls differ", WRONG),
            "ONLY_OWN_CALL": ("calls differ", STUCK),
            "ONLY_THIS_CALL": ("calls differ", STUCK),
            "ONE_FEWER_BEFORE": ("calls differ", STUCK),
            "ONLY_IF_OPEN": ("calls differ", STUCK),
            "NO_SECOND_LOOK": ("two waiters", WRONG),
            "ASKS_STARTED": ("two waiters", WRONG),
            "NO_END_BY_ABORT": ("a rank dies", STUCK),
        },
    ),
    # How the blocks of a grid meet in a call of grid scope.
    "grid": Model(
        {
            "two others": Bounds([], 10_000),
        },
        {
            "NO_MEETING": ("two others", EITHER),
            "NO_END_OF_JOB": ("two others", WRONG),
            "ONE_PACKET": ("two others", WRONG),
            "RESET_LATE": ("two others", EITHER),
            "LEAVES_ALONE": ("two others", EITHER),
            "LEAVES_THE_LEADER": ("two others", EITHER),
            "SILENT_LEADER": ("two others", EITHER),
            "NO_LAST_LOOK": ("two others", WRONG),
            "SAYS_TOO_EARLY": ("two others", WRONG),
        },
    ),
    # Long collectives of the direct road.
    "long_collective": Model(
        {
            "two ranks": Bounds(["CALLS=4"], 5_000),
            "three ranks": Bounds(["RANKS=3", "CALLS=2"], 50_000),
        },
        {
            "NO_FIRST_MEETING": ("two ranks", WRONG),
            "NO_SECOND_MEETING": ("two ranks", WRONG),
            "BCAST_TO_INBOX": ("two ranks", WRONG),
            "STORES_LATE": ("two ranks", WRONG),
            "RESULTS_LATE": ("two ranks", WRONG),
            "TAKES_LATE": ("two ranks", WRONG),
            "NEXT_RANK_ONLY": ("three ranks", WRONG),
        },
    ),
    # Collectives of all blocks at once.
    "pipelines": Model(
        {
            "two ranks": Bounds(["CALLS=3"], 10_000),
            "three ranks": Bounds(["RANKS=3", "CALLS=2", "TURNS=2"], 50_000),
        },
        {
            "NO_OPENING": ("two ranks", WRONG),
            "NO_END_MEETING": ("two ranks", WRONG),
            "STORES_LATE": ("two ranks", WRONG),
            "RESULTS_LATE": ("two ranks", WRONG),
            "TAKES_LATE": ("two ranks", WRONG),
            "PUTS_EARLY": ("two ranks", WRONG),
            "ONE_SLOT": ("two ranks", WRONG),
            "OLD_FLAGS": ("two ranks", WRONG),
            "NEXT_RANK_ONLY": ("three ranks", WRONG),
            "OPENS_EARLY": ("two ranks", WRONG),
            "OWN_EARLY": ("two ranks", WRONG),
            "OWN_LATE": ("two ranks", WRONG),
        },
    ),
    # What blocks, and the other rank, store to buffers that change hands.
    "late_stores": Model(
        {
            "two blocks": Bounds([], 500_000),
            "three blocks": Bounds(["BLOCKS=3", "USES=1"], 500_000),
        },
        {
            "NO_FENCE_OF_PACKED": ("two blocks", WRONG),
            "RECEIVED_FROM_L1": ("two blocks", WRONG),
            "GIVEN_BACK_UNREAD": ("two blocks", WRONG),
            "TAKEN_TWICE": ("two blocks", WRONG),
            "NO_FENCE_OF_USERS": ("two blocks", WRONG),
            "NO_FENCE_AFTER_FLAG": ("two blocks", WRONG),
        },
    ),
}

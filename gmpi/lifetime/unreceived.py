"""Messages of the direct road that nobody has received, when a context closes.

Both ends count them (``gmpi/observe/messages.py``). The receiver finds what has come in its own
memory, and says so. What comes after it has closed, it cannot see: then the sender finds that its
slots were not given back, and says so once it has heard that the receiver has closed. So each
message is reported by one rank, and no rank waits for another one to close.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gmpi.observe.direct import OpenRequest
from gmpi.observe.messages import Channel, Messages, distance

if TYPE_CHECKING:
    from gmpi.context import Context

#: How long a sender listens for receivers that are closing just now. Those that close later see
#: for themselves what has come.
_LISTEN_S = 0.1
_POLL_S = 0.002


def unreceived(context: Context, opened: list[OpenRequest]) -> dict[str, int]:
    """What this rank is to report, in words, and how many messages that are; no kernel of it runs,
    and it has not said farewell.

    Args:
        opened: its requests of the direct road that are open, which are reported as such.
    """
    messages = Messages(context)
    gone = _gone(context, messages, opened)
    # Last, just before the farewell: what comes between the two the sender has to see.
    return _come(context, messages, opened) | gone


def _words(source: int, dest: int, tag: int, where: str, counts: tuple[int, int], what: str) -> str:
    sent, received = counts
    some = f"{sent} message{'' if sent == 1 else 's'}"
    verb = "was" if received == 1 else "were"
    text = f"rank {source} has sent {some} to rank {dest} with tag {tag} on {where}"
    return f"{text}, {received} {verb} received{what}"


def _come(context: Context, messages: Messages, opened: list[OpenRequest]) -> dict[str, int]:
    """Of what has come here; others are told of it with the farewell, and of receives that are
    open, which are reported as such."""
    found, reported = {}, context._watchdog.farewells.reported
    asked = {(one.communicator, one.peer, one.tag) for one in opened if one.receives}
    for channel in messages.receives:
        sizes = messages.waiting(channel)
        identity, source = messages.members(channel)
        sent = channel.number + len(sizes)
        if sizes or channel[:3] in asked:
            reported[identity, source, channel.tag] = sent
        if sizes:
            counts = sent, channel.number
            what = f" ({sizes[0]} bytes)" if len(sizes) == 1 else f" (the next: {sizes[0]} bytes)"
            text = _words(source, context.rank, channel.tag, identity, counts, what)
            found[text] = len(sizes)
    return found


def _gone(context: Context, messages: Messages, opened: list[OpenRequest]) -> dict[str, int]:
    """Of what this rank has sent, and a rank that has closed has not seen."""
    farewells, rank = context._watchdog.farewells, context.rank
    left = _not_taken(messages, messages.sends)
    deadline = time.monotonic() + _LISTEN_S
    while left:
        with context._watchdog.lock:
            farewells.listen()
        dests = {messages.members(channel)[1] for channel in left}
        if dests <= {*farewells.heard, rank} or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
        left = _not_taken(messages, left)
    left = _not_taken(messages, left)  # by whoever has taken the last ones and then closed
    still = {  # which are reported as such
        (one.communicator, one.peer, one.tag, one.number) for one in opened if not one.receives
    }
    found = {}
    for channel, numbers in left.items():
        identity, dest = messages.members(channel)
        told = farewells.heard.get(dest)
        if told is None or told.failed:  # it is still there, or has said itself what is wrong
            continue
        seen = told.reported.get((identity, rank, channel.tag))
        unseen = [
            number
            for number in numbers
            if (*channel[:3], number) not in still and (seen is None or distance(seen, number) >= 0)
        ]
        if unseen:
            counts = channel.number, channel.number - len(numbers)
            found[_words(rank, dest, channel.tag, identity, counts, "")] = len(unseen)
    return found


def _not_taken(messages: Messages, channels: Iterable[Channel]) -> dict[Channel, list[int]]:
    """Those of channels from which a message has not been taken, with the numbers of these."""
    found = {channel: messages.not_taken(channel) for channel in channels}
    return {channel: numbers for channel, numbers in found.items() if numbers}

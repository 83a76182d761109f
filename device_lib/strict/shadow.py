"""Shadow memory: who made the last accesses to each word of an allocation, and from which line.

A word is as long as the elements of the arrays that lie there. Of each the last write is kept, the
last read of each lane since then, the last atomic access of each lane, and the last read by a GMPI
call, which reads thousands of words at once. Two accesses race if one of them is a write, not both
are atomic, and neither happened before the other (``clocks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from device_lib.strict.clocks import LANE_BITS, LANE_MASK, Clock

if TYPE_CHECKING:
    from device_lib.strict.regions import Region

_LARGEST_SHIFT = 4


class Access(NamedTuple):
    """One of two accesses that race."""

    lane: int  # of the launch
    site: int
    how: str  # "reads", "writes", or "updates" by an atomic


#: Told of a race: the address of the word, the access before, this one.
Report: TypeAlias = Callable[[int, Access, Access], None]


def shift_of(number: int) -> int:
    """The largest power of two that divides a size, as a shift."""
    return min((number & -number).bit_length() - 1, _LARGEST_SHIFT) if number else _LARGEST_SHIFT


class Shadow:
    """Of one allocation.

    Args:
        first, nbytes: where it is.
        itemsize: of the array through which it is seen first.
        report: called for each race.
    """

    def __init__(self, first: int, nbytes: int, itemsize: int, report: Report) -> None:
        self.first = first
        self.end = first + nbytes
        self.shift = shift_of(itemsize)
        words = (nbytes >> self.shift) + 1
        self._report = report
        self.writes = np.zeros(words, np.int64)  # epochs
        self.write_sites = np.zeros(words, np.int32)
        self.calls = np.zeros(words, np.int64)  # epochs of reads by calls
        self.call_sites = np.zeros(words, np.int32)
        self.reads: dict[int, dict[int, tuple[int, int]]] = {}  # word, lane: clock, site
        self.atomics: dict[int, dict[int, tuple[int, int]]] = {}
        self.agreed: dict[int, set[int]] = {}  # word: lanes that have stored what was there
        self.published: dict[int, list[int]] = {}  # word: clock (clocks.atomic)

    def word(self, address: int) -> int:
        return address - self.first >> self.shift

    def words(self, address: int, size: int) -> range:
        """The words that an access touches; smaller words from now on if it is smaller."""
        at = address - self.first
        low = at | size
        if low & ((1 << self.shift) - 1):
            self._refine(shift_of(low))
        return range(at >> self.shift, (at + size - 1 >> self.shift) + 1)

    def _refine(self, shift: int) -> None:
        """Splits all words."""
        more = 1 << self.shift - shift
        self.writes, self.calls = self.writes.repeat(more), self.calls.repeat(more)
        self.write_sites = self.write_sites.repeat(more)
        self.call_sites = self.call_sites.repeat(more)
        for name in ("reads", "atomics"):
            table = getattr(self, name)
            finer = {w * more + k: dict(row) for w, row in table.items() for k in range(more)}
            setattr(self, name, finer)
        self.agreed = {w * more + k: row for w, row in self.agreed.items() for k in range(more)}
        self.published = {w * more: clock for w, clock in self.published.items()}
        self.shift = shift

    # --- one element, by one lane -----------------------------------------------------------------

    def read(self, me: Clock, address: int, size: int, site: int) -> None:
        for word in self.words(address, size):
            self._after_write(me, word, site, "reads")
            self._after_all(me, self.atomics.get(word), word, site, "updates", "reads")
            self.reads.setdefault(word, {})[me.index] = me.now, site

    def write(self, me: Clock, address: int, size: int, site: int) -> None:
        for word in self.words(address, size):
            self._after_write(me, word, site, "writes")
            self._after_call(me, word, site, "writes")
            self._after_all(me, self.reads.pop(word, None), word, site, "reads", "writes")
            self._after_all(me, self.atomics.pop(word, None), word, site, "updates", "writes")
            self.agreed.pop(word, None)
            self.writes[word] = me.epoch()
            self.write_sites[word] = site
            self.calls[word] = 0

    def agree(self, me: Clock, address: int, size: int) -> None:
        """The lane has stored what was there already: nobody can see which of two such stores came
        first, and the lane itself may read it."""
        for word in self.words(address, size):
            self.agreed.setdefault(word, set()).add(me.index)

    def atomic(self, me: Clock, address: int, size: int, site: int) -> int:
        """The word, whose ``published`` is the caller's to keep."""
        words = self.words(address, size)
        for word in words:
            self._after_write(me, word, site, "updates")
            self._after_call(me, word, site, "updates")
            self._after_all(me, self.reads.get(word), word, site, "reads", "updates")
            self.atomics.setdefault(word, {})[me.index] = me.now, site
        return words[0]

    def _after_write(self, me: Clock, word: int, site: int, how: str) -> None:
        epoch = self.writes.item(word)
        if epoch and not me.has_seen(epoch) and me.index not in self.agreed.get(word, ()):
            self._race(word, epoch, self.write_sites.item(word), "writes", me.index, site, how)

    def _after_call(self, me: Clock, word: int, site: int, how: str) -> None:
        epoch = self.calls.item(word)
        if epoch and not me.has_seen(epoch):
            self._race(word, epoch, self.call_sites.item(word), "reads", me.index, site, how)

    def _after_all(
        self,
        me: Clock,
        row: dict[int, tuple[int, int]] | None,
        word: int,
        site: int,
        before: str,
        how: str,
    ) -> None:
        for lane, (clock, other) in (row or {}).items():
            if lane != me.index and clock > me.base[lane]:
                self._race(word, lane + 1, other, before, me.index, site, how)
                return

    def _race(
        self, word: int, epoch: int, before: int, how: str, lane: int, site: int, does: str
    ) -> None:
        first = Access((epoch & LANE_MASK) - 1, before, how)
        self._report(self.first + (word << self.shift), first, Access(lane, site, does))

    # --- a region, by a call ----------------------------------------------------------------------

    def region_words(self, region: Region) -> np.ndarray:
        """The words of a region that lie in this allocation, each once."""
        at = region.low - self.first
        if region.places is None:
            first, end = max(at, 0), min(region.high, self.end) - self.first
            return np.arange(first >> self.shift, (end - 1 >> self.shift) + 1)
        places = region.sorted_places + at
        places = places[(places >= 0) & (places < self.end - self.first)] >> self.shift
        return np.unique(places)

    def region_read(self, me: Clock, epoch: int, region: Region, site: int) -> None:
        """A call has taken what is there. ``me`` is a lane that has met the others of its scope."""
        words = self.region_words(region)
        self._after_writes(me, words, self.writes, self.write_sites, site, "writes", "reads")
        self._after_rows(me, words, self.atomics, site, "updates", "reads")
        self.region_is_read(epoch, region, site)

    def region_is_read(self, epoch: int, region: Region, site: int) -> None:
        """A call has taken what is there, and whoever had stored it has said so."""
        words = self.region_words(region)
        self.calls[words] = epoch
        self.call_sites[words] = site

    def region_is_nobodys(self, region: Region) -> None:
        """Nothing of what is there was stored by a lane."""
        self.writes[self.region_words(region)] = 0

    def region_write(self, me: Clock, epoch: int, region: Region, site: int) -> None:
        """A call may store there from now on, or has stored there."""
        words = self.region_words(region)
        self._after_writes(me, words, self.writes, self.write_sites, site, "writes", "writes")
        self._after_writes(me, words, self.calls, self.call_sites, site, "reads", "writes")
        self._after_rows(me, words, self.reads, site, "reads", "writes")
        self._after_rows(me, words, self.atomics, site, "updates", "writes")
        self.writes[words] = epoch
        self.write_sites[words] = site
        self.calls[words] = 0
        tables: list[dict[int, Any]] = [self.reads, self.atomics, self.agreed]
        for table in tables:
            for word in self._known(table, words):
                table.pop(word, None)

    def _after_writes(
        self,
        me: Clock,
        words: np.ndarray,
        epochs: np.ndarray,
        sites: np.ndarray,
        site: int,
        before: str,
        how: str,
    ) -> None:
        found = epochs[words]
        lanes = (found & LANE_MASK) - 1
        base = np.asarray(me.base, np.int64)
        bad = np.flatnonzero((found != 0) & (found >> LANE_BITS > base[lanes]))
        bad = bad[lanes[bad] != me.index]
        if len(bad):
            word = int(words[bad[0]])
            epoch, other = int(epochs[word]), int(sites[word])
            self._race(word, epoch, other, before, me.index, site, how)

    def _after_rows(
        self,
        me: Clock,
        words: np.ndarray,
        table: dict[int, dict[int, tuple[int, int]]],
        site: int,
        before: str,
        how: str,
    ) -> None:
        for word in self._known(table, words):
            self._after_all(me, table.get(word), word, site, before, how)

    @staticmethod
    def _known(table: Mapping[int, object], words: np.ndarray) -> Iterable[int]:
        """Those of the words that a table has rows of."""
        if not table:
            return ()
        if len(table) < len(words):
            wanted = np.fromiter(table.keys(), np.int64, len(table))
            return wanted[np.isin(wanted, words)].tolist()  # type: ignore[no-any-return]
        return [word for word in words.tolist() if word in table]

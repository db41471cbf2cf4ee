"""Numbers by key, for millions of keys."""

from array import array

# Bits of the smallest table's size.
LEAST_BITS = 10


class KeyTable:
    """Numbers by key: 18 to 48 bytes for each, a tenth of a dict's. Keys are known by a hash of 64 bits, so two of ten million
    keys are taken for the same with a probability of three in a million.

    kind: of the numbers, as in `array`: "I" below 2**32, "Q" below 2**64.
    """

    def __init__(self, kind):
        self._kind = kind
        self._make(LEAST_BITS)

    def _make(self, bits):
        self._bits, self._mask, self._count = bits, (1 << bits) - 1, 0
        # A hash of 0 marks an empty slot.
        self._hashes = array("Q", bytes(8 << bits))
        self._numbers = array(self._kind, bytes(array(self._kind).itemsize << bits))

    def __len__(self):
        return self._count

    def get(self, key, default=None):
        at = self._slot(_hash(key))
        return self._numbers[at] if self._hashes[at] else default

    def __setitem__(self, key, number):
        self._set(_hash(key), number)

    def _slot(self, wanted):
        at, hashes = wanted & self._mask, self._hashes
        while hashes[at] and hashes[at] != wanted:
            at = (at + 1) & self._mask
        return at

    def _set(self, wanted, number):
        at = self._slot(wanted)
        if not self._hashes[at]:
            if 3 * self._count >= 2 * self._mask:
                hashes, numbers = self._hashes, self._numbers
                self._make(self._bits + 1)
                for one, its in zip(hashes, numbers):
                    if one:
                        self._set(one, its)
                at = self._slot(wanted)
            self._hashes[at] = wanted
            self._count += 1
        self._numbers[at] = number


def _hash(key):
    return hash(key) & (2**64 - 1) or 1

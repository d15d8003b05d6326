"""The guardian of the test kit's worker: the real one, but its slots are `suimon.testing_slot`."""

from __future__ import annotations

from suimon.worker import guardian

if __name__ == "__main__":
    guardian.SLOT = "suimon.testing_slot"
    guardian.main()

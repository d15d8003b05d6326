"""When a file is finished, decided from looks; no file and no clock."""

from __future__ import annotations

from suimon.triggers.listing import Seen
from suimon.triggers.settling import Settling


def seen(name: str = "a", size: int = 1, mtime: int = 1, inode: int = 1, changed: int = 1) -> Seen:
    return Seen(f"/in/{name}".encode(), size, mtime, inode, changed)


def look(settling: Settling, now: float, *files: Seen, known: bool = False) -> list[Seen]:
    """One look in which the database knows all new ones, or none."""
    for new in settling.sort(files):
        settling.learn(new) if known else settling.wait(new, now)
    settling.end(complete=True)
    return settling.ready(now)


def test_two_looks_that_far_apart_must_see_the_same() -> None:
    settling = Settling(2.0)
    assert look(settling, 0.0, seen()) == []
    assert settling.next_s(0.5) == 1.5
    assert look(settling, 1.9, seen()) == []
    assert look(settling, 2.0, seen()) == [seen()]


def test_any_change_begins_the_wait_anew_also_with_the_old_time_and_size() -> None:
    for change in (seen(size=2), seen(mtime=2), seen(inode=2), seen(changed=2)):
        settling = Settling(2.0)
        look(settling, 0.0, seen())
        assert look(settling, 2.0, change) == [], change
        assert look(settling, 3.9, change) == []
        assert look(settling, 4.0, change) == [change]


def test_a_file_that_settles_is_not_held_up_by_one_that_grows() -> None:
    settling = Settling(2.0)
    look(settling, 0.0, seen("small"), seen("large", size=1))
    assert look(settling, 2.0, seen("small"), seen("large", size=2)) == [seen("small")]


def test_what_was_taken_is_not_asked_for_again_but_a_new_version_is() -> None:
    settling = Settling(2.0)
    look(settling, 0.0, seen(), known=True)
    assert settling.sort([seen()]) == []
    assert settling.sort([seen(mtime=2)]) == [seen(mtime=2)]


def test_a_file_that_went_away_is_forgotten_and_asked_for_again() -> None:
    settling = Settling(2.0)
    look(settling, 0.0, seen(), known=True)
    look(settling, 1.0)
    assert settling.sort([seen()]) == [seen()]
    look(settling, 2.0, seen("b"))
    look(settling, 3.0)
    assert settling.pending == 0


def test_a_look_that_could_not_see_everything_forgets_nothing() -> None:
    settling = Settling(2.0)
    look(settling, 0.0, seen(), known=True)
    settling.sort([])
    settling.end(complete=False)
    assert settling.sort([seen()]) == []


def test_files_come_in_the_order_of_their_time_or_of_their_name() -> None:
    old, new = seen("z", mtime=1), seen("a", mtime=2)
    for order, wanted in (("mtime", [old, new]), ("name", [new, old])):
        settling = Settling(0.0, order)
        assert look(settling, 0.0, new, old) == wanted


def test_so_many_settle_at_a_time_and_the_first_in_order_come_first() -> None:
    settling = Settling(0.0, max_pending=10)
    files = [seen(f"{n:03}", mtime=100 - n) for n in range(100)]
    taken: list[Seen] = []
    for now in range(20):
        ready = look(settling, float(now), *files)
        assert len(ready) <= 10
        for each in ready:
            settling.learn(each)
        taken += ready
        if not settling.more:
            break
    assert taken == sorted(files, key=lambda s: s.mtime_ns)
    assert settling.next_s(0.0) is None

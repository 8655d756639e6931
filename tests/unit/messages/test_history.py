"""History: appending is cheap, forks are safe, and older values never change."""

import copy
import pickle
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.messages import History


def test_append_leaves_the_older_value_as_it_was():
    older = History.of([1, 2])

    newer = older.append(3)

    assert list(older) == [1, 2]
    assert list(newer) == [1, 2, 3]
    assert (len(older), len(newer)) == (2, 3)
    assert (older.last, newer.last) == (2, 3)


def test_appends_in_a_row_share_one_storage():
    history = History.of(range(10))
    bytes_before = sys.getsizeof(history)

    values = [history := history.append(n) for n in range(1000)]

    assert all(value._items is history._items for value in values)
    assert sys.getsizeof(history) == bytes_before


def test_two_appends_to_one_value_fork():
    root = History.of([1])

    left, right = root.append("left"), root.append("right")

    assert list(left) == [1, "left"]
    assert list(right) == [1, "right"]
    assert list(left.append(2)) == [1, "left", 2]
    assert list(right.append(2)) == [1, "right", 2]
    assert list(root) == [1]


def test_appending_to_an_older_value_does_not_touch_the_newer():
    older = History.of([1])
    newer = older.append(2).append(3)

    other = older.append(9)

    assert list(newer) == [1, 2, 3]
    assert list(other) == [1, 9]


def test_empty_histories_never_share_what_is_appended():
    shared = History()

    one, two = shared.append(1), shared.append(2)

    assert (list(shared), list(one), list(two)) == ([], [1], [2])


def test_extend_appends_in_order_and_with_nothing_is_the_same():
    history = History.of([1])

    assert list(history.extend([2, 3])) == [1, 2, 3]
    assert history.extend([]) is history


def test_replaced_gives_a_copy_with_another_item():
    history = History.of("abc")

    assert list(history.replace_at(1, "X")) == ["a", "X", "c"]
    assert list(history) == ["a", "b", "c"]


def test_replaced_on_an_older_value_drops_what_came_later():
    older = History.of("ab")
    older.append("c")

    assert list(older.replace_at(0, "X")) == ["X", "b"]


def test_equality_is_by_items():
    assert History.of([1, 2]) == History.of([1]).append(2)
    assert History.of([1, 2]) != History.of([1, 3])
    assert History.of([1, 2]) != History.of([1])
    assert History.of([1]) != [1]


def test_a_prefix_is_not_equal_to_the_longer_value_it_shares_storage_with():
    older = History.of([1])
    newer = older.append(2)

    assert older != newer


def test_equal_histories_have_equal_hashes():
    assert hash(History.of([1, 2])) == hash(History.of([1]).append(2))


@pytest.mark.parametrize(
    "piece", [slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(5, 9)]
)
def test_slices_see_only_the_own_items(piece):
    older = History.of("abcd")
    older.append("later")

    assert older[piece] == tuple("abcd"[piece])


def test_index_works_from_both_ends_and_stops_at_the_own_length():
    older = History.of("ab")
    older.append("later")

    assert (older[0], older[-1], older[-2]) == ("a", "b", "a")
    for outside in (2, -3):
        with pytest.raises(IndexError):
            older[outside]


def test_membership_and_reversal_see_only_the_own_items():
    older = History.of("ab")
    older.append("later")

    assert "later" not in older
    assert list(reversed(older)) == ["b", "a"]
    assert older.index("b") == 1


def test_iterating_while_someone_appends_ends_at_the_own_length():
    older = History.of([1, 2])
    iterator = iter(older)
    older.append(3)

    assert list(iterator) == [1, 2]


def test_last_of_nothing_is_none():
    assert History().last is None
    assert not History()


def test_pickle_and_deepcopy_keep_the_items_and_cut_the_sharing():
    older = History.of([[1]])
    older.append([2])

    for twin in (pickle.loads(pickle.dumps(older)), copy.deepcopy(older)):
        assert twin == older
        assert twin._items is not older._items


def test_threads_appending_to_one_value_each_get_their_own_item():
    threads = 8
    for _ in range(50):
        root = History.of(range(5))
        results: list[History] = []
        start = threading.Barrier(threads)

        def race(number, root=root, results=results, start=start):
            start.wait()
            history = root
            for n in range(20):
                history = history.append((number, n))
            results.append(history)

        workers = [threading.Thread(target=race, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        assert list(root) == [0, 1, 2, 3, 4]
        for history in results:
            number = history[5][0]
            assert list(history) == [0, 1, 2, 3, 4, *((number, n) for n in range(20))]
        assert {history[5][0] for history in results} == set(range(threads))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=60))
def test_any_tree_of_appends_behaves_like_tuples(operations):
    real: list[History[int]] = [History()]
    model: list[tuple[int, ...]] = [()]

    for number, item in operations:
        parent = number % len(real)
        real.append(real[parent].append(item))
        model.append((*model[parent], item))

    assert [tuple(history) for history in real] == model

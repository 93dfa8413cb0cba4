"""Labels keep clear of each other."""

from hypothesis import given
from hypothesis import strategies as st

from safeswap.charts.map import MOST_LABELS, Mark, place_labels

WITHIN = (0.0, 0.0, 400.0, 300.0)
places = st.floats(-20, 420, allow_nan=False)
marks = st.lists(
    st.builds(Mark, x=places, y=places, text=st.text("AWEMRSHI", min_size=1, max_size=6), important=st.booleans()),
    max_size=60,
)


@given(marks)
def test_no_label_covers_another_or_leaves_the_frame(some):
    boxes = [spot.box for spot in place_labels(some, within=WITHIN) if spot is not None]
    for i, (left, low, right, high) in enumerate(boxes):
        assert WITHIN[0] <= left
        assert right <= WITHIN[2]
        assert WITHIN[1] <= low
        assert high <= WITHIN[3]
        for a, b, c, d in boxes[:i]:
            assert right <= a or c <= left or high <= b or d <= low


@given(marks)
def test_no_label_covers_an_important_mark(some):
    for mark, spot in zip(some, place_labels(some, within=WITHIN), strict=True):
        if spot is not None:
            left, low, right, high = spot.box
            others = [m for m in some if m.important and (m.x, m.y) != (mark.x, mark.y)]
            assert not any(left < m.x < right and low < m.y < high for m in others)


def test_a_lonely_mark_gets_its_label():
    assert place_labels([Mark(x=200, y=150, text="RS")], within=WITHIN)[0] is not None


def test_there_are_not_more_labels_than_anybody_reads():
    many = [Mark(x=10.0 * (i % 100), y=20.0 * (i // 100), text="A") for i in range(2_000)]
    assert sum(spot is not None for spot in place_labels(many, within=(-50, -50, 2_000, 2_000))) == MOST_LABELS

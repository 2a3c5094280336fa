"""What the Heads tab opens with: which heads matter, the most important first, and what stands beneath each map."""

import re
from pathlib import Path

import numpy as np
import pytest
from answered import CLASSES, HEADLINE, answered_run
from heads_browser import Opener, Tab, expected_pixels, pixels_of
from heads_server import Step, maps_of, write_run

from headscope.record.reader import read_members
from headscope.record.schema import Text

# The heads of a made-up record by importance: those that matter, those of which it cannot be said, one that does nothing.
RANKED = ["layer 1, head 1", "layer 1, head 3", "layer 0, head 3", "layer 0, head 1", "layer 0, head 0", "layer 0, head 2", "layer 1, head 2", "layer 1, head 0"]  # fmt: skip
BY_PLACE = [f"layer {layer}, head {head}" for layer in range(2) for head in range(4)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which the newest comes second by its name."""
    logdir = tmp_path_factory.mktemp("answered")
    answered_run(logdir / "a_former", steps=(0, 300), kept=0)
    answered_run(logdir / "b_newest", layers=2, heads=4)
    return logdir


def listed(tab: Tab) -> list[str]:
    return [each.get_attribute("aria-label") for each in tab.find(".grid .map").all()]


def beneath(tab: Tab, head: str) -> str:
    return tab.text(f".grid .map[aria-label='{head}'] .under")


def test_the_tab_opens_with_which_heads_matter(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs, height=900)
    tab.drawn(200)  # the best step of the newest run, and not its last
    assert tab.find(".choose-run").input_value() == "b_newest"
    tab.says(".answer .matters", "4 of 8")
    assert tab.text(".answer .matters") == HEADLINE
    assert tab.text(".head h2") == "layer 1, head 1"
    assert listed(tab) == RANKED
    box = tab.find(".head .large").bounding_box()
    assert box["x"] > 600  # beside the grid
    assert box["y"] + box["height"] <= 900  # in sight
    tab.find(".answer .contributions .head-name >> nth=1").click()
    assert tab.text(".head h2") != "layer 1, head 1"
    tab.find(".answer .matters .head-name").click()
    assert tab.text(".head h2") == "layer 1, head 1"
    tab.press(".")
    tab.drawn(300)
    tab.says(".answer .matters", "Heads were ablated at step 200")
    tab.find(".answer button >> text=Go to step 200").click()
    tab.drawn(200)
    assert tab.text(".answer .matters") == HEADLINE


@pytest.mark.slow
def test_the_contributions_are_those_of_the_record_and_add_up(open_tab: Opener, runs: Path) -> None:
    path = runs / "b_newest" / "heads" / "step_000000000200.npz"
    arrays = read_members(path, lambda sizes: [name for name in sizes if "/nats/" in name])
    tab = open_tab(runs)
    tab.drawn(200)
    for text, answer in enumerate(CLASSES):
        heads, feedforward, bias = (
            arrays[f"text_{text}/nats/{name}"] for name in ("heads", "feedforward", "constant")
        )
        tab.find(".choose-text").select_option(str(text))
        tab.says(".answer .contributions", f"Contributions to {answer} in this text")
        amounts = [
            float(amount.replace("−", "-"))
            for amount in tab.find(".contributions .amount").all_inner_texts()
        ]
        ranked = heads.ravel()[np.argsort(-abs(heads), axis=None)]
        expected = [*ranked[:3], ranked[3:].sum(), feedforward.sum(), float(bias)]
        assert amounts == pytest.approx([*expected, sum(expected)], abs=0.051)
        place = (1, 1)
        key, share = (arrays[f"text_{text}/nats/{name}"][place][0] for name in ("keys", "by_key"))
        words = tab.text(".contribution").replace("−", "-")
        assert words.startswith(f"contributes {heads[place]:+.2f} nats to {answer}: ")
        assert f"{['[CLS]', 'word1', 'word2'][key]} {share:+.2f}" in words


@pytest.mark.slow
def test_each_map_has_its_effect_and_its_role(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs)
    tab.drawn(200)
    tab.wait("() => document.querySelector('.grid .under .mean').textContent")
    assert beneath(tab, "layer 1, head 1") == "● 1·1 +0.41 ±0.03 no clear pattern"
    assert beneath(tab, "layer 1, head 0") == "○ 1·0 +0.000 ±0.001 no clear pattern"
    assert re.fullmatch(
        r"\? 0·0 \+0\.00 ±0\.01 first-token sink \d\.\d\d", beneath(tab, "layer 0, head 0")
    )
    title = tab.find(".grid .map >> nth=0").get_attribute("title")
    assert "loss when ablated: +0.41 ±0.03 nats" in title
    assert re.search(r"\nmatters: .*\n.*answer of this text: \+2\.5 nats\nrole: no clear", title)
    tab.press(".")
    tab.drawn(300)
    tab.says(".answer .matters", "Heads were ablated at step 200")
    assert listed(tab) == RANKED  # the maps stay where they are
    assert beneath(tab, "layer 1, head 1") == "1·1 no clear pattern"  # not another step's effect


@pytest.mark.slow
def test_a_link_keeps_order_filter_colours_and_lock(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs, "#p.heads.run=a_former&p.heads.head=2&p.heads.order=%3Cb%3E")
    tab.drawn(0)
    assert tab.text(".head h2") == "layer 0, head 2"  # what a link says, and not the most important
    tab.find(".order-of-maps [data-value=place]").wait_for()
    tab.find(".order-of-maps [data-value=place]").click()
    assert listed(tab) == BY_PLACE
    tab.find(".listed-heads [data-value=matter]").click()
    assert listed(tab) == [BY_PLACE[at] for at in (1, 3, 5, 7)]
    tab.fixed("linear:0.5")
    tab.hover_cell(3, 5)
    tab.page.mouse.down()
    tab.page.mouse.up()
    tab.page.wait_for_url(re.compile("lock="))
    tab.page.wait_for_timeout(300)
    tab.page.reload()
    tab.frame = tab.page.frames[1]
    tab.drawn(0)
    tab.says(".grid .key", "matters")
    assert listed(tab) == [BY_PLACE[at] for at in (1, 3, 5, 7)]
    assert tab.find(".choose-scale").input_value() == "linear:0.5"
    assert tab.text(".head .readout").startswith("query 3 word3 → key 5 word5")
    assert tab.find("button >> text=Unlock").is_visible()


@pytest.mark.slow
def test_arrows_go_through_the_maps_as_they_stand(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs)
    tab.drawn(200)
    tab.wait("() => document.querySelector('.grid .map[aria-checked=true] .mean')?.textContent")
    columns = len(
        tab.find(".grid .maps")
        .evaluate("node => getComputedStyle(node).gridTemplateColumns")
        .split(" ")
    )
    tab.find(".grid .map[aria-checked=true]").focus()
    for key in ["ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"]:  # the borders hold
        tab.page.keyboard.press(key)
    assert tab.text(".head h2") == RANKED[1 + columns]


@pytest.mark.slow
def test_a_run_that_ends_shows_its_answer_unless_somebody_chose_a_step(
    open_tab: Opener, tmp_path: Path
) -> None:
    recorder = answered_run(tmp_path / "mine", steps=(0, 100, 200), kept=100)
    recorder.index.kept = None
    recorder.amend(200, {})
    tabs = [open_tab(tmp_path), open_tab(tmp_path)]
    for tab in tabs:
        tab.drawn(200)
        tab.says(".answer .matters", "Heads are ablated when a run ends")
        assert tab.text(".answer code") == f"headscope inspect run={tmp_path}/mine"
    tabs[1].press(",")
    tabs[1].press(",")
    tabs[1].drawn(0)
    recorder.index.kept = 100
    recorder.amend(100, {})
    for tab, step, says in zip(
        tabs, (100, 0), (HEADLINE, "Heads were ablated at step 100"), strict=True
    ):
        tab.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.says(".answer .matters", says)
        tab.drawn(step)


@pytest.mark.slow
def test_the_row_of_the_answer_and_special_tokens_are_marked(
    open_tab: Opener, tmp_path: Path
) -> None:
    count = 12
    text = Text(
        "t",
        ["a"] * (count - 2) + ["[SEP]", "[CLS]"],
        "a",
        None,
        None,
        [count - 2, count - 1],
        count - 1,
    )
    write_run(tmp_path, "mine", [text], [Step(0, [maps_of(0, 1, 2, count)])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    for section, canvas in ((".head .cells", ".large"), (".grid .frame >> nth=0", "canvas")):
        map_, row = (
            tab.find(f"{section} >> {name}").bounding_box() for name in (canvas, ".answer-row")
        )
        assert row["y"] - map_["y"] == pytest.approx(map_["height"] * (count - 1) / count, abs=1)
        assert (row["width"], row["height"]) == pytest.approx(
            (map_["width"], map_["height"] / count), abs=1
        )
    ticks = tab.find(".grid .ticks").first.evaluate(
        "node => getComputedStyle(node).backgroundPosition"
    )
    shares = [float(share) for share in re.findall(r"([\d.]+)% 0", ticks)]
    assert shares == pytest.approx([100 * 10.5 / count, 100 * 11.5 / count], abs=0.1)
    assert "ticks: special tokens" in tab.text(".grid .key")


@pytest.mark.slow
def test_a_record_that_says_nothing_of_heads_opens_as_before(
    open_tab: Opener, tmp_path: Path
) -> None:
    maps = maps_of(0, 2, 3, 5)
    write_run(
        tmp_path, "mine", [Text("t", list("abcde"), "a")], [Step(step, [maps]) for step in (0, 9)]
    )
    tab = open_tab(tmp_path)
    tab.drawn(9)
    assert tab.text(".head h2") == "layer 0, head 0"
    assert listed(tab) == [f"layer {layer}, head {head}" for layer in range(2) for head in range(3)]
    assert tab.find(
        ".order-of-maps, .listed-heads, .grid .answer-row, .of-special, .answer .contributions"
    ).first.is_hidden()
    assert tab.find(".grid .key").is_hidden()
    assert tab.find(".answer code").count() == 1
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), expected_pixels(maps[0][0]))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "order"), [(800, "importance"), (1280, "place")])
def test_labels_of_many_heads_are_read_beneath_their_maps(
    open_tab: Opener, tmp_path: Path, width: int, order: str
) -> None:
    answered_run(tmp_path / "mine", 12, 12, 16, (0,), 0, texts=1)
    tab = open_tab(tmp_path, f"#p.heads.order={order}", width=width)
    tab.drawn(0)
    tab.wait("() => document.querySelectorAll('.grid .map[data-effect=matters]').length === 72")
    assert tab.fits()
    over = "all => all.filter(node => [...node.children].some(part => part.offsetWidth && part.offsetLeft + part.offsetWidth > node.offsetLeft + node.offsetWidth + 1)).length"
    assert tab.find(".grid .under").evaluate_all(over) == 0


@pytest.mark.slow
def test_roles_and_headlines_are_text_and_an_older_record_is_counted(
    open_tab: Opener, tmp_path: Path
) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    recorder = answered_run(tmp_path / "mine", headline="")
    extra = {"roles": np.full((2, 4), hostile), "verdicts": np.zeros((2, 4), dtype=np.int32)}
    assert recorder.amend(200, {}, extra)
    tab = open_tab(tmp_path)
    tab.drawn(200)
    counts = "Ablating single heads: 0 matters, 8 no effect, 0 inconclusive (256 texts)"
    tab.says(".answer .matters", counts)
    assert (tab.find(".grid .role-of").first.text_content() or "").startswith(hostile)
    tab.find(".listed-heads [data-value=matter]").click()
    assert tab.text(".grid .maps") == "No single head is shown to matter."
    assert recorder.amend(200, {}, {"verdicts/headline": np.array(f"layer 9 head 9 {hostile}")})
    tab.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.says(".answer .matters", hostile)
    assert tab.find("img").count() == 0

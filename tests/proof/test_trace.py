"""What trace prints is what was computed: the layer's own output, torch's own counts, the shapes of the articles."""

import io
import re
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headscope.attention.reference import PackedAttention, PaperAttention
from headscope.ground.errors import ConfigError
from headscope.proof.copy_weights import copy_weights
from headscope.proof.language import Wrapped, phrases, translation
from headscope.proof.trace import steps, trace, trace_attention, values
from headscope.proof.verify import printed_numbers, published_example
from headscope.settings.commands import TraceConfig

B, T, H, E = 2, 5, 3, 7  # primes, so that no shape can be mistaken for another
D = H * E
HIDDEN = torch.arange(T) >= torch.tensor([[5], [3]])


def made(bias: bool = True, H: int = H, E: int = E) -> tuple[PackedAttention, Tensor]:
    torch.manual_seed(0)
    return PackedAttention(H * E, H, bias).double(), torch.randn(B, T, H * E, dtype=torch.float64)


def test_every_shape_is_the_one_that_the_formula_asks_for() -> None:
    done, seconds = trace(*made(), HIDDEN[:, None])
    token, square = (B, T, D), (B, H, T, T)
    assert {step.name: (len(step.made), tuple(step.made[0].shape)) for step in done} == {
        "project to Q, K, V": (1, (B, T, 3 * D)),
        "cut into Q, K, V": (3, token),
        "split into heads": (3, (B, H, T, E)),
        **dict.fromkeys(("scores", "scale", "mask", "softmax"), (1, square)),
        "weighted sum": (1, (B, H, T, E)),
        "concatenate heads": (1, token),
        "output projection": (1, token),
    }
    assert min(seconds) > 0


@pytest.mark.parametrize("bias", [True, False])
def test_a_heads_part_is_the_papers_and_the_output_the_layers_own(bias: bool) -> None:
    layer, X = made(bias)
    paper = PaperAttention(D, H, bias).double()
    copy_weights(layer, paper)
    made_by = {step.name: step.made[0] for step in steps(layer, X, HIDDEN[:, None])}
    queries, keys = paper.W_Q[0](X), paper.W_K[0](X)  # X W_1^Q and X W_1^K: [B, T, E]
    for found, expected in (
        (made_by["project to Q, K, V"][..., :E], queries),
        (made_by["split into heads"][:, 0], queries),
        (made_by["scores"][:, 0], queries @ keys.transpose(1, 2)),
        (made_by["output projection"], layer(X, X, X, HIDDEN[:, None])[0]),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    masked = made_by["mask"].masked_select(HIDDEN[:, None, None].expand(B, H, T, T))
    assert torch.isneginf(masked).all()


@pytest.mark.parametrize(("H", "E"), [(3, 7), (1, 1), (5, 2)])
def test_multiply_adds_are_half_of_the_flops_that_torch_counts(H: int, E: int) -> None:
    layer, X = made(H=H, E=E)
    with FlopCounterMode(display=False) as counter:
        layer(X, X, X)
    total = sum(step.multiply_adds for step in steps(layer, X, HIDDEN[:, None]))
    assert 2 * total == counter.get_total_flops()


def shown(width: int = 200, **options: object) -> str:
    written = io.StringIO()
    config = TraceConfig(**({"device": "cpu", "repeats": 1, "lang": "en"} | options))
    trace_attention(config, Console(file=written, width=width))
    assert max(map(len, written.getvalue().splitlines())) <= width
    return written.getvalue()


def test_the_table_shows_shapes_values_and_costs() -> None:
    layer, X = made()
    done, _ = trace(layer, X.flip(0), HIDDEN.flip(0)[:, None])
    found = {step.name: values(step.made[0]) for step in done}
    maps = layer(X, X, X, HIDDEN[:, None])[1][1, 0, 0].tolist()  # the last two keys are padding
    assert found["softmax"] == " ".join(f"{number:.4f}" for number in maps)
    small = shown(batch=2, seq_len=5, d_model=21, num_heads=3, dtype="bfloat16", bias=True)
    assert "bfloat16 on cpu" in small
    assert "1,848 parameters" in small
    assert "b_in" in small
    printed = shown(150, batch=2)
    assert "B=2, T=100, D=768, H=8, E=96" in printed
    cells = ["(2, 100, 2304)", "3 × (2, 8, 100, 96)", "(2, 8, 100, 100)", "... -inf"]
    for cell in [*cells, "353,894,400", "15,360,000", "2,362,368 parameters", "O(n·d²)"]:
        assert cell in printed, cell
    assert "…" not in shown(80, batch=2, seq_len=5), "a narrow screen folds cells"


ARTICLE = {"batch": 1, "seq_len": 5, "num_heads": 2, "mask": "none", "bias": False, "seed": 55}


def test_seed_55_has_the_numbers_of_the_article() -> None:
    printed = shown(d_model=4, **ARTICLE)
    for name in ("queries", "values", "output", "head 0"):
        first = printed_numbers()[name][0].tolist()
        if name == "values":  # at the end of the packed row
            assert f"... {first[-1]:.4f}" in printed
        else:
            assert " ".join(f"{number:.4f}" for number in first[:2]) in printed
    assert "mask" not in printed
    assert "b_in" not in printed
    assert "b_O" not in printed


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_the_layer_of_a_file_is_traced(ending: str, tmp_path: Path) -> None:
    _, layer = published_example()
    path = tmp_path / f"layer.{ending}"
    save = save_file if ending == "safetensors" else torch.save
    save(layer.state_dict(), path)  # type: ignore[operator]
    expected = shown(d_model=4, **ARTICLE)
    found = shown(weights=str(path), **ARTICLE)
    without_times = re.compile(r"^.*O\(", re.MULTILINE)
    assert without_times.findall(found) == without_times.findall(expected)
    with pytest.raises(ConfigError, match="num_heads: expected a divisor of 4, got 3"):
        shown(weights=str(path), num_heads=3)


def test_any_other_file_is_one_message_and_runs_no_code(tmp_path: Path) -> None:
    files = {
        "layer.pt": nn.MultiheadAttention(4, 2),  # a pickled object
        "another.pt": nn.Linear(4, 4).state_dict(),
        "wide.pt": nn.MultiheadAttention(4, 2, kdim=3, vdim=3).state_dict(),
        "biased.pt": nn.MultiheadAttention(4, 2, add_bias_kv=True).state_dict(),
        "list.pt": [1, 2],
    }
    for name, content in files.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(ConfigError, match="got another file; write one with "):
            shown(weights=str(tmp_path / name))
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(ConfigError, match="got another file"):
        shown(weights=str(tmp_path / "text.safetensors"))
    with pytest.raises(ConfigError, match="No such file"):
        shown(weights=str(tmp_path / "none.pt"))


def test_a_causal_mask_hides_later_tokens_and_none_hides_nothing() -> None:
    causal = shown(d_model=4, **ARTICLE | {"mask": "causal"})
    assert "1.0000 0.0000 0.0000 0.0000 0.0000" in causal
    assert "-inf where a key is hidden" in causal


def test_the_language_is_that_of_the_environment_or_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert "項目" not in shown(lang="auto", batch=1, seq_len=2, d_model=8)
    monkeypatch.setenv("LANG", "ja_JP.UTF-8")
    japanese = shown(lang="auto", batch=1, seq_len=2, d_model=8)
    assert "加重和" in japanese
    assert "Concat(head_1, ..., head_H)" in japanese, "a formula is no sentence"
    assert "パラメータ 288 個" in japanese
    assert translation("en")("scores") == "scores"
    monkeypatch.setenv("LC_ALL", "C")
    assert translation("auto")("scores") == "scores"


def test_no_word_is_broken_at_80_columns() -> None:
    assert Wrapped("1 つの行列にまとめた書き方").lines(12) == [
        "1 つの行列に",
        "まとめた",
        "書き方",
    ]
    assert Wrapped("torch の層：最初の数値").lines(12) == ["torch の層：", "最初の数値"]
    assert Wrapped("first token, first head").lines(12) == ["first token,", "first head"]
    for language in ("en", "ja"):
        say = translation(language)
        lines = shown(80, lang=language, batch=1, seq_len=5, d_model=4, num_heads=2).splitlines()
        assert max(map(cell_len, lines)) <= 80
        words = "\n".join(lines)
        for name in ("project to Q, K, V", "scale", "weighted sum", "multiply-adds", "mask"):
            assert all(phrase.strip() in words for phrase in phrases(say(name))), words

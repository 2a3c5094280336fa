"""The product of the page's network: the bytes are those of their source, and compute what JavaScript does."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.tab.html import LIVE, bundled

sys.path.append(str(Path(__file__).parent))  # pytest's importlib mode adds no folder

from product_kernel import assembled

# One product by a way: [x, weight, inner, whether the weight stays in the kernel's memory].
PRODUCTS = """rows => rows.map(([x, weight, inner, stays]) => {
  const products = new modules.kernel.Products(weight.length);
  const whole = Float32Array.from(weight);
  const own = stays ? products.room(whole.length, inner) : whole;
  if (stays) own.set(whole);
  const work = products.of(Float32Array.from(x), own, inner);
  let step = work.next();
  while (!step.done) step = work.next();
  return [products.kernel !== null, [...step.value]];
})"""
NO_WEBASSEMBLY = "WebAssembly.Module = class { constructor() { throw Error('refused'); } };0"

# A browser without relaxed SIMD refuses the first of two modules.
NOT_FUSED = """let tries = 0;
WebAssembly.Module = new Proxy(WebAssembly.Module, { construct(own, [bytes]) {
  tries += 1;
  if (tries % 2 === 1) throw Error("unknown instruction");
  return new own(bytes);
} });0"""


def test_the_bytes_of_the_kernel_are_those_of_its_source() -> None:
    pytest.importorskip("wasmtime", reason="needs the package wasmtime")
    source = (LIVE / "kernel.js").read_text("utf-8")
    _, _, after = source.partition("const KERNEL =\n")
    lines, _, _ = after.partition(";")
    assert "".join(re.findall(r'"([^"]*)"', lines)) == assembled()


@pytest.mark.slow
@pytest.mark.parametrize("refused", ["", NOT_FUSED, NO_WEBASSEMBLY], ids=["", "fused", "all"])
def test_products_of_any_shape_are_exact_also_where_webassembly_is_refused(
    browser: Any, refused: str
) -> None:
    random = np.random.default_rng(0)
    rows, expected = [], []
    for number, (n, inner, outer) in enumerate(
        [(1, 4, 4), (3, 7, 5), (2, 128, 512), (61, 32, 61), (33, 61, 32), (400, 128, 3), (5, 1, 9)]
    ):
        x = random.normal(size=(n, inner)).astype(np.float32)
        weight = random.normal(size=(outer, inner)).astype(np.float32)
        rows.append([x.ravel().tolist(), weight.ravel().tolist(), inner, number % 2 == 0])
        expected.append(x.astype(np.float64) @ weight.T.astype(np.float64))
    with browser.new_context() as context:
        tab = context.new_page()
        if refused:
            tab.evaluate(refused)
        tab.evaluate(f"{bundled('kernel.js')};window.modules = modules;0")
        found = tab.evaluate(PRODUCTS, rows)
    for (is_fast, values), right in zip(found, expected, strict=True):
        assert is_fast is (refused != NO_WEBASSEMBLY)
        np.testing.assert_allclose(np.reshape(values, right.shape), right, atol=2e-5)

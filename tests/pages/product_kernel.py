"""Assemble the product of the page's network: `python tests/pages/product_kernel.py` prints the base64 of
src/headscope/pages/static/kernel.js. Needs the package wasmtime.

product(x, weight, out, n, outer, inner): x [n, inner] times weight [outer, inner], transposed, gives out [n, outer];
all are float32 at addresses in bytes; outer and inner are multiples of 4. Two rows by four columns at a time, four
numbers of each at once; where there is one row it is computed twice.
"""  # fmt: skip

import base64
from itertools import product

ROWS, COLUMNS = 2, 4
SUMS = [f"$sum{row}{column}" for row, column in product(range(ROWS), range(COLUMNS))]


def _total(name: str) -> str:
    """Return the sum of the four numbers of a vector."""
    lanes = [f"(f32x4.extract_lane {lane} (local.get {name}))" for lane in range(4)]
    return f"(f32.add (f32.add {lanes[0]} {lanes[1]}) (f32.add {lanes[2]} {lanes[3]}))"


def _inner_step() -> str:
    """Return what is done for four numbers of two rows of x, and of four rows of the weight."""
    steps = [
        "(local.set $x0 (v128.load (local.get $p)))",
        "(local.set $x1 (v128.load (i32.add (local.get $p) (local.get $next))))",
    ]
    for column in range(COLUMNS):
        place = f"(i32.mul (local.get $wide) (i32.const {column}))"
        steps.append(f"(local.set $w (v128.load (i32.add (local.get $r) {place})))")
        for row in range(ROWS):
            name = f"$sum{row}{column}"
            own = f"(f32x4.mul (local.get $x{row}) (local.get $w))"
            steps.append(f"(local.set {name} (f32x4.add (local.get {name}) {own}))")
    return "\n      ".join(steps)


def source() -> str:
    """Return the module as text."""
    stores = "\n    ".join(
        f"(f32.store offset={4 * column} (local.get $to{row}) {_total(f'$sum{row}{column}')})"
        for row, column in product(range(ROWS), range(COLUMNS))
    )
    zero = "(v128.const f32x4 0 0 0 0)"
    clear = "\n    ".join(f"(local.set {name} {zero})" for name in SUMS)
    numbers = ["t", "o", "p", "r", "end", "wide", "high", "next", "to0", "to1"]
    names = " ".join(f"(local ${name} i32)" for name in numbers)
    vectors = " ".join(f"(local {name} v128)" for name in [*SUMS, "$x0", "$x1", "$w"])
    arguments = " ".join(
        f"(param ${name} i32)" for name in ("x", "weight", "out", "n", "outer", "inner")
    )
    return f"""(module (memory (export "memory") 1)
(func (export "product") {arguments}
  {names} {vectors}
  (local.set $wide (i32.shl (local.get $inner) (i32.const 2)))
  (local.set $high (i32.shl (local.get $outer) (i32.const 2)))
  (block $done (loop $rows
   (br_if $done (i32.ge_u (local.get $t) (local.get $n)))
   (local.set $next (select (local.get $wide) (i32.const 0)
    (i32.lt_u (i32.add (local.get $t) (i32.const 1)) (local.get $n))))
   (local.set $o (i32.const 0))
   (block $filled (loop $columns
    (br_if $filled (i32.ge_u (local.get $o) (local.get $outer)))
    (local.set $p (i32.add (local.get $x) (i32.mul (local.get $t) (local.get $wide))))
    (local.set $r (i32.add (local.get $weight) (i32.mul (local.get $o) (local.get $wide))))
    (local.set $end (i32.add (local.get $p) (local.get $wide)))
    {clear}
    (block $summed (loop $inside
      (br_if $summed (i32.ge_u (local.get $p) (local.get $end)))
      {_inner_step()}
      (local.set $p (i32.add (local.get $p) (i32.const 16)))
      (local.set $r (i32.add (local.get $r) (i32.const 16)))
      (br $inside)))
    (local.set $to0 (i32.add (local.get $out) (i32.add
     (i32.mul (local.get $t) (local.get $high)) (i32.shl (local.get $o) (i32.const 2)))))
    (local.set $to1 (select (i32.add (local.get $to0) (local.get $high)) (local.get $to0)
     (local.get $next)))
    {stores}
    (local.set $o (i32.add (local.get $o) (i32.const 4)))
    (br $columns)))
   (local.set $t (i32.add (local.get $t) (i32.const 2)))
   (br $rows)))))"""


def assembled() -> str:
    """Return the module's bytes in base64."""
    import wasmtime

    return base64.b64encode(wasmtime.wat2wasm(source())).decode("ascii")


if __name__ == "__main__":
    print(assembled())

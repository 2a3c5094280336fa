"""Assemble the products of the page's network: `python tests/pages/product_kernel.py` prints the base64 of
src/headscope/pages/static/kernel.js. Needs the package wasmtime.

product(x, weight, out, n, outer, inner): x [n, inner] times weight [outer, inner], transposed, gives out [n, outer].
back(x, weight, out, n, outer, inner): x [n, outer] times weight [outer, inner] gives out [n, inner].

All are float32 at addresses in bytes; inner, and in `product` outer, are multiples of 4. Two rows of x at a time, by
four rows of the weight or by up to four times four of its columns, which stay in the cache for all rows of x; where
there is one row it is computed twice.
"""  # fmt: skip

import base64
from itertools import product

ROWS, COLUMNS = 2, 4
ZERO = "(v128.const f32x4 0 0 0 0)"
SUMS = [f"$sum{row}{column}" for row, column in product(range(ROWS), range(COLUMNS))]
NUMBERS = ["t", "o", "p", "r", "end", "wide", "high", "next", "to0", "to1"]
LOCALS = " ".join(f"(local ${name} i32)" for name in NUMBERS)
VECTORS = " ".join(f"(local {name} v128)" for name in [*SUMS, "$x0", "$x1", "$w"])
ARGUMENTS = " ".join(
    f"(param ${name} i32)" for name in ("x", "weight", "out", "n", "outer", "inner")
)


def _total(name: str) -> str:
    """Return the sum of the four numbers of a vector."""
    lanes = [f"(f32x4.extract_lane {lane} (local.get {name}))" for lane in range(4)]
    return f"(f32.add (f32.add {lanes[0]} {lanes[1]}) (f32.add {lanes[2]} {lanes[3]}))"


def _add(row: int, column: int) -> str:
    name = f"$sum{row}{column}"
    own = f"(f32x4.mul (local.get $x{row}) (local.get $w))"
    return f"(local.set {name} (f32x4.add {own} (local.get {name})))"  # so kernel.js can fuse it


def _clear(columns: int) -> str:
    names = [f"$sum{row}{column}" for row, column in product(range(ROWS), range(columns))]
    return "\n    ".join(f"(local.set {name} {ZERO})" for name in names)


def _by_rows(body: str) -> str:
    """Return a loop over the rows of x, two at a time; $next is 0 where there is only one."""
    return f"""(local.set $t (i32.const 0))
   (block $filled (loop $rows
    (br_if $filled (i32.ge_u (local.get $t) (local.get $n)))
    (local.set $next (select (local.get $wide) (i32.const 0)
     (i32.lt_u (i32.add (local.get $t) (i32.const 1)) (local.get $n))))
    (local.set $p (i32.add (local.get $x) (i32.mul (local.get $t) (local.get $wide))))
    (local.set $to0 (i32.add (local.get $out) (i32.add
     (i32.mul (local.get $t) (local.get $high)) (i32.shl (local.get $o) (i32.const 2)))))
    (local.set $to1 (select (i32.add (local.get $to0) (local.get $high)) (local.get $to0)
     (local.get $next)))
    {body}
    (local.set $t (i32.add (local.get $t) (i32.const 2)))
    (br $rows)))"""


def _loop(body: str, stop: str) -> str:
    return f"""(block $summed (loop $inside
      (br_if $summed {stop})
      {body}
      (br $inside)))"""


def _product() -> str:
    """Return `product`: $wide is a row of x and of the weight, $high one of the output."""
    steps = [
        "(local.set $x0 (v128.load (local.get $p)))",
        "(local.set $x1 (v128.load (i32.add (local.get $p) (local.get $next))))",
    ]
    for column in range(COLUMNS):
        place = f"(i32.mul (local.get $wide) (i32.const {column}))"
        steps.append(f"(local.set $w (v128.load (i32.add (local.get $r) {place})))")
        steps += [_add(row, column) for row in range(ROWS)]
    steps += [f"(local.set ${name} (i32.add (local.get ${name}) (i32.const 16)))" for name in "pr"]
    stores = "\n    ".join(
        f"(f32.store offset={4 * column} (local.get $to{row}) {_total(f'$sum{row}{column}')})"
        for row, column in product(range(ROWS), range(COLUMNS))
    )
    body = f"""(local.set $r (i32.add (local.get $weight) (i32.mul (local.get $o) (local.get $wide))))
    (local.set $end (i32.add (local.get $p) (local.get $wide)))
    {_clear(COLUMNS)}
    {_loop(chr(10).join(steps), "(i32.ge_u (local.get $p) (local.get $end))")}
    {stores}"""
    return f"""(func (export "product") {ARGUMENTS} {LOCALS} {VECTORS}
  (local.set $wide (i32.shl (local.get $inner) (i32.const 2)))
  (local.set $high (i32.shl (local.get $outer) (i32.const 2)))
  (block $done (loop $columns
   (br_if $done (i32.ge_u (local.get $o) (local.get $outer)))
   {_by_rows(body)}
   (local.set $o (i32.add (local.get $o) (i32.const {COLUMNS})))
   (br $columns))))"""


def _columns_back(columns: int) -> str:
    """Return the part of `back` that fills columns of four numbers while so many are left."""
    steps = [
        "(local.set $x0 (v128.load32_splat (local.get $p)))",
        "(local.set $x1 (v128.load32_splat (i32.add (local.get $p) (local.get $next))))",
    ]
    for column in range(columns):
        steps.append(f"(local.set $w (v128.load offset={16 * column} (local.get $r)))")
        steps += [_add(row, column) for row in range(ROWS)]
    steps.append("(local.set $p (i32.add (local.get $p) (i32.const 4)))")
    steps.append("(local.set $r (i32.add (local.get $r) (local.get $high)))")
    stores = "\n    ".join(
        f"(v128.store offset={16 * column} (local.get $to{row}) (local.get $sum{row}{column}))"
        for row, column in product(range(ROWS), range(columns))
    )
    body = f"""(local.set $r (i32.add (local.get $weight) (i32.shl (local.get $o) (i32.const 2))))
    (local.set $end (i32.add (local.get $p) (local.get $wide)))
    {_clear(columns)}
    {_loop(chr(10).join(steps), "(i32.ge_u (local.get $p) (local.get $end))")}
    {stores}"""
    return f"""(block $done (loop $columns
   (br_if $done (i32.gt_u (i32.add (local.get $o) (i32.const {4 * columns})) (local.get $inner)))
   {_by_rows(body)}
   (local.set $o (i32.add (local.get $o) (i32.const {4 * columns})))
   (br $columns)))"""


def _back() -> str:
    """Return `back`: $wide is a row of x, $high one of the weight and of the output."""
    return f"""(func (export "back") {ARGUMENTS} {LOCALS} {VECTORS}
  (local.set $wide (i32.shl (local.get $outer) (i32.const 2)))
  (local.set $high (i32.shl (local.get $inner) (i32.const 2)))
  {_columns_back(COLUMNS)}
  {_columns_back(1)})"""


def source() -> str:
    """Return the module as text."""
    return f'(module (memory (export "memory") 1) {_product()} {_back()})'


def assembled() -> str:
    """Return the module's bytes in base64."""
    import wasmtime

    return base64.b64encode(wasmtime.wat2wasm(source())).decode("ascii")


if __name__ == "__main__":
    print(assembled())

/* Products of rows and a weight: four numbers at once in WebAssembly, or in JavaScript where a
   browser refuses that. */

import { product } from "./functional.js";

// Made by tests/pages/product_kernel.py.
const KERNEL =
  "AGFzbQEAAAABCgFgBn9/f39/fwADAgEABQMBAAEHFAIGbWVtb3J5AgAHcHJvZHVjdAAACuUFAeIFAgp/C3sgBUECdCEL" +
  "IARBAnQhDAJAA0AgBiADTw0BIAtBACAGQQFqIANJGyENQQAhBwJAA0AgByAETw0BIAAgBiALbGohCCABIAcgC2xqIQkg" +
  "CCALaiEK/QwAAAAAAAAAAAAAAAAAAAAAIRD9DAAAAAAAAAAAAAAAAAAAAAAhEf0MAAAAAAAAAAAAAAAAAAAAACES/QwA" +
  "AAAAAAAAAAAAAAAAAAAAIRP9DAAAAAAAAAAAAAAAAAAAAAAhFP0MAAAAAAAAAAAAAAAAAAAAACEV/QwAAAAAAAAAAAAA" +
  "AAAAAAAAIRb9DAAAAAAAAAAAAAAAAAAAAAAhFwJAA0AgCCAKTw0BIAj9AAQAIRggCCANav0ABAAhGSAJIAtBAGxq/QAE" +
  "ACEaIBAgGCAa/eYB/eQBIRAgFCAZIBr95gH95AEhFCAJIAtBAWxq/QAEACEaIBEgGCAa/eYB/eQBIREgFSAZIBr95gH9" +
  "5AEhFSAJIAtBAmxq/QAEACEaIBIgGCAa/eYB/eQBIRIgFiAZIBr95gH95AEhFiAJIAtBA2xq/QAEACEaIBMgGCAa/eYB" +
  "/eQBIRMgFyAZIBr95gH95AEhFyAIQRBqIQggCUEQaiEJDAALCyACIAYgDGwgB0ECdGpqIQ4gDiAMaiAOIA0bIQ8gDiAQ" +
  "/R8AIBD9HwGSIBD9HwIgEP0fA5KSOAIAIA4gEf0fACAR/R8BkiAR/R8CIBH9HwOSkjgCBCAOIBL9HwAgEv0fAZIgEv0f" +
  "AiAS/R8DkpI4AgggDiAT/R8AIBP9HwGSIBP9HwIgE/0fA5KSOAIMIA8gFP0fACAU/R8BkiAU/R8CIBT9HwOSkjgCACAP" +
  "IBX9HwAgFf0fAZIgFf0fAiAV/R8DkpI4AgQgDyAW/R8AIBb9HwGSIBb9HwIgFv0fA5KSOAIIIA8gF/0fACAX/R8BkiAX" +
  "/R8CIBf9HwOSkjgCDCAHQQRqIQcMAAsLIAZBAmohBgwACwsLAM4BBG5hbWUClAEBABsAAXgBBndlaWdodAIDb3V0AwFu" +
  "BAVvdXRlcgUFaW5uZXIGAXQHAW8IAXAJAXIKA2VuZAsEd2lkZQwEaGlnaA0EbmV4dA4DdG8wDwN0bzEQBXN1bTAwEQVz" +
  "dW0wMRIFc3VtMDITBXN1bTAzFAVzdW0xMBUFc3VtMTEWBXN1bTEyFwVzdW0xMxgCeDAZAngxGgF3AzABAAYABGRvbmUB" +
  "BHJvd3MCBmZpbGxlZAMHY29sdW1ucwQGc3VtbWVkBQZpbnNpZGU=";
const PAGE = 65_536; // bytes by which a memory grows
const ROOM = 1 << 18; // numbers of x, of a weight that does not stay, and of their product
const [X, WEIGHT, OUT, FREE] = [0, ROOM, 2 * ROOM, 3 * ROOM]; // where these begin
const WORK = 1 << 20; // multiplications between two pauses, about a millisecond
const SLOWER = 8; // times that JavaScript takes

const fours = (size) => 4 * Math.ceil(size / 4); // the kernel takes four numbers at once

function compiled() {
  try {
    const module = new WebAssembly.Module(Uint8Array.fromBase64(KERNEL));
    return new WebAssembly.Instance(module).exports;
  } catch {
    return null; // refused by a policy
  }
}

export class Products {
  /* `count`: the numbers of all weights that stay. */
  constructor(count) {
    this.kernel = compiled();
    if (this.kernel === null) return;
    this.kernel.memory.grow(Math.ceil((4 * (FREE + count)) / PAGE) + 1);
    this.memory = new Float32Array(this.kernel.memory.buffer);
    this.free = FREE;
  }

  /* The same weight [O, I], in the memory of the kernel. */
  stay(weight, inner) {
    if (this.kernel === null || inner % 4 !== 0) return weight;
    const own = this.memory.subarray(this.free, this.free + weight.length);
    own.set(weight);
    this.free += fours(weight.length);
    return own;
  }

  /* x W^T in pieces: [T, I], [O, I] -> [T, O]. */
  *of(x, weight, inner) {
    const rows = x.length / inner;
    const outer = weight.length / inner;
    const widest = fours(Math.max(inner, outer));
    const stays = weight.buffer === this.memory?.buffer;
    const hasRoom = 2 * widest <= ROOM && (stays || fours(inner) * fours(outer) <= ROOM);
    const isFast = this.kernel !== null && hasRoom;
    const most = WORK / (isFast ? 1 : SLOWER) / weight.length;
    const step = Math.max(2, 2 * Math.floor(Math.min(most, isFast ? ROOM / widest : most) / 2));
    const target = new Float32Array(rows * outer);
    for (let first = 0; first < rows; first += step) {
      const last = Math.min(rows, first + step);
      if (isFast) this.fast(x, weight, inner, target, first, last);
      else product(x, weight, inner, target, first, last);
      yield;
    }
    return target;
  }

  /* Some rows of a product by the kernel. Nothing but weights that stay is left in its memory: what
     is computed in pieces may be overtaken. */
  fast(x, weight, inner, target, first, last) {
    const { memory } = this;
    const outer = weight.length / inner;
    const stays = weight.buffer === memory.buffer;
    if (!stays) this.put(weight, inner, WEIGHT);
    this.put(x.subarray(first * inner, last * inner), inner, X);
    const address = stays ? weight.byteOffset : 4 * WEIGHT;
    const high = fours(outer);
    this.kernel.product(4 * X, address, 4 * OUT, last - first, high, fours(inner));
    for (let row = first; row < last; row += 1) {
      const from = OUT + (row - first) * high;
      target.set(memory.subarray(from, from + outer), row * outer);
    }
  }

  /* Rows in the kernel's memory, each filled up with zeros. */
  put(x, inner, place) {
    const wide = fours(inner);
    if (wide === inner) {
      this.memory.set(x, place);
      return;
    }
    this.memory.fill(0, place, place + (x.length / inner) * wide);
    for (let at = 0; at * inner < x.length; at += 1) {
      this.memory.set(x.subarray(at * inner, (at + 1) * inner), place + at * wide);
    }
  }
}

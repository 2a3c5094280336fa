/* Products of rows and a weight: four numbers at once in WebAssembly, or in JavaScript where a
   browser refuses that. */

import { plus, product, transposed } from "./functional.js";

// Made by tests/pages/product_kernel.py.
const KERNEL =
  "AGFzbQEAAAABCgFgBn9/f39/fwADAwIAAAUDAQABBxsDBm1lbW9yeQIAB3Byb2R1Y3QAAARiYWNrAAEKmQwC4gUCCn8L" +
  "eyAFQQJ0IQsgBEECdCEMAkADQCAHIARPDQFBACEGAkADQCAGIANPDQEgC0EAIAZBAWogA0kbIQ0gACAGIAtsaiEIIAIg" +
  "BiAMbCAHQQJ0amohDiAOIAxqIA4gDRshDyABIAcgC2xqIQkgCCALaiEK/QwAAAAAAAAAAAAAAAAAAAAAIRD9DAAAAAAA" +
  "AAAAAAAAAAAAAAAhEf0MAAAAAAAAAAAAAAAAAAAAACES/QwAAAAAAAAAAAAAAAAAAAAAIRP9DAAAAAAAAAAAAAAAAAAA" +
  "AAAhFP0MAAAAAAAAAAAAAAAAAAAAACEV/QwAAAAAAAAAAAAAAAAAAAAAIRb9DAAAAAAAAAAAAAAAAAAAAAAhFwJAA0Ag" +
  "CCAKTw0BIAj9AAQAIRggCCANav0ABAAhGSAJIAtBAGxq/QAEACEaIBggGv3mASAQ/eQBIRAgGSAa/eYBIBT95AEhFCAJ" +
  "IAtBAWxq/QAEACEaIBggGv3mASAR/eQBIREgGSAa/eYBIBX95AEhFSAJIAtBAmxq/QAEACEaIBggGv3mASAS/eQBIRIg" +
  "GSAa/eYBIBb95AEhFiAJIAtBA2xq/QAEACEaIBggGv3mASAT/eQBIRMgGSAa/eYBIBf95AEhFyAIQRBqIQggCUEQaiEJ" +
  "DAALCyAOIBD9HwAgEP0fAZIgEP0fAiAQ/R8DkpI4AgAgDiAR/R8AIBH9HwGSIBH9HwIgEf0fA5KSOAIEIA4gEv0fACAS" +
  "/R8BkiAS/R8CIBL9HwOSkjgCCCAOIBP9HwAgE/0fAZIgE/0fAiAT/R8DkpI4AgwgDyAU/R8AIBT9HwGSIBT9HwIgFP0f" +
  "A5KSOAIAIA8gFf0fACAV/R8BkiAV/R8CIBX9HwOSkjgCBCAPIBb9HwAgFv0fAZIgFv0fAiAW/R8DkpI4AgggDyAX/R8A" +
  "IBf9HwGSIBf9HwIgF/0fA5KSOAIMIAZBAmohBgwACwsgB0EEaiEHDAALCwuyBgIKfwt7IARBAnQhCyAFQQJ0IQwCQANA" +
  "IAdBEGogBUsNAUEAIQYCQANAIAYgA08NASALQQAgBkEBaiADSRshDSAAIAYgC2xqIQggAiAGIAxsIAdBAnRqaiEOIA4g" +
  "DGogDiANGyEPIAEgB0ECdGohCSAIIAtqIQr9DAAAAAAAAAAAAAAAAAAAAAAhEP0MAAAAAAAAAAAAAAAAAAAAACER/QwA" +
  "AAAAAAAAAAAAAAAAAAAAIRL9DAAAAAAAAAAAAAAAAAAAAAAhE/0MAAAAAAAAAAAAAAAAAAAAACEU/QwAAAAAAAAAAAAA" +
  "AAAAAAAAIRX9DAAAAAAAAAAAAAAAAAAAAAAhFv0MAAAAAAAAAAAAAAAAAAAAACEXAkADQCAIIApPDQEgCP0JAgAhGCAI" +
  "IA1q/QkCACEZIAn9AAQAIRogGCAa/eYBIBD95AEhECAZIBr95gEgFP3kASEUIAn9AAQQIRogGCAa/eYBIBH95AEhESAZ" +
  "IBr95gEgFf3kASEVIAn9AAQgIRogGCAa/eYBIBL95AEhEiAZIBr95gEgFv3kASEWIAn9AAQwIRogGCAa/eYBIBP95AEh" +
  "EyAZIBr95gEgF/3kASEXIAhBBGohCCAJIAxqIQkMAAsLIA4gEP0LBAAgDiAR/QsEECAOIBL9CwQgIA4gE/0LBDAgDyAU" +
  "/QsEACAPIBX9CwQQIA8gFv0LBCAgDyAX/QsEMCAGQQJqIQYMAAsLIAdBEGohBwwACwsCQANAIAdBBGogBUsNAUEAIQYC" +
  "QANAIAYgA08NASALQQAgBkEBaiADSRshDSAAIAYgC2xqIQggAiAGIAxsIAdBAnRqaiEOIA4gDGogDiANGyEPIAEgB0EC" +
  "dGohCSAIIAtqIQr9DAAAAAAAAAAAAAAAAAAAAAAhEP0MAAAAAAAAAAAAAAAAAAAAACEUAkADQCAIIApPDQEgCP0JAgAh" +
  "GCAIIA1q/QkCACEZIAn9AAQAIRogGCAa/eYBIBD95AEhECAZIBr95gEgFP3kASEUIAhBBGohCCAJIAxqIQkMAAsLIA4g" +
  "EP0LBAAgDyAU/QsEACAGQQJqIQYMAAsLIAdBBGohBwwACwsLAL4DBG5hbWUCpwICABsAAXgBBndlaWdodAIDb3V0AwFu" +
  "BAVvdXRlcgUFaW5uZXIGAXQHAW8IAXAJAXIKA2VuZAsEd2lkZQwEaGlnaA0EbmV4dA4DdG8wDwN0bzEQBXN1bTAwEQVz" +
  "dW0wMRIFc3VtMDITBXN1bTAzFAVzdW0xMBUFc3VtMTEWBXN1bTEyFwVzdW0xMxgCeDAZAngxGgF3ARsAAXgBBndlaWdo" +
  "dAIDb3V0AwFuBAVvdXRlcgUFaW5uZXIGAXQHAW8IAXAJAXIKA2VuZAsEd2lkZQwEaGlnaA0EbmV4dA4DdG8wDwN0bzEQ" +
  "BXN1bTAwEQVzdW0wMRIFc3VtMDITBXN1bTAzFAVzdW0xMBUFc3VtMTEWBXN1bTEyFwVzdW0xMxgCeDAZAngxGgF3A4wB" +
  "AgAGAARkb25lAQdjb2x1bW5zAgZmaWxsZWQDBHJvd3MEBnN1bW1lZAUGaW5zaWRlAQwABGRvbmUBB2NvbHVtbnMCBmZp" +
  "bGxlZAMEcm93cwQGc3VtbWVkBQZpbnNpZGUGBGRvbmUHB2NvbHVtbnMIBmZpbGxlZAkEcm93cwoGc3VtbWVkCwZpbnNp" +
  "ZGU=";
const PAGE = 65_536; // bytes by which a memory grows
const ROOM = 1 << 18; // numbers of x, of a weight that does not stay, and of their product
const [X, WEIGHT, OUT, FREE] = [0, ROOM, 2 * ROOM, 3 * ROOM]; // where these begin
const WORK = 1 << 25; // multiplications between two pauses, a few milliseconds
const SLOWER = 16; // times that JavaScript takes

const fours = (size) => 4 * Math.ceil(size / 4); // the kernel takes four numbers at once

/* f32x4.mul, local.get of a sum, f32x4.add: in place of these nop, local.get, f32x4.relaxed_madd. */
const APART = [0xfd, 0xe6, 1, 0x20, null, 0xfd, 0xe4, 1];
const FUSED = [1, 1, 1, null, null, 0xfd, 0x85, 2];

/* The kernel with a multiplication and an addition as one instruction. */
function fused(bytes) {
  const made = bytes.slice();
  for (let at = 0; at + APART.length <= made.length; at += 1) {
    if (!APART.every((byte, i) => byte === null || byte === made[at + i])) continue;
    FUSED.forEach((byte, i) => (made[at + i] = byte ?? made[at + i]));
  }
  return made;
}

function compiled() {
  const bytes = Uint8Array.fromBase64(KERNEL);
  for (const own of [fused(bytes), bytes]) { // not every browser has that instruction
    try {
      return new WebAssembly.Instance(new WebAssembly.Module(own)).exports;
    } catch {} // or a policy refuses both
  }
  return null;
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

  /* Room for a weight [O, I] that stays, in the memory of the kernel where it can be. */
  room(size, inner) {
    if (this.kernel === null || inner % 4 !== 0) return new Float32Array(size);
    const own = this.memory.subarray(this.free, this.free + size);
    this.free += fours(size);
    return own;
  }

  /* x W^T + b in pieces: [T, I], [O, I], [O] or null -> [T, O]. */
  *of(x, weight, inner, bias = null) {
    const outer = weight.length / inner;
    const target = new Float32Array((x.length / inner) * outer);
    for (const [first, last, isFast] of this.pieces(x.length / inner, weight, inner)) {
      if (isFast) this.fast(x, weight, inner, target, first, last);
      else product(x, weight, inner, target, first, last);
      if (bias) plus(target.subarray(first * outer, last * outer), bias);
      yield;
    }
    return target;
  }

  /* x W in pieces, the way back: [T, O], [O, I] -> [T, I]. */
  *back(x, weight, inner) {
    const outer = weight.length / inner;
    const rows = x.length / outer;
    const target = new Float32Array(rows * inner);
    let turned = null; // for JavaScript
    for (const [first, last, isFast] of this.pieces(rows, weight, inner)) {
      if (isFast) {
        this.fastBack(x, weight, inner, target, first, last);
      } else {
        turned ??= transposed(weight, inner);
        product(x, turned, outer, target, first, last);
      }
      yield;
    }
    return target;
  }

  /* Rows of x between two pauses: [first, last, whether the kernel can take them]. */
  *pieces(rows, weight, inner) {
    const outer = weight.length / inner;
    const widest = fours(Math.max(inner, outer));
    const stays = weight.buffer === this.memory?.buffer;
    const hasRoom = 2 * widest <= ROOM && (stays || fours(inner) * fours(outer) <= ROOM);
    const isFast = this.kernel !== null && hasRoom;
    const most = WORK / (isFast ? 1 : SLOWER) / weight.length;
    const step = Math.max(2, 2 * Math.floor(Math.min(most, isFast ? ROOM / widest : most) / 2));
    for (let first = 0; first < rows; first += step) {
      yield [first, Math.min(rows, first + step), isFast];
    }
  }

  /* Some rows of a product by the kernel. Nothing but weights that stay is left in its memory: what
     is computed in pieces may be overtaken. */
  fast(x, weight, inner, target, first, last) {
    const outer = weight.length / inner;
    const high = fours(outer);
    const address = this.at(weight, inner);
    this.put(x.subarray(first * inner, last * inner), inner, X);
    this.kernel.product(4 * X, address, 4 * OUT, last - first, high, fours(inner));
    this.take(target, outer, first, last);
  }

  fastBack(x, weight, inner, target, first, last) {
    const outer = weight.length / inner;
    const address = this.at(weight, inner);
    this.memory.set(x.subarray(first * outer, last * outer), X);
    this.kernel.back(4 * X, address, 4 * OUT, last - first, outer, fours(inner));
    this.take(target, inner, first, last);
  }

  /* Where a weight is in the kernel's memory, in bytes. */
  at(weight, inner) {
    if (weight.buffer === this.memory.buffer) return weight.byteOffset;
    this.put(weight, inner, WEIGHT);
    return 4 * WEIGHT;
  }

  /* Rows of an output, which are filled up, into the target. */
  take(target, width, first, last) {
    const high = fours(width);
    if (high === width) {
      target.set(this.memory.subarray(OUT, OUT + (last - first) * width), first * width);
      return;
    }
    for (let row = first; row < last; row += 1) {
      const from = OUT + (row - first) * high;
      target.set(this.memory.subarray(from, from + width), row * width);
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

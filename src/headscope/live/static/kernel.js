/* Linear layers in WebAssembly, four numbers at a time: linear.wat, as `wat2wasm` makes it. */

const BINARY = [
  "AGFzbQEAAAABEwJgB39/f39/f38AYAR7e3t7AXsDAwIAAQUDAQABBxMCBm1lbW9yeQIABmxpbmVhcgAACrcFAp0EBAp/",
  "A3sBfwh7IAVBAnQhCiAGQQJ0IRACQANAIAcgBE8NASAAIAcgCmxqIQsgAyAHIBBsaiEOQQAhCANA/QwAAAAAAAAAAAAA",
  "AAAAAAAAIRX9DAAAAAAAAAAAAAAAAAAAAAAhFv0MAAAAAAAAAAAAAAAAAAAAACEX/QwAAAAAAAAAAAAAAAAAAAAAIRj9",
  "DAAAAAAAAAAAAAAAAAAAAAAhGf0MAAAAAAAAAAAAAAAAAAAAACEa/QwAAAAAAAAAAAAAAAAAAAAAIRv9DAAAAAAAAAAA",
  "AAAAAAAAAAAhHCABIAggCmxqIQ0gCyEJIAsgCmohFANAIAn9AAQAIREgCSAKav0ABAAhEiAN/QAEACETIBUgESAT/eYB",
  "/eQBIRUgGSASIBP95gH95AEhGSANIApqIQwgDP0ABAAhEyAWIBEgE/3mAf3kASEWIBogEiAT/eYB/eQBIRogDCAKaiEM",
  "IAz9AAQAIRMgFyARIBP95gH95AEhFyAbIBIgE/3mAf3kASEbIAwgCmr9AAQAIRMgGCARIBP95gH95AEhGCAcIBIgE/3m",
  "Af3kASEcIA1BEGohDSAJQRBqIQkgCSAUSQ0ACyACIAhBAnRq/QAEACETIA4gCEECdGohDyAPIBMgFSAWIBcgGBAB/eQB",
  "/QsEACAPIBBqIBMgGSAaIBsgHBAB/eQB/QsEACAIQQRqIQggCCAGSQ0ACyAHQQJqIQcMAAsLC5UBAQJ7IAAgAf0NAAEC",
  "AxAREhMEBQYHFBUWFyAAIAH9DQgJCgsYGRobDA0ODxwdHh/95AEhBCACIAP9DQABAgMQERITBAUGBxQVFhcgAiAD/Q0I",
  "CQoLGBkaGwwNDg8cHR4f/eQBIQUgBCAF/Q0AAQIDBAUGBxAREhMUFRYXIAQgBf0NCAkKCwwNDg8YGRobHB0eH/3kAQs=",
].join("");
const PAGE = 65_536; // bytes, the unit of its memory
const ROWS = 64; // at once

export class Kernel {
  /* The kernel, into whose memory matrices are moved: `arrays` has views of it from then on. Null
     where a page may not compile it. */
  static open(arrays, isMatrix) {
    let exports;
    try {
      const bytes = Uint8Array.from(atob(BINARY), (sign) => sign.charCodeAt(0));
      ({ exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes)));
    } catch {
      return null; // a Content-Security-Policy, or a browser without SIMD
    }
    const names = [...arrays.keys()].filter(isMatrix);
    const sizes = names.map((name) => arrays.get(name.replace(/weight$/, "bias")).length);
    const widest = Math.max(...sizes);
    const total = names.reduce((sum, name) => sum + arrays.get(name).length, 0);
    const kernel = new Kernel(exports, 8 * widest * ROWS + 4 * total);
    for (const name of names) arrays.set(name, kernel.moved(arrays.get(name)));
    return kernel;
  }

  constructor({ memory, linear }, size) {
    memory.grow(Math.ceil(size / PAGE));
    Object.assign(this, { linear, buffer: memory.buffer, used: 0, rows: ROWS });
  }

  moved(array) {
    const own = new Float32Array(this.buffer, this.used, array.length);
    own.set(array);
    this.used += own.byteLength;
    return own;
  }

  /* Whether it has the weights, in a size that it computes with. */
  canRun(weight, inner, outer) {
    return weight.buffer === this.buffer && inner % 4 === 0 && outer % 4 === 0;
  }

  /* x W^T + b of some rows. */
  run(x, weight, bias, inner, outer, target, first, last) {
    const rows = last - first + ((last - first) % 2); // it takes two at a time
    const input = new Float32Array(this.buffer, this.used, rows * inner);
    const output = new Float32Array(this.buffer, this.used + input.byteLength, rows * outer);
    input.set(x.subarray(first * inner, last * inner));
    this.linear(
      input.byteOffset, weight.byteOffset, bias.byteOffset, output.byteOffset, rows, inner, outer,
    );
    target.set(output.subarray(0, (last - first) * outer), first * outer);
  }
}

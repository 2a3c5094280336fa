/* A text that is kept beside the one that is typed. */

import { alignedTo } from "./align.js";

export class KeptText {
  constructor({ parts, text, maps, probabilities }) {
    Object.assign(this, { parts, text, maps, probabilities });
  }

  /* What views compare a text with: this one as it is, and aligned to that one. */
  beside({ text }) {
    const isSame = JSON.stringify(this.text.tokens) === JSON.stringify(text.tokens);
    const aligned = isSame ? this.maps : alignedTo(this.maps, this.text.tokens, text.tokens);
    const index = { layers: this.maps.layers.map((_, layer) => `layer ${layer}`) };
    return { run: "the kept text", step: 0, index, text: this.text, maps: this.maps, aligned };
  }
}

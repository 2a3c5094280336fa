/* Pairs of texts. `segments` says which text each token is of: 0 for A, 1 for B, and null for
   special tokens such as [SEP], which are of neither; of a single text it is itself null. */

import { element } from "./dom.js";

const NAMES = ["A", "B"];

/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? "rtl" : "ltr";
}

/* The class of what belongs to a text, or to neither. */
export function classOf(segment) {
  return segment === null ? "of-neither" : `of-${"ab"[segment]}`;
}

/* The tokens with which another text begins. Special tokens stand with the text before them. */
function bordersOf(segments) {
  const borders = [];
  let current = null;
  (segments ?? []).forEach((segment, place) => {
    if (segment === null) return;
    if (current !== null && segment !== current) borders.push(place);
    current = segment;
  });
  return borders;
}

/* The tokens of a pair in a block for each text, under its name. */
export function blocksOf(nodes, tokens, segments) {
  if (segments === null) return nodes;
  nodes.forEach((node, index) => node.classList.add(classOf(segments[index])));
  const starts = [0, ...bordersOf(segments)];
  return starts.map((start, at) => {
    const end = starts[at + 1] ?? nodes.length;
    const text = segments.slice(start, end).find((segment) => segment !== null) ?? 0;
    const words = tokens.slice(start, end).filter((_, place) => segments[start + place] !== null);
    const name = element("span", { class: "block-name", "aria-hidden": "true" }, NAMES[text]);
    const attributes = {
      class: `block ${classOf(text)}`,
      role: "group",
      "aria-label": `Text ${NAMES[text]}`,
      dir: directionOf(words.join(" ")),
    };
    return element("div", attributes, name, ...nodes.slice(start, end));
  });
}

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

/* Lines over a map where the texts meet; the style sheet places them by their share of the side. */
export function borderLines(segments) {
  return bordersOf(segments).flatMap((border) =>
    ["across", "down"].map((way) => {
      const line = element("div", `border-line ${way}`);
      line.style.setProperty("--at", String(border / segments.length));
      return line;
    }),
  );
}

/* The same on all small maps of a grid, for a pair whose texts meet once. */
export function markBorder(grid, segments) {
  const borders = bordersOf(segments);
  grid.classList.toggle("pair", borders.length === 1);
  if (borders.length === 1) grid.style.setProperty("--at", String(borders[0] / segments.length));
}

/* What a token gives to the other text, mean; quadrants are A→A, A→B, B→A, B→B. */
function betweenOf([, toSecond, toFirst], segments) {
  const first = segments.filter((segment) => segment === 0).length;
  const second = segments.filter((segment) => segment === 1).length;
  const sum = (first && first * toSecond) + (second && second * toFirst);
  return sum / Math.max(1, first + second);
}

function formatShare(share, isSigned) {
  if (Number.isNaN(share)) return "–";
  const plus = isSigned && share > 0 ? "+" : "";
  return (share < 0 ? "−" : plus) + Math.abs(share).toFixed(3);
}

/* How each text divides its attention. Rows sum to 1, of a difference (signed) to 0. `between` is
   what goes to the other text where more tokens count than are shown. */
export function quadrantTable(quadrants, segments, isSigned, between = null) {
  const shares = Array.from(quadrants, (share) => share ?? NaN);
  const header = (words, scope, text) => element("th", { class: classOf(text), scope }, words);
  const cell = (share) => {
    const node = element("td", {}, formatShare(share, isSigned));
    node.style.setProperty("--share", isSigned ? "0" : String(share || 0));
    return node;
  };
  const names = NAMES.map((name, text) => header(`to ${name}`, "col", text));
  names.push(header("to special", "col", null));
  const rows = NAMES.map((name, text) => {
    const own = shares.slice(2 * text, 2 * text + 2);
    const rest = (isSigned ? 0 : 1) - own[0] - own[1];
    own.push(isSigned || Number.isNaN(rest) ? rest : Math.max(0, rest));
    return element("tr", {}, header(`from ${name}`, "row", text), ...own.map(cell));
  });
  const mean = formatShare(between ?? betweenOf(shares, segments), isSigned);
  const caption = element("caption", {}, `mean share of attention · between ${mean}`);
  const top = element("tr", {}, element("td"), ...names);
  return element("table", "quadrants", caption, top, ...rows);
}

/* Pairs of texts. `segments` says which text each token is of: 0 for A, 1 for B, and null for special tokens such as
   [SEP], which are of neither; of a single text it is itself null. */

import { element } from "./dom.js";

/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u);
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter[0]) ? "rtl" : "ltr";
}

const NAMES = ["A", "B"];

/* What the maps and the text show. */
export const PARTS = [
  ["all", "all", "every weight"],
  ["within", "within a text", "what tokens of a text give to tokens of the same text"],
  ["between", "between the texts", "what tokens of a text give to tokens of the other text"],
]; // prettier-ignore

/* The class of what belongs to a text, or to neither. */
export function kindOf(segment) {
  return segment === null ? "of-neither" : `of-${"ab"[segment]}`;
}

/* The tokens with which another text begins. Special tokens stand with the text before them. */
export function bordersOf(segments) {
  const borders = [];
  let current = null;
  (segments ?? []).forEach((segment, place) => {
    if (segment === null) return;
    if (current !== null && segment !== current) borders.push(place);
    current = segment;
  });
  return borders;
}

/* Whether a part of the map has the cell of these two tokens. */
export function isShown(segments, part, query, key) {
  if (segments === null || part === "all") return true;
  const [from, to] = [segments[query], segments[key]];
  return from !== null && to !== null && (from === to) === (part === "within");
}

/* The texts that a stretch of tokens has any of, as bits: 1 for A, 2 for B. */
function textsIn(segments, place, side) {
  const [first, end] = [place, place + 1].map((at) => Math.floor((at * segments.length) / side));
  return segments.slice(first, end).reduce((bits, segment) => (segment === null ? bits : bits | (1 << segment)), 0);
}

/* Which cells of a map of so many places a part has, row after row; null for all. A stretch of a long text shows where any
   of its tokens does. */
export function shownCells(segments, part, side) {
  if (segments === null || part === "all") return null;
  const texts = Array.from({ length: side }, (_, place) => textsIn(segments, place, side));
  const across = (from, to) => (from & 1 && to & 2) || (from & 2 && to & 1);
  const has = part === "within" ? (from, to) => from & to : across;
  return Uint8Array.from({ length: side * side }, (_, cell) => (has(texts[Math.floor(cell / side)], texts[cell % side]) ? 1 : 0));
}

/* The tokens of a pair in a block for each text, under its name; those of a single text as they are. */
export function blocksOf(nodes, tokens, segments) {
  if (segments === null) return nodes;
  nodes.forEach((node, index) => node.classList.add(kindOf(segments[index])));
  const starts = [0, ...bordersOf(segments)];
  return starts.map((start, at) => createBlock(nodes, tokens, segments, start, starts[at + 1] ?? nodes.length));
}

function createBlock(nodes, tokens, segments, start, end) {
  const own = segments.slice(start, end);
  const text = own.find((segment) => segment !== null) ?? 0;
  const block = element("div", `block ${kindOf(text)}`);
  const name = element("span", "block-name", NAMES[text]);
  name.setAttribute("aria-hidden", "true");
  block.setAttribute("role", "group");
  block.setAttribute("aria-label", `Text ${NAMES[text]}`);
  block.dir = directionOf(tokens.slice(start, end).filter((_, place) => own[place] !== null).join(" "));
  block.append(name, ...nodes.slice(start, end));
  return block;
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

/* What a token of the two texts gives to the other one, mean over all of them; shares are A→A, A→B, B→A, B→B. */
export function betweenOf([, toSecond, toFirst], segments) {
  const [first, second] = [0, 1].map((text) => segments.filter((segment) => segment === text).length);
  return ((first && first * toSecond) + (second && second * toFirst)) / Math.max(1, first + second);
}

function formatMean(share, signed) {
  if (Number.isNaN(share)) return "–";
  const sign = share < 0 ? "−" : signed && share > 0 ? "+" : "";
  return sign + Math.abs(share).toFixed(3);
}

/* A table of how each text divides its attention; special tokens have a column of their own. Of a difference the rows sum
   to 0, else to 1. `between` is what is given to the other text, where more tokens count for it than are shown. */
export function quadrantTable(known, segments, signed = false, between = null) {
  const shares = Array.from(known, (share) => share ?? NaN);
  const special = segments.includes(null);
  const table = element("table", "quadrants");
  const mean = formatMean(between ?? betweenOf(shares, segments), signed);
  table.append(element("caption", "", `mean share of attention · between ${mean}`));
  const header = element("tr");
  header.append(element("td"), ...NAMES.map((name, text) => headerCell(`to ${name}`, "col", text)));
  if (special) header.append(headerCell("to special", "col", null));
  const rows = NAMES.map((name, text) => {
    const row = element("tr");
    const own = shares.slice(2 * text, 2 * text + 2);
    const rest = (signed ? 0 : 1) - own[0] - own[1];
    const cells = special ? [...own, signed || Number.isNaN(rest) ? rest : Math.max(0, rest)] : own;
    row.append(headerCell(`from ${name}`, "row", text), ...cells.map((share) => shareCell(share, signed)));
    return row;
  });
  table.append(header, ...rows);
  return table;
}

function headerCell(words, scope, text) {
  const cell = element("th", kindOf(text), words);
  cell.scope = scope;
  return cell;
}

function shareCell(share, signed) {
  const cell = element("td", "", formatMean(share, signed));
  cell.style.setProperty("--share", signed ? "0" : String(share || 0));
  return cell;
}

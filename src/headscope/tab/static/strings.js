/* Words of the interface: English where they are used, t`${n} of ${all} texts`; Japanese in
   ja.json, by the English with {0}, {1} for what is put in. */

import japanese from "./ja.json" with { type: "json" };

const CHOICE = "headscope language";

function chosen() {
  try {
    return localStorage.getItem(CHOICE);
  } catch {
    return null; // in a notebook's frame
  }
}

export const language = (chosen() ?? navigator.language).startsWith("ja") ? "ja" : "en";
const table = language === "ja" ? japanese : {};

export function choose(other) {
  localStorage.setItem(CHOICE, other);
  location.reload();
}

function keyOf(texts) {
  return texts.reduce((all, text, at) => `${all}{${at - 1}}${text}`).replaceAll(/\n\s*/g, " ");
}

/* What is put in may be nodes: the parts of a sentence in their order. */
export function parts(texts, ...values) {
  const key = keyOf(texts);
  const pieces = (table[key] ?? key).split(/\{(\d)\}/);
  return pieces.map((piece, at) => (at % 2 === 1 ? values[piece] : piece)).filter((p) => p !== "");
}

export function t(texts, ...values) {
  return parts(texts, ...values).join("");
}

/* A sentence that is written elsewhere: what it looks like, and in the reader's language with {0},
   {1} for what stands there. */
export function pattern(texts) {
  const key = keyOf(texts);
  const shape = key.replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&").replaceAll(/\{\d\}/g, "(.+?)");
  return [new RegExp(`^${shape}$`, "s"), table[key] ?? key];
}

export function count(number) {
  return number.toLocaleString(language);
}

/* Names, numbers and the parts of views. Text is a child or an attribute, and never markup. */

import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { t } from "./strings.js";

const CONTROL = new RegExp(
  "[\\p{Cc}\\p{Zl}\\p{Zp}\\p{Cs}]|" +
    "[\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]",
  "gu",
);
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡" };
const LONGEST = 80; // characters of a token or name that are laid out; its title has more

export function signOf(character) {
  if (SIGNS[character]) return SIGNS[character];
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/* A token as it can be read: controls as signs, spaces at its ends as ␣, nothing as ∅. */
export function legible(token, longest = LONGEST) {
  const cut = token.length > longest ? `${[...token.slice(0, longest)].join("")}…` : token;
  const written = cut.replace(CONTROL, signOf);
  return written.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)) || "∅";
}

/* A token or a name whose writing direction does not reach the words around it. */
export function isolated(text, name = "") {
  const title = text.length > LONGEST ? legible(text, 600) : null;
  return html`<bdi class=${name} title=${title}>${legible(text)}</bdi>`;
}

/* The name of a class, by its place among the classes; -1 is the absence of the asked one. */
export function className({ index }, place) {
  return place < 0 ? t`its absence` : (index.classes[place] ?? `class ${place}`);
}

export function classLabel(store, place) {
  return isolated(className(store, place), "class-name");
}

/* A weight or a measure to three digits; a very small one as a power of ten. */
export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size !== 0 && size < 0.0005) return sign + size.toExponential(1);
  const digits = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(size || 0.1))));
  return sign + size.toFixed(digits);
}

/* A number with its sign: +3.14, −0.25; 0.00 has none, and what is not known is no 0. */
export function formatSigned(value, digits = 2) {
  if (Number.isNaN(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "−" : "+") + text;
}

// Ties are rounded as Python does, which writes some of the same numbers.
const TENTHS = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven",
});

/* A probability in percent; it is never 0 or 1, and not shown as that. */
export function percent(share) {
  if (share < 0.0005) return "< 0.1 %";
  if (share > 0.9995) return "> 99.9 %";
  return rounded(share);
}

/* A share in percent; an end of an interval may be 0 or 1. */
export function rounded(share) {
  return `${TENTHS.format(100 * share)} %`;
}

/* A number of things in percent of all: all of them are 100 %. */
export function percentOf(number, all) {
  return number === 0 || number === all ? `${number && 100} %` : percent(number / all);
}

/* Class and style of a node coloured by a number, on a linear scale. */
export function tint(value, scale, name) {
  const strength = value ? Math.min(1, Math.abs(value) / scale) : 0;
  return { class: value < 0 ? `${name} less` : name, style: { "--strength": strength.toFixed(3) } };
}

/* A bar, which runs left where the number is negative. */
export function SumBar({ value, scale }) {
  return html`<span ...${tint(value, scale, "sum-bar")} aria-hidden="true"></span>`;
}

const TERMS = {
  "log-odds": [
    t`log-odds`,
    t`The logarithm of the odds of one class against another. 0 is even; +1 makes the first class
      2.7 times as likely, +4.6 a hundred times.`,
  ],
  biases: [
    t`biases`,
    t`What the network’s constants add, whatever the words are.`,
  ],
  ends: [
    t`start and end`,
    t`[CLS] and [SEP] (or the like): tokens that stand around every text and are no words of it. The
      answer is often read at [CLS].`,
  ],
  head: [
    t`head`,
    t`One of the parts of a layer that look at words: for each token it weighs all others, and
      carries on what it finds there.`,
  ],
};

/* A term that is explained where it is pointed at or reached by the keyboard. */
export function Term({ name, words = TERMS[name][0] }) {
  const about = TERMS[name][1];
  return html`<span class="term" tabindex="0" role="note" aria-label="${words}: ${about}"
    data-about=${about}>${words}</span>`;
}

/* What went wrong, where the thing would be. */
export function Failure({ message, name = "" }) {
  return message && html`<p class="error ${name}" role="alert">${legible(message, 400)}</p>`;
}

/* A part of the page: heading, room for controls, a place for errors, and content. */
export function Panel({ name, title, about, tools, error, children }) {
  const id = `${name}-heading`;
  return html`<section class="panel ${name}" aria-labelledby=${id}>
    <div class="heading">
      <h2 id=${id}>${title}</h2>${about && html`<div class="about">${about}</div>`}
      <div class="tools">${tools}</div>
    </div>
    <${Failure} message=${error} />
    ${children}
  </section>`;
}

export function button(words, onclick, { name = "plain", ...others } = {}) {
  const attributes = { ...others, class: name, onclick };
  return html`<button type="button" ...${attributes}>${words}</button>`;
}

/* A select of [value, label] options, called by its label. */
export function chooser(name, label, value, options, onchoose) {
  const onchange = (event) => onchoose(event.target.value);
  const entries = options.map(([each, words]) => {
    return html`<option key=${each} value=${each}>${legible(words, 120)}</option>`;
  });
  const attributes = { class: `choose-${name}`, "aria-label": label, title: label, value };
  return html`<select ...${attributes} onchange=${onchange}>${entries}</select>`;
}

/* A choice to show all instead of the most important. */
export function unfolder(words, isWhole, setWhole) {
  const unfold = () => setWhole(!isWhole);
  return button(words, unfold, { name: "plain fold", "aria-expanded": String(isWhole) });
}

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };

/* Buttons in a row with data-place, one stop of the Tab key: arrow keys, Home and End move on. */
export function useRow(count) {
  const [focus, setFocus] = useState(0);
  const placeOf = ({ target }) => Number(target.closest("[data-place]")?.dataset.place ?? NaN);
  const onkeydown = (event) => {
    const step = STEPS[event.target.closest("[dir]")?.dir ?? "ltr"][event.key];
    const next = { Home: 0, End: count - 1 }[event.key] ?? placeOf(event) + step;
    if (Number.isNaN(next)) return;
    event.preventDefault();
    event.currentTarget.querySelector(`[data-place="${next}"]`)?.focus();
  };
  const focusOn = (event) => setFocus(placeOf(event));
  const tabOf = (at) => (at === Math.min(focus, count - 1) ? 0 : -1);
  return { tabOf, focusOn, onkeydown };
}

/* Light the word of a node in every view, by its data-token. */
export function pointing(store) {
  const point = (event) => {
    const { token } = event.target.closest("[data-token]")?.dataset ?? {};
    if (token !== undefined) store.pointWord(Number(token));
  };
  const leave = () => store.leave();
  return { onpointerover: point, onfocusin: point, onpointerleave: leave, onfocusout: leave };
}

export const POINTED = ["lit", "query", "key"];

/* A view that stays as it is while only these values change; by default what is pointed at, and
   what comes of words that are removed. */
export function Still({ store, view, others = [...POINTED, "mind"] }) {
  return useMemo(view, [store.revision(others)]);
}

/* What is seldom read, under one line; made when it is opened. */
export function Fold({ title, children, isOpen = false }) {
  const [chosen, choose] = useState(null);
  const open = chosen ?? isOpen;
  const toggle = (event) => choose(event.target.open);
  return html`<details class="fold-view" open=${open} ontoggle=${toggle}>
    <summary>${title}</summary>
    ${open && children()}
  </details>`;
}

/* A reference for a node, and how wide the node is. */
export function useWidth() {
  const node = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(node.current?.clientWidth ?? 0));
    observer.observe(node.current);
    return () => observer.disconnect();
  }, []);
  return [node, width];
}

/* Hand a file to the reader, under a name of letters, digits and dashes. */
export function download(content, parts, suffix) {
  const dashed = (part) => legible(String(part), 40).replace(/[^\p{L}\p{N}]+/gu, "-");
  const names = parts.map((part) => dashed(part).replace(/^-+|-+$/g, "")).filter(Boolean);
  const url = URL.createObjectURL(content);
  const name = `${names.join("_") || "heads"}.${suffix}`;
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

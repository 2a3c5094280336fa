/* What is shown as a file: a picture, a table, or all numbers. */

import { contributionsOf } from "./contributions.js";
import { LONGEST, linkOf } from "./host.js";
import { button, className, download, legible } from "./parts.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { headKey } from "./store.js";
import { count, language, t } from "./strings.js";

const SHARP = 2; // pixels of the picture for one of the screen
const CAPTION = 64; // pixels below the views
const QUOTED = 200; // characters of the text in a caption
const SVG = "http://www.w3.org/2000/svg";
const LEFT_OUT = "head > *, script, noscript, .toolbar, footer, .fold-view, [class*=report-]";

/* A button for each kind of file, and one for the link; `askPage` gives the page of a text. */
export function SaveMenu({ store, askPage }) {
  const [said, say] = useState("");
  const kinds = { PNG: picture, SVG: drawing, CSV: table, JSON: numbers };
  if (askPage) kinds.HTML = askPage;
  const save = async (kind) => {
    const { run, shownText, shown } = store;
    const name = run ? [run, shownText.name, `step ${shown}`] : [shownText.text];
    try {
      say(download(await kinds[kind](store), name, kind.toLowerCase()));
    } catch (error) {
      say(error.message);
    }
  };
  const menu = useRef(null);
  const close = (event) => {
    const isOutside = event.type === "pointerdown" && !menu.current?.contains(event.target);
    if ((isOutside || event.key === "Escape") && menu.current) menu.current.open = false;
  };
  useEffect(() => {
    ["keydown", "pointerdown"].forEach((kind) => document.addEventListener(kind, close));
  }, []);
  const copy = () => copyLink(store).then(say, (error) => say(error.message));
  const buttons = Object.keys(kinds).map((kind) => {
    return button(kind, () => save(kind), { title: t`save as ${kind}` });
  });
  return html`<details class="save" ref=${menu}>
    <summary>${t`Save or share`}</summary>
    <div class="menu">${buttons}
      ${location.protocol !== "about:" && button(t`Copy link`, copy)}
      <span role="status">${said}</span>
    </div>
  </details>`;
}

/* The address is a link to what is shown; it is sent nowhere. */
async function copyLink(store) {
  const { link, size } = linkOf(store);
  if (size > LONGEST) {
    const [own, most] = [size, LONGEST].map(count);
    return t`this text is too long for a link: ${own} characters of at most ${most}
      (outside A to Z a letter takes up to twelve)`;
  }
  await navigator.clipboard.writeText(link);
  const isFile = location.protocol === "file:";
  return isFile ? t`link copied; it opens this file on this computer only` : t`link copied`;
}

/* What is shown, in words: the run, the text, and what a number is. */
function captionOf(store) {
  const { index, run, shown, shownText } = store;
  const found = contributionsOf(store);
  const name = run ? t`${run}, step ${shown}` : (index.notes?.run ?? "");
  const text = legible(shownText.text ?? shownText.tokens.join(" "), QUOTED);
  const said = [name && t`Run ${name}.`, t`Text: “${text}”.`];
  if (found !== null) {
    const [first, second] = [found.asked, found.against].map((place) => className(store, place));
    said.push(t`A number is what a word, or a head from a word, adds to the log-odds of ${first} over
      ${second}; +1 multiplies the odds by 2.7.`);
  }
  return said.filter(Boolean).join(language === "ja" ? "" : " ");
}

/* The views that are seen, as a document within a picture: {markup, width, height}. */
function drawn(store) {
  const root = document.documentElement;
  const main = document.querySelector("main").getBoundingClientRect();
  const [width, height] = [main.width, main.height + CAPTION];
  const copy = root.cloneNode(true);
  const controlsOf = (own) => own.querySelectorAll("main :is(textarea, select)");
  controlsOf(root).forEach((control, at) => { // what was typed and chosen is no attribute
    const [option] = control.selectedOptions ?? [];
    controlsOf(copy)[at].replaceChildren(option?.cloneNode(true) ?? control.value);
  });
  root.querySelectorAll("main canvas").forEach((canvas) => { // nor is what was painted
    const image = new Image();
    Object.assign(image, { src: canvas.toDataURL(), className: canvas.className });
    copy.querySelectorAll("main canvas")[0].replaceWith(image);
  });
  copy.querySelectorAll(LEFT_OUT).forEach((node) => node.remove());
  const style = copy.querySelector("head").appendChild(document.createElement("style"));
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  style.textContent = rules.map((rule) => rule.cssText).join("").replaceAll(":root", "html");
  const own = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ width, height })) own.setAttribute(name, value);
  const caption = captionOf(store);
  own.appendChild(document.createElementNS(SVG, "desc")).textContent = caption;
  const said = document.createElement("p");
  Object.assign(said, { className: "key caption", textContent: caption });
  copy.querySelector("main").append(said);
  own.style.fontSize = getComputedStyle(root).fontSize;
  const frame = own.appendChild(document.createElementNS(SVG, "foreignObject"));
  for (const name of ["width", "height"]) frame.setAttribute(name, "100%");
  frame.append(copy);
  return { markup: new XMLSerializer().serializeToString(own), width, height };
}

/* Words stay text; browsers show it, and print it as PDF. */
function drawing(store) {
  return new Blob([drawn(store).markup], { type: "image/svg+xml" });
}

async function picture(store) {
  const { markup, width, height } = drawn(store);
  const image = new Image(width, height);
  image.src = `data:image/svg+xml,${encodeURIComponent(markup)}`;
  await image.decode();
  const canvas = new OffscreenCanvas(SHARP * width, SHARP * height);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob();
}

/* A row a token, and one of the biases: what it adds, and of that each head's share. */
function table(store) {
  const found = contributionsOf(store);
  if (found === null) throw new Error(t`This text has no sums.`);
  const places = found.places.filter(([layer, head]) => found.knows({ layer, head }));
  const names = places.map((place) => headKey(store.index.layers, ...place));
  const rows = store.tokens.slice(0, found.words.length).map((token, at) => {
    const shares = places.map((place) => found.ofHead(...place)[at]);
    return [token, found.words[at], ...shares, found.past[at]];
  });
  const biases = places.map((place) => found.headBias(...place));
  rows.push(["biases", found.biases, ...biases, found.pastBiases]);
  // A ' before what a spreadsheet would run as a formula, also where it cuts a line at each ;.
  const cell = (value) => {
    const guarded = String(value).replace(/(^|[;\t\r\n])(?='*[\s"]*[=+\-@＝＋－＠])/g, "$1'");
    return `"${(typeof value === "number" ? String(value) : guarded).replaceAll('"', '""')}"`;
  };
  const all = [["token", "contribution", ...names, "past every head"], ...rows];
  const lines = all.map((row) => row.map(cell).join());
  return new Blob(["\ufeff", `${lines.join("\r\n")}\r\n`], { type: "text/csv" });
}

/* All that is known of the text: arrays as in docs/record-format.md. */
function numbers({ index, maps, shownText: { text, tokens, label } }) {
  const arrays = [...maps.arrays].map(([name, { shape, values }]) => {
    return [name, { shape, values: [...values] }];
  });
  const { predicted } = maps.prediction(index.classes);
  const known = { text, label, predicted, classes: index.classes, tokens };
  const content = JSON.stringify({ ...known, arrays: Object.fromEntries(arrays) });
  return new Blob([content], { type: "application/json" });
}

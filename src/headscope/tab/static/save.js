/* What is shown as a file: a picture, a table, or all numbers. */

import { contributionsOf } from "./contributions.js";
import { linkOf } from "./host.js";
import { download } from "./parts.js";
import { html, useState } from "./preact.js";
import { t } from "./strings.js";

const SHARP = 2; // pixels of the picture for one of the screen
const SVG = "http://www.w3.org/2000/svg";
const LEFT_OUT = "head > *, script, noscript, .toolbar, footer, .fold-view, [class*=report-]";

/* A menu of the kinds of files, and the link; `askPage` gives the page of a text, or is null. */
export function SaveMenu({ store, askPage }) {
  const [said, say] = useState("");
  const kinds = { PNG: picture, CSV: table, JSON: numbers, ...(askPage && { HTML: askPage }) };
  const save = async ({ target }) => {
    const kind = target.value;
    target.value = "";
    const { run, shownText, shown } = store;
    const name = [run, shownText.name, `step ${shown}`];
    try {
      if (kind === "link") say(await copyLink(store));
      else say(download(await kinds[kind](store), name, kind.toLowerCase()));
    } catch (error) {
      say(error.message);
    }
  };
  const options = Object.keys(kinds).map((kind) => html`<option value=${kind}>${kind}</option>`);
  return html`<select class="save" aria-label=${t`Save or share what is shown`} onchange=${save}>
    <option value="">${t`Save as …`}</option>${options}
    ${location.protocol !== "about:" && html`<option value="link">${t`Copy link`}</option>`}
  </select><span role="status">${said}</span>`;
}

/* The address is a link to what is shown; it is sent nowhere. */
async function copyLink(store) {
  const link = linkOf(store);
  if (link === null) return t`this text is too long for a link`;
  await navigator.clipboard.writeText(link);
  return t`link copied`;
}

/* The views that are seen, as the picture of a document within a picture. */
async function picture() {
  const root = document.documentElement;
  const { width, height } = document.querySelector("main").getBoundingClientRect();
  const copy = root.cloneNode(true);
  copy.querySelectorAll(LEFT_OUT).forEach((node) => node.remove());
  const style = copy.querySelector("head").appendChild(document.createElement("style"));
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  style.textContent = rules.map((rule) => rule.cssText).join("").replaceAll(":root", "html");
  const controlsOf = (own) => own.querySelectorAll("main :is(textarea, select)");
  controlsOf(root).forEach((control, at) => { // what was typed and chosen is no attribute
    const [option] = control.selectedOptions ?? [];
    controlsOf(copy)[at].replaceChildren(option?.cloneNode(true) ?? control.value);
  });
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ width, height })) drawing.setAttribute(name, value);
  drawing.style.fontSize = getComputedStyle(root).fontSize;
  const frame = drawing.appendChild(document.createElementNS(SVG, "foreignObject"));
  for (const name of ["width", "height"]) frame.setAttribute(name, "100%");
  frame.append(copy);
  const image = new Image(width, height);
  const markup = new XMLSerializer().serializeToString(drawing);
  image.src = `data:image/svg+xml,${encodeURIComponent(markup)}`;
  await image.decode();
  const canvas = new OffscreenCanvas(SHARP * width, SHARP * height);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob();
}

/* A row a token: its words, what it adds, and what passes through each head at its position. */
function table(store) {
  const found = contributionsOf(store);
  if (found === null) throw new Error(t`This text has no sums.`);
  const names = found.places.map(([layer, head]) => `layer ${layer} head ${head}`);
  const rows = store.tokens.slice(0, found.words.length).map((token, at) => {
    return [token, found.words[at], ...found.places.map((place) => found.ofHead(...place)[at])];
  });
  // A ' before what a spreadsheet would run as a formula, also where it cuts a line at each ;.
  const cell = (value) => {
    const guarded = String(value).replace(/(^|[;\t\r\n])(?='*[\s"]*[=+\-@＝＋－＠])/g, "$1'");
    return `"${(typeof value === "number" ? String(value) : guarded).replaceAll('"', '""')}"`;
  };
  const lines = [["token", "contribution", ...names], ...rows].map((row) => row.map(cell).join());
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

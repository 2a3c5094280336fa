/* What is shown as a file: a picture, a table, or all numbers. */

import { contributionsOf } from "./contributions.js";
import { linkOf } from "./host.js";
import { download } from "./parts.js";
import { html, useState } from "./preact.js";
import { t } from "./strings.js";

const SHARP = 2; // pixels of the picture for one of the screen
const PICTURED = ["text", "prediction", "adds-up", "heads-words"];
const GAP = 10; // pixels beneath

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

/* The first screen painted on a canvas, its boxes and words: no browser lets a page with our policy
   load a picture of itself. */
function picture() {
  const main = document.querySelector("main").getBoundingClientRect();
  const panels = PICTURED.flatMap((name) => [...document.querySelectorAll(`main > .${name}`)]);
  const high = Math.max(...panels.map((node) => node.getBoundingClientRect().bottom)) - main.top;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: SHARP * main.width, height: SHARP * (high + GAP) });
  const context = canvas.getContext("2d");
  context.scale(SHARP, SHARP);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.translate(-main.left, -main.top);
  for (const node of panels.flatMap((panel) => [panel, ...panel.querySelectorAll("*")])) {
    if (node.checkVisibility({ visibilityProperty: true })) paint(context, node);
  }
  return new Promise((resolve) => canvas.toBlob(resolve));
}

function paint(context, node) {
  const { left, top, width, height } = node.getBoundingClientRect();
  const style = getComputedStyle(node);
  context.beginPath();
  context.roundRect(left, top, width, height, parseFloat(style.borderTopLeftRadius) || 0);
  context.fillStyle = style.backgroundColor;
  context.fill();
  if (parseFloat(style.borderTopWidth) > 0) {
    context.strokeStyle = style.borderTopColor;
    context.stroke();
  }
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  if (node.tagName === "SELECT") {
    const words = node.selectedOptions[0]?.label ?? "";
    write(context, words, node.getBoundingClientRect(), parseFloat(style.paddingLeft));
    return;
  }
  const range = document.createRange();
  for (const child of node.childNodes) {
    if (child.nodeType !== Node.TEXT_NODE) continue;
    for (const { 0: word, index } of child.data.matchAll(/\S+/g)) {
      range.setStart(child, index);
      range.setEnd(child, index + word.length);
      const place = range.getBoundingClientRect();
      if (place.width > 0 && place.left < left + width) write(context, word, place, 0);
    }
  }
}

function write(context, words, { left, top, height }, indent) {
  const size = context.measureText(words);
  const [above, below] = [size.fontBoundingBoxAscent, size.fontBoundingBoxDescent];
  context.fillText(words, left + indent, top + (height - above - below) / 2 + above);
}

/* A row a token: its words, what it adds, and what passes through each head at its position. */
function table(store) {
  const found = contributionsOf(store);
  if (found === null) throw new Error(t`This text has no sums.`);
  const names = found.places.map(([layer, head]) => `layer ${layer} head ${head}`);
  const rows = store.tokens.slice(0, found.words.length).map((token, at) => {
    return [token, found.words[at], ...found.places.map((place) => found.ofHead(...place)[at])];
  });
  // What a spreadsheet would run as a formula is quoted.
  const cell = (value) => {
    const isFormula = /^\s*[=+\-@]/.test(value) && Number.isNaN(Number(value));
    return `"${isFormula ? "'" : ""}${String(value).replaceAll('"', '""')}"`;
  };
  const lines = [["token", "contribution", ...names], ...rows].map((row) => row.map(cell).join());
  return new Blob(["\ufeff", `${lines.join("\r\n")}\r\n`], { type: "text/csv" });
}

/* All that is known of the text. */
function numbers(store) {
  const { index, maps, shownText } = store;
  const { text, tokens, label } = shownText;
  const found = contributionsOf(store);
  const { ranked, predicted } = maps.prediction(index.classes);
  const content = { text, label, predicted, probabilities: Object.fromEntries(ranked), tokens };
  if (found !== null) {
    const own = [found.asked, found.against].map((place) => index.classes[place] ?? null);
    const heads = found.places.map(([layer, head]) => {
      return { layer, head, positions: Array.from(found.ofHead(layer, head)) };
    });
    const sums = { log_odds: found.total, words: Array.from(found.words), heads };
    const past = Array.from({ length: found.layers }, (_, layer) => found.past(layer));
    const rest = { past, biases: Array.from(found.biasesOf) };
    Object.assign(content, { class: own[0], against: own[1], ...sums, ...rest });
  }
  return new Blob([JSON.stringify(content, null, 1)], { type: "application/json" });
}

/* Exactly this view, as files: a picture of the head or of the grid, the numbers, a page that needs nothing else. */

import { askPage } from "./api.js";
import { build, legible } from "./dom.js";
import { fileName } from "./link.js";
import { captionOf, readingOf } from "./reading.js";
import { bordersOf } from "./shared/pairs.js";

const FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK JP', 'Noto Sans Arabic', sans-serif";
export const MARGIN = { left: 120, top: 140, edge: 20 }; // pixels around the map in the picture of a head

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  build("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function sheet(width, height, dark) {
  const canvas = build("canvas", { width: String(width), height: String(height) });
  const context = canvas.getContext("2d");
  context.fillStyle = dark ? "#1b1e23" : "#ffffff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = dark ? "#e6e7ea" : "#1d1f23";
  context.imageSmoothingEnabled = false;
  return [canvas, context];
}

/* A label that stays within its room. */
function write(context, text, x, y, room, align = "left") {
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(`\u2068${legible(text, 60)}\u2069`, x, y, room);
}

export function headPicture(store) {
  const { layer, head, tokens, run, shown } = store;
  const reading = readingOf(store, "main", layer, head);
  const map = build("canvas");
  reading.draw(map);
  const cell = Math.min(36, Math.max(3, Math.floor(720 / reading.side)));
  const side = cell * reading.side;
  const [canvas, context] = sheet(MARGIN.left + side + MARGIN.edge, MARGIN.top + side + MARGIN.edge, store.theme === "dark");
  context.drawImage(map, MARGIN.left, MARGIN.top, side, side);
  for (const border of bordersOf(store.segments)) {
    const at = Math.round((border / tokens.length) * side);
    context.fillRect(MARGIN.left + at - 1, MARGIN.top - 6, 2, side + 12);
    context.fillRect(MARGIN.left - 6, MARGIN.top + at - 1, side + 12, 2);
  }
  context.font = `600 13px ${FONT}`;
  write(context, captionOf(store, "main", layer, head), 12, 18, canvas.width - 24);
  context.font = `11px ${FONT}`;
  write(context, `${run} · step ${shown}`, 12, 34, canvas.width - 24);
  const every = Math.max(1, Math.ceil(12 / cell));
  for (let place = 0; place < reading.side; place += every) {
    const token = tokens[reading.maps.stretch(place)[0]];
    const middle = (place + 0.5) * cell;
    write(context, token, MARGIN.left - 6, MARGIN.top + middle, MARGIN.left - 12, "right");
    context.save();
    context.translate(MARGIN.left + middle, MARGIN.top - 6);
    context.rotate(-Math.PI / 2);
    write(context, token, 0, 0, MARGIN.top - 56);
    context.restore();
  }
  return canvas;
}

export function gridPicture(store) {
  const counts = store.maps.layers.map((_, layer) => store.maps.headsOf(layer));
  const side = Math.max(...counts.map((_, layer) => store.maps.picture(layer, 0).side));
  const cell = side * Math.max(1, Math.floor(96 / side));
  const [left, top, gap] = [90, 44, 6];
  const [canvas, context] = sheet(left + Math.max(...counts) * (cell + gap) + gap, top + counts.length * (cell + gap) + gap, store.theme === "dark");
  context.font = `600 13px ${FONT}`;
  write(context, `${store.run} · step ${store.shown}`, 12, 16, canvas.width - 24);
  context.font = `11px ${FONT}`;
  const map = build("canvas");
  counts.forEach((heads, layer) => {
    const y = top + layer * (cell + gap);
    write(context, store.layerNames[layer], left - 8, y + cell / 2, left - 16, "right");
    for (let head = 0; head < heads; head += 1) {
      const x = left + head * (cell + gap);
      if (layer === 0) write(context, String(head), x + cell / 2, top - 9, cell, "center");
      const reading = readingOf(store, "main", layer, head);
      if (reading === null) continue;
      reading.draw(map);
      context.drawImage(map, x, y, cell, cell);
    }
  });
  return canvas;
}

/* The numbers as the routes gave them, and what they belong to. */
export function numbersOf(store, link) {
  const { run, logdir, index, text, layer, head, numbers, shown, compare, other, maps } = store;
  const { name, tokens, label, segments = null } = index.texts[text];
  const quadrants = maps?.has(layer, head) ? maps.quadrants(layer, head) : null;
  return {
    run, logdir, step: numbers?.step ?? shown, link, text: { name, text: index.texts[text].text, tokens, label, segments },
    layers: index.layers, heads: index.heads, classes: index.classes, notes: index.notes,
    probabilities: maps?.probabilities ? [...maps.probabilities] : null, check: maps?.check ?? null,
    shown: { layer, head, query: store.query, key: store.key, part: store.part, quadrants: quadrants && [...quadrants] },
    compare: compare && { ...compare, step: other?.step ?? compare.step },
    measures: numbers?.measures ?? {}, extra: numbers?.extra ?? {},
  }; // prettier-ignore
}

export class ExportMenu {
  constructor(line, store, linkNow) {
    Object.assign(this, { store, linkNow });
    const item = (text, onclick) => build("button", { type: "button", onclick }, text);
    this.said = build("span", { class: "said", role: "status" });
    this.menu = build(
      "details", { class: "export" }, build("summary", {}, "Export"),
      build("div", { class: "menu" }, item("PNG: this head", () => this.picture(headPicture, "head")),
        item("PNG: the grid", () => this.picture(gridPicture, "grid")), item("JSON: the numbers", () => this.numbers()),
        item("HTML: a page of this text and step", () => this.page()), item("Copy the link to this view", () => this.copy()), this.said),
    ); // prettier-ignore
    line.append(this.menu);
    document.addEventListener("click", (event) => {
      if (!this.menu.contains(event.target)) this.menu.open = false;
    });
  }

  get parts() {
    const { run, shown, index, text } = this.store;
    return [run, index?.texts[text]?.name ?? "", `step ${shown}`];
  }

  async page() {
    const { run, text, shown } = this.store;
    try {
      const page = await askPage(run, shown, text);
      download(page, fileName(this.parts, "html"));
      this.said.textContent = "";
    } catch (error) {
      this.said.textContent = error.message;
    }
  }

  picture(draw, what) {
    const { store } = this;
    if (store.maps === null || readingOf(store, "main", store.layer, store.head) === null) {
      this.said.textContent = "No map is shown.";
      return;
    }
    const parts = what === "head" ? [...this.parts, captionOf(store, "main", store.layer, store.head)] : [...this.parts, "grid"];
    draw(store).toBlob((blob) => download(blob, fileName(parts, "png")), "image/png");
  }

  numbers() {
    if (this.store.index === null) return;
    const content = JSON.stringify(numbersOf(this.store, this.linkNow()), null, 1);
    download(new Blob([content], { type: "application/json" }), fileName(this.parts, "json"));
  }

  async copy() {
    const link = this.linkNow();
    try {
      await navigator.clipboard.writeText(link);
      this.said.textContent = "Copied.";
    } catch {
      this.said.textContent = "It is in the address bar: copy it there.";
    }
  }
}

/* Exactly this view, to hand on: a link, a picture of the head, a page that needs nothing else. Inside TensorBoard the address is the page's around this one, whose hash keeps
   p.heads.* for this plugin; alone, it is this page's own. */

import { askPage } from "./api.js";
import { build, legible } from "./dom.js";
import { bordersOf } from "./pairs.js";
import { captionOf, readingOf } from "./reading.js";

const PREFIX = "p.heads.";

/* The window whose address a reader sees and copies. */
export function outer() {
  try {
    return window.parent.location.href ? window.parent : window;
  } catch {
    return window; // TensorBoard's page is of another origin
  }
}

function partsOf(hash) {
  return hash.replace(/^#/, "").split("&").filter(Boolean);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function readLink() {
  const values = {};
  for (const part of partsOf(outer().location.hash)) {
    const [name, ...rest] = part.split("=");
    if (decode(name).startsWith(PREFIX)) values[decode(name).slice(PREFIX.length)] = decode(rest.join("="));
  }
  const whole = (name) => (/^\d+$/.test(values[name] ?? "") ? Number(values[name]) : null);
  return {
    run: values.run ?? null,
    text: values.text ?? null, // the text's name
    step: whole("step"),
    layer: whole("layer") ?? 0,
    head: whole("head") ?? 0,
    compare: readCompare(values.compare),
    part: ["within", "between"].includes(values.part) ? values.part : "all",
  };
}

function readCompare(value) {
  const [run, step, view, order] = (value ?? "").split(",").map(decode);
  if (!run) return null;
  return {
    run,
    step: /^\d+$/.test(step ?? "") ? Number(step) : ["first", "last"].includes(step) ? step : "nearest",
    view: view === "difference" ? view : "beside",
    order: order === "matched" ? order : "own",
  };
}

function linkOf(store) {
  const { run, index, text, layer, head, compare, part } = store;
  const values = { run, text: index?.texts[text]?.name ?? "", step: store.steps[store.place]?.step ?? "", layer, head };
  if (compare) {
    values.compare = [compare.run, compare.step, compare.view, compare.order].map(encodeURIComponent).join(",");
  }
  if (part !== "all") values.part = part;
  return Object.entries(values).map(([name, value]) => `${PREFIX}${name}=${encodeURIComponent(value)}`);
}

/* Keep the address true while this tab is the one that shows, and open what it says when a reader changes it. */
export function keepLink(store, isVisible, follow) {
  let written = null;
  let timer = null;
  const write = () => {
    timer = null;
    if (!isVisible() || store.index === null) return;
    const page = outer();
    const others = partsOf(page.location.hash).filter((part) => !decode(part).startsWith(PREFIX));
    if (others.length === 0 && page !== window) others.push("heads");
    written = `#${[...others, ...linkOf(store)].join("&")}`;
    if (page.location.hash === written) return;
    const address = page.location.href.split("#")[0] + written; // a hash alone would be read against <base>
    page.history.replaceState(page.history.state, "", address);
  };
  store.subscribe(["run", "text", "shown", "layer", "head", "compare", "index", "part"], () => {
    timer ??= setTimeout(write, 150); // a browser refuses more than 100 changes in ten seconds
  });
  outer().addEventListener("hashchange", () => {
    if (isVisible() && outer().location.hash !== written && outer().location.hash.includes(PREFIX)) follow(readLink());
  });
  return () => {
    if (timer !== null) clearTimeout(timer);
    write();
    return outer().location.href;
  };
}

/* A name for a file that is downloaded: letters, digits and dashes of what it shows. */
function fileName(parts, suffix) {
  const plain = parts.map((part) => legible(String(part), 40).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, ""));
  return `${plain.filter(Boolean).join("_") || "heads"}.${suffix}`;
}

const FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK JP', 'Noto Sans Arabic', sans-serif";
const MARGIN = { left: 120, top: 140, edge: 20 }; // pixels around the map in the picture of a head

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

function headPicture(store) {
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

export class ExportMenu {
  constructor(line, store, linkNow) {
    Object.assign(this, { store, linkNow });
    const item = (text, onclick) => build("button", { type: "button", onclick }, text);
    this.said = build("span", { class: "said", role: "status" });
    this.menu = build(
      "details", { class: "export" }, build("summary", {}, "Export"),
      build("div", { class: "menu" }, item("PNG: this head", () => this.picture()),
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

  picture() {
    const { store } = this;
    if (readingOf(store, "main", store.layer, store.head) === null) {
      this.said.textContent = "No map is shown.";
      return;
    }
    const parts = [...this.parts, captionOf(store, "main", store.layer, store.head)];
    headPicture(store).toBlob((blob) => download(blob, fileName(parts, "png")), "image/png");
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

/* Exactly this view, to hand on: a link, and a page that needs nothing else. Inside TensorBoard the address is the page's around this one, whose hash keeps
   p.heads.* for this plugin; alone, it is this page's own. */

import { askPage } from "./api.js";
import { build, legible } from "./dom.js";
import { PARTS } from "./pairs.js";
import { OWN, SCALES } from "./scale.js";

const PREFIX = "p.heads.";

/* What a link keeps by its name alone, and the values that it may have; the first is what it is without a link. */
export const KEPT = {
  part: PARTS.map(([part]) => part),
  scale: [OWN, ...SCALES.map(([scale]) => scale)],
  order: ["importance", "place"],
  filter: ["every", "matter"],
  view: ["weight", "value", "lines"], // of the large map
  without: ["hidden", "shown"], // what is predicted without the chosen head
};

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
    layer: whole("layer"),
    head: whole("head"),
    query: whole("query") ?? 0,
    lock: readLock(values.lock),
    compare: readCompare(values.compare),
    ...Object.fromEntries(Object.entries(KEPT).map(([name, known]) => [name, known.includes(values[name]) ? values[name] : known[0]])),
  };
}

/* The query that is locked, and its key if one is. */
function readLock(value) {
  const [, query, key] = (value ?? "").match(/^(\d{1,6})(?:,(\d{1,6}))?$/) ?? [];
  return query === undefined ? null : { query: Number(query), key: key === undefined ? null : Number(key) };
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
  const { run, index, text, layer, head, query, lock, compare } = store;
  const values = { run, text: index?.texts[text]?.name ?? "", step: store.steps[store.place]?.step ?? "", layer, head };
  if (compare) {
    values.compare = [compare.run, compare.step, compare.view, compare.order].map(encodeURIComponent).join(",");
  }
  if (query > 0) values.query = query;
  if (lock !== null) values.lock = [lock.query, lock.key].filter((place) => place !== null).join(",");
  for (const [name, known] of Object.entries(KEPT)) if (store[name] !== known[0]) values[name] = store[name];
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
  store.subscribe(["run", "text", "shown", "layer", "head", "query", "lock", "compare", "index", ...Object.keys(KEPT)], () => {
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
export function fileName(parts, suffix) {
  const plain = parts.map((part) => legible(String(part), 40).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, ""));
  return `${plain.filter(Boolean).join("_") || "heads"}.${suffix}`;
}

export class ExportButtons {
  constructor(line, store, linkNow) {
    Object.assign(this, { store, linkNow });
    this.said = build("span", { class: "kept", role: "status" });
    const button = (name, title, onclick) => build("button", { class: "plain", type: "button", title, onclick }, name);
    line.append(button("Save page", "one HTML file of this text and step, which needs nothing else", () => this.page()),
      button("Copy link", "to exactly this view", () => this.copy()), this.said); // prettier-ignore
  }

  async page() {
    const { run, index, text, shown } = this.store;
    try {
      const url = URL.createObjectURL(await askPage(run, shown, text));
      build("a", { href: url, download: fileName([run, index.texts[text].name, `step ${shown}`], "html") }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      this.said.textContent = "";
    } catch (error) {
      this.said.textContent = error.message;
    }
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.linkNow());
      this.said.textContent = "Copied.";
    } catch {
      this.said.textContent = "It is in the address bar: copy it there.";
    }
  }
}

/* The link that opens this text and this view: all of it stands behind the # of the address, which
   no browser sends to a server. */

import { LINKED, pairIn } from "./store.js";

const LONGEST = 8000; // characters, which every browser and most messages carry

/* The address of what is shown; null where it would be too long. */
export function linkOf(store, parts) {
  const values = new URLSearchParams();
  parts.forEach((part) => values.append("text", part));
  store.kept?.parts.forEach((part) => values.append("kept", part));
  const ablated = [...store.ablated].map(([head, kind]) => `${head.replace(",", ".")}${kind[0]}`);
  if (ablated.length > 0) values.set("heads", ablated.join(" "));
  for (const name of ["layer", "head"]) values.set(name, store[name]);
  if (store.pair !== null) values.set("classes", store.pair.join("."));
  for (const [name, known] of Object.entries(LINKED)) {
    if (store[name] !== known[0]) values.set(name, store[name]);
  }
  const hash = values.toString();
  return hash.length > LONGEST ? null : `${location.href.split("#")[0]}#${hash}`;
}

/* What the address asks for. Whatever the page does not have is left out. */
export function readLink({ heads, classes }) {
  const values = new URLSearchParams(location.hash.slice(1, 2 * LONGEST));
  const isWhole = (name) => /^\d{1,4}$/.test(values.get(name) ?? "");
  const whole = (name) => (isWhole(name) ? Number(values.get(name)) : -1);
  const listOf = (name) => (values.has(name) ? values.getAll(name).slice(0, 2) : null);
  const isHead = ([layer, head]) => head < (heads[layer] ?? 0);
  const ablated = new Map();
  for (const [, layer, head, kind] of (values.get("heads") ?? "").matchAll(/(\d+)\.(\d+)([zu])/g)) {
    const place = [Number(layer), Number(head)];
    if (isHead(place)) ablated.set(place.join(), kind === "z" ? "zero" : "uniform");
  }
  const chosen = {};
  for (const [name, known] of Object.entries(LINKED)) {
    chosen[name] = known.includes(values.get(name)) ? values.get(name) : known[0];
  }
  const [layer, head] = [whole("layer"), whole("head")];
  if (layer >= 0 && head >= 0 && isHead([layer, head])) {
    Object.assign(chosen, { layer, head, headChosen: true });
  }
  const pair = pairIn(values.get("classes"));
  return {
    parts: listOf("text"),
    kept: listOf("kept"),
    ablated,
    pair: pair?.every((place) => place < classes.length) ? pair : null,
    chosen,
  };
}

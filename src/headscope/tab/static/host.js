/* The window around the tab: its theme, whether it shows, and the address, a link to this view. */

import { page } from "./api.js";
import { ownPair } from "./pair.js";

const TAB = "p.heads."; // TensorBoard's address keeps p.heads.* for this plugin
const PREFIX = page ? "" : TAB;
export const LONGEST = 8000; // characters of a link, which every browser and most messages carry
const PAUSE = 300; // milliseconds: a browser refuses more than 100 addresses in ten seconds

/* The window whose address a reader sees and copies. */
function outer() {
  try {
    return page === null && window.parent.location.href ? window.parent : window;
  } catch {
    return window; // TensorBoard's page is of another origin
  }
}

/* Dark or light as TensorBoard is; elsewhere as the system is. */
export function followTheme() {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const { body } = outer().document;
  const apply = () => {
    const isDark = outer() === window ? scheme.matches : body.classList.contains("dark-mode");
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  };
  new MutationObserver(apply).observe(body, { attributeFilter: ["class"] });
  scheme.addEventListener("change", apply);
  apply();
}

/* Not while another tab is in front: a hidden frame takes no room. */
export function isVisible() {
  const frame = outer() === window ? null : window.frameElement;
  return document.visibilityState === "visible" && frame?.getClientRects().length !== 0;
}

function hashParts() {
  return outer().location.hash.slice(1).split("&").filter(Boolean);
}

/* Two classes as a link has them, such as 1.0 or 3.-1. */
function pairIn(words) {
  const places = /^(\d{1,6})\.(-1|\d{1,6})$/.exec(words ?? "");
  return places && places.slice(1).map(Number);
}

/* Heads as a link has them: 0.3z 1.2u. */
function ablatedIn(words) {
  const found = (words ?? "").matchAll(/(\d{1,4})\.(\d{1,4})([zu])/g);
  const kinds = { z: "zero", u: "uniform" };
  return new Map([...found].map(([, layer, head, kind]) => [`${layer},${head}`, kinds[kind]]));
}

/* What the address asks for. What is not there is for its reader to find out. */
export function readLink() {
  const values = new URLSearchParams(hashParts().join("&").slice(0, 2 * LONGEST));
  const read = (name) => values.get(PREFIX + name);
  const all = (name) => (values.has(PREFIX + name) ? values.getAll(PREFIX + name) : null);
  const whole = (name) => (/^\d{1,15}$/.test(read(name) ?? "") ? Number(read(name)) : null);
  const link = { unit: read("unit") === "token" ? "token" : "word", pair: pairIn(read("classes")) };
  Object.assign(link, { isUnfolded: read("map") !== null });
  if (read("map") === "passes") link.mode = "passes";
  for (const name of ["layer", "head", "query"]) link[name] = whole(name);
  const shared = { parts: all("text"), kept: all("kept"), ablated: ablatedIn(read("heads")) };
  if (page) return { ...link, ...shared };
  const isNamed = ["best", "first", "last"].includes(read("at"));
  const step = whole("at") ?? (isNamed ? read("at") : "nearest");
  const compare = { run: read("compare"), step, text: whole("with") };
  const isBeside = compare.run !== null;
  const own = { run: read("run"), text: read("text"), step: whole("step") };
  return { ...link, ...own, compare: isBeside ? compare : null };
}

/* The address of what is shown: {link, size}, the characters behind its #. */
export function linkOf(store) {
  const { layer, head, query, unit, pair, compare } = store;
  const own = ownPair(store.maps)?.join(".");
  const values = { layer, head, query: query || null, unit: unit === "word" ? null : unit };
  values.map = store.isUnfolded ? store.mode : null;
  values.classes = pair === null || pair.join(".") === own ? null : pair.join(".");
  const ablated = [...store.ablated].map(([at, kind]) => at.replace(",", ".") + kind[0]);
  const step = store.steps[store.place]?.step;
  const beside = { compare: compare?.run, at: compare?.step, with: compare?.text };
  const ofPage = { text: store.typed, kept: store.kept?.parts, heads: ablated.join(" ") || null };
  const ofTab = { run: store.run, text: store.shownText?.name, step, ...beside };
  Object.assign(values, page ? ofPage : ofTab);
  const named = Object.entries(values).flatMap(([name, value]) => {
    return [value ?? []].flat().map((each) => [PREFIX + name, each]);
  });
  const mine = new URLSearchParams(named).toString().replaceAll("+", "%20");
  const others = page ? [] : hashParts().filter((part) => !part.startsWith(PREFIX));
  if (others.length === 0 && outer() !== window) others.push("heads");
  const { href } = outer().location;
  return { link: `${href.split("#")[0]}#${[...others, mine].join("&")}`, size: mine.length };
}

/* Keep the address true while this shows. Open what it says when a reader changes it or goes back:
   a choice on a page is an entry in the history. */
export function keepLink(store, open) {
  if (location.protocol === "about:") return; // in a notebook's frame
  let timer = null;
  let written = outer().location.href;
  const write = () => {
    timer = null;
    if (!isVisible() || store.index === null) return;
    const { link, size } = linkOf(store);
    if (size > LONGEST || link === outer().location.href) return;
    const { history } = outer();
    history[page && store.isChoice ? "pushState" : "replaceState"](history.state, "", link);
    written = link;
    store.isChoice = false;
  };
  const linked = ["run", "text", "shown", "layer", "head", "query", "compare", "index", "pair"];
  linked.push("isUnfolded", "mode");
  store.subscribe([...linked, "unit", "maps", "typed"], () => {
    timer ??= setTimeout(write, PAUSE);
  });
  outer().addEventListener("hashchange", async () => {
    const { href, hash } = outer().location;
    if (!isVisible() || href === written || !hash.includes(PREFIX)) return;
    written = href;
    await open(readLink());
    store.isChoice = false;
  });
}

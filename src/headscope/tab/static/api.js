/* Where the answers come from: the plugin's routes, of which the last used are kept; or, on a page that needs no server,
   what is embedded in it. */

import { decodeBundle } from "./maps.js";

const BASE = new URL("../", import.meta.url);
const CACHE_BYTES = 64 * 2 ** 20;

/* {title, index, texts: [{maps, numbers}]} of a page, maps in base64; null in the tab. */
export const page = JSON.parse(document.getElementById("data")?.textContent ?? "null");

function bytesOf(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = characters.charCodeAt(index);
  return bytes;
}

async function ask(route, query, signal) {
  const url = new URL(route, BASE);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  let response;
  try {
    response = await fetch(url, { signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(`${route}: TensorBoard does not answer`);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `${route}: answered with status ${response.status}`);
}

export async function askJson(route, query = {}, signal = undefined) {
  return (await ask(route, query, signal)).json();
}

/* As bounds.py has them: what is drawn grows with counts, and a record may come from anybody. */
export const MOST = { texts: 1_000, layers: 256, classes: 100_000, steps: 10_000, notes: 100, tokens: 8_192, heads: 2_048 };

export async function askIndex(run, signal) {
  const index = await askJson("index", { run }, signal);
  const counts = {
    texts: index.texts.length, layers: index.layers.length, classes: index.classes.length, steps: index.steps.length,
    notes: Object.keys(index.notes).length, tokens: Math.max(...index.texts.slice(0, MOST.texts).map(({ tokens }) => tokens.length)),
    heads: index.heads.reduce((sum, count) => sum + count, 0),
  }; // prettier-ignore
  const beyond = Object.keys(MOST).find((name) => !(counts[name] <= MOST[name]));
  if (beyond) throw new Error(`index: has ${counts[beyond]} ${beyond}, and at most ${MOST[beyond]} are shown`);
  return index;
}

/* The last used answers, as many as fit into so many bytes. A Map lists its keys in the order in which they were set. */
const kept = new Map();

function known(key) {
  const entry = kept.get(key);
  if (entry === undefined) return undefined;
  kept.delete(key);
  kept.set(key, entry);
  return entry.value;
}

function keep(key, value, bytes) {
  kept.set(key, { value, bytes });
  let sum = [...kept.values()].reduce((total, entry) => total + entry.bytes, 0);
  for (const [oldest, entry] of kept) {
    if (sum <= CACHE_BYTES) return;
    kept.delete(oldest);
    sum -= entry.bytes;
  }
}

/* A step that was recorded again has another time, so its old maps are not taken for it. */
function keyOf(route, run, step, text = "") {
  return JSON.stringify([route, run, step.step, step.time, text]);
}

export async function askMaps(run, step, text, signal) {
  if (page) return decodeBundle(bytesOf(page.texts[text].maps).buffer);
  const key = keyOf("maps", run, step, text);
  const before = known(key);
  if (before !== undefined) return before;
  const buffer = await (await ask("maps", { run, step: step.step, text }, signal)).arrayBuffer();
  const maps = decodeBundle(buffer);
  keep(key, maps, buffer.byteLength);
  return maps;
}

/* The numbers of a step; on a page each text has its own. */
export async function askNumbers(run, step, text, signal) {
  if (page) return page.texts[text].numbers;
  const key = keyOf("numbers", run, step);
  const before = known(key);
  if (before !== undefined) return before;
  const content = await (await ask("numbers", { run, step: step.step }, signal)).text();
  const numbers = JSON.parse(content);
  keep(key, numbers, 2 * content.length);
  return numbers;
}

/* The page of one text at one step that needs nothing else. */
export async function askPage(run, step, text) {
  if (step === null) throw new Error("No step is shown.");
  return (await ask("page", { run, step, text })).blob();
}

/* One request under way and the newest wish after it: whoever drags a slider sees what arrives on the way. A request
   for something else altogether, or one that has taken too long, is aborted when the next wish comes. */
export class Latest {
  constructor(patience = 1000) {
    Object.assign(this, { patience, current: null, next: null });
  }

  ask(group, load, show) {
    this.next = { group, load, show };
    if (this.current === null) this.start();
    else if (this.current.group !== group || performance.now() - this.current.since > this.patience) this.abort();
  }

  abort() {
    this.current?.controller.abort();
  }

  async start() {
    const { group, load, show } = this.next;
    const current = { group, controller: new AbortController(), since: performance.now() };
    Object.assign(this, { current, next: null });
    let outcome = null;
    try {
      outcome = [await load(current.controller.signal), null];
    } catch (error) {
      outcome = [null, error];
    }
    this.current = null;
    const stale = current.controller.signal.aborted || (this.next !== null && this.next.group !== group);
    try {
      if (!stale) show(...outcome);
    } finally {
      if (this.next !== null && this.current === null) this.start();
    }
  }
}

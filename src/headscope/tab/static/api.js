/* Where the data comes from: the plugin's routes, or what a page has embedded. */

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

/* The last used answers that fit into the cache; a Map keeps the order of insertion. */
const cache = new Map();

function keep(key, value, bytes) {
  cache.set(key, { value, bytes });
  let total = 0;
  for (const entry of cache.values()) total += entry.bytes;
  for (const [oldest, entry] of cache) {
    if (total <= CACHE_BYTES) return;
    cache.delete(oldest);
    total -= entry.bytes;
  }
}

/* What was kept under a key, or what `load` returns as [value, bytes]. */
async function cached(key, load) {
  const entry = cache.get(key);
  if (entry !== undefined) {
    cache.delete(key);
    cache.set(key, entry);
    return entry.value;
  }
  const [value, bytes] = await load();
  keep(key, value, bytes);
  return value;
}

/* A step that was recorded again has another time, so its old maps are not taken for it. */
function keyOf(route, run, step, text = "") {
  return JSON.stringify([route, run, step.step, step.time, text]);
}

export async function askMaps(run, step, text, signal) {
  if (page) return decodeBundle(bytesOf(page.texts[text].maps).buffer);
  return cached(keyOf("maps", run, step, text), async () => {
    const response = await ask("maps", { run, step: step.step, text }, signal);
    const buffer = await response.arrayBuffer();
    return [decodeBundle(buffer), buffer.byteLength];
  });
}

/* The numbers of a step; on a page each text has its own. */
export async function askNumbers(run, step, text, signal) {
  if (page) return page.texts[text].numbers;
  return cached(keyOf("numbers", run, step), async () => {
    const content = await (await ask("numbers", { run, step: step.step }, signal)).text();
    return [JSON.parse(content), 2 * content.length];
  });
}

/* The page of one text at one step that needs nothing else. */
export async function askPage(run, step, text) {
  if (step === null) throw new Error("No step is shown.");
  return (await ask("page", { run, step, text })).blob();
}

/* One request under way and the newest wish after it: whoever drags a slider sees what arrives on
   the way. A request for something else altogether, or one that has taken too long, is aborted when
   the next wish comes. */
export class Latest {
  constructor(patience = 1000) {
    Object.assign(this, { patience, current: null, next: null });
  }

  ask(group, load, show) {
    this.next = { group, load, show };
    const { current, patience } = this;
    if (current === null) this.start();
    else if (current.group !== group || performance.now() - current.since > patience) this.abort();
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
    const isOther = this.next !== null && this.next.group !== group;
    try {
      if (!current.controller.signal.aborted && !isOther) show(...outcome);
    } finally {
      if (this.next !== null && this.current === null) this.start();
    }
  }
}

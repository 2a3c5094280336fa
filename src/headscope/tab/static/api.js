/* Where the data comes from: the plugin's routes, or what a page has embedded. */

import { decodeBundle } from "./maps.js";

const BASE = new URL("../", import.meta.url);
const CACHED = 48; // answers

/* {title, index, texts: [{maps, numbers}]} of a page, maps in base64; null in the tab. */
export const page = JSON.parse(document.getElementById("data")?.textContent ?? "null");

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
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

/* What was kept under a key, or what `load` returns. The answers used last are kept: a Map is in
   the order of insertion. */
const cache = new Map();

async function cached(question, load) {
  const key = JSON.stringify(question);
  const value = cache.get(key) ?? (await load());
  cache.delete(key);
  cache.set(key, value);
  if (cache.size > CACHED) cache.delete(cache.keys().next().value);
  return value;
}

/* `step` is an entry of the index: one that was recorded again has another time. */
export async function askMaps(run, step, text, signal) {
  if (page) return decodeBundle(bytesOf(page.texts[text].maps).buffer);
  return cached(["maps", run, step, text], async () => {
    const response = await ask("maps", { run, step: step.step, text }, signal);
    return decodeBundle(await response.arrayBuffer());
  });
}

/* The numbers of a step; on a page each text has its own. */
export async function askNumbers(run, step, text, signal) {
  if (page) return page.texts[text].numbers;
  const load = () => askJson("numbers", { run, step: step.step }, signal);
  return cached(["numbers", run, step], load);
}

/* The page of one text at one step that needs nothing else. */
export async function askPage(run, step, text) {
  if (step === null) throw new Error("No step is shown.");
  return (await ask("page", { run, step, text })).blob();
}

/* What a promise gives, or why it failed: [value, null] or [null, message]. */
export async function outcome(promise) {
  try {
    return [await promise, null];
  } catch (error) {
    return [null, error.message];
  }
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
    const result = await outcome(load(current.controller.signal));
    this.current = null;
    const isOther = this.next !== null && this.next.group !== group;
    try {
      if (!current.controller.signal.aborted && !isOther) show(...result);
    } finally {
      if (this.next !== null && this.current === null) this.start();
    }
  }
}

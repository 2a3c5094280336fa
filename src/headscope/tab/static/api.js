/* Where the data comes from: the plugin's routes, or what a page has embedded. */

import { Maps, arraysOf } from "./maps.js";

/* {title, index, texts: [{maps, numbers}]} of a page, maps in base64; null in the tab. */
const data = globalThis.document?.getElementById("data"); // a Worker has no document
export const page = JSON.parse(data?.textContent ?? "null");

async function ask(route, query = {}) {
  const url = new URL(`../${route}`, import.meta.url);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const response = await fetch(url, { credentials: "same-origin" }).catch(() => {
    throw new Error(`${route}: TensorBoard does not answer`);
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `${route}: answered with status ${response.status}`);
}

export async function askJson(route, query) {
  return (await ask(route, query)).json();
}

/* `step` is an entry of the index. */
export async function askMaps(run, step, text) {
  if (page) return new Maps(arraysOf(Uint8Array.fromBase64(page.texts[text].maps).buffer));
  const response = await ask("maps", { run, step: step.step, text });
  return new Maps(arraysOf(await response.arrayBuffer()));
}

/* The numbers of a step; on a page each text has its own. */
export async function askNumbers(run, { step }, text) {
  const numbers = page ? page.texts[text].numbers : await askJson("numbers", { run, step });
  return { ...numbers, step };
}

/* The page of one text at one step that needs nothing else. */
export async function askPage({ run, shown, text }) {
  if (shown === null) throw new Error("No step is shown.");
  return (await ask("page", { run, step: shown, text })).blob();
}

/* What a promise gives, or why it failed: [value, null] or [null, message]. */
export function outcome(promise) {
  return promise.then((value) => [value, null], (error) => [null, error.message]);
}

/* One request under way and the newest wish after it: who drags a slider sees steps on the way. */
export function latest() {
  let isBusy = false;
  let next = null;
  return async (load, show) => {
    next = { load, show };
    while (!isBusy && next !== null) {
      const current = next;
      [isBusy, next] = [true, null];
      const result = await current.load();
      isBusy = false;
      current.show(result);
    }
  };
}

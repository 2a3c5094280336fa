/* Whether the maps are what the model used, and what the record notes. */

import { element, legible, panel } from "./dom.js";
import { t } from "./strings.js";

const LONGEST_NOTE = 2000; // letters
const TRUSTED = 1e-2; // a larger difference is warned of

/* How far the maps are from what the model computed. */
function checkOf(maps) {
  const check = maps.number("check");
  const known = check ? check.toExponential(1) : String(check ?? t`not measured`);
  const words = t`Largest difference between the heads’ outputs and these maps times the values:
    ${known}.`;
  return [t`Check`, words, check > TRUSTED];
}

export function trustView(store) {
  const list = element("dl", "facts");
  const title = store.page ? t`About this text` : t`How far to trust these maps`;
  const { root } = panel("trust", title, list);
  const show = () => {
    const { index, maps, shownText, page } = store;
    if (index === null) return;
    const notes = (of) => Object.entries(of).map(([name, words]) => {
      return [legible(name), legible(String(words), LONGEST_NOTE)];
    });
    const facts = page ? [[t`Text`, shownText.text], ...notes(shownText.notes)] : [];
    if (maps !== null && !(page && maps.number("check") === null)) facts.push(checkOf(maps));
    facts.push(...notes(index.notes));
    list.replaceChildren(...facts.map(([name, words, warns]) => {
      const text = element("dd", {}, element("bdi", {}, words));
      return element("div", warns ? "fact warns" : "fact", element("dt", {}, name), text);
    }));
  };
  store.subscribe(["maps", "index", "text"], show);
  return root;
}

/* Runs side by side: a row a run, with a number of its heads at the last step. */

import { askJson } from "./api.js";
import { build, element, fillSelect, formatNumber, isolated, legible, wordsOf } from "./dom.js";
import { orderOf } from "./table.js";

const COLUMNS = ["run", "steps kept", "last step", "texts", "heads"];

function flat(values) {
  return (values ?? []).flat().filter((value) => value !== null);
}

export class RunsTable {
  constructor(section, store) {
    Object.assign(this, { section, store, numbers: new Map(), measure: "entropy" });
    this.table = section.querySelector("table");
    this.select = build("select", { "aria-label": "Number of the last step", onchange: (event) => {
      this.measure = event.target.value;
      this.show();
    } }); // prettier-ignore
    section.querySelector(".tools").append(this.select);
    store.subscribe(["runs"], () => this.load());
    store.subscribe(["run"], () => this.show());
  }

  /* The numbers of each run's last step, asked for again when there is a later one. */
  async load() {
    const { runs } = this.store;
    this.show();
    for (const { run, error, steps, last, time } of runs) {
      const key = JSON.stringify([last, time]);
      if (error || steps === 0 || this.numbers.get(run)?.key === key) continue;
      try {
        const { measures } = await askJson("numbers", { run, step: last });
        this.numbers.set(run, { key, measures });
      } catch (failure) {
        this.numbers.set(run, { key, measures: {}, error: failure.message });
      }
    }
    this.show();
  }

  show() {
    const { runs, run } = this.store;
    this.section.hidden = runs.length === 0;
    const names = orderOf(Object.assign({}, ...[...this.numbers.values()].map(({ measures }) => measures)));
    if (names.length > 0 && !names.includes(this.measure)) [this.measure] = names;
    fillSelect(this.select, names.map((name) => ({ value: name, label: wordsOf(name) })), this.measure);
    const title = wordsOf(this.measure);
    const header = [...COLUMNS, `${title}, mean`, "lowest head", "highest head"];
    this.table.tHead.rows[0].replaceChildren(...header.map((name) => build("th", { scope: "col" }, name)));
    this.table.tBodies[0].replaceChildren(...runs.map((each) => this.createRow(each, each.run === run)));
  }

  createRow(each, chosen) {
    const button = build("button", { type: "button" }, isolated(each.run));
    const open = () => this.store.set({ run: each.run, step: null, follow: true, lock: null, key: null });
    const row = build("tr", { onclick: open, "aria-current": chosen ? "true" : null }, build("th", { scope: "row" }, button));
    if (each.error) {
      row.append(build("td", { colspan: String(COLUMNS.length + 2), class: "error" }, legible(each.error, 300)));
      return row;
    }
    const kept = each.recorded > each.steps ? `${each.steps} of ${each.recorded}` : String(each.steps);
    const heads = each.heads.reduce((sum, count) => sum + count, 0);
    const values = flat(this.numbers.get(each.run)?.measures[this.measure]?.mean);
    const mean = values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
    const ends = values.length > 0 ? [Math.min(...values), Math.max(...values)] : [null, null];
    const failed = this.numbers.get(each.run)?.error;
    const cells = [kept, String(each.last ?? "–"), String(each.texts.length), `${each.heads.length} layers, ${heads} heads`];
    cells.push(...[mean, ...ends].map(formatNumber));
    row.append(...cells.map((text) => element("td", "", text)));
    if (failed) row.lastChild.title = legible(failed, 300);
    return row;
  }
}

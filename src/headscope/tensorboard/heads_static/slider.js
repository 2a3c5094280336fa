/* One slider for the step, over maps and numbers at once. */

import { build } from "./dom.js";
import { isVisible } from "./theme.js";

const FRAME = 100; // milliseconds between two steps that are played

export class StepSlider {
  constructor(root, store, loader) {
    Object.assign(this, { store, loader, timer: null });
    const icon = (name, label, onclick) => build("button", { class: `plain ${name}`, type: "button", title: label, "aria-label": label, onclick });
    this.play = icon("play", "Play the steps (p)", () => this.toggle());
    this.back = icon("back", "One step back (,)", () => this.move(-1));
    this.on = icon("on", "One step on (.)", () => this.move(1));
    this.range = build("input", { type: "range", min: "0", step: "1", value: "0", "aria-label": "Step" });
    this.range.addEventListener("input", () => this.choose(Number(this.range.value)));
    this.now = build("output", { class: "now" });
    this.kept = build("span", { class: "kept" });
    this.state = build("span", { class: "badge" });
    this.line = build("div", { class: "line steps" }, this.play, this.back, this.on, this.range, this.now, this.kept, this.state);
    root.append(this.line);
    store.subscribe(["index", "step", "runs", "shown"], () => this.show());
    store.subscribe(["playing"], () => this.showPlaying());
    this.showPlaying();
  }

  choose(place) {
    const { steps } = this.store;
    const inside = Math.min(steps.length - 1, Math.max(0, place));
    if (inside >= 0) this.store.set({ step: steps[inside].step, follow: inside === steps.length - 1 });
  }

  move(by) {
    this.choose(this.store.place + by);
  }

  toggle() {
    const { store } = this;
    if (!store.playing && store.place >= store.steps.length - 1) this.choose(0);
    store.set({ playing: !store.playing && store.steps.length > 1 });
    this.fetched = null;
    if (store.playing) this.tick(performance.now());
  }

  /* The next step, once the one before has been drawn and its time is over. */
  tick(due) {
    clearTimeout(this.timer);
    const { store } = this;
    if (!store.playing) return undefined;
    if (!isVisible()) return store.set({ playing: false });
    const { place, steps } = store;
    const drawn = store.shown === steps[place]?.step || store.errors.maps;
    let next = due;
    if (drawn && performance.now() >= due) {
      if (place >= steps.length - 1) return store.set({ playing: false });
      this.choose(place + 1);
      next = Math.max(due + FRAME, performance.now() + FRAME / 2);
    }
    if (this.fetched !== store.place) [1, 2].forEach((ahead) => this.loader.prefetch(store.place + ahead));
    this.fetched = store.place;
    this.timer = setTimeout(() => this.tick(next), drawn ? Math.max(4, next - performance.now()) : 8);
    return undefined;
  }

  show() {
    const { steps, place, index, shown } = this.store;
    this.line.hidden = steps.length === 0;
    this.now.classList.toggle("pending", shown !== (steps[place]?.step ?? NaN));
    if (steps.length === 0) return;
    this.range.max = String(steps.length - 1);
    this.range.value = String(place);
    this.range.setAttribute("aria-valuetext", `step ${steps[place].step}`);
    this.now.textContent = `step ${steps[place].step}`;
    const { recorded } = index;
    const all = steps.length === recorded;
    this.kept.textContent = all ? `${place + 1} of ${steps.length} recorded steps` : `${steps.length} of ${recorded} recorded steps kept`;
    this.kept.title = all ? "every step that was recorded is here"
      : `thinned to fit the budget of ${Math.round(index.budget / 2 ** 20)} MiB: each ${index.every}th step; the first and the last always stay`; // prettier-ignore
  }

  showPlaying() {
    const { playing } = this.store;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-pressed", String(playing));
  }
}

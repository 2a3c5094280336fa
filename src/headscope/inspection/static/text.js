/* The text, token by token. The token in question is the query; the others are shaded by weight / the row's
   maximum, since weights of a long text are too small to be seen on a scale that ends at 1. */

const RANKED = 6;

/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
function directionOf(text) {
  const letter = text.match(/\p{L}/u);
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter[0]) ? "rtl" : "ltr";
}

class TextView {
  constructor(report, selection) {
    Object.assign(this, { report, selection });
    this.root = document.getElementById("tokens");
    this.root.dir = directionOf(report.text);
    this.tokens = report.tokens.map((token, index) => this.createToken(token, index));
    this.root.append(...this.tokens);
    this.root.addEventListener("pointerleave", () => selection.leave());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.release = document.getElementById("release");
    this.release.addEventListener("click", () => selection.release());
    selection.subscribe("token", () => this.show());
    this.show();
  }

  createToken(text, index) {
    const token = element("button", "token");
    token.type = "button";
    token.append(isolated(text));
    token.addEventListener("pointerenter", () => this.selection.pointToken(index));
    token.addEventListener("focus", () => this.selection.pointToken(index));
    token.addEventListener("click", () => this.selection.toggle(index, null));
    return token;
  }

  show() {
    const { query, key, lock } = this.selection;
    const head = this.report.heads[this.selection.head];
    this.tokens.forEach((token, index) => {
      const weight = formatWeight(this.report, head, query, index);
      token.style.setProperty("--strength", String(head.levels[query * this.report.count + index] / 255));
      token.dataset.weight = weight;
      token.title = `token ${index}, weight ${weight}`;
      token.classList.toggle("query", index === query);
      token.classList.toggle("key", index === key);
      token.setAttribute("aria-pressed", String(lock !== null && lock.query === index));
      token.tabIndex = index === query ? 0 : -1;
    });
    this.release.hidden = lock === null;
    if (!this.root.matches(":hover")) reveal(this.root, this.tokens[query]);
    this.showRanking(head, query);
  }

  showRanking(head, query) {
    const { count, tokens } = this.report;
    const heading = document.getElementById("ranking-heading");
    heading.replaceChildren(isolated(tokens[query], "name"), " attends most to");
    const level = (key) => head.levels[query * count + key];
    const ranked = [...tokens.keys()].sort((a, b) => level(b) - level(a) || a - b).slice(0, RANKED);
    const lines = ranked.map((key) => barLine(tokens[key], level(key) / 255, formatWeight(this.report, head, query, key)));
    document.getElementById("ranked").replaceChildren(...lines);
  }

  onKey(event) {
    const along = this.root.dir === "rtl" ? { ArrowLeft: 1, ArrowRight: -1 } : { ArrowLeft: -1, ArrowRight: 1 };
    const step = along[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.tokens.indexOf(document.activeElement) + step;
    if (next >= 0 && next < this.tokens.length) this.tokens[next].focus();
  }
}

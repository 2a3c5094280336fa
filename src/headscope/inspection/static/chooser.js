/* The list of texts, where the page has several: what each is, what it was taken for, and how it begins. The one
   that is shown below is chosen as in a radio group. */

const BEGINNING = 200; // characters, more than a line holds

class Chooser {
  constructor(title, reports, show) {
    this.show = show;
    document.getElementById("chooser").hidden = false;
    document.getElementById("chooser-title").textContent = title;
    this.root = document.getElementById("choices");
    this.lines = reports.map((report, index) => this.createLine(report, index));
    this.root.append(...this.lines);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.mark(0);
  }

  createLine(report, index) {
    const line = element("button", "choice");
    const known = report.probabilities.find(([name]) => name === report.label);
    line.type = "button";
    line.setAttribute("role", "radio");
    line.append(element("span", "place", String(index + 1)));
    line.append(...this.createClass(known ?? [report.label ?? "–", null]));
    line.append(...this.createClass(this.given(report)));
    line.append(isolated(report.text.slice(0, BEGINNING), "beginning"));
    line.addEventListener("click", () => this.choose(index));
    return line;
  }

  /* What the text is given: the likeliest class, or what stands in the report where it may be any number of them. */
  given(report) {
    const prediction = report.prediction ?? null;
    if (prediction === null) return rankedClasses(report)[0] ?? ["–", null];
    return report.probabilities.find(([name]) => name === prediction) ?? [prediction, null];
  }

  createClass([name, probability]) {
    return [isolated(name, "name"), element("span", "number", formatShare(probability))];
  }

  mark(chosen) {
    this.lines.forEach((line, index) => {
      line.setAttribute("aria-checked", String(index === chosen));
      line.tabIndex = index === chosen ? 0 : -1;
    });
    this.chosen = chosen;
    reveal(this.root, this.lines[chosen]);
  }

  choose(index) {
    if (index === this.chosen) return;
    this.mark(index);
    this.show(index);
  }

  onKey(event) {
    const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.chosen + step;
    if (next < 0 || next >= this.lines.length) return;
    this.choose(next);
    this.lines[next].focus({ preventScroll: true });
  }
}

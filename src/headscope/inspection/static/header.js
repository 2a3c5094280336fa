/* The head of the page: what was read, what the model says of it, and where the numbers come from. */

function showHeader(report) {
  document.getElementById("title").textContent = report.title;
  document.getElementById("text").textContent = report.text;
  showNotes(report.notes);
  showPrediction(report);
}

function showNotes(notes) {
  const list = document.getElementById("notes");
  for (const [name, value] of notes) {
    const entry = element("div");
    const description = element("dd");
    description.append(isolated(value));
    entry.append(element("dt", "", name), description);
    list.append(entry);
  }
}

/* Classes by falling probability; one without a number comes last. */
function rankedClasses(report) {
  return [...report.probabilities].sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1));
}

function showPrediction(report) {
  const classes = rankedClasses(report);
  const list = document.getElementById("classes");
  for (const [name, probability] of classes) {
    const line = barLine(name, probability ?? 0, formatShare(probability));
    if (name === report.label) line.classList.add("true");
    list.append(line);
  }
  if (classes.length > 0) showVerdict(report.prediction ?? classes[0][0], report.label);
}

function showVerdict(predicted, label) {
  const verdict = document.getElementById("verdict");
  verdict.append(isolated(predicted, "predicted"));
  if (label === null) return;
  const known = element("span", predicted === label ? "known" : "known wrong");
  known.append(predicted === label ? "✓ true label " : "✗ true label ", isolated(label));
  verdict.append(known);
}

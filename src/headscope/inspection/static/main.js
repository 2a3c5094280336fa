/* Put the views together. */

function showCaptions(report, selection) {
  const caption = report.heads[selection.head].caption;
  for (const place of document.querySelectorAll(".caption")) place.textContent = caption;
}

/* The choice of what shows, where the text is a pair. */
function showParts(selection) {
  const choice = new PartChoice((part) => selection.choosePart(part));
  selection.subscribe("part", () => choice.show(selection.part));
  document.getElementById("parts").append(choice.node);
}

function main() {
  const report = readReport();
  const selection = new Selection();
  const palette = new Palette(report.colors);
  showHeader(report);
  showLegend(palette);
  showCaptions(report, selection);
  if (report.segments !== null) showParts(selection);
  selection.subscribe("head", () => showCaptions(report, selection));
  new TextView(report, selection);
  if (report.pooling !== null) new PoolingView(report, selection);
  new Grid(report, selection, palette);
  new HeadView(report, selection, palette);
  new NumberTable(report, selection);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") selection.release();
  });
}

main();

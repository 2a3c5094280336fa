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

/* Fill the header and the main part, which are empty, with a text: this head large, colours up to this weight. */
function showReport(raw, head, top) {
  const report = decodeReport(raw);
  const selection = new Selection(head);
  const palette = new Palette(report.colors, top);
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
  return { selection, palette };
}

/* Another text gets new elements: what listened to those of the one before goes with them. */
function main() {
  const data = readData();
  const empty = (data.reports ? ["header", "main"] : []).map((name) => document.querySelector(name).cloneNode(true));
  let shown = showReport(data.reports ? data.reports[0] : data, 0, 1);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") shown.selection.release();
  });
  if (!data.reports) return;
  new Chooser(data.title, data.reports, (index) => {
    for (const part of empty) document.querySelector(part.localName).replaceWith(part.cloneNode(true));
    shown = showReport(data.reports[index], shown.selection.head, shown.palette.top);
  });
}

main();

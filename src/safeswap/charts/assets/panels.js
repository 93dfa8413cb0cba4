// Tables, the detail panel and other parts of the page. Text is inserted as text, never as markup.

function fill(parent, ...children) {
  parent.replaceChildren(...present(children));
}

function numberCell(value) {
  return element("td", { class: "num", "data-value": value === null ? "" : value }, formatted(value));
}

const MOST_ROWS = 500;

function tableColumns(data, state) {
  const columns = [
    { title: "Swapped", key: (p) => data.specs.label[p.spec],
      cell: (p, open) => element("td", { class: "ssm-name" },
        element("button", { type: "button", class: "ssm-link", onclick: () => open(p) }, isolated(data.specs.label[p.spec]))) },
    { title: "Attributes", key: (p) => data.specs.swap[p.spec],
      cell: (p) => element("td", { class: "ssm-name" }, isolated(data.specs.swap[p.spec])) },
  ];
  if (data.rates.length) columns.push({ title: "Rate", number: true,
    key: (p) => data.specs.rate[p.spec], cell: (p) => element("td", { class: "num" }, data.rates[data.specs.rate[p.spec]] ?? "–") });
  if (data.constraints.some(Boolean)) columns.push({ title: "Constraint",
    key: (p) => constraintText(data, p.spec), cell: (p) => element("td", { class: "ssm-name" }, isolated(constraintText(data, p.spec))) });
  if (state.of === "draws" && data.draws) columns.push({ title: "Replicate", number: true,
    key: (p) => data.draws.replicate[p.index], cell: (p) => element("td", { class: "num" }, String(data.draws.replicate[p.index])) });
  columns.push({ title: "Pairs", number: true, key: (p) => pairsOf(data, p),
    cell: (p) => element("td", { class: "num", "data-value": pairsOf(data, p) }, counted(Math.round(pairsOf(data, p)))) });
  data.measures.forEach((measure, i) => columns.push({ title: measure.title, number: true,
    key: (p) => valueOf(data, p, i), cell: (p) => numberCell(valueOf(data, p, i)) }));
  columns.push({ title: "Frontier", number: true, key: (p) => (state.best.has(p.index) ? 0 : 1),
    cell: (p) => element("td", { class: "num" }, state.best.has(p.index) ? "■" : "") });
  if (data.replicates > 1) columns.push({ title: "How often", number: true, key: (p) => oftenOf(data, state, p),
    cell: (p) => element("td", { class: "num" }, percent(oftenOf(data, state, p))) });
  return columns;
}

const percent = (share) => (share === null ? "–" : Math.round(100 * share) + "%");

function fillTable(parts, data, state, points, open, redraw) {
  const columns = tableColumns(data, state), selected = state.selection !== null;
  parts["table-title"].textContent = selected
    ? (points.length ? several(points.length, "selected candidate") : "Nothing selected")
    : "The frontier: " + (state.of === "draws" && data.draws ? several(points.length, "single draw")
      : several(points.length, "specification") + (data.replicates > 1 ? ", at the means of their draws" : ""));
  const more = points.length > MOST_ROWS ? " The first " + MOST_ROWS + " are listed." : "";
  parts["table-note"].textContent = (selected
    ? "Double-click on the map to go back to the frontier." + (state.alsoDraws ? " The box also holds "
      + several(state.alsoDraws, "single draw") + "; to list them, show single draws as points." : "")
    : "Choose “select” above and drag a box over the map to list what is in it. Click a point or a name for its details.") + more;
  const sorted = sortedBy(points, columns[state.sort.column] || columns[0], state.sort);
  const head = columns.map((column, i) => element("th", {
    scope: "col", class: column.number ? "num" : "", "aria-sort": state.sort.column === i ? (state.sort.down ? "descending" : "ascending") : null,
  }, element("button", { type: "button", onclick: () => {
    state.sort = { column: i, down: state.sort.column === i && !state.sort.down };
    redraw();
  } }, column.title + (state.sort.column === i ? (state.sort.down ? " ↓" : " ↑") : ""))));
  const rows = sorted.slice(0, MOST_ROWS).map((p) => element("tr", { "data-spec": data.specs.number[p.spec],
    "data-candidate": p.kind === "draw" ? data.draws.candidate[p.index] : null }, ...columns.map((column) => column.cell(p, open))));
  fill(parts.table, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function sortedBy(points, column, sort) {
  if (sort.column === null) return points;
  const sign = sort.down ? -1 : 1;
  return points.slice().sort((a, b) => {
    const left = column.key(a), right = column.key(b);
    return sign * (typeof left === "string" ? left.localeCompare(right) : left - right);
  });
}

function fillDetail(parts, data, state, colours, redraw) {
  const point = state.open;
  if (!point) {
    fill(parts.detail, element("p", { class: "ssm-note" }, data.chosen === null
      ? "Click a point of the map, or a name in the table below, to see its 2-way tables and its specification."
      : data.chosen.sentence));
    return;
  }
  const drawn = drawText(data, point), often = oftenOf(data, state, point);
  const figures = data.measures.map((measure, i) => element("tr", {}, element("th", { scope: "row" }, measure.title),
    numberCell(valueOf(data, point, i)),
    element("td", { class: "num" }, point.kind === "mean" && data.specs.spread[i][point.spec] !== null && data.replicates > 1
      ? "± " + formatted(data.specs.spread[i][point.spec]) : "")));
  fill(parts.detail,
    element("h3", {}, isolated(nameOf(data, point))),
    element("p", { class: "ssm-note" }, isolated(data.specs.swap[point.spec]),
      [drawn && " · " + drawn, " · " + several(Math.round(pairsOf(data, point)), "pair"),
        often !== null && " · on the frontier in " + percent(often) + " of the replicates",
        isChosen(data, point) && " · chosen"].filter(Boolean).join("")),
    element("table", { class: "ssm-figures" }, element("tbody", {}, ...figures)),
    ...heatPart(data, state, point, colours, redraw), ...textPart(data, state, point, redraw));
}

function heatPart(data, state, point, colours, redraw) {
  const tables = tablesOf(data, point), title = element("h4", {}, "Distortion of the 2-way tables");
  if (!tables) {
    return [title, element("p", { class: "ssm-note" }, data.tables
      ? "Not in this page. In Python: study.distortion_table(candidate, measure)."
      : "None: this study was run without keeping 2-way tables.")];
  }
  const picker = element("select", { "aria-label": "Measure of the 2-way tables", "data-part": "heat-measure",
    onchange: (event) => { state.heat = Number(event.target.value); redraw('[data-part="heat-measure"]'); } },
  ...data.tables.measures.map((name, i) => element("option", { value: i, selected: i === state.heat }, name)));
  return [title, element("label", {}, "Measure ", picker), tables.of ? element("span", { class: "ssm-note" }, " " + tables.of) : null,
    heatTable(data.tables, tables.values[state.heat], colours)];
}

// A triangle of coloured cells: blue for lost association or a changed table, brown for the opposite direction.
function heatTable(tables, values, colours) {
  const largest = Math.max(...values.map((v) => Math.abs(v ?? 0))), n = tables.attributes.length;
  const at = new Map(tables.pairs.map(([a, b], i) => [a * n + b, values[i]]));
  const cell = (a, b) => {
    const value = at.get(a * n + b);
    if (value === undefined) return element("td", {});
    const share = largest > 0 ? Math.abs(value ?? 0) / largest : 0;
    const made = element("td", { "data-a": tables.attributes[a], "data-b": tables.attributes[b], "data-value": value,
      title: tables.attributes[a] + " × " + tables.attributes[b] + ": " + value }, shortNumber(value));
    made.style.background = share ? tinted(value < 0 ? colours.gain : colours.loss, 0.12 + 0.88 * share) : colours.ground;
    made.style.color = share ? inkOn(value < 0 ? colours.gain : colours.loss, 0.12 + 0.88 * share, colours.ground) : colours.muted;
    return made;
  };
  const name = (i, scope) => element("th", { scope, title: tables.attributes[i] }, isolated(tables.attributes[i]));
  const indices = tables.attributes.map((_, i) => i);
  const tall = tables.attributes.some((text) => text.length > 7);
  return element("div", { class: "ssm-scroll ssm-heat" + (tall ? " ssm-tall" : "") }, element("table", {},
    element("thead", {}, element("tr", {}, element("td", {}), ...indices.slice(0, -1).map((i) => name(i, "col")))),
    element("tbody", {}, ...indices.slice(1).map((b) =>
      element("tr", {}, name(b, "row"), ...indices.slice(0, b).map((a) => cell(a, b)))))));
}

function shortNumber(value) {
  if (value === null) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 5e-5) return value < 0 ? "−0+" : "0+";
  return value.toFixed(4).replace("-", "−").replace("0.", ".");
}

const channels = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

// Black or white, whichever has more contrast with the colour over the background.
function inkOn(colour, share, ground) {
  const below = channels(ground), mixed = channels(colour).map((part, i) => (part * share + below[i] * (1 - share)) / 255);
  const [r, g, b] = mixed.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

function tinted(colour, share) {
  const [r, g, b] = channels(colour);
  return `rgba(${r}, ${g}, ${b}, ${share.toFixed(3)})`;
}

const TEXT_KINDS = ["Python", "Command line", "TOML"];

function textPart(data, state, point, redraw) {
  const texts = data.specs.texts[data.specs.number[point.spec]], title = element("h4", {}, "The specification, ready to run");
  if (!texts) {
    return [title, element("p", { class: "ssm-note" }, "Not in this page. In Python: study.specs["
      + data.specs.number[point.spec] + "].")];
  }
  const text = state.text === 0 && point.kind === "draw"
    ? texts[0].replace(/\)$/, ", replicate=" + data.draws.replicate[point.index] + ")") : texts[state.text];
  const block = element("pre", { tabindex: 0, "data-part": "spec-text" }, text);
  const tabs = TEXT_KINDS.map((kind, i) => element("button", { type: "button", role: "tab", "aria-selected": String(i === state.text),
    onclick: () => { state.text = i; redraw('[role="tab"][aria-selected="true"]'); } }, kind));
  const copy = element("button", { type: "button", onclick: () => copyText(block, copy) }, "Copy");
  return [title, element("div", { class: "ssm-tabs" }, element("span", { role: "tablist", class: "ssm-tabs" }, ...tabs), copy), block];
}

// Pages opened from disk may not use the clipboard API; then the text is selected and copied by execCommand.
function copyText(block, button) {
  const range = document.createRange(), chosen = window.getSelection();
  range.selectNodeContents(block);
  chosen.removeAllRanges();
  chosen.addRange(range);
  button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
}

function fillRejected(parts, data) {
  const { lines, all, candidates } = data.rejected;
  parts.rejected.hidden = !lines.length;
  if (!lines.length) return;
  const more = all > lines.length ? element("p", { class: "ssm-note" }, counted(all - lines.length) + " more are not listed.") : null;
  fill(parts.rejected,
    element("summary", {}, several(candidates, "candidate") + " could not be made"),
    element("div", { class: "ssm-scroll" }, element("table", {}, element("thead", {}, element("tr", {},
      ...["Swapped", "Rate", "Constraint", "Draws", "Reason"].map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, ...lines.map(([label, constraint, rate, times, reason]) => element("tr", {},
      element("td", { class: "ssm-name" }, isolated(label)), element("td", { class: "num" }, rate === null ? "–" : String(rate)),
      element("td", { class: "ssm-name" }, isolated(constraint)), element("td", { class: "num" }, counted(times)),
      element("td", { class: "ssm-name" }, isolated(reason))))))), more);
}

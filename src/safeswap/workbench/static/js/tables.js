// Tables for publication: check them as they are put together, and make them safe.

import { all, askLatest, get, guarded, post, Refused } from "./api.js";
import { categorical } from "./before-after.js";
import { byId, count, el, fill, name, sentence, several, when } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { at, begin, noFile, projectId, python, resultAt } from "./page.js";

const WIDEST = 12, MOST_CELLS = 500;
const state = { tables: [], description: null, mayWork: false };
let refreshPython = null;

begin(async ({ project, may }) => {
  byId("to-risk").href = `/projects/${projectId}/risk`;
  byId("next").href = `/projects/${projectId}/method`;
  byId("records-instead").href = `/projects/${projectId}/method?method=safe`;
  if (project.data_version === 0) {
    fill(byId("main"), byId("main").querySelector("h1"), noFile());
    return;
  }
  state.mayWork = may("work");
  byId("report").hidden = !may("decide");
  state.description = await get(at("/description"));
  byId("tolerance").value = Math.max(2, project.tolerance);
  byId("make").hidden = byId("records-instead").hidden = !state.mayWork;
  fill(byId("attributes"), categorical(state.description).map((attribute) => el("label", {}, el("input", { type: "checkbox", value: attribute.name, on: { change: drawAdding } }), " ", name(attribute.name))));
  connect();
  drawTables();
  const results = await earlier(), wanted = new URLSearchParams(location.search).get("result");
  const first = results.find((each) => each.id === wanted);
  if (first) await open(first.id);
  const job = await underWay("safe_tables");
  if (job) await finish(job);
});

const ticked = () => [...byId("attributes").querySelectorAll("input:checked")].map((box) => box.value);
const crossNames = (names) => names.flatMap((each, i) => [i ? " × " : "", name(each)]);

function drawAdding() {
  const names = ticked(), known = state.tables.some((table) => table.length === names.length && names.every((each) => table.includes(each)));
  byId("add-table").disabled = !names.length || known;
  byId("add-note").textContent = known ? "This table is already in the list." : "";
}

function drawTables() {
  fill(byId("tables"), state.tables.length ? state.tables.map((table, i) => el("li", {}, crossNames(table), " ",
    el("button", { type: "button", class: "small", "aria-label": `Remove ${table.join(" by ")}`, on: { click: () => { state.tables.splice(i, 1); drawTables(); byId("add-table").focus(); check(); } } }, "Remove")))
    : el("li", { class: "note plain" }, "No tables yet."));
  byId("make").disabled = !state.tables.length;
  drawAdding();
}

function asked() {
  const sums = byId("keep").value, names = [...new Set(state.tables.flat())];
  const keep = sums === "most" ? {} : { keep: sums === "own" ? names.map((each) => [each]) : [] };
  return { tables: state.tables, tolerance: Number(byId("tolerance").value), objective: byId("objective").value, soft: byId("soft").checked, ...keep };
}

let latest = 0;
const check = guarded(async () => {
  refreshPython();
  const own = ++latest, line = byId("check");
  byId("check-scroll").hidden = true;
  if (!state.tables.length) { line.className = ""; line.textContent = "Add a table: tick its attributes."; return; }
  let found;
  try { found = await askLatest(at("/table-checks"), { tables: state.tables, tolerance: Number(byId("tolerance").value) }); } catch (error) {
    if (own !== latest) return;
    line.className = "warning";
    line.textContent = error instanceof Refused ? error.text : "The tables could not be checked.";
    return;
  }
  if (own !== latest) return;
  line.className = found.is_safe ? "good" : "warning";
  line.textContent = sentence(found.sentence);
  byId("check-scroll").hidden = false;
  fill(byId("checked"), found.tables.map((table) => el("tr", {}, el("th", { scope: "row" }, crossNames(table.variables)), [table.cells, table.occupied, table.small, table.derived].map((value) => el("td", { class: "n" }, count(value))))));
});

function connect() {
  refreshPython = python(() => (state.tables.length ? { tables: asked() } : {}));
  byId("add-table").addEventListener("click", () => {
    state.tables.push(ticked());
    for (const box of byId("attributes").querySelectorAll("input")) box.checked = false;
    drawTables();
    byId("attributes").querySelector("input").focus();
    check();
  });
  let waiting = 0;
  byId("tolerance").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(check, 200); });
  for (const id of ["keep", "objective", "soft"]) byId(id).addEventListener("change", () => refreshPython());
  byId("tables-form").addEventListener("submit", (event) => { event.preventDefault(); if (state.tables.length && state.mayWork) make(); });
}

const make = guarded(async () => finish(await post(at("/safe-tables"), asked(), { once: true })));

async function finish(job) {
  byId("make").disabled = true;
  const ended = await follow(job, byId("job"), "Making the tables safe");
  byId("make").disabled = !state.tables.length;
  await earlier();
  if (ended.state === "succeeded") { await open(ended.result.id); byId("one-title").scrollIntoView(); }
}

async function earlier() {
  const found = await all(at("/safe-tables"), 200);
  byId("earlier").hidden = !found.length;
  fill(byId("results"), found.map((each) => el("tr", {}, el("td", {}, when(each.created_at)), el("td", {}, name(each.created_by)), el("td", {}, each.spec.tables.flatMap((table, i) => [i ? ", " : "", ...crossNames(table)])),
    el("td", { class: "n" }, count(each.spec.tolerance)), el("td", {}, name(sentence(each.summary.sentence))),
    el("td", {}, el("button", { type: "button", class: "small", "aria-label": `Look at the tables made ${when(each.created_at)}`, on: { click: guarded(() => open(each.id)) } }, "Look")))));
  return found;
}

async function open(id) {
  const { spec, summary } = await get(at(`/safe-tables/${id}`));
  byId("one").hidden = false;
  byId("sentence").className = summary.violation ? "warning" : "good";
  fill(byId("sentence"), name(sentence(summary.sentence)));
  fill(byId("totals"), summary.tables.map((table) => el("tr", {}, el("th", { scope: "row" }, crossNames(table.variables)),
    [table.small_before, table.small_after, table.changed_cells, table.total_change, table.largest_change].map((value) => el("td", { class: "n" }, count(value))))));
  fill(byId("cells"), summary.cells.map((cells, i) => drawTable(spec.tables[i], cells)));
  byId("report").href = resultAt(`/safe-tables/${id}/report.html`);
}

// The safe table, which may be published. Changed cells are marked; their original counts are in the internal report.
function drawTable(names, cells) {
  const levels = names.map((attribute, i) => {
    const known = state.description.attributes.find((each) => each.name === attribute)?.levels?.map((level) => level.level) ?? [];
    return [...new Set(cells.map((cell) => cell.levels[i]))].sort((a, b) => place(known, a) - place(known, b) || a.localeCompare(b));
  });
  const square = names.length === 2 && levels[1].length <= WIDEST, left = square ? 0 : Math.max(0, cells.length - MOST_CELLS);
  return el("section", {}, el("h3", {}, crossNames(names)), el("p", { class: "note" }, cells.some((cell) => cell.changed) ? "Marked cells were changed. " : "No cells were changed. ", "Levels that few records have are not shown here.", left ? ` ${several(left, "more cell is", "more cells are")} in the report.` : ""),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, square ? drawGrid(names, levels, cells) : drawList(names, cells.slice(0, MOST_CELLS))));
}

const place = (known, level) => (known.includes(level) ? known.indexOf(level) : known.length);
const value = (cell) => (cell ? el("td", { class: cell.changed ? "n changed" : "n", title: cell.changed ? "changed" : "unchanged" }, count(cell.after)) : el("td", { class: "n" }, "0"));

function drawGrid(names, levels, cells) {
  const found = new Map(cells.map((cell) => [JSON.stringify(cell.levels), cell]));
  return el("table", { class: "fit", "aria-label": `${names.join(" by ")}, made safe` },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, name(`${names[0]} \\ ${names[1]}`)), levels[1].map((level) => el("th", { scope: "col", class: "n" }, name(level))))),
    el("tbody", {}, levels[0].map((row) => el("tr", {}, el("th", { scope: "row" }, name(row)), levels[1].map((column) => value(found.get(JSON.stringify([row, column]))))))));
}

function drawList(names, cells) {
  return el("table", { class: "fit", "aria-label": `${names.join(" by ")}, made safe` }, el("thead", {}, el("tr", {}, names.map((each) => el("th", { scope: "col" }, name(each))), el("th", { scope: "col", class: "n" }, "Count"))),
    el("tbody", {}, cells.map((cell) => el("tr", {}, cell.levels.map((level) => el("td", {}, name(level))), value(cell)))));
}

// The first step: a file, what is in it, and what its attributes are.

import { call, get, guarded, tell, upload } from "./api.js";
import { bars } from "./bars.js";
import { byId, count, el, fill, name, say } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { at, begin, projectId, python } from "./page.js";

const KINDS = {
  nominal: ["nominal", "Categories without an order"], ordinal: ["ordinal", "Categories with an order"],
  geography: ["geography", "A level of geography"], numeric: ["numeric", "A number"], weight: ["weight", "A sampling weight"],
  household: ["household", "Tells which records belong together"], identifier: ["identifier", "Tells records apart; never released"],
};
const state = { project: null, description: null, etag: null, changes: new Map(), mayWork: false };

begin(async ({ project, may }) => {
  state.mayWork = may("work");
  byId("next").href = `/projects/${projectId}/risk`;
  python(() => ({}));
  connect();
  const job = await underWay("ingest");
  if (job) await read(job);
  else await show(project);
});

async function show(project) {
  state.project = project ?? await get(at(""));
  state.changes.clear();
  const empty = state.project.data_version === 0;
  byId("upload").hidden = !(empty && state.mayWork);
  byId("described").hidden = empty;
  if (empty) { if (!state.mayWork) fill(byId("job"), el("p", { class: "empty" }, "This project has no file yet. An analyst has to give it one.")); return; }
  const found = await call("GET", at("/description"));
  state.description = found.value;
  state.etag = found.etag;
  fill(byId("file-line"), name(state.project.file_name || "The file"), `: ${count(found.value.records)} records, ${count(found.value.attributes.length)} attributes.`);
  fill(byId("warnings"), found.value.warnings.map((text) => el("p", { class: "warning" }, name(text))));
  byId("cells").textContent = cellsLine(found.value);
  fill(byId("attributes"), found.value.attributes.map(row));
  byId("save").hidden = byId("other-file").hidden = !state.mayWork;
  byId("save").disabled = true;
}

function cellsLine({ cells, tolerance }) {
  if (!cells.attributes.length) return "No attribute is categorical, so there are no cells.";
  const small = Object.values(cells.small).reduce((sum, number) => sum + number, 0);
  return `${count(cells.attributes.length)} categorical attributes form ${count(cells.possible)} cells; ${count(cells.occupied)} are occupied, `
    + `${count(small)} of them by fewer than ${tolerance} records.`;
}

function row(attribute) {
  const kinds = el("select", { "aria-label": `Kind of ${attribute.name}`, disabled: !state.mayWork, on: { change: (event) => change(attribute, { kind: event.target.value }) } },
    Object.entries(KINDS).map(([kind, [text, meaning]]) => el("option", { value: kind, title: meaning, selected: kind === attribute.kind }, text)));
  const label = el("input", { "aria-label": `Label of ${attribute.name}`, value: attribute.label, maxlength: 1000, disabled: !state.mayWork,
    on: { input: (event) => change(attribute, { label: event.target.value }) } });
  const order = attribute.kind === "ordinal" && attribute.levels?.length > 1 && !attribute.levels_below_tolerance.number && state.mayWork
    ? el("button", { type: "button", class: "small", on: { click: () => reorder(attribute) } }, "Order…") : null;
  const frequencies = attribute.levels === null ? el("span", { class: "note" }, "no frequencies: values are somebody's own")
    : bars(attribute.levels, attribute.levels_below_tolerance.number, state.description.tolerance);
  return el("tr", {}, el("td", {}, name(attribute.name)),
    el("td", {}, kinds, " ", attribute.inferred ? el("span", { class: "note", title: "Guessed from the values; choose to confirm" }, "guessed") : null, " ", order),
    el("td", {}, label), el("td", { class: "n" }, count(attribute.distinct)), el("td", { class: "n" }, count(attribute.missing + attribute.missing_codes)),
    el("td", {}, frequencies));
}

function change(attribute, stated) {
  state.changes.set(attribute.name, { ...state.changes.get(attribute.name), ...stated });
  byId("save").disabled = false;
}

function reorder(attribute) {
  const dialog = byId("order"), list = byId("order-list");
  let levels = state.changes.get(attribute.name)?.levels ?? attribute.levels.map((level) => level.level);
  const draw = (focused) => {
    fill(list, levels.map((level, i) => el("li", {}, name(level), ["↑", "↓"].map((sign, down) => el("button", {
      type: "button", class: "small", disabled: down ? i === levels.length - 1 : i === 0, "aria-label": `Move ${level} ${down ? "down" : "up"}`,
      on: { click: () => { const to = down ? i + 1 : i - 1; levels = levels.toSpliced(i, 1).toSpliced(to, 0, level); draw(to); } } }, sign)))));
    if (focused !== undefined) list.children[focused]?.querySelector("button:not(:disabled)")?.focus();
  };
  draw();
  byId("order-done").onclick = () => { change(attribute, { kind: "ordinal", levels }); dialog.close(); };
  byId("order-cancel").onclick = () => dialog.close();
  dialog.showModal();
}

function connect() {
  const drop = byId("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.toggle("over", kind === "dragover"); });
  }
  drop.addEventListener("drop", (event) => { if (event.dataTransfer.files.length) send(event.dataTransfer.files[0]); });
  byId("file").addEventListener("change", (event) => { if (event.target.files.length) send(event.target.files[0]); });
  byId("other-file").addEventListener("click", () => { byId("upload").hidden = false; byId("upload").scrollIntoView(); });
  byId("save").addEventListener("click", guarded(async () => {
    const attributes = [...state.changes].map(([attribute, stated]) => ({ name: attribute, ...stated }));
    await read((await call("PATCH", at("/description"), { body: { attributes }, etag: state.etag })).value, "Describing the data anew");
  }));
}

const send = guarded(async (file) => {
  const query = new URLSearchParams({ name: file.name });
  for (const option of ["identifier", "delimiter", "encoding"]) if (byId(option).value) query.set(option, byId(option).value);
  byId("upload").hidden = true;
  fill(byId("job"), el("p", { role: "status" }, "Sending…"));
  try {
    await read(await upload(at(`/data?${query}`), file, (part) => fill(byId("job"), el("p", { role: "status" }, `Sending: ${Math.round(100 * part)}%`))));
  } catch (error) {
    byId("upload").hidden = false;
    fill(byId("job"));
    throw error;
  }
});

async function read(job, title = "Reading the file") {
  const ended = await follow(job, byId("job"), title);
  if (ended.state === "succeeded") { say("The file is described below."); tell(null); }
  await show();
  byId("upload").hidden = !(state.mayWork && (ended.state !== "succeeded" && state.project.data_version === 0));
}

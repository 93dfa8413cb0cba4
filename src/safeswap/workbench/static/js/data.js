// Step 1: upload a file, and describe its attributes.

import { all, call, get, guarded, Refused, showProblem, upload } from "./api.js";
import { bars } from "./bars.js";
import { byId, count, el, fill, name, say, several } from "./dom.js";
import { histogram } from "./histogram.js";
import { follow, underWay } from "./jobs.js";
import { keeping } from "./keeping.js";
import { levelsDialog } from "./levels.js";
import { at, begin, current, projectId, python } from "./page.js";
import { people } from "./people.js";

const KINDS = {
  nominal: ["nominal", "Categories without an order"], ordinal: ["ordinal", "Categories with an order"],
  geography: ["geography", "A geographic level"], numeric: ["numeric", "A number"], date: ["date", "A day, without a time"], weight: ["weight", "A sampling weight"],
  household: ["household", "Number of the household that a record belongs to"], identifier: ["identifier", "Identifies a record; never released"],
};
const CATEGORICAL = new Set(["nominal", "ordinal", "geography"]);
const state = { project: null, description: null, etag: null, changes: new Map(), mayWork: false };

let refreshPython = null;

begin(async ({ who, project, may, answers: job }) => {
  state.mayWork = may("work");
  byId("next").href = `/projects/${projectId}/risk`;
  refreshPython = python(() => ({}));
  connect();
  keeping(project, may);
  await people(who, may);
  if (job) await read(job);
  else await show(project);
  acceptFiles();
}, () => underWay("ingest"));

async function show(project) {
  state.project = project ?? await get(at(""));
  state.changes.clear();
  const empty = state.project.data_version === 0;
  byId("upload").hidden = !(empty && state.mayWork);
  byId("described").hidden = empty;
  if (empty) { if (!state.mayWork) fill(byId("job"), el("p", { class: "empty" }, "This project has no file yet. An analyst must upload one.")); return; }
  const found = await call("GET", at("/description"));
  state.description = found.value;
  state.etag = found.etag;
  fill(byId("file-line"), name(state.project.file_name || "The file"), `: ${several(found.value.records, "record")}, ${several(found.value.attributes.length, "attribute")}.`);
  fill(byId("warnings"), found.value.warnings.map((text) => el("p", { class: "warning" }, name(text))));
  byId("cells").textContent = cellsLine(found.value);
  fill(byId("attributes"), found.value.attributes.map(row));
  byId("save").hidden = byId("other-file").hidden = !state.mayWork;
  byId("confirm").hidden = !state.mayWork || !guessed().length;
  byId("save").disabled = true;
  byId("unsaved").textContent = "";
  refreshPython();
}

// Hidden if it is below the tolerance, or would reveal a count that is.
const lacking = ({ missing, missing_codes: codes }) => (missing === null || codes === null ? "hidden" : count(missing + codes));

// A number too large to be read, as a power of ten.
function power(value) {
  const [front, exponent] = value.toExponential(1).split("e+");
  return `${front} × 10${[...exponent].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
}

function cellsLine({ cells, tolerance }) {
  if (!cells.attributes.length) return "There are no categorical attributes, hence no cells.";
  const small = Object.values(cells.small).reduce((sum, number) => sum + number, 0);
  return `${several(cells.attributes.length, "categorical attribute forms", "categorical attributes form")} ${cells.possible < 1e9 ? several(cells.possible, "cell") : `about ${power(cells.possible)} cells`}; ${several(cells.occupied, "is", "are")} occupied, `
    + `${small ? `about ${count(small)}` : "few or none"} of them by fewer than ${several(tolerance, "record")}.`;
}

const hasHouseholds = () => state.description.attributes.some((attribute) => attribute.kind === "household");
const guessed = () => state.description.attributes.filter((attribute) => attribute.inferred);

function row(attribute) {
  const kinds = el("select", { "aria-label": `Kind of ${attribute.name}`, title: KINDS[attribute.kind]?.[1], disabled: !state.mayWork, on: { change: (event) => {
    change(attribute, { kind: event.target.value });
    kinds.title = KINDS[kinds.value][1];
    levels.hidden = !CATEGORICAL.has(kinds.value);
  } } },
    Object.entries(KINDS).map(([kind, [text, meaning]]) => el("option", { value: kind, title: meaning, selected: kind === attribute.kind }, text)));
  const label = el("input", { "aria-label": `Label of ${attribute.name}`, value: attribute.label, title: attribute.label, maxlength: 1000, disabled: !state.mayWork,
    on: { input: (event) => change(attribute, { label: event.target.value }) } });
  const levels = el("button", { type: "button", class: "small", "aria-label": `Levels of ${attribute.name}`, title: "Labels and order of the levels",
    on: { click: () => levelsDialog(attribute, kinds.value, state.changes.get(attribute.name), (stated) => change(attribute, stated)) } }, "Levels…");
  levels.hidden = !CATEGORICAL.has(attribute.kind) || !state.mayWork || !attribute.levels?.length;
  const shared = el("label", { class: "note", title: "All members of a household have the same value: it is changed for all of them or for none" },
    el("input", { type: "checkbox", "aria-label": `${attribute.name} is the household's`, checked: attribute.household, disabled: !state.mayWork,
      on: { change: (event) => change(attribute, { household: event.target.checked }) } }), " household's");
  shared.hidden = !hasHouseholds() || ["household", "identifier"].includes(attribute.kind);
  const frequencies = attribute.kind === "numeric" ? bandsOf(attribute) : attribute.levels === null ? el("span", { class: "note" }, "no frequencies: values too identifying to show")
    : bars(attribute.levels, attribute.levels_below_tolerance.number, state.description.tolerance);
  return el("tr", {}, el("td", {}, name(attribute.name)),
    el("td", {}, kinds, " ", attribute.inferred ? el("span", { class: "note", title: "Guessed from the values; choose a kind to confirm" }, "guessed") : null, " ", levels, " ", shared),
    el("td", {}, label), el("td", { class: "n" }, count(attribute.distinct)), el("td", { class: "n" }, lacking(attribute)),
    el("td", {}, frequencies));
}

// Fetched when the row comes into view: a file may have hundreds of numbers.
function bandsOf(attribute) {
  const box = el("div", { class: "histogram-box" }, el("span", { class: "note" }, "…"));
  const watcher = new IntersectionObserver(async ([entry]) => {
    if (!entry.isIntersecting) return;
    watcher.disconnect();
    try { fill(box, histogram(await get(at(`/bands?attribute=${encodeURIComponent(attribute.name)}`)))); } catch (error) { fill(box, el("span", { class: "note" }, name(error instanceof Refused ? error.message : "It cannot be shown."))); }
  });
  watcher.observe(box);
  return box;
}

function change(attribute, stated) {
  state.changes.set(attribute.name, { ...state.changes.get(attribute.name), ...stated });
  byId("save").disabled = false;
  byId("unsaved").textContent = `${several(state.changes.size, "attribute")} changed, not saved yet.`;
}

function connect() {
  const drop = byId("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.toggle("over", kind === "dragover"); });
  }
  byId("other-file").addEventListener("click", guarded(askToReplace));
  byId("replace-yes").addEventListener("click", () => { byId("replace").close(); byId("upload").hidden = false; byId("upload").scrollIntoView(); });
  byId("replace-no").addEventListener("click", () => byId("replace").close());
  byId("save").addEventListener("click", save);
  // Confirming the guesses means stating them: they are no longer guesses.
  byId("confirm").addEventListener("click", () => { for (const attribute of guessed()) change(attribute, { kind: attribute.kind, ...state.changes.get(attribute.name) }); save(); });
  addEventListener("beforeunload", (event) => { if (state.changes.size) event.preventDefault(); });
}

// Say what another file makes stale before anyone chooses it.
async function askToReplace() {
  const [maskings, studies, releases] = await Promise.all(["/maskings", "/studies", "/releases"].map((path) => all(at(path), 500)));
  const made = [[maskings, "masking"], [studies, "study", "studies"]].map(([results, ...words]) => [current(results, state.project).length, words])
    .filter(([number]) => number).map(([number, words]) => several(number, ...words));
  const waiting = releases.filter((each) => ["preparing", "requested"].includes(each.state)).length;
  fill(byId("replace-note"), made.length ? `${made.join(" and ")} made from the present file can then still be viewed, but neither released nor plotted.  ` : "Nothing has been made from the present file. ",
    waiting ? `${several(waiting, "release that waits", "releases that wait")} for a decision can no longer be approved. ` : "", "What was released stays in the ledger.");
  byId("replace").showModal();
}

// Accept files from now on, including one that was dropped before the page was ready.
function acceptFiles() {
  const chooser = byId("file"), dropped = window.safeswapDropped;
  const chosen = () => {
    const [file] = chooser.files;
    chooser.value = ""; // so that the same file can be chosen again
    if (file) take(file);
  };
  chooser.addEventListener("change", chosen);
  chooser.disabled = false;
  dropped.take = take;
  const both = [byId("household-file"), byId("person-file")];
  for (const input of both) {
    input.addEventListener("change", () => { byId("send-both").disabled = both.some((each) => !each.files.length); });
    input.disabled = false;
  }
  byId("send-both").addEventListener("click", () => send(...both.map((each) => each.files[0]).reverse()));
  if (chooser.files.length) chosen(); else if (dropped.file) take(dropped.file);
}

function take(file) {
  if (!byId("upload").hidden) { send(file); return; }
  const hint = !state.mayWork ? "Only an analyst of the project can upload one." : state.project?.data_version ? "To replace the current file, choose “Replace the file” first." : "Wait until the previous file has been read.";
  showProblem(new Refused({ detail: "The file was not accepted.", hint }, 0));
}

const save = guarded(async () => {
  const attributes = [...state.changes].map(([attribute, stated]) => ({ name: attribute, ...stated }));
  const job = (await call("PATCH", at("/description"), { body: { attributes }, etag: state.etag })).value;
  state.changes.clear();
  await read(job, "Updating the description");
});

// A file, or a file of persons with its file of households, which comes first in the body.
const send = guarded(async (file, households) => {
  const query = new URLSearchParams({ name: file.name });
  if (households) {
    query.set("household_name", households.name);
    query.set("household_bytes", households.size);
    if (byId("household-on").value) query.set("on", byId("household-on").value);
  }
  for (const option of ["identifier", "delimiter", "encoding", "decimal"]) if (byId(option).value) query.set(option, byId(option).value);
  byId("upload").hidden = true;
  fill(byId("job"), el("p", { role: "status" }, "Uploading…"));
  try {
    await read(await upload(at(`/data?${query}`), households ? new Blob([households, file]) : file, (part) => fill(byId("job"), el("p", { role: "status" }, `Uploading: ${Math.round(100 * part)}%`))));
  } catch (error) {
    byId("upload").hidden = false;
    fill(byId("job"));
    throw error;
  }
});

async function read(job, title = "Reading the file") {
  const ended = await follow(job, byId("job"), title);
  if (ended.state === "succeeded") { say("The file is described below."); showProblem(null); }
  await show();
  byId("upload").hidden = !(state.mayWork && (ended.state !== "succeeded" && state.project.data_version === 0));
}

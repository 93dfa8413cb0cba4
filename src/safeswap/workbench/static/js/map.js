// Step 4: many candidates on a map of risk and distortion, and the choice of one.

import { acceptance } from "./accepted.js";
import { all, askLatest, get, guarded, isCancelled, post, showProblem } from "./api.js";
import { beforeAfter } from "./before-after.js";
import { cacheCompiled, drawable, painted, payloadOf } from "./chart.js";
import { compare, compareAny } from "./compare.js";
import { byId, count, el, figure, fill, name, several, when } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { start } from "./map-view.js";
import { followMasking, maskWith, specText } from "./masking.js";
import { ageOf, at, begin, isCurrent, noFile, python, resultAt } from "./page.js";
import { inUse } from "./scenario.js";
import { studyForm } from "./study-form.js";

const state = { project: null, description: null, study: null, payload: null, view: null, choice: null, objective: "", form: null, mayWork: false, extras: new Map() };
let refreshPython = () => {};

begin(async ({ project, may, answers: { studies, study, payload } }) => {
  Object.assign(state, { project, mayWork: may("work") });
  refreshPython = python(script);
  if (project.data_version === 0) { byId("none").replaceWith(noFile()); return; }
  // Everything gets its place before the map is drawn, so that nothing moves. Other requests come after the map: the form
  // is filled in and unfinished jobs are followed.
  list(studies);
  byId("new-study").hidden = !state.mayWork;
  if (study) await show(study, payload).then(painted);
  const [job, masking] = await Promise.all([underWay("study"), underWay("mask"), describe()]);
  byId("new-study").open = !studies.length && !job;
  if (state.mayWork) await offer();
  if (!study && !job) empty(state.mayWork ? "No study has been run yet. Define one above and run it." : "No study has been run yet. An analyst must run one.");
  if (job) watch(job);
  if (masking) guarded(followMasking)(masking, study ? byId("masked") : byId("job"));
}, loadStudies);

// Fetched once, by the first caller, and again if that failed.
const describe = () => (state.description ??= get(at("/description")).catch((error) => { state.description = null; throw error; }));

async function loadStudies() {
  const wanted = new URLSearchParams(location.search).get("study"), payload = payloadOf("studies", "map", wanted);
  const studies = await all(at("/studies"));
  return { studies, study: studies.find((each) => each.id === wanted) ?? studies[0], payload };
}

function empty(text) {
  byId("none").textContent = text;
  byId("none").hidden = false;
}

async function offer() {
  await studyForm(await describe(), {
    run: guarded(async (spec) => {
      byId("new-study").open = false;
      watch(await post(at("/studies"), { spec }, { once: true }));
    }),
    changed: (spec) => { state.form = spec; refreshPython(); },
  });
}

const watch = guarded(async (job) => {
  byId("none").hidden = true;
  const ended = await follow(job, byId("job"), "Study");
  if (ended.state === "succeeded") location.assign(`?study=${ended.result.id}`);
});

function list(studies) {
  byId("earlier").hidden = !studies.length;
  fill(byId("studies"), studies.map((study) => {
    const { spec } = study.spec, { candidates, choice } = study.summary;
    return el("tr", {}, el("td", {}, el("a", { href: `?study=${study.id}` }, when(study.created_at)), ageOf(study, state.project)), el("td", {}, name(study.created_by)),
      el("td", {}, name(spec.attributes.join(", ") || "all categorical"), ` – up to ${spec.up_to} together`), el("td", {}, spec.rates.join(", ")),
      el("td", { class: "n" }, count(candidates)), el("td", { class: "n" }, frontierText(study.summary)), el("td", {}, choice ? name(specText(choice.spec)) : "–"));
  }));
}

// The frontier of the map is that of the means; studies of earlier versions counted single draws only.
const frontierText = ({ frontier, frontier_specifications: best }) => (best === undefined ? `${several(frontier, "draw")}` : several(best, "specification"));

async function show(study, payload) {
  state.study = study;
  const { summary } = study;
  byId("study-title").textContent = `Study of ${when(study.created_at)}`;
  byId("study-line").textContent = `${several(summary.candidates, "candidate")} from ${several(summary.specifications, "specification")}, ${frontierText(summary)} on the frontier`
    + `${study.spec.spec.scenario ? `, scenario ${study.spec.spec.scenario.name}` : ""}`
    + `${summary.rejected ? `, ${count(summary.rejected)} could not be made` : ""}; ${several(summary.records, "record")}.`;
  byId("report").href = resultAt(`/studies/${study.id}/report.html`);
  byId("shown").hidden = false;
  byId("old").hidden = isCurrent(study, state.project);
  byId("mask").hidden = !mayMask();
  state.payload = await payload(study.id);
  const root = byId("chart-body").content.firstElementChild.cloneNode(true);
  byId("chart").append(root);
  cacheCompiled(root);
  root.addEventListener("safeswap-detail", (event) => detail(event.detail));
  state.view = start(root, state.payload, drawable);
  const scenario = study.spec.spec.scenario?.name ?? inUse()?.name ?? "";
  const accepted = acceptance(state.view, { names: measureNames(), titles: titlesOf(), scenario, mayWork: state.mayWork });
  for (const part of ["risk", "distortion"]) root.querySelector(`[data-part="${part}"]`).addEventListener("change", accepted.draw);
  accepted.shade();
  compareAny(study.id, state.payload, titlesOf());
  choosing(summary.choice, study.spec.spec.objective);
  await state.view.drawn;
}

// A candidate is masked on the file that it was tried on.
const mayMask = () => state.mayWork && isCurrent(state.study, state.project);

// --- Drill-down: details from the service are added below those of the map.

function detail({ point, panel }) {
  if (!point) return;
  const key = `${point.candidate}:${point.single}`;
  if (!state.extras.has(key)) state.extras.set(key, extra(point));
  panel.append(state.extras.get(key));
  fetchMissing(point);
}

function extra(point) {
  const titles = titlesOf(), table = el("details", {}, el("summary", {}, "Before and after"));
  table.addEventListener("toggle", guarded(async () => {
    const description = await describe();
    if (table.open && table.children.length === 1) {
      const { specs } = state.payload, swapped = specs.swap[specs.number.indexOf(point.number)].split(", ");
      table.append(beforeAfter(description, (query) => at(`/studies/${state.study.id}/candidates/${point.candidate}/table?${query}`), swapped));
    }
  }));
  const box = el("div");
  return el("div", { class: "extra", data: { candidate: point.candidate } },
    el("p", { class: "actions" },
      el("button", { type: "button", class: "small", on: { click: guarded(() => compare(state.study.id, point, titles)) } }, "Compare"),
      mayMask() ? el("button", { type: "button", class: "small", on: { click: guarded(async () => {
        const { spec, replicate } = await get(at(`/studies/${state.study.id}/candidates/${point.candidate}`));
        await maskWith(spec, replicate, box, state.study.id);
      }) } }, `Mask with this${state.payload.replicates > 1 ? `, replicate ${point.replicate}` : ""}`) : null), box, table);
}

// Fetch tables and texts that the payload had no room for, when a point is opened.
async function fetchMissing(point) {
  const { tables, specs } = state.payload;
  if ((!tables || tables.specs[point.number] || tables.fetched?.[point.number]) && specs.texts[point.number]) return;
  try {
    const found = await get(at(`/studies/${state.study.id}/candidates/${point.candidate}`));
    specs.texts[point.number] = [found.python, found.command, found.toml];
    if (tables && found.tables.length) {
      const measures = Object.keys(found.tables[0].values), at_ = new Map(found.tables.map((table) => [table.attributes.join("\u0000"), table.values]));
      const values = measures.map((measure) => tables.pairs.map(([a, b]) => at_.get([tables.attributes[a], tables.attributes[b]].join("\u0000"))?.[measure] ?? null));
      tables.fetched = { ...tables.fetched, [point.number]: { values, replicate: found.replicate } };
    }
    state.view.show();
  } catch (error) { showProblem(error); }
}

const measureNames = () => [...new Set([...state.study.spec.spec.risk, ...state.study.spec.spec.distortion])];

function titlesOf() {
  return new Map(measureNames().map((measure, i) => [measure, state.payload.measures[i].title]));
}

// --- The choice: three rules with a slider each; the chosen point moves with the slider.

function choosing(first, objective) {
  const [risk, distortion] = ["risk", "distortion"].map((axis) => range(axis));
  const values = { linear: (v) => 10 ** v, cap_risk: (v) => between(risk, v), cap_distortion: (v) => between(distortion, v) };
  const [rule, text] = objective.split(":");
  const stated = Number(text.replace("a=", ""));
  byId("linear").value = rule === "linear" ? Math.log10(Math.max(stated, 0.01)) : 0;
  if (rule !== "linear") byId(rule).value = place(rule === "cap_risk" ? risk : distortion, stated);
  document.querySelector(`[name="rule"][value="${rule}"]`).checked = true;

  let waiting = 0, asked = 0, answered = null;
  const setting = () => [document.querySelector('[name="rule"]:checked').value, ...Object.keys(values).map((each) => byId(each).value)];
  const restore = ([rule, ...sliders]) => {
    document.querySelector(`[name="rule"][value="${rule}"]`).checked = true;
    Object.keys(values).forEach((each, i) => { byId(each).value = sliders[i]; });
    now();
  };
  const now = () => {
    const chosen = document.querySelector('[name="rule"]:checked').value;
    for (const each of Object.keys(values)) byId(`${each}-now`).textContent = figure(values[each](Number(byId(each).value)));
    const value = values[chosen](Number(byId(chosen).value));
    return chosen === "linear" ? `linear:a=${Number(value.toPrecision(6))}` : `${chosen}:${roundUp(value)}`;
  };
  const choose = async () => {
    const own = ++asked, names = measureNames(), [up, across] = state.view.axes(), wanted = now();
    try {
      const choice = await askLatest(at(`/studies/${state.study.id}/choice`), { objective: wanted, risk: names[up], distortion: names[across] });
      if (own !== asked) return;
      await chosen(choice, wanted);
      answered = setting();
    } catch (error) {
      if (own !== asked) return;
      if (isCancelled(error) && answered) { restore(answered); showProblem(error); return; }
      state.choice = null;
      fill(byId("choice"), name(error.text ?? error.message));
      byId("mask").disabled = byId("look").disabled = true;
    }
  };
  for (const each of Object.keys(values)) {
    byId(each).addEventListener("input", () => {
      document.querySelector(`[name="rule"][value="${each}"]`).checked = true;
      now();
      clearTimeout(waiting);
      waiting = setTimeout(choose, 60);
    });
  }
  for (const radio of document.querySelectorAll('[name="rule"]')) radio.addEventListener("change", choose);
  for (const part of ["risk", "distortion"]) byId("chart").querySelector(`[data-part="${part}"]`).addEventListener("change", choose);
  byId("look").addEventListener("click", () => state.view.look(state.choice.specification));
  byId("mask").addEventListener("click", guarded(() => maskWith(state.choice.spec, state.choice.replicate, byId("masked"), state.study.id)));
  now();
  if (first) { state.choice = { ...first, specification: first.candidate % state.payload.all_specifications }; state.objective = objective; fill(byId("choice"), name(first.sentence)); answered = setting(); } else choose();
}

async function chosen(choice, objective) {
  state.choice = choice;
  state.objective = objective;
  byId("mask").disabled = byId("look").disabled = false;
  fill(byId("choice"), name(choice.sentence));
  await state.view.choose(choice.specification, choice.candidate, choice.sentence);
  refreshPython();
}

// The sorted values of an axis: a slider moves through them, so that every step may matter.
function range(axis) {
  const i = state.payload.measures.findIndex((measure) => measure.axis === axis);
  const sorted = state.payload.specs.mean[i].filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted : [0, 1];
}

const between = (sorted, v) => {
  const step = (v / 1000) * (sorted.length - 1), low = Math.floor(step), high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (step - low);
};

// To six digits, never below: a limit at the least of all values still admits the candidate that has it.
const roundUp = (value) => {
  const rounded = Number(value.toPrecision(6));
  return rounded > value || value <= 0 ? rounded : Number((rounded + 10 ** (Math.floor(Math.log10(value)) - 5)).toPrecision(6));
};

const place = (sorted, value) => Math.round((1000 * sorted.filter((each) => each <= value).length) / sorted.length);

function script() {
  const study = state.study ? state.study.spec.spec : state.form;
  if (!study) return {};
  const { objective, ...parameters } = study;
  const asked = { study: parameters, objective: state.objective || objective };
  if (state.study?.spec.recipe) asked.recipe = state.study.spec.recipe;
  return state.choice ? { ...asked, spec: state.choice.spec, replicate: state.choice.replicate } : asked;
}

// Step 3: the pipeline and the form of its next step. A swap has roles with live feasibility, a recode the levels of an
// attribute, any other step a form from its schema.

import { all, askLatest, get, guarded, Refused } from "./api.js";
import { byId, el, figure, fill, name, when } from "./dom.js";
import { schemaForm } from "./forms.js";
import { underWay } from "./jobs.js";
import { followMasking, links, specText, undoButton } from "./masking.js";
import { activeSteps, beginPipeline, mark, mask, placeOf, put, steps } from "./pipeline.js";
import { recodeForm, valuesMade } from "./recode-form.js";
import { inUse } from "./scenario.js";
import { at, begin, current, noFile, projectId, python } from "./page.js";

const ROLES = [["swap", "Swap"], ["fixed", "Fixed"], ["differ", "Differ"], ["other", "Other"]];
// What a scenario states of a method: not asked for again.
const OF_SCENARIO = ["combinations", "keys", "up_to", "exactly", "levels", "tolerance", "threshold", "missing", "weight", "n", "unit"];
const CATEGORICAL = new Set(["nominal", "ordinal", "geography"]);
// The most used first; a method that is not listed comes last.
const GROUPS = [["Recode", []], ["Blank", ["suppress"]], ["Swap", ["swap", "household_swap", "swap_permutation", "rank_swap"]], ["Change values", ["pram", "noise", "microaggregation", "top_bottom"]], ["Census and tables", ["edit_1990", "edit_targeted", "safe"]]];
const RECODES = { recode: "Recode levels", ranges: "Band numbers (ranges)", date_band: "Band dates", hierarchy: "One level up a hierarchy", truncate: "Truncate codes", top_bottom_code: "Top and bottom coding",
  round: "Round", blank: "Blank values", drop: "Drop attributes", global_recode: "ARGUS recode" };
const state = { project: null, attributes: [], roles: new Map(), methods: new Map(), recodes: new Map(), form: null, more: null, mayWork: false, isTouched: false, editing: null, scenario: "", columns: {} };

begin(async ({ project, may }) => {
  byId("next").href = `/projects/${projectId}/map`;
  byId("to-tables").href = `/projects/${projectId}/tables`;
  if (project.data_version === 0) {
    byId("method-form").hidden = byId("measured").hidden = true;
    fill(byId("job"), noFile());
    return;
  }
  Object.assign(state, { project, mayWork: may("work") });
  const [description, methods, measures, recipe] = await Promise.all([get(at("/description")), get("/methods"), get("/measures"), get(at("/recipe"))]);
  state.attributes = description.attributes;
  state.methods = new Map(methods.map((method) => [method.name, method]));
  prepareRecodes(state.methods.get("recode").spec_schema);
  fillMethods();
  state.titles = new Map(measures.map((measure) => [measure.name, measure.title]));
  fill(byId("measures"), measures.map((measure) => el("label", { title: `${measure.axis}. ${measure.sources.join("; ")}` },
    el("input", { type: "checkbox", value: measure.name, checked: measure.default_for.includes("categories"), defaultChecked: measure.default_for.includes("categories") }), " ", name(measure.title))));
  byId("method-form").hidden = byId("measured").hidden = !state.mayWork;
  roles();
  connect();
  const stated = new URLSearchParams(location.search);
  if (stated.has("step")) prefill(JSON.parse(stated.get("step")));
  else {
    byId("method").value = "swap";
    pick(stated.get("method"));
    choose();
  }
  beginPipeline({ mayWork: state.mayWork, recipe, measures: chosenMeasures, onEdit: edit, onTable: (table) => { if (table) { state.columns = table.columns; roles(); changed(); } } });
  const [job] = await Promise.all([underWay("mask"), earlier()]);
  if (job) { await followMasking(job, byId("job")); await earlier(); }
});

// A step of a recode is a step of the pipeline: the list offers each kind.
function prepareRecodes(schema) {
  const mapping = schema.properties.steps.items.discriminator.mapping;
  for (const [kind, place] of Object.entries(mapping)) state.recodes.set(kind, { ...schema.$defs[place.replace("#/$defs/", "")], $defs: schema.$defs });
}

function fillMethods() {
  const kinds = [...new Set([...Object.keys(RECODES).filter((kind) => state.recodes.has(kind)), ...state.recodes.keys()])], listed = new Set(GROUPS.flatMap(([, list]) => list).concat("recode"));
  const option = (method) => el("option", { value: method.name }, method.title);
  const rest = [...state.methods.values()].filter((method) => !listed.has(method.name));
  fill(byId("method"), GROUPS.map(([title, list], i) => el("optgroup", { label: title }, i === 0 ? [...kinds.map((kind) => el("option", { value: `recode:${kind}` }, RECODES[kind] ?? kind)), el("option", { value: "recode" }, "Several recodes in one step")]
    : list.filter((each) => state.methods.has(each)).map((each) => option(state.methods.get(each))))), rest.length ? el("optgroup", { label: "Others" }, rest.map(option)) : null);
}

function pick(value) {
  if ([...byId("method").options].some((option) => option.value === value)) byId("method").value = value;
}

// A step that another page proposes.
function prefill(step) {
  const { method, ...first } = step;
  pick(method === "recode" ? chosenKind(step) : method);
  setRoles(first);
  choose(first, true);
  byId("method").focus();
  byId("method-form").scrollIntoView({ block: "start" });
}

const chosenKind = (step) => (step.steps.length === 1 && state.recodes.has(step.steps[0].step) ? `recode:${step.steps[0].step}` : "recode");
const chosenMethod = () => byId("method").value.split(":");
const kindOf = (attribute) => state.columns[attribute] ?? state.attributes.find((each) => each.name === attribute)?.kind;
const levelsOf = (attribute) => (CATEGORICAL.has(kindOf(attribute)) ? [...new Set([...(state.attributes.find((each) => each.name === attribute)?.levels ?? []).map((level) => level.level), ...valuesMade(earlierRecodes(), attribute)])] : []);
// The place of the edited step, which may have moved; null where a step is added.
const editedPlace = () => { const place = placeOf(state.editing); return place < 0 ? null : place; };
const earlierRecodes = () => steps().slice(0, editedPlace() ?? undefined).filter((step) => step.method === "recode" && !step.off).flatMap((step) => step.steps);

function roles() {
  // As the pipeline leaves them: a banded number can be swapped, a dropped column cannot.
  const isKnown = Object.keys(state.columns).length > 0;
  const categorical = state.attributes.filter((attribute) => (isKnown ? CATEGORICAL.has(state.columns[attribute.name]) : attribute.levels !== null));
  for (const attribute of categorical) if (!state.roles.has(attribute.name)) state.roles.set(attribute.name, "other");
  for (const known of [...state.roles.keys()]) if (!categorical.some((attribute) => attribute.name === known)) state.roles.delete(known);
  const shown = byId("roles").dataset.shown, now = JSON.stringify([categorical.map((attribute) => attribute.name), [...state.roles]]);
  if (shown === now) return;  // what has the focus keeps it
  byId("roles").dataset.shown = now;
  fill(byId("roles"), categorical.map((attribute, i) => el("tr", {}, el("th", { scope: "row" }, name(attribute.name)),
    ROLES.map(([role, word]) => el("td", {}, el("input", { type: "radio", name: `role-${i}`, value: role, checked: role === state.roles.get(attribute.name), "aria-label": `${attribute.name}: ${word}`,
      on: { change: () => { state.roles.set(attribute.name, role); byId("roles").dataset.shown = JSON.stringify([categorical.map((each) => each.name), [...state.roles]]); changed(); } } }))))));
}

function setRoles(stated) {
  for (const attribute of state.roles.keys()) state.roles.set(attribute, ROLES.map(([role]) => role).find((role) => (stated[role] ?? []).includes(attribute)) ?? "other");
  roles();
  if (stated.rate !== undefined) byId("rate").value = byId("rate-slider").value = stated.rate;
}

function choose(first = {}, isStated = false) {
  const [chosen, kind] = chosenMethod(), method = state.methods.get(chosen), isSwap = chosen === "swap";
  state.isTouched = isStated && Object.keys(first).length > 0;
  fill(byId("about"), name(kind ? state.recodes.get(kind).description.split("\n\n")[0].replaceAll("``", "") : method.description), " ", method.sources.length ? el("span", {}, "Source: ", name(method.sources.join("; "))) : null);
  byId("swap-part").hidden = !isSwap;
  byId("other-part").hidden = isSwap;
  const context = { attributes: state.attributes.filter((attribute) => attribute.kind !== "identifier").map((attribute) => attribute.name), kindOf, levelsOf, changed };
  if (isSwap && (!state.more || isStated)) {
    state.more = schemaForm(method.spec_schema, { ...context, skip: ["swap", "fixed", "differ", "rate", "pairs"], first });
    fill(byId("swap-more"), state.more.element);
    byId("more").open = Boolean(first.targeting);
  }
  state.scenario = "";
  if (kind) askRecode(kind, context, first.steps?.[0] ?? {});
  else if (!isSwap) drawForm(method, context, first);
  changed();
}

function askRecode(kind, context, first) {
  const categorical = state.attributes.filter((attribute) => CATEGORICAL.has(kindOf(attribute.name)) && attribute.levels !== null);
  if (kind === "recode") {
    state.form = recodeForm(categorical, (attribute) => valuesMade(earlierRecodes(), attribute), first);
    for (const event of ["input", "change"]) state.form.element.addEventListener(event, changed);
  } else state.form = schemaForm(state.recodes.get(kind), { ...context, skip: ["step"], first });
  fill(byId("fields"), state.form.element, kind === "ranges" ? proposal() : null);
}

// Round numbers at which bands of the attribute could begin.
function proposal() {
  return el("p", {}, el("button", { type: "button", class: "small", id: "propose-bands", on: { click: guarded(async () => {
    const form = byId("fields"), chosen = form.querySelector("[name=attribute]").value;
    const { breaks } = await get(at(`/bands?attribute=${encodeURIComponent(chosen)}`));
    const box = form.querySelector("textarea");
    box.value = breaks.join(", ");
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }) } }, "Propose bands"));
}

// A method that takes a scenario asks for no keys while the scenario states them.
function drawForm(method, context, first) {
  const stated = first.scenario || (!first.keys && !first.combinations ? inUse()?.name : "");
  const draw = (scenario) => {
    state.scenario = scenario;
    // Only keys are blanked: of other attributes nothing is asked.
    const keys = method.name === "suppress" && inUse()?.name === scenario ? inUse().keys : null;
    state.form = schemaForm(method.spec_schema, { ...context, attributes: keys ?? context.attributes, first, skip: ["scenario", ...(scenario ? OF_SCENARIO : [])] });
    const box = el("input", { type: "checkbox", id: "of-scenario", checked: Boolean(scenario), on: { change: () => { draw(box.checked ? stated : ""); changed(); } } });
    fill(byId("fields"), method.takes_scenario && stated ? el("label", {}, box, " Keys of the scenario ", name(stated)) : null, state.form.element);
  };
  draw(method.takes_scenario ? stated ?? "" : "");
}

// Load a step into the form; saving replaces it.
function edit(called) {
  const step = steps()[placeOf(called)], { name: _, off: __, ...first } = step;
  state.editing = called;
  byId("method").value = step.method === "recode" ? chosenKind(step) : step.method;
  if (step.method === "swap") setRoles(step);
  choose(first, true);
  byId("step-title").textContent = `Edit ${step.name}`;
  byId("add-step").textContent = `Save ${step.name}`;
  byId("mask").hidden = true;
  byId("leave-step").hidden = false;
  mark(called);
  byId("method").focus();
  byId("method-form").scrollIntoView({ block: "start" });
}

function leave() {
  state.editing = null;
  byId("step-title").textContent = "Add a step";
  byId("add-step").textContent = "Add to the pipeline";
  byId("mask").hidden = false;
  byId("leave-step").hidden = true;
  mark(null);
}

// The step of the form; parameters of the edited one that the form does not show are kept.
function stepOf() {
  const stated = spec(), old = steps()[editedPlace()];
  const kept = old ? { name: old.name, ...(old.off ? { off: true } : {}), ...(old.method === "swap" && old.pairs ? { pairs: old.pairs } : {}) } : {};
  if (kept.pairs) delete stated.rate;
  return { ...kept, ...stated };
}

async function save() {
  lookForGaps();
  const step = stepOf(), called = state.editing;
  if (!(await put((list) => (list.some((each) => each.name === called) ? list.map((each) => (each.name === called ? step : each)) : [...list, step])))) return false;
  leave();
  // The next step starts from an empty form.
  if (step.method === "swap") setRoles({});
  choose({}, true);
  byId("pipeline").scrollIntoView({ block: "nearest" });
  return true;
}

function lookForGaps() {
  const isSwap = byId("method").value === "swap", missing = (isSwap ? state.more : state.form).missing();
  if (isSwap && !named("swap").length) missing.unshift("an attribute with the role Swap");
  if (missing.length) throw new Refused({ detail: lacks(missing) }, 0);
}

const named = (role) => [...state.roles].filter(([, each]) => each === role).map(([attribute]) => attribute);

function spec() {
  const [method, kind] = chosenMethod();
  if (kind) return { method, steps: [{ step: kind, ...state.form.read() }] };
  if (method !== "swap") return { method, ...state.form.read(), ...(state.scenario ? { scenario: state.scenario } : {}) };
  const roleLists = Object.fromEntries(["swap", "fixed", "differ"].map((role) => [role, named(role)]).filter(([, list]) => list.length));
  return { method, ...roleLists, rate: Number(byId("rate").value), ...state.more.read() };
}

const lacks = (missing) => `Missing or invalid: ${missing.join(", ").toLowerCase()}.`;

// Empty if the ticks are unchanged: the service then uses the measures that apply and names those that do not.
function chosenMeasures() {
  const boxes = [...byId("measures").querySelectorAll("input")];
  return boxes.every((box) => box.checked === box.defaultChecked) ? [] : boxes.filter((box) => box.checked).map((box) => box.value);
}

let waiting = 0, asked = 0;
function changed() {
  refreshPython?.();
  clearTimeout(waiting);
  waiting = setTimeout(plan, 150);
}

// Ask the service whenever something changes: it plans from counts, which is fast.
async function plan() {
  const wanted = spec(), own = ++asked, isSwap = wanted.method === "swap", line = byId(isSwap ? "plan" : "other-plan");
  const form = isSwap ? state.more : state.form, missing = form.missing();
  if (missing.length) { show(line, state.isTouched ? lacks(missing) : `To be stated: ${missing.join(", ").toLowerCase()}.`, !form.isFaulty(), []); return; }
  if (isSwap && !wanted.swap) { show(line, "Give at least one attribute the role Swap.", true, []); return; }
  const late = setTimeout(() => { if (own === asked) show(line, "…", true, []); }, 300);  // what holds for the form or the steps before would mislead
  try {
    const found = await askLatest(at("/plan"), { spec: wanted, ...(steps().length ? { after_steps: editedPlace() ?? steps().length } : {}) });
    if (own !== asked) return;
    show(line, found.sentence + ".", found.is_feasible, found.relaxations);
  } catch (error) {
    if (own !== asked) return;
    // A form that was just opened is not wrong.
    if (!state.isTouched) show(line, "", true, []);
    else show(line, error instanceof Refused ? inFormWords(error.text) : "Planning failed.", false, []);
  } finally { clearTimeout(late); }
}

// Fields by the titles that they have in the form.
function inFormWords(text) {
  const [method, kind] = chosenMethod(), fields = Object.keys((kind ? state.recodes.get(kind) : state.methods.get(method).spec_schema).properties).filter((each) => each.includes("_"));
  return fields.reduce((told, field) => told.replace(new RegExp(`\\b${field}\\b`, "g"), `“${field[0].toUpperCase()}${field.slice(1).replaceAll("_", " ")}”`), text);
}

function show(line, text, good, relaxations) {
  line.className = good ? "good" : "warning";
  line.textContent = text.slice(0, 1).toUpperCase() + text.slice(1);
  fill(byId("relaxations"), relaxations.map((each) => el("li", {}, name(each.change))));
}

let refreshPython = null;
function connect() {
  refreshPython = python(() => ({ spec: activeSteps().length ? { method: "pipeline", steps: activeSteps() } : spec(), measures: chosenMeasures() }));
  for (const kind of ["input", "change", "click"]) {
    // A field that is hidden while it has the focus reports a change too.
    byId("method-form").addEventListener(kind, ({ target }) => { if (target !== byId("method") && !target.closest("[hidden]") && (kind !== "click" || target.closest("button"))) state.isTouched = true; }, { capture: true });
  }
  byId("method").addEventListener("change", () => choose());
  byId("add-step").addEventListener("click", guarded(save));
  byId("leave-step").addEventListener("click", () => { leave(); choose({}, true); });
  document.addEventListener("safeswap-masked", guarded(earlier));
  byId("rate").addEventListener("input", () => { byId("rate-slider").value = byId("rate").value; changed(); });
  byId("rate-slider").addEventListener("input", () => { byId("rate").value = byId("rate-slider").value; changed(); });
  byId("measures").addEventListener("change", () => refreshPython());
  byId("mask").addEventListener("click", guarded(async () => { if (await save()) await mask(); }));
  byId("method-form").addEventListener("submit", (event) => event.preventDefault());
}

async function earlier() {
  const found = current(await all(at("/maskings"), 200), state.project);
  byId("earlier").hidden = !found.length;
  fill(byId("maskings"), found.map((each) => el("tr", {}, el("td", {}, name(specText(each.spec.spec))), el("td", {}, `${when(each.created_at)} `, name(each.created_by)),
    el("td", { class: "note" }, each.summary.scores.slice(0, 4).map((score) => el("span", { class: "block" }, `${state.titles.get(score.measure.split(":")[0]) ?? score.measure} ${figure(score.value)}`))),
    el("td", {}, links(each.id), " ", state.mayWork ? undoButton(each.id) : null))));
}

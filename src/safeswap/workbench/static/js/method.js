// Step 3: roles with live feasibility for a swap, or a form from the schema of any other method.

import { all, get, guarded, post, Refused } from "./api.js";
import { byId, el, figure, fill, name, when } from "./dom.js";
import { schemaForm } from "./forms.js";
import { underWay } from "./jobs.js";
import { followMasking, links, specText } from "./masking.js";
import { at, begin, projectId, python } from "./page.js";

const ROLES = [["swap", "Swap"], ["fixed", "Fixed"], ["differ", "Differ"], ["other", "Other"]];
const state = { attributes: [], roles: new Map(), methods: new Map(), form: null, more: null, mayWork: false };

begin(async ({ project, may }) => {
  byId("next").href = `/projects/${projectId}/map`;
  byId("to-tables").href = `/projects/${projectId}/tables`;
  if (project.data_version === 0) {
    byId("method-form").hidden = true;
    fill(byId("job"), el("p", { class: "empty" }, "There are no data yet. ", el("a", { href: `/projects/${projectId}/data` }, "Upload a file.")));
    return;
  }
  state.mayWork = may("work");
  const [description, methods, measures, recipe] = await Promise.all([get(at("/description")), get("/methods"), get("/measures"), get(at("/recipe"))]);
  state.attributes = description.attributes;
  state.methods = new Map(methods.map((method) => [method.name, method]));
  byId("recipe-note").textContent = recipe.steps.length ? `Applied after the recipe of ${recipe.steps.length} step${recipe.steps.length > 1 ? "s" : ""}.` : "";
  fill(byId("method"), methods.map((method) => el("option", { value: method.name }, method.title)));
  fill(byId("measures"), measures.map((measure) => el("label", { title: `${measure.axis}. ${measure.sources.join("; ")}` },
    el("input", { type: "checkbox", value: measure.name, checked: measure.default_for.includes("categories"), defaultChecked: measure.default_for.includes("categories") }), " ", name(measure.title))));
  const stated = new URLSearchParams(location.search).get("method");
  if (state.methods.has(stated)) byId("method").value = stated;
  roles();
  connect();
  choose();
  const [job] = await Promise.all([underWay("mask"), earlier()]);
  if (job) { await followMasking(job, byId("job")); await earlier(); }
});

function roles() {
  const categorical = state.attributes.filter((attribute) => attribute.levels !== null);
  for (const attribute of categorical) state.roles.set(attribute.name, "other");
  fill(byId("roles"), categorical.map((attribute, i) => el("tr", {}, el("th", { scope: "row" }, name(attribute.name)),
    ROLES.map(([role, word]) => el("td", {}, el("input", { type: "radio", name: `role-${i}`, value: role, checked: role === "other", "aria-label": `${attribute.name}: ${word}`,
      on: { change: () => { state.roles.set(attribute.name, role); changed(); } } }))))));
}

function choose() {
  const method = state.methods.get(byId("method").value), isSwap = method.name === "swap";
  fill(byId("about"), name(method.description), " ", method.sources.length ? el("span", {}, "Source: ", name(method.sources.join("; "))) : null);
  byId("swap-part").hidden = !isSwap;
  byId("other-part").hidden = isSwap;
  const names = state.attributes.filter((attribute) => attribute.kind !== "identifier").map((attribute) => attribute.name);
  if (isSwap && !state.more) {
    state.more = schemaForm(method.spec_schema, { attributes: names, skip: ["swap", "fixed", "differ", "rate", "pairs"], changed });
    fill(byId("swap-more"), state.more.element);
  }
  if (!isSwap) {
    state.form = schemaForm(method.spec_schema, { attributes: names, changed });
    fill(byId("fields"), state.form.element);
  }
  changed();
}

const named = (role) => [...state.roles].filter(([, each]) => each === role).map(([attribute]) => attribute);

function spec() {
  const method = byId("method").value;
  if (method !== "swap") return { method, ...state.form.read() };
  const roleLists = Object.fromEntries(["swap", "fixed", "differ"].map((role) => [role, named(role)]).filter(([, list]) => list.length));
  return { method, ...roleLists, rate: Number(byId("rate").value), ...state.more.read() };
}

const lacks = (missing) => `Missing or invalid: ${missing.join(", ").toLowerCase()}.`;

// Empty if the ticks are unchanged: the service then uses the measures that apply and names those that do not.
function measures() {
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
  if (missing.length) { show(line, lacks(missing), !form.isFaulty(), []); return; }
  if (isSwap && !wanted.swap) { show(line, "Give at least one attribute the role Swap.", true, []); return; }
  try {
    const found = await post(at("/plan"), { spec: wanted });
    if (own !== asked) return;
    show(line, found.sentence + ".", found.is_feasible, found.relaxations);
  } catch (error) {
    if (own !== asked) return;
    show(line, error instanceof Refused ? `${error.message}${error.hint ? ` – ${error.hint}` : ""}` : "Planning failed.", false, []);
  }
}

function show(line, text, good, relaxations) {
  line.className = good ? "good" : "warning";
  line.textContent = text;
  fill(byId("relaxations"), relaxations.map((each) => el("li", {}, name(each.change))));
}

let refreshPython = null;
function connect() {
  refreshPython = python(() => ({ spec: spec(), measures: measures() }));
  byId("method").addEventListener("change", choose);
  byId("rate").addEventListener("input", () => { byId("rate-slider").value = byId("rate").value; changed(); });
  byId("rate-slider").addEventListener("input", () => { byId("rate").value = byId("rate-slider").value; changed(); });
  byId("measures").addEventListener("change", () => refreshPython());
  byId("method-form").addEventListener("submit", (event) => { event.preventDefault(); mask(); });
  byId("mask").hidden = !state.mayWork;
}

const mask = guarded(async () => {
  const isSwap = byId("method").value === "swap", missing = (isSwap ? state.more : state.form).missing();
  if (isSwap && !named("swap").length) missing.unshift("an attribute with the role Swap");
  if (missing.length) throw new Refused({ detail: lacks(missing) }, 0);
  const body = { spec: spec() };
  if (measures().length) body.measures = measures();
  // A recode replaces the recipe: it starts from the original file.
  if (body.spec.method === "recode") body.use_recipe = false;
  await followMasking(await post(at("/maskings"), body, { once: true }), byId("job"));
  await earlier();
});

async function earlier() {
  const found = await all(at("/maskings"), 200);
  byId("earlier").hidden = !found.length;
  fill(byId("maskings"), found.map((each) => el("tr", {}, el("td", {}, when(each.created_at)), el("td", {}, name(each.created_by)),
    el("td", {}, name(specText(each.spec.spec))), el("td", { class: "mono" }, each.summary.scores.slice(0, 4).map((score) => `${score.measure} ${figure(score.value)}`).join(" · ")),
    el("td", {}, links(each.id)))));
}

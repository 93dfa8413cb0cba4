// The scenario strip of every page: who might attack and what they know, stated once and kept with the project.

import { call, get, guarded, Refused } from "./api.js";
import { byId, el, fill, name, say, several } from "./dom.js";

const at = (path) => `/projects/${document.documentElement.dataset.project}${path}`;
const INTRUDERS = ["prosecutor", "journalist", "nosy neighbour", "own"];
const MISSING = [["none", "matches nothing"], ["own", "is a separate value"], ["any", "could be any value, for its own record only"], ["vouching", "matches everything, and counts for others"]];
const KEYS = new Set(["nominal", "ordinal", "geography", "numeric", "date"]);

export const state = { settings: null, etag: null };

export const loadSettings = async () => {
  const found = await call("GET", at("/settings"));
  [state.settings, state.etag] = [found.value, found.etag];
  return found.value;
};

// The scenario in use, or null.
export const inUse = () => state.settings?.scenarios.find((each) => each.name === state.settings.scenario) ?? null;

// Change sections of the settings; the answer is what is kept.
export async function change(sections) {
  // Other changes of the project have versions too: take the present one.
  const present = await call("GET", at("/settings"));
  const found = await call("PATCH", at("/settings"), { body: sections, etag: present.etag });
  [state.settings, state.etag] = [found.value, found.etag];
  return found.value;
}

export function words(scenario) {
  const keys = scenario.keys ?? [...new Set((scenario.combinations ?? []).flatMap((each) => each.keys ?? []))];
  return [["Keys", keys.join(", ") || Object.keys(scenario.levels ?? {}).join(", ")], ["Together", scenario.up_to ? `up to ${scenario.up_to}` : "all"],
    ["Unsafe", `fewer than ${scenario.tolerance ?? scenario.threshold ?? 3}`], ["Unit", scenario.unit ?? "person"], ...(scenario.weight ? [["Weight", scenario.weight]] : [])];
}

export function drawStrip(mayWork) {
  const box = byId("scenario-strip"), scenario = inUse(), many = state.settings.scenarios;
  box.hidden = false;
  const edit = (label, act, id) => (mayWork ? el("button", { type: "button", class: "small", id, on: { click: guarded(act) } }, label) : null);
  if (!scenario) {
    fill(box, el("span", {}, el("strong", {}, "No scenario yet. "), "State who might attack and what they know: every figure then uses it.  "), edit("Set it up", () => open(null), "scenario-new"));
    return;
  }
  const picker = many.length > 1 && mayWork ? el("select", { id: "scenario-pick", "aria-label": "Scenario in use", on: { change: guarded(async () => {
    await change({ scenario: picker.value });
    location.reload();
  }) } }, many.map((each) => el("option", { value: each.name, selected: each === scenario }, each.name))) : el("strong", {}, name(scenario.name));
  fill(box, el("span", {}, "Scenario ", picker), el("dl", {}, words(scenario).map(([title, text]) => el("div", {}, el("dt", {}, title), el("dd", {}, name(text))))),
    el("span", {}, edit("Edit", () => open(scenario), "scenario-edit"), " ", edit("New", () => open(null), "scenario-new")));
}

// The form: what is edited replaces the scenario of the same place; other fields of it are kept.
async function open(scenario) {
  const description = await get(at("/description")), attributes = description.attributes;
  const dialog = byId("scenario-dialog"), first = scenario ?? { name: state.settings.scenarios.length ? "" : "prosecutor", keys: [], tolerance: description.tolerance };
  const field = (title, input, note) => el("label", {}, title, input, note ? el("span", { class: "note block" }, note) : null);
  const called = el("input", { value: first.name, list: "intruders", maxlength: 80, required: true });
  const upTo = el("input", { type: "number", min: 1, max: 62, placeholder: "all", value: first.up_to ?? "" });
  const tolerance = el("input", { type: "number", min: 1, value: first.tolerance ?? first.threshold ?? 3 });
  const missing = el("select", {}, MISSING.map(([value, text]) => el("option", { value, selected: value === (first.missing ?? "none") }, text)));
  const unit = el("select", {}, ["person", "household"].map((value) => el("option", { value, selected: value === (first.unit ?? "person") }, value)));
  const weights = attributes.filter((each) => each.kind === "weight" || each.name === first.weight).map((each) => each.name);
  const weight = el("select", {}, ["", ...weights].map((value) => el("option", { value, selected: value === (first.weight ?? "") }, value || "none")));
  const picker = keyPicker(attributes.filter((each) => KEYS.has(each.kind) || (first.keys ?? []).includes(each.name)), first.keys ?? []);
  const sensitive = attributes.filter((each) => ["nominal", "ordinal", "geography"].includes(each.kind) || (first.sensitive ?? []).includes(each.name))
    .map((each) => el("input", { type: "checkbox", value: each.name, checked: (first.sensitive ?? []).includes(each.name) }));
  const population = el("input", { type: "number", min: 1, placeholder: "not known", value: typeof first.population === "number" ? first.population : "" });
  const more = el("details", {}, el("summary", {}, "Sensitive attributes, and population size"), el("fieldset", {}, el("legend", {}, "Sensitive: what they want to learn"), el("div", { class: "ticks" }, sensitive.map((box) => el("label", {}, box, " ", name(box.value))))),
    el("div", { class: "fields" }, field("Population size", population, "For estimates without a weight.")));
  more.open = Boolean(first.sensitive?.length || first.population);
  const problem = el("p", { class: "warning", role: "alert", hidden: true });
  const read = (boxes) => { const chosen = boxes.filter((box) => box.checked).map((box) => box.value); return chosen.length ? chosen : null; };
  const save = guarded(async () => {
    const made = { ...first, name: called.value.trim(), keys: picker.read(), tolerance: Number(tolerance.value), missing: missing.value, unit: unit.value };
    for (const [key, value] of [["up_to", upTo.value === "" ? null : Math.min(Number(upTo.value), made.keys.length)], ["weight", weight.value || null], ["sensitive", read(sensitive)], ...(typeof first.population === "string" ? [] : [["population", population.value === "" ? null : Number(population.value)]])]) if (value === null) delete made[key]; else made[key] = value;
    if (made.threshold !== undefined) { delete made.tolerance; made.threshold = Number(tolerance.value); }
    if (made.combinations && !made.keys.length) delete made.keys;
    const others = state.settings.scenarios, scenarios = scenario ? others.map((each) => (each === scenario ? made : each)) : [...others, made];
    try {
      await change({ scenarios, scenario: made.name, ...(scenario && scenario.name !== made.name ? { renamed: { [scenario.name]: made.name } } : {}) });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      problem.textContent = error.text;
      problem.hidden = false;
      return;
    }
    location.reload();
  });
  const remove = guarded(async () => {
    try { await change({ scenarios: state.settings.scenarios.filter((each) => each !== scenario) }); } catch (error) {
      problem.textContent = error.text;
      problem.hidden = false;
      return;
    }
    location.reload();
  });
  fill(dialog, el("form", { method: "dialog", novalidate: true, on: { submit: (event) => { event.preventDefault(); save(); } } }, el("h2", { id: "scenario-title" }, scenario ? "Scenario" : "New scenario"), problem,
    el("div", { class: "fields" }, field("Who might attack", called), el("datalist", { id: "intruders" }, INTRUDERS.map((each) => el("option", { value: each })))), picker.element,
    el("div", { class: "fields" }, field("Combinations of up to", upTo), field("Unsafe: fewer than", tolerance), field("A missing value", missing), field("Unit", unit), field("Weight", weight)), more,
    el("p", { class: "actions" }, el("button", { type: "submit", class: "main", id: "scenario-save" }, "Save"), el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"),
      scenario ? el("button", { type: "button", on: { click: remove } }, "Remove the scenario") : null)));
  dialog.showModal();
}

// Make a first step of the pipeline that bands a number; returns where its bands begin.
export async function bandNumber(attribute) {
  const { breaks } = await get(at(`/bands?attribute=${encodeURIComponent(attribute)}`));
  if (breaks.length) await change({ steps: [{ method: "recode", steps: [{ step: "ranges", attribute, breaks }] }, ...state.settings.steps] });
  return breaks;
}

// Keys: search, all, the most identifying first, and bands for numbers.
export function keyPicker(attributes, chosen) {
  const ticked = new Set(chosen), list = el("ul", { class: "keys" }), told = el("p", { class: "note", role: "status" });
  const search = el("input", { type: "search", "aria-label": "Search the attributes", placeholder: "Search" });
  let order = attributes, ranks = new Map();
  const matches = (each) => `${each.name} ${each.label ?? ""}`.toLowerCase().includes(search.value.trim().toLowerCase());
  const row = (each) => {
    const rank = ranks.get(each.name), bands = each.kind === "numeric";
    const box = el("input", { type: "checkbox", value: each.name, checked: ticked.has(each.name), on: { change: () => { if (box.checked) ticked.add(each.name); else ticked.delete(each.name); show(); } } });
    return el("li", {}, el("label", {}, box, " ", name(each.name)), el("span", { class: "note" }, [each.label, bands ? `number, ${several(each.distinct, "value")}` : "", rank ? rank.sentence : ""].filter(Boolean).join(" · ")),
      bands ? el("button", { type: "button", class: "small", "aria-label": `Band ${each.name}`, on: { click: () => band(each) } }, "Band it") : null);
  };
  const draw = () => { fill(list, order.filter(matches).map(row)); show(); };
  const show = () => { told.textContent = `${ticked.size} of ${attributes.length} chosen${ticked.size ? `: ${attributes.filter((each) => ticked.has(each.name)).map((each) => each.name).join(", ")}` : ""}`; };
  const all = (wanted) => () => { for (const each of order.filter(matches)) { if (wanted) ticked.add(each.name); else ticked.delete(each.name); } draw(); };
  // The page behind the dialog cannot be seen: what goes wrong is told here.
  const within = (act) => async (...given) => {
    told.textContent = "…";
    try { await act(...given); } catch (error) {
      if (!(error instanceof Refused)) throw error;
      told.textContent = error.text;
    }
  };
  const rank = within(async () => {
    const found = await get(at("/suggested-keys?most=20"));
    const places = new Map(found.suggestions.map((each, i) => [each.name, i]));
    ranks = new Map(found.suggestions.map((each) => [each.name, each]));
    order = attributes.toSorted((a, b) => (places.get(a.name) ?? 99) - (places.get(b.name) ?? 99));
    draw();
    say("The most identifying attributes come first.");
  });
  const band = within(async (each) => {
    const breaks = await bandNumber(each.name);
    if (!breaks.length) { told.textContent = `${each.name}: no bands can be proposed.`; return; }
    ticked.add(each.name);
    draw();
    told.textContent = `A first step of the pipeline bands ${each.name} at ${breaks.join(", ")}.`;
  });
  search.addEventListener("input", draw);
  const button = (text, act) => el("button", { type: "button", class: "small", on: { click: act } }, text);
  const element = el("fieldset", {}, el("legend", {}, "Keys: attributes that an intruder may know"), el("p", { class: "adding" }, search, button("Select all", all(true)), button("None", all(false)), button("Most identifying first", rank)), list, told);
  draw();
  return { element, read: () => attributes.filter((each) => ticked.has(each.name)).map((each) => each.name) };
}

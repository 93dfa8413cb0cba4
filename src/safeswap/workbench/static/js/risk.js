// Step 2: unsafe combinations, and a recipe that removes them step by step.

import { call, get, guarded, post, Refused, showProblem } from "./api.js";
import { categorical } from "./before-after.js";
import { byId, count, el, fill, name, say, several, share, svg } from "./dom.js";
import { schemaForm } from "./forms.js";
import { followMasking, specText } from "./masking.js";
import { at, begin, projectId, python } from "./page.js";
import { recodeForm, valuesMade } from "./recode-form.js";

const state = { recipe: null, etag: null, steps: new Map(), form: null, editing: null, mayWork: false, description: null };
const WORDS = { recode: "Recode levels", global_recode: "ARGUS recode", ranges: "Ranges", hierarchy: "One level up a hierarchy", truncate: "Truncate codes",
  top_bottom_code: "Top and bottom coding", round: "Round", blank: "Blank values", drop: "Drop attributes", suppress: "Suppress unsafe values" };

begin(async ({ project, may, answers: [recode, recipe] }) => {
  byId("next").href = `/projects/${projectId}/method`;
  byId("to-tables").href = `/projects/${projectId}/tables`;
  if (project.data_version === 0) {
    fill(byId("main"), el("p", { class: "empty" }, "There are no data yet. ", el("a", { href: `/projects/${projectId}/data` }, "Upload a file.")));
    return;
  }
  state.mayWork = may("work");
  for (const id of ["undo", "redo", "as-masking"]) byId(id).hidden = !state.mayWork;
  byId("tolerance").value = project.tolerance;
  state.description = await get(at("/description"));
  const keys = categorical(state.description).map((attribute) => attribute.name);
  fill(byId("keys"), keys.map((key, i) => el("label", {}, el("input", { type: "checkbox", value: key, checked: i < 6 }), " ", name(key))));
  prepareSteps(recode.spec_schema);
  connect();
  keep(recipe.value, recipe.etag);
  await look();
}, () => Promise.all([get("/methods/recode"), call("GET", at("/recipe"))]));

const keys = () => [...byId("keys").querySelectorAll("input:checked")].map((box) => box.value);

function combinations() {
  const chosen = keys(), most = byId("up-to").value;
  // Empty means combinations of up to all keys.
  return { keys: chosen, ...(most === "" ? {} : { up_to: Math.max(1, Math.min(Number(most), chosen.length)) }), tolerance: Number(byId("tolerance").value), missing: byId("missing").value };
}

function keep(recipe, etag) {
  // Earlier advice no longer applies.
  fill(byId("advice"));
  byId("advice-note").textContent = "";
  state.recipe = recipe;
  state.etag = etag;
  byId("undo").disabled = !recipe.can_undo || !state.mayWork;
  byId("redo").disabled = !recipe.can_redo || !state.mayWork;
  byId("as-masking").disabled = !recipe.steps.length || !state.mayWork;
  byId("toml").textContent = recipe.toml || "# no steps yet";
}

let asked = 0;
const look = guarded(async () => {
  refreshPython?.();
  const own = ++asked;
  if (!keys().length) { byId("sentence").textContent = "Tick at least one key."; drawRecipe([]); return; }
  let found;
  try { found = await post(at("/risky"), { combinations: combinations() }); } catch (error) {
    if (own !== asked) return;
    byId("sentence").className = "warning";
    byId("sentence").textContent = error instanceof Refused ? `${error.message} ${error.hint}` : "The combinations could not be counted.";
    drawRecipe([]);  // a step that no longer fits the data can be edited or removed
    return;
  }
  if (own !== asked) return;
  byId("sentence").className = found.unsafe_combinations ? "warning" : "good";
  byId("sentence").textContent = found.sentence[0].toUpperCase() + found.sentence.slice(1) + ".";
  fill(byId("dimensions"), dimensions(found.by_dimension, found.stages[0]?.by_dimension ?? {}));
  fill(byId("by-key"), found.keys.map((each) => el("tr", {}, el("td", {}, name(each.key)), el("td", { class: "n" }, count(each.records)), el("td", { class: "n" }, count(each.alone)))));
  const worst = [...found.combinations].filter((each) => each.unsafe).sort((a, b) => b.unsafe - a.unsafe).slice(0, 50);
  fill(byId("worst"), worst.length ? worst.map((each) => el("tr", {}, el("td", {}, each.keys.flatMap((key, i) => [i ? " × " : "", name(key)])), el("td", { class: "n" }, count(each.occupied)),
    el("td", { class: "n" }, count(each.unsafe)), el("td", { class: "n" }, count(each.records)))) : el("tr", {}, el("td", { colspan: 4, class: "note" }, "No unsafe combinations.")));
  drawRecipe(found.stages);
});

// Unsafe combinations now and before the recipe, by number of keys.
function dimensions(now, before) {
  const sizes = Object.keys({ ...before, ...now }), most = Math.max(1, ...Object.values(before), ...Object.values(now));
  if (!sizes.length) return el("p", { class: "note" }, "No combinations of keys remain.");
  const width = 620, line = 22, room = width - 220;
  const summary = sizes.map((size) => `${size} key${size === "1" ? "" : "s"}: ${count(now[size] ?? 0)} unsafe, ${count(before[size] ?? 0)} before the recipe`).join("; ");
  const chart = svg("svg", { class: "bars", width, height: 2 * line * sizes.length, role: "img", "aria-label": summary });
  sizes.forEach((size, i) => {
    [["now", now[size] ?? 0], ["before the recipe", before[size] ?? 0]].forEach(([word, value], j) => {
      const y = line * (2 * i + j), label = svg("text", { x: 0, y: y + 15 }), shown = svg("text", { x: 210 + Math.max(2, (room * value) / most) - 60, y: y + 15 });
      label.textContent = j ? "" : `${size} key${size === "1" ? "" : "s"}`;
      shown.textContent = `${count(value)} ${word}`;
      shown.setAttribute("x", 80 + Math.max(2, (room * value) / most) + 6);
      chart.append(svg("g", {}, label, svg("rect", { x: 80, y: y + 4, width: Math.max(2, (room * value) / most), height: line - 8, class: j ? "small" : "" }), shown));
    });
  });
  return chart;
}

function drawRecipe(stages) {
  if (!state.recipe.steps.length) { fill(byId("steps-list"), el("li", { class: "note plain" }, "No steps yet: the original file.")); return; }
  fill(byId("steps-list"), state.recipe.steps.map((step, i) => {
    const stage = stages[i + 1] ?? {};
    return el("li", state.editing === i ? { "aria-current": "step" } : {}, name(step.method ? specText(step) : stage.step ?? state.recipe.sentences[i]), el("span", { class: "note block" },
      `${stage.unsafe_combinations === null || stage.unsafe_combinations === undefined ? "–" : count(stage.unsafe_combinations)} unsafe left · ${share(stage.information_loss)} of the information lost`),
    state.mayWork ? el("span", {}, el("button", { type: "button", class: "small", "aria-label": `Edit step ${i + 1}`, on: { click: () => edit(i) } }, "Edit"), " ",
      el("button", { type: "button", class: "small", "aria-label": `Remove step ${i + 1}`, on: { click: () => set(state.recipe.steps.toSpliced(i, 1)) } }, "Remove")) : null);
  }));
}

const set = guarded(async (steps) => {
  const found = await call("PUT", at("/recipe"), { body: { steps }, etag: state.etag });
  keep(found.value, found.etag);
  leave();
  await look();
  say(byId("sentence").textContent);
  return true;
});

const stepThrough = (way) => guarded(async () => {
  const found = await call("POST", at(`/recipe/${way}`), { body: {} });
  keep(found.value, found.etag);
  leave();
  await look();
});

// The steps and their forms come from the schema of recode; suppression is a method of its own.
function prepareSteps(schema) {
  const mapping = schema.properties.steps.items.discriminator.mapping;
  for (const [kind, place] of Object.entries(mapping)) {
    const found = schema.$defs[place.replace("#/$defs/", "")];
    state.steps.set(kind, { ...found, $defs: schema.$defs });
  }
  state.steps.set("suppress", null);
  // In the order of WORDS, the most used first; kinds without an entry come last.
  const kinds = [...new Set([...Object.keys(WORDS).filter((kind) => state.steps.has(kind)), ...state.steps.keys()])];
  fill(byId("step-kind"), kinds.map((kind) => el("option", { value: kind }, WORDS[kind] ?? kind)));
  byId("step-kind").addEventListener("change", () => drawStep());
  drawStep();
}

function drawStep(first = {}) {
  const kind = byId("step-kind").value, schema = state.steps.get(kind);
  const attributes = state.description.attributes.filter((each) => each.kind !== "identifier").map((each) => each.name);
  if (schema === null) {
    state.form = { read: () => ({}), missing: () => [] };
    fill(byId("step-fields"), el("p", { class: "note" }, "Blanks the fewest values such that no combination of the keys ticked above is unsafe; proved minimal where time allows."));
    return;
  }
  if (kind === "recode") state.form = recodeForm(categorical(state.description), (attribute) => valuesMade(state.recipe?.steps.slice(0, state.editing ?? undefined) ?? [], attribute), first);
  else state.form = schemaForm(schema, { attributes, skip: ["step"], first });
  fill(byId("step-fields"), state.form.element);
}

function step() {
  const kind = byId("step-kind").value;
  if (kind !== "suppress") return { step: kind, ...state.form.read() };
  // Other parameters of a suppression have no field here; keep them when it is edited.
  const edited = state.recipe.steps[state.editing], { up_to: _, ...kept } = edited?.method === "suppress" ? edited : { method: "suppress" };
  return { ...kept, ...combinations() };
}

function edit(i) {
  const { step: kind, method, ...rest } = state.recipe.steps[i];
  byId("step-kind").value = method ?? kind;
  state.editing = i;
  drawStep(rest);
  // A suppression uses the ticked keys: it is edited there.
  if (method === "suppress") tick(rest);
  byId("add-step").textContent = `Replace step ${i + 1}`;
  byId("leave-step").hidden = false;
  byId("step-kind").focus();
}

function leave() {
  state.editing = null;
  byId("add-step").textContent = "Add the step";
  byId("leave-step").hidden = true;
}

function tick({ keys: chosen = [], up_to: upTo, tolerance, missing }) {
  for (const box of byId("keys").querySelectorAll("input")) box.checked = chosen.includes(box.value);
  byId("up-to").value = upTo ?? "";
  for (const [id, value] of [["tolerance", tolerance], ["missing", missing]]) if (value !== undefined) byId(id).value = value;
  look();
}

let refreshPython = null;
function connect() {
  refreshPython = python(() => ({ recipe: state.recipe?.steps ?? [], risky: combinations() }));
  let waiting = 0;
  byId("keys-form").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, 150); });
  byId("keys-form").addEventListener("submit", (event) => event.preventDefault());
  byId("undo").addEventListener("click", stepThrough("undo"));
  byId("redo").addEventListener("click", stepThrough("redo"));
  byId("next-step").hidden = !state.mayWork;
  byId("leave-step").addEventListener("click", () => { leave(); drawStep(); });
  byId("step-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const missing = state.form.missing();
    if (missing.length) { showProblem(new Refused({ detail: `The step still needs: ${missing.join(", ").toLowerCase()}.` }, 0)); return; }
    const steps = state.editing === null ? [...state.recipe.steps, step()] : state.recipe.steps.with(state.editing, step());
    set(steps);
  });
  byId("ask-advice").addEventListener("click", guarded(async () => {
    byId("ask-advice").disabled = true;
    try { showAdvice(await post(at("/advice"), { combinations: combinations(), most: 8 })); } finally { byId("ask-advice").disabled = false; }
  }));
  byId("as-masking").addEventListener("click", guarded(async () => {
    const recodes = state.recipe.steps.filter((each) => each.step), last = state.recipe.steps.at(-1);
    const suppresses = last.method === "suppress";
    if (recodes.length + (suppresses ? 1 : 0) !== state.recipe.steps.length) {
      showProblem(new Refused({ detail: "A recipe with a masking in the middle cannot become one masking.", hint: "Put the suppression last." }, 0));
      return;
    }
    // Recodes alone are one masking; with a suppression at the end, that is the masking, of what the recodes leave.
    if (suppresses && recodes.length && !(await set(recodes))) return;
    const body = suppresses ? { spec: last } : { spec: { method: "recode", steps: recodes }, use_recipe: false };
    await followMasking(await post(at("/maskings"), { ...body, measures: ["k_anonymity", "information_loss"] }, { once: true }), byId("job"));
  }));
}

function showAdvice(found) {
  fill(byId("advice"), found.advice.map((each) => el("li", {}, name(each.sentence), el("span", { class: "note block" },
    `removes ${count(each.removed)} of ${count(found.unsafe)}, loses ${share(each.loss)} of the information`),
  state.mayWork ? el("button", { type: "button", class: "small", on: { click: () => set([...state.recipe.steps, each.step]) } }, "Apply") : null)));
  const hidden = found.hidden ? ` ${count(found.hidden)} more are hidden: they name levels that few records have.` : "";
  byId("advice-note").textContent = (found.advice.length ? `${several(found.tried, "recode was", "recodes were")} tried.` : "No single recode helps.") + hidden;
}

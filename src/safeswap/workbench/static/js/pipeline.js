// The pipeline: all steps in one list, moved, edited, switched off and undone, each with what it does.

import { ask, call, guarded, isCancelled, post } from "./api.js";
import { byId, count, el, fill, name, say, sentence, share } from "./dom.js";
import { followMasking, specText } from "./masking.js";
import { at, resultAt } from "./page.js";
import { change, state as kept } from "./scenario.js";

const state = { mayWork: false, table: null, busy: false, cancelled: false, measures: () => [], onEdit: null, onTable: () => {}, editing: null, asked: 0, changing: 0 };

export const steps = () => kept.settings.steps;
// A step by its name, which stays its own while steps move.
export const placeOf = (called) => steps().findIndex((step) => step.name === called);
export const activeSteps = () => steps().filter((step) => !step.off).map(({ off: _, ...step }) => step);

export function beginPipeline({ mayWork, recipe, measures, onEdit, onTable }) {
  Object.assign(state, { mayWork, measures, onEdit, onTable });
  byId("pipeline").hidden = false;
  byId("undo-step").addEventListener("click", () => through("undo"));
  byId("redo-step").addEventListener("click", () => through("redo"));
  for (const id of ["undo-step", "redo-step", "run-pipeline", "read-toml-label"]) byId(id).hidden = !mayWork;
  byId("count-steps").addEventListener("click", guarded(() => show()));
  byId("save-toml").href = resultAt("/project.toml");
  byId("run-pipeline").addEventListener("click", guarded(mask));
  byId("read-toml").addEventListener("change", guarded(async () => {
    const file = byId("read-toml").files[0];
    if (!file) return;
    const present = await call("GET", at("/settings"));
    try { await call("PUT", at("/project.toml"), { body: { text: await file.text() }, etag: present.etag }); } finally { byId("read-toml").value = ""; }
    location.reload();
  }));
  offerRecipe(recipe);
  guarded(() => show())();
}

// Mask by all steps that are switched on.
export async function mask() {
  byId("run-pipeline").disabled = true;
  const measures = state.measures();
  try { await followMasking(await post(at("/maskings"), measures.length ? { measures } : {}, { once: true }), byId("job")); } finally { draw(); }
  document.dispatchEvent(new Event("safeswap-masked"));
}

// A recipe that was made by a program, or in an earlier version, is no part of the pipeline until it is moved into it.
function offerRecipe(recipe) {
  if (!recipe.steps.length) return;
  const line = el("p", { class: "warning" }, `The project has a recipe of ${recipe.steps.length} step${recipe.steps.length > 1 ? "s" : ""} that the pipeline does not contain. `,
    state.mayWork ? el("button", { type: "button", class: "small", id: "take-recipe", on: { click: guarded(async () => {
      const moved = recipe.steps.map((step) => (step.step ? { method: "recode", steps: [step] } : step));
      await change({ steps: [...moved, ...steps()] });
      const present = await call("GET", at("/recipe"));
      await call("PUT", at("/recipe"), { body: { steps: [] }, etag: present.etag });
      line.remove();
      await show();
    }) } }, "Move it here") : null);
  byId("pipeline-note").after(line);
}

// Changes are made one after the other, in the order of the clicks; the panel is busy from the first click on.
let last = Promise.resolve();
async function inTurn(make, focus) {
  state.changing += 1;
  byId("pipeline").setAttribute("aria-busy", "true");
  const own = last.then(make);
  last = own.catch(() => {});
  try { await own; } finally { state.changing -= 1; draw(); }
  await show(focus);
  return true;
}

// Change the steps, then show what each does. `made` turns the present steps into others; `focus` is the control that keeps the focus.
export const put = guarded((made, focus = "") => inTurn(() => change({ steps: made(steps()) }), focus));

const through = guarded((way) => inTurn(async () => { kept.settings = (await call("POST", at(`/settings/${way}`), { body: {} })).value; }, `${way}-step`));

async function show(focus = "") {
  state.busy = true;
  state.cancelled = false;
  draw(focus);
  const own = ++state.asked;
  try {
    const table = await ask(at("/step-table"), {});
    if (own === state.asked) state.table = table;
  } catch (error) {
    if (!isCancelled(error)) throw error;
    if (own === state.asked) Object.assign(state, { table: null, cancelled: true });  // figures of other steps would mislead
  } finally {
    if (own === state.asked) { state.busy = false; draw(focus); state.onTable(state.table); }
  }
}

export function mark(called) {
  state.editing = called;
  draw();
}

function draw(focus = "") {
  const list = steps(), rows = new Map((state.table?.steps ?? []).map((row) => [row.name, row])), misfit = state.table?.problem;
  byId("pipeline").setAttribute("aria-busy", String(state.busy || state.changing > 0));
  byId("undo-step").disabled = !kept.settings.can_undo;
  byId("redo-step").disabled = !kept.settings.can_redo;
  byId("run-pipeline").disabled = !activeSteps().length || Boolean(misfit && !state.busy);
  byId("count-steps").hidden = !state.cancelled;
  byId("pipeline-note").textContent = state.cancelled ? "Cancelled: the steps are kept, but their effect was not counted." : list.length ? "Run in this order, from the original file. Drag a step to move it, or use the arrows." : "No steps yet. Add one below; nothing is masked until you say so.";
  const active = activeSteps();
  fill(byId("pipeline-steps"), list.map((step, i) => {
    const fails = misfit && !step.off && active[misfit.position - 1]?.name === step.name;
    return el("li", { class: step.off ? "off" : fails ? "misfit" : "", data: { step: step.name }, "aria-current": state.editing === step.name ? "step" : null, on: drops(i) },
      state.mayWork ? el("span", { class: "handle", draggable: "true", "aria-hidden": "true", title: "Drag to move", on: { dragstart: (event) => { event.dataTransfer.setData("text/plain", step.name); event.dataTransfer.effectAllowed = "move"; } } }, "⠿") : null,
      el("div", { class: "what" }, el("strong", {}, name(step.name)), " ", name(told(step, i)),
        fails ? el("p", { class: "fault", role: "alert" }, name(sentence(misfit.detail)), misfit.hint ? [" ", name(sentence(misfit.hint))] : null) : null),
      el("div", { class: "effect" }, step.off ? el("span", { class: "note" }, "Switched off") : effect(rows.get(step.name), fails)),
      state.mayWork ? controls(step, i) : null);
  }));
  const target = focus && (document.getElementById(focus) ?? document.querySelector(`[data-control="${CSS.escape(focus)}"]`));
  if (target) (target.disabled ? target.closest("li")?.querySelector("button:not(:disabled)") : target)?.focus();
}

function told(step, i) {
  const { name: _, off: __, ...spec } = step, made = kept.settings.sentences[i] ?? "";
  // The name says the method already, unless somebody gave another.
  const isSaid = step.name.startsWith(spec.method), text = spec.method === "recode" ? made.slice(made.indexOf(": ") + 2) : specText(spec);
  return isSaid ? text.replace(new RegExp(`^${spec.method.replaceAll("_", "[_ ]")}:? `), "") : text;
}

function controls(step, i) {
  const act = (text, title, changed, disabled, wanted) => el("button", { type: "button", class: "small", "aria-label": `${title} ${step.name}`, title, disabled, data: { control: `${text} ${step.name}` },
    on: { click: () => changed(`${text} ${step.name}`) }, ...wanted }, text);
  const isThis = (each) => each.name === step.name, moved = (by) => (list) => shifted(list, list.findIndex(isThis), by);
  return el("div", { class: "controls" },
    act("↑", "Move up", (focus) => { put(moved(-1), focus); say(`${step.name} is step ${i} now.`); }, i === 0),
    act("↓", "Move down", (focus) => { put(moved(1), focus); say(`${step.name} is step ${i + 2} now.`); }, i === steps().length - 1),
    act("Edit", "Edit", () => state.onEdit(step.name)),
    act(step.off ? "On" : "Off", step.off ? "Switch on" : "Switch off", () => put((list) => list.map((each) => (isThis(each) ? { ...each, off: !step.off } : each)), `${step.off ? "Off" : "On"} ${step.name}`)),
    act("Remove", "Remove", () => { put((list) => list.filter((each) => !isThis(each)), "undo-step"); say(`${step.name} was removed.`); }));
}

// The steps with one of them moved; a step that is gone by now moves nothing.
function shifted(list, from, by) {
  const to = Math.min(Math.max(from + by, 0), list.length - 1), made = from < 0 ? list : list.toSpliced(from, 1);
  return from < 0 ? made : made.toSpliced(to, 0, list[from]);
}

function drops(i) {
  return state.mayWork ? {
    dragover: (event) => { event.preventDefault(); event.currentTarget.classList.add("over"); },
    dragleave: (event) => event.currentTarget.classList.remove("over"),
    drop: (event) => {
      event.preventDefault();
      const moving = event.dataTransfer.getData("text/plain"), onto = steps()[i].name;
      if (moving === onto || placeOf(moving) < 0) return;
      put((list) => { const from = list.findIndex((each) => each.name === moving); return shifted(list, from, list.findIndex((each) => each.name === onto) - from); });
    },
  } : {};
}

const SPREAD = "Noise protects small counts: 19 times out of 20 the figure is this near to the truth. 0 is exact.";

// Risk under each scenario, values blanked by key, utility.
function effect(row, fails) {
  if (!row) return el("span", { class: "note" }, state.busy ? "…" : state.cancelled ? "Not counted" : fails ? "Does not fit" : "Waits for the step before");
  const blanked = Object.entries(row.blanked), total = blanked.reduce((sum, [, number]) => sum + number, 0);
  return [...row.figures.map((each) => {
    const spread = state.table.spreads[each.scenario] ?? 0, told = (value) => (value ? `${count(value)} ± ${count(spread)}` : count(value));
    const isRaised = each.after > each.before + Math.SQRT2 * spread;  // and not by noise
    return el("span", { class: isRaised ? "raised block" : "block", title: each.note || (each.before || each.after ? SPREAD : null), data: { scenario: each.scenario } },
      name(each.scenario), `: unsafe ${told(each.before)} → ${told(each.after)}`, isRaised ? " (raises the risk again)" : "", each.after === null ? el("span", { class: "note block" }, name(each.note)) : null);
  }),
  total ? el("span", { class: "block" }, `${count(total)} value${total === 1 ? "" : "s"} blanked: `, name(blanked.map(([key, number]) => `${key} ${count(number)}`).join(", "))) : null,
  el("span", { class: "note block" }, [row.information_loss === null ? "" : `${share(row.information_loss)} of the information lost so far`, row.hellinger === null ? "" : `Hellinger ${row.hellinger.toFixed(3)}`].filter(Boolean).join(" · "))];
}

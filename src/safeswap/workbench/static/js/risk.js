// Step 2: the risk from several sides, in the file and after the pipeline. Each side has a sentence, a small chart and an
// action that leads to the pipeline with a step filled in.

import { ask, askLatest, get, guarded, isCancelled, post, Refused, showProblem } from "./api.js";
import { pairs } from "./bars.js";
import { byId, count, el, fill, name, say, several, share } from "./dom.js";
import { follow } from "./jobs.js";
import { specText } from "./masking.js";
import { at, begin, current, noFile, projectId, python } from "./page.js";
import { bandNumber, change, inUse, state as kept } from "./scenario.js";

const KEYS = new Set(["nominal", "ordinal", "geography", "numeric"]), BANDS = new Set(["ranges", "recode", "global_recode"]);
const MEANING = {
  combinations: "Combinations of values of some keys that few records share.",
  groups: "Records that share the values of all keys with few others; and sensitive values that everyone in a group has in common.",
  individual: "The probability that an intruder who looks for a record finds the right person in the population.",
  households: "The probability that any member of a household is found, and with them all others.",
  suda: "Records that two or three keys already make unique stand out most (special uniques).",
  population: "How many records that are unique in the file are also unique in the population, by a log-linear model.",
  attacks: "What somebody who has the released file and knows the keys could find out, tried on a masking.",
};
const state = { project: null, mayWork: false, attributes: [], view: "combinations" };

begin(async ({ project, may }) => {
  byId("next").href = `/projects/${projectId}/method`;
  byId("to-tables").href = `/projects/${projectId}/tables`;
  if (project.data_version === 0) {
    fill(byId("main"), byId("main").querySelector("h1"), noFile());
    return;
  }
  Object.assign(state, { project, mayWork: may("work"), attributes: (await get(at("/description"))).attributes });
  byId("tolerance").value = project.tolerance;
  const scenario = inUse();
  if (scenario) {
    byId("up-to").value = scenario.up_to ?? "";
    byId("tolerance").value = scenario.tolerance ?? scenario.threshold ?? project.tolerance;
    byId("missing").value = scenario.missing ?? "none";
  }
  drawKeys(scenario?.keys);
  connect();
  const wanted = location.hash.slice(1);
  await select(wanted in MEANING ? wanted : "combinations");
});

// A number is a key once it is banded.
const isBanded = (attribute) => activeSteps().some((step) => step.method === "recode" && step.steps.some((each) => each.attribute === attribute && BANDS.has(each.step)));
const activeSteps = () => kept.settings.steps.filter((step) => !step.off).map(({ off: _, ...step }) => step);

// What a stranger may know, until somebody says better: no number, no part of the sample's design, the widest areas only.
function usualKeys(listed) {
  const widest = listed.filter((each) => each.kind === "geography" && each.distinct > 1).toSorted((a, b) => a.distinct - b.distinct)[0];
  return listed.filter((each) => each.kind !== "numeric" && each.distinct > 1 && !each.design && (each.kind !== "geography" || each === widest)).slice(0, 6);
}

function drawKeys(chosen) {
  const listed = state.attributes.filter((each) => KEYS.has(each.kind) || (chosen ?? []).includes(each.name));
  const first = new Set(chosen ?? usualKeys(listed).map((each) => each.name));
  fill(byId("keys"), listed.map((each) => (each.kind !== "numeric" || isBanded(each.name) || first.has(each.name)
    ? el("label", {}, el("input", { type: "checkbox", value: each.name, checked: first.has(each.name) }), " ", name(each.name), each.kind === "numeric" && !isBanded(each.name) ? bandButton(each.name) : null)
    : el("span", { class: "number" }, name(each.name), bandButton(each.name)))));
}

const bandButton = (attribute) => (state.mayWork ? [" ", el("button", { type: "button", class: "small", title: "Add a step that bands it, and make it a key", "aria-label": `Band ${attribute}`, on: { click: guarded(async () => {
  const ticked = keys(), breaks = await bandNumber(attribute);
  if (!breaks.length) { say(`${attribute}: no bands can be proposed.`); return; }
  drawKeys([...ticked, attribute]);
  say(`A first step of the pipeline bands ${attribute} at ${breaks.join(", ")}.`);
  await look();
}) } }, "Band it")] : null);

// The file may have been replaced since the scenario was set up.
function missingKeys() {
  const missing = (inUse()?.keys ?? []).filter((key) => !state.attributes.some((each) => each.name === key));
  return missing.length ? `The file has no ${missing.join(", ")}, which the scenario ${inUse().name} takes as ${missing.length === 1 ? "a key" : "keys"}.` : "";
}

const keys = () => [...byId("keys").querySelectorAll("input:checked")].map((box) => box.value);

function combinations() {
  const chosen = keys(), most = byId("up-to").value;
  // Empty means combinations of up to all keys.
  return { keys: chosen, ...(most === "" ? {} : { up_to: Math.max(1, Math.min(Number(most), chosen.length)) }), tolerance: Number(byId("tolerance").value), missing: byId("missing").value };
}

// The scenario in use as the form has it; without one, combinations of the ticked keys.
function question() {
  const scenario = inUse();
  if (!scenario) return { combinations: combinations(), pipeline: true };
  if (!scenario.keys || isKept()) return { scenario, pipeline: true };
  const { up_to: _, threshold: __, ...rest } = scenario;
  return { scenario: { ...rest, ...combinations(), name: `${scenario.name} (changed)` }, pipeline: true };
}

function isKept() {
  const scenario = inUse(), now = combinations();
  if (!scenario) return false;
  const stated = { up_to: scenario.up_to, tolerance: scenario.tolerance ?? scenario.threshold ?? now.tolerance, missing: scenario.missing ?? "none" };
  return now.keys.toSorted().join() === (scenario.keys ?? now.keys).toSorted().join() && now.up_to === stated.up_to && now.tolerance === stated.tolerance && now.missing === stated.missing;
}

const keepScenario = guarded(async () => {
  const scenario = inUse(), others = kept.settings.scenarios, { up_to: _, threshold: __, combinations: ___, ...rest } = scenario ?? { name: "own" };
  const made = { ...rest, ...combinations() };
  await change({ scenarios: scenario ? others.map((each) => (each === scenario ? made : each)) : [...others, made], scenario: made.name });
  location.reload();
});

// --- The sides.

let asked = 0, answered = null;
const look = guarded(async () => {
  refreshPython?.();
  const own = ++asked, { view } = state;
  byId("keep-scenario").hidden = !state.mayWork || isKept() || !keys().length;
  byId("keep-scenario").textContent = inUse() ? `Keep these keys in the scenario ${inUse().name}` : "Keep these keys as the scenario of the project";
  fill(byId("advice"));
  byId("advice-note").textContent = "";
  if (!keys().length) { show("warning", [missingKeys(), "Tick at least one key."].join(" ").trim()); return; }
  if (view === "attacks") { await showAttacks(own); return; }
  byId("panel").setAttribute("aria-busy", "true");
  try {
    const found = await askLatest(at(view === "combinations" ? "/risky" : `/risk-views/${view}`), question());
    if (own !== asked) return;
    const draw = () => (view === "combinations" ? showCombinations : showView)(found);
    draw();
    answered = { view, draw, keys: keys(), ...fields() };
  } catch (error) {
    if (isCancelled(error)) { if (own === asked) goBack(error); return; }
    const misfit = error.fields?.position ? [el("a", { class: "button main", href: `/projects/${projectId}/method` }, "Correct the pipeline")] : [];
    if (own === asked) show("warning", error instanceof Refused ? error.text : "The risk could not be counted.", null, misfit);
  } finally {
    if (own === asked) byId("panel").setAttribute("aria-busy", "false");
  }
});

const FIELDS = ["up-to", "tolerance", "missing"];
const fields = () => Object.fromEntries(FIELDS.map((id) => [id, byId(id).value]));

// After a cancelled question: the keys and the side whose figures are shown.
function goBack(error) {
  if (!answered) { show("warning", "Cancelled: nothing was counted.", null, [el("button", { type: "button", class: "main", on: { click: look } }, "Count again")]); return; }
  drawKeys(answered.keys);
  for (const id of FIELDS) byId(id).value = answered[id];
  byId("keep-scenario").hidden = !state.mayWork || isKept();
  mark(answered.view);
  answered.draw();
  showProblem(error);
}

function show(kind, text, chart = null, actions = []) {
  byId("sentence").className = kind;
  byId("sentence").textContent = text;
  fill(byId("chart"), chart);
  fill(byId("actions"), state.mayWork ? actions : null);
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
const after = (steps) => (steps ? `After ${several(steps, "step")} of the pipeline: ` : "");

function showCombinations(found) {
  const before = found.stages.length > 1 ? found.stages[0] : null, steps = before ? activeSteps().length : 0;
  const about = found.unsafe_combinations || before?.unsafe_combinations ? ` Numbers of combinations are within ${count(found.spread)} of the truth, 19 times out of 20: noise protects small counts.` : "";
  const text = `${steps ? found.sentence : capital(found.sentence)}.${before ? ` In the file itself ${several(before.unsafe_combinations, "combination is", "combinations are")} unsafe.` : ""}${about}`;
  const sizes = Object.keys({ ...before?.by_dimension, ...found.by_dimension });
  const rows = sizes.map((size) => ({ label: size === "1" ? "1 key" : `${size} keys`, now: found.by_dimension[size] ?? 0, before: before ? before.by_dimension[size] ?? 0 : null }));
  show(found.unsafe_combinations ? "warning" : "good", `${found.scenario ? `Scenario ${found.scenario}. ` : ""}${after(steps)}${text}${found.note ? ` ${found.note}` : ""}`,
    pairs("Unsafe combinations by number of keys", rows), found.unsafe_combinations ? [leadTo("Suppress these", suppression(), true)] : []);
  fill(byId("by-key"), found.keys.map((each) => el("tr", {}, el("td", {}, name(each.key)), el("td", { class: "n" }, count(each.records)), el("td", { class: "n" }, count(each.alone)))));
  const worst = [...found.combinations].filter((each) => each.unsafe).sort((a, b) => b.unsafe - a.unsafe).slice(0, 50);
  fill(byId("worst"), worst.length ? worst.map((each) => el("tr", {}, el("td", {}, each.keys.flatMap((key, i) => [i ? " × " : "", name(key)])), el("td", { class: "n" }, count(each.occupied)),
    el("td", { class: "n" }, count(each.unsafe)), el("td", { class: "n" }, count(each.records)))) : el("tr", {}, el("td", { colspan: 4, class: "note" }, "No unsafe combinations.")));
}

const TITLES = { groups: "Records by size of their group", individual: "Records by risk", households: "Households by risk", suda: "Special uniques by key", population: "Uniques in the file and in the population" };

function showView(found) {
  if (found.problem) {
    const opener = byId("scenario-edit") ?? byId("scenario-new");  // without a scenario there is none to edit
    show("warning", found.problem, null, found.view === "households" ? [] : [el("button", { type: "button", on: { click: () => opener?.click() } }, inUse() ? "Edit the scenario" : "Set up a scenario")]);
    return;
  }
  const compared = found.steps > 0;
  const rows = [...found.bars, ...found.sensitive.map((each) => ({ ...each, label: `${each.label} can be inferred` }))].map((each) => ({ ...each, before: compared ? each.before : null }));
  show(found.at_risk ? "warning" : "good", `${inUse() ? `Scenario ${found.scenario}. ` : ""}${after(found.steps)}${found.sentence}${compared ? ` In the file itself: ${count(found.at_risk_before)}.` : ""}`,
    pairs(TITLES[found.view], rows), found.at_risk ? [actionOf(found)] : []);
}

function actionOf(found) {
  if (found.view === "groups") return leadTo("Suppress these", suppression(), true);
  if (found.view === "households") return leadTo("Swap households", { method: "household_swap" }, true);
  if (found.view !== "suda") return leadTo("Target these with a swap", { method: "swap", targeting: targets() }, true);
  const attribute = found.bars[0].label, kind = state.attributes.find((each) => each.name === attribute)?.kind;
  const step = kind === "numeric" ? "ranges" : kind === "date" ? "date_band" : "recode";
  return leadTo(`Recode ${attribute}`, { method: "recode", steps: [{ step, attribute }] }, true);
}

// A link to the pipeline with a step filled in.
const leadTo = (text, step, isMain) => el("a", { class: isMain ? "button main" : "button", href: `/projects/${projectId}/method?step=${encodeURIComponent(JSON.stringify(step))}` }, text);
const suppression = () => ({ method: "suppress", ...(isKept() ? { scenario: inUse().name } : combinations()) });
const targets = () => (isKept() ? { scenario: inUse().name } : { keys: keys(), n: Math.max(2, Number(byId("tolerance").value)) });

// --- Attacks are tried on a masking.

async function showAttacks(own) {
  const [maskings, attacks] = await Promise.all([get(at("/maskings?limit=20")), get(at("/attacks?limit=20"))]);
  if (own !== asked) return;
  const [masking] = current(maskings.items, state.project);
  if (!masking) { show("good", "There is no masking yet: run the pipeline, then attack the result.", null, [el("a", { class: "button main", href: `/projects/${projectId}/method` }, "To the pipeline")]); return; }
  const run = el("button", { type: "button", class: "main", on: { click: guarded(async () => {
    const ended = await follow(await post(at("/attacks"), { masking: masking.id, full: false }, { once: true }), byId("job"), "Attacking");
    if (ended.state === "succeeded") await look();
  }) } }, "Attack the latest masking");
  const newest = attacks.items.find((each) => each.spec.masking === masking.id);
  if (!newest) { show("good", `Not tried yet on the latest masking (${specText(masking.spec.spec)}).`, null, [run]); return; }
  const found = await get(at(`/attacks/${newest.id}`));
  if (own !== asked) return;
  const outcomes = found.summary.attacks, worst = outcomes.toSorted((a, b) => (b.advantage ?? 0) - (a.advantage ?? 0))[0];
  const bad = (worst?.interval[0] ?? 0) > 0;
  if (bad) run.className = "";
  show(bad ? "warning" : "good", worst ? `On ${specText(masking.spec.spec)}: ${bad ? `${worst.attack.replaceAll("_", " ")} does best, ${share(worst.advantage)} above guessing.` : "no attack does clearly better than guessing."}` : "No attack applies.",
    pairs("Success of each attack in percent, compared with guessing", outcomes.map((each) => ({ label: each.attack.replaceAll("_", " "), now: Math.round(1000 * (each.success ?? 0)) / 10, before: Math.round(1000 * (each.baseline ?? 0)) / 10 })), ["succeeds", "by guessing"]),
    [...(bad ? [leadTo("Target these with a swap", { method: "swap", targeting: targets() }, true)] : []), run]);
}

// --- Tabs: arrow keys move, the address keeps the side.

const tabs = () => [...document.querySelectorAll("[role=tab]")];

function mark(view) {
  state.view = view;
  for (const tab of tabs()) {
    const isChosen = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    if (isChosen) { byId("panel").setAttribute("aria-labelledby", tab.id); tab.scrollIntoView({ block: "nearest", inline: "nearest" }); }
  }
  history.replaceState(null, "", view === "combinations" ? location.pathname : `#${view}`);
  byId("meaning").textContent = MEANING[view];
  byId("for-combinations").hidden = view !== "combinations";
  fill(byId("job"));
}

async function select(view) {
  mark(view);
  show("good", "…");
  await look();
}

let refreshPython = null;
function connect() {
  refreshPython = python(() => ({ risky: combinations(), ...(activeSteps().length ? { spec: { method: "pipeline", steps: activeSteps() } } : {}) }));
  let waiting = 0;
  byId("keys-form").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, 100); });
  byId("keys-form").addEventListener("submit", (event) => event.preventDefault());
  byId("keep-scenario").addEventListener("click", keepScenario);
  addEventListener("hashchange", () => { if (location.hash.slice(1) in MEANING) select(location.hash.slice(1)); });
  for (const tab of tabs()) {
    tab.addEventListener("click", () => select(tab.dataset.view));
    tab.addEventListener("keydown", (event) => {
      const list = tabs(), place = list.indexOf(tab), to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: list.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const target = list[(to + list.length) % list.length];
      target.focus();
      select(target.dataset.view);
    });
  }
  byId("ask-advice").addEventListener("click", guarded(async () => showAdvice(await ask(at("/advice"), { ...question(), most: 8 }))));
}

function showAdvice(found) {
  fill(byId("advice"), found.advice.map((each) => el("li", {}, name(capital(each.sentence)), el("span", { class: "note block" },
    `removes ${count(each.removed)} of ${count(found.unsafe)}, loses ${share(each.loss)} of the information`),
  state.mayWork ? el("button", { type: "button", class: "small", on: { click: guarded(() => take(each)) } }, "Add to the pipeline") : null)));
  const hidden = found.hidden ? ` ${count(found.hidden)} more are hidden: they name levels that few records have.` : "";
  byId("advice-note").textContent = (found.advice.length ? `${several(found.tried, "recode was", "recodes were")} tried.` : "No single recode helps.") + hidden;
}

// Recodes come before everything that blanks or perturbs.
async function take(advice) {
  const steps = kept.settings.steps, place = steps.findIndex((step) => step.method !== "recode"), end = place < 0 ? steps.length : place;
  await change({ steps: steps.toSpliced(end, 0, { method: "recode", steps: [advice.step] }) });
  await look();
  byId("advice-note").textContent = `Added to the pipeline: ${advice.sentence}.`;
  say(byId("advice-note").textContent);
}

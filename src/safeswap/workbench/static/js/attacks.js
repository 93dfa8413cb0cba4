// What an intruder would try on a masking, how often it succeeds, and what the policy allows.

import { all, get, guarded, post, upload } from "./api.js";
import { dumbbells } from "./dumbbell.js";
import { byId, count, el, fill, name, several, when } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { specText } from "./masking.js";
import { nothingYet, pickMasking } from "./maskings.js";
import { at, begin, python } from "./page.js";
import { drawPolicy, loadPolicy } from "./policy.js";

const state = { maskings: [] };
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`);

begin(async ({ project, may }) => {
  python(() => {
    const chosen = state.maskings.find((each) => each.id === byId("masking").value);
    return chosen ? { spec: chosen.spec.spec, replicate: chosen.spec.replicate ?? 0, ...(chosen.spec.recipe ? { recipe: chosen.spec.recipe } : {}) } : {};
  });
  if (!may("work")) {
    fill(byId("none"), el("p", { class: "empty" }, "What attacks found out is shown to those who work on the file: analysts and officers of the project."));
    return;
  }
  state.maskings = project.data_version ? await pickMasking(project) : [];
  fill(byId("none"), nothingYet(project, state.maskings, "attack it"));
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); attack(); });
  byId("ask").hidden = !state.maskings.length;
  const [policy] = await Promise.all([loadPolicy(), project.data_version ? drawControl() : null]);
  drawPolicy(byId("policy"), policy, may("govern"));
  const earlier = await all(at("/attacks"), 200);
  list(earlier);
  if (earlier.length) await show(await get(at(`/attacks/${earlier[0].id}`)));
  const job = await underWay("attack");
  if (job) await finish(job);
});

// Records held out before masking: the honest baseline of what can be guessed about anybody.
async function drawControl() {
  const found = await get(at("/control-file")).catch((error) => { if (error.status === 404) return null; throw error; });
  const file = el("input", { type: "file", class: "unseen", on: { change: guarded(async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const sending = (part) => fill(byId("control-job"), el("p", { role: "status" }, `Uploading: ${Math.round(100 * part)}%`));
    await follow(await upload(at(`/control-file?name=${encodeURIComponent(chosen.name)}`), chosen, sending), byId("control-job"), "Reading the control file");
    await drawControl();
  }) } });
  fill(byId("control"), found ? ["Control file: ", name(found.name), `, ${several(found.records, "record")}. `] : "No control file: each person is guessed from the records of all others. ", el("label", { class: "button small" }, found ? "Replace it" : "Add one", file));
}

const attack = guarded(async () => {
  byId("attack").disabled = true;
  try {
    await finish(await post(at("/attacks"), { masking: byId("masking").value, full: byId("full").checked }, { once: true }));
  } finally { byId("attack").disabled = false; }
});

async function finish(job) {
  const ended = await follow(job, byId("job"), "Attacking the masking");
  if (ended.state !== "succeeded") return;
  await show(await get(at(`/attacks/${ended.result.id}`)));
  list(await all(at("/attacks"), 200));
}

function list(earlier) {
  byId("earlier").hidden = earlier.length < 2;
  const text = (each) => { const found = state.maskings.find((one) => one.id === each.spec.masking); return found ? specText(found.spec.spec) : "an earlier masking"; };
  fill(byId("runs"), earlier.map((each) => el("li", {}, el("button", { type: "button", class: "small", on: { click: guarded(async () => show(await get(at(`/attacks/${each.id}`)))) } }, when(each.created_at)), " ", name(text(each)))));
}

function show(found) {
  const { attacks, skipped = [] } = found.summary, allowed = (each) => each.allowed ?? null, above = (each) => each.is_above === true;
  const tried = attacks.filter((each) => each.success !== undefined).toSorted((a, b) => Number(above(b)) - Number(above(a)) || b.advantage - a.advantage);
  const worst = tried.filter(above), best = tried.find((each) => each.interval[0] > 0);
  byId("found").hidden = false;
  byId("sentence").className = worst.length || best ? "warning" : "good";
  const scenario = found.spec.scenario?.name;
  fill(byId("sentence"), worst.length ? `${several(worst.length, "attack finds", "attacks find")} out more than the policy allows: ${worst.map((each) => words(each.attack)).join(", ")}.` : `${several(tried.length, "attack")} tried; none above a limit of the policy.${best ? ` Best: ${words(best.attack)}, ${percent(best.advantage)} above guessing.` : ""}`,
    scenario ? [" Scenario ", name(scenario), "."] : " No scenario: attacks that need keys were skipped.");
  fill(byId("drawn"), dumbbells(tried.map((each) => ({ title: words(each.attack), before: each.baseline, after: each.success, flagged: above(each),
    note: `${each.advantage < 0 ? "no better than guessing" : `advantage ${percent(each.advantage)} (${percent(Math.max(0, each.interval[0]))} to ${percent(each.interval[1])})`}${allowed(each) === null ? "" : `, allowed ${percent(allowed(each))}`}; ${count(each.trials)} guesses${each.note ? `; ${each.note}` : ""}` })),
  { format: percent, words: ["Baseline", "Success"], title: "Attack", label: "Attacks: how often a guess without the release is right, and with it" }),
  el("dl", { class: "notes" }, tried.filter((each) => each.sentence).flatMap((each) => [el("dt", {}, words(each.attack)), el("dd", {}, name(each.sentence))])));
  const left = [...skipped, ...attacks.filter((each) => each.success === undefined)];
  fill(byId("skipped"), left.length ? el("details", {}, el("summary", {}, `${several(left.length, "attack was", "attacks were")} not tried`), el("dl", { class: "notes" }, left.flatMap((each) => [el("dt", {}, words(each.attack)), el("dd", {}, name(each.reason))]))) : null);
}

const words = (attack) => attack.replaceAll("_", " ");

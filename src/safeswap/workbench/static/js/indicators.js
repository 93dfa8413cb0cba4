// What users of the file compute, before and after: weighted estimates, their errors, and which moved too far.

import { all, get, guarded, post, Refused } from "./api.js";
import { labelOf } from "./before-after.js";
import { dumbbells } from "./dumbbell.js";
import { byId, count, el, figure, fill, name, sentence, several, share, when } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { indicatorForm, inFormWords, suggestedLines } from "./indicator-form.js";
import { nothingYet, pickMasking } from "./maskings.js";
import { at, begin, python } from "./page.js";

const MOST_DRAWN = 60, INDICATORS = "indicators:";
const state = { mayWork: false, description: null, shown: null, form: null };

begin(async ({ project, may }) => {
  state.mayWork = may("work");
  python(script);
  const made = project.data_version ? await pickMasking(project) : [];
  fill(byId("none"), nothingYet(project, made, "compare the figures that its users compute"));
  if (project.data_version === 0) return;
  state.description = await get(at("/description"));
  drawDesign(state.description.attributes);
  byId("ask").hidden = !(state.mayWork && made.length);
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  state.form = indicatorForm(byId("lines"), state.description, write);
  byId("example").addEventListener("click", suggest);
  byId("text").addEventListener("input", asText);
  byId("file").addEventListener("change", guarded(async () => {
    const [file] = byId("file").files;
    if (file) { byId("text").value = await file.text(); asText(); }
    byId("file").value = "";
  }));
  const earlier = (await all(at("/assessments"), 200)).filter((each) => each.spec.indicators);
  list(earlier);
  if (earlier.length) await show(await get(at(`/assessments/${earlier[0].id}`)));
  else suggest();
  const job = await underWay("assess");
  if (job) await finish(job);
});

function script() {
  const chosen = state.shown?.spec;
  return chosen ? { spec: chosen.spec, replicate: chosen.replicate ?? 0, measures: chosen.measures, ...(chosen.recipe ? { recipe: chosen.recipe } : {}) } : {};
}

function drawDesign(attributes) {
  const weights = attributes.filter((each) => each.kind === "weight").map((each) => each.name), design = attributes.filter((each) => each.design);
  fill(byId("design"), weights.length ? ["Estimates are weighted by ", name(weights.join(", ")), ". "] : "No column is a weight: every record counts as one. If there is one, give it the kind “weight” on the Data page.  ",
    design.length ? ["Sample design:  ", name(design.map((each) => `${each.name} (${each.design})`).join(", ")), "."] : "No sample design is stated: standard errors assume independent records.");
}

// The form writes the text that is sent. A text from elsewhere is shown in the form once the service has read it.
function write() {
  byId("text").value = state.form.toml();
  byId("compare").disabled = !state.form.size();
}

function suggest() {
  fillForm(suggestedLines(state.description));
}

function fillForm(lines, settings) {
  state.form.set(lines, settings);
  byId("lines").hidden = false;
  byId("as-text").hidden = true;
  write();
}

function asText() {
  byId("lines").hidden = true;
  byId("as-text").hidden = false;
  byId("toml").open = true;
  byId("compare").disabled = !byId("text").value.trim();
}

const compare = guarded(async () => {
  const isForm = !byId("lines").hidden, gaps = isForm ? state.form.missing() : [];
  if (gaps.length) throw new Refused({ detail: `${gaps.join("; ")}.` }, 0);
  byId("compare").disabled = true;
  try {
    await finish(await post(at("/assessments"), { masking: byId("masking").value, indicators: byId("text").value }, { once: true }));
  } catch (error) {
    // Who fills in the form needs no words on TOML.
    throw isForm && error.code === "bad-indicators" ? new Refused({ detail: `${sentence(inFormWords(error.fields.problem))}.` }, error.status) : error;
  } finally { byId("compare").disabled = false; }
});

async function finish(job) {
  const ended = await follow(job, byId("job"), "Computing the indicators");
  if (ended.state !== "succeeded") return;
  const found = await get(at(`/assessments/${ended.result.id}`));
  if (found.spec.indicators) await show(found);
  list((await all(at("/assessments"), 200)).filter((each) => each.spec.indicators));
}

function list(earlier) {
  byId("earlier").hidden = earlier.length < 2;
  fill(byId("assessments"), earlier.map((each) => el("li", {}, el("button", { type: "button", class: "small", on: { click: guarded(async () => show(await get(at(`/assessments/${each.id}`)))) } }, when(each.created_at)), " by ", name(each.created_by))));
}

async function show(found) {
  state.shown = found;
  const score = found.summary.scores.find((each) => each.measure.startsWith("indicators")), rows = (score?.detail ?? []).filter((each) => !each.problem);
  const { lines = [], ...settings } = JSON.parse(found.spec.measures.find((each) => each.startsWith(INDICATORS))?.slice(INDICATORS.length) ?? "{}");
  if (lines.length) fillForm(lines, settings);
  byId("found").hidden = false;
  const flagged = rows.filter((each) => each.flagged).length, failed = (score?.detail ?? []).filter((each) => each.problem);
  byId("sentence").className = flagged ? "warning" : "good";
  fill(byId("sentence"), name(score?.sentence ?? "No indicator could be computed."));
  fill(byId("failed"), failed.map((each) => el("p", { class: "warning" }, name(each.indicator), ": ", name(each.problem))));
  // An indicator without a name of its own ends with the attributes that form its domains.
  const by = (each) => each.indicator.slice(each.indicator.lastIndexOf(" by ") + 4).split(", ");
  // Levels by their labels, in the domains and in what a share is of.
  const labelled = new Map(lines.filter((each) => each.level && !each.name).map((each) => [`${each.of} = ${each.level}`, `${each.of} = ${labelOf(state.description, each.of, each.level)}`]));
  const named = (text) => [...labelled].reduce((told, [code, label]) => (told.endsWith(code) || told.includes(`${code} by `) ? told.replace(code, label) : told), text);
  const title = (each) => [named(each.indicator), ...(each.domain ?? []).length ? [each.domain.map((level, i) => labelOf(state.description, by(each)[i], level)).join(", ")] : []].join(": ");
  const worst = rows.toSorted((a, b) => Number(b.flagged) - Number(a.flagged) || Math.abs(b.value ?? 0) - Math.abs(a.value ?? 0));
  fill(byId("drawn"), dumbbells(worst.slice(0, MOST_DRAWN).map((each) => ({ title: title(each), before: each.before, after: each.after, flagged: each.flagged,
    note: `${each.flagged ? "beyond tolerance: " : ""}${each.value === null ? "" : `${each.value > 0 ? "+" : ""}${share(each.value)}`}${each.in_errors === null ? "" : `, ${figure(each.in_errors)} standard errors`}` })),
  { format: figure, title: "Estimate", own: true, label: "Estimates before and after, largest change first" }),
  rows.length > MOST_DRAWN ? el("p", { class: "note" }, `The ${MOST_DRAWN} of ${count(rows.length)} estimates that moved most.`) : null);
}

// The result of one masking: totals, scores with their meaning, and tables before and after.

import { get } from "./api.js";
import { beforeAfter } from "./before-after.js";
import { byId, count, el, figure, fill, name, several, when } from "./dom.js";
import { specText } from "./masking.js";
import { at, begin, projectId, python, resultAt, resultId } from "./page.js";
import { reportLinks } from "./reports.js";

const MOST_ROWS = 60;
let masking = null;

begin(async ({ may, answers: [found, description, measures, methods] }) => {
  masking = found;
  python(() => {
    const { spec, recipe, replicate = 0, measures = [] } = masking.spec;
    return { spec, replicate, measures, ...(recipe ? { recipe } : {}) };
  });
  const { spec, summary } = masking;
  const method = methods.find((each) => each.name === summary.method);
  fill(byId("what"), name(spec.spec.method === "pipeline" ? specText(spec.spec) : method?.title ?? summary.method), `. Made by ${masking.created_by} on ${when(masking.created_at)}${spec.replicate ? `, replicate ${spec.replicate}` : ""}.`);
  fill(byId("warnings"), summary.for_release ? null : el("p", { class: "warning" }, "Not for release: the key used may be known to others."),
    masking.data_version === description.version || description.version === undefined ? null : el("p", { class: "warning" }, "The data have changed since then."));
  fill(byId("plan"), name(summary.done || summary.plan), ".");
  fill(byId("totals"), totals(summary));
  byId("spec").textContent = JSON.stringify(spec.spec, null, 2);
  // What is true of several figures is said once, below them.
  const parts = summary.scores.map((score) => score.sentence.split(/(?<=\.) (?=[A-Z])/)), said = parts.flatMap(([_, ...rest]) => rest), shared = [...new Set(said.filter((each, i) => said.indexOf(each) !== i))];
  fill(byId("scores"), summary.scores.map((score, i) => drawScore(score, parts[i].filter((each) => !shared.includes(each)).join(" "), measures)), shared.map((text) => el("p", { class: "note" }, name(text))), leftOut(summary.left_out ?? []));
  fill(byId("before"), beforeAfter(description, (query) => at(`/maskings/${resultId}/table?${query}`), named(spec.spec)));
  byId("report").href = resultAt(`/maskings/${resultId}/report.html`);
  fill(byId("reports"), reportLinks(`/maskings/${resultId}`, may));
  byId("records").href = `/projects/${projectId}/records?masking=${resultId}`;
  byId("release").href = `/projects/${projectId}/release?masking=${resultId}`;
  document.title = `${specText(spec.spec)} · ${document.title}`;
}, () => Promise.all([get(at(`/maskings/${resultId}`)), get(at("/description")), get("/measures"), get("/methods")]));

function totals(summary) {
  const lines = [["Records", summary.records, "In the file"], [`Requested, ${summary.unit}`, summary.asked, "By the specification"], [`Feasible, ${summary.unit}`, summary.feasible, summary.at_most == null ? "The maximum that the data allow" : `At least this many; at most ${count(summary.at_most)} (maximum not proved)`],
    [summary.unit === "records" ? "Records changed" : `Made, ${summary.unit}`, summary.made, "Actually made"], ["Compensating", summary.compensating, "Records whose change is offset by another record in every cell"]];
  // Several steps have no common plan.
  const planned = summary.asked || !summary.made ? lines : lines.toSpliced(1, 2);
  return planned.map(([title, value, meaning]) => el("tr", { title: meaning }, el("th", { scope: "row" }, title), el("td", { class: "n" }, count(value))));
}

// "n-rule" begins with a symbol.
const titled = (text) => (text[1] === "-" ? text : text[0].toUpperCase() + text.slice(1));

function drawScore(score, sentence, measures) {
  const measure = measures.find((each) => each.name === score.measure.split(":")[0]);
  return el("article", { class: "score" }, el("h3", {}, name(titled(measure?.title ?? score.measure)), " ", el("span", { class: "note" }, score.axis),
    el("strong", { class: "value", data: { measure: score.measure, value: score.value } }, figure(score.value))), el("p", {}, name(sentence)),
    score.scenario ? el("p", { class: "note", data: { scenario: score.scenario } }, "Scenario ", name(score.scenario), score.before === null || score.before === undefined ? "" : `: ${figure(score.before)} before, ${figure(score.value)} after`) : null, detail(score));
}

// The usual measures that do not apply, one line per reason.
function leftOut(left) {
  const reasons = [...new Set(left.map((each) => each.reason))];
  return reasons.map((reason) => el("p", { class: "note" }, "Left out: ", name(left.filter((each) => each.reason === reason).map((each) => each.measure).join(", ")), " (", name(reason), ")."));
}

// The detailed table of a score.
function detail(score) {
  const rows = Array.isArray(score.detail) ? score.detail : [];
  if (!rows.length) return null;
  const columns = Object.keys(rows[0]), sorted = "value" in rows[0] ? rows.toSorted((a, b) => Math.abs(b.value ?? 0) - Math.abs(a.value ?? 0)) : rows;
  return el("details", {}, el("summary", {}, "Details"), el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: typeof rows[0][column] === "number" ? "n" : "" }, name(column.replaceAll("_", " ")))))),
    el("tbody", {}, sorted.slice(0, MOST_ROWS).map((row) => el("tr", {}, columns.map((column) => cell(row[column]))))))),
  rows.length > MOST_ROWS ? el("p", { class: "note" }, `${several(rows.length - MOST_ROWS, "more is", "more are")} in the report.`) : null);
}

function cell(value) {
  if (typeof value === "number") return el("td", { class: "n" }, Number.isInteger(value) ? count(value) : figure(value));
  if (typeof value === "boolean") return el("td", {}, value ? "yes" : "no");
  if (value === null || value === undefined) return el("td", {}, "–");
  return el("td", {}, name(Array.isArray(value) ? value.join(" × ") : typeof value === "object" ? JSON.stringify(value) : String(value)));
}

// Attributes that the specification names, in any of its steps: their tables are shown first.
const named = (stated) => (typeof stated === "string" ? [stated] : Object.values(stated ?? {}).flatMap(named));

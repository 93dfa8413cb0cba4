// Step 5: the confidentiality plot of a masking, with a policy that can be dragged.

import { all, get, guarded, post } from "./api.js";
import { cacheCompiled, drawable, painted, payloadOf } from "./chart.js";
import { start } from "./confidentiality-view.js";
import { byId, el, fill, name, share, when } from "./dom.js";
import { follow, underWay } from "./jobs.js";
import { specText } from "./masking.js";
import { ageOf, at, begin, current, isCurrent, noFile, projectId, python, resultAt } from "./page.js";
import { inUse } from "./scenario.js";

const MEANT = new Set(["nominal", "ordinal", "geography", "numeric"]);
const asked = new URLSearchParams(location.search);
const state = { project: null, maskings: [], usable: [], plot: null };

begin(async ({ project, may, answers: [made, { plots, plot, payload }] }) => {
  const refresh = python(script);
  byId("next").href = `/projects/${projectId}/release`;
  if (project.data_version === 0) { byId("none").replaceWith(noFile()); return; }
  Object.assign(state, { project, maskings: made });
  state.usable = current(made, project);
  list(plots);
  if (!made.length) { empty("There is no masking yet. ", ...elsewhere()); return; }
  byId("new-plot").hidden = !(may("work") && state.usable.length);
  if (plot) await show(plot, payload).then(painted);
  const [description, job] = await Promise.all([get(at("/description")), underWay("confidentiality")]);
  if (may("work") && state.usable.length) offer(description, !plot && !job);
  if (!plot && !job) empty(...[may("work") ? state.usable.length ? "No plot yet: choose a masking and its keys below." : ["Every masking was made from an earlier file. ", ...elsewhere()] : "No plot has been made yet. An analyst must make one."].flat());
  byId("plot-form").addEventListener("input", refresh);
  if (job) watch(job);
}, () => Promise.all([all(at("/maskings")), loadPlots()]));

async function loadPlots() {
  const stated = asked.get("plot"), masking = asked.get("masking");
  const payload = stated || !masking ? payloadOf("confidentiality", "plot", stated) : (id) => get(at(`/confidentiality/${id}/plot`));
  const plots = await all(at("/confidentiality"));
  const plot = plots.find((each) => each.id === stated) ?? plots.find((each) => !masking || each.spec.masking === masking);
  return { plots, plot, payload };
}

const elsewhere = () => ["Make one on ", ...[["method", "Pipeline"], ["map", "Map"]].flatMap(([path, text], i) => [i ? " or " : "", el("a", { href: `/projects/${projectId}/${path}` }, text)]), "."];

function empty(...words) {
  fill(byId("none"), ...words);
  byId("none").hidden = false;
}

function offer(description, open) {
  byId("new-plot").open = open;
  const form = byId("plot-form"), usable = description.attributes.filter((attribute) => MEANT.has(attribute.kind));
  const numeric = usable.some((attribute) => attribute.kind === "numeric"), scenario = inUse()?.keys;
  fill(form.elements.masking, state.usable.map((masking) => el("option", { value: masking.id, selected: masking.id === asked.get("masking") },
    `${specText(masking.spec.spec)} (${when(masking.created_at)})`)));
  fill(byId("keys"), usable.map((attribute) => el("label", { title: attribute.kind }, el("input", { type: "checkbox", value: attribute.name,
    checked: scenario ? scenario.includes(attribute.name) : numeric ? attribute.kind === "numeric" : true }), " ", name(attribute.name))));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(async () => {
      const job = await post(at("/confidentiality"), { masking: form.elements.masking.value, keys: ownKeys(), linkage: form.elements.linkage.value }, { once: true });
      byId("new-plot").open = false;
      watch(job);
    })();
  });
}

// None if they are those of the scenario: the service then uses it, and names it.
const ownKeys = () => (inUse()?.keys?.toSorted().join() === keys().toSorted().join() ? [] : keys());

const ofPlot = (plot) => (plot.spec.keys.length ? plot.spec.keys.join(", ") : `scenario ${plot.spec.scenario?.name ?? ""}`);

const keys = () => [...byId("keys").querySelectorAll("input:checked")].map((box) => box.value);

const watch = guarded(async (job) => {
  byId("none").hidden = true;
  const ended = await follow(job, byId("job"), "Linking the records");
  if (ended.state === "succeeded") location.assign(`?plot=${ended.result.id}`);
});

const maskingText = (id) => {
  const found = state.maskings.find((masking) => masking.id === id);
  return found ? specText(found.spec.spec) : "a masking";
};

function list(plots) {
  byId("earlier").hidden = !plots.length;
  fill(byId("plots"), plots.map((plot) => el("tr", {}, el("td", {}, el("a", { href: `?plot=${plot.id}` }, when(plot.created_at)), ageOf(plot, state.project)), el("td", {}, name(plot.created_by)),
    el("td", {}, name(ofPlot(plot))), el("td", {}, el("a", { href: `/projects/${projectId}/results/${plot.spec.masking}` }, name(maskingText(plot.spec.masking)))),
    el("td", { class: "n" }, share(plot.summary.unsafe_share)))));
}

async function show(plot, payload) {
  state.plot = plot;
  fill(byId("plot-title"), name(plot.spec.keys.length ? `Keys: ${plot.spec.keys.join(", ")}` : `Scenario: ${plot.spec.scenario?.name ?? ""}`));
  byId("sentence").className = plot.summary.unsafe_share > 0 ? "warning" : "good";
  fill(byId("sentence"), name(plot.summary.sentence));
  fill(byId("plot-line"), "Of ", el("a", { href: `/projects/${projectId}/results/${plot.spec.masking}` }, name(maskingText(plot.spec.masking))), ". ",
    el("a", { href: resultAt(`/confidentiality/${plot.id}/plot.html`), target: "_blank", rel: "noopener" }, "Open as a separate page"), ".");
  if (isCurrent(plot, state.project)) byId("next").href = `/projects/${projectId}/release?masking=${plot.spec.masking}`;
  byId("old").hidden = isCurrent(plot, state.project);
  byId("shown").hidden = false;
  const [points] = await Promise.all([payload(plot.id), drawable]);
  const root = byId("chart-body").content.firstElementChild.cloneNode(true);
  byId("chart").append(root);
  cacheCompiled(root);
  start(root, points);
}

function script() {
  const id = state.plot?.spec.masking ?? byId("plot-form").elements.masking.value;
  const masking = state.maskings.find((each) => each.id === id);
  if (!masking) return {};
  const { spec, recipe, replicate = 0 } = masking.spec;
  return { spec, replicate, keys: state.plot?.spec.keys ?? keys(), ...(recipe ? { recipe } : {}) };
}

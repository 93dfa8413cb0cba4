// Who lives together and where, and what swapping whole households would do.

import { askLatest, get, guarded, isCancelled, Refused, showProblem } from "./api.js";
import { bars } from "./bars.js";
import { categorical, labelOf } from "./before-after.js";
import { byId, count, el, fill, name, several, share } from "./dom.js";
import { maskWith } from "./masking.js";
import { at, begin, noFile, projectId, python } from "./page.js";
import { inUse } from "./scenario.js";
import { tiles } from "./tiles.js";

const state = { mayWork: false, description: null, spec: null, geography: [], asked: 0, answered: false };
// What would let more households move, in the words of this page.
const CHANGES = { "match_size=False": "partners of any size" };
const to = (path, text) => el("a", { href: `/projects/${projectId}/${path}` }, text);

begin(async ({ project, may }) => {
  state.mayWork = may("work");
  const refresh = python(() => (state.spec ? { spec: state.spec } : {}));
  if (project.data_version === 0) { byId("none").replaceWith(noFile()); return; }
  state.description = await get(at("/description"));
  const places = state.description.attributes.filter((each) => each.kind === "geography");
  const counting = places.length > 1 ? [drawPlaces(0)] : [];
  if (!state.description.attributes.some((each) => each.kind === "household")) {
    empty("No column of this file numbers households. If one does, give it the kind “household” on  ", to("data", "Data"), "; the page then shows who lives together and what swapping households would do.");
    return;
  }
  state.geography = places.map((each) => each.name);
  drawForm(state.description.attributes.filter((each) => each.household).map((each) => each.name));
  byId("plan-form").addEventListener("change", guarded(() => plan(refresh)));
  byId("plan-form").addEventListener("submit", (event) => event.preventDefault());
  byId("mask").hidden = !state.mayWork;
  byId("mask").addEventListener("click", guarded(() => maskWith(state.spec, 0, byId("masked"))));
  counting.push(countSizes(), plan(refresh));
  for (const each of counting) each.catch(showProblem);
});

// Counted after the page is there: on a new machine the first count takes its time. Each says that it runs, and can be cancelled.
async function counted(box, ask, draw) {
  box.setAttribute("aria-busy", "true");
  fill(box, el("p", { class: "note", role: "status" }, "Counting…"));
  try { draw(await ask()); } catch (error) {
    if (!(error instanceof Refused)) throw error;
    fill(box, el("p", { class: "warning" }, name(error.text)), isCancelled(error) ? el("button", { type: "button", class: "small", on: { click: guarded(() => counted(box, ask, draw)) } }, "Count again") : null);
  } finally { box.removeAttribute("aria-busy"); }
}

function countSizes() {
  byId("homes").hidden = false;
  return counted(byId("sizes"), () => get(at("/households")), drawSizes);
}

function empty(...words) {
  fill(byId("none"), ...words);
  byId("none").hidden = false;
}

function drawSizes({ households, outside, sizes, shared }) {
  fill(byId("homes-line"), `${several(households, "household")}. `, outside === null ? "A few persons live outside households. " : outside ? `${several(outside, "person lives", "persons live")} outside households. ` : "");
  const title = ({ least, most }) => (most === null ? `${least} or more` : least === most ? String(least) : `${least} to ${most}`);
  const levels = sizes.map((each) => ({ level: each.least === 1 && each.most === 1 ? "1 person" : `${title(each)} persons`, count: each.households }));
  fill(byId("sizes"), levels.length ? bars(levels, 0, 0) : el("p", { class: "note" }, "There are too few households to show their sizes."));
  fill(byId("shared"), shared.length ? ["The same for all members: ", name(shared.join(", ")), ". They are changed for a whole household or not at all."] : ["No attribute is marked as shared by all members;  ", to("data", "mark them on Data"), "."]);
}

function drawForm(shared) {
  byId("swap").hidden = false;
  if (!state.geography.length) {
    fill(byId("plan-form"), el("p", { class: "empty" }, "Swapping moves households between areas, and no column of this file is an area. Give those that are the kind “geography” on ", to("data", "Data"), "."));
    return;
  }
  const keys = inUse()?.keys ?? [], own = categorical(state.description).filter((each) => each.kind !== "geography" && !each.design);
  const tick = (each, isOn) => el("label", {}, el("input", { type: "checkbox", value: each.name, checked: isOn }), " ", name(each.name));
  const mine = own.filter((each) => keys.includes(each.name));
  fill(byId("risk-variables"), own.map((each) => tick(each, mine.length ? mine.includes(each) : each === own.find((one) => !one.household))));
  fill(byId("similar"), own.filter((each) => shared.includes(each.name)).map((each) => tick(each, false)));
  byId("similar-box").hidden = !byId("similar").childElementCount;
}

const ticked = (id) => [...byId(id).querySelectorAll("input:checked")].map((box) => box.value);

async function plan(refresh) {
  if (!state.geography.length) return;
  const own = ++state.asked;  // a later question may be answered first
  const similar = ticked("similar"), form = byId("plan-form").elements;
  state.spec = { method: "household_swap", risk_variables: ticked("risk-variables"), k: Number(form.k.value), rate: Number(form.rate.value) / 100, ...(form.over.value === "swap" ? {} : { over_rate: form.over.value }), ...(similar.length ? { similar: [similar] } : {}) };
  byId("plan").setAttribute("aria-busy", "true");
  byId("mask").disabled = true;
  // What holds for the form before would mislead.
  const late = setTimeout(() => { if (own === state.asked) { byId("plan").className = "note"; fill(byId("plan"), "Counting…"); fill(byId("levels")); } }, state.answered ? 300 : 0);
  try {
    const found = await askLatest(at("/plan"), { spec: state.spec }), risky = found.details.at_risk ?? {};
    if (own !== state.asked) return;
    const more = found.relaxations.filter((each) => each.feasible > found.feasible);
    clearTimeout(late);
    state.answered = true;
    byId("plan").className = found.is_feasible ? "good" : "warning";
    fill(byId("plan"), name(found.sentence), ".");
    fill(byId("levels"), el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { class: "fit", "aria-label": "Households that must move, by level" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Rare at the level of"), el("th", { scope: "col", class: "n" }, "Households"), el("th", { scope: "col", class: "n" }, "Share"), el("th", { scope: "col", class: "n" }, "Swaps to another area"))),
      el("tbody", {}, Object.entries(risky).map(([level, number]) => el("tr", {}, el("th", { scope: "row" }, name(level)), el("td", { class: "n" }, count(number)), el("td", { class: "n" }, share(number / found.details.households)), el("td", { class: "n" }, share(found.details.crossing[level]))))))),
    more.length ? el("p", { class: "note" }, "More could move: ", name(more.map((each) => `${CHANGES[each.change] ?? each.change} (${count(each.feasible)})`).join("; ")), ".") : null);
    byId("mask").disabled = false;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (own !== state.asked) return;
    clearTimeout(late);
    byId("plan").className = "warning";
    fill(byId("plan"), name(error.text), isCancelled(error) ? [" ", el("button", { type: "button", class: "small", on: { click: guarded(() => plan(refresh)) } }, "Count again")] : null);
    fill(byId("levels"));
  } finally {
    clearTimeout(late);
    if (own === state.asked) byId("plan").removeAttribute("aria-busy");
  }
  refresh();
}

function drawPlaces(level) {
  byId("places").hidden = false;
  return counted(byId("tiles"), () => get(at(`/geography?level=${level}`)), (found) => {
    const pairs = found.levels.slice(0, -1).map((each, i) => [i, `${each}, with ${found.levels[i + 1]} inside`]);
    fill(byId("level"), pairs.map(([i, text]) => el("option", { value: i, selected: i === level }, text)));
    byId("level").onchange = guarded(() => drawPlaces(Number(byId("level").value)));
    fill(byId("tiles"), tiles(found, (attribute, level) => labelOf(state.description, attribute, level)));
  });
}

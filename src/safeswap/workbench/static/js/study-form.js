// The form of a study, with the number of candidates updated as it is filled in.

import { askLatest, get, Refused } from "./api.js";
import { categorical } from "./before-after.js";
import { byId, count, el, fill, name, several } from "./dom.js";
import { specText } from "./masking.js";
import { at } from "./page.js";

// What was masked so far by other methods than swapping, each once: candidates beside the swaps.
async function otherCandidates() {
  const made = (await get(at("/maskings?limit=50"))).items.map((each) => each.spec.spec).filter((each) => each.method !== "swap");
  const found = [...new Map(made.map((each) => [JSON.stringify(each), each])).values()];
  fill(byId("others"), found.length ? found.map((each, i) => el("label", {}, el("input", { type: "checkbox", value: i }), " ", name(specText(each))))
    : el("span", { class: "note" }, "Nothing has been masked by another method yet."));
  return () => ticked("others").map((i) => found[Number(i)]);
}

export async function studyForm(description, { run, changed }) {
  const form = byId("study-form"), names = categorical(description).map((attribute) => attribute.name);
  const sets = [{ fixed: [], differ: [] }];
  ticks("attributes", names, () => names);
  ticks("keys", names, () => []);
  const [measures, others] = await Promise.all([get("/measures"), otherCandidates()]);
  for (const axis of ["risk", "distortion"]) {
    const own = measures.filter((measure) => measure.axis === axis);
    ticks(axis, own.map((measure) => measure.name), () => own.filter((measure) => measure.default_for.includes("study")).map((measure) => measure.name), new Map(own.map((measure) => [measure.name, measure])));
  }

  const vary = () => {
    const keep = numbers(form.elements.pram.value), attributes = ticked("attributes");
    return keep.length && attributes.length ? [{ method: "pram", attributes, sweep: { keep } }] : [];
  };
  const spec = () => ({
    others: others(), vary: vary(),
    attributes: ticked("attributes"), up_to: Number(form.elements.up_to.value), rates: numbers(form.elements.rates.value), constraints: sets,
    true_swap: form.elements.true_swap.value, replicates: Number(form.elements.replicates.value), risk: ticked("risk"), distortion: ticked("distortion"),
    keys: ticked("keys"), objective: form.elements.objective.value + form.elements.objective_value.value,
  });
  const size = counter(spec);
  const update = () => { size(); changed(spec()); };
  const drawSets = () => fill(byId("constraints"), sets.map((set, i) => setLine(set, i, names, { sets, redraw: (focused) => { drawSets(); focused?.(); update(); } })));
  byId("add-set").addEventListener("click", () => { sets.push({ fixed: [], differ: [] }); drawSets(); update(); });
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => { event.preventDefault(); run(spec()); });
  drawSets();
  update();
  return spec;
}

function ticks(id, values, first, measures) {
  const chosen = new Set(first());
  fill(byId(id), values.map((value) => {
    const measure = measures?.get(value);
    return el("label", { title: measure ? `${measure.name}. ${measure.sources.join("; ")}` : undefined },
      el("input", { type: "checkbox", value, checked: chosen.has(value) }), " ", name(measure ? measure.title : value));
  }));
}

const ticked = (id) => [...byId(id).querySelectorAll("input:checked")].map((box) => box.value);

const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean).map(Number);

// One line of constraints: attributes that must be equal, or must differ, within a pair.
function setLine(set, i, names, { sets, redraw }) {
  const used = new Set([...set.fixed, ...set.differ]), free = names.filter((each) => !used.has(each));
  const chips = [["fixed", "equal"], ["differ", "different"]].flatMap(([kind, word]) => set[kind].map((attribute) => el("span", { class: "chip" }, name(attribute), ` ${word} `,
    el("button", { type: "button", class: "quiet", "aria-label": `Remove ${attribute} ${word}`, on: { click: () => { set[kind] = set[kind].filter((each) => each !== attribute); redraw(); } } }, "×"))));
  const picker = el("select", { "aria-label": `Attribute for line ${i + 1}` }, free.map((each) => el("option", { value: each }, each)));
  const add = (kind, word) => el("button", { type: "button", class: "small", disabled: !free.length, on: { click: () => {
    set[kind] = [...set[kind], picker.value];
    redraw(() => byId("constraints").children[i].querySelector("select").focus());
  } } }, word);
  return el("li", {}, chips.length ? chips : el("span", { class: "note" }, "no constraint"), " ",
    el("span", { class: "adding" }, picker, add("fixed", "equal"), add("differ", "different"),
      sets.length > 1 ? el("button", { type: "button", class: "small", on: { click: () => { sets.splice(i, 1); redraw(); } } }, "Remove line") : null));
}

// Ask the service, which knows the size of a study and refuses what cannot be run.
function counter(spec) {
  const output = byId("size"), button = byId("run");
  let waiting = 0, asked = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const own = ++asked;
      try {
        const wanted = spec(), { candidates } = await askLatest(at("/study-size"), { spec: wanted });
        if (own !== asked) return;
        output.className = "note";
        output.textContent = candidates ? `${several(candidates, "candidate")}${wanted.replicates > 1 ? `: ${several(candidates / wanted.replicates, "specification")}, ${count(wanted.replicates)} draws each` : ""}`
          : "No candidates: tick at least one attribute.";
        button.disabled = candidates === 0;
      } catch (error) {
        if (own !== asked) return;
        output.className = "warning";
        output.textContent = error instanceof Refused ? error.text : "The candidates could not be counted.";
        button.disabled = true;
      }
    }, 150);
  };
}

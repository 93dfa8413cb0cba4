// The list of indicators as a form: a row for each, with the fields that its statistic needs. Its TOML is kept beside it.

import { categorical } from "./before-after.js";
import { el, fill, name } from "./dom.js";

const STATISTICS = [["share", "Share"], ["mean", "Mean"], ["total", "Total"], ["ratio", "Ratio"], ["quantile", "Quantile"], ["regression", "Regression"]];
const TOLERANCES = [["relative", "percent"], ["errors", "standard errors"]];
// What a statistic is computed from; all but a regression are also by domain.
const NEEDS = { share: ["of", "level"], mean: ["of"], total: ["of"], ratio: ["of", "per"], quantile: ["of", "at"], regression: ["formula"] };
const WORDS = { of: "attribute", level: "level", per: "denominator", at: "share below", formula: "formula, such as income ~ age + sex" };
const MOST_BY = 4;

// `changed` is called with every change by hand.
export function indicatorForm(box, description, changed) {
  const attributes = description.attributes, numbers = attributes.filter((each) => each.kind === "numeric").map((each) => each.name), groups = categorical(description).map((each) => each.name);
  let lines = [], settings = {};
  const levelsOf = (attribute) => attributes.find((each) => each.name === attribute)?.levels ?? [];
  const redraw = (focus) => { draw(); if (focus) box.querySelector(`[aria-label="${CSS.escape(focus)}"]`)?.focus(); changed(); };
  // Under another statistic, what it has no use for is dropped, and what it needs is filled in.
  const under = (statistic, { of, level, per, at = 0.5, by, formula = "", family: _, statistic: __, ...rest }) => {
    const needs = NEEDS[statistic], offered = statistic === "share" ? groups : numbers, kept = offered.includes(of) ? of : offered[0] ?? "";
    const own = { of: kept, level: kept === of && level !== undefined ? level : levelsOf(kept)[0]?.level ?? "", per: per || (numbers.find((each) => each !== kept) ?? ""), at, formula };
    return { statistic, ...Object.fromEntries(needs.map((key) => [key, own[key]])), ...(needs.includes("of") && by ? { by } : {}), ...rest };
  };
  const select = (label, options, chosen, choose) => el("select", { "aria-label": label, on: { change: (event) => { choose(event.target.value); redraw(label); } } },
    [...options, ...(options.some(([value]) => value === chosen) ? [] : [[chosen, chosen]])].map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  const input = (label, properties, write) => el("input", { "aria-label": label, ...properties, on: { input: (event) => { write(event.target.value); changed(); } } });
  const named = (list) => list.map((each) => [each, each]);
  const row = (line, i) => {
    const own = `of indicator ${i + 1}`, needs = NEEDS[line.statistic], by = line.by ?? [], has = (key) => needs.includes(key);
    const put = (values) => { lines[i] = { ...lines[i], ...values }; };
    const field = (key, words, shown) => (has(key) ? [el("span", {}, words), shown()] : []);
    const domain = (_, place) => [el("span", {}, place ? "and" : "by"), select(`Domains ${own}, ${place + 1}`,
      [["", place < by.length ? "remove" : place ? "…" : "nothing"], ...named(groups.filter((each) => each === by[place] || !by.includes(each)))], by[place] ?? "",
      (value) => put({ by: value ? by.toSpliced(place, 1, value) : by.toSpliced(place, 1) }))];
    const unit = line.errors ? "errors" : "relative", factor = (key) => (key === "relative" ? 100 : 1), rounded = (value) => Number(value.toPrecision(12));
    const tolerate = (key, value) => put({ relative: null, errors: null, [key]: value === "" ? null : rounded(Number(value) / factor(key)) });
    const limit = input(`Tolerable change ${own}`, { type: "number", min: 0, step: "any", placeholder: "any", value: line[unit] ? rounded(line[unit] * factor(unit)) : "" }, (value) => tolerate(unit, value));
    return el("li", {}, el("span", { class: "adding" }, select(`Statistic ${own}`, STATISTICS, line.statistic, (value) => { lines[i] = under(value, lines[i]); }),
      field("of", "of", () => select(`Attribute ${own}`, [...(line.statistic === "total" ? [["", "records"]] : []), ...named(has("level") ? groups : numbers)], line.of ?? "", (of) => put({ of, ...(has("level") ? { level: levelsOf(of)[0]?.level ?? "" } : {}) }))),
      field("level", "=", () => select(`Level ${own}`, levelsOf(line.of).map(({ level, label }) => [level, label || level]), line.level, (level) => put({ level }))),
      field("per", "per", () => select(`Denominator ${own}`, named(numbers), line.per, (per) => put({ per }))),
      field("at", "at", () => input(`Share below ${own}`, { type: "number", min: 0, max: 1, step: "any", value: line.at ?? 0.5 }, (value) => put({ at: Number(value) }))),
      field("formula", "", () => input(`Formula ${own}`, { size: 36, maxlength: 1000, placeholder: "income ~ age + sex", value: line.formula ?? "" }, (formula) => put({ formula }))),
      has("of") ? [...by, ""].slice(0, MOST_BY).flatMap(domain) : null,
      el("span", { class: "adding tolerance" }, el("span", {}, "may move by"), limit, select(`Unit of the tolerance ${own}`, TOLERANCES, unit, (key) => tolerate(key, limit.value)),
        el("button", { type: "button", class: "small", "aria-label": `Remove indicator ${i + 1}`, on: { click: () => { lines.splice(i, 1); redraw(); add.focus(); } } }, "Remove"))));
  };
  const add = el("button", { type: "button", class: "small", on: { click: () => { lines.push(under(groups.length ? "share" : "mean", { relative: 0.05 })); redraw(`Statistic of indicator ${lines.length}`); } } }, "Add an indicator");
  const draw = () => fill(box, el("ol", { class: "indicators" }, lines.map(row)), el("p", {}, add));
  return {
    set: (stated, others = {}) => { lines = stated.map((each) => ({ ...each })); settings = others; draw(); },
    size: () => lines.length,
    missing: () => lines.flatMap((line, i) => NEEDS[line.statistic].filter((key) => !(key === "of" && line.statistic === "total") && !String(line[key] ?? "").trim()).map((key) => `Indicator ${i + 1} has no ${WORDS[key]}`)),
    toml: () => textOf(lines, settings),
  };
}

// What the service says of a line, in the words of its fields.
export const inFormWords = (problem) => problem.replace(/^(indicator \d+), (\w+):/, (_, line, key) => `${line}, ${(WORDS[key] ?? key).split(",")[0]}:`);

// Texts and lists of JSON are those of TOML; what is empty is not stated.
const isStated = (value) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);
const keysOf = (table) => Object.entries(table).filter(([, value]) => isStated(value)).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join("");
const textOf = (lines, settings) => [keysOf(settings), ...lines.map((line) => `[[indicators]]\n${keysOf(line)}`)].filter(Boolean).join("\n");

// A list to begin with: shares of the first attributes, and means of the numbers, by an area or the first attribute.
export function suggestedLines({ attributes }) {
  const open = attributes.filter((each) => ["nominal", "ordinal"].includes(each.kind) && each.levels?.length > 1 && !each.design);
  const area = attributes.find((each) => each.kind === "geography") ?? open[0], by = (each) => (area && area !== each ? { by: [area.name] } : {});
  return [...open.slice(0, 2).map((each) => ({ statistic: "share", of: each.name, level: each.levels[0].level, ...by(each), relative: 0.05 })),
    ...attributes.filter((each) => each.kind === "numeric").slice(0, 2).map((each) => ({ statistic: "mean", of: each.name, ...by(each), relative: 0.02 }))];
}

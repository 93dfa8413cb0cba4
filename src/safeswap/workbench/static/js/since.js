// What changed since the last request for a release of this project: the masking, the terms, the figures.

import { el, figure, fill, name, when } from "./dom.js";
import { specText } from "./masking.js";

const TERMS = { title: "Title", data_format: "Format", identifiers: "Identifiers", drop: "Columns left out", two_files: "Two files", publish_rate: "Share of records published", unmasked: "Released unmasked" };
const STATES = { approved: "approved", rejected: "rejected", requested: "waiting", failed: "not prepared", preparing: "being prepared" };

export async function drawChanges(box, release, releases, { maskings, factsOf, facts }) {
  const before = releases.filter((each) => each.id !== release.id && each.requested_at < release.requested_at && each.files.length)[0];
  if (!before) { fill(box, releases.length > 1 ? null : el("p", { class: "note" }, "This is the first request of this project.")); return; }
  const masking = (one) => { const found = maskings.find((each) => each.id === one.masking); return found ? specText(found.spec.spec) : "an earlier masking"; };
  const text = (value) => (Array.isArray(value) ? value.join(", ") || "none" : value === true ? "yes" : value === false ? "no" : String(value ?? "") || "none");
  const rows = [["Masking", before.masking === release.masking ? null : [masking(before), masking(release)]],
    ...Object.entries(TERMS).map(([key, title]) => [title, text(before.terms[key]) === text(release.terms[key]) ? null : [text(before.terms[key]), text(release.terms[key])]]),
    ["Records", before.records === release.records ? null : [figure(before.records), figure(release.records)]]];
  const old = facts ? await Promise.resolve(factsOf(before)).catch(() => null) : null;  // a bundle of old data has no report any more
  for (const each of facts?.figures ?? []) {
    const then = old?.figures.find((one) => one.title === each.title && one.scenario === each.scenario);
    if (then && then.after !== each.after) rows.push([`${each.title}${each.scenario ? ` (${each.scenario})` : ""}`, [figure(then.after), figure(each.after)]]);
  }
  const changed = rows.filter(([, values]) => values);
  fill(box, el("h3", {}, "Changed since the last request"), el("p", { class: "note" }, `The last one, of ${when(before.requested_at)}, is ${STATES[before.state]}`, before.reason ? [": ", name(before.reason)] : null, "."),
    changed.length ? el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { "aria-label": "Changed since the last request" }, el("thead", {}, el("tr", {}, ["", "Last request", "This request"].map((word) => el("th", { scope: "col" }, word)))),
      el("tbody", {}, changed.map(([title, [one, two]]) => el("tr", {}, el("th", { scope: "row" }, name(title)), el("td", {}, name(one)), el("td", {}, name(two))))))) : el("p", {}, "No setting and no figure differs."));
}

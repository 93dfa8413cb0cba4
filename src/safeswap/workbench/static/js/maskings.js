// The list of maskings that a page works on: those of the present data, the one in the address first.

import { all } from "./api.js";
import { byId, el, fill, when } from "./dom.js";
import { specText } from "./masking.js";
import { at, current, noFile, projectId } from "./page.js";

export async function pickMasking(project) {
  const made = current(await all(at("/maskings"), 500), project), wanted = new URLSearchParams(location.search).get("masking");
  fill(byId("masking"), made.map((each) => el("option", { value: each.id, selected: each.id === wanted }, `${specText(each.spec.spec)} (${when(each.created_at)})`)));
  return made;
}

// What to do first, where there is nothing to show yet.
export function nothingYet(project, made, what) {
  const to = (path, text) => el("a", { href: `/projects/${projectId}/${path}` }, text);
  if (project.data_version === 0) return noFile();
  return made.length ? null : el("p", { class: "empty" }, "Nothing has been masked from this file yet. ", to("method", "Mask the data"), " or choose a candidate on the ", to("map", "map"), `, then ${what}.`);
}

// Links to the reports of a masking or a release, those that the person may see, and the same reports side by side.

import { el, fill } from "./dom.js";
import { resultAt } from "./page.js";

const READERS = [["public", "Public", "read"], ["members", "Board: members", "decide"], ["chair", "Board: chair (confidential)", "decide"],
  ["analyst", "Analyst (confidential)", "work"], ["five-safes", "Five safes (confidential)", "work"]];
const COMPARED = new Set(["chair", "members", "public"]);

export function reportLinks(place, may) {
  return READERS.filter(([, , permission]) => may(permission)).map(([reader, title]) => el("li", {},
    el("a", { href: resultAt(`${place}/reports/${reader}`), target: "_blank", rel: "noopener" }, title)));
}

// What each reader is told, beside one another: the officer sees what leaves out what. Loaded when it is opened.
export function reportsSideBySide(box, place, isReady, may) {
  const shown = READERS.filter(([reader, , permission]) => COMPARED.has(reader) && may(permission)).reverse();
  if (!isReady || shown.length < 2) { fill(box); return; }
  const frames = el("div", { class: "sides" });
  const details = el("details", { class: "card", id: "reports-compared", on: { toggle: () => {
    if (details.open && !frames.childElementCount) fill(frames, shown.map(([reader, title]) => el("section", {}, el("h3", {}, title), el("iframe", { title: `Report: ${title}`, src: resultAt(`${place}/reports/${reader}`), loading: "lazy" }))));
  } } }, el("summary", {}, "The reports side by side: chair, members, public"), frames);
  fill(box, details);
}

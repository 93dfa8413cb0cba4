// The session log: show it, add notes, save it.

import { all, guarded, post } from "./api.js";
import { byId, el, fill, name, say, when } from "./dom.js";
import { at, begin, resultAt } from "./page.js";

const WORDS = {
  note: "Note", "project.make": "Project created", "project.import": "Project imported", "export.fetch": "Project exported", "project.change": "Project changed", "job.ingest": "File read", "job.mask": "Masking", "job.study": "Study", "job.confidentiality": "Plot of records",
  "job.assess": "Assessment", "release.request": "Release requested", "release.prepared": "Release prepared", "release.failed": "Release failed", "release.approve": "Release approved", "release.reject": "Release rejected", "release.download": "Release downloaded", "job.cancel": "Job cancelled", "member.add": "Member added", "member.remove": "Member removed",
};

begin(async ({ may }) => {
  byId("note-form").hidden = !may("work");
  byId("save").href = resultAt("/log.txt");
  byId("note-form").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(async () => {
      const field = event.target.elements.text;
      await post(at("/log"), { text: field.value }, { once: true });
      field.value = "";
      say("Note added.");
      await show();
    })();
  });
  await show();
});

async function show() {
  const entries = await all(at("/log"), 2000);
  fill(byId("lines"), entries.map((entry) => el("tr", {}, el("td", {}, when(entry.at)), el("td", {}, name(entry.actor)), el("td", { title: entry.action }, WORDS[entry.action] ?? entry.action),
    el("td", {}, entry.note ? name(entry.note) : el("span", { class: "mono note" }, entry.subject)))));
}

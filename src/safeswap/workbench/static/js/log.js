// The session log: show it, add notes, save it.

import { all, guarded, post } from "./api.js";
import { byId, el, fill, name, say, when } from "./dom.js";
import { at, begin, projectId, resultAt } from "./page.js";

const WORDS = {
  note: "Note", "project.make": "Project created", "project.import": "Project imported", "export.fetch": "Project exported", "project.change": "Project changed", "job.ingest": "File read", "job.mask": "Masking", "job.study": "Study", "job.confidentiality": "Plot of records",
  "job.assess": "Assessment", "job.attack": "Attacks", "job.below": "Small cells counted", "job.risky": "Unsafe combinations listed", "job.safe_tables": "Tables made safe", "job.export": "Export begun", "export.request": "Export requested",
  "masking.undo": "Masking undone", "settings.change": "Scenarios or steps changed", "settings.import": "Project file read", "recipe.set": "Recipe changed", "policy.set": "Policy changed", "project.expire": "Project expired", "release.request": "Release requested", "release.prepared": "Release prepared", "release.failed": "Release failed", "release.approve": "Release approved", "release.reject": "Release rejected", "release.download": "Release downloaded", "job.cancel": "Job cancelled", "member.add": "Member added", "member.remove": "Member removed",
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

// The page on which the result of a job is looked at.
const PAGES = { masking: (id) => `results/${id}`, study: (id) => `map?study=${id}`, confidentiality: (id) => `records?plot=${id}`, attack: () => "attacks", assessment: () => "indicators", safe_tables: (id) => `tables?result=${id}` };

function details({ action, subject, note }, results) {
  if (note) return name(note);
  const result = results.get(subject), page = action.startsWith("release.") ? `release?release=${subject}` : action === "job.ingest" ? "data" : PAGES[result?.kind]?.(result.id);
  return page ? el("a", { href: `/projects/${projectId}/${page}` }, action.startsWith("release.") ? "the release" : "look at it") : null;
}

async function show() {
  const [entries, jobs] = await Promise.all([all(at("/log"), 2000), all(at("/jobs"), 2000)]), results = new Map(jobs.filter((job) => job.result).map((job) => [job.id, job.result]));
  fill(byId("lines"), entries.map((entry) => el("tr", {}, el("td", {}, when(entry.at)), el("td", {}, name(entry.actor)), el("td", { title: entry.action }, WORDS[entry.action] ?? entry.action),
    el("td", { title: entry.subject || null }, details(entry, results)))));
}

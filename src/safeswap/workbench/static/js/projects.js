// The list of projects; create or import one.

import { all, guarded, post, upload } from "./api.js";
import { byId, el, fill, name, several, when } from "./dom.js";
import { follow } from "./jobs.js";
import { begin } from "./page.js";

const STATES = { empty: "no file yet", reading: "reading the file", ready: "ready", broken: "file could not be read", deleted: "deleted" };

begin(async ({ who, may }) => {
  const projects = await all("/projects");
  byId("new-project").hidden = byId("samples").hidden = byId("import").hidden = !may("work");
  if (may("decide")) decisions(projects);
  if (!projects.length) {
    fill(byId("projects"), el("p", { class: "empty" }, may("work")
      ? "There are no projects yet. Create one below, then upload a file; or try it with sample data."
      : "You are not a member of any project yet. Ask its creator or an administrator to add you."));
  } else {
    fill(byId("projects"), el("ul", { class: "tiles" }, projects.map((project) => tile(project, who))));
  }
});

function tile(project, who) {
  const title = who.role === "admin" ? el("strong", {}, name(project.name))
    : el("a", { href: `/projects/${project.id}/data` }, name(project.name));
  const facts = [STATES[project.state], project.records ? several(project.records, "record") : null, project.file_name || null];
  return el("li", { class: "card" }, el("h3", {}, title), el("p", { class: "note" }, facts.filter(Boolean).flatMap((fact, i) => [i ? " · " : "", name(fact)])),
    el("p", { class: "note" }, "created by ", name(project.created_by), " on ", when(project.created_at)),
    project.waiting ? el("p", { class: "warning" }, el("a", { href: `/projects/${project.id}/release` }, waits(project.waiting))) : null);
}

const waits = (number) => `${several(number, "release waits", "releases wait")} for a decision`;

// What an officer came for stands above everything else.
function decisions(projects) {
  const pending = projects.filter((project) => project.waiting);
  byId("decisions").hidden = !pending.length;
  fill(byId("pending"), pending.map((project) => el("li", {}, el("a", { href: `/projects/${project.id}/release` }, name(project.name)), `: ${waits(project.waiting)}.`)));
}

byId("new-project").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target.elements;
  guarded(async () => {
    const made = await post("/projects", { name: form.name.value, tolerance: form.tolerance.value ? Number(form.tolerance.value) : null }, { once: true });
    location.assign(`/projects/${made.id}/data`);
  })();
});

for (const button of document.querySelectorAll("[data-sample]")) {
  button.addEventListener("click", guarded(async () => {
    const { sample, name: called } = button.dataset;
    const made = await post("/projects", { name: `Sample: ${called}` }, { once: true });
    await post(`/projects/${made.id}/data-from-sample`, { sample });
    location.assign(`/projects/${made.id}/data`);
  }));
}

byId("archive").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (!file) return;
  guarded(async () => {
    const sending = (part) => fill(byId("job"), el("p", { role: "status" }, `Uploading: ${Math.round(100 * part)}%`));
    const job = await follow(await upload(`/imports?name=${encodeURIComponent(file.name)}`, file, sending), byId("job"), "Reading the archive");
    if (job.state === "succeeded") location.assign(`/projects/${job.project}/data`);
  })().finally(() => { event.target.value = ""; });
});

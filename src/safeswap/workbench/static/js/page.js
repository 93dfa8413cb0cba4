// Shared by all pages: user, project, colour theme and the Python script.

import { get, guarded, logOut, post, session, showProblem } from "./api.js";
import { byId, say } from "./dom.js";

export const projectId = document.documentElement.dataset.project ?? "";
export const resultId = document.documentElement.dataset.result ?? "";
export const at = (path) => `/projects/${projectId}${path}`;
// The address of a document that the service itself renders, such as a report.
export const resultAt = (path) => `/api/v1${at(path)}`;

// `first` makes the requests that do not depend on the user, so that all requests run at once.
export async function begin(show, first = () => null) {
  theme();
  try {
    const [who, project, answers] = await Promise.all([session(), projectId ? get(at("")) : null, first()]);
    byId("who").textContent = who.single_user ? "" : `${who.display_name || who.name} (${who.role})`;
    byId("log-out").hidden = who.single_user;
    byId("log-out").addEventListener("click", guarded(async () => { await logOut(); location.assign("/log-in"); }));
    if (project) {
      byId("project-name").textContent = project.name;
      document.title = `${document.title.split(" · ")[0]} · ${project.name} · safeswap`;
      markSteps(project);
    }
    await show({ who, project, answers, may: (permission) => who.permissions.includes(permission) });
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    showProblem(error);
    document.documentElement.dataset.ready = "error";
  }
}

// Mark the steps that need data.
function markSteps(project) {
  for (const link of document.querySelectorAll("[data-step]")) {
    const waits = link.dataset.step !== "data" && project.data_version === 0;
    link.classList.toggle("waits", waits);
    if (waits) link.setAttribute("title", "Upload a file first");
  }
}

function theme() {
  const button = byId("theme-switch");
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    document.cookie = `safeswap-theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
    show();
    document.dispatchEvent(new Event("safeswap-theme"));
  });
  show();
}

// `asked` returns what the screen currently shows; the script is made when the panel is open, and on every change.
export function python(asked) {
  const box = byId("python");
  const refresh = guarded(async () => {
    if (!box.open) return;
    byId("python-text").textContent = (await post(at("/script"), asked())).script;
  });
  box.addEventListener("toggle", refresh);
  byId("python-copy").addEventListener("click", guarded(async () => {
    await navigator.clipboard.writeText(byId("python-text").textContent);
    say("Copied.");
  }));
  return refresh;
}

// Export and deletion of a project.

import { call, guarded, post } from "./api.js";
import { byId, el, fill, say } from "./dom.js";
import { follow } from "./jobs.js";
import { at, resultAt } from "./page.js";

export function keeping(project, may) {
  byId("keeping").hidden = !may("work");
  byId("packing").hidden = !may("export");
  byId("pack").addEventListener("click", guarded(async () => {
    byId("pack").disabled = true;
    try {
      const job = await follow(await post(at("/exports"), { form: byId("pack-form").value }, { once: true }), byId("packed"), "Exporting the project");
      if (job.state !== "succeeded") return;
      fill(byId("packed"), el("p", { class: "warning" }, "The archive contains confidential data. ",
        el("a", { class: "button", download: true, href: resultAt(`/exports/${job.result.id}/file`) }, "Save the archive")));
      say("The archive is ready.");
    } finally { byId("pack").disabled = false; }
  }));
  const typed = byId("delete-name"), button = byId("delete");
  typed.addEventListener("input", () => { button.disabled = typed.value !== project.name; });
  button.addEventListener("click", guarded(async () => {
    await call("DELETE", at(""));
    location.assign("/");
  }));
}

// Single-user service: redeem the one-time token in the address and remove it from the address bar.

import { get, guarded, logIn } from "./api.js";
import { byId } from "./dom.js";

guarded(async () => {
  const stated = new URLSearchParams(location.hash.slice(1));
  history.replaceState(null, "", "/open");
  const token = stated.get("token");
  if (token) await logIn({ start_token: token });
  const project = stated.get("project");
  const found = await get("/projects?limit=200");
  byId("opening").textContent = "Open.";
  location.replace(found.items.some((each) => each.id === project) ? `/projects/${project}/data` : "/");
})();

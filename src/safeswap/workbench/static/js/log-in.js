// Log in by any way that the service supports.

import { get, guarded, logIn } from "./api.js";
import { byId } from "./dom.js";

const next = () => {
  const stated = new URLSearchParams(location.search).get("next") ?? "/";
  // Own addresses only: one that begins with two slashes leads to another host.
  return stated.startsWith("/") && !stated.startsWith("//") && !stated.includes("\\") ? stated : "/";
};

const show = guarded(async () => {
  const ways = await get("/session/ways");
  byId("log-in").hidden = !ways.password;
  byId("provider").hidden = !ways.provider;
  byId("single").hidden = !ways.single_user;
  if (ways.proxy) { await logIn({}); location.replace(next()); }
  if (ways.password) byId("log-in").elements.name.focus();
});

byId("log-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target.elements;
  guarded(async () => {
    await logIn({ name: form.name.value, password: form.password.value });
    location.replace(next());
  })();
});

show().then(() => { document.documentElement.dataset.ready = "true"; });

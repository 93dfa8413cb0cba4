// The members of a project, who alone can see it.

import { all, call, guarded } from "./api.js";
import { byId, el, fill, name, say } from "./dom.js";
import { at } from "./page.js";

const ROLES = { viewer: "viewer: read only", analyst: "analyst: can edit", officer: "officer: can edit and approve releases" };

export async function people(who, may) {
  const box = byId("people");
  if (who.single_user) return;
  box.hidden = false;
  byId("add-person").hidden = !may("invite");
  byId("add-person").addEventListener("submit", (event) => { event.preventDefault(); add(who, may); });
  await show(who, may);
}

const add = guarded(async (who, may) => {
  const field = byId("person");
  if (!field.value.trim()) { field.focus(); return; }
  const found = (await call("PUT", at(`/members/${encodeURIComponent(field.value.trim())}`))).value;
  field.value = "";
  await show(who, may);
  say(`${found.display_name || found.name} was added.`);
  field.focus();
});

async function show(who, may) {
  const members = await all(at("/members"), 1000);
  const remove = (member) => guarded(async () => {
    await call("DELETE", at(`/members/${encodeURIComponent(member.name)}`));
    await show(who, may);
    say(`${member.display_name || member.name} was removed.`);
    byId("person").focus();
  });
  fill(byId("members"), members.map((member) => el("li", {}, el("strong", {}, name(member.display_name || member.name)), member.display_name ? [" ", el("span", { class: "note" }, name(member.name))] : null,
    el("span", { class: "note" }, ` ${ROLES[member.role] ?? member.role}`), member.name === who.name ? el("span", { class: "note" }, " (you)")
      : may("invite") ? [" ", el("button", { type: "button", class: "small", "aria-label": `Remove ${member.name}`, on: { click: remove(member) } }, "Remove")] : null)));
  byId("no-officer").hidden = members.some((member) => member.role === "officer") || who.role === "viewer";
}

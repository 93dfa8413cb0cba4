// The levels of one attribute: their labels and, if it is ordinal, their order.

import { byId, el, fill, name, several } from "./dom.js";

// `stated` holds unsaved changes; `change` receives the new ones.
export function levelsDialog(attribute, kind, stated, change) {
  const dialog = byId("levels"), list = byId("levels-list"), known = attribute.levels.map((level) => level.level);
  const hidden = attribute.levels_below_tolerance.number, ordered = kind === "ordinal";
  let levels = stated?.levels ?? known;
  const labels = new Map(attribute.levels.map((level) => [level.level, stated?.labels?.[level.level] ?? level.label ?? ""]));
  const first = new Map(labels);
  fill(byId("levels-title"), "Levels of ", name(attribute.name));
  byId("levels-note").textContent = (ordered ? "From low to high. Use the buttons to move a level." : "") + (hidden ? ` ${unshown(hidden, ordered)}` : "");
  const draw = (focused, down) => {
    fill(list, levels.map((level, i) => el("li", {}, name(level), el("input", { "aria-label": `Label of ${level}`, placeholder: "label", maxlength: 1000, value: labels.get(level),
      on: { input: (event) => labels.set(level, event.target.value) } }), ordered ? [mover(i, level, 0), mover(i, level, 1)] : null)));
    if (focused === undefined) return;
    const buttons = [...list.children[focused].querySelectorAll("button")];
    (buttons[down].disabled ? buttons[1 - down] : buttons[down]).focus();
  };
  const mover = (i, level, down) => el("button", { type: "button", class: "small", disabled: down ? i === levels.length - 1 : i === 0, "aria-label": `Move ${level} ${down ? "down" : "up"}`,
    on: { click: () => { const to = down ? i + 1 : i - 1; levels = levels.toSpliced(i, 1).toSpliced(to, 0, level); draw(to, down); } } }, down ? "↓" : "↑");
  draw();
  byId("levels-done").onclick = () => {
    const named = [...labels].filter(([level, label]) => label !== first.get(level) || stated?.labels?.[level] !== undefined);
    const now = { ...(ordered ? { kind: "ordinal", levels } : {}), ...(named.length ? { labels: { ...stated?.labels, ...Object.fromEntries(named) } } : {}) };
    if (Object.keys(now).length) change(now);
    dialog.close();
  };
  byId("levels-cancel").onclick = () => dialog.close();
  dialog.showModal();
}

// Levels that few records have are not named; the service keeps them in place.
function unshown(number, ordered) {
  const which = several(number, "level that few records have is not shown", "levels that few records have are not shown");
  return ordered ? `${which}: ${number === 1 ? "it" : "each"} stays directly after the level that it follows now, or comes last if no order was known.` : `${which}.`;
}

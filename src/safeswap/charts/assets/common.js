// Shared by both charts: Plotly settings, and helpers that create elements (text is never parsed as markup).
const QUIET = {
  displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "", showLink: false,
  showEditInChartStudio: false, scrollZoom: false, doubleClick: "reset",
};

function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...present(children));
  return made;
}

const present = (children) => children.filter((child) => child !== null && child !== undefined);

// Isolate a name of unknown script: a right-to-left name must not reverse the line.
const isolated = (text) => element("bdi", {}, text);

const isDark = () => (document.documentElement.dataset.theme ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

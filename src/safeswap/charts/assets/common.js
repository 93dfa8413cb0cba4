// What both charts use: settings of Plotly, and elements made by hand, in which text is text.

// Nothing can be sent anywhere, and nothing asks to.
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

// A name of unknown script in a line of ours: it may run from right to left without turning the line around.
const isolated = (text) => element("bdi", {}, text);

const isDark = () => (document.documentElement.dataset.theme ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

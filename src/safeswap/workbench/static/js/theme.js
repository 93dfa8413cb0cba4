// Before anything is drawn: the theme that the reader has chosen, if she has.
(() => {
  try {
    const chosen = window.localStorage.getItem("safeswap-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be switched off: the system's theme is used.
  }
})();

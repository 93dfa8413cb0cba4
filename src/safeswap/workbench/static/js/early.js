// Runs before the page is ready: keeps a file dropped anywhere on it. Otherwise the browser would open the file in place
// of the page, or the drop would be lost.
(() => {
  const dropped = { file: null, take: null };
  window.safeswapDropped = dropped;
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    if (dropped.take) dropped.take(file); else dropped.file = file;
  });
})();

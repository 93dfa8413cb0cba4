// Before the page is ready: a file dropped anywhere on it is kept for it. Without this the browser would open the file
// in place of the page, or nobody would notice it.
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

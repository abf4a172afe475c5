// Applied before the first paint, so that a chosen theme never flashes the other one.
try {
  const chosen = localStorage.getItem("duet.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // The browser keeps nothing for us: the system's theme it is.
}

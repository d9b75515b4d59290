// Runs before the first paint, so that a remembered theme does not flash.
try {
  const theme = localStorage.getItem("kakeya-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing for this page has nothing to remember.
}

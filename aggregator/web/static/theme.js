// The choice between the system's theme, the light and the dark one: kept in this browser, and only where somebody chose.

const CHOICES = ["", "light", "dark"];
const root = document.documentElement;
root.dataset.theme = localStorage.getItem("kilowatch.theme") ?? "";
root.dataset.script = "";

document.addEventListener("click", (event) => {
  if (!event.target?.closest?.("button.theme")) return;
  const next = CHOICES[(CHOICES.indexOf(root.dataset.theme ?? "") + 1) % CHOICES.length];
  root.dataset.theme = next;
  if (next) localStorage.setItem("kilowatch.theme", next);
  else localStorage.removeItem("kilowatch.theme");
});

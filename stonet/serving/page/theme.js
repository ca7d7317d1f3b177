/* Light and dark: as the system is set, until the reader chooses. */

const KEY = "stonet-theme";
const SYSTEM = window.matchMedia("(prefers-color-scheme: dark)");
const NAMES = ["paper", "ink", "faint", "grid", "coast", "border", "ring", "accent", "globe"];
let colours = null;

const chosen = () => document.documentElement.dataset.theme ?? (SYSTEM.matches ? "dark" : "light");

/** Colours of the style sheet for what is drawn on a canvas. */
export function palette() {
  if (colours) return colours;
  const probe = document.createElement("span");
  document.body.append(probe);
  colours = Object.fromEntries(NAMES.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  colours.font = getComputedStyle(document.body).fontFamily;
  colours.dark = chosen() === "dark";
  return colours;
}

/** The button that changes the theme; `changed` is called after each change. */
export function watchTheme(button, changed) {
  const apply = () => {
    colours = null;
    button.setAttribute("aria-label", `Switch to ${chosen() === "dark" ? "light" : "dark"} colours`);
    changed();
  };
  const kept = localStorage.getItem(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    const next = chosen() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem(KEY, next);
    apply();
  });
  SYSTEM.addEventListener("change", apply);
  apply();
}

// Light or dark, as the system has it, or as the page around this one does.

const DARK = "(prefers-color-scheme: dark)";

// isDark(systemIsDark) decides; it is asked again whenever the system changes. The returned function asks now.
export function followTheme(isDark) {
  const system = window.matchMedia(DARK);
  const ask = () => {
    document.documentElement.dataset.theme = isDark(system.matches) ? "dark" : "light";
  };
  system.addEventListener("change", ask);
  ask();
  return ask;
}

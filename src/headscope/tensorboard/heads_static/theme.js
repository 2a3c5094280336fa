/* Dark or light as TensorBoard is, and whether this tab can be seen at all. */

import { outer } from "./link.js";

export function followTheme(store) {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const host = outer() === window ? null : outer().document.body;
  const apply = () => {
    const dark = host === null ? scheme.matches : host.classList.contains("dark-mode");
    store.set({ theme: dark ? "dark" : "light" });
    document.documentElement.dataset.theme = store.theme;
  };
  if (host !== null) {
    const watcher = new MutationObserver(apply);
    watcher.observe(host, { attributes: true, attributeFilter: ["class"] });
  }
  scheme.addEventListener("change", apply);
  apply();
}

/* Not while another tab of TensorBoard or of the browser is in front: a hidden frame takes no room. */
export function isVisible() {
  if (document.visibilityState !== "visible") return false;
  try {
    return window.frameElement === null || window.frameElement.getClientRects().length > 0;
  } catch {
    return true;
  }
}

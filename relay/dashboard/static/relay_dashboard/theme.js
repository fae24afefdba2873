// Before anything is painted: the colours the operator chose, or those of the system. The theme's
// own script takes over as soon as it runs.
(() => {
    let chosen = "auto";
    try {
        chosen = JSON.parse(localStorage.getItem("adminTheme") ?? '"auto"');
    } catch {
        // Storage is closed to us, or holds something else.
    }
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches;
    const dark = chosen === "dark" || (chosen === "auto" && system);
    document.documentElement.classList.toggle("dark", dark);
    // What stands there already the theme would take for somebody else's, and never take away.
    document.addEventListener("alpine:init", () => document.documentElement.classList.remove("dark"));
})();

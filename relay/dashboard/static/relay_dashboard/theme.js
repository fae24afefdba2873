// Before anything is painted: the colours the operator chose, or those of the system. The theme's
// own script takes over as soon as it runs; it does not see the system's colours change later.
(() => {
    const system = window.matchMedia("(prefers-color-scheme: dark)");

    function isDark() {
        let chosen = "auto";
        try {
            chosen = JSON.parse(localStorage.getItem("adminTheme") ?? '"auto"');
        } catch {
            // Storage is closed to us, or holds something else.
        }
        return chosen === "dark" || (chosen === "auto" && system.matches);
    }

    const show = () => document.documentElement.classList.toggle("dark", isDark());

    show();
    system.addEventListener("change", show);
    // What stands there already the theme would take for somebody else's, and never take away.
    document.addEventListener("alpine:init", () => document.documentElement.classList.remove("dark"));
})();

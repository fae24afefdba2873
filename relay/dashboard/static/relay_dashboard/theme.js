// Sets the colours that the operator chose, or those of the system, before anything is painted. The
// theme's script takes over as soon as it runs; it does not follow later changes of the system.
(() => {
    const system = window.matchMedia("(prefers-color-scheme: dark)");

    function isDark() {
        let chosen = "auto";
        try {
            chosen = JSON.parse(localStorage.getItem("adminTheme") ?? '"auto"');
        } catch {
            // Storage is not accessible, or holds another value.
        }
        return chosen === "dark" || (chosen === "auto" && system.matches);
    }

    const show = () => document.documentElement.classList.toggle("dark", isDark());

    show();
    system.addEventListener("change", show);
    // The theme would not remove a class that it finds already set.
    document.addEventListener("alpine:init", () => document.documentElement.classList.remove("dark"));
})();

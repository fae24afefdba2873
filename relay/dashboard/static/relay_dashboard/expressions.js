// The theme's expressions that Alpine's build for strict policies cannot read: it knows no global
// functions, and one expression without statements in each attribute. Browser tests read all
// expressions of all pages.

document.addEventListener("alpine:init", () => {
    const STORED = "sidebarDesktopOpen";

    function replace(selector, name, expression) {
        for (const element of document.querySelectorAll(selector)) {
            element.removeAttribute(name);
            if (expression) {
                element.setAttribute(name, expression);
            }
        }
    }

    Alpine.data("theme", theme);
    Alpine.data("searchForm", searchForm);
    Alpine.data("frame", () => ({
        activeTab: getCurrentTab() ?? "general",
        sidebarMobileOpen: false,
        sidebarDesktopOpen: localStorage.getItem(STORED) !== "0",
        init() {
            this.$watch(STORED, (open) => localStorage.setItem(STORED, open ? "1" : "0"));
        },
    }));
    replace("body", "x-data", "frame");
    replace("body", "x-init");
    replace(`[x-on\\:click^="${STORED} = "]`, "x-on:click", `${STORED} = !${STORED}`);
    // These keep the theme's tabs in the addresses of forms and links; our pages have no tabs.
    replace("form[x-bind\\:action]", "x-bind:action");
    replace("a[x-on\\:click\\.prevent^=window]", "x-on:click.prevent");
});

htmx.config.allowEval = false;

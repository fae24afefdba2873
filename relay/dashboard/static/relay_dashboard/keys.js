// Keyboard navigation: g and a letter for a page, / for the first field, j and k for rows, ? for the
// list of keys. Ignored while the operator types in a field.

const NEXT_KEY_MS = 1200;
const pages = new Map();
for (const link of document.querySelectorAll("#console-keys a")) {
    pages.set(link.dataset.key, link);
}
let waitsUntil = 0;

function typing(target) {
    return target.closest?.("input, textarea, select, [contenteditable], dialog[open]");
}

function step(by) {
    const rows = [...document.querySelectorAll(".c-table tbody tr")];
    if (rows.length) {
        const now = rows.findIndex((row) => row.contains(document.activeElement));
        const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
        const target = next.querySelector("a, button") ?? next;
        if (target === next) {
            next.tabIndex = -1;
        }
        target.focus();
        next.scrollIntoView({ block: "nearest" });
    }
}

document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) {
        return;
    }
    if (Date.now() < waitsUntil) {
        waitsUntil = 0;
        const link = pages.get(event.key);
        if (link) {
            event.preventDefault();
            location.assign(link.href);
        }
        return;
    }
    const field = document.querySelector(".c-filters input:not([type=hidden])");
    if (event.key === "g") {
        waitsUntil = Date.now() + NEXT_KEY_MS;
    } else if (event.key === "/" && field) {
        event.preventDefault();
        field.focus();
        field.select();
    } else if (event.key === "j" || event.key === "k") {
        step(event.key === "j" ? 1 : -1);
    } else if (event.key === "?") {
        document.getElementById("console-keys").showModal();
    }
});

document.querySelector("[data-keys]")?.addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("console-keys").showModal();
});

// Parts of a page that reload themselves: <section id="..." data-refresh="address">, every two
// seconds or at the interval in data-refresh-ms.
//
// Not while the page is hidden, the operator uses the section, or a request is pending.

const EVERY_MS = 2000;
const openedMs = Date.now();
const asked = new Map();

function busy(part) {
    const selection = document.getSelection();
    return (
        part.contains(document.activeElement) ||
        part.querySelector("details[open], :popover-open") !== null ||
        (selection && !selection.isCollapsed && part.contains(selection.anchorNode))
    );
}

async function refresh(part) {
    const id = part.id;
    const everyMs = Number(part.dataset.refreshMs) || EVERY_MS;
    if ((asked.get(id) ?? openedMs) > Date.now() - everyMs || busy(part)) {
        return;
    }
    asked.set(id, Infinity);
    try {
        const answer = await fetch(part.dataset.refresh, { headers: { "HX-Target": id } });
        if (answer.redirected || !answer.ok) {
            throw new Error(`answered ${answer.status}`);
        }
        const text = await answer.text();
        const now = document.getElementById(id);
        if (now && !busy(now)) {
            const fresh = new DOMParser().parseFromString(text, "text/html").getElementById(id);
            if (!fresh) {
                throw new Error("answered something else");
            }
            now.replaceWith(fresh);
            document.dispatchEvent(new CustomEvent("console:refreshed", { detail: fresh }));
        }
    } catch {
        document.getElementById(id)?.setAttribute("data-old", "");
    } finally {
        asked.set(id, Date.now());
    }
}

document.addEventListener("console:tick", () => {
    if (document.visibilityState === "visible") {
        document.querySelectorAll("[data-refresh]").forEach(refresh);
    }
});

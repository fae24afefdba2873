// Ctrl+K (or Cmd+K) on every page of the site: go to any page, twin, session, relay or message.
// A plain script in the head, like the theme's: it must not wait for modules.

(() => {
    const WAIT_MS = 120;
    const ADDRESS = "/console/search/";
    let dialog, input, list, note;
    let timer = 0;
    let asked = 0;
    let answered = null; // the text that the listed results belong to
    let current = -1;

    function make(tag, attributes, ...children) {
        const element = document.createElement(tag);
        for (const [name, value] of Object.entries(attributes)) {
            element.setAttribute(name, value);
        }
        element.append(...children);
        return element;
    }

    function build() {
        input = make("input", {
            type: "text", class: "c-palette-input", role: "combobox", autocomplete: "off",
            spellcheck: "false", maxlength: "200", placeholder: "Page, twin, session, relay, message",
            "aria-label": "Go to", "aria-controls": "palette-list", "aria-expanded": "true",
        });
        list = make("ul", { id: "palette-list", class: "c-palette-list", role: "listbox", "aria-label": "Found" });
        note = make("p", { class: "c-palette-note", role: "status" });
        dialog = make("dialog", { class: "c-dialog c-palette", "aria-label": "Go to" }, input, list, note);
        document.body.append(dialog);
        input.addEventListener("input", () => {
            clearTimeout(timer);
            timer = setTimeout(look, WAIT_MS);
        });
        dialog.addEventListener("keydown", steer);
        dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    }

    async function look() {
        const turn = ++asked;
        const text = input.value;
        try {
            const answer = await fetch(`${ADDRESS}?q=${encodeURIComponent(text)}`, {
                headers: { Accept: "application/json" },
            });
            if (answer.redirected) {
                throw new Error("sign in again");
            }
            if (!answer.ok) {
                throw new Error(answer.status === 403 ? "not for this account" : `the site answers ${answer.status}`);
            }
            const { hits } = await answer.json();
            if (turn === asked) {
                show(hits);
                answered = text;
            }
        } catch (error) {
            if (turn === asked) {
                show([]);
                answered = text;
                note.textContent = `No answer: ${error.message}`;
            }
        }
    }

    function show(hits) {
        list.replaceChildren(...hits.map((hit, index) => {
            const icon = make("span", { class: "material-symbols-outlined", "aria-hidden": "true" }, hit.icon);
            const title = make("span", { class: "c-hit-title" }, hit.title);
            const detail = make("span", { class: "c-hit-detail" }, hit.detail);
            const row = make("li", { id: `palette-${index}`, role: "option", class: "c-hit", "aria-selected": "false" }, icon, title, detail);
            row.dataset.href = hit.href;
            row.addEventListener("click", (event) => go(row, event.ctrlKey || event.metaKey));
            row.addEventListener("mousemove", () => choose(index));
            return row;
        }));
        note.textContent = hits.length ? "" : "Nothing is called that";
        choose(hits.length ? 0 : -1);
    }

    function choose(index) {
        list.children[current]?.setAttribute("aria-selected", "false");
        current = index;
        const row = list.children[index];
        if (row) {
            row.setAttribute("aria-selected", "true");
            row.scrollIntoView({ block: "nearest" });
            input.setAttribute("aria-activedescendant", row.id);
        } else {
            input.removeAttribute("aria-activedescendant");
        }
    }

    function steer(event) {
        const count = list.children.length;
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            if (count) {
                choose((current + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
            }
        } else if (event.key === "Enter") {
            event.preventDefault();
            follow(event.ctrlKey || event.metaKey);
        }
    }

    /** Opens the chosen result, or the first one if the operator types faster than answers arrive. */
    async function follow(beside) {
        const text = input.value;
        if (answered !== text) {
            clearTimeout(timer);
            await look();
        }
        if (dialog.open && answered === text && input.value === text && current >= 0) {
            go(list.children[current], beside);
        }
    }

    function go(row, beside) {
        if (beside) {
            window.open(row.dataset.href, "_blank", "noopener");
        } else {
            dialog.close();
            location.assign(row.dataset.href);
        }
    }

    function open() {
        dialog ?? build();
        if (!dialog.open) {
            input.value = "";
            answered = null;
            dialog.showModal();
            input.focus();
            look();
        }
    }

    window.addEventListener("keydown", (event) => {
        if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey) {
            event.preventDefault();
            open();
        }
    });
    document.addEventListener("click", (event) => {
        if (event.target.closest?.("[data-palette]")) {
            event.preventDefault();
            open();
        }
    });
})();

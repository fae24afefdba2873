// Links to a confirmation page (data-ask) open it as a dialog; without scripts they lead to the page.

const dialog = document.createElement("dialog");
dialog.className = "c-dialog";
document.body.append(dialog);

dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
        event.preventDefault();
        dialog.close();
    }
});

async function ask(link) {
    const address = new URL(link.href);
    address.searchParams.set("next", location.pathname + location.search);
    const answer = await fetch(address, { headers: { "HX-Target": "question" } });
    const question = new DOMParser()
        .parseFromString(await answer.text(), "text/html")
        .querySelector(".c-question");
    if (!answer.ok || answer.redirected || !question) {
        location.assign(address);
        return;
    }
    dialog.replaceChildren(question);
    dialog.setAttribute("aria-labelledby", "question-title");
    dialog.showModal();
    // A key pressed too early has no effect.
    (question.querySelector("input:not([type=hidden]), textarea, select")
        ?? question.querySelector("[data-close]"))?.focus();
}

document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-ask]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
        event.preventDefault();
        ask(link).catch(() => location.assign(link.href));
    }
});

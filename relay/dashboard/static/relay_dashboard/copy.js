// Buttons that copy a text that the table abbreviates (data-copy).

const SHOWN_MS = 1500;

async function copy(button) {
    try {
        await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
        // Browsers give pages without TLS no clipboard: select the text for the operator to copy.
        const cut = button.parentElement.querySelector(".c-cut");
        getSelection().selectAllChildren(cut);
        if (!document.execCommand("copy")) {
            return;
        }
    }
    button.dataset.copied = "";
    setTimeout(() => delete button.dataset.copied, SHOWN_MS);
}

document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) {
        copy(button);
    }
});

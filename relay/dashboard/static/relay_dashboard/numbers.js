// Updates the numbers of the page each second: <data data-series="messages_in" data-kind="rate">.

import { exact, write } from "./figures.js";

document.addEventListener("console:tick", ({ detail: { values } }) => {
    for (const place of document.querySelectorAll("[data-series]")) {
        const value = values[place.dataset.series] ?? null;
        const text = write(value, place.dataset.kind);
        if (place.textContent !== text) {
            place.textContent = text;
        }
        place.value = value ?? "";
        place.title = value === null ? "" : exact(value, place.dataset.kind);
    }
});

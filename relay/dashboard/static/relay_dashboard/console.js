// What every page of the console does beside what its HTML does by itself.

import "./copy.js";
import "./keys.js";
import "./live.js";
import "./numbers.js";
import "./refresh.js";
import "./questions.js";

// The admin's script writes the name of a chosen file into a text field that only its own forms have.
document.addEventListener("change", (event) => {
    if (event.target.matches(".c-page input[type=file]")) {
        event.stopPropagation();
    }
}, { capture: true });

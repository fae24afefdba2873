// Behaviour shared by all pages of the console.

import "./copy.js";
import "./keys.js";
import "./live.js";
import "./numbers.js";
import "./refresh.js";
import "./questions.js";

// The admin's script writes the name of a chosen file into a text field that other forms lack.
document.addEventListener("change", (event) => {
    if (event.target.matches(".c-page input[type=file]")) {
        event.stopPropagation();
    }
}, { capture: true });

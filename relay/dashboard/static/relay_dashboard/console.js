// What every page of the console does beside what its HTML does by itself.

import "./keys.js";
import "./live.js";
import "./numbers.js";
import "./refresh.js";
import "./questions.js";

// What every page of the console does beside what its HTML does by itself.

import "./live.js";
import "./numbers.js";
import "./refresh.js";
import "./questions.js";

// Help needs no login: it shows nothing of any project.

import { theme } from "./page.js";

theme();
document.documentElement.dataset.ready = "true";

import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/topology.css";
import "./styles/views/overview.css";
import "./styles/views/tables.css";
import "./styles/views/events.css";
import "./styles/views/transfers.css";
import "./styles/views/node.css";
import "./styles/views/session.css";
import "./styles/views/plan.css";

import { render } from "preact";

import { startClock } from "./parts/clock";
import { followAddress } from "./parts/route";
import { followDeviceTheme } from "./parts/theme";
import { connect } from "./state/connect";
import { Shell } from "./views/shell";

const page = document.getElementById("page");
if (page === null) throw new Error("index.html has no #page");

followAddress();
followDeviceTheme();
startClock();
connect();
render(<Shell />, page);

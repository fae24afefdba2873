// The charts of the overview. Their numbers are fetched once; after that each tick of the page's
// websocket adds to the last step of every line, or begins the next one.

import { write } from "./figures.js";

const HEIGHT = 200;
const AXIS_WIDTH = 70;
// After more seconds without a tick, only the server can fill the gap.
const MAX_GAP_S = 30;
const RETRY_MS = 5000;
const BINARY_STEPS = Array.from({ length: 52 }, (_, power) => 2 ** power);
const SHARE_FLOORS = [0.99, 0.9, 0];

const section = document.querySelector("[data-charts]");
const note = section.querySelector("[data-charts-note]");
const root = document.documentElement;
const colours = new Map();

const ROLL_UPS = {
    mean: (values) => values.reduce((sum, value) => sum + value, 0) / values.length,
    max: (values) => Math.max(...values),
    last: (values) => values.at(-1),
};

function colour(name) {
    if (!colours.has(name)) {
        colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
    }
    return colours.get(name);
}

const lineColour = (index) => colour(`--c-series-${index + 1}`);

/** A UTC time with the precision of a step. */
function clock(at, stepS) {
    const date = new Date(at * 1000);
    const options = { timeZone: "UTC", hourCycle: "h23" };
    if (stepS < 86400) {
        Object.assign(options, { hour: "2-digit", minute: "2-digit" });
    }
    if (stepS < 60) {
        options.second = "2-digit";
    }
    if (stepS >= 3600) {
        Object.assign(options, { day: "numeric", month: "short" });
    }
    if (stepS >= 28 * 86400) {
        delete options.day;
        options.year = "numeric";
    }
    return new Intl.DateTimeFormat("en-GB", options).format(date);
}

class Chart {
    constructor(figure) {
        this.name = figure.dataset.chart;
        this.kind = figure.dataset.kind;
        this.stacked = "stacked" in figure.dataset;
        this.legend = figure.querySelector("[data-legend]");
        this.place = figure.querySelector("[data-plot]");
        this.title = figure.querySelector("h3").textContent;
        this.visible = false;
        this.plot = null;
    }

    show(times, stepS, lines) {
        this.times = times;
        this.stepS = stepS;
        this.lines = lines.map((line) => ({ ...line, step: [] }));
        this.plot?.destroy();
        this.place.replaceChildren();
        this.#writeLegend();
        this.plot = new uPlot(this.#options(), this.#data(), this.place);
        const lasts = this.lines.map((line) => `${line.label} ${write(lastOf(line.values), this.kind)}`);
        this.place.setAttribute("aria-label", `${this.title}: ${lasts.join(", ")}`);
    }

    /** Adds the values of a second to their step. */
    add(isNew, values) {
        for (const line of this.lines) {
            const known = line.keys.map((key) => values[key]).filter((value) => value !== null && value !== undefined);
            if (isNew) {
                line.values.push(null);
                line.step = [];
            }
            if (known.length) {
                line.step.push(known.reduce((sum, value) => sum + value, 0));
                line.values[line.values.length - 1] = ROLL_UPS[line.roll_up](line.step);
            }
        }
    }

    drop(count) {
        this.lines.forEach((line) => line.values.splice(0, count));
    }

    draw() {
        if (this.visible && this.plot) {
            this.plot.setData(this.#data());
            this.#tell(this.plot.cursor.idx);
        }
    }

    resize() {
        this.plot?.setSize({ width: this.place.clientWidth, height: HEIGHT });
    }

    #data() {
        if (!this.stacked) {
            return [this.times, ...this.lines.map((line) => line.values)];
        }
        // Each line includes the sum of those after it: each is drawn over the one before.
        const sums = [];
        let below = this.times.map(() => null);
        for (const line of [...this.lines].reverse()) {
            below = below.map((sum, index) => {
                const value = line.values[index];
                return sum === null && value === null ? null : (sum ?? 0) + (value ?? 0);
            });
            sums.unshift(below);
        }
        return [this.times, ...sums];
    }

    #options() {
        const axis = {
            stroke: () => colour("--c-faint"),
            grid: { stroke: () => colour("--c-line"), width: 1 },
            ticks: { show: false },
            font: `11px ${getComputedStyle(this.place).fontFamily}`,
        };
        const binary = this.kind === "bytes" || this.kind === "byte_rate";
        return {
            width: this.place.clientWidth,
            height: HEIGHT,
            padding: [12, 12, 0, 0],
            legend: { show: false },
            tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
            cursor: {
                drag: { x: false, y: false },
                sync: { key: "charts" },
                points: { size: 6 },
            },
            scales: { x: { range: (plot, low, high) => [low, high] }, y: { range: (plot, low, high) => this.#range(low, high) } },
            axes: [
                { ...axis, size: 24, space: 76, values: (plot, splits, number, space, step) => splits.map((at) => clock(at, step)) },
                {
                    ...axis,
                    size: AXIS_WIDTH,
                    space: 36,
                    values: (plot, splits) => splits.map((value) => write(value, this.kind)),
                    ...(binary ? { incrs: BINARY_STEPS } : {}),
                },
            ],
            series: [{}, ...this.lines.map((line, index) => this.#series(line, index))],
            bands: this.stacked
                ? this.lines.slice(1).map((line, index) => ({ series: [index + 1, index + 2] }))
                : [],
            hooks: { setCursor: [(plot) => this.#tell(plot.cursor.idx)] },
        };
    }

    #series(line, index) {
        return {
            label: line.label,
            stroke: () => lineColour(index),
            width: this.stacked ? 1 : 1.5,
            // The background also distinguishes the first line from the second.
            fill: this.stacked || index === 0 ? () => lineColour(index) + (this.stacked ? "" : "1c") : undefined,
            // A value between two gaps has no line, so it is drawn as a point.
            points: { size: 4, fill: () => lineColour(index), show: true, filter: alone },
        };
    }

    #range(low, high) {
        if (this.kind === "share") {
            return [SHARE_FLOORS.find((floor) => (low ?? 0) >= floor), 1];
        }
        if (!high || high <= 0) {
            return [0, this.kind === "number" ? 4 : 1];
        }
        return [0, high * 1.08];
    }

    #writeLegend() {
        this.moment = document.createElement("li");
        this.moment.className = "c-legend-moment";
        this.legend.replaceChildren(
            ...this.lines.map((line, index) => {
                const item = document.createElement("li");
                const swatch = document.createElement("span");
                const value = document.createElement("output");
                swatch.className = `c-swatch c-swatch-${index + 1}${this.stacked || index === 0 ? " c-swatch-filled" : ""}`;
                value.className = "c-figure";
                item.append(swatch, ` ${line.label} `, value);
                line.output = value;
                return item;
            }),
            this.moment,
        );
        this.#tell(null);
    }

    /** Shows the values under the cursor, or the last ones without a cursor. */
    #tell(index) {
        for (const line of this.lines) {
            const value = index === null || index === undefined ? lastOf(line.values) : line.values[index];
            const text = write(value, this.kind);
            if (line.output.textContent !== text) {
                line.output.textContent = text;
            }
        }
        const at = this.times[index];
        this.moment.textContent = at === undefined ? "" : `${clock(at, this.stepS < 60 ? 1 : 3600)} UTC`;
    }
}

/** The last complete value: the present step is still being counted. */
function lastOf(values) {
    return values.at(-1) ?? values.at(-2) ?? null;
}

function alone(plot, number) {
    const values = plot.data[number];
    const found = [];
    for (let index = 0; index < values.length; index += 1) {
        const before = values[index - 1] ?? null;
        const after = values[index + 1] ?? null;
        if (values[index] !== null && before === null && after === null) {
            found.push(index);
        }
    }
    return found;
}

const charts = [...section.querySelectorAll("[data-chart]")].map((figure) => new Chart(figure));
let times = [];
let stepS = 0;
let lengthS = 0;
let loading = false;
let failedMs = 0;

async function load() {
    loading = true;
    try {
        const answer = await fetch(section.dataset.charts, { headers: { Accept: "application/json" } });
        if (!answer.ok || answer.redirected) {
            throw new Error(`answered ${answer.status}`);
        }
        const found = await answer.json();
        times = found.times;
        stepS = found.step_s;
        lengthS = times.at(-1) - times[0];
        for (const chart of charts) {
            chart.show(times, stepS, found.charts[chart.name].lines);
        }
        note.textContent = "";
        section.removeAttribute("data-old");
    } catch {
        failedMs = Date.now();
        note.textContent = "The numbers do not come, trying again";
        section.setAttribute("data-old", "");
    } finally {
        loading = false;
    }
}

document.addEventListener("console:tick", ({ detail: { at, values } }) => {
    if (loading || Date.now() - failedMs < RETRY_MS) {
        return;
    }
    const last = times.at(-1);
    if (last === undefined || at > last + stepS + MAX_GAP_S) {
        load();
        return;
    }
    const begin = at - (at % stepS);
    if (begin < last) {
        return;
    }
    const isNew = begin > last;
    if (isNew) {
        times.push(begin);
    }
    charts.forEach((chart) => chart.add(isNew, values));
    const old = times.findIndex((time) => time >= begin - lengthS);
    if (old > 0) {
        times.splice(0, old);
        charts.forEach((chart) => chart.drop(old));
    }
    if (document.visibilityState === "visible" && (isNew || at % 5 === 0)) {
        charts.forEach((chart) => chart.draw());
    }
});

// Only visible charts are redrawn.
const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
        const chart = charts.find((each) => each.place === entry.target);
        chart.visible = entry.isIntersecting;
        chart.draw();
    }
});
const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
        charts.find((each) => each.place === entry.target).resize();
    }
});
charts.forEach((chart) => {
    seen.observe(chart.place);
    sized.observe(chart.place);
});

// The colours follow the colour scheme, which the theme's menu also changes.
new MutationObserver(() => {
    colours.clear();
    charts.forEach((chart) => chart.plot?.redraw(false));
}).observe(root, { attributes: true, attributeFilter: ["class"] });

load();

// Formats numbers in scripts, by the rules of relay/dashboard/figures.py. The tests compare both with
// the same samples.

export const NONE = "-";

const DECIMAL = ["", " k", " M", " G", " T"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const UNITS = {
    rate: " each second",
    bytes: " bytes",
    byte_rate: " bytes each second",
    duration: " seconds",
    milliseconds: " milliseconds",
};

/** A value as text: `kind` is number, rate, bytes, byte_rate, duration (s), milliseconds or
 *  share (0 to 1). */
export function write(value, kind) {
    if (value === null || value === undefined || Number.isNaN(value)) {
        return NONE;
    }
    return Number.isFinite(value) ? WRITERS[kind](value) : "∞";
}

/** The exact value as text. */
export function exact(value, kind) {
    if (kind === "share") {
        return `${fixed(value * 100, 4)}%`;
    }
    return `${grouped(stripped(fixed(value, 6)))}${UNITS[kind] ?? ""}`;
}

/** A duration in at most two units. */
export function duration(seconds) {
    if (seconds < 0) {
        return `-${duration(-seconds)}`;
    }
    if (seconds > 0 && seconds < 1) {
        const milliseconds = seconds * 1000;
        return milliseconds >= 0.1 ? `${three(milliseconds)} ms` : "< 0.1 ms";
    }
    const whole = Math.trunc(seconds);
    const days = Math.floor(whole / 86400);
    const hours = Math.floor(whole / 3600) % 24;
    const minutes = Math.floor(whole / 60) % 60;
    if (days) {
        return hours && days < 10 ? `${days} d ${hours} h` : `${days} d`;
    }
    if (hours) {
        return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
    }
    return minutes ? `${minutes} min` : `${whole} s`;
}

function number(value) {
    if (value < 0) {
        return `-${number(-value)}`;
    }
    if (value < 10000) {
        return value >= 99.95 || Number.isInteger(value) ? grouped(fixed(value, 0)) : three(value);
    }
    let step = 0;
    while (value >= 999.5 && step < DECIMAL.length - 1) {
        value /= 1000;
        step += 1;
    }
    return three(value) + DECIMAL[step];
}

function bytes(value) {
    if (value < 0) {
        return `-${bytes(-value)}`;
    }
    let step = 0;
    while (value >= 1023.5 && step < BINARY.length - 1) {
        value /= 1024;
        step += 1;
    }
    return step === 0 ? `${fixed(value, 0)} B` : `${three(value)} ${BINARY[step]}`;
}

function share(value) {
    if (value > 0 && value < 0.0001) {
        return "< 0.01 %";
    }
    if (value > 0.9999 && value < 1) {
        return "> 99.99 %";
    }
    const close = value < 0.01 || value > 0.99;
    return `${stripped(fixed(value * 100, close ? 2 : 1))} %`;
}

function three(value) {
    if (value >= 99.95) {
        return fixed(value, 0);
    }
    return stripped(fixed(value, value >= 9.995 ? 1 : 2));
}

// As toFixed, but rounds a value exactly in the middle to the even digit, as Python does.
function fixed(value, digits) {
    const halves = value * 2 ** (digits + 1);
    if (Number.isSafeInteger(halves) && halves % 2 !== 0) {
        const scale = 10 ** digits;
        const below = Math.floor(value * scale);
        return ((below % 2 === 0 ? below : below + 1) / scale).toFixed(digits);
    }
    return value.toFixed(digits);
}

function stripped(text) {
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function grouped(text) {
    const [whole, part] = text.split(".");
    const shown = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return part === undefined ? shown : `${shown}.${part}`;
}

const WRITERS = {
    number,
    rate: (value) => `${number(value)}/s`,
    bytes,
    byte_rate: (value) => `${bytes(value)}/s`,
    duration,
    milliseconds: (value) => duration(value / 1000),
    share,
};

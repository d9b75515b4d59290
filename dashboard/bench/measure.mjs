/**
 * What a person waits for at the dashboard, measured in Chromium. Prints one JSON
 * object; `scripts/bench/dashboard.py` starts it and writes what it prints.
 *
 * node dashboard/bench/measure.mjs --fleet PROGRAM [--rounds 5] [--events 40] [--nodes 50]
 * [--seconds 10]
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";

import { chromium } from "playwright-core";

const { values } = parseArgs({
  options: {
    fleet: { type: "string" },
    rounds: { type: "string", default: "5" },
    events: { type: "string", default: "40" },
    nodes: { type: "string", default: "50" },
    seconds: { type: "string", default: "10" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
/** Times that frames are counted, of which the median is told. */
const STREAMING_ROUNDS = 3;
const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
const TINY = fileURLToPath(new URL("../../engine/shipped/tiny", import.meta.url));
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const browser = await chromium.launch({ executablePath: values.chromium, args: FLAGS });
const report = {
  browser: `Chromium ${browser.version()}`,
  javascript: javascript(),
  first_page_seconds: await firstPages(Number(values.rounds)),
  update_milliseconds: await updates(Number(values.events)),
  streaming: await streaming(Number(values.nodes), Number(values.seconds)),
};
await browser.close();
process.stdout.write(`${JSON.stringify(report)}\n`);

/** Bytes of the scripts that the first view takes, as built and by gzip; those of all views by gzip. */
function javascript() {
  const folder = `${DIST}page/assets/`;
  const names = readdirSync(folder).filter((name) => name.endsWith(".js"));
  const all = [...names.map((name) => folder + name), `${DIST}page/theme.js`];
  const document = readFileSync(`${DIST}page/index.html`, "utf8");
  const first = all.filter((path) => document.includes(path.slice(`${DIST}page`.length)));
  const zipped = (paths) =>
    paths.reduce((sum, path) => sum + gzipSync(readFileSync(path), { level: 9 }).length, 0);
  return {
    bytes: first.reduce((sum, path) => sum + readFileSync(path).length, 0),
    gzip_bytes: zipped(first),
    all_views_gzip_bytes: zipped(all),
  };
}

/** Seconds from the start of `fleet dashboard` to the node's name on the screen. */
async function firstPages(rounds) {
  const fleet = await synthetic(3);
  const seconds = [];
  for (let round = 0; round < rounds; round += 1) {
    // The person's browser runs; its tab is new.
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    const began = performance.now();
    const board = await program(values.fleet, [
      "dashboard",
      "--json",
      "--no-open",
      "--node",
      fleet.ready.address,
    ]);
    await page.goto(board.ready.url, { waitUntil: "commit" });
    await painted(page, fleet.ready.nodes[0].name);
    seconds.push((performance.now() - began) / 1000);
    await page.close();
    await board.end();
  }
  await fleet.end();
  return seconds;
}

/** Milliseconds from an event on a node to the frame that shows it. */
async function updates(count) {
  const fleet = await synthetic(12);
  const board = await boardOf(fleet.ready.address);
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await page.goto(`${board.ready.url}#/events`);
  await painted(page, "joined the fleet");
  // What a page does once is not what it does all the time.
  await page.waitForTimeout(3000);
  await page.evaluate(() => {
    window.shownAt = {};
    const look = () => {
      for (const [word] of document.body.textContent.matchAll(/told-\d+-/g)) {
        window.shownAt[word] ??= Date.now();
      }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  const told = {};
  for (let number = 0; number < count; number += 1) {
    const node = fleet.ready.nodes[number % fleet.ready.nodes.length];
    const word = `told-${number}-`;
    told[word] = (await fleet.ask({ tell: node.name, message: word })).at;
    await page.waitForTimeout(50);
  }
  await page.waitForFunction((last) => window.shownAt[last], `told-${count - 1}-`);
  const shown = await page.evaluate(() => window.shownAt);
  await page.close();
  await board.end();
  await fleet.end();
  return Object.entries(told).map(([word, at]) => shown[word] - at);
}

/** Frames while many nodes stream, of an empty page and of the dashboard in turn. */
async function streaming(nodes, seconds) {
  const fleet = await synthetic(nodes);
  const board = await boardOf(fleet.ready.address);
  const windows = [];
  const empty = [];
  for (let round = 0; round < STREAMING_ROUNDS; round += 1) {
    // What this machine can show at best while the same nodes stream.
    const blank = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await blank.waitForTimeout(1000);
    empty.push(await framesOf(blank, seconds * 1000));
    await blank.close();
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await page.goto(board.ready.url);
    await painted(page, fleet.ready.nodes[nodes - 1].name);
    // What a page does once is not what it does all the time.
    await page.waitForTimeout(3000);
    windows.push(await framesOf(page, seconds * 1000));
    await page.close();
  }
  await board.end();
  await fleet.end();
  const all = windows.flatMap((each) => each.gaps);
  const tasks = windows.flatMap((each) => each.tasks);
  const rates = windows.map(rate);
  const emptyRates = empty.map(rate);
  return {
    nodes,
    seconds,
    rounds: STREAMING_ROUNDS,
    frames_per_second: quantile(rates, 0.5),
    frames_per_second_all: rates,
    empty_page_frames_per_second: quantile(emptyRates, 0.5),
    empty_page_frames_per_second_all: emptyRates,
    frame_milliseconds_p50: quantile(all, 0.5),
    frame_milliseconds_p95: quantile(all, 0.95),
    long_task_count: tasks.length,
    longest_task_milliseconds: Math.max(0, ...tasks),
  };
}

/** Frames a second. */
function rate({ gaps }) {
  return (gaps.length * 1000) / gaps.reduce((sum, gap) => sum + gap, 0);
}

/** Milliseconds between the page's frames, and of its long tasks, for so long. */
async function framesOf(page, milliseconds) {
  const { frames, tasks } = await page.evaluate(async (lasting) => {
    const tasks = [];
    const watching = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) tasks.push(entry.duration);
    });
    watching.observe({ type: "longtask" });
    const frames = [];
    await new Promise((resolve) => {
      const began = performance.now();
      const frame = (at) => {
        frames.push(at);
        if (performance.now() - began < lasting) requestAnimationFrame(frame);
        else resolve();
      };
      requestAnimationFrame(frame);
    });
    watching.disconnect();
    return { frames, tasks };
  }, milliseconds);
  return { gaps: frames.slice(1).map((at, index) => at - frames[index]), tasks };
}

/** Waits until `text` is in the page and a frame with it was shown. */
async function painted(page, text) {
  await page.waitForFunction((wanted) => document.body?.textContent.includes(wanted), text);
  await page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  );
}

function synthetic(nodes) {
  return program(process.execPath, [
    `${DIST}synthetic/main.mjs`,
    "--nodes",
    String(nodes),
    "--model-folder",
    TINY,
  ]);
}

function boardOf(address) {
  return program(process.execPath, [
    `${DIST}server/main.mjs`,
    "--end-with-input",
    "--node",
    address,
  ]);
}

/** Starts a program that says JSON lines; answers its first. */
async function program(path, args) {
  const child = spawn(path, args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const [first] = await once(lines, "line");
  return {
    ready: JSON.parse(first),
    async ask(command) {
      child.stdin.write(`${JSON.stringify(command)}\n`);
      const [line] = await once(lines, "line");
      return JSON.parse(line);
    },
    async end() {
      const ended = once(child, "exit");
      child.stdin.end();
      child.kill("SIGTERM");
      await ended;
    },
  };
}

function quantile(numbers, share) {
  const sorted = [...numbers].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

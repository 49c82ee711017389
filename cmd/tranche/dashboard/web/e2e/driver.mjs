// Drives a browser for tests in Go: a line of JSON with an operation comes in, and a line with
// its answer goes out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const timeout = Number(process.env.BROWSER_TIMEOUT || 240000);
const tabs = new Map();

const operations = {
  /** A tab of its own: with cookies, headers and settings of its own. */
  async tab({ tab, width = 1280, height = 900, dark = false, headers = {} }) {
    const context = await browser.newContext({
      viewport: { width, height }, colorScheme: dark ? "dark" : "light", extraHTTPHeaders: headers, reducedMotion: "reduce",
    });
    const page = await context.newPage();
    page.setDefaultTimeout(timeout);
    const errors = [];
    page.on("console", (m) => ["error", "warning"].includes(m.type()) && errors.push(m.text() + " " + m.location().url));
    page.on("pageerror", (e) => errors.push(String(e)));
    tabs.set(tab, { page, context, errors });
  },
  goto: async ({ tab, url }) => (await tabs.get(tab).page.goto(url)).status(),
  click: ({ tab, role, name, nth = 0 }) => tabs.get(tab).page.getByRole(role, { name }).nth(nth).click(),
  fill: ({ tab, selector, text }) => tabs.get(tab).page.fill(selector, text),
  /** Waits until the text of an element has all of the texts. */
  see: ({ tab, selector = "main", texts }) =>
    tabs.get(tab).page.waitForFunction(
      ([selector, texts]) => {
        const text = document.querySelector(selector)?.innerText.replace(/\s+/g, " ") ?? "";
        return texts.every((t) => text.includes(t));
      },
      [selector, texts],
      { polling: 50 },
    ).then(() => null, async (e) => {
      throw new Error(`${e}; ${selector} has: ${await tabs.get(tab).page.locator(selector).first().innerText().catch(String)}`);
    }),
  text: ({ tab, selector = "body" }) => tabs.get(tab).page.innerText(selector),
  run: ({ tab, script }) => tabs.get(tab).page.evaluate(script),
  offline: ({ tab, offline }) => tabs.get(tab).context.setOffline(offline),
  picture: async ({ tab, path, full = false }) => void (await tabs.get(tab).page.screenshot({ path, fullPage: full, animations: "disabled" })),
  errors: ({ tab }) => tabs.get(tab).errors.splice(0),
  async axe({ tab }) {
    const { page } = tabs.get(tab);
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.target} ${n.html.slice(0, 160)}`));
  },
  close: async ({ tab }) => {
    await tabs.get(tab).context.close();
    tabs.delete(tab);
  },
};

process.stdout.write('{"value":"ready"}\n');
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { op, ...args } = JSON.parse(line);
    answer = { value: (await operations[op](args)) ?? null };
  } catch (e) {
    answer = { error: String(e) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();

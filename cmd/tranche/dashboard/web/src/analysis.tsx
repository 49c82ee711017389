import type { Analysis as Document, Evidence, Metric, Window } from "./model";
import { Badge } from "./parts";

const verdictText = (m: { verdict?: string; tone: string }) =>
  m.verdict === "Pass" ? "passes" : m.verdict === "Fail" ? "fails" : m.tone === "busy" ? "measuring" : "unknown";

/** words makes words of a reason: AboveMax becomes above max. */
export const words = (reason?: string) => (reason ?? "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

const clock = (t: string) => new Date(t).toLocaleTimeString();

/** tick returns a value of the axis in few characters. */
function tick(kind: Metric["kind"], v: number): string {
  if (kind === "check") return v > 0.5 ? "passed" : "failed";
  const text = String(Number((kind === "proportion" ? v * 100 : v).toPrecision(3)));
  return kind === "proportion" ? text + " %" : text;
}

const left = 74;
const right = 466;
const top = 14;
const bottom = 132;

/** Chart draws both revisions as lines, a point for each window. A window without a value is a
 *  gap in the lines, and is marked. */
function Chart({ metric }: { metric: Metric }) {
  const { windows, kind } = metric;
  const check = kind === "check";
  const limits = [metric.max, metric.min].filter((l) => !!l);
  const values = windows.flatMap((w) => [w.update, w.stable]).filter((v) => v !== undefined);
  const all = check ? [0, 1] : [...values, ...limits.map((l) => l.value)];
  const low = Math.min(0, ...all);
  const high = Math.max(...all, low === 0 && Math.max(...all) <= 0 ? 1 : low);
  const y = (v: number) => bottom - (bottom - top) * ((v - low) / (high - low || 1));
  const slot = (right - left) / Math.max(windows.length, 3);
  const x = (i: number) => left + slot * (i + 0.5);
  const line = (of: (w: Window) => number | undefined) =>
    windows
      .map((w, i) => {
        const v = of(w);
        if (v === undefined) return "";
        const before = windows[i - 1];
        const joined = before && w.n === before.n + 1 && of(before) !== undefined;
        return `${joined ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      })
      .join("");
  const every = Math.ceil(windows.length / 12);
  return (
    <svg class="chart" viewBox="0 0 480 164" role="img" aria-label={`${metric.name}: both revisions in each window; the values are in the table below`}>
      {windows.map((w, i) => (
        <g key={w.n}>
          <rect x={left + slot * i} y={top - 8} width={slot} height={bottom - top + 8} class={w.reason ? "unknown" : i % 2 ? "odd" : "even"} />
          {w.reason && (
            <text x={x(i)} y={(top + bottom) / 2} text-anchor="middle" class="unknown-sign">
              ?
            </text>
          )}
          {i % every === 0 && (
            <text x={x(i)} y={bottom + 15} text-anchor="middle">
              {w.n}
            </text>
          )}
        </g>
      ))}
      <line x1={left} x2={right} y1={bottom} y2={bottom} class="rail" />
      <text x={left - 6} y={bottom + 4} text-anchor="end">{tick(kind, low)}</text>
      <text x={left - 6} y={top + 4} text-anchor="end">{tick(kind, high)}</text>
      {limits.map((l) => (
        <line key={l.text} x1={left} x2={right} y1={y(l.value)} y2={y(l.value)} class="limit" />
      ))}
      <path d={line((w) => w.stable)} class="stable" />
      <path d={line((w) => w.update)} class="update" />
      {windows.map((w, i) => (
        <g key={w.n}>
          {w.stable !== undefined && <rect x={x(i) - 3.5} y={y(w.stable) - 3.5} width="7" height="7" class="stable" />}
          {w.update !== undefined && <circle cx={x(i)} cy={y(w.update)} r="4.5" class="update" />}
        </g>
      ))}
      <text x={(left + right) / 2} y="160" text-anchor="middle">window</text>
    </svg>
  );
}

/** Legend names the lines by their shapes. */
function Legend({ metric }: { metric: Metric }) {
  const limits = [metric.max && `max ${metric.max.text}`, metric.min && `min ${metric.min.text}`].filter(Boolean);
  return (
    <ul class="legend">
      <li>
        <svg viewBox="0 0 28 10" width="28" height="10" class="chart" aria-hidden="true">
          <path d="M0 5H28" class="update" />
          <circle cx="14" cy="5" r="4" class="update" />
        </svg>
        new {metric.update || "–"}
      </li>
      {metric.kind !== "check" && (
        <li>
          <svg viewBox="0 0 28 10" width="28" height="10" class="chart" aria-hidden="true">
            <path d="M0 5H28" class="stable" />
            <rect x="10.5" y="1.5" width="7" height="7" class="stable" />
          </svg>
          stable {metric.stable || "–"}
          {metric.recorded ? ", of earlier steps" : ""}
        </li>
      )}
      {limits.length > 0 && (
        <li>
          <svg viewBox="0 0 28 10" width="28" height="10" class="chart" aria-hidden="true">
            <path d="M0 5H28" class="limit" />
          </svg>
          {limits.join(", ")}
        </li>
      )}
    </ul>
  );
}

function Windows({ metric }: { metric: Metric }) {
  const { windows } = metric;
  return (
    <details>
      <summary>
        {windows.length === 1 ? `Window ${windows[0].n}` : `Windows ${windows[0].n} to ${windows[windows.length - 1].n}`}
        {(metric.planned ?? 0) >= windows[windows.length - 1].n ? ` of ${metric.planned}` : ""}
      </summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Windows of ${metric.name}`}>
        <table class="windows">
          <thead>
            <tr>
              <th scope="col">Window</th>
              <th scope="col">New</th>
              <th scope="col">Stable</th>
            </tr>
          </thead>
          <tbody>
            {windows.map((w) => (
              <tr key={w.n}>
                <th scope="row">
                  {w.n}
                  <span class="faint">
                    {w.from ? clock(w.from) + " – " : ""}
                    {clock(w.to)}
                  </span>
                </th>
                {w.reason ? (
                  <td colSpan={2}>
                    unknown: {words(w.reason)}
                    {w.message && <span class="faint"> {w.message}</span>}
                  </td>
                ) : (
                  <>
                    <td>{w.updateText || "–"}</td>
                    <td>{w.stableText || "–"}</td>
                  </>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

function MetricCard({ metric }: { metric: Metric }) {
  const counts = metric.count < (metric.planned ?? 0) ? `${metric.count} of ${metric.planned} windows` : `${metric.count} ${metric.count === 1 ? "window" : "windows"}`;
  return (
    <li class="metric">
      <h3>
        <span>{metric.name}</span>
        <Badge tone={metric.tone}>{verdictText(metric)}</Badge>
      </h3>
      <p class="faint small">
        {metric.reason && metric.reason !== "Measuring" ? words(metric.reason) + "; " : ""}
        {counts}
        {metric.unknown ? `, ${metric.unknown} unknown` : ""}
        {metric.p ? `; p = ${metric.p}` : ""}
        {metric.background ? "; in the background of all steps" : ""}
      </p>
      {metric.compare && <p class="faint small">{metric.compare}</p>}
      {metric.pending && <p class="warn small">The next window has no answer yet: {metric.pending}</p>}
      {metric.windows.length > 0 && <Chart metric={metric} />}
      <Legend metric={metric} />
      {metric.windows.length > 0 && <Windows metric={metric} />}
    </li>
  );
}

/** Verdicts are what was measured at steps that are over, in words. */
export function Verdicts({ list }: { list: Evidence[] }) {
  return (
    <ul class="verdicts">
      {list.map((e, i) => (
        <li key={i}>
          <strong>
            {e.name} {verdictText({ verdict: e.verdict, tone: "" })}
          </strong>{" "}
          <span class="faint">
            at step {e.step}
            {e.reason ? `: ${words(e.reason)}` : ""}
            {e.update || e.stable ? `; new ${e.update || "–"}, stable ${e.stable || "–"}` : ""}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Analysis is what a gate measures, with both revisions in each window. */
export function Analysis({ analysis }: { analysis: Document }) {
  return (
    <section class="card" aria-labelledby="analysis">
      <h2 id="analysis">
        Analysis of step {analysis.step} <Badge tone={analysis.tone}>{verdictText(analysis)}</Badge>
      </h2>
      {analysis.message && <p>{analysis.message}</p>}
      {analysis.observes && <p class="faint">It only observes: no gate depends on it.</p>}
      <ul class="metrics">
        {analysis.metrics.map((m) => (
          <MetricCard key={m.name + m.background} metric={m} />
        ))}
      </ul>
      {analysis.earlier && (
        <>
          <h3>Earlier steps</h3>
          <Verdicts list={analysis.earlier} />
        </>
      )}
    </section>
  );
}

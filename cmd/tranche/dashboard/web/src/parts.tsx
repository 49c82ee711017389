import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { lasts, type Row, type Tone } from "./model";

/** words are what a reason is called on the page. */
const words: Record<string, string> = {
  WaitingForApproval: "Waiting for approval",
  WaitingForReview: "Waiting for review",
  WaitingForPause: "Pausing",
  ReleasePaused: "Paused",
  ReleaseCompleted: "Complete",
  RollingBack: "Rolling back",
  RolledBack: "Rolled back",
  TakingHold: "Starting",
  HandingBack: "Finishing",
  ProgressDeadlineExceeded: "Stuck",
  NativeRollout: "First rollout",
  ScaledToZero: "Scaled to zero",
};

export const reasonText = (reason: string) => words[reason] ?? (reason.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`) || "New");

/** The sign of a tone. Its shape says the same as its colour. */
function Sign({ tone }: { tone: Tone }) {
  return (
    <svg class={`sign ${tone}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      {tone === "good" && <path d="M3.5 8.5l3 3 6-7" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />}
      {tone === "waits" && <path d="M5.5 4v8M10.5 4v8" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />}
      {tone === "busy" && <path d="M3 8h9M8.5 4.5L12 8l-3.5 3.5" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />}
      {tone === "bad" && <path d="M8 3.5v5.5M8 12v.2" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />}
    </svg>
  );
}

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      <Sign tone={tone} />
      <span>{children}</span>
    </span>
  );
}

export const Status = ({ row }: { row: Row }) => <Badge tone={row.tone}>{reasonText(row.reason)}</Badge>;

/** useClock makes a component anew as time goes by. */
export function useClock(every = 1000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export function Ago({ at, now }: { at?: string; now: number }) {
  if (!at) return <span class="faint">–</span>;
  const t = new Date(at);
  return (
    <time dateTime={at} title={t.toLocaleString()}>
      {lasts(now - t.getTime())} ago
    </time>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, set] = useState(false);
  return (
    <button
      type="button"
      class="quiet"
      onClick={async () => {
        await navigator.clipboard.writeText(text);
        set(true);
        setTimeout(() => set(false), 1500);
      }}
    >
      {done ? "Copied" : label}
    </button>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre tabIndex={0} aria-label="command">
        <code>{text}</code>
      </pre>
      <Copy text={text} />
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="nothing">
      <svg viewBox="0 0 48 48" width="44" height="44" aria-hidden="true">
        <rect x="8" y="26" width="8" height="14" rx="2" />
        <rect x="20" y="18" width="8" height="22" rx="2" />
        <rect x="32" y="10" width="8" height="30" rx="2" />
      </svg>
      <p class="strong">{title}</p>
      {children && <p class="faint">{children}</p>}
    </div>
  );
}

/** Track is the line of steps of a row: a dot for each, and how far it is. */
export function Track({ row }: { row: Row }) {
  const complete = row.phase === "Completed";
  const at = complete ? row.steps : row.step;
  const width = 14 * row.steps;
  const text = row.rollingBack ? "rolling back" : complete ? "complete" : `step ${row.step} of ${row.steps}`;
  if (row.steps > 12) return <span>{text}</span>;
  return (
    <svg class="track" viewBox={`0 0 ${width} 14`} width={width} height="14" role="img" aria-label={text}>
      <line x1="7" y1="7" x2={width - 7} y2="7" class="rail" />
      {at > 0 && row.steps > 1 && <line x1="7" y1="7" x2={7 + 14 * Math.min(at, row.steps - 1)} y2="7" class="rail done" />}
      {Array.from({ length: row.steps }, (_, i) => (
        <circle key={i} cx={7 + 14 * i} cy="7" r={i === at ? 4.5 : 3.5} class={i < at ? "done" : i === at ? `now ${row.tone}` : "ahead"} />
      ))}
    </svg>
  );
}

/** Share is how many pods run the new revision. */
export function Share({ row }: { row: Row }) {
  const of = Math.max(1, row.replicas);
  return (
    <span class="share">
      <svg viewBox="0 0 64 8" width="64" height="8" aria-hidden="true">
        <rect width="64" height="8" rx="4" class="rest" />
        <rect width={(64 * Math.min(row.updated, of)) / of} height="8" rx="4" class="begun" />
        <rect width={(64 * Math.min(row.available, of)) / of} height="8" rx="4" class="new" />
      </svg>
      <span class="number">
        {row.updated}/{row.replicas}
      </span>
    </span>
  );
}

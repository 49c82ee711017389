import { useEffect, useRef, useState } from "preact/hooks";
import type { Action, Release } from "./model";
import { Command } from "./parts";

interface Proposal {
  diff: string;
  branch: string;
  remote: string;
  author: string;
  said?: string;
  ahead?: number;
  digest: string;
}

const labels: Record<Action["verb"], (a: Action) => string> = {
  approve: (a) => `Approve step ${a.step ?? 0}`,
  resume: () => "Resume",
  pause: () => "Pause",
  rollback: () => "Roll back",
};

async function post(release: Release, action: Action, digest = "") {
  const answer = await fetch("/api/act", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ verb: action.verb, namespace: release.namespace, name: release.name, step: action.step ?? 0, digest }),
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function Diff({ text }: { text: string }) {
  const kind = (line: string) =>
    line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ") ? "file" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "place" : "";
  return (
    <pre class="diff" tabIndex={0} aria-label="the change">
      {text.split("\n").map((line, i) => (
        <span key={i} class={kind(line)}>
          {line + "\n"}
        </span>
      ))}
    </pre>
  );
}

/** Decision shows what an action would commit, and asks. */
function Decision({ release, action, onClose }: { release: Release; action: Action; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [proposal, setProposal] = useState<Proposal>();
  const [error, setError] = useState("");
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const fail = (e: unknown) => setError(e instanceof Error ? e.message : String(e));
  useEffect(() => {
    dialog.current?.showModal();
    post(release, action).then(setProposal).catch(fail);
  }, []);
  const commit = async () => {
    setBusy(true);
    setError("");
    try {
      setSaid((await post(release, action, proposal!.digest)).said);
    } catch (e) {
      fail(e);
    }
    setBusy(false);
  };
  return (
    <dialog ref={dialog} aria-labelledby="decision" onClose={onClose}>
      <h2 id="decision">
        {labels[action.verb](action)} of {release.name}
      </h2>
      {!proposal && !error && <p class="faint">Preparing the commit …</p>}
      {proposal && !said && (
        <>
          <p>
            Commits as <strong>{proposal.author}</strong> to <code>{proposal.branch}</code>, and pushes to <code>{proposal.remote}</code>.
          </p>
          {proposal.ahead ? <p class="warn">{proposal.ahead} more commits of the clone are pushed with it.</p> : null}
          {proposal.said && <p class="pre">{proposal.said}</p>}
          <Diff text={proposal.diff} />
        </>
      )}
      <div role="status">{said && <p class="pre said">{said}</p>}</div>
      <div role="alert">{error && <p class="warn pre">{error}</p>}</div>
      <div class="buttons">
        {proposal && !said && (
          <button type="button" class="primary" disabled={busy} onClick={commit}>
            {busy ? "Pushing …" : "Commit and push"}
          </button>
        )}
        <button type="button" onClick={() => dialog.current?.close()}>
          {said || error ? "Close" : "Cancel"}
        </button>
      </div>
    </dialog>
  );
}

/** Decide offers what can be done, with the reasons of what cannot. */
export function Decide({ release }: { release: Release }) {
  const [open, set] = useState<Action>();
  const actions = release.actions;
  if (!actions?.list?.length) return null;
  const offered = actions.list.filter((a) => !a.refused);
  const refused = actions.list.filter((a) => a.refused);
  return (
    <div class="decide">
      {actions.inClone && offered.length > 0 && (
        <div class="buttons">
          {offered.map((a) => (
            <button type="button" key={a.verb} class={a.verb === "approve" || a.verb === "resume" ? "primary" : ""} onClick={() => set(a)}>
              {labels[a.verb](a)}
            </button>
          ))}
        </div>
      )}
      {refused.length > 0 && (
        <ul class="refused">
          {refused.map((a) => (
            <li key={a.verb}>
              <strong>{labels[a.verb](a)}</strong> <span class="faint">is not possible: {a.refused}</span>
            </li>
          ))}
        </ul>
      )}
      {!actions.inClone && offered.length > 0 && (
        <>
          {actions.forge && (
            <p>
              <a href={actions.forge} target="_blank" rel="noreferrer">
                Commit the approval on the forge
              </a>
            </p>
          )}
          <details>
            <summary>In a clone of the repository</summary>
            {offered.map((a) => (
              <Command key={a.verb} text={a.command} />
            ))}
            <p class="faint small">Started in a clone, the dashboard shows the change and commits it as you: {actions.elsewhere}</p>
          </details>
        </>
      )}
      {open && <Decision key={open.verb} release={release} action={open} onClose={() => set(undefined)} />}
    </div>
  );
}

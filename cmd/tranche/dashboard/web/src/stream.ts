import type { Me, Message } from "./model";

export type Live = "connecting" | "live" | "cut" | "ended";

/** silence is how long a stream may say nothing, in milliseconds: the server says each 5 seconds that it goes on. */
const silence = 15000;

/** whoReads asks who the reader is. It fails if the server does not know that now. */
export async function whoReads(): Promise<Me> {
  const answer = await fetch("/api/me");
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

/** Stream follows the server. The browser opens it again by itself, and goes on at the last
 *  number; another page of this tab goes on there, too. */
export class Stream {
  private source?: EventSource;
  private last = "";
  private want?: string;
  private timer?: number;
  private heard?: number;
  /** When the server was heard last, by the clock of the browser. */
  heardAt = 0;

  constructor(
    private onMessage: (m: Message) => void,
    private onLive: (l: Live) => void,
    private onTime: (now: string) => void,
  ) {}

  open(release?: string) {
    if (this.source && this.want === release) return;
    this.want = release;
    this.close();
    const query = new URLSearchParams();
    if (release) query.set("release", release);
    if (this.last) query.set("after", this.last);
    if (!this.last) this.onLive("connecting");
    const source = new EventSource("/api/stream?" + query);
    this.source = source;
    source.onopen = () => {
      this.hears();
      this.onLive("live");
    };
    source.addEventListener("beat", (e) => {
      if (this.source !== source) return;
      this.hears();
      this.onTime(e.data);
    });
    source.onmessage = (e) => {
      if (this.source !== source) return;
      this.hears();
      this.last = e.lastEventId;
      this.onMessage(JSON.parse(e.data) as Message);
    };
    source.addEventListener("end", () => this.end());
    source.onerror = () => {
      if (this.source !== source) return;
      if (source.readyState !== EventSource.CLOSED) return this.onLive("cut");
      void this.ask(source);
    };
  }

  /** ask finds out whether the server has gone, or does not know the reader any more. */
  private async ask(source: EventSource) {
    try {
      const me = await whoReads();
      if (this.source !== source) return;
      if (!me.user) return this.end();
    } catch {
      if (this.source !== source) return; // The server does not answer.
    }
    this.onLive("cut");
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.reopen(), 2000);
  }

  /** hears notes that the stream goes on. One that is silent for too long is opened again: a
   *  connection that was lost on the way tells nothing. */
  private hears() {
    this.heardAt = Date.now();
    window.clearTimeout(this.heard);
    this.heard = window.setTimeout(() => {
      this.onLive("cut");
      this.reopen();
    }, silence);
  }

  private reopen() {
    const want = this.want;
    this.close();
    this.open(want);
  }

  private end() {
    this.close();
    this.onLive("ended");
  }

  close() {
    window.clearTimeout(this.timer);
    window.clearTimeout(this.heard);
    this.source?.close();
    this.source = undefined;
  }
}

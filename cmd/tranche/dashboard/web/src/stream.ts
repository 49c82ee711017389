import type { Message } from "./model";

export type Live = "connecting" | "live" | "cut" | "ended";

/** Stream follows the server. The browser opens it again by itself, and goes on at the last
 *  number; another page of this tab goes on there, too. */
export class Stream {
  private source?: EventSource;
  private last = "";
  private want?: string;
  private timer?: number;

  constructor(private onMessage: (m: Message) => void, private onLive: (l: Live) => void) {}

  open(release?: string) {
    if (this.source && this.want === release) return;
    this.want = release;
    this.close();
    const query = new URLSearchParams();
    if (release) query.set("release", release);
    if (this.last) query.set("after", this.last);
    this.onLive("connecting");
    const source = new EventSource("/api/stream?" + query);
    this.source = source;
    source.onopen = () => this.onLive("live");
    source.onmessage = (e) => {
      if (this.source !== source) return;
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
      const me = await (await fetch("/api/me")).json();
      if (this.source !== source) return;
      if (!me.user) return this.end();
    } catch {
      // The server does not answer.
    }
    this.onLive("cut");
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const want = this.want;
      this.close();
      this.open(want);
    }, 2000);
  }

  private end() {
    this.close();
    this.onLive("ended");
  }

  close() {
    window.clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
  }
}

interface SseEvents {
  onData: (data: string) => void;
  /**
   * Called for lines that begin with a colon, without the colon. The gateway reports in them what a stream waits for.
   */
  onComment: (comment: string) => void;
}

/**
 * Maximum length of an event. A longer one is refused before it fills the tab's memory. A picture in base64 is shorter.
 */
const EVENT_MAX_CHARS = 32 * 1024 * 1024;

/** Server-sent events (WHATWG HTML §9.2) of a POST, which EventSource cannot send. */
export class SseReader {
  readonly #events: SseEvents;
  #rest = '';

  constructor(events: SseEvents) {
    this.#events = events;
  }

  /** @throws Error if an event is longer than EVENT_MAX_CHARS */
  push(text: string): void {
    this.#rest += text;
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r/.exec(this.#rest);
      if (end === null) break;
      const event = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      this.#take(event);
    }
    if (this.#rest.length > EVENT_MAX_CHARS) throw new Error('an event of the answer does not end');
  }

  #take(event: string): void {
    const data: string[] = [];
    for (const line of event.split(/\r\n|\n|\r/)) {
      if (line.startsWith(':')) this.#events.onComment(line.slice(1).trim());
      else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
    }
    if (data.length > 0) this.#events.onData(data.join('\n'));
  }
}

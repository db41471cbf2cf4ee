/** Server-sent events (WHATWG HTML §9.2) of a POST, which EventSource cannot send: the `data` of each. */
export class SseReader {
  readonly #onData: (data: string) => void;
  #rest = '';

  constructor(onData: (data: string) => void) {
    this.#onData = onData;
  }

  push(text: string): void {
    this.#rest += text;
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r/.exec(this.#rest);
      if (end === null) return;
      const event = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      const data = event
        .split(/\r\n|\n|\r/)
        .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []));
      if (data.length > 0) this.#onData(data.join('\n'));
    }
  }
}

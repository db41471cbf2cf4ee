/**
 * Bytes that are being written to the file store and are in no row yet: concurrent uploads must not each count the same
 * free quota.
 */

/** Longest time that bytes are counted: after a disconnect a Worker may never report the end. */
const RETENTION_MS = 3_600_000;
/** The multipart text around one file is shorter than this. */
const FORM_BYTES = 4_096;

interface Place {
  bytes: number;
  endsMs: number;
}

/** By name, in this process: bounded by its connections. */
class BytesInFlight {
  readonly #places = new Map<string, Set<Place>>();

  /** Bytes that are being written under this name. */
  of(name: string, nowMs: number): number {
    const places = this.#places.get(name) ?? [];
    let sum = 0;
    for (const place of places) {
      if (place.endsMs <= nowMs) this.#end(name, place);
      else sum += place.bytes;
    }
    return sum;
  }

  /** @returns a function that ends the count */
  take(name: string, bytes: number, nowMs: number): () => void {
    const place = { bytes, endsMs: nowMs + RETENTION_MS };
    const places = this.#places.get(name) ?? new Set();
    this.#places.set(name, places.add(place));
    return () => this.#end(name, place);
  }

  #end(name: string, place: Place): void {
    const places = this.#places.get(name);
    places?.delete(place);
    if (places?.size === 0) this.#places.delete(name);
  }
}

/** By owner. */
export const fileBytesInFlight = new BytesInFlight();
/** By upload. */
export const partBytesInFlight = new BytesInFlight();

/**
 * Bounds on a form's file by its content-length: `least` bytes for the quota, `most` bytes that are accepted, including
 * the text that may surround the file.
 * @param room remaining quota, at least 1
 */
export function formByteRange(request: Request, most: number, room: number): { least: number; most: number } {
  const said = request.headers.get('content-length');
  const whole = said === null ? Number.POSITIVE_INFINITY : Number(said);
  const least = Math.max(1, Math.min(most, room, Number.isNaN(whole) ? most : whole - FORM_BYTES));
  return { least, most: Math.min(most, room, least + FORM_BYTES) };
}

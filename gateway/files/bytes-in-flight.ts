/**
 * Counts bytes that are being written to the file store and that no row contains yet. Without this count, concurrent
 * uploads could all use the same free quota.
 */

/**
 * Maximum time for which bytes are counted: a Worker that is stopped because its client disconnected never removes the
 * bytes that it added.
 */
const RETENTION_MS = 3_600_000;
/** Upper bound of the multipart text around one file. */
const FORM_BYTES = 4_096;

interface Place {
  bytes: number;
  endsMs: number;
}

/** Counts by name, only in this process. Bounded by the writes that began within RETENTION_MS. */
class BytesInFlight {
  readonly #places = new Map<string, Set<Place>>();

  /** Returns the bytes that are being written under this name. */
  of(name: string, nowMs: number): number {
    const places = this.#places.get(name) ?? [];
    let sum = 0;
    for (const place of places) {
      if (place.endsMs <= nowMs) this.#end(name, place);
      else sum += place.bytes;
    }
    return sum;
  }

  /** Adds bytes. @returns a function that removes them again */
  take(name: string, bytes: number, nowMs: number): () => void {
    for (const known of this.#places.keys()) this.of(known, nowMs);
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

/** Bytes that are being written, by owner. */
export const fileBytesInFlight = new BytesInFlight();
/** Bytes that are being written, by upload. */
export const partBytesInFlight = new BytesInFlight();

/**
 * Estimates the size of a form's file from the request's content-length. `least`: bytes that count against the quota
 * while the file arrives. `most`: bytes that are accepted; larger, because the length of the text around the file is
 * unknown.
 * @param room remaining quota, at least 1
 */
export function formByteRange(request: Request, most: number, room: number): { least: number; most: number } {
  const contentLength = request.headers.get('content-length');
  const whole = contentLength === null ? Number.POSITIVE_INFINITY : Number(contentLength);
  const least = Math.max(1, Math.min(most, room, Number.isNaN(whole) ? most : whole - FORM_BYTES));
  return { least, most: Math.min(most, room, least + FORM_BYTES) };
}

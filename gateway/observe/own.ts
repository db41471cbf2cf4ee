import type { Book } from '../../shared/metrics/book.ts';
import { CLOCK, TLS_END } from './families.ts';

let tlsEndsS: number | undefined;

/** Told by a host that ends TLS itself, whenever it takes a certificate. `endsS`: seconds since 1970. */
export function showsCertificateUntil(endsS: number): void {
  tlsEndsS = endsS;
}

/** What a gateway knows of itself: its clock, and its certificate where it ends TLS. */
export function addOwn(book: Book): void {
  book.set(CLOCK, [], Date.now() / 1000);
  if (tlsEndsS !== undefined) book.set(TLS_END, [], tlsEndsS);
}

/**
 * Codes for logins on machines without a browser (RFC 8628). The device code contains, encrypted, everything that the
 * gateway must remember, so a flood of started logins does not fill a store. Only an approval is stored.
 */
import * as z from 'zod';
import { CONTROL_FREE } from '../../http/common-schemas.ts';
import { decryptText, encryptText } from '../encrypt-text.ts';
import { sha256Hex } from '../secrets.ts';

/** Letters without vowels, so that codes form no words (RFC 8628 §6.1). */
const ALPHABET = 'BCDFGHJKLMNPQRSTVWXZ';
/**
 * There are 20^8 codes, and few are valid at one time, so a client that requests many device codes does not hit another
 * user's code.
 */
const RANDOM_LETTERS = 8;
const GROUP = 3;

export const DEVICE_MS = 10 * 60_000;
export const INTERVAL_S = 5;

const deviceSchema = z.object({ userCode: z.string(), name: z.string(), until: z.number() });
type PendingDeviceLogin = z.infer<typeof deviceSchema>;

/** The machine's name as its client sent it, shown in the list of keys. */
export const deviceNameSchema = z.string().min(1).max(100).regex(CONTROL_FREE);

/** @param random `random(n)` returns n uniformly distributed bytes */
export function newUserCode(secret: string, random: (bytes: number) => Uint8Array): string {
  let letters = '';
  while (letters.length < RANDOM_LETTERS) {
    for (const byte of random(RANDOM_LETTERS)) {
      if (letters.length === RANDOM_LETTERS) break;
      // 240 is a multiple of 20. Larger bytes are skipped, because they would favor some letters.
      if (byte < 240) letters += ALPHABET.charAt(byte % ALPHABET.length);
    }
  }
  return letters + checkLetter(secret, letters);
}

/** Computes the last letter of a code. It detects 19 of 20 mistyped codes without a query to a store. */
function checkLetter(secret: string, letters: string): string {
  const digest = Number.parseInt(sha256Hex(`otela-device-check\n${secret}\n${letters}`).slice(0, 8), 16);
  return ALPHABET.charAt(digest % ALPHABET.length);
}

/** Formats a code for people: `WDJ-BMJ-HTK`. */
export function formatUserCode(code: string): string {
  return (code.match(new RegExp(`.{${GROUP}}`, 'g')) ?? []).join('-');
}

/** Returns the stored form of a code that a user typed; undefined if this gateway cannot have issued it. */
export function readUserCode(secret: string, typed: string): string | undefined {
  const letters = typed.toUpperCase().replace(/[^A-Z]/g, '');
  if (letters.length !== RANDOM_LETTERS + 1) return undefined;
  const random = letters.slice(0, RANDOM_LETTERS);
  return letters.at(-1) === checkLetter(secret, random) ? letters : undefined;
}

/**
 * Maximum remembered logins, whose machine names are shown to the user before the approval. They are only in this
 * process, and a flood of logins evicts the oldest.
 */
const PENDING_LOGINS_MAX = 10_000;
/** Logins in progress by the hash of the user code, oldest first. */
const begun = new Map<string, { name: string; at: number }>();

export function rememberDevice(code: string, name: string, now: number): void {
  begun.set(sha256Hex(code), { name, at: now });
  const oldest = begun.size > PENDING_LOGINS_MAX ? begun.keys().next().value : undefined;
  if (oldest !== undefined) begun.delete(oldest);
}

/** Returns the machine that started the login with this code; undefined: this process does not know it. */
export function deviceOf(code: string, now: number): { name: string; at: number } | undefined {
  const known = begun.get(sha256Hex(code));
  return known !== undefined && now - known.at < DEVICE_MS ? known : undefined;
}

export function sealDevice(secret: string, login: PendingDeviceLogin): Promise<string> {
  return encryptText(secret, 'device', JSON.stringify(login));
}

/** Decrypts a device code; undefined if this gateway did not issue it, or if it has expired. */
export async function openDevice(secret: string, sealed: string, now: number): Promise<PendingDeviceLogin | undefined> {
  const text = await decryptText(secret, 'device', sealed);
  const login = text === undefined ? undefined : deviceSchema.safeParse(JSON.parse(text)).data;
  return login !== undefined && login.until > now ? login : undefined;
}

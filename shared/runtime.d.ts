/**
 * The only two web classes that shared/ may use: pure, and the same in workerd and Node.
 * Seen by tsconfig.shared alone; the other two configurations bring their runtime's own declarations.
 */
declare class TextEncoder {
  encode(input?: string): Uint8Array<ArrayBuffer>;
}

declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  decode(input?: Uint8Array): string;
}

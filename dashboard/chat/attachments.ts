/**
 * Files that are sent with a message: pictures unchanged, all other files as text. They are uploaded only with the
 * message.
 */
import { t } from '../texts/index.ts';
import type { Attachment } from './conversation.ts';

const MIB = 1024 * 1024;
/** Maximum size of a picture. A larger one is refused here, before the browser stalls on it. */
const IMAGE_MAX_BYTES = 8 * MIB;
const FILE_MAX_BYTES = 32 * MIB;
/** Maximum length of a file's text: about 100,000 tokens, more than most models read. */
const TEXT_MAX_CHARS = 400_000;
export const ATTACHMENTS_MAX = 10;
/** Bytes of a file that are examined to see if it is text. */
const PROBED_BYTES = 8_192;

/** Types that engines accept. A browser may show other types, but an engine may refuse them. */
const IMAGE_TYPES = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif']);

/** Types that a file chooser offers. Any file may be dropped. */
export const ACCEPTED =
  'image/png,image/jpeg,image/webp,image/gif,application/pdf,text/*,.md,.csv,.json,.yaml,.toml,.py,.ts,.tex,.log';

/** @throws Error with a message for the user */
export async function attachmentOf(file: File): Promise<Attachment> {
  const { name } = file;
  if (IMAGE_TYPES.has(file.type)) {
    if (file.size > IMAGE_MAX_BYTES) throw new Error(t.chat.files.tooLarge(name, IMAGE_MAX_BYTES / MIB));
    return { kind: 'image', name, url: await dataUrl(file) };
  }
  if (file.size > FILE_MAX_BYTES) throw new Error(t.chat.files.tooLarge(name, FILE_MAX_BYTES / MIB));
  if (file.type === 'application/pdf' || name.toLowerCase().endsWith('.pdf')) return await pdfOf(file);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.subarray(0, PROBED_BYTES).includes(0)) throw new Error(t.chat.files.unknown(name));
  return limited(name, new TextDecoder().decode(bytes));
}

async function pdfOf(file: File): Promise<Attachment> {
  const { name } = file;
  const { pdfText } = await import('./pdf.ts');
  const { text, pages } = await pdfText(new Uint8Array(await file.arrayBuffer()), TEXT_MAX_CHARS).catch((cause) => {
    throw new Error(t.chat.files.unreadable(name), { cause });
  });
  if (text.trim() === '') throw new Error(t.chat.files.noText(name));
  return { ...limited(name, text), pages };
}

function limited(name: string, text: string): Attachment & { kind: 'text' } {
  if (text.length <= TEXT_MAX_CHARS) return { kind: 'text', name, text };
  return { kind: 'text', name, text: text.slice(0, TEXT_MAX_CHARS), cut: true };
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(t.chat.files.unreadable(file.name), { cause: reader.error }));
    reader.readAsDataURL(file);
  });
}
